"""The figures of a storage manager as the plugin's MBeans have them, for the JVM that asks."""

from __future__ import annotations

from collections.abc import Mapping

from tierlog.remote.storage.storage_metrics import StorageMetrics


def mbeans_of(metrics: StorageMetrics) -> Mapping[str, Mapping[str, float]]:
    """Return the attributes of each MBean, by its object name."""
    found: dict[str, dict[str, float]] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            if not sample.labels:
                found.setdefault("io.tierlog:type=storage-manager", {})[sample.name] = sample.value
    return found
