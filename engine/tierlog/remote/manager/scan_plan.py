"""From a request to ranges: resolve the offsets, prune, cut at batch borders.

Segments outside are never fetched. An index is fetched only where a cut falls inside a segment; transaction indexes and
the newest producer snapshot only for read_committed.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tierlog.errors import CorruptDataError, DataLossError, ObjectNotFoundError, TierlogError
from tierlog.remote.manager.batch_borders import BatchBorders
from tierlog.remote.manager.offset_bounds import OffsetBounds, check_named, resolve_bounds
from tierlog.remote.manager.offset_lookup import fetch_borders, first_late_offset
from tierlog.remote.manager.scan_range import ScanRange, group_ranges
from tierlog.remote.manager.scan_request import ScanRequest
from tierlog.remote.metadata.history import PartitionHistory, StoredSpan, TierHistory
from tierlog.remote.metadata.transaction_history import aborted_transactions
from tierlog.remote.storage.tier import Tier

#: Index parts that are fetched at once.
CONCURRENCY = 16

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What to read.

    Attributes:
        ranges: By topic, partition and offset; of about even size.
        bounds: What each partition's request came to.
        warnings: What is missing or could not be told, naming objects; not empty data only because of retention.
        layout: Of the tier: for the executors, so that they need not look again.
        task_bytes, task_records: What ``tasks`` groups by.
    """

    ranges: tuple[ScanRange, ...]
    bounds: tuple[OffsetBounds, ...]
    warnings: tuple[str, ...]
    layout: str
    task_bytes: int
    task_records: int | None = None

    @property
    def size_bytes(self) -> int:
        """Of the original logs."""
        return sum(scan_range.size_bytes for scan_range in self.ranges)

    def tasks(self) -> list[tuple[ScanRange, ...]]:
        """The ranges put together into tasks of about ``task_bytes``, in order."""
        return group_ranges(self.ranges, max_bytes=self.task_bytes, max_records=self.task_records)


def plan_scan(tier: Tier, request: ScanRequest, *, histories: Sequence[PartitionHistory] | None = None) -> ScanPlan:
    """Plan a read of a tier as it is listed now, or as it was.

    Args:
        tier: Stays the caller's.
        request: What is wanted.
        histories: The partitions of ``request.topics`` as an earlier ``TierHistory`` gave them: nothing is listed, so
            that several plans see one set of segments.

    Raises:
        UnknownTopicError: a topic or partition named in the request is not in the tier.
        ConfigError: the request contradicts what is there (a partition without an offset, a topic with two ids).
        DataLossError: offsets asked for are not in the tier, and ``fail_on_data_loss``.
        CorruptDataError, StoreError and their kinds: what has to be fetched is damaged, or cannot be.

    Thread safety: any number of threads. Cost: one listing, the manifests of the topics, one checkpoint a partition,
    one index for each segment that is cut.
    """
    return _Planner(tier, request, histories).plan()


