"""The rate of bytes that all cleaner threads together read and write.

Source: Kafka Throttler, whose sleep nothing ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from tierlog.runtime.machine import Machine

#: How often the rate is looked at.
CHECK_INTERVAL_SECONDS: Final = 0.3
#: How soon a thread that waits notices that it is to end.
_STEP_SECONDS: Final = 0.1


class Throttler:
    """Lets threads wait until their bytes are within a rate. Thread safety: any number of threads.

    Args:
        machine: Has the clock, and the condition by which threads wait.
        bytes_per_second: The rate; a negative one is none.
    """

    def __init__(self, machine: Machine, bytes_per_second: float) -> None:
        self._clock = machine.clock
        self._changed = machine.scheduler.condition()
        self._rate = bytes_per_second
        self._observed = 0.0
        self._begun = self._go_on_at = self._clock.monotonic_seconds()

    @property
    def bytes_per_second(self) -> float:
        return self._rate

    def set_rate(self, bytes_per_second: float) -> None:
        """Use another rate from now on; threads that wait go on."""
        with self._changed:
            self._rate = bytes_per_second
            self._observed = 0.0
            self._begun = self._go_on_at = self._clock.monotonic_seconds()
            self._changed.notify_all()

    def maybe_throttle(self, observed_bytes: int, check: Callable[[], None]) -> None:
        """Count bytes, and wait if all threads together have had more than the rate allows since the last look.

        Args:
            observed_bytes: Read or written.
            check: Called while the thread waits; it raises to end the wait.
        """
        with self._changed:
            self._observed += observed_bytes
            self._look()
            is_late = self._go_on_at > self._clock.monotonic_seconds()
        while is_late:
            check()
            with self._changed:
                left = self._go_on_at - self._clock.monotonic_seconds()
                is_late = left > 0
                if is_late:
                    self._changed.wait(min(left, _STEP_SECONDS))

    def _look(self) -> None:
        """Begin a new interval if the last one is over, and pay in time for what was too much in it."""
        now = self._clock.monotonic_seconds()
        elapsed = now - self._begun
        if elapsed <= CHECK_INTERVAL_SECONDS or not self._observed:
            return
        if self._rate >= 0 and self._observed / elapsed > self._rate:
            self._go_on_at = self._begun + self._observed / self._rate if self._rate else math.inf
        self._begun, self._observed = max(now, self._go_on_at), 0.0
