"""Topics in memory that are served: batches of any bytes, partitions that wait or fail when a test says so."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from tests.support.batches import Batch, encode
from tests.support.manual_timers import ManualTimers
from tierlog.broker.partition_watches import PartitionKey, PartitionWatch, PartitionWatches
from tierlog.broker.partitions import (
    UNKNOWN,
    Catalog,
    EpochEndOffset,
    FoundOffset,
    OffsetSnapshot,
    Partition,
    Topic,
)
from tierlog.broker.protocol.api_errors import ApiError
from tierlog.log.fetch_data import FetchDataInfo
from tierlog.remote.api import TopicIdPartition, Uuid
from tierlog.runtime.waiting.file_part import FilePart


@dataclass(frozen=True)
class MemoryBatch:
    """A batch: its offsets, its leader epoch, its bytes; the timestamps of its records where a test asks by time."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    data: bytes
    timestamps_ms: Sequence[int] = ()

    @classmethod
    def of(cls, batch: Batch) -> MemoryBatch:
        """A batch that a script spells out."""
        timestamps = range(batch.timestamp_ms, batch.timestamp_ms + len(batch.values))
        return cls(batch.base_offset, batch.last_offset, batch.epoch, encode(batch), timestamps)


@dataclass
class MemoryPartition:
    """A partition that answers at once, but for what a test holds up or lets fail."""

    topic_id_partition: TopicIdPartition
    log_start_offset: int = 0
    last_stable_offset: int | None = None
    batches: list[MemoryBatch] = field(default_factory=list)
    aborted: list[tuple[int, int]] = field(default_factory=list)
    #: Base offsets of the last batches of segments: a read ends there.
    segment_ends: set[int] = field(default_factory=set)
    is_loaded: bool = True
    error: Exception | None = None
    gate: asyncio.Event | None = None
    gate_waits: bool = False
    loads_count: int = 0
    reads_count: int = 0
    waiting_count: int = 0
    cancelled_count: int = 0

    def append(self, size_bytes: int, *, records: int = 1, leader_epoch: int = 0) -> MemoryBatch:
        """Add a batch of so many bytes, which no other batch has."""
        base = self.end_offset
        seed = f"{self.topic_id_partition}:{base}".encode()
        data = (hashlib.sha256(seed).digest() * (size_bytes // 32 + 1))[:size_bytes]
        batch = MemoryBatch(base, base + records - 1, leader_epoch, data)
        self.batches.append(batch)
        return batch

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.log_start_offset

    @property
    def offsets(self) -> OffsetSnapshot | None:
        return self.snapshot() if self.is_loaded else None

    def snapshot(self) -> OffsetSnapshot:
        end = self.end_offset
        stable = end if self.last_stable_offset is None else self.last_stable_offset
        epoch = self.batches[-1].leader_epoch if self.batches else UNKNOWN
        return OffsetSnapshot(self.log_start_offset, end, stable, epoch)

    async def load(self) -> OffsetSnapshot:
        self.loads_count += 1
        await self._pass_gate()
        self.is_loaded = True
        return self.snapshot()

    async def _pass_gate(self) -> None:
        if self.gate_waits:
            await asyncio.sleep(0)
        if self.gate is not None:
            self.waiting_count += 1
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled_count += 1
                raise
            finally:
                self.waiting_count -= 1
        if self.error is not None:
            raise self.error

    async def read(
        self, fetch_offset: int, *, max_bytes: int, is_first_whole: bool, read_committed: bool
    ) -> tuple[OffsetSnapshot, FetchDataInfo[memoryview | FilePart]]:
        self.reads_count += 1
        await self._pass_gate()
        offsets = self.snapshot()
        if not offsets.log_start_offset <= fetch_offset <= offsets.high_watermark:
            raise ApiError(ErrorCode.offset_out_of_range)
        end = offsets.last_stable_offset if read_committed else offsets.high_watermark
        given: list[memoryview] = []
        left, first_offset, last_offset = max_bytes, -1, -1
        for batch in self.batches:
            if batch.last_offset < fetch_offset or batch.base_offset >= end:
                continue
            view = memoryview(batch.data)
            first_offset = batch.base_offset if first_offset < 0 else first_offset
            if not given and len(view) > left:
                if is_first_whole:
                    given.append(view)
                    last_offset = batch.last_offset
                break
            given.append(view[:left])
            if len(given[-1]) == len(view):
                last_offset = batch.last_offset
            left -= len(given[-1])
            if not left:
                break
            if batch.base_offset in self.segment_ends:
                break
        aborted = self.aborted if read_committed else None
        size = sum(map(len, given))
        return offsets, FetchDataInfo(
            fetch_offset, 0, 0, given, size, first_offset, last_offset, aborted_transactions=aborted
        )

    async def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        await self._pass_gate()
        known = sorted({batch.leader_epoch for batch in self.batches if batch.leader_epoch <= leader_epoch})
        if not known:
            return EpochEndOffset(UNKNOWN, UNKNOWN)
        epoch = known[-1]
        return EpochEndOffset(epoch, max(b.last_offset + 1 for b in self.batches if b.leader_epoch == epoch))

    async def find_offset(self, timestamp_ms: int, *, read_committed: bool) -> FoundOffset | None:
        await self._pass_gate()
        offsets = self.snapshot()
        end = offsets.last_stable_offset if read_committed else offsets.high_watermark
        return next((one for one in self._records() if one.timestamp_ms >= timestamp_ms and one.offset < end), None)

    async def find_max_timestamp(self) -> FoundOffset | None:
        await self._pass_gate()
        return max(self._records(), key=lambda one: (one.timestamp_ms, -one.offset), default=None)

    def _records(self) -> Iterator[FoundOffset]:
        for batch in self.batches:
            for offset, timestamp_ms in enumerate(batch.timestamps_ms, batch.base_offset):
                if offset >= self.log_start_offset:
                    yield FoundOffset(offset, timestamp_ms, batch.leader_epoch)

    async def epoch_of(self, offset: int) -> int:
        await self._pass_gate()
        return next((batch.leader_epoch for batch in self.batches if batch.last_offset >= offset), UNKNOWN)

    async def size_bytes(self) -> int:
        await self._pass_gate()
        return sum(len(batch.data) for batch in self.batches)


class MemoryCatalog:
    """Topics by name; ``change`` is word of a change."""

    def __init__(self, timers: ManualTimers | None = None) -> None:
        self._timers = timers or ManualTimers()
        self._topics: dict[str, Topic] = {}
        self._partitions: dict[tuple[str, int], MemoryPartition] = {}
        self._watches = PartitionWatches(self._timers)
        self.version = 1
        self.lookups_count = 0

    @property
    def watches_count(self) -> int:
        return len(self._watches)

    def add(
        self, name: str, partitions: int | Sequence[int] = 1, *, generation: int = 0, batches: Sequence[Batch] = ()
    ) -> Sequence[MemoryPartition]:
        """A topic; another generation of it has another id. What it had before is gone.

        Args:
            name: Of the topic.
            partitions: How many, or their numbers.
            generation: Of the topic.
            batches: Of each partition.
        """
        topic_id = Uuid(hashlib.md5(f"{name}{generation}".encode(), usedforsecurity=False).digest())
        self.remove(name)
        numbers = range(partitions) if isinstance(partitions, int) else partitions
        self._topics[name] = Topic(name, topic_id, tuple(numbers))
        self._topics = dict(sorted(self._topics.items()))
        encoded = [MemoryBatch.of(batch) for batch in batches]
        made = [MemoryPartition(TopicIdPartition(topic_id, name, n), batches=list(encoded)) for n in numbers]
        self._partitions |= {(name, number): partition for number, partition in zip(numbers, made, strict=True)}
        return made

    def remove(self, name: str) -> None:
        if self._topics.pop(name, None) is not None:
            self._partitions = {key: value for key, value in self._partitions.items() if key[0] != name}

    def change(self) -> None:
        """Wake the polls of all partitions."""
        self.version += 1
        self._watches.ring_all()

    def change_partition(self, name: str, partition: int = 0) -> None:
        """Wake the polls of one partition."""
        self.version += 1
        self._watches.ring([self.at(name, partition).topic_id_partition])

    def topics(self) -> Collection[Topic]:
        return self._topics.values()

    def find(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def find_by_id(self, topic_id: Uuid) -> Topic | None:
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    def partition(self, name: str, partition: int) -> Partition | None:
        self.lookups_count += 1
        return self._partitions.get((name, partition))

    def at(self, name: str, partition: int = 0) -> MemoryPartition:
        return self._partitions[name, partition]

    def watch(self, partitions: Iterable[PartitionKey]) -> PartitionWatch:
        return self._watches.add(partitions)


def _holds_the_contract(catalog: MemoryCatalog, partition: MemoryPartition) -> tuple[Catalog, Partition]:
    """The type checker says if these are not what a server serves."""
    return catalog, partition
