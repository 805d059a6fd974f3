"""Managers whose ``configure`` fails half-way, at each step: closed, or configured again."""

from __future__ import annotations

import contextlib
import errno
import pathlib
from collections.abc import Callable, Mapping, Sequence

import pytest
from typing_extensions import Buffer

from tests.contract.metadata_events import PARTITION
from tests.contract.metadata_manager_suite import CALLS
from tests.support.closed_segments import ClosedSegment
from tests.support.failing_scheduler import FailingScheduler
from tests.support.manager_configs import SHAPES, local_keys
from tests.support.segments import make_segment, sound_log
from tierlog.errors import ConfigError, NoThreadError, StoreError, StorePermissionError, StoreUnavailableError
from tierlog.remote.api import RemoteStorageException
from tierlog.remote.metadata.metadata_log import MetadataLogs
from tierlog.remote.metadata.topic_backed.topic_based_config import TopicBasedConfig
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.thread_scheduler import ThreadScheduler
from tierlog.runtime.simulated.memory_disk import DiskOperation
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.runtime.stores.protocol.object_store import ObjectStore, StoredObject
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.testing.failing_disk import FailingDisk
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic


@pytest.fixture
def segment(tmp_path: pathlib.Path) -> ClosedSegment:
    return make_segment(sound_log(base_offset=100)).closed_in(tmp_path / "log")


@pytest.fixture
def keys(tmp_path: pathlib.Path) -> Mapping[str, object]:
    """With a file for each kind of fault: a root, two pairs of keys, a cache on disk."""
    cache = {
        "fetch.chunk.cache.class": "io.aiven.kafka.tieredstorage.fetch.cache.DiskChunkCache",
        "fetch.chunk.cache.path": str(tmp_path / "cache"),
        "fetch.chunk.cache.size": "1000000",
    }
    (tmp_path / "cache").mkdir()
    return local_keys(tmp_path / "store") | SHAPES["aiven-zstd-aes"] | cache


def files_of(tmp_path: pathlib.Path, keys: Mapping[str, object]) -> MemoryFiles:
    """A disk in memory with what the configuration names."""
    files = MemoryFiles()
    for folder in ("store", "cache"):
        files.make_directories(str(tmp_path / folder))
    for value in keys.values():
        if str(value).endswith(".der"):
            path = pathlib.Path(str(value))
            files.make_directories(str(path.parent))
            files.put(str(path), path.read_bytes())
    return files


def require_closed(manager: TieredStorageManager, segment: ClosedSegment, keys: Mapping[str, object]) -> None:
    """Close it, twice; every call is answered by an error of the KIP."""
    manager.close()
    manager.close()
    for call in (
        lambda: manager.copy_log_segment_data(segment.metadata, segment.data),
        lambda: manager.fetch_log_segment(segment.finished(), 0),
        lambda: manager.delete_log_segment_data(segment.finished()),
    ):
        with pytest.raises(RemoteStorageException, match="closed"):
            call()
    with pytest.raises(ConfigError, match="once"):
        manager.configure(keys)


class Breaking(PassingStore):
    """Fails its n-th call that writes or looks, from 1; 0 fails none."""

    def __init__(self, store: ObjectStore, error: StoreError, *, at: int) -> None:
        super().__init__(store)
        self.seen, self._error, self._at = 0, error, at

    @property
    def inner(self) -> None:  # type: ignore[override]
        """None: the start probe asks the innermost store."""
        return None

    def _count(self) -> None:
        self.seen += 1
        if self.seen == self._at:
            raise self._error

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        self._count()
        return super().put(key, data, expected_etag=expected_etag)

    def fetch(self, key: str) -> Buffer:
        self._count()
        return super().fetch(key)

    def delete(self, keys: Sequence[str]) -> None:
        self._count()
        super().delete(keys)


