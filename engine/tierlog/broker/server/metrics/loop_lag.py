"""How late the event loop is."""

from __future__ import annotations

from typing import Final

from tierlog.broker.server.metrics.server_metrics import ServerMetrics
from tierlog.runtime.machine.clock import Clock, Timer, Timers

_PERIOD_SECONDS: Final = 0.1


class LoopLag:
    """Looks every 100 ms how much later than asked the loop came round. For the loop's thread."""

    def __init__(self, timers: Timers, clock: Clock, metrics: ServerMetrics) -> None:
        self._timers = timers
        #: The loop's own time stands still while the loop is busy.
        self._clock = clock
        self._metrics = metrics
        self._due_seconds = 0.0
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin to look."""
        self._due_seconds = self._clock.monotonic_seconds() + _PERIOD_SECONDS
        self._timer = self._timers.call_later(_PERIOD_SECONDS, self._look)

    def stop(self) -> None:
        """Look no more; idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._metrics.observe_lag(max(self._clock.monotonic_seconds() - self._due_seconds, 0.0))
        self.start()
