"""A metadata topic in the memory of this process, shared by several managers, with faults on demand: for tests, for
simulation and for a broker that is tried out.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tierlog.records.builder import RecordBatchBuilder
from tierlog.remote.api import RemoteStorageException, RetriableRemoteStorageException
from tierlog.remote.metadata.metadata_log import LogBounds, MetadataBatches, MetadataValues, OffsetsLostError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.machine.scheduling import Future, PendingFuture


@dataclass(frozen=True, slots=True)
class _Batch:
    """Records that were appended together, at consecutive offsets."""

    base_offset: int
    values: tuple[bytes | None, ...]
    timestamp_ms: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.values)

    @property
    def size_bytes(self) -> int:
        return sum(len(value or b"") for value in self.values)

    def encoded(self) -> bytes:
        """Return the batch as a log file has it."""
        builder = RecordBatchBuilder(self.base_offset)
        for value in self.values:
            builder.append(None, value, timestamp_ms=self.timestamp_ms)
        return builder.build()


@dataclass(slots=True)
class _Partition:
    start_offset: int = 0
    end_offset: int = 0
    batches: list[_Batch] = field(default_factory=list)

    def append(self, values: Sequence[bytes | None], timestamp_ms: int) -> int:
        batch = _Batch(self.end_offset, tuple(values), timestamp_ms)
        self.batches.append(batch)
        self.end_offset = batch.next_offset
        return batch.base_offset


class MemoryMetadataTopic:
    """The topic: what all of its logs share. It is a MetadataLogs too: ``open`` gives a log of it.

    Args:
        partition_count: How many partitions it has.
        machine: Has the clock, threads and chance.
        as_batches: Whether it is read as runs of record batches, else as runs of values.

    Attributes:
        unavailable: While it is true, every call ends in a retriable error.
        refuses: While it is set, every call ends in this error, which is not retriable.
        lose_acknowledgements: So many of the next appends store their record and end in a retriable error.
        drop_appends: So many of the next appends end in the same error and store nothing.
        acknowledge_after: Seconds until an append is acknowledged, asked for each; None: at once.

    Thread safety: any number of threads.
    """

    def __init__(self, partition_count: int = 50, *, machine: Machine | None = None, as_batches: bool = False) -> None:
        self.machine = machine or Machine()
        self.partition_count = partition_count
        self.as_batches = as_batches
        self.unavailable = False
        self.refuses: RemoteStorageException | None = None
        self.lose_acknowledgements = 0
        self.drop_appends = 0
        self.acknowledge_after: Callable[[], float] | None = None
        self.changed = self.machine.scheduler.condition()
        self._generation = 0
        self._partitions = [_Partition() for _ in range(partition_count)]

    @property
    def identity(self) -> str:
        """An identity that changes with each ``recreate``."""
        return f"memory-{self._generation}"

    def open(self, *, timeout_seconds: float) -> MemoryMetadataLog:  # noqa: ARG002 - nothing is waited for
        """Open a log over the topic as it is now."""
        with self.changed:
            self.check_available()
            return MemoryMetadataLog(self, self.identity)

    def check_available(self) -> None:
        """Raise the error that is asked for, if one is. The caller holds ``changed``."""
        if self.refuses is not None:
            raise self.refuses
        if self.unavailable:
            raise RetriableRemoteStorageException("the metadata topic is not available")

    def append(self, partition: int, *values: bytes | None) -> int:
        """Append records as one batch, whatever faults are set; returns the offset of the first."""
        with self.changed:
            offset = self._partitions[partition].append(values, self.machine.clock.time_ms())
            self.changed.notify_all()
            return offset

    def skip(self, partition: int, count: int) -> None:
        """Skip offsets that no record has, like those of transaction markers."""
        with self.changed:
            self._partitions[partition].end_offset += count
            self.changed.notify_all()

    def truncate(self, partition: int, end_offset: int) -> None:
        """Delete the batches that reach to an offset or beyond it."""
        with self.changed:
            found = self._partitions[partition]
            found.batches = [batch for batch in found.batches if batch.next_offset <= end_offset]
            found.end_offset = end_offset
            self.changed.notify_all()

    def expire(self, partition: int, start_offset: int) -> None:
        """Delete the batches below an offset, as retention does."""
        with self.changed:
            found = self._partitions[partition]
            found.batches = [batch for batch in found.batches if batch.base_offset >= start_offset]
            found.start_offset = start_offset
            self.changed.notify_all()

    def recreate(self, partition_count: int | None = None) -> None:
        """Delete the topic and make it anew; its logs must be opened again."""
        with self.changed:
            self._generation += 1
            self.partition_count = partition_count or self.partition_count
            self._partitions = [_Partition() for _ in range(self.partition_count)]
            self.changed.notify_all()

    def bounds(self, partition: int) -> LogBounds:
        """Return the bounds of one partition now."""
        found = self._partitions[partition]
        return LogBounds(found.start_offset, found.end_offset)

    def values(self, partition: int) -> list[tuple[int, bytes | None]]:
        """Return all records of a partition, with their offsets."""
        return [
            (batch.base_offset + at, value)
            for batch in self._partitions[partition].batches
            for at, value in enumerate(batch.values)
        ]

    def run(self, partition: int, position: int, max_bytes: int) -> MetadataBatches | MetadataValues | None:
        """Return batches from the offset's batch on, one at least; None at the end. The caller holds ``changed``."""
        found = self._partitions[partition]
        if not found.start_offset <= position <= found.end_offset:
            raise OffsetsLostError(
                f"metadata partition {partition}: offset {position} is outside of "
                f"{found.start_offset} … {found.end_offset}"
            )
        if position == found.end_offset:
            return None
        at = bisect.bisect_right(found.batches, position, key=lambda batch: batch.next_offset)
        taken: list[_Batch] = []
        left = max_bytes
        for batch in found.batches[at:]:
            if taken and batch.size_bytes > left:
                break
            taken.append(batch)
            left -= batch.size_bytes
        whole = at + len(taken) == len(found.batches)
        next_offset = found.end_offset if whole else taken[-1].next_offset
        if self.as_batches:
            return MetadataBatches(partition, next_offset, b"".join(batch.encoded() for batch in taken))
        rows = [
            (batch.base_offset + index, batch.timestamp_ms, value)
            for batch in taken
            for index, value in enumerate(batch.values)
            if batch.base_offset + index >= position
        ]
        return MetadataValues(
            partition,
            next_offset,
            [offset for offset, _, _ in rows],
            [timestamp for _, timestamp, _ in rows],
            [None] * len(rows),
            [value for _, _, value in rows],
        )


