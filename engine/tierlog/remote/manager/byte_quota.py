"""A limit of bytes in a second, over windows of time: Kafka's quotas of remote copies and of remote reads.

Bytes are recorded as they come, also beyond the limit: what goes over it is waited for afterwards. So one segment, or
one answer, may exceed it, and the following ones wait.

Source: Kafka RLMQuotaManager, SimpleRate, QuotaUtils#throttleTime.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from tierlog.runtime.machine import Machine

#: A caller that waits looks again at least so often: the limit may have changed.
_LOOK_SECONDS: Final = 1.0


class ByteQuota:
    """The limit, and the bytes of the last windows.

    Args:
        machine: Has the clock and the locks.
        limit: Bytes a second.
        windows: The number of windows, all of which count.
        window_seconds: Length of one.

    Thread safety: any number of threads.
    """

    def __init__(self, machine: Machine, limit: int, windows: int, window_seconds: float) -> None:
        self._clock = machine.clock
        self._changed = machine.scheduler.condition()
        self._limit = limit
        self._windows = windows
        self._window_seconds = window_seconds
        self._recorded: deque[tuple[float, int]] = deque()  # when a window began, its bytes

    def record(self, size_bytes: int) -> None:
        """Record bytes."""
        with self._changed:
            self._record(size_bytes)

    def rate(self) -> float:
        """Return the bytes a second of the windows that count."""
        with self._changed:
            return self._rate()[0]

    def throttle_ms(self) -> int:
        """Return how long the limit is to be waited for; 0: there is room."""
        with self._changed:
            return self._throttle_ms()

    def wait_for_room(
        self, cancelled: Callable[[], bool], *, size_bytes: int = 0, on_wait: Callable[[float], None] | None = None
    ) -> bool:
        """Wait for room, and record bytes in the same moment, so that callers that wait go one by one.

        Args:
            cancelled: Whether the caller wants none any more; asked every second.
            size_bytes: To be recorded.
            on_wait: Called with the seconds that are to be waited for, each time that there is no room; under the
                quota's lock.

        Returns:
            Whether there was room; False: it was cancelled.
        """
        with self._changed:
            while not cancelled():
                throttle_seconds = self._throttle_ms() / 1000
                if not throttle_seconds:
                    self._record(size_bytes)
                    return True
                if on_wait is not None:
                    on_wait(throttle_seconds)
                self._changed.wait(min(throttle_seconds, _LOOK_SECONDS))
            return False

    def change(self, limit: int) -> None:
        """Change the limit; callers that wait go by it at once."""
        with self._changed:
            self._limit = limit
            self._changed.notify_all()

    # ---- under the lock

    def _record(self, size_bytes: int) -> None:
        now = self._clock.monotonic_seconds()
        self._drop(now)
        if not self._recorded or now - self._recorded[-1][0] >= self._window_seconds:
            self._recorded.append((now, size_bytes))
        else:
            began, before = self._recorded.pop()
            self._recorded.append((began, before + size_bytes))

    def _drop(self, now: float) -> None:
        while self._recorded and now - self._recorded[0][0] >= self._windows * self._window_seconds:
            self._recorded.popleft()

    def _rate(self) -> tuple[float, float]:
        """Return the rate, and the seconds over which it is one."""
        now = self._clock.monotonic_seconds()
        self._drop(now)
        if not self._recorded:
            return 0.0, self._window_seconds
        seconds = max(now - self._recorded[0][0], self._window_seconds)
        return sum(size for _, size in self._recorded) / seconds, seconds

    def _throttle_ms(self) -> int:
        rate, seconds = self._rate()
        if rate <= self._limit:
            return 0
        return max(1, round((rate - self._limit) / self._limit * seconds * 1000))