class TestStorageManager:
    """A broker that cannot start calls close, which must not hide why; a test harness configures again."""

    @pytest.mark.few(1)
    @pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ENOSPC])
    def test_each_operation_of_a_file(
        self, keys: Mapping[str, object], segment: ClosedSegment, tmp_path: pathlib.Path, number: int
    ) -> None:
        """If this fails, a broker whose key file cannot be read shows an AttributeError of close instead."""
        files = files_of(tmp_path, keys)
        with (
            FailingDisk(files, number, at=0, kinds=frozenset(DiskOperation)) as counted,
            TieredStorageManager(machine=Machine(files=files)) as manager,
        ):
            manager.configure(keys)
            operations = counted.seen
        assert operations > 5
        failed = 0
        for at in range(1, operations + 1):
            files = files_of(tmp_path, keys)
            again, closed = (TieredStorageManager(machine=Machine(files=files)) for _ in range(2))
            with FailingDisk(files, number, at=at, kinds=frozenset(DiskOperation)) as disk:
                for manager in (again, closed):
                    try:
                        manager.configure(keys)
                    except ConfigError:
                        failed += 1
                    disk.seen = 0
            closed.close()
            if disk.failed and again._parts is None:
                again.configure(keys)
            again.close()
            require_closed(closed, segment, keys)
        assert failed > operations

    @pytest.mark.parametrize("error", [StoreError("no"), StorePermissionError("no"), StoreUnavailableError("no")])
    def test_each_call_of_the_store(
        self, keys: Mapping[str, object], segment: ClosedSegment, error: StoreError
    ) -> None:
        """A store that refuses or does not answer at the start."""
        stores: list[Breaking] = []

        def wrapped(at: int) -> Callable[[ObjectStore], ObjectStore]:
            def wrap(store: ObjectStore) -> ObjectStore:
                stores.append(Breaking(store, error, at=at))
                return stores[-1]

            return wrap

        with TieredStorageManager(wrap_store=wrapped(0)) as manager:
            manager.configure(keys)
        calls = stores[-1].seen
        assert calls > 1
        for at in range(1, calls + 1):
            manager = TieredStorageManager(wrap_store=wrapped(at))
            if error.retriable:
                manager.configure(keys)  # it is asked again later
            else:
                with contextlib.suppress(ConfigError):
                    manager.configure(keys)
            require_closed(manager, segment, keys)

    def test_a_wrapper_that_raises(self, keys: Mapping[str, object], segment: ClosedSegment) -> None:
        """What an embedder's own function raises goes to the embedder."""

        def wrap(_: ObjectStore) -> ObjectStore:
            raise StoreError("not that store")

        manager = TieredStorageManager(wrap_store=wrap)
        with pytest.raises(ConfigError, match="not that store"):
            manager.configure(keys)
        require_closed(manager, segment, keys)

    def test_each_thread(self, keys: Mapping[str, object], segment: ClosedSegment) -> None:
        """A process at its limit of threads."""
        counting = FailingScheduler(ThreadScheduler())
        with TieredStorageManager(machine=Machine(scheduler=counting)) as manager:
            manager.configure(keys)
            threads = counting.seen
        assert threads
        for at in range(1, threads + 1):
            manager = TieredStorageManager(machine=Machine(scheduler=FailingScheduler(ThreadScheduler(), at=at)))
            with contextlib.suppress(NoThreadError):
                manager.configure(keys)
            require_closed(manager, segment, keys)

    @pytest.mark.parametrize("wrong", [{"chunk.size": "x"}, {"storage.root": "/no/such"}, {"no.such.key": "1"}])
    def test_a_wrong_value_and_then_the_right_one(
        self, keys: Mapping[str, object], segment: ClosedSegment, wrong: Mapping[str, object]
    ) -> None:
        """An embedder that reads a corrected file must not have to make another manager."""
        with TieredStorageManager() as manager:
            with pytest.raises(ConfigError):
                manager.configure({**keys, **wrong})
            with pytest.raises(RemoteStorageException, match="not configured"):
                manager.fetch_log_segment(segment.finished(), 0)
            manager.configure(keys)
            custom = manager.copy_log_segment_data(segment.metadata, segment.data)
            with manager.fetch_log_segment(segment.finished(custom), 0) as stream:
                assert stream.read() == segment.log


class TestMetadataManager:
    """The same of the metadata manager."""

    @pytest.fixture
    def machine(self) -> Machine:
        files = MemoryFiles()
        files.make_directories("/data")
        return Machine(files=files)

    @pytest.mark.parametrize(
        "error",
        [ConfigError("no"), RemoteStorageException("no"), StoreError("no"), NoThreadError("no"), MemoryError("no")],
    )
    def test_a_topic_that_cannot_be_had(self, machine: Machine, error: Exception) -> None:
        """A broker without confluent-kafka, or with a wrong key of its client."""
        topic = MemoryMetadataTopic(50, machine=machine)
        tries = [error]

        def open_logs(config: TopicBasedConfig, *, machine: Machine) -> MetadataLogs:
            if tries:
                raise tries.pop()
            return topic

        for is_again in (False, True):
            tries[:] = [error]
            manager = TopicBasedRemoteLogMetadataManager(machine=machine, open_logs=open_logs)
            with pytest.raises(type(error)):
                manager.configure({"log.dir": "/data"})
            for call in (*CALLS.values(), lambda manager, _: manager.pending_removals()):
                with pytest.raises(RemoteStorageException, match="configure has not been called"):
                    call(manager, PARTITION)
            if is_again:
                manager.configure({"log.dir": "/data"})
                manager.on_partition_leadership_changes(frozenset({PARTITION}), frozenset())
            manager.close()
            manager.close()
            for call in CALLS.values():
                with pytest.raises(RemoteStorageException, match="closed"):
                    call(manager, PARTITION)
            with pytest.raises(ConfigError, match="once"):
                manager.configure({"log.dir": "/data"})

    def test_no_thread(self, machine: Machine) -> None:
        """A process at its limit of threads: nobody would consume, and every call would wait."""
        scheduler = FailingScheduler(ThreadScheduler(), at=1)
        machine = Machine(files=machine.files, scheduler=scheduler)
        topic = MemoryMetadataTopic(50, machine=machine)
        with TopicBasedRemoteLogMetadataManager(machine=machine, open_logs=lambda *_, **__: topic) as manager:
            with pytest.raises(NoThreadError):
                manager.configure({"log.dir": "/data"})
            with pytest.raises(RemoteStorageException, match="configure has not been called"):
                manager.pending_removals()
            manager.configure({"log.dir": "/data"})
            assert manager.pending_removals() == ()

    @pytest.mark.parametrize("wrong", [{}, {"log.dir": ""}, {"log.dir": "/data", "broker.id": "x"}])
    def test_a_wrong_value_and_then_the_right_one(self, machine: Machine, wrong: Mapping[str, object]) -> None:
        """And without Kafka's client's keys, where the topic is a running Kafka's."""
        topic = MemoryMetadataTopic(50, machine=machine)
        with TopicBasedRemoteLogMetadataManager(machine=machine, open_logs=lambda *_, **__: topic) as manager:
            with pytest.raises(ConfigError):
                manager.configure(wrong)
            manager.configure({"log.dir": "/data"})
            assert manager.pending_removals() == ()
        with TopicBasedRemoteLogMetadataManager(machine=machine) as manager:
            for _ in range(2):
                with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
                    manager.configure({"log.dir": "/data"})
