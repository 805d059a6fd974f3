"""Timers of handlers, by the event loop."""

from __future__ import annotations

import asyncio  # noqa: TID251 - this room is the loop's
from collections.abc import Callable

from tierlog.broker.handling import TimerHandle


class LoopTimers:
    """Timers over an event loop, which runs when they are made. For the loop's thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def monotonic_seconds(self) -> float:
        """The loop's time."""
        return self._loop.time()

    def call_later(self, seconds: float, call: Callable[[], None]) -> TimerHandle:
        """Call after a time; zero or less: when the loop comes round."""
        return self._loop.call_later(max(seconds, 0.0), call)
