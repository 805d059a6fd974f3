"""How late the loop is, by hand-driven timers."""

from __future__ import annotations

from collections.abc import Callable

from tierlog.broker.server.server_metrics import ServerMetrics
from tierlog.runtime.machine.clock import ManualClock
from tierlog.serving.metrics import LoopLag


class Timer:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class HandTimers:
    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], object]]] = []
        self.timer = Timer()

    def monotonic_seconds(self) -> float:
        return 0.0

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        self.calls.append((seconds, call))
        return self.timer


def test_lateness_is_counted() -> None:
    """A loop that is held up by a long computation makes every client wait; without this nobody knows why."""
    timers, clock, metrics = HandTimers(), ManualClock(), ServerMetrics()
    lag = LoopLag(timers, clock, metrics)
    lag.start()
    for late in (0.0, 0.3, 0.02):
        seconds, call = timers.calls.pop()
        clock.advance(seconds + late)
        call()
    assert metrics.lag.count == 3
    assert abs(metrics.lag_seconds_max - 0.3) < 1e-9
    assert abs(metrics.lag.sum_seconds - 0.32) < 1e-9
    lag.stop()
    lag.stop()
    assert timers.timer.is_cancelled
