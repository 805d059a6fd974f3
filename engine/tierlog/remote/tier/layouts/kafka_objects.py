"""Our own plain layout, written: each part under Kafka's name for its file, ``segment.json`` last."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from tierlog._native.checksums import crc32c
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata
from tierlog.remote.config import StorageConfig
from tierlog.remote.tier.chunks.encoding import ChunkAssembler
from tierlog.remote.tier.chunks.preallocation import without_preallocation
from tierlog.remote.tier.layouts.kafka import DESCRIPTION
from tierlog.remote.tier.layouts.segment_objects import (
    Removal,
    StoredLog,
    bases_of,
    check_parts,
    require_stored,
)
from tierlog.remote.tier.objects.object_keys import kafka_segment_path
from tierlog.remote.tier.objects.part_suffixes import LOG, PART_SUFFIXES, REMOTE_LOG_INDEX

_VERSION: Final = 1


class KafkaObjects:
    """The objects of one copy under our own layout.

    Args:
        config: The prefix.
        metadata: Of the segment.
        parts: Content of its parts beside the log; TRANSACTION only if the broker gave one. The zeros behind the last
            entry of an index that was allocated ahead are left out.
    """

    needs_checksum = True
    assembler: ChunkAssembler | None = None

    def __init__(
        self, config: StorageConfig, metadata: RemoteLogSegmentMetadata, parts: Mapping[IndexType, bytes]
    ) -> None:
        check_parts(parts)
        self.segment_path = kafka_segment_path(metadata)
        self._base = config.key_prefix + self.segment_path
        self._metadata = metadata
        self._parts = {kind: without_preallocation(kind, parts[kind]) for kind in PART_SUFFIXES if kind in parts}

    @property
    def log_key(self) -> str:
        return f"{self._base}/{self._metadata.start_offset:020d}.log"

    @property
    def description_key(self) -> str:
        return f"{self._base}/{DESCRIPTION}"

    @property
    def log_index_key(self) -> str:
        return f"{self._base}/{self._metadata.start_offset:020d}.{REMOTE_LOG_INDEX}"

    def new_iv(self) -> bytes | None:
        """None: this layout encrypts nothing."""
        return None

    def small_objects(self) -> tuple[tuple[str, bytes], ...]:
        """The indexes, the snapshot and the checkpoint."""
        return tuple((f"{self._base}/{_file_name(kind, self._metadata)}", data) for kind, data in self._parts.items())

    def description(self, log: StoredLog) -> bytes:
        """``segment.json``."""
        if log.crc32c is None:
            raise ValueError("the log's CRC-32C is needed")
        require_stored(log, self._metadata.segment_size_in_bytes, self.log_key)
        partition = self._metadata.topic_id_partition
        members = {
            "version": _VERSION,
            "topic": partition.topic,
            "topicId": str(partition.topic_id),
            "partition": partition.partition,
            "segmentId": str(self._metadata.remote_log_segment_id.id),
            "startOffset": self._metadata.start_offset,
            "endOffset": self._metadata.end_offset,
            "maxTimestampMs": self._metadata.max_timestamp_ms,
            "brokerId": self._metadata.broker_id,
            "eventTimestampMs": self._metadata.event_timestamp_ms,
            "segmentLeaderEpochs": {
                str(epoch): start for epoch, start in sorted(self._metadata.segment_leader_epochs.items())
            },
            "parts": {"log": _part(log.size_bytes, log.crc32c)}
            | {PART_SUFFIXES[kind]: _part(len(data), crc32c(data)) for kind, data in self._parts.items()},
        }
        return json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def kafka_log_index_keys(metadata: RemoteLogSegmentMetadata, key_prefix: str) -> list[str]:
    """Where its entry of the remote log index may be, to be tried in this order; raises as ``kafka_removal``."""
    name = f"{metadata.start_offset:020d}.{REMOTE_LOG_INDEX}"
    return [f"{base}/{name}" for base in bases_of(metadata, kafka_segment_path(metadata), key_prefix)]


def kafka_removal(metadata: RemoteLogSegmentMetadata, key_prefix: str) -> Removal:
    """The keys that a deletion takes away. Raises CorruptObjectError: the segment's custom metadata is damaged."""
    bases = bases_of(metadata, kafka_segment_path(metadata), key_prefix)
    start = f"{metadata.start_offset:020d}"
    names = [f"{start}.{LOG}", f"{start}.{REMOTE_LOG_INDEX}", *(_file_name(kind, metadata) for kind in PART_SUFFIXES)]
    return Removal(
        descriptions=tuple(f"{base}/{DESCRIPTION}" for base in bases),
        others=tuple(f"{base}/{name}" for base in bases for name in names),
    )


def _file_name(kind: IndexType, metadata: RemoteLogSegmentMetadata) -> str:
    """Kafka's: a snapshot is named by the offset behind the segment, the checkpoint by none."""
    if kind is IndexType.LEADER_EPOCH:
        return PART_SUFFIXES[kind]
    offset = metadata.end_offset + 1 if kind is IndexType.PRODUCER_SNAPSHOT else metadata.start_offset
    return f"{offset:020d}.{PART_SUFFIXES[kind]}"


def _part(size_bytes: int, checksum: int) -> dict[str, object]:
    return {"size": size_bytes, "crc32c": f"{checksum:08x}"}
