"""Partitions of a bucket, read-only, as the APIs of a server ask them; one reader and its threads serve all of them.

A read lists the aborted transactions that touch its batches, as a broker does for read_committed consumers. Source:
Kafka RemoteLogManager#addAbortedTransactions, #collectAbortedTransactions, TransactionIndex#collectAbortedTxns. Unlike
there, markers outside of a segment's span do not count: those of an abandoned branch aborted nothing.
"""

from __future__ import annotations

import bisect
import itertools
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from kio.schema.errors import ErrorCode
from numpy.typing import NDArray

from tierlog._native.indexes import find_upper_bound_offset
from tierlog.broker.partitions import UNKNOWN, EpochEndOffset, FoundOffset, OffsetSnapshot
from tierlog.broker.protocol.api_errors import ApiError
from tierlog.broker.replica.catalog.cached_history import CachedHistory
from tierlog.broker.replica.file_batches import FileBatchReads
from tierlog.errors import CorruptDataError, ObjectNotFoundError
from tierlog.log.fetch_data import FetchDataInfo
from tierlog.remote.api import IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from tierlog.remote.config import StorageConfig
from tierlog.remote.manager.batch_reads import FoundBatches, WantedBatches
from tierlog.remote.metadata.lineage import Span
from tierlog.remote.storage.fetch.cached_tier import CachedTier
from tierlog.remote.storage.fetch.segment_reader import SegmentReader
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.remote.tier.chunks.stored_segment import SegmentLog, StoredSegment
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.wrappers.rate_limiter import RateLimiter
from tierlog.runtime.waiting.loops import SharedCall, SingleCalls, Worker
from tierlog.scan.history import PartitionHistory
from tierlog.scan.planning.offset_lookup import TimestampedOffset, find_max_timestamp, find_offset_by_timestamp
from tierlog.scan.transaction_history import aborted_transactions, entries_inside, find_last_stable_offset

#: A segment answers for the span that holds its first offset, or for one soon behind it.
_SPANS_LOOKED_AT: Final = 8
#: A search by time reads several parts of a segment, one after another: it may take as long as so many reads.
_SEARCH_LIMITS: Final = 3
#: Threads that read a disk and open chunks, and those of searches, which may wait for a store.
_READ_THREADS: Final = 16
_LOOKUP_THREADS: Final = 16
#: Which segment follows another one.
NextStoredSegment = Callable[[RemoteLogSegmentMetadata], StoredSegment | None]
Result = TypeVar("Result")


