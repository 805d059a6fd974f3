"""The same figures by topic and partition: on request, since their number grows with the cluster.

A partition's series appear with its first event. Only a fixed number of partitions is told apart; later ones are
counted together, so that the memory of a broker and of its scraper has a bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tierlog.remote.api import TopicIdPartition

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

PREFIX: Final = "tierlog_remote_partition_"
#: Partitions that are told apart: a broker has a few thousand.
PARTITIONS_MAX: Final = 10_000
#: Topic and partition of all others; no topic can be called so.
OTHERS: Final = ("(others)", "")

_RSM: Final = "remote-storage-manager-metrics, by topic and partition: "
#: Name, further label, meaning, the plugin's name.
PARTITION_SERIES: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("copies_total", "", "Segments copied: finished.", ""),
    ("copy_bytes_total", "", "Original bytes of the logs of finished copies.", ""),
    (
        "copy_seconds_total",
        "",
        "How long finished copies took, in all.",
        _RSM + "segment-copy-time-avg, -max",
    ),
    ("upload_objects_total", "object", "Objects stored.", _RSM + "object-upload-total, -rate"),
    ("upload_bytes_total", "object", "Bytes of stored objects.", _RSM + "object-upload-bytes-total, -rate"),
    ("fetches_total", "", "Ranges of segments asked for.", ""),
    (
        "fetch_requested_bytes_total",
        "",
        "Original bytes that were asked for.",
        _RSM + "segment-fetch-requested-bytes-total, -rate",
    ),
    ("fetch_bytes_total", "", "Stored bytes that the object store sent.", ""),
    ("deletes_total", "", "Segments deleted.", _RSM + "segment-delete-total, -rate"),
    (
        "delete_bytes_total",
        "",
        "Original bytes of the logs of deleted segments.",
        _RSM + "segment-delete-bytes-total, -rate",
    ),
    ("delete_seconds_total", "", "How long deletions took, in all.", _RSM + "segment-delete-time-avg, -max"),
    ("errors_total", "operation", "Calls that failed.", _RSM + "segment-delete-errors-total, -rate"),
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
        partitions_max: How many partitions are told apart.
    """

    def __init__(self, registry: CollectorRegistry, *, partitions_max: int = PARTITIONS_MAX) -> None:
        from prometheus_client import Counter

        self._partitions_max = partitions_max
        self._known: dict[tuple[str, int], tuple[str, str]] = {}
        self._counters = {
            name: Counter(
                PREFIX + name,
                text,
                ("topic", "partition", label) if label else ("topic", "partition"),
                registry=registry,
            )
            for name, label, text, _ in PARTITION_SERIES
        }

    def add(self, partition: TopicIdPartition, name: str, amount: float = 1, *, label: str = "") -> None:
        """Add to a partition's counter. Raises KeyError: not a name of PARTITION_SERIES (without PREFIX)."""
        labels = self._labels(partition)
        self._counters[name].labels(*labels, *([label] if label else [])).inc(amount)

    def _labels(self, partition: TopicIdPartition) -> tuple[str, str]:
        """The labels of a partition. They hold names, so that a topic that is made anew goes on in the same series."""
        key = (partition.topic, partition.partition)
        found = self._known.get(key)
        if found is None:
            # Two threads at once may go one beyond the bound, which is no matter.
            is_full = len(self._known) >= self._partitions_max
            found = OTHERS if is_full else self._known.setdefault(key, (key[0], str(key[1])))
        return found


def partition_rows() -> str:
    """The rows of docs/metrics.md for these series."""
    return "\n".join(
        f"| `{PREFIX}{name}` | counter | {f'`{label}`' if label else '–'} | {text} | {jmx or '–'} |"
        for name, label, text, jmx in PARTITION_SERIES
    )
