"""The series of a coordinator, beside those of its server."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, cast

from tierlog.broker.groups.coordinator import GroupCoordinator
from tierlog.broker.groups.group import GroupState

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

PREFIX: Final = "tierlog_groups"


class GroupMetrics:
    """Figures of all groups together, looked up for each scrape.

    Args:
        coordinator: Whose groups.

    Attributes:
        registry: Where the series are collected.

    Thread safety: any thread may scrape.
    """

    def __init__(self, coordinator: GroupCoordinator) -> None:
        from prometheus_client import CollectorRegistry

        self._coordinator = coordinator
        self.registry: CollectorRegistry = CollectorRegistry()
        self.registry.register(cast("Collector", self))

    def collect(self) -> Iterable[Metric]:
        """The series, as a registry asks for them."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        coordinator, counts = self._coordinator, self._coordinator.counts
        groups = list(coordinator.groups())
        by_state = collections.Counter(group.state for group in groups)
        states = GaugeMetricFamily(PREFIX, "Groups, by their state.", labels=["state"])
        for state in GroupState:
            if state is not GroupState.DEAD:
                states.add_metric([state.value], by_state[state])
        yield states
        for name, text, value in (
            ("members", "Members of all groups.", sum(len(group.members) for group in groups)),
            ("memory_bytes", "About what groups, members and offsets take.", coordinator.memory_bytes),
        ):
            yield GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)
        for name, text, value in (
            ("rebalances", "Rebalances that began.", counts.rebalances),
            ("members_lost", "Members that were removed, as nothing was heard of them.", counts.members_lost),
        ):
            yield CounterMetricFamily(f"{PREFIX}_{name}", text, value=value)
        refused = CounterMetricFamily(
            f"{PREFIX}_commits_refused",
            "Commits that were not stored, by the error that answered them.",
            labels=["error"],
        )
        for error, count in counts.commits_refused.copy().items():
            refused.add_metric([error], count)
        yield refused
        text = "From a commit of offsets to its answer, of those that are durable."
        seconds = HistogramMetricFamily(f"{PREFIX}_commit_seconds", text)
        seconds.add_metric([], counts.commit_seconds.buckets(), counts.commit_seconds.sum_seconds)
        yield seconds
