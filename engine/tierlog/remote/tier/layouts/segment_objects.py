"""The objects that a copy of one segment writes, and that a delete removes: keys, order and content, without a store.

A copy writes the log, then the small objects in their order (and the entry of the remote log index and the footer,
where those are asked for), and the description last: without it there is no segment.
A delete takes the description first, so that no reader begins with half a segment.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog._native.checksums import crc32c
from tierlog.errors import CorruptObjectError, SizeLimitError
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata
from tierlog.remote.config import StorageConfig
from tierlog.remote.tier.chunks.chunk_transform import ChunkAssembler
from tierlog.remote.tier.chunks.key_ring import IV_BYTES, UNIT_OVERHEAD_BYTES, SegmentKey
from tierlog.remote.tier.layouts.kafka import DESCRIPTION
from tierlog.remote.tier.objects.custom_metadata import SegmentCustomMetadata, decode_custom_metadata, places_of
from tierlog.remote.tier.objects.footer import FooterBinding, SegmentFooter, encode_footer
from tierlog.remote.tier.objects.json_object import INT32_MAX
from tierlog.remote.tier.objects.manifest import Manifest
from tierlog.remote.tier.objects.manifest_writing import (
    INDEX_ORDER,
    encode_manifest,
    place_indexes,
    stored_chunk_index,
)
from tierlog.remote.tier.objects.object_keys import (
    FOOTER,
    LOG,
    PART_SUFFIXES,
    REMOTE_LOG_INDEX,
    aiven_segment_path,
    kafka_segment_path,
)
from tierlog.remote.tier.objects.segment_bounds import without_preallocation
from tierlog.runtime.machine.randomness import Rng

REQUIRED_PARTS = tuple(kind for kind in INDEX_ORDER if kind is not IndexType.TRANSACTION)


@dataclass(frozen=True, slots=True)
class StoredLog:
    """The log as it was stored.

    Args:
        size_bytes: Of its object.
        transformed_sizes: Of its chunks as stored, in order; None if they were not compressed.
        crc32c: Of its object, where ``needs_checksum`` asks for it.
    """

    size_bytes: int
    transformed_sizes: Sequence[int] | NDArray[np.int32] | None = None
    crc32c: int | None = None


class ObjectKeys(NamedTuple):
    """The keys of one segment's objects, behind the part that all of them share.

    Args:
        log: Key of the log.
        description: Key of the object that marks the segment whole.
        log_index: Key of its entry in the remote log index, where that is shipped (``log.index.object.enabled``).
        footer: Key of its footer, where it has one (``footer.object.enabled``).
        others: Keys of what else a copy may have stored.
    """

    log: str
    description: str
    log_index: str
    footer: str
    others: tuple[str, ...]


class SegmentObjects(ABC):
    """The objects of one copy, under one layout.

    Args:
        config: The prefix.
        segment_path: What their keys share, without ``key.prefix``: OBJECT_KEY of the custom metadata.
        keys: Of its objects.
        metadata: Of the segment.
        parts: Content of its parts beside the log; TRANSACTION only if the broker gave one.

    Attributes:
        assembler: Makes the chunks of the log; None if its object is the file as it is.
        needs_checksum: The description holds a CRC-32C of the log's object.

    Raises:
        ValueError: a mandatory part (it may be empty) is missing.
    """

    assembler: ChunkAssembler | None = None
    needs_checksum = False

    def __init__(
        self,
        config: StorageConfig,
        segment_path: str,
        keys: ObjectKeys,
        metadata: RemoteLogSegmentMetadata,
        parts: Mapping[IndexType, bytes],
    ) -> None:
        for kind in REQUIRED_PARTS:
            if kind not in parts:
                raise ValueError(f"the part {kind.value} is missing: it may be empty, but not absent")
        self.segment_path = segment_path
        self._base = config.key_prefix + segment_path
        self._metadata = metadata
        self.log_key = self._base + keys.log
        self.description_key = self._base + keys.description
        self.log_index_key = self._base + keys.log_index
        self.footer_key = self._base + keys.footer

    def new_iv(self) -> bytes | None:
        """Return the IV of one chunk; None where nothing is encrypted. Any number of threads."""
        return None

    def footer(self, footer: SegmentFooter, description: bytes) -> bytes:
        """Content of the footer's object.

        Args:
            footer: Made of all of the log.
            description: Content of the last object.

        Raises:
            ValueError: the footer is of a log of another size.
        """
        metadata = self._metadata
        digest = hashlib.sha256(description).digest()
        binding = FooterBinding(metadata.remote_log_segment_id.id, metadata.segment_size_in_bytes, digest)
        return encode_footer(footer, binding, seal=self._sealed if self.is_encrypted else None)

    @property
    def is_encrypted(self) -> bool:
        """Whether all parts of the segment are encrypted."""
        return False

    def _sealed(self, plain: Buffer) -> bytes:
        """Return an index, or a part of the footer, as stored: never compressed, and an empty one has no shell."""
        return bytes(plain)

    @abstractmethod
    def small_objects(self) -> tuple[tuple[str, bytes], ...]:
        """Return (key, content) of the objects that are written between the log and the description, in this order."""

    @abstractmethod
    def description(self, log: StoredLog) -> bytes:
        """Content of the last object.

        Raises:
            SizeLimitError: the format cannot say it. CorruptObjectError: the log's chunks are not those of the segment.
        """

    def _require_stored(self, log: StoredLog, expected: int) -> None:
        """Raise CorruptObjectError if the log's object is not as long as it must be."""
        if log.size_bytes != expected:
            text = f"{log.size_bytes} bytes of the log were stored, {expected} expected"
            raise CorruptObjectError(
                text, fault="BAD_SIZE", expected=expected, found=log.size_bytes, where=self.log_key
            )


