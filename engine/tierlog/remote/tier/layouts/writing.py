"""The layout that a configuration writes."""

from __future__ import annotations

from collections.abc import Mapping

from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata
from tierlog.remote.config import StorageConfig
from tierlog.remote.tier.chunks.key_ring import SegmentKey
from tierlog.remote.tier.layouts.aiven_objects import AivenObjects, aiven_log_index_keys, aiven_removal
from tierlog.remote.tier.layouts.kafka_objects import KafkaObjects, kafka_log_index_keys, kafka_removal
from tierlog.remote.tier.layouts.segment_objects import Removal, SegmentObjects
from tierlog.runtime.machine.randomness import Rng


def plan_objects(
    config: StorageConfig,
    metadata: RemoteLogSegmentMetadata,
    parts: Mapping[IndexType, bytes],
    *,
    compression: bool,
    segment_key: SegmentKey | None,
    rng: Rng,
) -> SegmentObjects:
    """The objects that a copy of a segment writes, under the configured layout."""
    if config.layout == "kafka":
        return KafkaObjects(config, metadata, parts)
    return AivenObjects(config, metadata, parts, compression=compression, segment_key=segment_key, rng=rng)


def plan_removal(config: StorageConfig, metadata: RemoteLogSegmentMetadata) -> Removal:
    """The keys that a deletion, or a failed copy, takes away. Raises CorruptObjectError as ``bases_of``."""
    return (kafka_removal if config.layout == "kafka" else aiven_removal)(metadata, config.key_prefix)


def log_index_keys(config: StorageConfig, metadata: RemoteLogSegmentMetadata) -> list[str]:
    """The keys of a segment's entry in the remote log index, to be tried in order. Raises as ``bases_of``."""
    return (kafka_log_index_keys if config.layout == "kafka" else aiven_log_index_keys)(metadata, config.key_prefix)
