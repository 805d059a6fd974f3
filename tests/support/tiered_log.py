"""A broker's tiered logs, its store and its metadata in memory, from a seed.

``TieredLogs`` has the logs. Over them ``TieredBroker`` runs a RemoteLogManager, which does all by itself;
``TaskTier`` (``tests.support.tier_tasks``) lets a test run one task of one term.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, cast

from tests.support.living_logs import batch_of
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.decoding import decode
from tierlog.remote.api import (
    IndexType,
    RemoteLogMetadataManager,
    RemoteLogSegmentMetadata,
    RemoteStorageManager,
    SegmentStream,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.pending_reads import PendingRead, RemoteRead, RemoteReadResult
from tierlog.remote.manager.remote_log_manager import RemoteLogManager
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic
from tierlog.testing.memory_storage_manager import MemoryStorageManager

LOGS: Final = "/logs"
TOPIC_ID: Final = Uuid(bytes(15) + b"\1")
MIB: Final = 1 << 20
NONE: Final[frozenset[TopicIdPartition]] = frozenset()
#: All that is copied may be deleted locally, and nothing expires.
TIERED: Final = LogConfig(
    remote_storage_enable=True,
    remote_log_delete_on_disable=True,
    index_interval_bytes=1,
    retention_ms=-1,
    local_retention_ms=-2,
    local_retention_bytes=0,
    file_delete_delay_ms=0,
)


class HookedStore(MemoryStorageManager):
    """A store whose fetches go through a function of a test's, which may say for how long they hang unless their stream
    is closed. It counts the streams that are open.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine=machine)
        self._machine = machine
        self.hook: Callable[[], float | None] = lambda: None
        self.changed = self._machine.scheduler.condition()
        self.open_streams = 0
        self.fetched: list[tuple[int, int]] = []
        self.indexes: list[tuple[int, IndexType]] = []

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> SegmentStream:
        self.fetched.append((metadata.start_offset, start_position))
        inner = super().fetch_log_segment(metadata, start_position, end_position)
        return cast("SegmentStream", CountedStream(self, inner))

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> SegmentStream:
        self.indexes.append((metadata.start_offset, index_type))
        return super().fetch_index(metadata, index_type)


class CountedStream:
    """A stream that runs its store's hook before its first bytes."""

    def __init__(self, store: HookedStore, inner: SegmentStream) -> None:
        self._store, self._inner, self._is_open = store, inner, True
        store.open_streams += 1

    def buffers(self, max_bytes: int | None = None) -> Iterator[memoryview]:
        store = self._store
        until = store._machine.clock.monotonic_seconds() + (store.hook() or 0)
        with store.changed:
            while self._is_open and (left := until - store._machine.clock.monotonic_seconds()) > 0:
                store.changed.wait(left)
        if not self._is_open:
            raise ValueError("the stream is closed")
        yield from self._inner.buffers(max_bytes)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._inner.close()
            with self._store.changed:
                self._store.open_streams -= 1
                self._store.changed.notify_all()


class TieredLogs:
    """The logs of one topic's partitions, in one log directory."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.directory = self._open(LOGS)
        self.logs: dict[TopicIdPartition, UnifiedLog] = {}

    def _open(self, path: str) -> LogDirectory:
        self.machine.files.make_directories(path)
        return LogDirectory.open(
            path, machine=self.machine, config=TIERED, remote_log_enabled=True, is_sole_replica=True, runs_tasks=False
        )

    def restart(self, path: str = LOGS) -> None:
        """Close the logs and open them anew, moved to a log directory: they know nothing of the tier then."""
        before, old = self.logs.copy(), self.directory.path
        self.directory.close()
        self.machine.files.make_directories(path)
        for partition, log in before.items() if path != old else ():
            self.machine.files.rename(log.folder, f"{path}/{partition}")
        self.directory = self._open(path)
        for partition, log in before.items():
            self.logs[partition] = self.directory.log(
                partition.topic, partition.partition, topic_id=partition.topic_id, config=log.config
            )

    def partition(self, number: int = 0, *, config: LogConfig = TIERED, topic_id: Uuid = TOPIC_ID) -> TopicIdPartition:
        """A partition with a log."""
        partition = TopicIdPartition(topic_id, "orders", number)
        log = self.logs[partition] = self.directory.log("orders", number, topic_id=topic_id, config=config)
        if log.leader_epoch_cache.latest_entry is None:
            log.assign_epoch_start_offset(0, log.log_end_offset)
        return partition

    def alter(self, partition: TopicIdPartition, **keys: object) -> None:
        """Change the configuration of a partition's log."""
        log = self.logs[partition]
        log.update_config(replace(log.config, **keys))  # type: ignore[arg-type]

    @property
    def now(self) -> float:
        return self.machine.clock.monotonic_seconds()

    @property
    def now_ms(self) -> int:
        return self.machine.clock.time_ms()

    def until(self, holds: Callable[[], bool], seconds: float = 120.0) -> None:
        """Let time pass until something holds."""
        until = self.now + seconds
        while not holds():
            assert self.now < until, "it never does"
            self.machine.clock.sleep(0.01)


