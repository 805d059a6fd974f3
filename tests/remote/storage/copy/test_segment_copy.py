"""Copies over stores that break: all of a segment or nothing of it, and what stays is reported."""

from __future__ import annotations

import concurrent.futures
import logging
import pathlib
import random
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from typing_extensions import Buffer

from tests.support.closed_segments import ClosedSegment
from tests.support.leftovers import leftovers, seen_by_readers
from tests.support.manager_configs import SHAPES, local_keys
from tests.support.segments import make_segment, sound_log
from tests.support.waiting import LIMIT_SECONDS
from tierlog.errors import CorruptDataError, StoreError, StoreUnavailableError
from tierlog.remote.api import (
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
)
from tierlog.remote.storage.copy import log_copy
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.machine import Machine, Process
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.posix_files import PosixFiles
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore, StoredObject, Upload, views_of
from tierlog.runtime.stores.store_urls import open_store
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.testing.failing_store import FailingStore


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small segment has several parts."""
    monkeypatch.setattr(log_copy, "_LOCAL_PART_BYTES", 50_000)
    monkeypatch.setattr(log_copy, "_BUNDLE_BYTES", 40_000)


@pytest.fixture
def segment(tmp_path: pathlib.Path) -> ClosedSegment:
    return make_segment(sound_log(80, base_offset=100)).closed_in(tmp_path / "log")


@pytest.fixture
def bucket() -> Iterator[ObjectStore]:
    store = open_store(f"memory://{uuid.uuid4()}")
    yield store
    store.close()


def manager_over(
    store: ObjectStore,
    tmp_path: pathlib.Path,
    shape: str = "aiven-zstd-aes",
    *,
    machine: Machine | None = None,
    **keys: object,
) -> TieredStorageManager:
    manager = TieredStorageManager(machine=machine, wrap_store=lambda _: store)
    manager.configure(local_keys(tmp_path / "unused") | SHAPES[shape] | keys)
    return manager


class Strike:
    """Raises an error at one of its calls: the one of the number that it was armed with, from 0."""

    def __init__(self, error: StoreError) -> None:
        self._error = error
        self._left = 0

    def arm(self, number: int) -> None:
        """Count calls anew."""
        self._left = number

    def __call__(self) -> None:
        self._left -= 1
        if self._left == -1:
            raise self._error


class StrikingStore(PassingStore):
    """A store whose strike is asked before each call that writes, and before those that look something up if wanted.

    Args:
        store: What answers.
        strike: Raises, or does not.
        reads: Whether looking something up counts.
    """

    def __init__(self, store: ObjectStore, strike: Strike, *, reads: bool = False) -> None:
        super().__init__(store)
        self._strike = strike
        self._reads = reads

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        self._strike()
        return super().put(key, data, expected_etag=expected_etag)

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        self._strike()
        return StrikingUpload(super().begin_upload(key, part_bytes=part_bytes), self._strike)

    def find(self, key: str) -> ObjectInfo | None:
        if self._reads:
            self._strike()
        return super().find(key)

    def fetch(self, key: str) -> Buffer:
        if self._reads:
            self._strike()
        return super().fetch(key)


@dataclass
class StrikingUpload:
    """An upload of a StrikingStore; it can always be aborted."""

    inner: Upload
    strike: Strike

    @property
    def key(self) -> str:
        return self.inner.key

    def put_part(self, number: int, data: Sequence[Buffer]) -> None:
        self.strike()
        self.inner.put_part(number, data)

    def complete(self) -> StoredObject:
        self.strike()
        return self.inner.complete()

    def abort(self) -> None:
        self.inner.abort()


class LateStore(PassingStore):
    """A store whose first PUT of a key with some ending is answered by an error, and lands when ``land`` is called."""

    def __init__(self, store: ObjectStore, ending: str) -> None:
        super().__init__(store)
        self._ending = ending
        self._late: Callable[[], object] | None = None

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        if self._late is None and key.endswith(self._ending):
            copy, put = b"".join(views_of(data)), super().put
            self._late = lambda: put(key, copy, expected_etag=expected_etag)
            raise StoreUnavailableError("injected: no answer")
        return super().put(key, data, expected_etag=expected_etag)

    def land(self) -> None:
        assert self._late is not None
        self._late()


def names(store: ObjectStore) -> list[str]:
    return sorted(info.key.rpartition(".")[2] for info in store.iter_objects())


def require_nothing(store: ObjectStore) -> None:
    assert names(store) == []
    assert list(store.iter_uploads()) == []


@pytest.mark.few(12)
@pytest.mark.parametrize("shape", ["aiven-plain", "aiven-zstd-aes", "kafka"])
@pytest.mark.parametrize("seed", range(12))
def test_a_copy_over_a_failing_store_is_whole_or_undone(
    shape: str, seed: int, bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """Half a segment that a reader could see is data loss: the broker has deleted its own by then."""
    rates = {"error": 0.04, "reset": 0.04, "lost": 0.06}
    failing = FailingStore(bucket, rates, rng=random.Random(seed), clock=ManualClock())
    store: ObjectStore = failing
    with manager_over(store, tmp_path, shape) as manager:
        for number in range(6):
            attempt = segment.with_id(number + 1)
            try:
                custom = manager.copy_log_segment_data(attempt.metadata, attempt.data)
            except RetriableRemoteStorageException as error:
                told = " ".join(getattr(error, "__notes__", ()))
                for info in bucket.iter_objects():
                    assert info.key in told, f"{info.key} is left, and nobody says so"
                for upload in bucket.iter_uploads():
                    assert "parts" in told, f"an upload of {upload.key} is left, and nobody says so"
            else:
                with (
                    manager_over(bucket, tmp_path, shape) as reader,
                    reader.fetch_log_segment(attempt.finished(custom), 0) as stream,
                ):
                    assert stream.read() == segment.log
            for left in list(bucket.iter_uploads()):
                bucket.abort_upload(left)
            bucket.delete([info.key for info in bucket.iter_objects()])
    assert sum(failing.injected.values()) > 0


@pytest.mark.parametrize("shape", ["aiven-plain", "aiven-zstd", "aiven-aes", "kafka"])
def test_every_single_call_can_fail_and_nothing_stays(
    shape: str, bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """Each cleanup path is taken once: the one that was never run is the one that loses data."""
    failed = 0
    strike = Strike(StoreError("injected: for good"))
    for broken_call in range(100):
        strike.arm(broken_call)
        with manager_over(StrikingStore(bucket, strike), tmp_path, shape) as manager:
            try:
                manager.copy_log_segment_data(segment.metadata, segment.data)
            except RemoteStorageException:
                failed += 1
                require_nothing(bucket)
                assert manager.metrics.value("errors_total", operation="copy", kind="store") == 1
                assert manager.metrics.value("leftover_objects_total") == 0
                continue
        break
    assert failed >= 5
    with manager_over(bucket, tmp_path, shape) as manager, manager.fetch_log_segment(segment.metadata, 0) as stream:
        assert stream.read() == segment.log


def test_what_cannot_be_removed_is_told(
    bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Objects that nobody knows of cost money for ever."""

    class Failing(PassingStore):
        def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
            if key.endswith("rsm-manifest"):
                raise StoreUnavailableError("injected: no manifest today")
            return super().put(key, data, expected_etag=expected_etag)

        def delete(self, keys: Sequence[str]) -> None:
            if not any(key.endswith("rsm-manifest") for key in keys):
                raise StoreUnavailableError("injected: no deletes today")
            super().delete(keys)

    with manager_over(Failing(bucket), tmp_path) as manager:
        with caplog.at_level(logging.WARNING), pytest.raises(RetriableRemoteStorageException) as caught:
            manager.copy_log_segment_data(segment.metadata, segment.data)
        note = " ".join(caught.value.__notes__)
        for info in bucket.iter_objects():
            assert info.key in note
        assert note in caplog.text
        assert manager.metrics.value("leftover_objects_total") == 1
    (left,) = leftovers(bucket)
    assert not left.has_description
    assert len(left.keys) == 2
    assert not seen_by_readers(left)


