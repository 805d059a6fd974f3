"""Which offsets of which segments are the history of a partition: leader-epoch lineage, without any I/O.

A bucket holds more than the log: duplicates that a new leader uploaded after a failover, segments whose tail was
truncated away, whole dead branches after unclean elections. What the log is, the leader-epoch checkpoint of the newest
segment says. The unit is (epoch, offset): one epoch has one leader, so a pair names one record on every branch.

A segment counts where its own range of an epoch overlaps the lineage's range of the same epoch, and nowhere else. What
counts is covered greedily, furthest reach first, so that each offset comes from one segment and cuts are few.

Source: KIP-405 scripts 1 to 5; Kafka RemoteLogManager#isRemoteSegmentWithinLeaderEpochs, which decides by segment and so
serves dead records at a segment's tail; here the tail is cut at the start of the next epoch of the lineage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tierlog.errors import CorruptIndexError


class LineageSegment(Protocol):
    """What the lineage asks of a segment."""

    @property
    def segment_id(self) -> str: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int:
        """Last offset, inclusive; below ``start_offset`` for a segment without records."""
    @property
    def leader_epochs(self) -> Mapping[int, int]:
        """Epoch to its first offset in this segment, clipped to the segment; empty where the layout knows none."""
    @property
    def event_timestamp_ms(self) -> int: ...


S = TypeVar("S", bound=LineageSegment)


@dataclass(frozen=True, slots=True)
class Span(Generic[S]):
    """A run of offsets that one segment answers for."""

    segment: S
    first_offset: int
    end_offset_exclusive: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets of the lineage, between two spans, that no segment holds."""

    first_offset: int
    end_offset_exclusive: int


@dataclass(frozen=True, slots=True)
class Lineage(Generic[S]):
    """The history of one partition.

    Attributes:
        epochs: (epoch, start offset) pairs, both ascending.
        spans: Disjoint, by offset ascending.
        gaps: Between spans, by offset ascending; what lies before the first span is retention, no gap.
        unreferenced: Segments that no span uses: duplicates and dead branches.
        newest: The segment whose checkpoint decides.
    """

    epochs: tuple[tuple[int, int], ...]
    spans: tuple[Span[S], ...]
    gaps: tuple[Gap, ...]
    unreferenced: tuple[S, ...]
    newest: S

    @property
    def earliest_offset(self) -> int:
        return self.spans[0].first_offset if self.spans else self.newest.end_offset + 1

    @property
    def end_offset_exclusive(self) -> int:
        return self.spans[-1].end_offset_exclusive if self.spans else self.newest.end_offset + 1

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of an offset; -1 if it lies before the lineage."""
        return max((epoch for epoch, start in self.epochs if start <= offset), default=-1)


def newest_segment(segments: Sequence[S]) -> S:
    """The segment whose checkpoint decides: highest last epoch, then highest end offset, then the later upload."""
    return max(segments, key=lambda s: (_last_epoch(s), s.end_offset, s.event_timestamp_ms, s.segment_id))


def resolve_lineage(segments: Sequence[S], checkpoint: Sequence[tuple[int, int]] | None) -> Lineage[S]:
    """Order the segments of one topic-id partition.

    Args:
        segments: At least one, all of one topic-id partition, in any order.
        checkpoint: (epoch, start offset) pairs of the newest segment's leader-epoch checkpoint; None where it is not
            known: the union of the segments' own epochs stands in, which cannot tell every dead branch.

    Raises:
        CorruptIndexError: the checkpoint's pairs do not rise, or lack the newest segment's last epoch.
    """
    newest = newest_segment(segments)
    epochs = merged_epochs(segments) if checkpoint is None else _checked(checkpoint, newest)
    end = newest.end_offset + 1
    lineage = _ranges(epochs, end)
    pieces = [
        Span(segment, first, last)
        for segment in segments
        for first, last in _counted_ranges(segment, lineage, end)
    ]
    spans = _cover(pieces)
    gaps = tuple(
        Gap(before.end_offset_exclusive, after.first_offset)
        for before, after in zip(spans, spans[1:], strict=False)
        if before.end_offset_exclusive < after.first_offset
    )
    used = {id(span.segment) for span in spans}
    unreferenced = tuple(segment for segment in segments if id(segment) not in used)
    return Lineage(epochs, tuple(spans), gaps, unreferenced, newest)


def merged_epochs(segments: Sequence[LineageSegment]) -> tuple[tuple[int, int], ...]:
    """A lineage from the segments' own epochs: the smallest start of each epoch, a later epoch cutting earlier ones.

    Cutting is what a log does when a new leader's epoch begins (Kafka LeaderEpochFileCache#assign).
    """
    starts: dict[int, int] = {}
    for segment in segments:
        for epoch, start in segment.leader_epochs.items():
            starts[epoch] = min(start, starts.get(epoch, start))
    merged: list[tuple[int, int]] = []
    for epoch in sorted(starts):
        while merged and merged[-1][1] >= starts[epoch]:
            merged.pop()
        merged.append((epoch, starts[epoch]))
    return tuple(merged)


def _last_epoch(segment: LineageSegment) -> int:
    return max(segment.leader_epochs, default=-1)


def _checked(checkpoint: Sequence[tuple[int, int]], newest: LineageSegment) -> tuple[tuple[int, int], ...]:
    for (epoch, start), (next_epoch, next_start) in zip(checkpoint, checkpoint[1:], strict=False):
        if next_epoch <= epoch or next_start < start:
            raise CorruptIndexError(
                f"leader epochs do not rise: {epoch} from {start}, then {next_epoch} from {next_start}",
                fault="BAD_ORDER",
            )
    last = _last_epoch(newest)
    if last >= 0 and last not in {epoch for epoch, _ in checkpoint}:
        raise CorruptIndexError(f"leader epoch {last} of the newest segment is not in its checkpoint")
    return tuple(checkpoint)


def _counted_ranges(
    segment: LineageSegment, lineage: Mapping[int, tuple[int, int]], end_offset_exclusive: int
) -> list[tuple[int, int]]:
    """The offset ranges [first, end) of a segment that lie in the lineage, neighbours joined."""
    segment_end = segment.end_offset + 1
    if not segment.leader_epochs:
        whole = (segment.start_offset, min(segment_end, end_offset_exclusive))
        return [whole] if whole[0] < whole[1] else []
    ranges: list[tuple[int, int]] = []
    for epoch, (first, last) in _ranges(sorted(segment.leader_epochs.items()), segment_end).items():
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


def _ranges(epochs: Sequence[tuple[int, int]], end_offset_exclusive: int) -> dict[int, tuple[int, int]]:
    """Epoch to its offsets [first, end): up to the start of the next epoch."""
    ends = [start for _, start in epochs[1:]] + [end_offset_exclusive]
    return {
        epoch: (start, min(end, end_offset_exclusive)) for (epoch, start), end in zip(epochs, ends, strict=True)
    }


def _cover(pieces: Sequence[Span[S]]) -> list[Span[S]]:
    """Each offset once. At the position reached, the piece that reaches furthest wins; of equals the one that begins
    latest (least overlap), then the later upload."""
    spans: list[Span[S]] = []
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


def _reach(piece: Span[S]) -> tuple[int, int, int, str]:
    segment = piece.segment
    return (piece.end_offset_exclusive, piece.first_offset, segment.event_timestamp_ms, segment.segment_id)
