"""What the log cleaner took away, against sets of offsets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tierlog.log.checks.segment_walk import CheckedRun
from tierlog.log.checks.transactions import CONTROL
from tierlog.upkeep.verification.segment_checks import CleanedOffsets

Batches = list[tuple[int, int, bool]]


def run_of(batches: Batches) -> CheckedRun:
    """Headers alone: (base offset, last offset, whether it is a marker that was emptied)."""
    table = {
        "base_offset": np.array([base for base, _, _ in batches], np.int64),
        "last_offset": np.array([last for _, last, _ in batches], np.int64),
        "attributes": np.array([CONTROL * emptied for _, _, emptied in batches], np.int64),
        "record_count": np.array([not emptied for _, _, emptied in batches], np.int64),
    }
    sound = np.ones(len(batches), np.bool_)
    return CheckedRun(table, sound, np.zeros(len(batches), np.int64), {})  # type: ignore[arg-type]


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Batches], int]:
    """Batches in runs as they stream by, some of them gone, and the segment's last offset."""
    at, batches = 0, []
    for gap, size, emptied in draw(
        st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.booleans()), min_size=1, max_size=12)
    ):
        batches.append((at + gap, at + gap + size - 1, emptied and size == 1))
        at += gap + size
    cut = draw(st.integers(1, len(batches)))
    end = at - 1 + draw(st.integers(0, 3))
    return [run for run in (batches[:cut], batches[cut:]) if run], end


@given(logs(), st.booleans())
def test_what_is_gone_is_what_no_batch_holds(log: tuple[list[Batches], int], knows_end: bool) -> None:
    """If this fails, `verify` calls a compacted segment damaged, or a damaged one compacted."""
    runs, end = log
    asked = range(end + 5)
    cleaned = CleanedOffsets(asked, end if knows_end else None)
    for run in runs:
        cleaned.observe(run_of(run))
    batches = [batch for run in runs for batch in run]
    held = {offset for base, last, _ in batches for offset in range(base, last + 1)}
    for offset in asked:
        assert cleaned.is_gone(offset) == (offset not in held and (offset <= end or not knows_end))
    last_held = batches[-1][1]
    gone = {offset for offset in range(last_held) if offset not in held}
    gone |= {last for _, last, emptied in batches if emptied}
    gone |= set(range(last_held + 1, end + 1)) if knows_end else set()
    for offset in range(-1, end + 5):
        assert cleaned.is_any_gone_above(offset) == any(each > offset for each in gone)
