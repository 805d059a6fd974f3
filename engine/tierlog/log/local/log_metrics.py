"""The series of log directories and of their cleaner, from tables: Kafka's gauges, under its meanings. They are there
from the start, at zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from tierlog.log.local.compaction.log_cleaner import LogCleaner
from tierlog.log.local.log_directories import LogDirectories
from tierlog.runtime.machine import Machine

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector


class LogSeries(NamedTuple):
    """One gauge.

    Attributes:
        name: Without its prefix; of a cleaner's series without a label, that of LogCleaner's property.
        jmx: Kafka's name for it.
        label: "log_directory", or "" for none.
    """

    name: str
    jmx: str
    text: str
    label: str = ""
    prefix: str = "tierlog_log_cleaner_"

    @property
    def full_name(self) -> str:
        return self.prefix + self.name


_CLEANER: Final = "kafka.log:type=LogCleaner,name="
_MANAGER: Final = "kafka.log:type=LogCleanerManager,name="
_COUNT: Final = LogSeries(
    "uncleanable_partitions_count",
    f"{_MANAGER}uncleanable-partitions-count",
    "Logs whose cleaning failed: they are left alone until the next start, and grow.",
    "log_directory",
)
_BYTES: Final = LogSeries(
    "uncleanable_bytes", f"{_MANAGER}uncleanable-bytes", "Bytes of those that would be cleaned now.", "log_directory"
)
CLEANER_SERIES: Final = (
    LogSeries(
        "max_buffer_utilization_percent",
        f"{_CLEANER}max-buffer-utilization-percent",
        "How full the offset map of a thread was in its last cleaning, at most.",
    ),
    LogSeries(
        "cleaner_recopy_percent",
        f"{_CLEANER}cleaner-recopy-percent",
        "Which part of the bytes that the threads read in their last cleanings they wrote again.",
    ),
    LogSeries(
        "max_clean_time_secs", f"{_CLEANER}max-clean-time-secs", "How long a thread's last cleaning took, at most."
    ),
    LogSeries(
        "max_compaction_delay_secs",
        f"{_CLEANER}max-compaction-delay-secs",
        "For how long a log had been due by `max.compaction.lag.ms` when a thread began its last cleaning, at most.",
    ),
    LogSeries(
        "dead_thread_count",
        f"{_CLEANER}DeadThreadCount",
        "Threads that an error ended: a change of keys restarts them.",
    ),
    LogSeries(
        "max_dirty_percent",
        f"{_MANAGER}max-dirty-percent",
        "The cleanable part of the log that had the greatest one when a thread last looked.",
    ),
    LogSeries(
        "time_since_last_run_ms", f"{_MANAGER}time-since-last-run-ms", "How long ago a thread last looked for a log."
    ),
    _COUNT,
    _BYTES,
)
_DIRECTORIES: Final = "kafka.log:type=LogManager,name="
_PREFIX: Final = "tierlog_log_"
DIRECTORY_SERIES: Final = (
    LogSeries(
        "offline_log_directory_count",
        f"{_DIRECTORIES}OfflineLogDirectoryCount",
        "Log directories that are offline, with their logs.",
        prefix=_PREFIX,
    ),
    LogSeries(
        "cordoned_log_directory_count",
        f"{_DIRECTORIES}CordonedLogDirectoryCount",
        "Log directories that get no new log.",
        prefix=_PREFIX,
    ),
    LogSeries(
        "log_directory_offline",
        f"{_DIRECTORIES}LogDirectoryOffline",
        "1 while the directory is offline.",
        "log_directory",
        prefix=_PREFIX,
    ),
)
LOG_SERIES: Final = CLEANER_SERIES + DIRECTORY_SERIES


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


class LogDirectoriesMetrics:
    """Collects the series of a broker's log directories, for a registry of prometheus_client. Thread safety: any number
    of threads.

    Args:
        directories: What is looked at, when the series are collected.
        registry: Where they are collected; None makes one.
    """

    def __init__(self, directories: LogDirectories, registry: CollectorRegistry | None = None) -> None:
        from prometheus_client import CollectorRegistry

        self._directories = directories
        self.registry = registry or CollectorRegistry()
        self.registry.register(cast("Collector", self))

    def collect(self) -> Iterable[Metric]:
        """Yield the samples, as a Collector of prometheus_client gives them."""
        from prometheus_client.metrics_core import GaugeMetricFamily

        offline = self._directories.offline
        counts = iter((len(offline), len(self._directories.cordoned)))
        for series in DIRECTORY_SERIES:
            gauge = GaugeMetricFamily(series.full_name, series.text, labels=[series.label] if series.label else None)
            if not series.label:
                gauge.add_metric([], next(counts))
            for path in self._directories.paths if series.label else ():
                gauge.add_metric([path], path in offline)
            yield gauge
