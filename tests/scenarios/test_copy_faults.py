"""Copies to a real S3 server behind a proxy that breaks requests, and into folders whose disk is full."""

from __future__ import annotations

import math
import pathlib
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.support.broken_copies import PART, Broken, require_copied
from tests.support.broken_copies import broken as broken  # noqa: PLC0414 - a fixture
from tests.support.closed_segments import ClosedSegment
from tests.support.fault_proxy import NO_SUCH_HOST, limits_for
from tests.support.leftovers import leftovers, seen_by_readers
from tests.support.manager_configs import local_keys
from tests.support.segments import make_segment, sound_log
from tests.support.servers import StoreServer
from tierlog.errors import StoreError, StoreUnavailableError
from tierlog.remote.api import RemoteStorageException, RetriableRemoteStorageException
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.store_urls import open_store

pytestmark = pytest.mark.server

ONE_RETRY = limits_for("lost", retries=1)


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> ClosedSegment:
    """Three parts and a bit."""
    made = make_segment(sound_log(32, base_offset=100, batch_bytes=520_100)).closed_in(tmp_path_factory.mktemp("large"))
    assert 3 * PART < made.metadata.segment_size_in_bytes < 4 * PART
    return made


SLOW = pytest.mark.slow  # the pauses between tries take seconds
PASSING = [
    ("reset", {"after_bytes": 100_000}),
    pytest.param("stall", {}, marks=SLOW),
    pytest.param("status", {"status": 503}, marks=SLOW),
    pytest.param("status", {"status": 429, "headers": {"Retry-After": "1"}}, marks=SLOW),
    ("status_after", {"status": 500}),
    ("lost", {}),
    pytest.param("damage", {}, marks=SLOW),
]


