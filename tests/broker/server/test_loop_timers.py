"""Timers of the loop."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.loops import LOOPS, run_on
from tierlog.broker.server.loop_timers import LoopTimers


@pytest.mark.parametrize("loop", LOOPS)
def test_calls_are_made_in_time_or_not_at_all(loop: str) -> None:
    """A long poll that is not woken at its end keeps its client waiting; a cancelled one must not be answered twice."""
    made: list[str] = []

    async def main() -> None:
        timers = LoopTimers()
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
