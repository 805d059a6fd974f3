"""Clocks."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.loops import LOOPS, run_on
from tierlog.runtime.machine.clock import LOOP_TIMERS, Clock, ManualClock, SystemClock


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


@pytest.mark.parametrize("loop", LOOPS)
def test_calls_are_made_in_time_or_not_at_all(loop: str) -> None:
    """A long poll that is not woken at its end keeps its client waiting; a cancelled one must not be answered twice."""
    made: list[str] = []

    async def main() -> None:
        timers = LOOP_TIMERS
        done = asyncio.Event()
        began = timers.monotonic_seconds()
        timers.call_later(-1.0, lambda: made.append("at once"))
        cancelled = timers.call_later(0.01, lambda: made.append("cancelled"))
        timers.call_later(0.05, lambda: (made.append("later"), done.set()))  # type: ignore[func-returns-value]
        cancelled.cancel()
        cancelled.cancel()
        await done.wait()
        assert timers.monotonic_seconds() - began > 0.04

    run_on(loop, main)
    assert made == ["at once", "later"]
