"""The manager beside its contract: configuration, errors at its surface, masks, metrics."""

from __future__ import annotations

import concurrent.futures
import errno
import logging
import pathlib
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from typing_extensions import Buffer

from tests.support.closed_segments import ClosedSegment
from tests.support.manager_configs import SHAPES, local_keys
from tests.support.segments import make_segment, sound_log
from tests.support.waiting import LIMIT_SECONDS
from tierlog.errors import (
    ConfigError,
    CorruptObjectError,
    EncryptionKeyError,
    ObjectNotFoundError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
)
from tierlog.remote.api import (
    IndexType,
    InvalidRangeError,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
    SegmentFileError,
)
from tierlog.remote.config.class_loading import load_storage_manager
from tierlog.remote.storage.storage_errors import CopyDeadlineError, error_kind, kip_error
from tierlog.remote.storage.storage_metrics import ERROR_KINDS
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.machine import Machine, Process
from tierlog.runtime.simulated.memory_disk import DiskOperation
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.runtime.stores.protocol.object_store import ObjectStore, StoredObject
from tierlog.runtime.stores.store_urls import open_store
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.testing.failing_disk import FailingDisk


@pytest.fixture
def segment(tmp_path: pathlib.Path) -> ClosedSegment:
    return make_segment(sound_log(base_offset=100)).closed_in(tmp_path / "log")


def test_the_plugins_class_name_loads_ours(tmp_path: pathlib.Path, segment: ClosedSegment) -> None:
    """A broker's file is taken as it is; its class name is the plugin's."""
    with load_storage_manager("io.aiven.kafka.tieredstorage.RemoteStorageManager") as manager:
        manager.configure({f"rsm.config.{key}": value for key, value in local_keys(tmp_path / "store").items()})
        manager.copy_log_segment_data(segment.metadata, segment.data)
    assert len([path for path in (tmp_path / "store").rglob("*") if path.is_file()]) == 3


def test_what_is_missing_or_wrong_is_told_at_the_start(tmp_path: pathlib.Path) -> None:
    """A broker that starts with a wrong configuration would find out hours later, with its disk full."""
    for keys, text in (
        ({"chunk.size": "1024"}, "storage.backend.class"),
        (local_keys(tmp_path / "store") | {"chunk.sise": "5"}, "chunk.size"),
        (local_keys(tmp_path / "store") | {"storage.root": str(tmp_path / "absent")}, "absent"),
        (local_keys(tmp_path / "store") | {"encryption.enabled": "true"}, "encryption.key.pair.id"),
    ):
        with pytest.raises((ConfigError, StoreError), match=text), TieredStorageManager() as manager:
            manager.configure(keys)


def test_calls_out_of_order_are_errors_of_the_kip(tmp_path: pathlib.Path, segment: ClosedSegment) -> None:
    """A broker catches RemoteStorageException; anything else ends its task."""
    manager = TieredStorageManager()
    for call in (
        lambda: manager.copy_log_segment_data(segment.metadata, segment.data),
        lambda: manager.fetch_log_segment(segment.finished(), 0),
        lambda: manager.fetch_index(segment.finished(), IndexType.OFFSET),
        lambda: manager.delete_log_segment_data(segment.finished()),
    ):
        with pytest.raises(RemoteStorageException, match="not configured"):
            call()
    manager.configure(local_keys(tmp_path / "store"))
    with pytest.raises(ConfigError, match="once"):
        manager.configure(local_keys(tmp_path / "store"))
    manager.close()
    manager.close()
    with pytest.raises(RemoteStorageException, match="closed"):
        manager.fetch_log_segment(segment.finished(), 0)
    with pytest.raises(ConfigError):
        manager.configure(local_keys(tmp_path / "store"))


