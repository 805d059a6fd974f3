"""The lineage of a partition: the offsets of its segments that are its history, by leader epochs, without any I/O.

A bucket holds more than the log: duplicates that a new leader uploaded after a failover, segments whose tail was
truncated away, whole dead branches after unclean elections. The leader-epoch checkpoint of the newest segment defines
the log. The unit is (epoch, offset): one epoch has one leader, so a pair names one record on every branch.

A segment counts where its own range of an epoch overlaps the lineage's range of the same epoch, and nowhere else. What
counts is covered greedily, furthest reach first, so that each offset comes from one segment and cuts are few.

Source: KIP-405 scripts 1 to 5; Kafka RemoteLogManager#isRemoteSegmentWithinLeaderEpochs, which decides by segment and
so serves dead records at a segment's tail; here the tail is cut at the start of the next epoch of the lineage.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tierlog.errors import CorruptIndexError
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.remote.tier.chunks.stored_segment import StoredSegment


@dataclass(frozen=True, slots=True)
class Span:
    """A run of offsets that one segment answers for."""

    segment: StoredSegment
    first_offset: int
    end_offset_exclusive: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets of the lineage, between two spans, that no segment holds."""

    first_offset: int
    end_offset_exclusive: int


@dataclass(frozen=True, slots=True)
class Lineage:
    """The history of one partition.

    Attributes:
        spans: Disjoint, by offset ascending.
        gaps: Between spans, by offset ascending; what lies before the first span is retention, no gap.
        unreferenced: Segments that no span uses: duplicates and dead branches.
        newest: The segment whose checkpoint decides.
        empty_at: Of a log that has no record: the offset that the next one will get.
    """

    epochs: LeaderEpochs
    spans: Sequence[Span]
    gaps: tuple[Gap, ...]
    unreferenced: tuple[StoredSegment, ...]
    newest: StoredSegment
    empty_at: int | None = None

    @property
    def earliest_offset(self) -> int:
        return self.spans[0].first_offset if self.spans else self._end_without_spans

    @property
    def end_offset_exclusive(self) -> int:
        return self.spans[-1].end_offset_exclusive if self.spans else self._end_without_spans

    @property
    def _end_without_spans(self) -> int:
        return self.newest.metadata.end_offset + 1 if self.empty_at is None else self.empty_at


def newest_segment(segments: Sequence[StoredSegment]) -> StoredSegment:
    """Return the segment whose checkpoint decides: highest last epoch, then highest end offset, then the
    later upload.
    """
    return max(segments, key=lambda s: (_last_epoch(s.metadata), s.metadata.end_offset, *_upload(s.metadata)))


def resolve_lineage(segments: Sequence[StoredSegment], checkpoint: LeaderEpochs | None) -> Lineage:
    """Order the segments of one topic-id partition.

    Args:
        segments: At least one, all of one topic-id partition, in any order.
        checkpoint: The newest segment's leader-epoch checkpoint; None where it is not known: the union of the
            segments' own epochs replaces it, which does not show every dead branch.

    Raises:
        CorruptIndexError: the checkpoint lacks the newest segment's last epoch.
    """
    newest = newest_segment(segments)
    epochs = merged_epochs(segment.metadata for segment in segments) if checkpoint is None else checkpoint
    last = _last_epoch(newest.metadata)
    if epochs.find_entry(last) is None and checkpoint is not None:
        raise CorruptIndexError(f"leader epoch {last} of the newest segment is not in its checkpoint")
    end = newest.metadata.end_offset + 1
    lineage = epoch_ranges(epochs.entries, end)
    pieces = [
        Span(segment, first, last) for segment in segments for first, last in counted_ranges(segment.metadata, lineage)
    ]
    return _assembled(segments, newest, epochs, pieces)


def resolve_single_log(segments: Sequence[StoredSegment], epochs: LeaderEpochs) -> Lineage:
    """Order the segments of one broker's log: there are no branches, so every offset counts, whatever its epoch.

    Args:
        segments: At least one.
        epochs: Of the log, which knows none in old formats.
    """
    pieces = [Span(s, s.metadata.start_offset, s.metadata.end_offset + 1) for s in segments]
    return _assembled(segments, max(segments, key=lambda s: s.metadata.end_offset), epochs, pieces)