class SegmentReads:
    """Reads segments that a listing gave, for tasks of one event loop.

    Args:
        tier: Whose segments they are; stays the caller's.
        config: Of ``server_config``: caches, limits, prefetch.
        machine: Its clock, threads and files; by default the tier's.
        metrics: Where it counts.

    Attributes:
        tier: The same tier through the caches, for calls of ``look_up``.
        worker: Threads that read and check.
        batches: Of the segments.

    Raises:
        ConfigError: the disk cache's directory cannot be used.
    """

    def __init__(
        self,
        tier: Tier,
        config: StorageConfig,
        *,
        machine: Machine | None = None,
        metrics: StorageMetrics | None = None,
    ) -> None:
        machine = machine or tier.machine
        self._machine = machine
        limit = config.download_rate_limit_bytes_per_second
        self._fetcher = SegmentReader(
            tier.store,
            config,
            tier.key_ring,
            limiter=None if limit is None else RateLimiter(limit, machine=machine),
            machine=machine,
            metrics=metrics,
        )
        self._fetcher.next_log = self._next_log
        self._timeout_seconds = config.fetch_chunk_cache_get_timeout_ms / 1000
        self._next_segments: dict[TopicIdPartition, weakref.WeakMethod[NextStoredSegment]] = {}
        self.tier = CachedTier(tier, self._fetcher, machine)
        self.worker = Worker(machine.scheduler.pool(_READ_THREADS, name="tierlog-replica-read"), machine)
        self.batches = FileBatchReads(
            self._fetcher, machine, checks_batches=config.fetch_check_batches_enabled, worker=self.worker
        )
        self._lookups = Worker(machine.scheduler.pool(_LOOKUP_THREADS, name="tierlog-replica-lookup"), machine)

    def add(self, partition: TopicIdPartition, next_segment: NextStoredSegment) -> None:
        """Note a partition, so that prefetch goes on in its next segment.

        Args:
            partition: Of which one.
            next_segment: A method that says which segment follows another one, as far as that is known now. Called in
                any thread, for as long as its object lives.
        """

        def forget(gone: object) -> None:
            if self._next_segments.get(partition) is gone:
                del self._next_segments[partition]

        self._next_segments[partition] = weakref.WeakMethod(next_segment, forget)

    def _next_log(self, metadata: RemoteLogSegmentMetadata) -> SegmentLog | None:
        known = self._next_segments.get(metadata.topic_id_partition)
        next_segment = None if known is None else known()
        segment = None if next_segment is None else next_segment(metadata)
        return None if segment is None else self._fetcher.opened(segment)

    def deadline(self) -> float:
        """Return the time at which a read that begins now is late, in seconds of the machine's monotonic clock: a
        client waits no longer.
        """
        return self._machine.clock.monotonic_seconds() + self._timeout_seconds

    async def read(self, segment: StoredSegment, wanted: WantedBatches, *, until_seconds: float) -> FoundBatches | None:
        """Read batches, as ``BatchReads.read_waits`` says. StoreUnavailableError: not there in time."""
        return await self.worker.drive(self.batches.read_waits(segment, wanted), until_seconds=until_seconds)

    async def index(self, segment: StoredSegment, index_type: IndexType, *, until_seconds: float) -> bytes | None:
        """Return a part of a segment beside its log; None if it has none.

        Raises:
            StoreUnavailableError: not there in time. ObjectNotFoundError, CorruptObjectError, EncryptionKeyError,
                StoreError and its kinds.
        """
        return await self.worker.drive(self._fetcher.index_waits(segment, index_type), until_seconds=until_seconds)

    def forget_indexes(self, segment: StoredSegment) -> None:
        """Drop the cached indexes of a segment that has grown."""
        self._fetcher.forget_indexes(segment)

    @property
    def timeout_seconds(self) -> float:
        """Time limit of one read: ``fetch.chunk.cache.get.timeout.ms``."""
        return self._timeout_seconds

    async def look_up(self, search: Callable[[], Result]) -> Result:
        """Return the result of a search over ``tier``, in a thread of its own kind, however long it takes."""
        return await self._lookups.run(search)

    def lookup_turns(self) -> SingleCalls:
        """Return threads for searches over ``tier``, one after another, of one partition."""
        return self._lookups.one_at_a_time()

    def close(self) -> None:
        """End the reads under way with an error, and free caches and threads; not to be called on the event loop."""
        self._fetcher.close()
        self.worker.close()
        self._lookups.close()


