"""The series of what a replica serves, beside those of the server and of the storage manager."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, cast

from tierlog.broker.replica.catalog.bucket_catalog import BucketCatalog
from tierlog.runtime.machine.clock import Clock

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

PREFIX: Final = "tierlog_replica_"


class ReplicaMetrics:
    """Figures of a catalog, looked up for each scrape.

    Args:
        catalog: What is served.
        clock: The time.

    Attributes:
        registry: Where the series are collected.

    Thread safety: any thread may scrape.
    """

    def __init__(self, catalog: BucketCatalog, clock: Clock) -> None:
        from prometheus_client import CollectorRegistry

        self._catalog = catalog
        self._clock = clock
        self.registry: CollectorRegistry = CollectorRegistry()
        self.registry.register(cast("Collector", self))

    def collect(self) -> Iterable[Metric]:
        """The series, as a registry asks for them."""
        from prometheus_client.metrics_core import GaugeMetricFamily

        catalog = self._catalog
        newest_ms = catalog.newest_segment_ms
        gauges = {
            "topics": ("Topics that are served.", len(catalog.topics())),
            "partitions": ("Partitions that are served.", sum(len(topic.partitions) for topic in catalog.topics())),
            "histories_bytes": ("Memory of the histories that are at hand.", catalog.kept.size_bytes),
            "refresh_age_seconds": (
                "Time since the newest listing of the bucket that came to an end; -1 before the first.",
                -1.0 if catalog.refresh_age_seconds is None else catalog.refresh_age_seconds,
            ),
            "refresh_failed": ("1 if the newest listing failed, else 0.", int(catalog.refresh_error is not None)),
            "newest_segment_age_seconds": (
                "Time since the newest segment was written: how far the tier lies behind its writers; -1 without any.",
                -1.0 if newest_ms < 0 else max(0.0, (self._clock.time_ms() - newest_ms) / 1000),
            ),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(PREFIX + name, text, value=float(value))
