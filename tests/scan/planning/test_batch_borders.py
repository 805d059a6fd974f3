"""Cuts inside of a segment lose nothing, whichever broker wrote its offset index."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.errors import CorruptIndexError
from tierlog.scan.planning.offset_lookup import BatchBorders

#: (base offset, last offset, position) of each batch, and what the index knows of them.
Log = tuple[list[tuple[int, int, int]], BatchBorders]


def index(base: int, entries: list[tuple[int, int]]) -> bytes:
    return b"".join(struct.pack(">ii", offset - base, position) for offset, position in entries)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """A log with gaps between its offsets, and an index of either style."""
    base = draw(st.integers(0, 1000))
    batches, entries = [], []
    offset, position, since = base, 0, 0
    appended = draw(st.booleans())
    interval = draw(st.integers(0, 300))
    for _ in range(draw(st.integers(1, 12))):
        group = []
        for _ in range(draw(st.integers(1, 3)) if appended else 1):
            offset += draw(st.integers(0, 3))
            last = offset + draw(st.integers(0, 5))
            group.append((offset, last, position))
            offset, position = last + 1, position + draw(st.integers(61, 200))
        if since > interval:
            entries.append((group[-1][1], group[0][2]))
            since = 0
        since += position - group[0][2]
        batches += group
    return batches, BatchBorders.of_index(index(base, entries), base, position)


@given(logs(), st.integers(0, 1100), st.integers(0, 1100), st.integers(1, 3000))
def test_every_wanted_batch_lies_between_the_cuts(log: Log, first: int, end: int, max_bytes: int) -> None:
    """A read of some offsets would miss records at its borders."""
    batches, borders = log
    start, stop = borders.start_position(first), borders.end_position(end)
    wanted = {position for base, last, position in batches if last >= first and base < end}
    assert all(start <= position < stop for position in wanted)
    pieces = borders.cut(start, stop, max_bytes)
    positions = {position for _, _, position in batches} | {borders.size_bytes}
    assert all(low in positions and high in positions and low < high for low, high in pieces)
    if start < stop:
        assert [pieces[0][0], pieces[-1][1]] == [start, stop]
        assert all(before[1] == after[0] for before, after in itertools.pairwise(pieces))
    else:
        assert not pieces
        assert not wanted
    for low, high in pieces:
        bound, bound_end = borders.offset_bounds(low, high)
        held = [(base, last) for base, last, position in batches if low <= position < high]
        assert all(bound <= base and last < bound_end for base, last in held)


@pytest.mark.parametrize(
    "entries",
    [
        [(105, 50), (104, 90)],
        [(105, 50), (105, 90)],
        [(105, 50), (110, 50)],
        [(105, 90), (110, 50)],
        [(105, -1)],
        [(105, 50), (110, 1000)],
        [(99, 50)],
    ],
)
def test_an_index_that_contradicts_itself_or_its_log_is_refused(entries: list[tuple[int, int]]) -> None:
    """A damaged index would cut a batch in two, or hide batches."""
    with pytest.raises(CorruptIndexError):
        BatchBorders.of_index(index(100, entries), 100, 1000)


def test_without_an_index_the_log_is_one_piece() -> None:
    """A log without its index could not be read."""
    borders = BatchBorders.unknown(1000)
    assert (borders.start_position(500), borders.end_position(600)) == (0, 1000)
    assert borders.cut(0, 1000, 10) == [(0, 1000)]
    assert borders.offset_bounds(0, 1000) == (0, np.iinfo(np.int64).max)
