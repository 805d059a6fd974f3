"""The trace: what a failing seed is understood by, and two processes are compared by."""

from __future__ import annotations

import pathlib

import pytest

from tests.simulation.trace import Trace, engine_marks
from tierlog.marks import count_marks, mark


def test_the_last_events_are_there_in_words() -> None:
    """Otherwise a violation is a number, and nobody knows what led to it."""
    trace = Trace(last=3)
    trace.now_ms = lambda: 7
    for number in range(5):
        trace.event("delivery", "broker-1", number, (1, 2))
    assert trace.last_events() == [f"7 delivery broker-1 {number} (1, 2)" for number in (2, 3, 4)]
    assert trace.events == trace.counters["delivery"] == 5


def test_the_hash_is_of_all_events() -> None:
    """Otherwise two runs that parted early, and met again, pass as the same."""
    hashes = []
    for first in (1, 1, 2):
        trace = Trace(last=1)
        trace.event("fault", first)
        trace.note("the same")
        hashes.append(trace.hash)
    assert hashes[0] == hashes[1] != hashes[2]


def test_marks_are_counted_while_a_trace_counts() -> None:
    """Otherwise a campaign says of a rare path that it was taken, or that it was not, and is wrong."""
    trace = Trace()
    mark("before")
    trace.count_marks()
    try:
        mark("meanwhile")
    finally:
        count_marks(None)
    mark("after")
    assert trace.marks == {"meanwhile": 1}


def test_marks_are_found_in_the_code(tmp_path: pathlib.Path) -> None:
    """Otherwise a mark that is never hit is not missed."""
    (tmp_path / "room.py").write_text('if x:\n    mark("copies: late")\n')
    assert engine_marks(tmp_path) == {"copies: late": "room.py:2"}
    (tmp_path / "other.py").write_text('mark("copies: late")\n')
    with pytest.raises(ValueError, match="already"):
        engine_marks(tmp_path)


def test_the_engines_marks_have_names_of_their_own() -> None:
    """Otherwise one place stands for another, and the campaign's list of what it missed has a hole."""
    assert engine_marks() is not None