class PartitionView:
    """A history, its offsets, and the places of offsets in it. Immutable; any number of threads.

    Args:
        history: Of the partition.
        last_stable_offset: Behind the last offset that read_committed may read; UNKNOWN beside a fault.
        stable_fault: Why that is not known: the transactions of a damaged log cannot be read.

    Attributes:
        spans: Those that count, ascending and disjoint.
        is_bare: Whether a segment has no files beside its log: then no transaction index lists aborted transactions.
    """

    def __init__(
        self, history: PartitionHistory, last_stable_offset: int, stable_fault: CorruptDataError | None = None
    ) -> None:
        self.history = history
        self.stable_fault = stable_fault
        self.spans: tuple[Span, ...] = history.spans
        self._ends = [span.end_offset_exclusive for span in self.spans]
        self._epochs = history.lineage.epochs
        latest = self._epochs.latest
        start, end = history.earliest_offset, history.end_offset_exclusive
        stable = UNKNOWN if stable_fault is not None else max(start, min(last_stable_offset, end))
        self.offsets = OffsetSnapshot(start, end, stable, UNKNOWN if latest is None else latest.epoch)
        self.is_bare = any(span.segment.is_bare for span in self.spans)
        self._transactional = [number for number, span in enumerate(self.spans) if _has_transactions(span.segment)]

    def end_offset(self, *, read_committed: bool) -> int:
        """Return the end of the readable offsets, exclusive.

        Raises:
            CorruptDataError: it is not known of read_committed.
        """
        if not read_committed:
            return self.offsets.high_watermark
        if self.stable_fault is not None:
            raise self.stable_fault.with_traceback(None)
        return self.offsets.last_stable_offset

    def find_span(self, offset: int) -> int:
        """Return the number of the span that holds an offset, or of the next one behind a gap; ``len(spans)`` behind
        all.
        """
        return bisect.bisect_right(self._ends, offset)

    def iter_transactional(self, number: int) -> Iterator[Span]:
        """Yield the spans from one on whose segments may have a transaction index."""
        for place in range(bisect.bisect_left(self._transactional, number), len(self._transactional)):
            yield self.spans[self._transactional[place]]

    def next_segment(self, segment_id: RemoteLogSegmentId, start_offset: int) -> StoredSegment | None:
        """Return the segment that is read behind one with this id and start; None behind the last, or where it is not
        read.
        """
        first = self.find_span(start_offset)
        nearby = self.spans[first : first + _SPANS_LOOKED_AT]
        for span, following in itertools.pairwise(nearby):
            is_this = span.segment.metadata.remote_log_segment_id == segment_id
            if is_this and following.segment.metadata.remote_log_segment_id != segment_id:
                return following.segment
        return None

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch of an offset; UNKNOWN below all that are known."""
        epoch = self._epochs.epoch_for_offset(offset)
        return UNKNOWN if epoch is None else epoch

    def end_offset_for(self, leader_epoch: int) -> EpochEndOffset:
        """Return the end of an epoch, as a broker answers OffsetForLeaderEpoch."""
        end = self.offsets.high_watermark
        return EpochEndOffset(*self._epochs.end_offset_for(leader_epoch, log_end_offset=end))

    @property
    def size_bytes(self) -> int:
        """The size of all segments that are read, each counted once."""
        return sum({span.segment.log.key: span.segment.size_bytes for span in self.spans}.values())


def _has_transactions(segment: StoredSegment) -> bool:
    part = segment.part(IndexType.TRANSACTION)
    return part is not None and part.size_bytes != 0 and not segment.metadata.txn_idx_empty


class AbortedTransactions:
    """The aborted transactions of one history.

    Args:
        reads: Of the segments.
        view: The history.
    """

    def __init__(self, reads: SegmentReads, view: PartitionView) -> None:
        self._reads = reads
        self._view = view
        self._replay = SharedCall(self._replay_log)
        self._replayed: NDArray[np.void] | None = None

    async def find(self, number: int, found: FoundBatches, until_seconds: float) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of those that touch some batches, ascending by first offset, distinct.

        Args:
            number: Of the span that the batches are of.
            found: The batches.
            until_seconds: When the read is late, as ``SegmentReads.deadline``.

        Raises:
            CorruptIndexError, CorruptObjectError: a transaction index cannot be used: without it aborted records would
                be returned. Else as ``SegmentReads.index``.
        """
        first_offset, segment = found.first_offset, self._view.spans[number].segment
        if self._view.is_bare:
            entries = (
                self._replayed
                if self._replayed is not None
                else await self._replay.result(seconds=self._reads.timeout_seconds)
            )
            return _ordered(_touching(entries, first_offset, segment.end_offset + 1))
        spans = self._view.iter_transactional(number)
        span = next(spans, None)
        if span is None:
            return []
        upper_bound_offset = await self._upper_bound(self._view.spans[number], found, until_seconds)
        aborted: set[tuple[int, int]] = set()
        while span is not None:
            index = await self._reads.index(span.segment, IndexType.TRANSACTION, until_seconds=until_seconds)
            entries = entries_inside(span, index)
            aborted.update(_touching(entries, first_offset, upper_bound_offset))
            if (entries["last_stable_offset"] >= upper_bound_offset).any():
                break
            span = next(spans, None)
        return _ordered(aborted)

    async def _upper_bound(self, span: Span, found: FoundBatches, until_seconds: float) -> int:
        """An offset behind the batches, as near as the offset index has one."""
        segment = span.segment
        bound = None
        try:
            data = await self._reads.index(segment, IndexType.OFFSET, until_seconds=until_seconds)
            if data:
                bound = find_upper_bound_offset(data, segment.start_offset, found.position, found.size_bytes)
        except CorruptDataError:  # no bound is only a longer list
            bound = None
        return segment.end_offset + 1 if bound is None else bound

    async def _replay_log(self) -> NDArray[np.void]:
        """The rows of a log without indexes, from the markers in its batches, all of which are read once."""
        history = self._view.history
        first, end = history.earliest_offset, history.end_offset_exclusive
        found, _ = await self._reads.look_up(lambda: aborted_transactions(self._reads.tier, history, first, end))
        self._replayed = found
        return found