def custom_metadata_of(
    config: StorageConfig, objects: SegmentObjects, *, stored_bytes: int, digest: bytes | None
) -> bytes | None:
    """Return the custom metadata of a copied segment.

    Args:
        config: Says which fields.
        objects: Of the segment.
        stored_bytes: Of all its objects; before the copy, the most that they can be.
        digest: SHA-256 of the description; not used unless ``manifest.digest.enabled``.

    Returns:
        None for nothing.
    """
    return SegmentCustomMetadata.of(
        config.custom_metadata_fields_include,
        remote_size=stored_bytes,
        object_prefix=config.key_prefix,
        object_key=objects.segment_path,
        digest=digest if config.manifest_digest_enabled else None,
    ).encode()


def largest_custom_metadata_bytes(
    config: StorageConfig, objects: SegmentObjects, metadata: RemoteLogSegmentMetadata
) -> int:
    """Return the most bytes that ``custom_metadata_of`` can give: known before a byte is copied."""
    # No transform doubles its input, and indexes are smaller than their log.
    bound = 4 * metadata.segment_size_in_bytes + (64 << 20)
    return len(custom_metadata_of(config, objects, stored_bytes=bound, digest=bytes(32)) or b"")


@dataclass(frozen=True, slots=True)
class Removal:
    """All keys that a copy of a segment may have left, in the order in which they go.

    Args:
        descriptions: First, all of them: then no reader finds the segment.
        others: The rest, in any order.
    """

    descriptions: tuple[str, ...]
    others: tuple[str, ...]


_INDEXES: Final = ".indexes"
_KAFKA_VERSION: Final = 1
_AIVEN_KEYS: Final = ObjectKeys(f".{LOG}", ".rsm-manifest", f".{REMOTE_LOG_INDEX}", f".{FOOTER}", (_INDEXES,))


