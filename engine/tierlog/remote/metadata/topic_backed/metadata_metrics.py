"""The series of a topic-backed metadata manager. All of them exist from the start, at zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tierlog.remote.storage.storage_metrics import Series

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

METADATA_SERIES: Final[tuple[Series, ...]] = (
    Series("counter", "metadata_events_applied_total", "Events of the metadata topic that changed the table."),
    Series(
        "counter",
        "metadata_events_passed_over_total",
        "Events of partitions that this broker does not keep, or that were in the table already.",
    ),
    Series(
        "counter",
        "metadata_events_refused_total",
        "Events that the state machine of segments, or of partitions' removal, refused.",
    ),
    Series("counter", "metadata_consumer_errors_total", "Passing errors of consuming the topic."),
    Series("counter", "metadata_rebuilds_total", "Times that the topic was found truncated or made anew."),
    Series("counter", "metadata_snapshot_errors_total", "Snapshots that could not be written."),
    Series(
        "gauge", "metadata_lag_events", "Events that are in the topic and not yet consumed, asked every ten seconds."
    ),
    Series("gauge", "metadata_partitions_ready", "Partitions that can be asked for."),
)


class MetadataMetrics:
    """The series of METADATA_SERIES. Thread safety: any number of threads.

    Args:
        registry: Where they are collected; None makes one.

    Attributes:
        registry: That registry.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge

        self.registry = registry or CollectorRegistry()
        self._counters = {
            series.name: Counter(series.full_name, series.text, registry=self.registry)
            for series in METADATA_SERIES
            if series.kind == "counter"
        }
        self._gauges = {
            series.name: Gauge(series.full_name, series.text, registry=self.registry)
            for series in METADATA_SERIES
            if series.kind == "gauge"
        }

    def add(self, name: str, amount: float = 1) -> None:
        """Add to a counter. Raises KeyError: not a counter of METADATA_SERIES."""
        self._counters[name].inc(amount)

    def set(self, name: str, value: float) -> None:
        """Set a gauge. Raises KeyError: not a gauge of METADATA_SERIES."""
        self._gauges[name].set(value)

    def ask(self, name: str, function: Callable[[], float]) -> None:
        """Let a gauge call ``function`` when it is collected; the function must neither raise nor block."""
        self._gauges[name].set_function(function)

    def value(self, name: str) -> float:
        """The value as of now. Raises KeyError: there is no such series."""
        for series in METADATA_SERIES:
            if series.name == name:
                return self.registry.get_sample_value(series.full_name) or 0.0
        raise KeyError(name)