@pytest.mark.parametrize(("kind", "more"), PASSING)
def test_a_copy_survives_what_passes(
    kind: str, more: dict[str, Any], broken: Broken, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """One bad second of a store must not cost a copy of 256 MiB; and what was stored twice must be right."""
    with broken.manager(tmp_path, "aiven-zstd-aes", **limits_for(kind)) as manager:
        broken.proxy.add(kind, verb="PUT", path="partNumber=1", **more)
        broken.proxy.add(kind, verb="PUT", path=".indexes", **more)
        broken.proxy.add(kind, verb="PUT", path="rsm-manifest", **more)
        require_copied(broken, manager, segment)


@pytest.mark.few(2)
@pytest.mark.parametrize("path", ["uploads", "partNumber=2", "uploadId", ".indexes", "rsm-manifest"])
@pytest.mark.parametrize("kind", ["lost", pytest.param("status", marks=SLOW), pytest.param("status_after", marks=SLOW)])
def test_a_copy_that_fails_for_long_leaves_nothing(
    path: str, kind: str, broken: Broken, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """A store that is ill for an hour fails a copy an hour long; what each leaves behind is paid for."""
    verb = "POST" if path in ("uploads", "uploadId") else "PUT"
    with broken.manager(tmp_path, **ONE_RETRY) as manager:
        broken.proxy.add(kind, verb=verb, path=path, times=2, status=500)
        with pytest.raises(RetriableRemoteStorageException) as caught:
            manager.copy_log_segment_data(segment.metadata, segment.data)
        notes = getattr(caught.value, "__notes__", ())
        assert all("may store an object yet" in note for note in notes), "nothing is known to be left"
        broken.require_nothing()
        broken.proxy.clear()
        require_copied(broken, manager, segment.with_id(2))


@pytest.mark.parametrize(
    ("status", "code", "kind"), [(403, "AccessDenied", "refused"), (404, "NoSuchBucket", "not_found")]
)
def test_rights_or_a_bucket_that_go_halfway(
    status: int, code: str, kind: str, broken: Broken, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """Credentials that expire in the middle of a copy also forbid to clean up: that must be told, and mended later."""
    with broken.manager(tmp_path) as manager:
        broken.proxy.add("status", status=status, code=code, times=None, skip=3)
        with pytest.raises(RemoteStorageException, match=code) as caught:
            manager.copy_log_segment_data(segment.metadata, segment.data)
        assert not isinstance(caught.value, RetriableRemoteStorageException)
        assert manager.metrics.value("errors_total", operation="copy", kind=kind) == 1
        broken.proxy.clear()
        if code == "AccessDenied":  # a bucket that is gone has nothing left to remove
            assert "could not be removed" in " ".join(caught.value.__notes__)
            assert [upload.key[-4:] for upload in broken.sound.iter_uploads()] == [".log"]
            manager.delete_log_segment_data(segment.finished())
            broken.require_nothing()
        for upload in list(broken.sound.iter_uploads()):
            broken.sound.abort_upload(upload)
        require_copied(broken, manager, segment.with_id(2))


def test_a_name_that_no_longer_resolves(s3: StoreServer, segment: ClosedSegment, tmp_path: pathlib.Path) -> None:
    """DNS that is gone is an error within the store's time limit, and a later attempt may work."""
    options = dict(s3.options) | {"store.endpoint": f"http://{NO_SUCH_HOST}:8333"} | ONE_RETRY
    store = open_store(f"{s3.url}/nowhere", options)
    with TieredStorageManager(wrap_store=lambda _: store) as manager:
        manager.configure(local_keys(tmp_path / "unused"))
        with pytest.raises(RetriableRemoteStorageException):
            manager.copy_log_segment_data(segment.metadata, segment.data)


def test_a_manifest_that_lands_after_the_delete(broken: Broken, segment: ClosedSegment, tmp_path: pathlib.Path) -> None:
    """Ten minutes later a request arrives that everybody had given up: nothing may be read from it."""
    with broken.manager(tmp_path, **ONE_RETRY) as manager:
        broken.proxy.add("late", verb="PUT", path="rsm-manifest", times=None)
        with pytest.raises(RetriableRemoteStorageException):
            manager.copy_log_segment_data(segment.metadata, segment.data)
        manager.delete_log_segment_data(segment.finished())
        broken.require_nothing()
        broken.proxy.clear()
        assert broken.proxy.land_late() >= 1
        assert broken.names() == ["rsm-manifest"]
        with pytest.raises(RemoteStorageException):
            manager.fetch_log_segment(segment.finished(), 0).read()
        (left,) = leftovers(broken.sound)
        assert seen_by_readers(left)
        manager.delete_log_segment_data(segment.finished())
        broken.require_nothing()


def test_what_is_sent_again_counts_for_the_limit(
    broken: Broken, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """A store that fails halfway through each request makes a broker send twice as much, limit or not."""
    limit = 10 << 20
    with broken.manager(tmp_path) as manager:
        manager.change_rate_limit("upload", limit)
        for number in (1, 2, 3):
            broken.proxy.add("status_after", verb="PUT", path=f"partNumber={number}", status=500)
        broken.proxy.add("reset", verb="PUT", path="partNumber=4", after_bytes=1000)
        before = len(broken.proxy.seen)
        began = time.monotonic()
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        sent = [each for each in broken.proxy.seen[before:] if each.verb == "PUT"]
        with manager.fetch_log_segment(segment.finished(custom), 0) as stream:
            assert stream.read() == segment.log
    size = segment.metadata.segment_size_in_bytes
    assert sum(each.fault is not None for each in sent) == 4
    assert sum(each.body_bytes for each in sent) > 2 * size
    begun = sorted(sent, key=lambda each: each.at_seconds)
    for count in range(2, len(begun) + 1):  # a grant waits for all before it, and the proxy sees it late
        took = begun[count - 1].at_seconds - began
        assert took >= sum(each.body_bytes for each in begun[: count - 1]) / limit - 0.3, count


def test_requests_of_a_copy(broken: Broken, segment: ClosedSegment, tmp_path: pathlib.Path) -> None:
    """Requests are paid for one by one: the bar is four and one for each part; three where the log is one part."""
    with broken.manager(tmp_path) as manager:
        asked = {verb: manager.metrics.value("store_requests_total", verb=verb) for verb in ("PUT", "POST")}
        before = len(broken.proxy.seen)
        manager.copy_log_segment_data(segment.metadata, segment.data)
        seen = broken.proxy.seen[before:]
        parts = math.ceil(segment.metadata.segment_size_in_bytes / PART)
        assert len(seen) <= 4 + parts, [(each.verb, each.path, each.query) for each in seen]
        small = make_segment(sound_log(base_offset=100)).closed_in(tmp_path / "small").with_id(9)
        before = len(broken.proxy.seen)
        manager.copy_log_segment_data(small.metadata, small.data)
        assert len(broken.proxy.seen) - before == 3
        verbs = {verb: manager.metrics.value("store_requests_total", verb=verb) - asked[verb] for verb in asked}
        assert verbs == {"PUT": parts + 5, "POST": 2}


class FullDisk:
    """Files whose disk takes so many bytes and no more."""

    def __init__(self, files: object, room_bytes: int) -> None:
        self._files = files
        self.room_bytes = room_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open_update(self, path: str, **more: Any) -> Any:
        return _FullFile(self._files.open_update(path, **more), self)  # type: ignore[attr-defined]


class _FullFile:
    def __init__(self, file: Any, disk: FullDisk) -> None:
        self._file = file
        self._disk = disk

    def write_at(self, data: Any, *, position: int) -> None:
        self._disk.room_bytes -= memoryview(data).nbytes
        if self._disk.room_bytes < 0:
            raise StoreError("injected: No space left on device")
        self._file.write_at(data, position=position)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize("missing_bytes", [1 << 30, 10 << 20, 1, -1, -200])
def test_a_full_disk_fails_the_copy_and_nothing_else(
    missing_bytes: int, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """The folder that is full must not fill up with halves of segments."""
    machine = Machine()
    disk = FullDisk(machine.files, segment.metadata.segment_size_in_bytes - missing_bytes)
    with TieredStorageManager(machine=replace(machine, files=disk)) as manager:  # type: ignore[arg-type]
        manager.configure(local_keys(tmp_path / "store"))
        with pytest.raises(RemoteStorageException, match="No space left"):
            manager.copy_log_segment_data(segment.metadata, segment.data)
        assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []
        disk.room_bytes = 1 << 30
        manager.copy_log_segment_data(segment.metadata, segment.data)


def test_errors_that_a_retry_can_mend_are_told_apart() -> None:
    """Kafka keeps what a retriable error left, and counts the others."""
    assert StoreUnavailableError.retriable
    assert RetriableRemoteStorageException.retriable
    assert not RemoteStorageException.retriable
