"""The series of a coordinator, beside those of its server."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, cast

from tierlog.broker.groups.coordinator import GroupCoordinator
from tierlog.broker.groups.group import Group, GroupState
from tierlog.broker.groups.stored_state import CommittedOffset

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

PREFIX: Final = "tierlog_groups"
#: Committed offsets with a series of their lag, the oldest groups first.
LAGS_MAX: Final = 10_000
#: A group with a longer id has no lags: Kafka bounds the names of topics so, and those of groups not at all.
_LABEL_MAX: Final = 249

#: The end of a partition that an offset was committed for, from its topic and number; None if it is not known, or the
#: offset is of an older topic of that name. Any thread; it does not wait.
EndOffsetOf = Callable[[str, int, CommittedOffset], int | None]


class GroupMetrics:
    """Figures of all groups together, looked up for each scrape; on request their lag by partition.

    Args:
        coordinator: Whose groups.
        end_offset_of: Ends of partitions; None: no series of lag.

    Attributes:
        registry: Where the series are collected.

    Thread safety: any thread may scrape.
    """

    def __init__(self, coordinator: GroupCoordinator, end_offset_of: EndOffsetOf | None = None) -> None:
        from prometheus_client import CollectorRegistry

        self._coordinator = coordinator
        self._end_offset_of = end_offset_of
        self.registry: CollectorRegistry = CollectorRegistry()
        self.registry.register(cast("Collector", self))

    def collect(self) -> Iterable[Metric]:
        """Yield the series, as a registry asks for them."""
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
        if self._end_offset_of is not None:
            yield from self._lags(groups, self._end_offset_of)

    def _lags(self, groups: Iterable[Group], end_offset_of: EndOffsetOf) -> Iterable[Metric]:
        from prometheus_client.metrics_core import GaugeMetricFamily

        text = f"From a committed offset to the high watermark, of the first {LAGS_MAX} committed offsets."
        lags = GaugeMetricFamily(f"{PREFIX}_lag", text, labels=["group", "topic", "partition"])
        left = LAGS_MAX
        beyond = unknown = 0
        for group in groups:
            group_id = group.group_id
            offsets = self._coordinator.offsets.of(group_id)
            if not left or len(group_id) > _LABEL_MAX:
                beyond += len(offsets)
                continue
            of_group = list(offsets.items())  # at once: the loop's thread changes it
            beyond += max(len(of_group) - left, 0)
            for (topic, partition), offset in of_group[:left]:
                end_offset = end_offset_of(topic, partition, offset)
                if end_offset is None:
                    unknown += 1
                else:
                    lags.add_metric([group_id, topic, str(partition)], max(end_offset - offset.committed_offset, 0))
            left -= min(len(of_group), left)
        yield lags
        text = "Committed offsets whose lag is not told: beyond the bound, or the end of the partition is not known."
        left_out = GaugeMetricFamily(f"{PREFIX}_lag_left_out", text, labels=["reason"])
        left_out.add_metric(["bound"], beyond)
        left_out.add_metric(["unknown_end"], unknown)
        yield left_out