def _assembled(
    segments: Sequence[StoredSegment],
    newest: StoredSegment,
    epochs: LeaderEpochs,
    pieces: Sequence[Span],
) -> Lineage:
    spans = _cover(pieces)
    gaps = tuple(
        Gap(before.end_offset_exclusive, after.first_offset)
        for before, after in itertools.pairwise(spans)
        if before.end_offset_exclusive < after.first_offset
    )
    used = {id(span.segment) for span in spans}
    unreferenced = tuple(segment for segment in segments if id(segment) not in used)
    return Lineage(epochs, tuple(spans), gaps, unreferenced, newest)


def merged_epochs(segments: Iterable[RemoteLogSegmentMetadata]) -> LeaderEpochs:
    """Merge the segments' own epochs to a lineage: the smallest start of each epoch, a later epoch cutting earlier
    ones.

    A log cuts likewise when a new leader's epoch begins (Kafka LeaderEpochFileCache#assign).
    """
    starts: dict[int, int] = {}
    for segment in segments:
        for epoch, start in segment.segment_leader_epochs.items():
            starts[epoch] = min(start, starts.get(epoch, start))
    merged: list[tuple[int, int]] = []
    for epoch in sorted(starts):
        while merged and merged[-1][1] >= starts[epoch]:
            merged.pop()
        merged.append((epoch, starts[epoch]))
    return LeaderEpochs(merged)


def _last_epoch(segment: RemoteLogSegmentMetadata) -> int:
    return max(segment.segment_leader_epochs)


def _upload(segment: RemoteLogSegmentMetadata) -> tuple[int, str]:
    """Return the rank among copies of the same records: the later one wins, as in Kafka's segment table; ids only break
    a tie.
    """
    return segment.event_timestamp_ms, str(segment.remote_log_segment_id.id)


def counted_ranges(segment: RemoteLogSegmentMetadata, lineage: Mapping[int, tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the offset ranges [first, end) of a segment that lie in the lineage, neighbours joined."""
    own = epoch_ranges(sorted(segment.segment_leader_epochs.items()), segment.end_offset + 1)
    ranges: list[tuple[int, int]] = []
    for epoch, (first, last) in own.items():
        if epoch not in lineage:
            continue
        first = max(first, lineage[epoch][0], segment.start_offset)
        last = min(last, lineage[epoch][1])
        if first >= last:
            continue
        if ranges and ranges[-1][1] == first:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))
    return ranges


def epoch_ranges(epochs: Sequence[tuple[int, int]], end_offset_exclusive: int) -> dict[int, tuple[int, int]]:
    """Epoch to its offsets [first, end): up to the start of the next epoch."""
    ends = [start for _, start in epochs[1:]] + [end_offset_exclusive]
    return {epoch: (start, min(end, end_offset_exclusive)) for (epoch, start), end in zip(epochs, ends, strict=True)}


def _cover(pieces: Sequence[Span]) -> list[Span]:
    """Cover each offset once, by the piece with the greatest end from the offset reached.

    Of equals the latest start (least overlap) wins, then the later upload.
    """
    spans: list[Span] = []
    waiting = sorted(pieces, key=lambda piece: piece.first_offset)
    at = 0
    while at < len(waiting):
        position = max(waiting[at].first_offset, spans[-1].end_offset_exclusive if spans else 0)
        best = waiting[at]
        while at < len(waiting) and waiting[at].first_offset <= position:
            best = max(best, waiting[at], key=_reach)
            at += 1
        if best.end_offset_exclusive > position:
            spans.append(Span(best.segment, position, best.end_offset_exclusive))
    return spans


def _reach(piece: Span) -> tuple[int, int, int, str]:
    return (piece.end_offset_exclusive, piece.first_offset, *_upload(piece.segment.metadata))
