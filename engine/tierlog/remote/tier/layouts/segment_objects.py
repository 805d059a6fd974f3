"""What a copy of one segment writes, and what a delete takes away: keys, order and content, without a store.

A copy writes the log, then the small objects in their order (and the entry of the remote log index, where that is
asked for), and the description last: without it there is no segment.
A delete takes the description first, so that no reader begins with half a segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tierlog.errors import CorruptObjectError
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata
from tierlog.remote.config import StorageConfig
from tierlog.remote.tier.chunks.encoding import ChunkAssembler
from tierlog.remote.tier.objects.candidate_keys import places_of
from tierlog.remote.tier.objects.custom_metadata import SegmentCustomMetadata, decode_custom_metadata
from tierlog.remote.tier.objects.manifest_writing import INDEX_ORDER

REQUIRED_PARTS = tuple(kind for kind in INDEX_ORDER if kind is not IndexType.TRANSACTION)


@dataclass(frozen=True, slots=True)
class StoredLog:
    """How the log was stored.

    Args:
        size_bytes: Of its object.
        transformed_sizes: Of its chunks as stored, in order; None if they were not compressed.
        crc32c: Of its object, where ``needs_checksum`` asks for it.
    """

    size_bytes: int
    transformed_sizes: Sequence[int] | NDArray[np.int32] | None = None
    crc32c: int | None = None


class SegmentObjects(Protocol):
    """The objects of one copy, under one layout.

    Attributes:
        segment_path: What their keys share, without ``key.prefix``: OBJECT_KEY of the custom metadata.
        assembler: Makes the chunks of the log; None if its object is the file as it is.
        needs_checksum: The description holds a CRC-32C of the log's object.
    """

    segment_path: str
    assembler: ChunkAssembler | None
    needs_checksum: bool

    @property
    def log_key(self) -> str: ...
    @property
    def description_key(self) -> str:
        """Key of the object that marks the segment whole."""

    @property
    def log_index_key(self) -> str:
        """Key of the segment's entry in the remote log index, where that is shipped (``log.index.object.enabled``)."""

    def new_iv(self) -> bytes | None:
        """The IV of one chunk; None where nothing is encrypted. Any number of threads."""

    def small_objects(self) -> tuple[tuple[str, bytes], ...]:
        """(key, content) of the objects that are written between the log and the description, in this order."""

    def description(self, log: StoredLog) -> bytes:
        """Content of the last object.

        Raises:
            SizeLimitError: the format cannot say it. CorruptObjectError: the log's chunks are not those of the segment.
        """


def check_parts(parts: Mapping[IndexType, bytes]) -> None:
    """Raises ValueError where a mandatory part (it may be empty) is missing."""
    for kind in REQUIRED_PARTS:
        if kind not in parts:
            raise ValueError(f"the part {kind.value} is missing: it may be empty, but not absent")


def require_stored(log: StoredLog, expected: int, key: str) -> None:
    """Raises CorruptObjectError if the log's object is not as long as it must be."""
    if log.size_bytes != expected:
        text = f"{log.size_bytes} bytes of the log were stored, {expected} expected"
        raise CorruptObjectError(text, fault="BAD_SIZE", expected=expected, found=log.size_bytes, where=key)


def custom_metadata_of(
    config: StorageConfig, objects: SegmentObjects, *, stored_bytes: int, digest: bytes | None
) -> bytes | None:
    """The custom metadata of a copied segment.

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
    """The most bytes that ``custom_metadata_of`` can give: known before a byte is copied."""
    # No transform doubles what it is given, and indexes are smaller than their log.
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


def bases_of(metadata: RemoteLogSegmentMetadata, segment_path: str, key_prefix: str) -> list[str]:
    """What the keys of a segment begin with, at every place where it may be.

    Raises:
        CorruptObjectError: its custom metadata is damaged.
    """
    custom = decode_custom_metadata(metadata.custom_metadata, where=str(metadata.remote_log_segment_id))
    return [place.base for place in places_of(custom, segment_path, key_prefix)]
