"""A partition of a bucket, read-only, as the APIs of a server ask it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from kio.schema.errors import ErrorCode

from tierlog.broker.partitions import EpochEndOffset, FetchedRecords, FoundOffset, OffsetSnapshot
from tierlog.broker.protocol.api_errors import ApiError
from tierlog.broker.replica.aborted_transactions import AbortedTransactions
from tierlog.broker.replica.batch_reads import WantedBatches, read_batches
from tierlog.broker.replica.partition_histories import PartitionHistories
from tierlog.broker.replica.partition_view import PartitionView
from tierlog.broker.replica.segment_reads import SegmentReads
from tierlog.errors import CorruptDataError, ObjectNotFoundError
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata, TopicIdPartition
from tierlog.remote.tier.chunks.segment import StoredSegment
from tierlog.runtime.waiting.loops import SharedCall, SingleCalls
from tierlog.scan.history import PartitionHistory
from tierlog.scan.planning.offset_lookup import TimestampedOffset, find_max_timestamp, find_offset_by_timestamp
from tierlog.scan.transaction_history import find_last_stable_offset

#: A search by time reads several parts of a segment, one after another: it may take as long as so many reads.
_SEARCH_LIMITS: Final = 3
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A history as it is served, found out once."""

    view: PartitionView
    aborted: AbortedTransactions


@dataclass(frozen=True, slots=True)
class _Told:
    """The offsets of a version of the history, which stay when the history leaves memory."""

    version: int
    offsets: OffsetSnapshot