class AivenObjects(SegmentObjects):
    """The plugin's three objects: the log in chunks, the indexes one behind the other, the manifest.

    Args:
        config: Chunk size, level, prefix.
        metadata: Of the segment.
        parts: Content of its parts beside the log; TRANSACTION only if the broker gave one, empty or not.
        compression: Of this segment: the heuristic may have said no.
        segment_key: None to store it in the clear.
        rng: For IVs.

    Raises:
        SizeLimitError: its indexes are too large for the format.
    """

    def __init__(
        self,
        config: StorageConfig,
        metadata: RemoteLogSegmentMetadata,
        parts: Mapping[IndexType, bytes],
        *,
        compression: bool,
        segment_key: SegmentKey | None,
        rng: Rng,
    ) -> None:
        super().__init__(config, aiven_segment_path(metadata), _AIVEN_KEYS, metadata, parts)
        self._chunk_size = config.chunk_size
        self._compression = compression
        self._encryption = None if segment_key is None else segment_key.encryption
        self._rng = rng
        if compression or segment_key is not None:
            self.assembler = ChunkAssembler(
                original_chunk_size=config.chunk_size,
                original_file_size=metadata.segment_size_in_bytes,
                compression_level=config.compression_level if compression else None,
                data_key=None if segment_key is None else segment_key.data_key,
                aad=None if segment_key is None else segment_key.encryption.aad,
            )
        units = [(kind, self._sealed(parts[kind])) for kind in INDEX_ORDER if kind in parts]
        self._indexes = b"".join(unit for _, unit in units)
        if len(self._indexes) > INT32_MAX:
            text = f"indexes of {len(self._indexes)} bytes in all: the format allows {INT32_MAX}"
            raise SizeLimitError(
                text, fault="OVER_LIMIT", expected=INT32_MAX, found=len(self._indexes), where=self._base + _INDEXES
            )
        self._placed = place_indexes((kind, len(unit)) for kind, unit in units)

    def new_iv(self) -> bytes | None:
        """Random: 2^32 of them under one key are the limit, which 2^31 bytes of log cannot reach."""
        return None if self._encryption is None else self._rng.secret_bytes(IV_BYTES)

    @property
    def is_encrypted(self) -> bool:
        return self._encryption is not None

    def _sealed(self, plain: Buffer) -> bytes:
        content = bytes(plain)
        iv = self.new_iv() if content else None
        if iv is None or self.assembler is None:
            return content
        unit = bytearray(len(content) + UNIT_OVERHEAD_BYTES)
        self.assembler.seal(content, unit, iv=iv)
        return bytes(unit)

    def small_objects(self) -> tuple[tuple[str, bytes], ...]:
        """Return the indexes object, empty or not."""
        return ((self._base + _INDEXES, self._indexes),)

    def description(self, log: StoredLog) -> bytes:
        """Return the manifest."""
        if (log.transformed_sizes is not None) != self._compression:
            raise ValueError("chunk sizes come with compressed chunks, and only with them")
        chunk_index = stored_chunk_index(
            original_chunk_size=self._chunk_size,
            original_file_size=self._metadata.segment_size_in_bytes,
            encrypted=self._encryption is not None,
            transformed_sizes=log.transformed_sizes,
        )
        self._require_stored(log, chunk_index.object_size_bytes)
        return encode_manifest(Manifest(chunk_index, self._placed, self._compression, self._encryption, self._metadata))


