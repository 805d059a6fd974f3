"""The series of a server. Counting is adding to numbers, on the loop's thread; series are made of them for a scrape."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, cast

from tierlog.runtime.machine.clock import Clock, Timer, Timers

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

#: Why clients are refused, whatever they ask.
REFUSALS: Final = (
    *("frame_size", "fault", "tls", "connections_per_ip", "descriptors", "idle"),
    *("request_deadline", "response_deadline", "authentication_deadline"),
)
_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_LAG_PERIOD_SECONDS: Final = 0.1


class SecondsHistogram:
    """Durations, counted by buckets as Prometheus has them. For the loop's thread; any thread may read."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_SECONDS) + 1)
        self.sum_seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(_SECONDS, seconds)] += 1
        self.sum_seconds += seconds

    @property
    def count(self) -> int:
        """The number of durations counted."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Return (upper bound, durations up to it), as Prometheus has them."""
        found: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(str, _SECONDS), "+Inf"), list(self._counts), strict=True):
            total += count
            found.append((bound, total))
        return found


class ServingMetrics:
    """The metrics of a server's connections.

    Args:
        prefix: Of the names of the series.
        refusals: The kinds of refusals: REFUSALS, and the protocol's; each has its series from the start.
        registry: Where the series are collected; each server needs one of its own. None makes one.

    Attributes:
        connections, requests_waiting: Called on collection for the numbers of open connections and of waiting requests.
        received_bytes, sent_bytes: Of requests and responses, without TLS.

    Thread safety: counted on the loop's thread; any thread may collect.
    """

    def __init__(self, prefix: str, refusals: Iterable[str], registry: CollectorRegistry | None = None) -> None:
        from prometheus_client import CollectorRegistry

        self.prefix = prefix
        self.registry = registry or CollectorRegistry()
        self.connections: Callable[[], int] = lambda: 0
        self.connections_accepted = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.requests_waiting: Callable[[], int] = lambda: 0
        self.lag = SecondsHistogram()
        self.lag_seconds_max = 0.0
        self._refused = dict.fromkeys(refusals, 0)
        self.registry.register(cast("Collector", self))

    def count_refused(self, kind: str) -> None:
        """Count a client that was refused, for one of the reasons."""
        self._refused[kind] += 1

    def refused(self, kind: str) -> int:
        """Return the number of clients that were refused for a reason. Raises KeyError: it is none of them."""
        return self._refused[kind]

    def observe_lag(self, seconds: float) -> None:
        """Count how late the loop was."""
        self.lag.observe(seconds)
        self.lag_seconds_max = max(self.lag_seconds_max, seconds)

    def collect(self) -> Iterable[Metric]:
        """Yield the samples, as a Collector of prometheus_client gives them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        prefix = self.prefix
        for name, text, value in (
            ("connections", "Connections that are open.", self.connections()),
            ("requests_waiting", "Requests that wait for their turn.", self.requests_waiting()),
            (
                "loop_lag_seconds_max",
                "The latest that the event loop was since the server started.",
                self.lag_seconds_max,
            ),
        ):
            yield GaugeMetricFamily(prefix + name, text, value=value)
        for name, text, value in (
            ("connections_accepted", "Connections that were accepted.", self.connections_accepted),
            ("received_bytes", "Bytes of requests.", self.received_bytes),
            ("sent_bytes", "Bytes of responses.", self.sent_bytes),
        ):
            yield CounterMetricFamily(prefix + name, text, value=value)
        refused = CounterMetricFamily(prefix + "refused", "Clients that were refused or cut off.", labels=["reason"])
        for kind, count in self._refused.items():
            refused.add_metric([kind], count)
        yield refused
        lag = HistogramMetricFamily(prefix + "loop_lag_seconds", "How late the event loop was, looked at each 100 ms.")
        lag.add_metric([], self.lag.buckets(), self.lag.sum_seconds)
        yield lag


class LoopLag:
    """The lag of the loop, measured every 100 ms. For the loop's thread."""

    def __init__(self, timers: Timers, clock: Clock, metrics: ServingMetrics) -> None:
        self._timers = timers
        #: The loop's own time stands still while the loop is busy.
        self._clock = clock
        self._metrics = metrics
        self._due_seconds = 0.0
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin to look."""
        self._due_seconds = self._clock.monotonic_seconds() + _LAG_PERIOD_SECONDS
        self._timer = self._timers.call_later(_LAG_PERIOD_SECONDS, self._look)

    def stop(self) -> None:
        """Look no more; idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._metrics.observe_lag(max(self._clock.monotonic_seconds() - self._due_seconds, 0.0))
        self.start()
