"""The series of a sidecar: those of its connections, and its requests by what they ask for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from tierlog.serving.metrics import REFUSALS, SecondsHistogram, ServingMetrics
from tierlog.sidecar.protocol import Status

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

PREFIX: Final = "tierlog_sidecar_"
OPERATIONS: Final = ("hello", "copy", "fetch_range", "fetch_index", "delete", "health", "metrics")


class SidecarMetrics(ServingMetrics):
    """The metrics of a sidecar.

    Attributes:
        parked_streams, memory_bytes: Called on collection for the numbers of streams that are kept for a next piece,
            and of bytes of requests and pieces.

    Thread safety: counted on the loop's thread; any thread may collect.
    """

    def __init__(self) -> None:
        self.parked_streams: Callable[[], int] = lambda: 0
        self.memory_bytes: Callable[[], int] = lambda: 0
        self._at_work = dict.fromkeys(OPERATIONS, 0)
        self._seconds = {each: SecondsHistogram() for each in OPERATIONS}
        self._failed = dict.fromkeys((each.name.lower() for each in Status if each is not Status.OK), 0)
        super().__init__(PREFIX, (*REFUSALS, "peer", "malformed"))

    @contextlib.contextmanager
    def at_work(self, operation: str) -> Iterator[None]:
        """A block in which a request is worked on."""
        self._at_work[operation] += 1
        try:
            yield
        finally:
            self._at_work[operation] -= 1

    def observe(self, operation: str, seconds: float) -> None:
        """Count a request that was answered."""
        self._seconds[operation].observe(seconds)

    def count_failed(self, status: Status) -> None:
        """Count a request that was answered with an error."""
        self._failed[status.name.lower()] += 1

    def collect(self) -> Iterable[Metric]:
        """Yield the samples, as a Collector of prometheus_client gives them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        yield from super().collect()
        prefix = self.prefix
        for name, text, value in (
            ("parked_streams", "Streams that are kept for the next piece of a range.", self.parked_streams()),
            ("memory_bytes", "Memory of requests, and of pieces that are being sent.", self.memory_bytes()),
        ):
            yield GaugeMetricFamily(prefix + name, text, value=value)
        working = GaugeMetricFamily(prefix + "requests_at_work", "Requests under way.", labels=["operation"])
        for operation, count in self._at_work.items():
            working.add_metric([operation], count)
        yield working
        seconds = HistogramMetricFamily(
            prefix + "request_seconds",
            "Time from a request to its response, sending not counted.",
            labels=["operation"],
        )
        for operation, histogram in self._seconds.items():
            seconds.add_metric([operation], histogram.buckets(), histogram.sum_seconds)
        yield seconds
        failed = CounterMetricFamily(
            prefix + "requests_failed", "Requests that ended with an error.", labels=["status"]
        )
        for status, count in self._failed.items():
            failed.add_metric([status], count)
        yield failed