def test_rollback_takes_the_manifest_first_and_stops_if_it_stays(
    bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """A manifest whose log is gone is a segment that readers find and cannot read."""

    class Failing(PassingStore):
        def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
            stored = super().put(key, data, expected_etag=expected_etag)
            if key.endswith("rsm-manifest"):
                raise StoreUnavailableError("injected: done, and the answer got lost")
            return stored

        def delete(self, keys: Sequence[str]) -> None:
            raise StoreUnavailableError("injected: no deletes today")

    with (
        manager_over(Failing(bucket), tmp_path) as manager,
        pytest.raises(RetriableRemoteStorageException),
    ):
        manager.copy_log_segment_data(segment.metadata, segment.data)
    assert names(bucket) == ["indexes", "log", "rsm-manifest"]
    with manager_over(bucket, tmp_path) as manager, manager.fetch_log_segment(segment.finished(), 0) as stream:
        assert stream.read() == segment.log, "all of it, so that whoever finds it can read it"


@pytest.mark.parametrize("late", ["log", "indexes", "rsm-manifest"])
def test_a_put_that_lands_after_the_delete(
    late: str, bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """A request that timed out is not gone: it may land ten minutes later, when the segment was deleted, and copied
    again under another id.
    """
    store = LateStore(bucket, late)
    keys = {"chunk.size": "1000000"}
    with manager_over(store, tmp_path, "aiven-plain", **keys) as manager:
        if late == "log":  # small, so that its log is one PUT
            segment = make_segment(sound_log(10, base_offset=100)).closed_in(tmp_path / "small")
        with pytest.raises(RetriableRemoteStorageException):
            manager.copy_log_segment_data(segment.metadata, segment.data)
        manager.delete_log_segment_data(segment.finished())
        require_nothing(bucket)
        retry = segment.with_id(2)
        custom = manager.copy_log_segment_data(retry.metadata, retry.data)
        store.land()
        with manager.fetch_log_segment(retry.finished(custom), 0) as stream:
            assert stream.read() == segment.log
        with pytest.raises(RemoteResourceNotFoundException):
            manager.fetch_log_segment(segment.finished(), 0).read()
        (left,) = leftovers(bucket)
        assert left.segment_id == segment.metadata.remote_log_segment_id.id
        assert seen_by_readers(left) == (late == "rsm-manifest")
        manager.delete_log_segment_data(segment.finished())
        assert leftovers(bucket) == []
        assert len(names(bucket)) == 3


def test_a_late_put_does_not_replace_a_live_log(
    bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """The retry under the same id has another data key: an older log in its place cannot be decrypted."""
    segment = make_segment(sound_log(10, base_offset=100)).closed_in(tmp_path / "small")
    store = LateStore(bucket, ".log")
    with manager_over(store, tmp_path) as manager:
        with pytest.raises(RetriableRemoteStorageException):
            manager.copy_log_segment_data(segment.metadata, segment.data)
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        with pytest.raises(StoreError):
            store.land()
        with manager.fetch_log_segment(segment.finished(custom), 0) as stream:
            assert stream.read() == segment.log


def test_a_repeated_id_is_verified_not_rewritten(
    bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """A reader may be in the middle of the log that a rewrite would replace."""
    keys = {"custom.metadata.fields.include": "REMOTE_SIZE", "manifest.digest.enabled": "true"}
    with manager_over(bucket, tmp_path, **keys) as manager:
        first = manager.copy_log_segment_data(segment.metadata, segment.data)
        before = {info.key: bytes(bucket.fetch(info.key)) for info in bucket.iter_objects()}
        assert manager.copy_log_segment_data(segment.metadata, segment.data) == first
        assert {info.key: bytes(bucket.fetch(info.key)) for info in bucket.iter_objects()} == before
        assert list(bucket.iter_uploads()) == []


@pytest.mark.few(3)
@pytest.mark.parametrize("shape", ["aiven-plain", "aiven-zstd", "aiven-zstd-aes", "kafka"])
@pytest.mark.parametrize("error", [StoreError, StoreUnavailableError])
def test_a_copy_again_that_fails_leaves_the_whole_one(
    error: type[StoreError], shape: str, bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """If this fails, an outage during a second copy of an id deletes the log of the first one, which is whole."""
    with manager_over(bucket, tmp_path, shape) as manager:
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
    before = {info.key: bytes(bucket.fetch(info.key)) for info in bucket.iter_objects()}
    failed = 0
    strike = Strike(error("injected"))
    for broken_call in range(100):
        strike.arm(broken_call)
        with manager_over(StrikingStore(bucket, strike, reads=True), tmp_path, shape) as manager:
            try:
                assert manager.copy_log_segment_data(segment.metadata, segment.data) == custom
            except RemoteStorageException:
                failed += 1
            else:
                break
            finally:
                after = {info.key: bytes(bucket.fetch(info.key)) for info in bucket.iter_objects()}
                assert after == before, (broken_call, sorted(before.keys() - after.keys()))
                assert list(bucket.iter_uploads()) == []
    assert failed >= 4


@pytest.mark.parametrize("damage", ["rsm-manifest", "log", "indexes", "truncated", "garbage"])
def test_what_is_left_of_an_earlier_copy_is_replaced(
    damage: str, bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """The same id again must give a whole segment, whatever a broker that died left of it."""
    with manager_over(bucket, tmp_path) as manager:
        manager.copy_log_segment_data(segment.metadata, segment.data)
        keys = {info.key.rpartition(".")[2]: info.key for info in bucket.iter_objects()}
        if damage == "truncated":
            bucket.put(keys["log"], bytes(bucket.fetch(keys["log"]))[:-1])
        elif damage == "garbage":
            bucket.put(keys["rsm-manifest"], b"{}")
        else:
            bucket.delete([keys[damage]])
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
    with manager_over(bucket, tmp_path) as manager, manager.fetch_log_segment(segment.finished(custom), 0) as stream:
        assert stream.read() == segment.log
    assert len(names(bucket)) == 3


def test_a_store_that_confirms_another_size_is_not_believed(
    bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """What was cut on its way would be FINISHED, and the broker's own copy deleted."""

    class Cutting(PassingStore):
        def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
            stored = super().put(key, data, expected_etag=expected_etag)
            return replace(stored, size_bytes=stored.size_bytes - 1)

    with (
        manager_over(Cutting(bucket), tmp_path) as manager,
        pytest.raises(RemoteStorageException, match="the store has"),
    ):
        manager.copy_log_segment_data(segment.metadata, segment.data)
    require_nothing(bucket)


@pytest.mark.parametrize("shape", ["aiven-plain", "aiven-zstd-aes", "kafka"])
def test_nothing_of_a_bad_segment_becomes_visible(
    shape: str, bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """What is damaged must stay on the broker's disk, where it can be fetched from a replica again."""
    seen: list[str] = []

    class Seen(PassingStore):
        def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
            seen.append(key)
            return super().put(key, data, expected_etag=expected_etag)

    log = pathlib.Path(segment.data.log_segment)
    data = bytearray(log.read_bytes())
    data[-5] ^= 1  # in the last batch, when most parts are with the store
    log.write_bytes(data)
    with manager_over(Seen(bucket), tmp_path, shape) as manager:
        with pytest.raises(RemoteStorageException, match="checksum") as caught:
            manager.copy_log_segment_data(segment.metadata, segment.data)
        assert isinstance(caught.value.__cause__, CorruptDataError)
        assert manager.metrics.value("errors_total", operation="copy", kind="corrupt") == 1
    assert seen == []
    require_nothing(bucket)


@pytest.mark.parametrize("what", ["vanishes", "grows", "shrinks", "is replaced"])
def test_a_file_that_changes_while_it_is_copied(
    what: str, bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """A broker that truncates or deletes a log under the copy makes it worthless."""
    log = pathlib.Path(segment.data.log_segment)
    content = log.read_bytes()

    def change() -> None:
        if what == "vanishes":
            log.unlink()
        elif what == "grows":
            log.write_bytes(content + b"more")
        elif what == "shrinks":
            log.write_bytes(content[:60_000])
        else:
            log.unlink()
            log.write_bytes(content)

    class Meanwhile(PassingStore):
        def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
            change()
            return super().begin_upload(key, part_bytes=part_bytes)

    with (
        manager_over(Meanwhile(bucket), tmp_path, "aiven-plain") as manager,
        pytest.raises(RemoteStorageException),
    ):
        manager.copy_log_segment_data(segment.metadata, segment.data)
    require_nothing(bucket)


def test_running_out_of_memory_is_an_error_of_this_copy_alone(
    bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """The plugin's worst fault: an out-of-memory error ends the uploads of a partition until the broker restarts."""

    class Exhausted(PassingStore):
        is_exhausted = True

        def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
            if self.is_exhausted:
                raise MemoryError
            return super().put(key, data, expected_etag=expected_etag)

    store = Exhausted(bucket)
    with manager_over(store, tmp_path) as manager:
        with pytest.raises(RetriableRemoteStorageException, match="MemoryError"):
            manager.copy_log_segment_data(segment.metadata, segment.data)
        assert manager.metrics.value("errors_total", operation="copy", kind="memory") == 1
        require_nothing(bucket)
        store.is_exhausted = False
        manager.copy_log_segment_data(segment.metadata, segment.data)
        assert manager.metrics.value("copies_total") == 1


def test_a_copy_past_its_deadline_is_called_off_and_undone(
    bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """A store that takes a request and never answers must cost one attempt, not the partition."""
    answer = threading.Event()

    class Stalling(PassingStore):
        def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
            if key.endswith("indexes"):
                answer.wait(LIMIT_SECONDS)
            return super().put(key, data, expected_etag=expected_etag)

    with manager_over(Stalling(bucket), tmp_path, **{"copy.deadline.ms": "300"}) as manager:
        with pytest.raises(RetriableRemoteStorageException, match="called off after"):
            manager.copy_log_segment_data(segment.metadata, segment.data)
        assert manager.metrics.value("errors_total", operation="copy", kind="deadline") == 1
        assert manager.metrics.value("copies_overdue_total") == 1
        assert manager.metrics.value("copies_running", phase="indexes") == 0
        require_nothing(bucket)
        answer.set()


def test_copies_beyond_the_memory_wait_and_all_finish(
    bucket: ObjectStore, tmp_path: pathlib.Path, segment: ClosedSegment
) -> None:
    """A hundred partitions that roll at once must be uploaded in the memory that was given for it."""
    limit = 5 << 20
    used: list[float] = []

    class Watched(PassingStore):
        def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
            used.append(manager.metrics.value("upload_buffer_bytes", state="used"))
            return super().put(key, data, expected_etag=expected_etag)

    keys = {"chunk.size": str(4 << 20), "upload.buffer.bytes": str(limit)}
    # A process of its own: all managers of one share the largest budget that any of them asked for.
    machine = Machine(process=Process())
    with manager_over(Watched(bucket), tmp_path, machine=machine, **keys) as manager:
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            attempts = [segment.with_id(number) for number in range(1, 41)]
            list(pool.map(lambda each: manager.copy_log_segment_data(each.metadata, each.data), attempts))
        assert manager.metrics.value("copies_total") == 40
        assert manager.metrics.value("upload_buffer_bytes", state="used") == 0
    assert 0 < max(used) <= limit
    assert len(names(bucket)) == 120


def test_the_upload_limit_counts_indexes_and_manifest(
    bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """The plugin lets them pass: with many small segments most of the traffic was not limited."""
    clock = ManualClock()
    manager = TieredStorageManager(machine=Machine(clock=clock), wrap_store=lambda _: bucket)
    limit = 1 << 20
    manager.configure(
        local_keys(tmp_path / "unused") | SHAPES["aiven-plain"] | {"upload.rate.limit.bytes.per.second": str(limit)}
    )
    with manager:
        clock.advance(1000)
        began = clock.monotonic_seconds()
        manager.copy_log_segment_data(segment.metadata, segment.data)
        stored = sum(info.size_bytes for info in bucket.iter_objects())
        manifest = next(info.size_bytes for info in bucket.iter_objects() if info.key.endswith("rsm-manifest"))
        assert clock.monotonic_seconds() - began >= (stored - manifest) / limit - 0.01
        took = clock.monotonic_seconds() - began
        assert manager.metrics.value("rate_limit_wait_seconds_total", direction="upload") == pytest.approx(took)
        assert manager.metrics.value("copy_seconds_sum") == pytest.approx(took)
        manager.change_rate_limit("upload", None)
        with pytest.raises(ValueError):
            manager.change_rate_limit("sideways", 1)


def test_data_keys_and_ivs_are_never_the_same_twice(
    bucket: ObjectStore, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """Two units under one key and IV give their contents away."""
    with manager_over(bucket, tmp_path, "aiven-aes") as manager:
        ivs: set[bytes] = set()
        units = 0
        for number in (1, 2):
            attempt = segment.with_id(number)
            manager.copy_log_segment_data(attempt.metadata, attempt.data)
        for info in bucket.iter_objects():
            if info.key.endswith(".log"):
                stored = bytes(bucket.fetch(info.key))
                for position in range(0, len(stored), 16384 + 28):
                    ivs.add(stored[position : position + 12])
                    units += 1
        assert len(ivs) == units > 10


@pytest.mark.parametrize("seed", range(8))
def test_parts_that_are_encrypted_in_their_place_are_sent_when_they_are(
    seed: int, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """A part that goes before its last chunk is encrypted stores what lay in the memory before."""
    machine, scheduler = ManualScheduler.machine(seed, PosixFiles())
    with scheduler, TieredStorageManager(machine=machine) as manager:
        manager.configure(local_keys(tmp_path / "tier") | SHAPES["aiven-aes"])
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        with manager.fetch_log_segment(segment.finished(custom), 0) as stream:
            assert stream.read() == segment.log
