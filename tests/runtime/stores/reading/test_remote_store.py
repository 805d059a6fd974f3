"""Buckets over the wire, from a server that answers as badly as servers do."""

from __future__ import annotations

import gc
import http.server
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tests.support.forked import told_by_fork
from tests.support.waiting import ENDLESS_STORE, LIMIT_SECONDS, ends, wait_until
from tierlog.errors import (
    ObjectNotFoundError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
)
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.store_urls import open_store

BODY = bytes(range(200)) * 50


class BadServer(http.server.ThreadingHTTPServer):
    """Speaks as much S3 as a GET needs. The first element of the key is how it misbehaves."""

    daemon_threads = False
    block_on_close = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), BadHandler)
        self.released = threading.Event()
        self.requests = 0

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that gave up is part of the test."""


class BadHandler(http.server.BaseHTTPRequestHandler):
    server: BadServer

    def do_GET(self) -> None:
        self.server.requests += 1
        kind = self.path.removeprefix("/bucket/").partition("/")[0]
        if kind.isdigit():
            self.answer(int(kind), b"<Error><Code>SomeCode</Code></Error>")
        elif kind == "good":
            start, _, end = self.headers["Range"].removeprefix("bytes=").partition("-")
            part = BODY[int(start) : int(end) + 1]
            self.answer(206, part, ("Content-Range", f"bytes {start}-{int(start) + len(part) - 1}/{len(BODY)}"))
        elif kind == "short":
            self.answer(206, BODY[:50], ("Content-Range", f"bytes 0-99/{len(BODY)}"), declared=100)
        elif kind == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        else:
            self.server.released.wait(LIMIT_SECONDS)
        self.close_connection = True

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, b"")

    def answer(self, status: int, body: bytes, *headers: tuple[str, str], declared: int | None = None) -> None:
        self.send_response(status)
        for name, value in (("Last-Modified", "Sat, 21 Nov 2026 12:00:00 GMT"), ("ETag", '"e"'), *headers):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if declared is None else declared))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[BadServer]:
    made = BadServer()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.released.set()
    made.shutdown()
    thread.join()
    made.server_close()


def opened(server: BadServer, *, timeout: str = ENDLESS_STORE["store.timeout"]) -> ObjectStore:
    options = {
        "store.endpoint": f"http://127.0.0.1:{server.server_port}",
        "store.region": "us-east-1",
        "store.access_key_id": "id-of-mine",
        "store.secret_access_key": "s3cret",
        "store.timeout": timeout,
        "store.max_retries": "1",
        "store.pool_max_idle_per_host": "0",
    }
    return open_store("s3://bucket", options)


@pytest.fixture
def store(server: BadServer) -> ObjectStore:
    return opened(server)


def fetch(store: ObjectStore, kind: str) -> bytes:
    return bytes(store.fetch_range(f"{kind}/key", start_position=0, end_position_exclusive=100))


def test_a_sound_answer(store: ObjectStore, server: BadServer) -> None:
    """If this fails, the rest of this file shows nothing; or a read needs more than one request."""
    assert fetch(store, "good") == BODY[:100]
    assert server.requests == 1


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("503", StoreUnavailableError),
        ("500", StoreUnavailableError),
        ("429", StoreUnavailableError),
        ("reset", StoreUnavailableError),
        ("stall", StoreUnavailableError),
        ("short", StoreUnavailableError),
        ("403", StorePermissionError),
        ("401", StorePermissionError),
        ("404", ObjectNotFoundError),
        ("400", StoreError),
    ],
)
def test_each_misbehaviour_tells_what_to_do(server: BadServer, kind: str, error: type[StoreError]) -> None:
    """If this fails, a throttled store looks like lost data, a refused one is retried, or a stalled one hangs."""
    store = opened(server, **{"timeout": "400ms"} if kind == "stall" else {})
    with ends(), pytest.raises(StoreError) as caught:
        fetch(store, kind)
    assert type(caught.value) is error
    assert caught.value.retriable == (error is StoreUnavailableError)
    assert f"s3://bucket/{kind}/key" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "Debug source" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_range_behind_the_end_is_a_short_answer(store: ObjectStore) -> None:
    """If this fails, a truncated object looks like a broken store."""
    assert bytes(store.fetch_range("416/key", start_position=5, end_position_exclusive=9)) == b""


def test_a_name_is_no_range_behind_the_end(store: ObjectStore) -> None:
    """If this fails, an object of such a name that cannot be read is read as nothing."""
    with pytest.raises(StoreError):
        store.fetch_range("400/InvalidRange", start_position=0, end_position_exclusive=9)


def test_nobody_listens() -> None:
    """If this fails, a wrong endpoint hangs, or is a traceback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"store.endpoint": f"http://127.0.0.1:{port}", "store.max_retries": "0", "store.skip_signature": "true"}
    with pytest.raises(StoreUnavailableError):
        fetch(open_store("s3://bucket", options), "good")


def test_a_bucket_that_a_parent_process_read_is_refused(store: ObjectStore, server: BadServer) -> None:
    """Obstore's threads serve the whole process: in a child a new store would hang as the old one does."""
    assert fetch(store, "good") == BODY[:100]
    *calls, closed = told_by_fork(
        lambda: fetch(store, "good"),
        lambda: fetch(opened(server), "good"),
        lambda: store.find("good/x"),
        lambda: list(store.iter_objects("good/")),
        lambda: store.put("good/x", b"x"),
        store.close,
    )
    for told in calls[:-1]:
        assert told.startswith("ForkedProcessError: obstore, which reads buckets, was used before"), told
        assert told.endswith("fork before the first use, or start processes by spawn or forkserver")
    assert not calls[-1].startswith("ForkedProcessError")  # the writer had not begun: it is as good as new
    assert closed == "None"


def test_a_store_that_is_dropped_leaves_no_thread(server: BadServer) -> None:
    """A caller that opens a store for each object that it writes, and closes none, would run out of threads."""
    before = threading.active_count()
    for _ in range(3):
        opened(server).put("good/key", b"content")
    gc.collect()
    wait_until(lambda: threading.active_count() <= before)
