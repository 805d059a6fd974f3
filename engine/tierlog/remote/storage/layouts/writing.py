"""The layout that a configuration writes."""

from __future__ import annotations

from collections.abc import Mapping

from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata
from tierlog.remote.storage.chunks.key_ring import SegmentKey
from tierlog.remote.storage.config import StorageConfig
from tierlog.remote.storage.layouts.aiven_objects import AivenObjects, aiven_log_index_keys, aiven_removal
from tierlog.remote.storage.layouts.kafka_objects import KafkaObjects, kafka_log_index_keys, kafka_removal
from tierlog.remote.storage.layouts.segment_objects import Removal, SegmentObjects
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
    """What a copy of a segment writes: see AivenObjects and KafkaObjects."""
    if config.layout == "kafka":
        return KafkaObjects(config, metadata, parts)
    return AivenObjects(config, metadata, parts, compression=compression, segment_key=segment_key, rng=rng)


def plan_removal(config: StorageConfig, metadata: RemoteLogSegmentMetadata) -> Removal:
    """What a delete of a segment takes away, and a copy that failed. Raises CorruptObjectError: see ``bases_of``."""
    return (kafka_removal if config.layout == "kafka" else aiven_removal)(metadata, config.key_prefix)


def log_index_keys(config: StorageConfig, metadata: RemoteLogSegmentMetadata) -> list[str]:
    """Where a segment's entry of the remote log index may be. Raises CorruptObjectError: see ``bases_of``."""
    return (kafka_log_index_keys if config.layout == "kafka" else aiven_log_index_keys)(metadata, config.key_prefix)
