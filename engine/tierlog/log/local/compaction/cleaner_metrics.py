"""The series of a log cleaner, from a table: Kafka's gauges, under its meanings. There from the start, at zero."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from tierlog.log.local.compaction.log_cleaner import LogCleaner
from tierlog.runtime.machine import Machine

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

PREFIX: Final = "tierlog_log_cleaner_"


class CleanerSeries(NamedTuple):
    """One gauge.

    Attributes:
        name: Without PREFIX; of a series without a label, that of LogCleaner's property.
        jmx: Kafka's name for it.
        label: "log_directory", or "" for none.
    """

    name: str
    jmx: str
    text: str
    label: str = ""

    @property
    def full_name(self) -> str:
        return PREFIX + self.name


_CLEANER: Final = "kafka.log:type=LogCleaner,name="
_MANAGER: Final = "kafka.log:type=LogCleanerManager,name="
_COUNT: Final = CleanerSeries(
    "uncleanable_partitions_count",
    f"{_MANAGER}uncleanable-partitions-count",
    "Logs whose cleaning failed: they are left alone until the next start, and grow.",
    "log_directory",
)
_BYTES: Final = CleanerSeries(
    "uncleanable_bytes", f"{_MANAGER}uncleanable-bytes", "Bytes of those that would be cleaned now.", "log_directory"
)
CLEANER_SERIES: Final = (
    CleanerSeries(
        "max_buffer_utilization_percent",
        f"{_CLEANER}max-buffer-utilization-percent",
        "How full the offset map of a thread was in its last cleaning, at most.",
    ),
    CleanerSeries(
        "cleaner_recopy_percent",
        f"{_CLEANER}cleaner-recopy-percent",
        "Which part of the bytes that the threads read in their last cleanings they wrote again.",
    ),
    CleanerSeries(
        "max_clean_time_secs", f"{_CLEANER}max-clean-time-secs", "How long a thread's last cleaning took, at most."
    ),
    CleanerSeries(
        "max_compaction_delay_secs",
        f"{_CLEANER}max-compaction-delay-secs",
        "For how long a log had been due by `max.compaction.lag.ms` when a thread began its last cleaning, at most.",
    ),
    CleanerSeries(
        "dead_thread_count",
        f"{_CLEANER}DeadThreadCount",
        "Threads that an error ended: a change of keys restarts them.",
    ),
    CleanerSeries(
        "max_dirty_percent",
        f"{_MANAGER}max-dirty-percent",
        "The cleanable part of the log that had the greatest one when a thread last looked.",
    ),
    CleanerSeries(
        "time_since_last_run_ms", f"{_MANAGER}time-since-last-run-ms", "How long ago a thread last looked for a log."
    ),
    _COUNT,
    _BYTES,
)


class LogCleanerMetrics:
    """Collects the series of one cleaner, for a registry of prometheus_client. Thread safety: any number of threads.

    Args:
        machine: Has the clock.
        cleaner: What is looked at, when the series are collected.
        registry: Where they are collected; None makes one.
    """

    def __init__(self, machine: Machine, cleaner: LogCleaner, registry: CollectorRegistry | None = None) -> None:
        from prometheus_client import CollectorRegistry

        self._clock = machine.clock
        self._cleaner = cleaner
        self.registry = registry or CollectorRegistry()
        self.registry.register(cast("Collector", self))

    def collect(self) -> Iterable[Metric]:
        """Yield the samples, as a Collector of prometheus_client gives them."""
        from prometheus_client.metrics_core import GaugeMetricFamily

        now_ms = self._clock.time_ms()
        for series in CLEANER_SERIES:
            gauge = GaugeMetricFamily(series.full_name, series.text, labels=[series.label] if series.label else None)
            if not series.label:
                gauge.add_metric([], getattr(self._cleaner, series.name))
            for manager in self._cleaner.managers if series.label else ():
                value = len(manager.uncleanable) if series is _COUNT else manager.uncleanable_bytes(now_ms)
                gauge.add_metric([manager.path], value)
            yield gauge
