"""Consumers of a broker whose first segments are in the tier alone: a manager, logs, a metadata topic and a store."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from tests.support.living_logs import batch_of
from tests.support.managed_broker import ManagedBroker
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.decoding import decode
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata, SegmentStream, TopicIdPartition
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.pending_reads import PendingRead, RemoteRead, RemoteReadResult
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic
from tierlog.testing.memory_storage_manager import MemoryStorageManager

MIB: Final = 1 << 20
NONE: Final[frozenset[TopicIdPartition]] = frozenset()


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


class Tiered:
    """A broker that leads tiered partitions, of which the first segments are in the tier alone."""

    def __init__(self, broker: ManagedBroker, store: HookedStore) -> None:
        self.broker, self.store = broker, store
        self.machine, self.manager = broker.machine, broker.manager

    def partition(self, number: int = 0, *, segments: int = 3) -> TopicIdPartition:
        """Lead a partition; ten offsets a segment, a batch each."""
        partition = self.broker.partition(number)
        log = self.broker.logs[partition]
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
        log = self.broker.logs[partition]
        self.manager.on_leadership_change({partition}, NONE)
        ends = [end for _, end in log.closed_segments()]
        self.until(lambda: log.highest_offset_in_remote_storage == ends[-1] - 1)

    def drop_local(self, log: UnifiedLog) -> None:
        """Let local retention delete all that is copied."""
        log.delete_old_segments()
        assert log.local_log_start_offset == log.highest_offset_in_remote_storage + 1

    def until(self, holds: Callable[[], bool], seconds: float = 120.0) -> None:
        until = self.now + seconds
        while not holds():
            assert self.now < until, "it never does"
            self.machine.clock.sleep(0.01)

    @property
    def now(self) -> float:
        return self.machine.clock.monotonic_seconds()

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
def tiered(seed: int = 1, **keys: Any) -> Iterator[Tiered]:
    """A Tiered; at its end nothing of it is left."""
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler:
        store = HookedStore(machine=machine)
        store.configure({})
        config = RemoteLogManagerConfig(task_interval_ms=1000, **keys)
        broker = ManagedBroker(machine, topic=MemoryMetadataTopic(3, machine=machine), storage=store, config=config)
        made = Tiered(broker, store)
        yield made
        store.hook = lambda: None
        broker.close()
        assert (store.open_streams, made.manager._reads.pool.running) == (0, 0)
        machine.clock.sleep(7200)
        assert scheduler.unfinished == []


def joined(result: RemoteReadResult) -> bytes:
    return b"".join(bytes(cast("memoryview", part)) for part in result.data.records)


def values(result: RemoteReadResult, offset: int = 0) -> list[int]:
    """The offsets that the values tell."""
    rows = decode(joined(result), columns=["value"], from_offset=offset, allow_partial=True).to_pylist()
    return [int(row["value"].rstrip(b".")) for row in rows]
