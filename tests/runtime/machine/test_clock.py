"""Clocks."""

from __future__ import annotations

import pytest

from tierlog.runtime.machine.clock import Clock, ManualClock, SystemClock


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()])
def test_time_goes_on(clock: Clock) -> None:
    """If this fails, time limits end too early, or never."""
    wall, start = clock.time_ms(), clock.monotonic_seconds()
    clock.sleep(0.01)
    clock.sleep(-1)
    assert clock.monotonic_seconds() - start >= 0.009
    assert clock.time_ms() >= wall


def test_a_manual_clock_moves_only_when_told() -> None:
    """If this fails, a simulated run depends on the machine."""
    clock = ManualClock(time_ms=5)
    clock.advance(2.5)
    assert (clock.time_ms(), clock.monotonic_seconds()) == (2505, 2.5)
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)