@pytest.mark.parametrize(
    ("error", "kind", "copying", "fetching"),
    [
        (StoreUnavailableError("x"), "unavailable", RetriableRemoteStorageException, RetriableRemoteStorageException),
        (CopyDeadlineError("x"), "deadline", RetriableRemoteStorageException, RetriableRemoteStorageException),
        (StorePermissionError("x"), "refused", RemoteStorageException, RemoteStorageException),
        (ObjectNotFoundError("x"), "not_found", RemoteStorageException, RemoteResourceNotFoundException),
        (InvalidRangeError("x"), "range", InvalidRangeError, InvalidRangeError),
        (CorruptObjectError("x"), "corrupt", SegmentFileError, RemoteStorageException),
        (EncryptionKeyError("x"), "key", RemoteStorageException, RemoteStorageException),
        (MemoryError(), "memory", RetriableRemoteStorageException, RetriableRemoteStorageException),
        (StoreError("x"), "store", RemoteStorageException, RemoteStorageException),
        (ZeroDivisionError("x"), "other", RemoteStorageException, RemoteStorageException),
    ],
)
def test_every_error_becomes_one_of_the_kips(
    error: Exception, kind: str, copying: type[Exception], fetching: type[Exception]
) -> None:
    """Kafka tries retriable errors again without an alarm, and gives up on the others."""
    error.add_note("and this")
    assert error_kind(error) == kind
    assert kind in ERROR_KINDS
    for operation, expected in (("copy", copying), ("fetch_segment", fetching)):
        made = kip_error(error, operation, "orders-3/abc")  # type: ignore[arg-type]
        assert type(made) is expected
        assert made is error or "orders-3/abc" in str(made)
        assert made.__notes__ == ["and this"]
        assert kip_error(made, operation, "again") is made  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", ["aiven-plain", "aiven-zstd", "kafka"])
def test_a_close_amid_a_copy_is_one_line(segment: ClosedSegment, shape: str, caplog: pytest.LogCaptureFixture) -> None:
    """Every restart of a broker would show a trace for each copy that a slow disk held up, as if it were a fault."""
    disk = _Disk(segment, lambda store: store, shape=shape)
    held, go_on = threading.Event(), threading.Event()

    def hold(operation: DiskOperation, path: str) -> None:
        if operation is DiskOperation.READ and path.endswith(".log"):
            held.set()
            go_on.wait(LIMIT_SECONDS)

    disk.files.befall(hold)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        copying = pool.submit(disk.copy)
        assert held.wait(LIMIT_SECONDS)
        disk.close()
        go_on.set()
        error = copying.result(LIMIT_SECONDS)
    assert type(error) is RetriableRemoteStorageException
    assert "the manager was closed" in str(error)
    lines = [record for record in caplog.records if "copy of" in record.getMessage()]
    assert len(lines) == 1
    assert not lines[0].exc_info
    assert disk.copy_errors("unavailable") == 1


class _Disk:
    """The broker's disk in memory, with a segment on it, and a manager whose store is another one."""

    def __init__(
        self,
        segment: ClosedSegment,
        wrap_store: Callable[[ObjectStore], ObjectStore],
        *,
        shape: str = "aiven-zstd",
    ) -> None:
        self.files, self.segment = MemoryFiles(), segment
        unused = pathlib.Path(segment.data.log_segment).parent / "unused"
        self.files.make_directories(str(unused))
        names = ("log_segment", "offset_index", "time_index", "producer_snapshot")
        for path in (getattr(segment.data, name) for name in names):
            self.files.put(path, pathlib.Path(path).read_bytes())
        self.store = open_store(f"memory://{uuid.uuid4()}")
        self.manager = TieredStorageManager(
            machine=Machine(files=self.files, process=Process()), wrap_store=lambda _: wrap_store(self.store)
        )
        self.manager.configure(local_keys(unused) | SHAPES[shape])

    def copy(self) -> RemoteStorageException | None:
        """What a copy raises; None if it works."""
        try:
            self.manager.copy_log_segment_data(self.segment.metadata, self.segment.data)
        except RemoteStorageException as error:
            return error
        return None

    def copy_errors(self, kind: str) -> float:
        return self.manager.metrics.value("errors_total", operation="copy", kind=kind)

    def close(self) -> None:
        self.manager.close()
        self.store.close()