class ReplicaPartition:
    """See broker.partitions.Partition: over a history that changes as the bucket is listed again.

    Each call answers by the history that it began with.

    Args:
        histories: The partition's history as it counts now.
        reads: Of the segments; all partitions share it.
    """

    def __init__(self, histories: PartitionHistories, reads: SegmentReads) -> None:
        self._histories = histories
        self._reads = reads
        self._loaded: _Loaded | None = None
        self._told: _Told | None = None
        self._loading = SharedCall(self._load)
        self._searches: SingleCalls | None = None
        histories.when_left(self._let_go)
        reads.add(self)

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self._histories.topic_id_partition

    @property
    def offsets(self) -> OffsetSnapshot | None:
        """As Partition says; None again once the history is another one."""
        told = self._told
        return told.offsets if told is not None and told.version == self._histories.version else None

    async def load(self) -> OffsetSnapshot:
        """As Partition says. Cost: one small part of the newest segment for each new history."""
        return self.offsets or (await self._current()).view.offsets

    async def _current(self) -> _Loaded:
        loaded = self._loaded
        if loaded is not None and loaded.view.history is self._histories.use():
            return loaded
        return await self._loading.result(seconds=self._reads.timeout_seconds)

    async def _load(self) -> _Loaded:
        history = self._histories.use() or await self._histories.resolve()
        version = self._histories.version
        self._forget_open_indexes()
        view = await self._noting_missing(self._find_view(history))
        loaded = _Loaded(view, AbortedTransactions(self._reads, view))
        self._told = _Told(version, view.offsets)
        if self._histories.current is history:  # else it was let go of meanwhile, or is another one
            self._loaded = loaded
        return loaded

    def _let_go(self) -> None:
        """Hold nothing of a history that leaves memory; reads under way end with what they began with."""
        self._forget_open_indexes()
        self._loaded = None

    def _forget_open_indexes(self) -> None:
        """Drop what is cached of a segment that may grow before its next history comes."""
        if self._loaded is not None:
            for span in self._loaded.view.spans[-1:]:
                if not span.segment.closed:
                    self._reads.forget_indexes(span.segment)

    async def _find_view(self, history: PartitionHistory) -> PartitionView:
        spans = history.lineage.spans
        with suppress(CorruptDataError, ObjectNotFoundError):  # into the cache, so that the search waits for nothing
            for span in spans[-1:]:
                until = self._reads.deadline()
                await self._reads.index(span.segment, IndexType.PRODUCER_SNAPSHOT, until_seconds=until)

        def prepare() -> PartitionView:
            if not spans:
                return PartitionView(history, history.end_offset_exclusive)
            try:
                return PartitionView(history, find_last_stable_offset(self._reads.tier, history))
            except CorruptDataError as error:  # read_uncommitted goes on up to the damage
                return PartitionView(history, history.earliest_offset, error)

        return await self._reads.look_up(prepare)

    async def read(
        self, fetch_offset: int, *, max_bytes: int, is_first_whole: bool, read_committed: bool
    ) -> FetchedRecords:
        """As Partition says. Waits for nothing where all chunks are in the memory cache, and their place is known."""
        loaded = await self._current()
        offsets = loaded.view.offsets
        if not offsets.log_start_offset <= fetch_offset <= offsets.high_watermark:
            raise ApiError(
                ErrorCode.offset_out_of_range,
                f"{self.topic_id_partition}: offset {fetch_offset} is not within "
                f"{offsets.log_start_offset} … {offsets.high_watermark}",
            )
        end_offset = loaded.view.end_offset(read_committed=read_committed)
        if max_bytes <= 0 or fetch_offset >= end_offset:
            return FetchedRecords(offsets, aborted_transactions=() if read_committed else None)
        return await self._noting_missing(
            self._read(
                loaded,
                WantedBatches(fetch_offset, end_offset, max_bytes, is_first_whole, self._reads.deadline()),
                loaded.aborted if read_committed else None,
            )
        )

    async def _read(
        self, loaded: _Loaded, wanted: WantedBatches, aborted: AbortedTransactions | None
    ) -> FetchedRecords:
        view = loaded.view
        number = view.find_span(wanted.offset)
        while number < len(view.spans) and view.spans[number].first_offset < wanted.end_offset_exclusive:
            span = view.spans[number]
            of_span = WantedBatches(
                max(wanted.offset, span.first_offset),
                min(span.end_offset_exclusive, wanted.end_offset_exclusive),
                wanted.max_bytes,
                wanted.is_first_whole,
                wanted.until_seconds,
            )
            found = await read_batches(self._reads, await self._reads.log(span.segment), of_span)
            if found is not None:
                listed: list[tuple[int, int]] | None = None if aborted is None else []
                if aborted is not None and found.size_bytes:
                    listed = await aborted.find(number, found, wanted.until_seconds)
                has_more = found.end_offset < wanted.end_offset_exclusive
                return FetchedRecords(view.offsets, found.pieces, found.size_bytes, listed, has_more)
            number += 1  # what was left of this span's records is compacted away
        return FetchedRecords(view.offsets, aborted_transactions=None if aborted is None else ())

    async def find_offset(self, timestamp_ms: int, *, read_committed: bool) -> FoundOffset | None:
        """As Partition says."""
        view = (await self._current()).view
        end = view.end_offset(read_committed=read_committed)
        return await self._search(
            view,
            lambda: find_offset_by_timestamp(self._reads.tier, view.history, timestamp_ms, end_offset_exclusive=end),
        )

    async def find_max_timestamp(self) -> FoundOffset | None:
        """As Partition says."""
        view = (await self._current()).view
        return await self._search(view, lambda: find_max_timestamp(self._reads.tier, view.history))

    async def _search(self, view: PartitionView, search: Callable[[], TimestampedOffset | None]) -> FoundOffset | None:
        if self._searches is None:
            self._searches = self._reads.lookup_turns()
        seconds = _SEARCH_LIMITS * self._reads.timeout_seconds
        found = await self._noting_missing(self._searches.run(search, seconds=seconds))
        return None if found is None else FoundOffset(found.offset, found.timestamp_ms, view.epoch_of(found.offset))

    async def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """As Partition says."""
        return (await self._current()).view.end_offset_for(leader_epoch)

    async def epoch_of(self, offset: int) -> int:
        """As Partition says."""
        return (await self._current()).view.epoch_of(offset)

    async def size_bytes(self) -> int:
        """As Partition says: of all segments of which any record counts."""
        return (await self._current()).view.size_bytes

    def next_segment(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment | None:
        """The segment that is read behind one, as far as that is known now. Any thread."""
        loaded = self._loaded
        if loaded is None:
            return None
        return loaded.view.next_segment(metadata.remote_log_segment_id, metadata.start_offset)

    async def _noting_missing(self, call: Awaitable[Result]) -> Result:
        """The result of a call; the catalog hears of an object that is gone."""
        try:
            return await call
        except ObjectNotFoundError as error:
            self._histories.report_missing(error)
            raise