class MemoryMetadataLog(Closeable):
    """One manager's view of a MemoryMetadataTopic; made by its ``open``."""

    def __init__(self, topic: MemoryMetadataTopic, identity: str) -> None:
        self._topic = topic
        self._identity = identity
        self._partition_count = topic.partition_count
        self._woken = False
        self._closed = False

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def partition_count(self) -> int:
        return self._partition_count

    def _check(self) -> None:
        if self._closed:
            raise RemoteStorageException("the metadata log is closed")
        self._topic.check_available()
        if self._identity != self._topic.identity:
            raise OffsetsLostError("the metadata topic was made anew")

    def append(self, partition: int, value: bytes) -> Future[int]:
        """Append a record, as MetadataLog says."""
        topic = self._topic
        future: PendingFuture[int] = topic.machine.scheduler.future()
        error: RemoteStorageException | None = None
        offset = -1
        with topic.changed:
            self._check()
            if topic.drop_appends > 0 or topic.lose_acknowledgements > 0:
                error = RetriableRemoteStorageException("the append was not acknowledged in time")
            stored = topic.drop_appends <= 0
            if not stored:
                topic.drop_appends -= 1
            elif error is not None:
                topic.lose_acknowledgements -= 1
        if stored:
            offset = topic.append(partition, value)

        def acknowledge() -> None:
            if error is None:
                future.set_result(offset)
            else:
                future.set_exception(error)

        seconds = None if topic.acknowledge_after is None else topic.acknowledge_after()
        if seconds is None:
            acknowledge()
        else:
            topic.machine.scheduler.start(lambda: self._later(seconds, acknowledge), name="tierlog-memory-topic")
        return future

    def _later(self, seconds: float, acknowledge: Callable[[], None]) -> None:
        self._topic.machine.clock.sleep(seconds)
        acknowledge()

    def bounds(self, partitions: Sequence[int], *, timeout_seconds: float) -> Mapping[int, LogBounds]:  # noqa: ARG002
        """Return the bounds of some partitions now, as MetadataLog says."""
        with self._topic.changed:
            self._check()
            return {partition: self._topic.bounds(partition) for partition in partitions}

    def read(
        self, positions: Mapping[int, int], *, max_bytes: int, timeout_seconds: float
    ) -> Sequence[MetadataBatches | MetadataValues]:
        """Read records from these offsets on, as MetadataLog says; an equal share of the bytes for each partition."""
        clock = self._topic.machine.clock
        until = clock.monotonic_seconds() + timeout_seconds
        with self._topic.changed:
            while True:
                self._check()
                share = max_bytes // max(1, len(positions))
                runs = [self._topic.run(partition, position, share) for partition, position in positions.items()]
                found = [run for run in runs if run is not None]
                left = until - clock.monotonic_seconds()
                if found or self._woken or left <= 0:
                    self._woken = False
                    return found
                self._topic.changed.wait(left)

    def wake(self) -> None:
        """End a read that waits in another thread at once, or the next one."""
        with self._topic.changed:
            self._woken = True
            self._topic.changed.notify_all()

    def close(self) -> None:
        """Release all resources; calls under way end with an error. Idempotent."""
        with self._topic.changed:
            self._closed = True
            self._topic.changed.notify_all()