class TieredBroker(TieredLogs):
    """A broker with a RemoteLogManager; it may lead or follow all of its partitions."""

    def __init__(
        self,
        machine: Machine,
        *,
        topic: MemoryMetadataTopic,
        storage: RemoteStorageManager,
        metadata: RemoteLogMetadataManager | None = None,
        config: RemoteLogManagerConfig | None = None,
    ) -> None:
        super().__init__(machine)
        self.storage = storage
        if metadata is None:
            metadata = TopicBasedRemoteLogMetadataManager(machine=machine, open_logs=lambda _config, **_: topic)
            metadata.configure({"log.dir": LOGS, "remote.log.metadata.topic.num.partitions": 3, "broker.id": 1})
        self.metadata = metadata
        self.starts: list[tuple[TopicIdPartition, int]] = []
        self.manager = RemoteLogManager(
            config or RemoteLogManagerConfig(task_interval_ms=1000),
            broker_id=1,
            storage=storage,
            metadata=metadata,
            find_log=self.logs.get,
            on_log_start_offset=lambda partition, offset: self.starts.append((partition, offset)),
            machine=machine,
        )

    @property
    def store(self) -> HookedStore:
        assert isinstance(self.storage, HookedStore)
        return self.storage

    def produce(self, partition: TopicIdPartition, segments: int, *, records: int = 10) -> None:
        """Closed segments, and an active one."""
        log = self.logs[partition]
        for _ in range(segments):
            offset = log.log_end_offset
            values = [b"%d" % number for number in range(offset, offset + records)]
            log.append_as_leader(batch_of(*values, timestamp_ms=self.now_ms), leader_epoch=0)
            log.roll()
        log.append_as_leader(batch_of(b"last", timestamp_ms=self.now_ms), leader_epoch=0)

    def close(self) -> None:
        self.manager.close()
        self.directory.close()

    # ---- partitions whose first segments are in the tier alone, and their consumers

    def consumed(self, number: int = 0, *, segments: int = 3) -> TopicIdPartition:
        """Lead a partition whose first segments are in the tier alone; ten offsets a segment, a batch each."""
        partition = self.partition(number)
        log = self.logs[partition]
        for _ in range(segments):
            for _ in range(10):
                at = log.log_end_offset
                log.append_as_leader(batch_of(b"%d" % at + b"." * 100), leader_epoch=0)
            log.roll()
        log.append_as_leader(batch_of(b"%d" % log.log_end_offset), leader_epoch=0)
        self.lead(partition)
        self.drop_local(log)
        return partition

    def lead(self, partition: TopicIdPartition) -> None:
        """Lead a partition until all that may be copied is."""
        log = self.logs[partition]
        self.manager.on_leadership_change({partition}, NONE)
        ends = [end for _, end in log.closed_segments()]
        self.until(lambda: log.highest_offset_in_remote_storage == ends[-1] - 1)

    def drop_local(self, log: UnifiedLog) -> None:
        """Let local retention delete all that is copied."""
        log.delete_old_segments()
        assert log.local_log_start_offset == log.highest_offset_in_remote_storage + 1

    def ask(self, *requests: RemoteRead, **more: Any) -> PendingRead:
        return cast("PendingRead", self.manager.read(requests, **more))

    def fetch(self, *requests: RemoteRead, **more: Any) -> list[RemoteReadResult]:
        return list(self.ask(*requests, **more).result())

    def one(self, partition: TopicIdPartition, offset: int, **more: Any) -> RemoteReadResult:
        (found,) = self.fetch(RemoteRead(partition, offset, more.pop("of_partition", MIB)), **more)
        return found

    def value(self, name: str, **labels: str) -> float:
        return self.manager.metrics.value(name, **labels)

    def settles(self) -> bool:
        """Whether no stream, thread, place in the queue or fetch is held, a moment later."""
        self.machine.clock.sleep(0.001)
        return self.is_idle()

    def is_idle(self) -> bool:
        reads = self.manager._reads
        pool = reads.pool
        return (self.store.open_streams, pool.running, pool.waiting, len(reads)) == (0, 0, 0, 0)

    def hang(self, seconds: float = 3600.0) -> None:
        """Let the store's answers take so long."""
        self.store.hook = lambda: seconds


@contextlib.contextmanager
def tiered_broker(
    seed: int = 1, *, config: RemoteLogManagerConfig | None = None, **keys: Any
) -> Iterator[TieredBroker]:
    """A TieredBroker, of a configuration or of its keys; at its end nothing of it is left."""
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler:
        store = HookedStore(machine=machine)
        store.configure({})
        config = config or RemoteLogManagerConfig(**{"task_interval_ms": 1000} | keys)
        broker = TieredBroker(machine, topic=MemoryMetadataTopic(3, machine=machine), storage=store, config=config)
        yield broker
        store.hook = lambda: None
        broker.close()
        assert (store.open_streams, broker.manager._reads.pool.running) == (0, 0)
        machine.clock.sleep(7200)
        assert scheduler.unfinished == []


def joined(result: RemoteReadResult) -> bytes:
    return b"".join(bytes(cast("memoryview", part)) for part in result.data.records)


def values(result: RemoteReadResult, offset: int = 0) -> list[int]:
    """The offsets that the values tell."""
    rows = decode(joined(result), columns=["value"], from_offset=offset, allow_partial=True).to_pylist()
    return [int(row["value"].rstrip(b".")) for row in rows]