@pytest.fixture
def disk(segment: ClosedSegment) -> Iterator[_Disk]:
    disk = _Disk(segment, lambda store: store)
    yield disk
    disk.close()


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ENOENT, errno.EMFILE])
def test_every_read_of_a_local_file_that_fails_is_told_as_one(disk: _Disk, number: int) -> None:
    """If this fails, an operator looks for the fault of a broker's disk in the bucket."""
    kinds = frozenset({DiskOperation.OPEN, DiskOperation.READ})
    with FailingDisk(disk.files, number, at=0, kinds=kinds) as counted:
        assert disk.copy() is None
        reads = counted.seen
    assert reads >= 8
    disk.manager.delete_log_segment_data(disk.segment.finished())
    for at in range(1, reads + 1):
        with FailingDisk(disk.files, number, at=at, kinds=kinds):
            error = disk.copy()
        assert isinstance(error, SegmentFileError), at
        assert error.retriable == (number == errno.EMFILE) == isinstance(error, RetriableRemoteStorageException)
        assert not isinstance(error, RemoteResourceNotFoundException)
        assert str(pathlib.Path(disk.segment.data.log_segment).parent) in str(error)
        assert not list(disk.store.iter_objects())
        used = disk.manager.metrics.value("upload_buffer_bytes", state="used")
        assert used == 0, "or copies that fail take the memory of all others, until none gets any"
    assert disk.copy_errors("file") == reads


def test_a_log_that_changes_under_its_copy_is_told_as_a_local_file(disk: _Disk) -> None:
    """A broker whose log was cut or damaged must not look for it in the bucket, nor delete the log as copied."""
    path, log = disk.segment.data.log_segment, disk.segment.log
    damaged = log[:5000] + bytes([log[5000] ^ 1]) + log[5001:]
    for change in (log[:-1], b"", log + b"x", damaged):
        disk.files.put(path, change)
        error = disk.copy()
        assert type(error) is SegmentFileError, error
        assert path in str(error)

    def cut(operation: DiskOperation, at: str) -> None:
        if operation is DiskOperation.READ and at.endswith(".log"):
            disk.files.mend()
            disk.files.put(path, log[:-100])

    disk.files.put(path, log)
    disk.files.befall(cut)
    assert type(disk.copy()) is SegmentFileError
    assert not list(disk.store.iter_objects())
    disk.files.put(path, log)
    assert disk.copy() is None


def test_a_copy_that_fails_before_its_first_part_keeps_no_memory(disk: _Disk) -> None:
    """Kafka tries such a segment again every half minute: after some hours no partition's copy would get memory."""
    for _ in range(3):
        disk.files.put(disk.segment.data.producer_snapshot, b"\xff" * 7)
        assert type(disk.copy()) is SegmentFileError
        disk.files.remove(disk.segment.data.time_index)
        assert type(disk.copy()) is SegmentFileError
    assert disk.manager.metrics.value("upload_buffer_bytes", state="used") == 0


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (StoreError("full"), RemoteStorageException),
        (StorePermissionError("no"), RemoteStorageException),
        (ObjectNotFoundError("no bucket"), RemoteStorageException),
        (StoreUnavailableError("away"), RetriableRemoteStorageException),
    ],
)
def test_a_failure_of_the_store_is_no_local_files(
    segment: ClosedSegment, fault: StoreError, told: type[Exception]
) -> None:
    """A folder as a store fails as the broker's own disk does: an operator who cannot tell them apart replaces the
    wrong disk.
    """

    class Refusing(PassingStore):
        def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
            raise fault

    disk = _Disk(segment, Refusing)
    try:
        assert type(disk.copy()) is told
        assert disk.copy_errors("file") == 0
    finally:
        disk.close()


def test_a_masked_prefix_is_in_no_message(
    tmp_path: pathlib.Path, segment: ClosedSegment, caplog: pytest.LogCaptureFixture
) -> None:
    """key.prefix.mask is set by those whose prefix says whose data it is."""
    with TieredStorageManager() as manager, caplog.at_level(logging.DEBUG):
        manager.configure(local_keys(tmp_path / "store") | SHAPES["aiven-custom"])
        errors = []
        missing = segment.finished()
        for call in (
            lambda: manager.fetch_log_segment(missing, 0),
            lambda: manager.fetch_index(missing, IndexType.OFFSET),
            lambda: manager.copy_log_segment_data(
                segment.metadata, replace(segment.data, log_segment=str(tmp_path / "gone"))
            ),
        ):
            with pytest.raises(RemoteStorageException) as caught:
                call()
            errors.append(caught.value)
        for error in errors:
            assert "some/prefix" not in str(error)
            assert error.__cause__ is None
    assert "some/prefix" not in caplog.text
    assert "<prefix>/" in str(errors[0])


