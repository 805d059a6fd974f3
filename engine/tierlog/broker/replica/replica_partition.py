"""A partition of a bucket, read-only, as the APIs of a server ask it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from kio.schema.errors import ErrorCode

from tierlog.aio.waiting import SharedCall
from tierlog.broker.partitions import EpochEndOffset, FetchedRecords, FoundOffset, OffsetSnapshot
from tierlog.broker.protocol.api_errors import ApiError
from tierlog.broker.replica.aborted_transactions import find_aborted
from tierlog.broker.replica.batch_reads import WantedBatches, read_batches
from tierlog.broker.replica.partition_histories import PartitionHistories
from tierlog.broker.replica.partition_view import PartitionView
from tierlog.broker.replica.segment_reads import SegmentReads
from tierlog.errors import CorruptDataError, ObjectNotFoundError
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata, TopicIdPartition
from tierlog.remote.storage.chunks.segment import StoredSegment
from tierlog.scan.history import PartitionHistory
from tierlog.scan.planning.offset_lookup import TimestampedOffset, find_max_timestamp, find_offset_by_timestamp
from tierlog.scan.transaction_history import find_last_stable_offset

Result = TypeVar("Result")


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
        self._view: PartitionView | None = None
        self._loading = SharedCall(self._load)

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self._histories.topic_id_partition

    @property
    def offsets(self) -> OffsetSnapshot | None:
        """As Partition says; None again once the history is another one."""
        view = self._view
        return view.offsets if view is not None and view.history is self._histories.current else None

    async def load(self) -> OffsetSnapshot:
        """As Partition says. Cost: one small part of the newest segment for each new history."""
        return (await self._current()).offsets

    async def _current(self) -> PartitionView:
        view = self._view
        if view is not None and view.history is self._histories.current:
            return view
        return await self._loading.result()

    async def _load(self) -> PartitionView:
        history = self._histories.current
        if history is None:
            history = await self._histories.resolve()
        before = None if self._view is None else self._view.history
        if before is not None:
            for span in before.spans[-1:]:
                if not span.segment.closed:
                    self._reads.forget_indexes(span.segment)
        last_stable_offset = await self._noting_missing(self._find_last_stable_offset(history))
        view = self._view = PartitionView(history, last_stable_offset)
        return view

    async def _find_last_stable_offset(self, history: PartitionHistory) -> int:
        spans = history.lineage.spans
        if not spans:
            return history.end_offset_exclusive
        with suppress(CorruptDataError, ObjectNotFoundError):  # into the cache, so that the search waits for nothing
            await self._reads.index(spans[-1].segment, IndexType.PRODUCER_SNAPSHOT)
        return await self._reads.look_up(partial(find_last_stable_offset, self._reads.tier, history))

    async def read(
        self, fetch_offset: int, *, max_bytes: int, is_first_whole: bool, read_committed: bool
    ) -> FetchedRecords:
        """As Partition says. Waits for nothing where all chunks are in the memory cache, and their place is known."""
        view = await self._current()
        offsets = view.offsets
        if not offsets.log_start_offset <= fetch_offset <= offsets.high_watermark:
            raise ApiError(
                ErrorCode.offset_out_of_range,
                f"{self.topic_id_partition}: offset {fetch_offset} is not within "
                f"{offsets.log_start_offset} … {offsets.high_watermark}",
            )
        end_offset = offsets.last_stable_offset if read_committed else offsets.high_watermark
        if max_bytes <= 0 or fetch_offset >= end_offset:
            return FetchedRecords(offsets, aborted_transactions=() if read_committed else None)
        return await self._noting_missing(
            self._read(view, fetch_offset, end_offset, max_bytes, is_first_whole, read_committed)
        )

    async def _read(
        self,
        view: PartitionView,
        fetch_offset: int,
        end_offset: int,
        max_bytes: int,
        is_first_whole: bool,
        read_committed: bool,
    ) -> FetchedRecords:
        number = view.find_span(fetch_offset)
        while number < len(view.spans) and view.spans[number].first_offset < end_offset:
            span = view.spans[number]
            wanted = WantedBatches(
                max(fetch_offset, span.first_offset),
                min(span.end_offset_exclusive, end_offset),
                max_bytes,
                is_first_whole,
            )
            found = await read_batches(self._reads, await self._reads.log(span.segment), wanted)
            if found is not None:
                aborted = None
                if read_committed:
                    aborted = await find_aborted(self._reads, view, number, found) if found.size_bytes else []
                return FetchedRecords(view.offsets, found.pieces, found.size_bytes, aborted)
            number += 1  # what was left of this span's records is compacted away
        return FetchedRecords(view.offsets, aborted_transactions=() if read_committed else None)

    async def find_offset(self, timestamp_ms: int, *, read_committed: bool) -> FoundOffset | None:
        """As Partition says."""
        view = await self._current()
        offsets = view.offsets
        end = offsets.last_stable_offset if read_committed else offsets.high_watermark
        return await self._search(
            view,
            lambda: find_offset_by_timestamp(self._reads.tier, view.history, timestamp_ms, end_offset_exclusive=end),
        )

    async def find_max_timestamp(self) -> FoundOffset | None:
        """As Partition says."""
        view = await self._current()
        return await self._search(view, lambda: find_max_timestamp(self._reads.tier, view.history))

    async def _search(self, view: PartitionView, search: Callable[[], TimestampedOffset | None]) -> FoundOffset | None:
        found = await self._noting_missing(self._reads.look_up(search))
        return None if found is None else FoundOffset(found.offset, found.timestamp_ms, view.epoch_of(found.offset))

    async def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """As Partition says."""
        return (await self._current()).end_offset_for(leader_epoch)

    async def epoch_of(self, offset: int) -> int:
        """As Partition says."""
        return (await self._current()).epoch_of(offset)

    async def size_bytes(self) -> int:
        """As Partition says: of all segments of which any record counts."""
        return (await self._current()).size_bytes

    def next_segment(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment | None:
        """The segment that is read behind one, as far as that is known now. Any thread."""
        view = self._view
        return None if view is None else view.next_segment(metadata.remote_log_segment_id, metadata.start_offset)

    async def _noting_missing(self, call: Awaitable[Result]) -> Result:
        """The result of a call; the catalog hears of an object that is gone."""
        try:
            return await call
        except ObjectNotFoundError as error:
            self._histories.report_missing(error)
            raise
