"""Topics in memory behind the protocols that servers read from: real batches, and answers worked out from each record.

A partition can be slow, be broken, or be one whose offsets nobody has asked for yet.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from tests.support.batches import Batch, encode
from tierlog.broker.partitions import (
    UNKNOWN,
    Catalog,
    EpochEndOffset,
    FetchedRecords,
    FoundOffset,
    OffsetSnapshot,
    Partition,
    Topic,
)
from tierlog.broker.protocol.api_errors import ApiError
from tierlog.remote.api import TopicIdPartition, Uuid


@dataclass
class ServedPartition:
    """A partition of batches.

    Args:
        topic_id_partition: Of which one.
        batches: In order, without overlaps.
        log_start_offset: First offset that can be read.
        last_stable_offset: None for the end.
        is_loaded: Whether its offsets are at hand from the beginning.
        error: What every question but ``offsets`` raises.
        gate: What every question but ``offsets`` waits for.
    """

    topic_id_partition: TopicIdPartition
    batches: Sequence[Batch] = ()
    log_start_offset: int = 0
    last_stable_offset: int | None = None
    is_loaded: bool = True
    error: Exception | None = None
    gate: asyncio.Event | None = None
    loads_count: int = field(default=0, init=False)

    @property
    def offsets(self) -> OffsetSnapshot | None:
        return self._snapshot() if self.is_loaded else None

    async def load(self) -> OffsetSnapshot:
        self.loads_count += 1
        await self._answerable()
        self.is_loaded = True
        return self._snapshot()

    async def read(
        self, fetch_offset: int, *, max_bytes: int, is_first_whole: bool, read_committed: bool
    ) -> FetchedRecords:
        await self._answerable()
        offsets = self._snapshot()
        end = offsets.last_stable_offset if read_committed else offsets.high_watermark
        if not offsets.log_start_offset <= fetch_offset <= offsets.high_watermark:
            raise ApiError(ErrorCode.offset_out_of_range)
        wanted = [b for b in self.batches if b.last_offset >= fetch_offset and b.base_offset < end]
        data = b"".join(encode(batch) for batch in wanted)
        first_bytes = len(encode(wanted[0])) if wanted else 0
        if first_bytes > max_bytes:
            data = data[:first_bytes] if is_first_whole else b""
        data = data[: max(max_bytes, first_bytes)] if max_bytes else b""
        records = [memoryview(data)] if data else []
        return FetchedRecords(offsets, records, len(data), () if read_committed else None)

    async def find_offset(self, timestamp_ms: int, *, read_committed: bool) -> FoundOffset | None:
        await self._answerable()
        offsets = self._snapshot()
        end = offsets.last_stable_offset if read_committed else offsets.high_watermark
        return next((one for one in self._records() if one.timestamp_ms >= timestamp_ms and one.offset < end), None)

    async def find_max_timestamp(self) -> FoundOffset | None:
        await self._answerable()
        return max(self._records(), key=lambda one: (one.timestamp_ms, -one.offset), default=None)

    async def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        await self._answerable()
        below = [batch for batch in self.batches if batch.epoch <= leader_epoch]
        if not below:
            return EpochEndOffset(UNKNOWN, UNKNOWN)
        return EpochEndOffset(below[-1].epoch, below[-1].last_offset + 1)

    async def epoch_of(self, offset: int) -> int:
        await self._answerable()
        return next((batch.epoch for batch in self.batches if batch.last_offset >= offset), UNKNOWN)

    async def size_bytes(self) -> int:
        await self._answerable()
        return sum(len(encode(batch)) for batch in self.batches)

    async def _answerable(self) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error

    def _snapshot(self) -> OffsetSnapshot:
        end = self.batches[-1].last_offset + 1 if self.batches else self.log_start_offset
        stable = end if self.last_stable_offset is None else self.last_stable_offset
        return OffsetSnapshot(self.log_start_offset, end, stable, self.batches[-1].epoch if self.batches else UNKNOWN)

    def _records(self) -> Iterator[FoundOffset]:
        for batch in self.batches:
            for number in range(len(batch.values)):
                if batch.base_offset + number >= self.log_start_offset:
                    yield FoundOffset(batch.base_offset + number, batch.timestamp_ms + number, batch.epoch)


class ServedTopics:
    """A catalog of such partitions."""

    def __init__(self) -> None:
        self.version = 1
        self._topics: dict[str, Topic] = {}
        self._partitions: dict[tuple[str, int], ServedPartition] = {}

    def add(self, name: str, partitions: Sequence[int] = (0,), *, batches: Sequence[Batch] = ()) -> ServedPartition:
        """Add a topic whose partitions have the same batches. Gives the first one."""
        topic_id = Uuid(hashlib.sha256(name.encode()).digest()[:16])
        self._topics[name] = Topic(name, topic_id, tuple(partitions))
        for number in partitions:
            self._partitions[name, number] = ServedPartition(TopicIdPartition(topic_id, name, number), batches)
        self._topics = dict(sorted(self._topics.items()))
        self.version += 1
        return self._partitions[name, partitions[0]]

    def at(self, name: str, partition: int = 0) -> ServedPartition:
        """A partition that is there."""
        return self._partitions[name, partition]

    def topics(self) -> Collection[Topic]:
        return self._topics.values()

    def find(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def find_by_id(self, topic_id: Uuid) -> Topic | None:
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    def partition(self, name: str, partition: int) -> Partition | None:
        return self._partitions.get((name, partition))

    async def wait(self, version: int, seconds: float) -> bool:
        if self.version == version:
            await asyncio.sleep(seconds)
        return self.version != version


def _are_served(topics: ServedTopics) -> Catalog:
    """Here for the type checker: these are what a server serves."""
    return topics
