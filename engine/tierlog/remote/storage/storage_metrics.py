"""The series of a RemoteStorageManager, from two tables.

Those of SERIES exist from the start, at zero: an alert whose series appears with the first error misses that error.
Their labels have fixed values, no topic and no partition among them, so that their number does not grow with the
cluster.

Those of PARTITION_SERIES are the figures by topic and partition, on request (``metrics.recording.level=DEBUG``). A
partition's series appear with its first event. Only a fixed number of partitions has series of its own; later ones are
counted together, so that the memory of a broker and of its scraper has a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from tierlog.remote.api import TopicIdPartition
from tierlog.runtime.stores.protocol.object_store import VERBS
from tierlog.runtime.stores.protocol.store_probe import StoreCapabilities

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector

PREFIX: Final = "tierlog_remote_"

Operation = Literal["copy", "fetch_segment", "fetch_index", "delete"]
OPERATIONS: Final[tuple[Operation, ...]] = ("copy", "fetch_segment", "fetch_index", "delete")
#: Kinds of errors with different remedies for an operator: see ``error_kind`` of the manager.
ERROR_KINDS: Final = (
    "unavailable",
    "refused",
    "not_found",
    "corrupt",
    "file",
    "range",
    "key",
    "deadline",
    "memory",
    "store",
    "other",
)
OBJECTS: Final = ("log", "indexes", "manifest")
#: Phases of a running copy.
PHASES: Final = ("waiting", "checking", "log", "indexes", "manifest", "removing")
DIRECTIONS: Final = ("upload", "download")
CACHES: Final = ("chunks_memory", "chunks_disk", "indexes", "manifests")
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


@dataclass(frozen=True, slots=True)
class Series:
    """One metric.

    Args:
        kind: "counter" (its name ends with ``_total``), "gauge" or "histogram" (of seconds).
        name: Without PREFIX, with its unit.
        label: Name of the series' one label; "" for none.
        values: All values that the label can have.
        jmx: The plugin's name for it, or its nearest series; "" if the plugin has none.
    """

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    text: str
    label: str = ""
    values: tuple[str, ...] = ()
    jmx: str = ""

    @property
    def full_name(self) -> str:
        return PREFIX + self.name


_RSM: Final = "remote-storage-manager-metrics: "
_CACHE: Final = "segment-manifest-cache-metrics, segment-indexes-cache-metrics, chunk-cache-metrics: "

SERIES: Final[tuple[Series, ...]] = (
    Series("counter", "copies_total", "Segments copied: finished."),
    Series("histogram", "copy_seconds", "How long finished copies took.", jmx=_RSM + "segment-copy-time-avg, -max"),
    Series("counter", "copy_bytes_total", "Original bytes of the logs of finished copies."),
    Series(
        "counter", "upload_objects_total", "Objects stored.", "object", OBJECTS, _RSM + "object-upload-total, -rate"
    ),
    Series(
        "counter",
        "upload_bytes_total",
        "Bytes of stored objects.",
        "object",
        OBJECTS,
        _RSM + "object-upload-bytes-total, -rate",
    ),
    Series("gauge", "copies_running", "Copies under way, by phase.", "phase", PHASES),
    Series("gauge", "oldest_copy_age_seconds", "Age of the copy that has been under way for longest; 0 without one."),
    Series("counter", "copies_overdue_total", "Copies that were cancelled at their deadline."),
    Series("counter", "leftover_objects_total", "Objects or uploads that a failed copy could not remove again."),
    Series(
        "gauge",
        "leftovers",
        "Failed copies whose objects are partly left in the store now; their removal is tried again.",
    ),
    Series("gauge", "upload_buffer_bytes", "Memory that running copies hold.", "state", ("used", "budget")),
    Series("counter", "upload_buffer_wait_seconds_total", "Time that copies waited for memory of others."),
    Series("counter", "fetches_total", "Ranges of segments asked for."),
    Series(
        "counter",
        "fetch_requested_bytes_total",
        "Original bytes that were asked for.",
        jmx=_RSM + "segment-fetch-requested-bytes-total, -rate",
    ),
    Series("counter", "fetch_returned_bytes_total", "Original bytes that readers took of what they asked for."),
    Series("counter", "fetch_bytes_total", "Stored bytes that the object store sent for logs, indexes and manifests."),
    Series("histogram", "fetch_first_byte_seconds", "Time from the call to the first bytes of a segment."),
    Series("counter", "cache_hit_bytes_total", "Bytes served from a cache.", "cache", CACHES),
    Series(
        "counter", "cache_hits_total", "Look-ups that a cache answered.", "cache", CACHES, _CACHE + "cache-hits-total"
    ),
    Series(
        "counter",
        "cache_misses_total",
        "Look-ups that a cache did not answer.",
        "cache",
        CACHES,
        _CACHE + "cache-misses-total",
    ),
    Series(
        "counter",
        "cache_evictions_total",
        "Entries that were evicted.",
        "cache",
        CACHES,
        _CACHE + "cache-eviction-total",
    ),
    Series("gauge", "cache_bytes", "Bytes that a cache holds.", "cache", CACHES),
    Series(
        "counter",
        "cache_damaged_total",
        "Cached entries that did not match their checksum, or did not open.",
        "cache",
        CACHES,
    ),
    Series("counter", "prefetched_bytes_total", "Original bytes fetched ahead of their reader."),
    Series("counter", "prefetch_unused_bytes_total", "Prefetched bytes that no reader asked for."),
    Series("counter", "deletes_total", "Segments deleted.", jmx=_RSM + "segment-delete-total, -rate"),
    Series(
        "counter",
        "delete_bytes_total",
        "Original bytes of the logs of deleted segments.",
        jmx=_RSM + "segment-delete-bytes-total, -rate",
    ),
    Series("histogram", "delete_seconds", "How long deletions took.", jmx=_RSM + "segment-delete-time-avg, -max"),
    Series("counter", "rate_limit_wait_seconds_total", "Time spent waiting for a rate limit.", "direction", DIRECTIONS),
)

#: The store counts its requests itself, and is asked for them.
REQUESTS: Final = Series(
    "counter",
    "store_requests_total",
    "Requests sent to the object store, retries included.",
    "verb",
    VERBS,
    "s3-client-metrics, gcs-client-metrics, azure-blob-storage-client-metrics: …-requests-total, -rate",
)
#: The store's features as found at the start: facts as labels, so apart from the other tables.
STORE_INFO: Final = Series(
    "gauge",
    "store_info",
    "Always 1; its labels say which store this is, and which capabilities it was found to have at the start. `state` "
    "is `not_asked`, "
    "`known`, `unanswered` (asked again after the first copy) or `off` (`store.probe.enabled`).",
    "state, store, checksums, checks_bodies, conditional_put, batch_delete, part_bytes_min",
)
#: Two labels, so apart from the table of one.
ERRORS: Final = Series(
    "counter",
    "errors_total",
    "Calls that failed, by operation and by what to do about it.",
    "operation, kind",
    jmx=_RSM + "segment-delete-errors-total, -rate; s3-client-metrics: throttling-errors-total, server-errors-total, "
    "configured-timeout-errors-total, io-errors-total, other-errors-total",
)


PARTITION_PREFIX: Final = "tierlog_remote_partition_"
#: Partitions with series of their own: a broker has a few thousand.
PARTITIONS_MAX: Final = 10_000
#: Topic and partition of all others; no topic can be called so.
OTHERS: Final = ("(others)", "")

_RSM_PARTITION: Final = "remote-storage-manager-metrics, by topic and partition: "
#: Name, further label, meaning, the plugin's name.
PARTITION_SERIES: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("copies_total", "", "Segments copied: finished.", ""),
    ("copy_bytes_total", "", "Original bytes of the logs of finished copies.", ""),
    (
        "copy_seconds_total",
        "",
        "How long finished copies took, in all.",
        _RSM_PARTITION + "segment-copy-time-avg, -max",
    ),
    ("upload_objects_total", "object", "Objects stored.", _RSM_PARTITION + "object-upload-total, -rate"),
    ("upload_bytes_total", "object", "Bytes of stored objects.", _RSM_PARTITION + "object-upload-bytes-total, -rate"),
    ("fetches_total", "", "Ranges of segments asked for.", ""),
    (
        "fetch_requested_bytes_total",
        "",
        "Original bytes that were asked for.",
        _RSM_PARTITION + "segment-fetch-requested-bytes-total, -rate",
    ),
    ("fetch_bytes_total", "", "Stored bytes that the object store sent.", ""),
    ("deletes_total", "", "Segments deleted.", _RSM_PARTITION + "segment-delete-total, -rate"),
    (
        "delete_bytes_total",
        "",
        "Original bytes of the logs of deleted segments.",
        _RSM_PARTITION + "segment-delete-bytes-total, -rate",
    ),
    ("delete_seconds_total", "", "How long deletions took, in all.", _RSM_PARTITION + "segment-delete-time-avg, -max"),
    ("errors_total", "operation", "Calls that failed.", _RSM_PARTITION + "segment-delete-errors-total, -rate"),
    (
        "store_requests_total",
        "verb",
        "Calls of the object store: its own retries are not counted, a delete of many objects counts once.",
        "",
    ),
)


class PartitionMetrics:
    """The series of PARTITION_SERIES. Thread safety: any number of threads.

    Args:
        registry: Where the series are collected.
        partitions_max: Number of partitions with series of their own.
    """

    def __init__(self, registry: CollectorRegistry, *, partitions_max: int = PARTITIONS_MAX) -> None:
        from prometheus_client import Counter

        self._partitions_max = partitions_max
        self._known: dict[tuple[str, int], tuple[str, str]] = {}
        self._counters = {
            name: Counter(
                PARTITION_PREFIX + name,
                text,
                ("topic", "partition", label) if label else ("topic", "partition"),
                registry=registry,
            )
            for name, label, text, _ in PARTITION_SERIES
        }

    def add(self, partition: TopicIdPartition, name: str, amount: float = 1, *, label: str = "") -> None:
        """Add to a partition's counter. Raises KeyError: not a name of PARTITION_SERIES (without PARTITION_PREFIX)."""
        labels = self._labels(partition)
        self._counters[name].labels(*labels, *([label] if label else [])).inc(amount)

    def _labels(self, partition: TopicIdPartition) -> tuple[str, str]:
        """Return the labels of a partition. They hold names, so that a topic that is made anew goes on in the same
        series.
        """
        key = (partition.topic, partition.partition)
        found = self._known.get(key)
        if found is None:
            # Two threads at once may go one beyond the bound, which is no matter.
            is_full = len(self._known) >= self._partitions_max
            found = OTHERS if is_full else self._known.setdefault(key, (key[0], str(key[1])))
        return found


