"""The jar's client of object stores beside the Python path's: the same bytes, the same errors."""

from __future__ import annotations

import base64
import contextlib
import http.server
import os
import pathlib
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Self

import pytest

from tests.support.checkout import ROOT
from tests.support.servers import StoreServer
from tests.support.task_reader import Unavailable, jar, spark_jars
from tierlog.errors import TierlogError
from tierlog.runtime.stores.store_urls import address_store, open_store

HARNESS = ROOT / "bindings/spark/java/src/test/java/io/tierlog/engine/StoreHarness.java"


class StoreClientProcess:
    """One JVM with one client at a time; a context manager.

    Args:
        folder: For what is compiled.
        environment: Of the JVM.

    Raises:
        Unavailable: no jar, no JDK, or a jar without the library.
    """

    def __init__(self, folder: pathlib.Path, *, environment: Mapping[str, str] | None = None) -> None:
        home = os.environ.get("JAVA_HOME")
        java, javac = (f"{home}/bin/{name}" if home else shutil.which(name) or "" for name in ("java", "javac"))
        if not (os.access(java, os.X_OK) and os.access(javac, os.X_OK)):
            raise Unavailable("no JDK: JAVA_HOME has no javac")
        path = f"{jar()}:{spark_jars()}/*"
        classes = folder / "classes"
        subprocess.run([javac, "-nowarn", "-cp", path, "-d", classes, HARNESS], check=True, capture_output=True)
        command = [java, "-Xmx256m", "-Xcheck:jni", "-cp", f"{classes}:{path}", "io.tierlog.engine.StoreHarness"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        assert self._process.wait(30) == 0

    def ask(self, *words: object) -> list[str]:
        """The words of the answer; texts in base64 are decoded where they start with ``=``."""
        sent = [str(word) if not isinstance(word, bytes) else f"={base64.b64encode(word).decode()}" for word in words]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(sent) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline().strip()
        assert line, "the JVM died"
        return line.split(" ")

    def open(self, url: str, options: Mapping[str, str]) -> None:
        """Raises ClientError."""
        pairs = [text.encode() for pair in options.items() for text in pair]
        _checked(self.ask("open", url.encode(), *pairs))

    def read(self, key: str, start: int, end: int) -> bytes:
        """Raises ClientError."""
        return base64.b64decode(_checked(self.ask("read", key.encode(), start, end))[1][1:])


class ClientError(Exception):
    """What Java threw: the kind, and the text."""

    @property
    def kind(self) -> str:
        return str(self.args[0])

    @property
    def text(self) -> str:
        return str(self.args[1])


def error_of(words: list[str]) -> ClientError:
    return ClientError(words[1], base64.b64decode(words[2][1:]).decode())


def _checked(words: list[str]) -> list[str]:
    if words[0] == "error":
        raise error_of(words)
    return words


class _Faults(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stalled = threading.Event()

    def do_GET(self) -> None:
        """The last part of the path says what goes wrong."""
        fault = self.path.partition("?")[0].rpartition("/")[2]
        if fault.startswith("status-"):
            code, _, word = fault.removeprefix("status-").partition("-")
            body = f"<Error><Code>{word}</Code></Error>".encode()
            self.send_response(int(code))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        elif fault == "reset":
            self.close_connection = True
        elif fault == "stall":
            self.stalled.wait(20)
            self.close_connection = True
        elif fault == "cut":
            self._send_part(b"01234", 10, total=10)
            self.close_connection = True
        elif fault == "whole":  # a store that knows no ranges
            self.send_response(200)
            self.send_header("Content-Length", "10")
            self.end_headers()
            self.wfile.write(b"0123456789")
        elif fault == "more":
            self._send_part(b"0123456789", 10, total=4)

    def _send_part(self, body: bytes, length: int, *, total: int) -> None:
        self.send_response(206)
        self.send_header("Content-Length", str(length))
        self.send_header("Content-Range", f"bytes 0-{total - 1}/{total}")
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def failing_store() -> Iterator[str]:
    """The endpoint of an S3 store whose keys are faults."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Faults)
    server.daemon_threads = True
    _Faults.stalled.clear()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        _Faults.stalled.set()
        server.shutdown()
        server.server_close()
        thread.join()


pytestmark = pytest.mark.server

INTEROP = pytest.mark.interop
SERVERS = ["s3", pytest.param("azure", marks=INTEROP), pytest.param("gcs", marks=INTEROP)]
CONTENT = bytes(range(256)) * 4096  # 1 MiB


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreClientProcess]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "AZURE_", "GOOGLE_"))}
    try:
        process = StoreClientProcess(
            tmp_path_factory.mktemp("client"), environment=environment | {"HOME": "/nonexistent"}
        )
    except Unavailable as error:
        pytest.skip(str(error))
    with process:
        try:
            process.open("s3://any", {"region": "us-east-1"})
        except ClientError as error:
            if "carries no libtierlog_store.so" not in error.text:
                raise
            pytest.skip(error.text)
        process.ask("close")
        yield process


@pytest.fixture(scope="module")
def faults() -> Iterator[str]:
    with failing_store() as endpoint:
        yield endpoint


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> StoreServer:
    found: StoreServer = request.getfixturevalue(request.param)
    return found


def test_ranges_are_those_of_the_python_path(server: StoreServer, client: StoreClientProcess) -> None:
    """A query through the jar would return other records than the same query without it."""
    prefix = f"ranges-{time.monotonic_ns()}"
    server.put(f"{prefix}/a b/object", CONTENT)
    url = f"{server.url}/{prefix}"
    store = open_store(url, server.options)
    client.open(url, address_store(url, server.options).options)
    key = "a b/object"
    for start, end in [(0, 1), (0, len(CONTENT)), (1000, 70000), (len(CONTENT) - 3, len(CONTENT) + 9), (5, 5)]:
        assert client.read(key, start, end) == CONTENT[start:end]
    for start in (len(CONTENT), len(CONTENT) + 5):
        expected = bytes(store.fetch_range(key, start_position=start, end_position_exclusive=start + 10))
        assert client.read(key, start, start + 10) == expected == b""
    assert _failures(client, store, "gone") == [("ObjectNotFoundError", f"{url}/gone: not found")] * 2
    client.ask("close")


def test_refused_credentials_are_named_alike(s3: StoreServer, client: StoreClientProcess) -> None:
    """A user who searches for the message of one path would not find what helped with the other."""
    options = dict(s3.options) | {"store.secret_access_key": "wrong"}
    store = open_store(s3.url, options)
    client.open(s3.url, address_store(s3.url, options).options)
    ours, theirs = _failures(client, store, "some/key")
    assert ours[0] == "StorePermissionError"
    assert ours == theirs
    client.ask("close")


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("status-403-AccessDenied", "StorePermissionError"),
        ("status-400-ExpiredToken", "StorePermissionError"),
        ("status-404-NoSuchKey", "ObjectNotFoundError"),
        ("status-429-SlowDown", "StoreUnavailableError"),
        ("status-503-SlowDown", "StoreUnavailableError"),
        ("status-500-InternalError", "StoreUnavailableError"),
        ("status-501-NotImplemented", "StoreError"),
        ("status-301-PermanentRedirect", "StoreError"),
        ("reset", "StoreUnavailableError"),
        ("stall", "StoreUnavailableError"),
        ("cut", "StoreUnavailableError"),
        ("whole", "StoreError"),
    ],
)
def test_faults_have_one_name_on_both_paths(faults: str, client: StoreClientProcess, fault: str, kind: str) -> None:
    """Retries and failOnDataLoss act on the kind: the paths would answer one outage differently."""
    options = _options(faults, timeout="1s")
    store = open_store("s3://tier", options)
    client.open("s3://tier", address_store("s3://tier", options).options)
    ours, theirs = _failures(client, store, fault)
    client.ask("close")
    assert ours[0] == kind
    assert ours == theirs


@pytest.mark.parametrize(
    ("endpoint", "told"),
    [
        ("http://127.0.0.1:{closed}", ": connection refused"),
        ("https://127.0.0.1:{plain}", ": the server does not speak TLS there (http:// in place of https://?)"),
        ("http://tierlog.invalid", ": the host's name is not known"),
        ("https://127.0.0.1:{expired}", "the server's certificate has expired"),
        ("https://127.0.0.1:{unknown}", "the server's certificate comes from an issuer that is not trusted "),
        ("https://127.0.0.1:{other}", "the server's certificate is for other names than the endpoint's: 127.9.9.9"),
    ],
    ids=lambda value: value.strip(": ")[:40],
)
def test_why_no_connection_was_made(
    client: StoreClientProcess, faults: str, tmp_path: pathlib.Path, endpoint: str, told: str
) -> None:
    """The executors' logs would say "error sending request" of all of them, where the driver's name the cause."""
    certificates = pytest.importorskip("tests.runtime.stores.test_certificates")
    authority = certificates.Authority()
    with socket.create_server(("127.0.0.1", 0)) as closing:
        ports = {"closed": closing.getsockname()[1], "plain": faults.rpartition(":")[2]}
    days, address = (
        ((-2, -1) if "expired" in endpoint else (-1, 1)),
        ("127.9.9.9" if "other" in endpoint else "127.0.0.1"),
    )
    with certificates.serving(authority.context(tmp_path, days, address)) as port:
        at = endpoint.format(**ports, expired=port, unknown=port, other=port)
        options = _options(at) | {"store.max_retries": "0", "store.secret_access_key": "hunter2"}
        if "unknown" not in endpoint:
            options["store.root_certificate"] = authority.pem
        client.open("s3://tier", address_store("s3://tier", options).options)
        ours, theirs = _failures(client, open_store("s3://tier", options), "key")
    assert told in ours[1]
    assert ours == theirs
    assert "hunter2" not in ours[1]
    client.ask("close")


def test_nothing_is_written_behind_the_memory(faults: str, client: StoreClientProcess) -> None:
    """A store that answers with more than was asked for would overwrite the JVM's memory."""
    client.open("s3://tier", address_store("s3://tier", _options(faults)).options)
    with pytest.raises(ClientError, match="more than bytes 0 to 4"):
        client.read("more", 0, 4)
    client.ask("close")


def test_an_interrupted_task_comes_back_at_once(faults: str, client: StoreClientProcess) -> None:
    """A killed task would keep its slot until the store answers or the request times out."""
    client.open("s3://tier", address_store("s3://tier", _options(faults)).options)
    took_ms, *words = client.ask("interrupt", b"stall", 0, 100)
    assert error_of(words).kind == "InterruptedException"
    assert int(took_ms) < 1000
    client.ask("close")
    assert client.ask("counts")[:2] == ["[0,", "0,"]


def test_cancelled_reads_leave_memory_alone_and_nothing_behind(s3: StoreServer, client: StoreClientProcess) -> None:
    """Bytes that arrive after a cancel would land in memory that belongs to somebody else by then."""
    key = f"cancel-{time.monotonic_ns()}"
    s3.put(key, CONTENT)
    client.open(s3.url, address_store(s3.url, s3.options).options)
    assert client.read(key, 0, 10) == CONTENT[:10]
    before = _threads(client)
    for _ in range(10):
        assert client.ask("cancel", key.encode(), 0, len(CONTENT)) == ["untouched"]
    assert client.read(key, 0, len(CONTENT)) == CONTENT
    client.ask("close")
    assert client.ask("counts")[:2] == ["[0,", "0,"]
    assert _threads(client) <= before
    with pytest.raises(ClientError, match="closed"):
        client.read(key, 0, 1)


def test_unknown_options_are_refused(client: StoreClientProcess) -> None:
    """A misspelt option would be ignored, and the wrong store asked."""
    with pytest.raises(ClientError, match="no_such_key") as caught:
        client.open("s3://tier", {"no_such_key": "s3cret"})
    assert caught.value.kind == "ConfigError"
    assert "s3cret" not in caught.value.text


def _options(endpoint: str, timeout: str = "20s") -> dict[str, str]:
    return {
        "store.endpoint": endpoint,
        "store.access_key_id": "a",
        "store.secret_access_key": "b",
        "store.region": "us-east-1",
        "store.timeout": timeout,
        "store.max_retries": "1",
    }


def _failures(client: StoreClientProcess, store: object, key: str) -> list[tuple[str, str]]:
    """(kind, text without times) of the jar's client and of the Python path."""
    with pytest.raises(ClientError) as ours:
        client.read(key, 0, 10)
    with pytest.raises(TierlogError) as theirs:
        store.fetch_range(key, start_position=0, end_position_exclusive=10)  # type: ignore[attr-defined]
    texts = [(ours.value.kind, ours.value.text), (type(theirs.value).__name__, str(theirs.value))]
    return [(kind, re.sub(r"in [0-9.]+ ?(ns|µs|ms|s)\b", "in TIME", _without_ids(text))) for kind, text in texts]


def _threads(client: StoreClientProcess) -> int:
    return sum(1 for _ in pathlib.Path(f"/proc/{client.pid}/task").iterdir())


def _without_ids(text: str) -> str:
    """Servers name each request by a number of its own."""
    return re.sub(r"<RequestId>.*?</RequestId>|RequestId:\S+|Time:\S+", "", text)
