"""The series of a RemoteLogManager, from a table: Kafka's, under their meanings.

Those of MANAGER_SERIES exist from the start, at zero: an alert whose series appears with the first error misses that
error. Most of them exist by topic, too, from a topic's first event on; only a fixed number of topics has series of its
own, later ones are counted together. Figures by partition are there on request (``metrics.recording.level=DEBUG``) and
of a fixed number of partitions.

What is a state and no event is looked up when it is collected: so a lag grows also while nothing succeeds.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from tierlog.remote.api import TopicIdPartition
from tierlog.remote.storage.storage_metrics import OTHERS, PREFIX, Series, SeriesMetrics
from tierlog.runtime.machine import Machine

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

_log = logging.getLogger(__name__)

#: Topics, and partitions, that have series of their own.
TOPICS_MAX: Final = 1000
PARTITIONS_MAX: Final = 1000

_OF_TOPICS: Final = "kafka.server:type=BrokerTopicMetrics,name="
_MANAGER: Final = "kafka.log.remote:type=RemoteLogManager,name="
_READERS: Final = "kafka.log.remote:type=RemoteStorageThreadPool,name="
_QUOTAS: Final = "kafka.server:type=RemoteLogManager,name="
_PURGATORY: Final = "kafka.server:type=DelayedOperationPurgatory,name="
#: What waits: values of the label ``operation``.
OPERATIONS: Final = ("RemoteFetch", "RemoteListOffsets")


def _counter(name: str, text: str, jmx: str) -> Series:
    return Series("counter", f"manager_{name}_total", text, jmx=jmx)


def _gauge(name: str, text: str, jmx: str, *, label: str = "", values: tuple[str, ...] = ()) -> Series:
    return Series("gauge", f"manager_{name}", text, label, values, jmx)


#: Counters that exist by topic too.
COUNTERS: Final = (
    _counter("fetch_bytes", "Bytes read from the tier for fetches.", f"{_OF_TOPICS}RemoteFetchBytesPerSec"),
    _counter("fetch_requests", "Reads of the tier that began.", f"{_OF_TOPICS}RemoteFetchRequestsPerSec"),
    _counter(
        "fetch_errors",
        "Reads of the tier that failed, but for offsets out of range.",
        f"{_OF_TOPICS}RemoteFetchErrorsPerSec",
    ),
    _counter("copy_bytes", "Bytes of the logs of copied segments.", f"{_OF_TOPICS}RemoteCopyBytesPerSec"),
    _counter("copy_requests", "Copies of segments that began.", f"{_OF_TOPICS}RemoteCopyRequestsPerSec"),
    _counter(
        "copy_errors",
        "Copies that failed, but for errors that the manager tries again.",
        f"{_OF_TOPICS}RemoteCopyErrorsPerSec",
    ),
    _counter("delete_requests", "Deletions of segments that began.", f"{_OF_TOPICS}RemoteDeleteRequestsPerSec"),
    _counter("delete_errors", "Deletions that failed, likewise.", f"{_OF_TOPICS}RemoteDeleteErrorsPerSec"),
    _counter(
        "build_aux_state_requests",
        "Logs that were to begin behind what is in the tier.",
        f"{_OF_TOPICS}BuildRemoteLogAuxStateRequestsPerSec",
    ),
    _counter(
        "build_aux_state_errors",
        "Those of them that failed, likewise.",
        f"{_OF_TOPICS}BuildRemoteLogAuxStateErrorsPerSec",
    ),
    _counter(
        "list_offsets_expired",
        "Searches by timestamp that took longer than they may.",
        "kafka.server:type=DelayedRemoteListOffsetsMetrics,name=ExpiresPerSec",
    ),
)
#: Sums over the partitions that this broker leads, which exist by topic too.
LAGS: Final = (
    _gauge("copy_lag_bytes", "Bytes of closed segments that are not copied.", f"{_OF_TOPICS}RemoteCopyLagBytes"),
    _gauge("copy_lag_segments", "Closed segments that are not copied.", f"{_OF_TOPICS}RemoteCopyLagSegments"),
    _gauge("delete_lag_bytes", "Bytes of segments that are to be deleted.", f"{_OF_TOPICS}RemoteDeleteLagBytes"),
    _gauge("delete_lag_segments", "Segments that are to be deleted.", f"{_OF_TOPICS}RemoteDeleteLagSegments"),
    _gauge("metadata_count", "Segments whose metadata is there.", f"{_OF_TOPICS}RemoteLogMetadataCount"),
    _gauge("log_size_bytes", "Bytes of the segments in the tier.", f"{_OF_TOPICS}RemoteLogSizeBytes"),
    _gauge(
        "log_size_computation_seconds",
        "How long it took to sum these up for retention by size.",
        f"{_OF_TOPICS}RemoteLogSizeComputationTime (ms)",
    ),
)
_LONE: Final = (
    _gauge(
        "tasks_idle_ratio", "Part of the copy threads that is idle.", f"{_MANAGER}RemoteLogManagerTasksAvgIdlePercent"
    ),
    _gauge("reader_idle_ratio", "Part of the reader threads that is idle.", f"{_READERS}RemoteLogReaderAvgIdlePercent"),
    _gauge("reader_queue_tasks", "Reads that wait for a thread.", f"{_READERS}RemoteLogReaderTaskQueueSize"),
    Series(
        "histogram",
        "manager_reader_fetch_seconds",
        "Duration of remote reads.",
        jmx=f"{_MANAGER}RemoteLogReaderFetchRateAndTimeMs",
    ),
    _counter(
        "fetch_expired",
        "Fetches that were answered before all of their remote reads had ended.",
        "kafka.server:type=DelayedRemoteFetchMetrics,name=ExpiresPerSec",
    ),
    _gauge(
        "waiting_requests",
        "Requests that wait for remote reads, or for searches by timestamp.",
        f"{_PURGATORY}PurgatorySize, NumDelayedOperations, delayedOperation=…",
        label="operation",
        values=OPERATIONS,
    ),
    Series(
        "histogram",
        "manager_fetch_throttle_seconds",
        "How long the quota of remote reads was to be waited for.",
        jmx=f"{_QUOTAS}remote-fetch-throttle-time-avg, -max",
    ),
    Series(
        "histogram",
        "manager_copy_throttle_seconds",
        "How long the quota of copies was to be waited for.",
        jmx=f"{_QUOTAS}remote-copy-throttle-time-avg, -max",
    ),
    _gauge("fetch_quota_bytes_per_second", "Rate of remote reads.", "kafka.server:type=RLMFetch, byte-rate"),
    _gauge("copy_quota_bytes_per_second", "Rate of copies.", "kafka.server:type=RLMCopy, byte-rate"),
    _gauge("leader_partitions", "Tiered partitions that this broker leads.", ""),
    _gauge("follower_partitions", "Tiered partitions that this broker follows.", ""),
    _gauge("copying_stopped_partitions", "Partitions that copy no more until an operator acts.", ""),
    _gauge("uncopied_age_seconds", "Age of the newest record in the oldest segment that is not copied.", ""),
    _counter("log_index_errors", "Updates of remote log indexes that failed (`remote.log.index.enable`).", ""),
)
MANAGER_SERIES: Final = (*COUNTERS, *LAGS, *_LONE)

_LOGS: Final = "kafka.log:type=Log,name="
#: Gauges by topic and partition, on request.
PARTITION_SERIES: Final = (
    _gauge("log_segments", "Local segments.", f"{_LOGS}NumLogSegments"),
    _gauge("log_start_offset", "First offset that can be read.", f"{_LOGS}LogStartOffset"),
    _gauge("log_end_offset", "End of the log.", f"{_LOGS}LogEndOffset"),
    _gauge("local_size_bytes", "Bytes of the local segments.", f"{_LOGS}Size"),
    _gauge(
        "retention_size_ratio",
        "Used part of `retention.bytes`.",
        f"{_MANAGER}RetentionSizeInPercent; {_LOGS}RetentionSizeInPercent",
    ),
    _gauge(
        "local_retention_size_ratio", "Used part of `local.retention.bytes`.", f"{_MANAGER}LocalRetentionSizeInPercent"
    ),
)

_TOTAL: Final = "_total"
#: By topic: ``tierlog_remote_manager_topic_…``.
MANAGER_PREFIX: Final = PREFIX + "manager_"
TOPIC_PREFIX: Final = MANAGER_PREFIX + "topic_"
PARTITION_PREFIX: Final = MANAGER_PREFIX + "partition_"


def short_name(series: Series) -> str:
    """Return the name by which a part of the manager counts or sets a series."""
    return series.name.removeprefix("manager_").removesuffix(_TOTAL)


class PartitionFigures(NamedTuple):
    """The figures of one partition that this broker leads, as of now.

    Attributes:
        lags: Values of LAGS, by their short names; those that are missing are as ``set`` left them.
        log: Values of PARTITION_SERIES, by their short names.
    """

    lags: Mapping[str, float]
    log: Mapping[str, float]


#: Gives the figures of all partitions that this broker leads; it neither raises nor blocks for long.
Figures = Callable[[], Iterable[tuple[TopicIdPartition, PartitionFigures]]]


def _no_figures() -> Iterable[tuple[TopicIdPartition, PartitionFigures]]:
    return ()


class ManagerMetrics:
    """The series of one manager.

    Names of calls are those of the tables above without ``manager_`` and ``_total``; other names raise KeyError.

    Args:
        machine: Has the locks.
        registry: Where the series are collected. None makes one.
        by_partition: Whether PARTITION_SERIES are collected.

    Attributes:
        registry: That registry.
        figures: Gives the figures of partitions, which are collected.

    Thread safety: any number of threads.
    """

    def __init__(
        self, machine: Machine, registry: CollectorRegistry | None = None, *, by_partition: bool = False
    ) -> None:
        self._lone = SeriesMetrics([series for series in MANAGER_SERIES if series not in LAGS], registry)
        self.registry = self._lone.registry
        self.figures: Figures = _no_figures
        self._by_partition = by_partition
        self._lock = machine.scheduler.lock()
        self._names = {short_name(series): series for series in MANAGER_SERIES}
        self._counted = {short_name(series): series for series in COUNTERS}
        self._add_to = {name: self._lone.counting(series.name) for name, series in self._counted.items()}
        self._counts: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._lags = {short_name(series): series for series in LAGS}
        self._set: dict[TopicIdPartition, dict[str, float]] = {}
        self.registry.register(cast("Collector", self))

    # ---- events

    def add(self, name: str, topic: str, amount: float = 1) -> None:
        """Add to a counter of a topic, and to that of all."""
        self._add_to[name](amount)
        with self._lock:
            counts = self._counts.get(topic)
            if counts is None:
                counts = self._counts[topic if len(self._counts) < TOPICS_MAX else OTHERS[0]]
            counts[name] += amount

    def count(self, name: str, topic: str) -> float:
        """Return a counter of a topic."""
        with self._lock:
            return self._counts[topic][name] if topic in self._counts else 0.0

    def add_lone(self, name: str, amount: float = 1) -> None:
        """Add to a counter that exists for no topic."""
        self._lone.add(self._names[name].name, amount)

    def observe(self, name: str, seconds: float) -> None:
        """Record a duration."""
        self._lone.observe(self._names[name].name, seconds)

    def value(self, name: str, **labels: str) -> float:
        """Return the value of a series of MANAGER_SERIES, or with ``topic``, or with ``topic`` and ``partition``, of
        that one, as of now. Raises KeyError: there is none.
        """
        by_partition, by_topic = "partition" in labels, "topic" in labels
        known = PARTITION_SERIES if by_partition else MANAGER_SERIES
        (series,) = (series for series in known if short_name(series) == name)
        prefix = PARTITION_PREFIX if by_partition else TOPIC_PREFIX if by_topic else MANAGER_PREFIX
        full_name = series.full_name.replace(MANAGER_PREFIX, prefix) + ("_count" if series.kind == "histogram" else "")
        found = self.registry.get_sample_value(full_name, labels)
        if found is None:
            raise KeyError(full_name)
        return found

    # ---- states

    def set(self, name: str, partition: TopicIdPartition, value: float) -> None:
        """Set one of LAGS for a partition, until ``drop``."""
        if name not in self._lags:
            raise KeyError(name)
        with self._lock:
            self._set.setdefault(partition, {})[name] = value

    def last_set(self, name: str, partition: TopicIdPartition) -> float:
        """Return what was set last for a partition; 0: nothing was."""
        with self._lock:
            return self._set.get(partition, {}).get(name, 0.0)

    def drop(self, partition: TopicIdPartition) -> None:
        """Forget what was set for a partition: this broker leads it no more."""
        with self._lock:
            self._set.pop(partition, None)

    def drop_topic(self, topic: str) -> None:
        """Forget the counters of a topic, of which this broker has no partition any more."""
        with self._lock:
            self._counts.pop(topic, None)

    def ask(self, name: str, function: Callable[[], float], *, operation: str | None = None) -> None:
        """Let a gauge that exists for no topic call ``function`` when it is collected; the function must neither raise
        nor block.
        """
        self._lone.ask(self._names[name].name, function, label=operation)

    # ---- collecting

    def collect(self) -> Iterable[Metric]:
        """Yield the samples of lags and of topics, as a Collector of prometheus_client gives them."""
        with self._lock:
            counts = {topic: dict(by_name) for topic, by_name in self._counts.items()}
            figures = {partition: dict(values) for partition, values in self._set.items()}
        logs: list[tuple[TopicIdPartition, Mapping[str, float]]] = []
        try:
            for partition, found in self.figures():
                figures.setdefault(partition, {}).update(found.lags)
                if found.log and len(logs) < PARTITIONS_MAX:
                    logs.append((partition, found.log))
        except Exception:  # noqa: BLE001 - one log that fails must not take all series of the process away
            _log.exception("the figures of partitions could not be collected")
        yield from self._collect_counts(counts)
        yield from self._collect_lags(figures)
        if self._by_partition:
            yield from _collect_logs(logs)

    def _collect_counts(self, counts: Mapping[str, Mapping[str, float]]) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily

        for name, series in self._counted.items():
            family = CounterMetricFamily(TOPIC_PREFIX + name, series.text, labels=["topic"])
            for topic, by_name in counts.items():
                if name in by_name:
                    family.add_metric([topic], by_name[name])
            yield family

    def _collect_lags(self, figures: Mapping[TopicIdPartition, Mapping[str, float]]) -> Iterator[Metric]:
        from prometheus_client.metrics_core import GaugeMetricFamily

        totals: dict[str, float] = dict.fromkeys(self._lags, 0.0)
        topics: dict[str, dict[str, float]] = {}
        for partition, values in figures.items():
            known = partition.topic in topics or len(topics) < TOPICS_MAX
            of_topic = topics.setdefault(partition.topic if known else OTHERS[0], dict.fromkeys(self._lags, 0.0))
            for name, value in values.items():
                totals[name] += value
                of_topic[name] += value
        for name, series in self._lags.items():
            yield GaugeMetricFamily(series.full_name, series.text, value=totals[name])
            family = GaugeMetricFamily(TOPIC_PREFIX + name, series.text, labels=["topic"])
            for topic, sums in topics.items():
                family.add_metric([topic], sums[name])
            yield family


def _collect_logs(logs: Iterable[tuple[TopicIdPartition, Mapping[str, float]]]) -> Iterator[Metric]:
    from prometheus_client.metrics_core import GaugeMetricFamily

    logs = list(logs)
    for series in PARTITION_SERIES:
        name = short_name(series)
        family = GaugeMetricFamily(PARTITION_PREFIX + name, series.text, labels=["topic", "partition"])
        for partition, values in logs:
            if name in values:
                family.add_metric([partition.topic, str(partition.partition)], values[name])
        yield family