class _Requests:
    """The series of REQUESTS. Its values are asked of the store when they are collected."""

    def __init__(self) -> None:
        self.counts: Callable[[], Mapping[str, int]] = lambda: dict.fromkeys(VERBS, 0)

    def collect(self) -> Iterable[CounterMetricFamily]:
        """Return the samples, as a Collector of prometheus_client gives them."""
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(REQUESTS.full_name, REQUESTS.text, labels=[REQUESTS.label])
        for verb, count in self.counts().items():
            family.add_metric([verb], count)
        return [family]


class _StoreInfo:
    """The series of STORE_INFO, as far as its labels are known."""

    def __init__(self) -> None:
        self._names = STORE_INFO.label.split(", ")
        self.told: Mapping[str, str] = {"state": "not_asked"}

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the samples, as a Collector of prometheus_client gives them."""
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(STORE_INFO.full_name, STORE_INFO.text, labels=self._names)
        told = self.told
        family.add_metric([told.get(name, "") for name in self._names], 1)
        return [family]


class SeriesMetrics:
    """The series of a table, and their values.

    Args:
        table: The series.
        registry: Where they are collected; each manager needs one of its own. None makes one.

    Attributes:
        registry: That registry.

    Thread safety: any number of threads.
    """

    def __init__(self, table: Iterable[Series], registry: CollectorRegistry | None = None) -> None:
        from prometheus_client import CollectorRegistry

        self.registry = registry or CollectorRegistry()
        #: Counters, gauges and histograms by name.
        self._series: dict[str, Any] = {}
        for series in table:
            self._register(series)

    def _register(self, series: Series) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        kind: Any = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}[series.kind]
        more = {"buckets": _SECONDS} if series.kind == "histogram" else {}
        labels = (series.label,) if series.label else ()
        made = kind(series.full_name, series.text, labels, registry=self.registry, **more)
        self._series[series.name] = made
        for value in series.values:
            made.labels(value)

    def _of(self, name: str, label: str | None) -> Any:
        """Return the series of a name (without PREFIX) and a label. Raises KeyError: the table has none of the name."""
        found = self._series[name]
        return found if label is None else found.labels(label)

    def add(self, name: str, amount: float = 1, *, label: str | None = None) -> None:
        """Add to a counter."""
        self._of(name, label).inc(amount)

    def counting(self, name: str, label: str | None = None) -> Callable[..., None]:
        """Return a function that adds to one counter, by 1 or by its argument, for hot paths. Raises as ``add``."""
        inc: Callable[[float], None] = self._of(name, label)._value.inc  # noqa: SLF001 - without prometheus's checks: 3 µs a time
        return lambda amount=1: inc(amount)

    def set(self, name: str, value: float, *, label: str | None = None) -> None:
        """Set a gauge."""
        self._of(name, label).set(value)

    def observe(self, name: str, seconds: float) -> None:
        """Record one duration in a histogram."""
        self._series[name].observe(seconds)

    def ask(self, name: str, function: Callable[[], float], *, label: str | None = None) -> None:
        """Let a gauge call ``function`` when it is collected; the function must neither raise nor block."""
        self._of(name, label).set_function(function)

    def value(self, name: str, **labels: str) -> float:
        """Return the value as of now (a histogram's: ``name + "_count"``). Raises KeyError: there is no such series."""
        found = self.registry.get_sample_value(PREFIX + name, labels)
        if found is None:
            raise KeyError(name)
        return found


class StorageMetrics(SeriesMetrics):
    """All series of one manager.

    Args:
        registry: Where the series are collected; each manager needs one of its own. None makes one.
        caches: Those of CACHES that there can be.

    Thread safety: any number of threads.
    """

    def __init__(self, registry: CollectorRegistry | None = None, *, caches: tuple[str, ...] = CACHES) -> None:
        from prometheus_client import Counter

        table = (replace(series, values=caches) if series.label == "cache" else series for series in SERIES)
        super().__init__(table, registry)
        self._partitions: PartitionMetrics | None = None
        self._count_fetched = self.counting("fetch_bytes_total")
        self._requests = _Requests()
        self.registry.register(cast("Collector", self._requests))
        self._store_info = _StoreInfo()
        self.registry.register(cast("Collector", self._store_info))
        self._errors = Counter(ERRORS.full_name, ERRORS.text, ("operation", "kind"), registry=self.registry)
        for operation in OPERATIONS:
            for kind in ERROR_KINDS:
                self._errors.labels(operation, kind)

    def record_partitions(self) -> PartitionMetrics:
        """Count by topic and partition too, from now on."""
        if self._partitions is None:
            self._partitions = PartitionMetrics(self.registry)
        return self._partitions

    def add_of(self, partition: TopicIdPartition, name: str, amount: float = 1, *, label: str = "") -> None:
        """Add to a partition's counter, if partitions are counted. Raises KeyError: not a name of PARTITION_SERIES."""
        if self._partitions is not None:
            self._partitions.add(partition, name, amount, label=label)

    def count_fetched(self, size_bytes: int) -> None:
        """Count bytes that the store sent for a fetch."""
        self._count_fetched(size_bytes)

    def ask_requests(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Name the function that gives the requests by verb; it must neither raise nor block."""
        self._requests.counts = counts

    def tell_store(self, state: str, store: str, capabilities: StoreCapabilities | None = None) -> None:
        """Set the labels of STORE_INFO: one of its states, the store's URL without secrets, its capabilities."""
        found = {} if capabilities is None else asdict(capabilities)
        shown = {name: str(value).lower() for name, value in found.items() if name != "addressing"}
        self._store_info.told = {"state": state, "store": store, **shown}

    def add_error(self, operation: Operation, kind: str) -> None:
        """Count one failed call; ``kind`` is one of ERROR_KINDS."""
        self._errors.labels(operation, kind).inc()