def _touching(entries: NDArray[np.void], first_offset: int, end_offset_exclusive: int) -> Iterable[tuple[int, int]]:
    touching = entries[(entries["last_offset"] >= first_offset) & (entries["first_offset"] < end_offset_exclusive)]
    return zip(touching["producer_id"].tolist(), touching["first_offset"].tolist(), strict=True)


def _ordered(aborted: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(set(aborted), key=lambda entry: (entry[1], entry[0]))


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A history as it is served, found out once."""

    view: PartitionView
    aborted: AbortedTransactions


@dataclass(frozen=True, slots=True)
class _KnownOffsets:
    """The offsets of a version of the history, which stay when the history leaves the cache."""

    version: int
    offsets: OffsetSnapshot


class ReplicaPartition:
    """A Partition over a history that changes as the bucket is listed again.

    Each call answers by the history that it began with.

    Args:
        history: The partition's, as it counts now.
        reads: Of the segments; all partitions share them.
    """

    def __init__(self, history: CachedHistory, reads: SegmentReads) -> None:
        self._history = history
        self._reads = reads
        self._loaded: _Loaded | None = None
        self._known: _KnownOffsets | None = None
        self._loading = SharedCall(self._load)
        self._searches: SingleCalls | None = None
        history.on_evicted(self._drop)
        reads.add(history.topic_id_partition, self.next_segment)

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self._history.topic_id_partition

    @property
    def offsets(self) -> OffsetSnapshot | None:
        """The cached offsets; None again once the history is another one."""
        known = self._known
        return known.offsets if known is not None and known.version == self._history.version else None

    async def load(self) -> OffsetSnapshot:
        """Return the offsets. Cost: one small part of the newest segment for each new history."""
        return self.offsets or (await self._current()).view.offsets

    async def _current(self) -> _Loaded:
        loaded = self._loaded
        if loaded is not None and loaded.view.history is self._history.use():
            return loaded
        return await self._loading.result(seconds=self._reads.timeout_seconds)

    async def _load(self) -> _Loaded:
        history = self._history.use() or await self._history.resolve()
        version = self._history.version
        self._forget_open_indexes()
        view = await self._noting_missing(self._find_view(history))
        loaded = _Loaded(view, AbortedTransactions(self._reads, view))
        self._known = _KnownOffsets(version, view.offsets)
        if self._history.current is history:  # else it was evicted meanwhile, or is another one
            self._loaded = loaded
        return loaded

    def _drop(self) -> None:
        """Drop all references to a history which leaves the cache; running reads end with the history that they began
        with.
        """
        self._forget_open_indexes()
        self._loaded = None

    def _forget_open_indexes(self) -> None:
        """Drop the cached indexes of a segment that may grow before its next history comes."""
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
                return PartitionView(history, UNKNOWN, error)

        return await self._reads.look_up(prepare)

    async def read(
        self, fetch_offset: int, *, max_bytes: int, is_first_whole: bool, read_committed: bool
    ) -> tuple[OffsetSnapshot, FoundBatches]:
        """Read batches. Does not wait where all chunks are in the memory cache, and their place is known."""
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
            return offsets, FetchDataInfo(fetch_offset, aborted_transactions=() if read_committed else None)
        wanted = WantedBatches(fetch_offset, end_offset, max_bytes, is_first_whole)
        return offsets, await self._noting_missing(self._read(loaded, wanted, read_committed=read_committed))

    async def _read(self, loaded: _Loaded, wanted: WantedBatches, *, read_committed: bool) -> FoundBatches:
        view, until = loaded.view, self._reads.deadline()
        listed: list[tuple[int, int]] | None = [] if read_committed else None
        number = view.find_span(wanted.offset)
        while number < len(view.spans) and view.spans[number].first_offset < wanted.end_offset_exclusive:
            span = view.spans[number]
            of_span = wanted._replace(
                offset=max(wanted.offset, span.first_offset),
                end_offset_exclusive=min(span.end_offset_exclusive, wanted.end_offset_exclusive),
            )
            found = await self._reads.read(span.segment, of_span, until_seconds=until)
            if found is not None:
                if read_committed and found.size_bytes:
                    listed = await loaded.aborted.find(number, found, until)
                return found._replace(aborted_transactions=listed) if read_committed else found
            number += 1  # the rest of this span's records is compacted away
        return FetchDataInfo(wanted.offset, aborted_transactions=listed)

    async def find_offset(self, timestamp_ms: int, *, read_committed: bool) -> FoundOffset | None:
        view = (await self._current()).view
        end = view.end_offset(read_committed=read_committed)
        return await self._search(
            view,
            lambda: find_offset_by_timestamp(self._reads.tier, view.history, timestamp_ms, end_offset_exclusive=end),
        )

    async def find_max_timestamp(self) -> FoundOffset | None:
        view = (await self._current()).view
        return await self._search(view, lambda: find_max_timestamp(self._reads.tier, view.history))

    async def _search(self, view: PartitionView, search: Callable[[], TimestampedOffset | None]) -> FoundOffset | None:
        if self._searches is None:
            self._searches = self._reads.lookup_turns()
        seconds = _SEARCH_LIMITS * self._reads.timeout_seconds
        found = await self._noting_missing(self._searches.run(search, seconds=seconds))
        return None if found is None else FoundOffset(found.offset, found.timestamp_ms, view.epoch_of(found.offset))

    async def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset:
        return (await self._current()).view.end_offset_for(leader_epoch)

    async def epoch_of(self, offset: int) -> int:
        return (await self._current()).view.epoch_of(offset)

    async def size_bytes(self) -> int:
        """Return the bytes of all segments of which any record counts."""
        return (await self._current()).view.size_bytes

    def next_segment(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment | None:
        """Return the segment that is read behind one, as far as that is known now. Any thread."""
        loaded = self._loaded
        if loaded is None:
            return None
        return loaded.view.next_segment(metadata.remote_log_segment_id, metadata.start_offset)

    async def _noting_missing(self, call: Awaitable[Result]) -> Result:
        """The result of a call; the catalog hears of an object that is gone."""
        try:
            return await call
        except ObjectNotFoundError as error:
            self._history.report_missing(error)
            raise