def list_histories(tier: Tier, request: ScanRequest) -> tuple[list[PartitionHistory], list[str]]:
    """The partitions of a request as the tier is listed now, and what was left out of them with data loss allowed.

    Raises:
        UnknownTopicError, ConfigError, CorruptDataError, StoreError and their kinds: as ``TierHistory.partitions``.
    """
    faults: list[TierlogError] | None = None if request.fail_on_data_loss else []
    histories = TierHistory(tier, log_start_offsets=request.log_start_offsets, faults=faults).partitions(
        request.topics.names or None, pattern=request.topics.pattern, assigned=request.topics.assigned or None
    )
    return histories, [f"left out: {fault}" for fault in faults or ()]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A span that counts, before it is cut."""

    span: StoredSpan
    aborted: NDArray[np.void] | None
    cut_early: bool
    """The filter by time begins within this segment: its time index knows where."""


@dataclass(slots=True)
class _Planner:
    tier: Tier
    request: ScanRequest
    pinned: Sequence[PartitionHistory] | None
    warnings: list[str] = field(default_factory=list)

    def plan(self) -> ScanPlan:
        request = self.request
        histories = self._histories()
        bounds = resolve_bounds(self.tier, request, histories, self._lose)
        with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="tierlog-plan") as pool:
            pieces = [p for found in pool.map(self._pieces, histories, bounds) for p in found]
            max_bytes = self._max_bytes(pieces)
            ranges = [r for cut in pool.map(lambda piece: self._cut(piece, max_bytes), pieces) for r in cut]
        for warning in self.warnings:
            _logger.info("%s: %s", self.tier.describe(), warning)
        return ScanPlan(
            tuple(ranges), bounds, tuple(self.warnings), self.tier.layout, max_bytes, request.max_records_per_partition
        )

    def _histories(self) -> list[PartitionHistory]:
        if self.pinned is None:
            histories, left_out = list_histories(self.tier, self.request)
            self.warnings.extend(left_out)
        else:
            histories = list(self.pinned)
        self.warnings.extend(warning for each in histories for warning in each.warnings)
        check_named(self.request, histories)
        wanted = self.request.record_filter.partitions
        return [each for each in histories if wanted is None or each.partition in wanted]

    def _lose(self, text: str, cause: TierlogError | None = None) -> None:
        """Something that should be there is not: the scan fails, or goes on and says so."""
        if self.request.fail_on_data_loss:
            raise cause or DataLossError(text)
        self.warnings.append(text)

    def _pieces(self, history: PartitionHistory, bounds: OffsetBounds) -> list[_Piece]:
        """The spans of a partition that are read, with the aborted transactions that touch each."""
        chosen = self.request.record_filter
        first = max(bounds.first_offset, chosen.first_offset)
        end = min(bounds.end_offset_exclusive, chosen.end_offset_exclusive)
        if first >= end:
            return []
        for gap in history.gaps:
            if gap.first_offset < end and gap.end_offset_exclusive > first:
                missing = f"offsets {gap.first_offset} to {gap.end_offset_exclusive - 1}"
                self._lose(f"{history.topic}-{history.partition}: {missing} are in no segment of the tier")
        spans = history.spans_between(first, end)
        late = [span.segment.metadata.max_timestamp_ms >= chosen.first_timestamp_ms for span in spans]
        spans_kept = [(span, at == 0 or not late[at - 1]) for at, span in enumerate(spans) if late[at]]
        if not spans_kept:
            return []
        aborted = self._aborted(history, spans_kept[0][0].first_offset, end)
        bounded = chosen.first_timestamp_ms > 0
        return [_Piece(span, _touching(aborted, span), bounded and edge) for span, edge in spans_kept]

    def _aborted(self, history: PartitionHistory, first: int, end: int) -> NDArray[np.void] | None:
        if not self.request.read_committed:
            return None
        entries, faults = aborted_transactions(self.tier, history, first, end)
        for fault in faults:
            self._lose(f"aborted transactions are not known for certain: {fault}", fault)
        return entries

    def _max_bytes(self, pieces: list[_Piece]) -> int:
        """The target size of a range; smaller where more tasks are asked for than that makes."""
        request = self.request
        if request.min_partitions is None:
            return request.max_bytes_per_range
        total = sum(_estimated_bytes(piece.span) for piece in pieces)
        return max(1, min(request.max_bytes_per_range, -(-total // request.min_partitions)))

    def _cut(self, piece: _Piece, max_bytes: int) -> list[ScanRange]:
        segment = piece.span.segment
        first, end = piece.span.first_offset, piece.span.end_offset_exclusive
        if piece.cut_early:
            first = max(first, first_late_offset(self.tier, segment, self.request.record_filter.first_timestamp_ms))
            if first >= end:
                return []
        whole = first <= segment.start_offset and end > segment.end_offset
        limit = self.request.max_records_per_partition
        if whole and segment.size_bytes <= max_bytes and (limit is None or end - first <= limit):
            return [self._range(piece, 0, segment.size_bytes, first, end)]
        borders = self._borders(piece)
        ranges: list[ScanRange] = []
        for part_first, part_end in _even_parts(first, end, limit):
            start, stop = borders.start_position(part_first), borders.end_position(part_end)
            for low, high in borders.cut(start, stop, max_bytes):
                ranges.append(self._range(piece, low, high, part_first, part_end, borders))
        return ranges

    def _borders(self, piece: _Piece) -> BatchBorders:
        """A segment without a usable index is read whole: slower, never wrong."""
        segment = piece.span.segment
        try:
            return fetch_borders(self.tier, segment)
        except (CorruptDataError, ObjectNotFoundError) as error:
            self.warnings.append(f"read whole, as its offset index cannot be used: {error}")
            return BatchBorders.unknown(segment.size_bytes)

    def _range(
        self, piece: _Piece, start: int, stop: int, first: int, end: int, borders: BatchBorders | None = None
    ) -> ScanRange:
        chosen = self.request.record_filter
        aborted = piece.aborted
        if aborted is not None and borders is not None:
            low, high = borders.offset_bounds(start, stop)
            aborted = _overlapping(aborted, max(low, first), min(high, end))
        return ScanRange(
            piece.span.segment.narrowed(start, stop),
            start,
            stop,
            first,
            end,
            chosen.first_timestamp_ms,
            chosen.end_timestamp_exclusive_ms,
            None if aborted is None else aborted.tobytes(),
            self.request.fail_on_data_loss,
        )


def _touching(aborted: NDArray[np.void] | None, span: StoredSpan) -> NDArray[np.void] | None:
    return None if aborted is None else _overlapping(aborted, span.first_offset, span.end_offset_exclusive)


def _overlapping(aborted: NDArray[np.void], first: int, end_exclusive: int) -> NDArray[np.void]:
    return aborted[(aborted["last_offset"] >= first) & (aborted["first_offset"] < end_exclusive)]


def _even_parts(first: int, end_exclusive: int, limit: int | None) -> list[tuple[int, int]]:
    """[first, end) in pieces of at most ``limit`` offsets, of even size."""
    total = end_exclusive - first
    count = 1 if limit is None else -(-total // limit)
    edges = [first + total * number // count for number in range(count + 1)]
    return list(itertools.pairwise(edges))


def _estimated_bytes(span: StoredSpan) -> int:
    """The span's part of its segment, by offsets: no index is needed for it."""
    segment = span.segment
    offsets = segment.end_offset - segment.start_offset + 1
    return segment.size_bytes * (span.end_offset_exclusive - span.first_offset) // offsets
