"""The segments of a tier, judged by the leader epochs of a broker's log. Rules without any I/O.

The broker has its log's own epochs, and asks its metadata manager by (epoch, offset). So a segment of an abandoned
branch is never found by an offset of the log; where all segments of a partition are listed, ``is_within`` tells which
are the log's. (Readers without a broker decide by ``remote.metadata.lineage``, from the epochs that lie in the tier.)

Source: Kafka RemoteLogManager#isRemoteSegmentWithinLeaderEpochs, #findHighestRemoteOffset, #findLogStartOffset.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.remote.api import RemoteLogSegmentMetadata, RemoteLogSegmentState


class CopiedOffset(NamedTuple):
    """The last offset of a log that is in the tier, inclusive, and its epoch; (-1, -1): none is."""

    offset: int
    epoch: int


NOTHING_COPIED = CopiedOffset(-1, -1)


def epochs_with_records(entries: Iterable[tuple[int, int]]) -> LeaderEpochs:
    """Return the epochs that have records: of several that begin at one offset only the last has.

    Args:
        entries: (epoch, start offset), epochs rising, start offsets not falling.

    Raises:
        ValueError: they are not.
    """
    kept: list[tuple[int, int]] = []
    for epoch, start in entries:
        if kept and kept[-1][1] == start:
            kept.pop()
        kept.append((epoch, start))
    return LeaderEpochs(kept)


def is_within(segment: RemoteLogSegmentMetadata, epochs: LeaderEpochs, *, log_end_offset: int) -> bool:
    """Whether all of a segment is part of a log: its epochs begin where the log's do, and it ends within the log.

    A segment may reach back in front of the log's first epoch: another one that overlaps it has been deleted, with the
    epochs that only that one had.

    Args:
        segment: In any state.
        epochs: Of the log, those with records.
        log_end_offset: Exclusive.
    """
    entries = sorted(segment.segment_leader_epochs.items())
    own: Iterable[tuple[int, int]] = entries if len(entries) == 1 else epochs_with_records(entries)
    first, last = epochs.earliest, epochs.latest
    if first is None or last is None or segment.end_offset >= log_end_offset:
        return False
    relevant = [entry for entry in own if entry[0] >= first.epoch]
    if not relevant or relevant[-1][0] > last.epoch:
        return False
    epoch, start_offset = relevant[0]
    begins = epochs.find_entry(epoch)
    if begins is None or (begins != first and start_offset < begins.start_offset):
        return False
    for (before, _), after in itertools.pairwise(relevant):
        if epochs.find_next(before) != after:
            return False
    behind = epochs.find_next(relevant[-1][0])
    return behind is None or segment.end_offset < behind.start_offset


def offsets_of_log(segment: RemoteLogSegmentMetadata, epochs: LeaderEpochs, *, log_end_offset: int) -> tuple[int, int]:
    """Return the offsets [low, high) of a segment that are a log's: their epoch is the same in both; (0, 0): none is.

    They lie one behind the other: where two logs have an epoch and an offset in common, they have all in front of it.
    """
    own = epochs_with_records(sorted(segment.segment_leader_epochs.items()))
    low = high = 0
    for entry in own:
        known = epochs.find_entry(entry.epoch)
        if known is None:
            continue
        own_next, known_next = own.find_next(entry.epoch), epochs.find_next(entry.epoch)
        begin = max(entry.start_offset, known.start_offset)
        end = min(
            segment.end_offset + 1 if own_next is None else own_next.start_offset,
            log_end_offset if known_next is None else known_next.start_offset,
        )
        if begin < end:
            low, high = (begin if low == high else low), end
    return low, high


def find_copied_offset(
    epochs: LeaderEpochs, highest_offset_for_epoch: Callable[[int], int | None], *, log_end_offset: int
) -> CopiedOffset:
    """Find the last offset of a log that is in the tier: the highest copied one of its latest epoch that has any.

    What the tier has of an epoch may reach beyond it: another leader wrote on in that epoch, and its branch was cut
    off. The epoch's end in this log is the limit then.

    Args:
        epochs: Of the log.
        highest_offset_for_epoch: The metadata manager's, of the partition; what it raises is raised.
        log_end_offset: Exclusive.
    """
    for entry in reversed(epochs.entries):
        highest = highest_offset_for_epoch(entry.epoch)
        if highest is None:
            continue
        _, end = epochs.end_offset_for(entry.epoch, log_end_offset=log_end_offset)
        if end > highest:
            return CopiedOffset(highest, entry.epoch)
        return CopiedOffset(end - 1, entry.epoch)
    return NOTHING_COPIED


def find_unbroken_offset(
    epochs: LeaderEpochs,
    find_segment: Callable[[int, int], RemoteLogSegmentMetadata | None],
    *,
    start_offset: int,
    copied: CopiedOffset,
) -> CopiedOffset:
    """Find the last offset up to which the tier has a log without a hole, from an offset on: each one is looked up as
    a reader would, segment by segment.

    Args:
        epochs: Of the log, those with records.
        find_segment: The metadata manager's, by (epoch, offset), of the partition; what it raises is raised.
        start_offset: At or below the copied one.
        copied: The last one that the tier may have.
    """
    offset = start_offset
    while offset <= copied.offset:
        epoch = epochs.epoch_for_offset(offset)
        segment = None if epoch is None else find_segment(epoch, offset)
        end = offset if epoch is None or segment is None else _end_of_epoch(segment, epoch, epochs)
        if end <= offset:
            before = epochs.epoch_for_offset(offset - 1)
            return NOTHING_COPIED if before is None else CopiedOffset(offset - 1, before)
        offset = end
    return copied


def _end_of_epoch(segment: RemoteLogSegmentMetadata, epoch: int, epochs: LeaderEpochs) -> int:
    """Where an epoch ends in a segment, or in the log if it ends there first, exclusive."""
    behind = epochs.find_next(epoch)
    ends = [segment.end_offset + 1, *(start for each, start in segment.segment_leader_epochs.items() if each > epoch)]
    return min(ends if behind is None else (*ends, behind.start_offset))


def find_log_start_offset(
    epochs: LeaderEpochs,
    list_segments: Callable[[int], Iterable[RemoteLogSegmentMetadata]],
    *,
    local_log_start_offset: int,
) -> int:
    """Find where a log starts, by its tier: at the first segment of its earliest epoch that has any. A caller raises
    the log's start to it, and never lowers it.

    A copy that did not finish does not count, nor does a segment of another branch, and a log that still has records
    in front of its tier starts with them; Kafka goes by the first segment that it lists.

    Args:
        epochs: Of the log, those with records.
        list_segments: The segments of an epoch in every state, ascending by start offset.
        local_log_start_offset: Of the log.
    """
    for entry in epochs:
        behind = epochs.find_next(entry.epoch)
        for segment in list_segments(entry.epoch):
            start = segment.segment_leader_epochs.get(entry.epoch)
            is_here = start is not None and (behind is None or start < behind.start_offset)
            if is_here and segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                return min(segment.start_offset, local_log_start_offset)
    return local_log_start_offset
