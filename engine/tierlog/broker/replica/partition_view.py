"""One history of a partition as reads ask it: prepared once, never changed."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator
from typing import Final

from tierlog.broker.partitions import UNKNOWN, EpochEndOffset, OffsetSnapshot
from tierlog.errors import CorruptDataError
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.remote.api import IndexType, RemoteLogSegmentId
from tierlog.remote.metadata.lineage import Span
from tierlog.remote.tier.chunks.segment import StoredSegment
from tierlog.scan.history import PartitionHistory

#: A segment answers for the span that holds its first offset, or for one soon behind it.
_SPANS_LOOKED_AT: Final = 8


class PartitionView:
    """A history, its offsets, and where in it an offset lies. Immutable; any number of threads.

    Args:
        history: Of the partition.
        last_stable_offset: Behind the last offset that read_committed may read.
        stable_fault: Why that is not known: a log that is damaged tells of no transaction.

    Attributes:
        spans: Those that count, ascending and disjoint.
        is_bare: Whether a segment has no files beside its log: then no transaction index says what was aborted.
    """

    def __init__(
        self, history: PartitionHistory, last_stable_offset: int, stable_fault: CorruptDataError | None = None
    ) -> None:
        self.history = history
        self.stable_fault = stable_fault
        self.spans: tuple[Span, ...] = history.spans
        self._ends = [span.end_offset_exclusive for span in self.spans]
        self._epochs = _rising(history.lineage.epochs)
        latest = self._epochs.latest
        start, end = history.earliest_offset, history.end_offset_exclusive
        stable = max(start, min(last_stable_offset, end))
        self.offsets = OffsetSnapshot(start, end, stable, UNKNOWN if latest is None else latest.epoch)
        self.is_bare = any(_is_bare(span.segment) for span in self.spans)
        self._transactional = [number for number, span in enumerate(self.spans) if _has_transactions(span.segment)]

    def end_offset(self, *, read_committed: bool) -> int:
        """Behind the last offset that may be read.

        Raises:
            CorruptDataError: it is not known of read_committed.
        """
        if not read_committed:
            return self.offsets.high_watermark
        if self.stable_fault is not None:
            raise self.stable_fault.with_traceback(None)
        return self.offsets.last_stable_offset

    def find_span(self, offset: int) -> int:
        """The number of the span that holds an offset, or of the next one behind a gap; ``len(spans)`` behind all."""
        return bisect.bisect_right(self._ends, offset)

    def iter_transactional(self, number: int) -> Iterator[Span]:
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
        """The leader epoch of an offset; UNKNOWN below all that are known."""
        epoch = self._epochs.epoch_for_offset(offset)
        return UNKNOWN if epoch is None else epoch

    def end_offset_for(self, leader_epoch: int) -> EpochEndOffset:
        """The end of an epoch, as a broker answers OffsetForLeaderEpoch."""
        end = self.offsets.high_watermark
        return EpochEndOffset(*self._epochs.end_offset_for(leader_epoch, log_end_offset=end))

    @property
    def size_bytes(self) -> int:
        """Of all segments that are read, each counted once."""
        return sum({span.segment.log.key: span.segment.size_bytes for span in self.spans}.values())


def _rising(epochs: Iterable[tuple[int, int]]) -> LeaderEpochs:
    """The epochs that have records: where several begin at one offset, the last."""
    kept: list[tuple[int, int]] = []
    for epoch, start_offset in epochs:
        while kept and kept[-1][1] >= start_offset:
            kept.pop()
        kept.append((epoch, start_offset))
    return LeaderEpochs(kept)


def _is_bare(segment: StoredSegment) -> bool:
    return segment.part(IndexType.OFFSET) is None and segment.part(IndexType.TRANSACTION) is None


def _has_transactions(segment: StoredSegment) -> bool:
    part = segment.part(IndexType.TRANSACTION)
    return part is not None and part.size_bytes != 0 and not segment.metadata.txn_idx_empty
