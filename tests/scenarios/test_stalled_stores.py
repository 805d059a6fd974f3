"""Real stores that stall: an S3 server that is stopped (SIGSTOP), one that is down, a third party's that blocks."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from typing_extensions import Buffer

from tests.support.closed_segments import ClosedSegment
from tests.support.manager_configs import BASE, local_keys
from tests.support.segments import make_segment, sound_log
from tests.support.servers import StoreServer, free_port, seaweed
from tests.support.waiting import ENDLESS_SECONDS, ENDLESS_STORE, ends, wait_until
from tierlog.errors import StoreNotReachedError
from tierlog.remote.api import RetriableRemoteStorageException
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.stores.protocol.object_store import ObjectStore, StoredObject
from tierlog.runtime.stores.store_urls import open_store
from tierlog.runtime.stores.wrappers.passing_store import PassingStore

pytestmark = pytest.mark.server

PART = 5 << 20


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> ClosedSegment:
    """Three parts and a bit."""
    return make_segment(sound_log(32, base_offset=100, batch_bytes=1_040_100)).closed_in(
        tmp_path_factory.mktemp("large")
    )


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """One that nobody else waits for while it is stopped."""
    with seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@contextlib.contextmanager
def stopped(server: StoreServer) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def s3_keys(server: StoreServer, prefix: str, **more: str) -> dict[str, object]:
    return (
        BASE
        | {
            "storage.backend.class": "s3",
            "storage.s3.bucket.name": server.url.removeprefix("s3://"),
            "storage.s3.region": "us-east-1",
            "storage.s3.endpoint.url": server.options["store.endpoint"],
            "storage.s3.path.style.access.enabled": "true",
            "storage.aws.access.key.id": server.options["store.access_key_id"],
            "storage.aws.secret.access.key": server.options["store.secret_access_key"],
            "chunk.size": str(1 << 20),
            "upload.part.size": str(PART),
            "key.prefix": prefix,
        }
        | ENDLESS_STORE
        | {name.replace("_", "."): value for name, value in more.items()}
    )


def things(server: StoreServer, prefix: str) -> list[str]:
    store = open_store(server.url, server.options)
    try:
        return [info.key for info in store.iter_objects(prefix)] + [u.key for u in store.iter_uploads(prefix)]
    finally:
        store.close()


def test_a_stopped_server_delays_no_deadline(own_server: StoreServer, segment: ClosedSegment) -> None:
    """The 3 s were 63: every try of the undo's DELETE was waited for. Once it goes on, nothing stays."""
    with TieredStorageManager() as manager:
        manager.configure(s3_keys(own_server, "deadline/", copy_deadline_ms="2000"))
        with stopped(own_server):
            with ends(), pytest.raises(RetriableRemoteStorageException, match="called off") as caught:
                manager.copy_log_segment_data(segment.metadata, segment.data)
            assert "tried again while this process runs" in " ".join(caught.value.__notes__)
            assert manager.metrics.value("leftovers") == 1
        wait_until(lambda: manager.metrics.value("leftovers") == 0)
        assert things(own_server, "deadline/") == []


def test_a_stopped_server_delays_no_close(own_server: StoreServer, segment: ClosedSegment) -> None:
    """A copy, a fetch and a delete under way: all of them are back when the manager is closed."""
    with TieredStorageManager() as manager:
        manager.configure(s3_keys(own_server, "close/"))
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        finished, other = segment.finished(custom), segment.with_id(2)
        failed: list[BaseException] = []

        def run(call: Callable[[], object]) -> threading.Thread:
            def keep() -> None:
                try:
                    call()
                except RetriableRemoteStorageException as error:
                    failed.append(error)

            thread = threading.Thread(target=keep)
            thread.start()
            return thread

        with stopped(own_server):
            calls: list[Callable[[], object]] = [
                lambda: manager.copy_log_segment_data(other.metadata, other.data),
                lambda: manager.fetch_log_segment(finished, 0).read(10),
                lambda: manager.delete_log_segment_data(finished),
            ]
            threads = [run(call) for call in calls]
            time.sleep(1)
            with ends():
                manager.close()
                for thread in threads:
                    thread.join()
            assert len(failed) == 3


def test_a_start_does_not_wait_for_a_stopped_server(own_server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker serves what it has on its disk: its start does not take as long as all tries of a probe."""
    monkeypatch.setattr("tierlog.remote.storage.start_probe._START_SECONDS", 1.0)
    with TieredStorageManager() as manager:
        with stopped(own_server):
            with ends():
                manager.configure(s3_keys(own_server, "start/"))
            assert manager.store_traits is None
        wait_until(lambda: manager.metrics.value("leftovers") == 0)
        assert things(own_server, "start/") == []


def test_a_server_that_is_down_is_left_nothing(tmp_path: pathlib.Path, segment: ClosedSegment) -> None:
    """A refused connection stores nothing: no note, no leftover, no second minute of tries to remove it."""
    nowhere = {"store.endpoint": f"http://127.0.0.1:{free_port()}", "store.allow_http": "true"}
    keys = {"store.access_key_id": "a", "store.secret_access_key": "b", "store.region": "us-east-1"}
    quick = {"store.max_retries": "1", "store.retry_timeout": "2s"}
    store = open_store("s3://tier", nowhere | keys | quick)
    with pytest.raises(StoreNotReachedError):
        store.put("x", b"x")
    with TieredStorageManager(wrap_store=lambda _: store) as manager:
        manager.configure(local_keys(tmp_path / "unused") | {"store.probe.enabled": "false"})
        with pytest.raises(RetriableRemoteStorageException) as caught:
            manager.copy_log_segment_data(segment.metadata, segment.data)
        assert not getattr(caught.value, "__notes__", [])
        assert manager.metrics.value("leftovers") == 0
        assert manager.metrics.value("leftover_objects_total") == 0


class Blocking(PassingStore):
    """A third party's: nothing ends its calls."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.gate = threading.Event()
        self.gate.set()

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        self.gate.wait(ENDLESS_SECONDS)
        return super().put(key, data, expected_etag=expected_etag)

    def delete(self, keys: Sequence[str]) -> None:
        self.gate.wait(ENDLESS_SECONDS)
        super().delete(keys)


def test_a_store_that_only_blocks(tmp_path: pathlib.Path, segment: ClosedSegment) -> None:
    """Its thread is left behind: the copy and the close are back in time, and the process can end."""
    made: list[Blocking] = []

    def wrap(store: ObjectStore) -> ObjectStore:
        made.append(Blocking(store))
        return made[0]

    with TieredStorageManager(wrap_store=wrap) as manager:
        manager.configure(local_keys(tmp_path / "store") | {"copy.deadline.ms": "1000"})
        made[0].gate.clear()
        with ends(), pytest.raises(RetriableRemoteStorageException) as caught:
            manager.copy_log_segment_data(segment.metadata, segment.data)
        assert "the store has not answered" in " ".join(caught.value.__notes__)
        with ends():
            manager.close()
        made[0].gate.set()
