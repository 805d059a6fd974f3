"""Time, as an argument."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol


class Clock(Protocol):
    """The time, as the rest of the program sees it. Thread safety: any number of threads."""

    def time_ms(self) -> int:
        """Wall-clock time, milliseconds since 1970-01-01 UTC; may jump."""

    def monotonic_seconds(self) -> float:
        """Return the seconds since an arbitrary start; they never go back. For durations."""

    def sleep(self, seconds: float) -> None:
        """Wait; zero or less returns at once."""


class Timer(Protocol):
    """A call that is to be made later."""

    def cancel(self) -> None:
        """Cancel the call; idempotent."""


class Timers(Protocol):
    """The time of an event loop, and calls that it makes later. Used in the loop's thread."""

    def monotonic_seconds(self) -> float:
        """Return the seconds since an arbitrary start; they never go back."""

    def call_later(self, seconds: float, call: Callable[[], object], /) -> Timer:
        """Make a call after a time; zero or less: when the loop comes round."""


class LoopTimers:
    """The time and the timers of the event loop that runs the caller."""

    def monotonic_seconds(self) -> float:
        import asyncio

        return asyncio.get_running_loop().time()

    def call_later(self, seconds: float, call: Callable[[], object], /) -> Timer:
        import asyncio

        return asyncio.get_running_loop().call_later(max(seconds, 0.0), call)


#: Those of the running loop; a simulator's loop has the simulator's time.
LOOP_TIMERS: Final = LoopTimers()


class SystemClock:
    """The machine's clocks."""

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_seconds(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)


class ManualClock:
    """A clock that moves only by ``advance`` and by sleeps: for tests and simulation."""

    def __init__(self, *, time_ms: int = 1_700_000_000_000) -> None:
        self._lock = threading.Lock()
        self._start_ms = time_ms
        self._elapsed_seconds = 0.0

    def time_ms(self) -> int:
        with self._lock:
            return self._start_ms + int(self._elapsed_seconds * 1000)

    def monotonic_seconds(self) -> float:
        with self._lock:
            return self._elapsed_seconds

    def sleep(self, seconds: float) -> None:
        self.advance(max(seconds, 0.0))

    def advance(self, seconds: float) -> None:
        """Move forward. Raises ValueError for a negative step."""
        if seconds < 0:
            raise ValueError("time does not go back")
        with self._lock:
            self._elapsed_seconds += seconds
