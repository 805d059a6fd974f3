"""A limit of bytes a second, over windows of time, as Kafka counts it."""

from __future__ import annotations

from collections import deque
from typing import Final

from tierlog.runtime.machine import Machine

_WINDOWS: Final = 11
#: The throttle of a limit that is far exceeded ends here: a day, in ms.
_THROTTLE_MS_MAX: Final = 86_400_000


class ByteQuota:
    """Bytes are recorded as they pass; while their rate is above the limit, no more should. Nothing waits here.

    The rate is that of the live windows: the bytes of the last ``windows`` windows, by the time since the oldest of
    them began, which counts as one window at least. So what is larger than the limit passes at once, and what comes
    behind it waits.

    Args:
        machine: Has the clock and the lock.
        bytes_per_second: The limit, > 0.
        windows: How many count.
        window_seconds: How long each lasts.

    Thread safety: any number of threads.
    Source: Kafka SimpleRate, RLMQuotaManager, QuotaUtils.
    """

    def __init__(
        self, machine: Machine, bytes_per_second: int, windows: int = _WINDOWS, window_seconds: int = 1
    ) -> None:
        self._clock = machine.clock
        self._lock = machine.scheduler.lock()
        self._window_ms = 1000 * window_seconds
        self._span_ms = windows * self._window_ms
        #: (begin in ms of the monotonic clock, bytes), oldest first.
        self._windows: deque[list[int]] = deque()
        self._bytes = 0
        self.bytes_per_second = bytes_per_second

    def change(self, bytes_per_second: int) -> None:
        """Change the limit, from now on."""
        self.bytes_per_second = bytes_per_second

    def record(self, size_bytes: int) -> None:
        """Note bytes that pass now."""
        with self._lock:
            self._record(size_bytes)

    def admit(self, size_bytes: int) -> int:
        """Note bytes that pass now, unless the rate is above the limit; return ``throttle_ms``: 0 = they pass."""
        with self._lock:
            throttle_ms = self._throttle_ms()
            if not throttle_ms:
                self._record(size_bytes)
            return throttle_ms

    def rate(self) -> float:
        """Return the bytes a second that passed."""
        with self._lock:
            elapsed = self._elapsed_ms()  # drops what is old
            return 1000 * self._bytes / elapsed

    def throttle_ms(self) -> int:
        """Return for how long nothing more should pass, ms; 0: the rate is within the limit."""
        with self._lock:
            return self._throttle_ms()

    # ---- under the lock

    def _record(self, size_bytes: int) -> None:
        now = self._drop_old()
        if not self._windows or now - self._windows[-1][0] >= self._window_ms:
            self._windows.append([now, 0])
        self._windows[-1][1] += size_bytes
        self._bytes += size_bytes

    def _throttle_ms(self) -> int:
        elapsed = self._elapsed_ms()
        rate, limit = 1000 * self._bytes / elapsed, self.bytes_per_second
        return min(max(1, round((rate - limit) / limit * elapsed)), _THROTTLE_MS_MAX) if rate > limit else 0

    def _elapsed_ms(self) -> int:
        now = self._drop_old()
        return max(now - self._windows[0][0] if self._windows else 0, self._window_ms)

    def _drop_old(self) -> int:
        now = int(1000 * self._clock.monotonic_seconds())
        while self._windows and now - self._windows[0][0] >= self._span_ms:
            self._bytes -= self._windows.popleft()[1]
        return now
