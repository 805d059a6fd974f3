"""The metrics of a front's tier and of its questions to brokers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

    from tierlog.broker.front.tier_choices import TierChoices


@dataclass(slots=True)
class FrontCounts:
    """Counts since the start.

    Attributes:
        tier_bytes, upstream_bytes: Of records in answers of Fetch, by source.
        tier_failures: Partitions that the tier should have served and could not, so that upstream did.
        tier_lookups: Offsets of times that were found in the tier.
    """

    tier_bytes: int = 0
    upstream_bytes: int = 0
    tier_failures: int = 0
    tier_lookups: int = 0


class FrontMetrics:
    """The series of a front, looked up for each scrape.

    Args:
        prefix: Of their names.
        counts: Of Fetch and ListOffsets.
        choices: Of the tier's partitions.

    Attributes:
        registry: Where the series are collected.

    Thread safety: any thread may scrape.
    """

    def __init__(self, prefix: str, counts: FrontCounts, choices: TierChoices) -> None:
        from prometheus_client import CollectorRegistry

        self._prefix = prefix
        self._counts = counts
        self._choices = choices
        self.registry: CollectorRegistry = CollectorRegistry()
        self.registry.register(cast("Collector", self))

    def collect(self) -> Iterable[Metric]:
        """Return the series, as a registry asks for them."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        counts, choices = self._counts, self._choices
        fetched = CounterMetricFamily(
            f"{self._prefix}fetched_bytes", "Bytes of records that clients fetched, by source.", labels=["source"]
        )
        fetched.add_metric(["tier"], counts.tier_bytes)
        fetched.add_metric(["upstream"], counts.upstream_bytes)
        yield fetched
        totals = {
            "tier_failures": (
                "Partitions that brokers served because the tier could not be read.",
                counts.tier_failures,
            ),
            "tier_lookups": ("Offsets of times that were found in the tier.", counts.tier_lookups),
            "upstream_refresh_failures": (
                "Questions about the state of partitions that brokers did not answer.",
                choices.states.failures_count,
            ),
        }
        for name, (text, total) in totals.items():
            yield CounterMetricFamily(self._prefix + name, text, value=total)
        gauges: dict[str, tuple[str, float]] = {
            "partitions_of_another_lineage": (
                "Partitions whose history in the bucket is not the beginning of the brokers' log.",
                len(choices.faults),
            ),
            "topics_of_another_id": (
                "Topics of the bucket that have another id than the brokers' of that name.",
                len(choices.other_topics),
            ),
            "upstream_partitions": ("Partitions whose state is asked for.", len(choices.states)),
            "upstream_refresh_age_seconds": (
                "Time since a broker last answered about partitions that are fetched; -1 before the first time.",
                choices.states.answer_age_seconds,
            ),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(self._prefix + name, text, value=value)
