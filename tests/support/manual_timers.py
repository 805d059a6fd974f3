"""Timers that a test moves by hand."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable


class ManualTimer:
    """A call that is to come."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class ManualTimers:
    """Time stands still until ``advance``."""

    def __init__(self) -> None:
        self._now = 0.0
        self._numbers = itertools.count()
        self._calls: list[tuple[float, int, ManualTimer]] = []

    @property
    def waiting_count(self) -> int:
        """Calls that are to come."""
        return sum(timer.call is not None for _, _, timer in self._calls)

    def monotonic_seconds(self) -> float:
        return self._now

    def call_later(self, seconds: float, call: Callable[[], object]) -> ManualTimer:
        timer = ManualTimer(call)
        heapq.heappush(self._calls, (self._now + seconds, next(self._numbers), timer))
        return timer

    async def advance(self, seconds: float) -> None:
        """Move on, make the calls that are due, and let every task run until it waits."""
        await settle()
        end = self._now + seconds
        while self._calls and self._calls[0][0] <= end:
            self._now, _, timer = heapq.heappop(self._calls)
            if timer.call is not None:
                timer.call()
            await settle()
        self._now = end
        await settle()


async def settle() -> None:
    """Let every task run until it waits for something that the test decides."""
    for _ in range(20):
        await asyncio.sleep(0)