class KafkaObjects(SegmentObjects):
    """Our own plain layout: each part under Kafka's name for its file, ``segment.json`` last.

    The zeros behind the last entry of an index that was allocated ahead are left out.
    """

    needs_checksum = True

    def __init__(
        self, config: StorageConfig, metadata: RemoteLogSegmentMetadata, parts: Mapping[IndexType, bytes]
    ) -> None:
        super().__init__(config, kafka_segment_path(metadata), _kafka_keys(metadata), metadata, parts)
        self._parts = {kind: without_preallocation(kind, parts[kind]) for kind in PART_SUFFIXES if kind in parts}

    def small_objects(self) -> tuple[tuple[str, bytes], ...]:
        """Return the indexes, the snapshot and the checkpoint."""
        return tuple((self._base + _part_key(kind, self._metadata), data) for kind, data in self._parts.items())

    def description(self, log: StoredLog) -> bytes:
        """``segment.json``."""
        if log.crc32c is None:
            raise ValueError("the log's CRC-32C is needed")
        self._require_stored(log, self._metadata.segment_size_in_bytes)
        partition = self._metadata.topic_id_partition
        members = {
            "version": _KAFKA_VERSION,
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


def _kafka_keys(metadata: RemoteLogSegmentMetadata) -> ObjectKeys:
    start = f"/{metadata.start_offset:020d}"
    others = tuple(_part_key(kind, metadata) for kind in PART_SUFFIXES)
    return ObjectKeys(f"{start}.{LOG}", f"/{DESCRIPTION}", f"{start}.{REMOTE_LOG_INDEX}", f"{start}.{FOOTER}", others)


def _part_key(kind: IndexType, metadata: RemoteLogSegmentMetadata) -> str:
    """Return Kafka's key of a part: a snapshot is named by the offset behind the segment, the checkpoint by none."""
    if kind is IndexType.LEADER_EPOCH:
        return f"/{PART_SUFFIXES[kind]}"
    offset = metadata.end_offset + 1 if kind is IndexType.PRODUCER_SNAPSHOT else metadata.start_offset
    return f"/{offset:020d}.{PART_SUFFIXES[kind]}"


def _part(size_bytes: int, checksum: int) -> dict[str, object]:
    return {"size": size_bytes, "crc32c": f"{checksum:08x}"}


def plan_objects(
    config: StorageConfig,
    metadata: RemoteLogSegmentMetadata,
    parts: Mapping[IndexType, bytes],
    *,
    compression: bool,
    segment_key: SegmentKey | None,
    rng: Rng,
) -> SegmentObjects:
    """Plan the objects that a copy of a segment writes, under the configured layout."""
    if config.layout == "kafka":
        return KafkaObjects(config, metadata, parts)
    return AivenObjects(config, metadata, parts, compression=compression, segment_key=segment_key, rng=rng)


def plan_removal(config: StorageConfig, metadata: RemoteLogSegmentMetadata) -> Removal:
    """Plan the keys that a deletion, or a failed copy, removes.

    Raises:
        CorruptObjectError: the segment's custom metadata is damaged.
    """
    bases, keys = _places(config, metadata)
    return Removal(
        descriptions=tuple(base + keys.description for base in bases),
        others=tuple(base + key for base in bases for key in (keys.log, *keys.others, keys.log_index, keys.footer)),
    )


def optional_keys(config: StorageConfig, metadata: RemoteLogSegmentMetadata) -> list[str]:
    """Return the keys of the objects that a copy stores because a key of the configuration asks for them. Raises as
    ``plan_removal``.
    """
    bases, keys = _places(config, metadata)
    asked = ((keys.log_index, config.log_index_object_enabled), (keys.footer, config.footer_object_enabled))
    return [base + key for base in bases for key, enabled in asked if enabled]


def log_index_keys(config: StorageConfig, metadata: RemoteLogSegmentMetadata) -> list[str]:
    """Return the keys of a segment's entry in the remote log index, to be tried in order. Raises as
    ``plan_removal``.
    """
    bases, keys = _places(config, metadata)
    return [base + keys.log_index for base in bases]


def _places(config: StorageConfig, metadata: RemoteLogSegmentMetadata) -> tuple[list[str], ObjectKeys]:
    """Return the beginnings of a segment's keys, at every place where it may be, and the rest of the keys."""
    is_kafka = config.layout == "kafka"
    path = kafka_segment_path(metadata) if is_kafka else aiven_segment_path(metadata)
    custom = decode_custom_metadata(metadata.custom_metadata, where=str(metadata.remote_log_segment_id))
    bases = [place.base for place in places_of(custom, path, config.key_prefix)]
    return bases, _kafka_keys(metadata) if is_kafka else _AIVEN_KEYS
