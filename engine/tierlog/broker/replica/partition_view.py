"""One history of a partition as reads ask it: prepared once, never changed."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from typing import Final

from tierlog.broker.partitions import UNKNOWN, EpochEndOffset, OffsetSnapshot
from tierlog.remote.api import IndexType, RemoteLogSegmentId
from tierlog.remote.storage.chunks.segment import StoredSegment
from tierlog.scan.history import PartitionHistory, StoredSpan

#: A segment answers for the span that holds its first offset, or for one soon behind it.
_SPANS_LOOKED_AT: Final = 8


class PartitionView:
    """A history, its offsets, and where in it an offset lies. Immutable; any number of threads.

    Args:
        history: Of the partition.
        last_stable_offset: Behind the last offset that read_committed may read.

    Attributes:
        spans: Those that count, ascending and disjoint.
        is_bare: Whether a segment has no files beside its log: then no transaction index says what was aborted.
    """

    def __init__(self, history: PartitionHistory, last_stable_offset: int) -> None:
        self.history = history
        self.spans: tuple[StoredSpan, ...] = history.spans
        self._ends = [span.end_offset_exclusive for span in self.spans]
        self._epochs = history.lineage.epochs
        self._epoch_starts = [start for _, start in self._epochs]
        start, end = history.earliest_offset, history.end_offset_exclusive
        self.offsets = OffsetSnapshot(
            start, end, max(start, min(last_stable_offset, end)), self._epochs[-1][0] if self._epochs else UNKNOWN
        )
        self.is_bare = any(_is_bare(span.segment) for span in self.spans)
        self._transactional = [number for number, span in enumerate(self.spans) if _has_transactions(span.segment)]

    def find_span(self, offset: int) -> int:
        """The number of the span that holds an offset, or of the next one behind a gap; ``len(spans)`` behind all."""
        return bisect.bisect_right(self._ends, offset)

    def iter_transactional(self, number: int) -> Iterator[StoredSpan]:
        """The spans from one on whose segments may have a transaction index."""
        for place in range(bisect.bisect_left(self._transactional, number), len(self._transactional)):
            yield self.spans[self._transactional[place]]

    def next_segment(self, segment_id: RemoteLogSegmentId, start_offset: int) -> StoredSegment | None:
        """The segment that is read behind one with this id and start; None behind the last, or where it is not read."""
        first = self.find_span(start_offset)
        nearby = self.spans[first : first + _SPANS_LOOKED_AT]
        for span, following in itertools.pairwise(nearby):
            is_this = span.segment.metadata.remote_log_segment_id == segment_id
            if is_this and following.segment.metadata.remote_log_segment_id != segment_id:
                return following.segment
        return None

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of an offset; UNKNOWN below all that are known (Kafka epochForOffset)."""
        place = bisect.bisect_right(self._epoch_starts, offset)
        return self._epochs[place - 1][0] if place else UNKNOWN

    def end_offset_for(self, leader_epoch: int) -> EpochEndOffset:
        """The end of an epoch (Kafka LeaderEpochFileCache.endOffsetFor).

        Of an epoch that is not known the largest one below it answers: it ends where the next one begins. Below all
        that are known it is the epoch itself, which ends where the first one begins.
        """
        epochs = self._epochs
        if leader_epoch == UNKNOWN or not epochs or leader_epoch > epochs[-1][0]:
            return EpochEndOffset(UNKNOWN, UNKNOWN)
        if leader_epoch == epochs[-1][0]:
            return EpochEndOffset(leader_epoch, self.offsets.high_watermark)
        place = bisect.bisect_right(epochs, leader_epoch, key=lambda entry: entry[0])
        return EpochEndOffset(epochs[place - 1][0] if place else leader_epoch, epochs[place][1])

    @property
    def size_bytes(self) -> int:
        """Of all segments that are read, each counted once."""
        return sum({span.segment.log.key: span.segment.size_bytes for span in self.spans}.values())


def _is_bare(segment: StoredSegment) -> bool:
    return segment.part(IndexType.OFFSET) is None and segment.part(IndexType.TRANSACTION) is None


def _has_transactions(segment: StoredSegment) -> bool:
    part = segment.part(IndexType.TRANSACTION)
    return part is not None and part.size_bytes != 0 and not segment.metadata.txn_idx_empty
