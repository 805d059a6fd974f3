"""Lineages of a partition as plain pairs, epoch and start offset, ascending: whose offset is whose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Lineage = Sequence[tuple[int, int]]


def pieces(lineage: Lineage, end_offset_exclusive: int) -> Iterator[tuple[int, int, int]]:
    """The epochs that have offsets: epoch, first offset, end offset (exclusive)."""
    for at, (epoch, start) in enumerate(lineage):
        end = lineage[at + 1][1] if at + 1 < len(lineage) else end_offset_exclusive
        if start < end:
            yield epoch, start, end


def epoch_of(lineage: Lineage, offset: int) -> int:
    """The epoch of an offset; -1 = it lies in front of all."""
    found = -1
    for epoch, start in lineage:
        if start > offset:
            break
        found = epoch
    return found


def divergence(one: Lineage, one_end: int, other: Lineage, other_end: int, start: int) -> int:
    """The first offset from ``start`` on that two logs do not have in the same epoch.

    Args:
        one: A lineage.
        one_end: Its log's end offset, exclusive.
        other: The other's.
        other_end: The other's.
        start: Both have it, or it is their end.

    Returns:
        The smaller end where they agree.
    """
    end = min(one_end, other_end)
    at = start
    while at < end:
        if epoch_of(one, at) != epoch_of(other, at):
            return at
        at = min(_next_start(one, at, end), _next_start(other, at, end))
    return max(start, end)


def _next_start(lineage: Lineage, offset: int, end: int) -> int:
    return min((start for _, start in lineage if start > offset), default=end)
