"""Timeouts that are put off often and hardly ever run out."""

from __future__ import annotations

from collections.abc import Callable

from tierlog.runtime.machine.clock import Timer, Timers


class Timeout:
    """One call that is made unless it is put off or cancelled in time.

    Putting it off costs two attributes, not a timer: the timer that is under way asks for the deadline when it rings.
    That is what a heartbeat does.
    """

    __slots__ = ("_call", "_deadline", "_handle", "_rings_at", "_timers")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._deadline: float | None = None
        self._rings_at = 0.0
        self._handle: Timer | None = None
        self._call: Callable[[], None] | None = None

    @property
    def is_set(self) -> bool:
        return self._deadline is not None

    def set(self, wait_ms: int, call: Callable[[], None]) -> None:
        """Make a call after a time, in ms, in the place of the one that was set before."""
        self._call = call
        self._deadline = deadline = self._timers.monotonic_seconds() + wait_ms / 1000
        if self._handle is not None:
            if self._rings_at <= deadline:
                return
            self._handle.cancel()
        self._arm(wait_ms / 1000)

    def cancel(self) -> None:
        """The call is not made; idempotent."""
        self._deadline = self._call = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self, seconds: float) -> None:
        self._rings_at = self._timers.monotonic_seconds() + seconds
        self._handle = self._timers.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._handle = None
        if self._deadline is None or self._call is None:
            return
        left = self._deadline - self._timers.monotonic_seconds()
        if left > 0:
            self._arm(left)
            return
        call = self._call
        self._deadline = self._call = None
        call()
