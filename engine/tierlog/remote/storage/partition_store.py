"""A store that counts its calls by topic and partition (``metrics.recording.level=DEBUG``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from tierlog.remote.config import StorageConfig
from tierlog.remote.storage.metrics.partition_metrics import PartitionMetrics
from tierlog.remote.storage.metrics.storage_metrics import StorageMetrics
from tierlog.remote.tier.layouts.aiven import MANIFEST
from tierlog.remote.tier.layouts.kafka import DESCRIPTION
from tierlog.remote.tier.objects.object_keys import PARSERS
from tierlog.runtime.stores.protocol.object_store import ObjectStore, StoredObject
from tierlog.runtime.stores.wrappers.passing_store import Call, PassingStore, answer_bytes

Result = TypeVar("Result")
#: What an object counts as, by the suffix of its key.
_KINDS: Final = {"log": "log", MANIFEST: "manifest", DESCRIPTION: "manifest"}


def counted_by_partition(store: ObjectStore, config: StorageConfig, metrics: StorageMetrics) -> ObjectStore:
    """The store, with its calls counted by partition where the configuration's level of metrics asks for it.

    Outside of all other layers: partitions are taken from keys that are asked for, never from messages, and a read
    counts once, into however many pieces it is cut.
    """
    if config.metrics_recording_level == "INFO":
        return store
    return PartitionStore(store, config.layout, metrics.record_partitions())


class PartitionStore(PassingStore):
    """Passes all calls on, and counts those whose key names a partition.

    Args:
        store: The store behind this one.
        layout: The layout of the store's keys.
        metrics: Where calls are counted.

    Thread safety: that of the store.
    """

    def __init__(self, store: ObjectStore, layout: str, metrics: PartitionMetrics) -> None:
        super().__init__(store)
        self._parse = PARSERS[layout]
        self._metrics = metrics

    def pass_on(self, call: Call, run: Callable[[], Result]) -> Result:
        """See PassingStore. Of a deletion, which names the objects of one segment, the first key tells."""
        found = self._parse(call.key) if call.objects and call.verb != "LIST" else None
        if found is None:
            return run()
        partition = found.topic_id_partition
        self._metrics.add(partition, "store_requests_total", label=call.verb)
        done = run()
        if call.verb == "GET":
            self._metrics.add(partition, "fetch_bytes_total", answer_bytes(done))
        elif isinstance(done, StoredObject):
            kind = _KINDS.get(found.suffix, "indexes")
            self._metrics.add(partition, "upload_objects_total", label=kind)
            self._metrics.add(partition, "upload_bytes_total", done.size_bytes, label=kind)
        return done