def test_metrics_of_a_life(tmp_path: pathlib.Path, segment: ClosedSegment) -> None:
    """What a board shows must be what happened."""
    registry = CollectorRegistry()
    with TieredStorageManager(registry=registry) as manager:
        manager.configure(local_keys(tmp_path / "store"))
        asked = manager.metrics.value("store_requests_total", verb="PUT")
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        with manager.fetch_log_segment(segment.finished(custom), 0, 99) as stream:
            assert len(stream.read()) == 100
        manager.delete_log_segment_data(segment.finished(custom))
        with pytest.raises(RemoteResourceNotFoundException):
            manager.fetch_log_segment(segment.finished(custom), 0)
        text = generate_latest(registry).decode()
    size = segment.metadata.segment_size_in_bytes
    for line in (
        "tierlog_remote_copies_total 1.0",
        f"tierlog_remote_copy_bytes_total {float(size)}",
        'tierlog_remote_upload_objects_total{object="log"} 1.0',
        'tierlog_remote_upload_objects_total{object="indexes"} 1.0',
        'tierlog_remote_upload_objects_total{object="manifest"} 1.0',
        "tierlog_remote_copy_seconds_count 1.0",
        f"tierlog_remote_fetch_requested_bytes_total {float(100 + size)}",
        "tierlog_remote_fetch_returned_bytes_total 100.0",
        "tierlog_remote_deletes_total 1.0",
        f"tierlog_remote_delete_bytes_total {float(size)}",
        'tierlog_remote_errors_total{kind="not_found",operation="fetch_segment"} 1.0',
        f'tierlog_remote_store_requests_total{{verb="PUT"}} {asked + 3}',
        'tierlog_remote_upload_buffer_bytes{state="used"} 0.0',
    ):
        assert line in text, line


@pytest.mark.parametrize("layout", ["aiven", "kafka"])
@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_metrics_by_partition_on_request(
    tmp_path: pathlib.Path, segment: ClosedSegment, level: str, layout: str
) -> None:
    """If this fails, nobody finds out which topic makes the requests that are paid for; or, at INFO, series grow with
    the cluster unasked.
    """
    registry = CollectorRegistry()
    keys = {"metrics.recording.level": level, "layout": layout}
    with TieredStorageManager(registry=registry) as manager:
        manager.configure(local_keys(tmp_path / "store") | keys)
        asked = manager.metrics.value("store_requests_total", verb="PUT")
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        with manager.fetch_log_segment(segment.finished(custom), 0) as stream:
            stored = len(stream.read())
        puts = manager.metrics.value("store_requests_total", verb="PUT") - asked
        manager.delete_log_segment_data(segment.finished(custom))
        with pytest.raises(RemoteResourceNotFoundException):
            manager.fetch_log_segment(segment.finished(custom), 0)
        text = generate_latest(registry).decode()
    if level == "INFO":
        assert "tierlog_remote_partition" not in text
        return
    partition = segment.metadata.topic_id_partition
    whose = f'partition="{partition.partition}",topic="{partition.topic}"'
    size = segment.metadata.segment_size_in_bytes
    for line in (
        f"copies_total{{{whose}}} 1.0",
        f"copy_bytes_total{{{whose}}} {float(size)}",
        f'upload_objects_total{{object="log",{whose}}} 1.0',
        f"fetches_total{{{whose}}} 2.0",
        f"fetch_requested_bytes_total{{{whose}}} {float(2 * size)}",
        f"deletes_total{{{whose}}} 1.0",
        f'errors_total{{operation="fetch_segment",{whose}}} 1.0',
        f'store_requests_total{{{whose},verb="PUT"}} {float(puts)}',
    ):
        assert f"tierlog_remote_partition_{line}\n" in text, line
    labels = {"topic": partition.topic, "partition": str(partition.partition)}
    assert registry.get_sample_value("tierlog_remote_partition_copy_seconds_total", labels) > 0
    assert registry.get_sample_value("tierlog_remote_partition_fetch_bytes_total", labels) >= stored


def test_custom_metadata_that_the_broker_will_refuse_is_warned_of(
    tmp_path: pathlib.Path, segment: ClosedSegment, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka deletes such a segment after the copy, and stops copying the partition."""
    keys = {"custom.metadata.fields.include": "OBJECT_PREFIX,OBJECT_KEY", "key.prefix": "p" * 100}
    with TieredStorageManager() as manager:
        manager.configure(local_keys(tmp_path / "store") | keys)
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
    assert custom is not None
    assert len(custom) > 128
    assert "remote.log.metadata.custom.metadata.max.bytes" in caplog.text
