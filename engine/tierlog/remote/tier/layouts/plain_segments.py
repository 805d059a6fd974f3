"""Segments that the plugin stored as they are, described by six numbers each: a plan of a million of them reads no
manifest again.

A segment is plain where its log is neither compressed nor encrypted, its indexes follow each other, and it has no
footer: a footer has to name the digest of the manifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from tierlog._native.chunks import ChunkIndex
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata
from tierlog.remote.tier.chunks.stored_segment import StoredPart, StoredSegment
from tierlog.remote.tier.layouts.listing import ListedSegment
from tierlog.remote.tier.objects.listed_manifest import PlainNumbers
from tierlog.remote.tier.objects.manifest import INDEX_MEMBERS
from tierlog.remote.tier.objects.object_keys import aiven_segment_path

_KINDS: Final = tuple(INDEX_MEMBERS)
#: ``PlainNumbers`` of a segment.
PLAIN_DTYPE: Final = np.dtype([("chunk_size", "<i4"), ("index_sizes", "<i4", len(_KINDS))])
#: Of a segment that is none.
NOT_PLAIN: Final = (0, (0,) * len(_KINDS))


def plain_numbers(segment: ListedSegment | StoredSegment) -> PlainNumbers:
    """Return the numbers that describe a segment; NOT_PLAIN where they would not."""
    if isinstance(segment, ListedSegment):
        return segment.manifest.plain if segment.manifest.plain and segment.footer_size is None else NOT_PLAIN
    index = segment.chunk_index
    if index is None or segment.layout != "aiven" or segment.footer is not None or segment.transformed:
        return NOT_PLAIN
    sizes = {kind: part.size_bytes for kind, part in segment.parts}
    found = index.original_chunk_size, tuple(sizes.get(kind, -1) for kind in _KINDS)
    places = [(kind, part.position) for kind, part in segment.parts]
    indexes = segment.parts[0][1].key if segment.parts else ""
    made = _parts(indexes, found[1])
    return found if segment.size_bytes and places == [(kind, part.position) for kind, part in made] else NOT_PLAIN


def plain_segment(
    metadata: RemoteLogSegmentMetadata, numbers: PlainNumbers, *, prefix: str, shown: str, last_modified_ms: int
) -> StoredSegment:
    """Describe a plain segment by its numbers, as ``Tier.describe_segment`` does by its manifest.

    Args:
        metadata: Of the segment.
        numbers: Of the segment.
        prefix: What stands before the path of its objects.
        shown: What stands there in messages.
        last_modified_ms: As its listing has it.

    Raises:
        ValueError: the topic's name is none, so that keys would be another segment's.
    """
    chunk_size, sizes = numbers
    size_bytes = metadata.segment_size_in_bytes
    path = aiven_segment_path(metadata)
    return StoredSegment(
        metadata,
        "aiven",
        f"{shown}{path}.log",
        StoredPart(f"{prefix}{path}.log", 0, size_bytes),
        _parts(f"{prefix}{path}.indexes", sizes),
        _chunk_index(chunk_size, size_bytes),
        last_modified_ms=last_modified_ms,
    )


def _parts(key: str, sizes: Sequence[int]) -> tuple[tuple[IndexType, StoredPart], ...]:
    """Return the places of indexes that follow each other."""
    found, position = [], 0
    for kind, size in zip(_KINDS, sizes, strict=True):
        if size >= 0:
            found.append((kind, StoredPart(key, position, size)))
            position += size
    return tuple(found)


@lru_cache(maxsize=64)
def _chunk_index(chunk_size: int, size_bytes: int) -> ChunkIndex:
    """Make the index of chunks that are stored as they are; once for neighbours of one size."""
    return ChunkIndex(
        original_chunk_size=chunk_size,
        original_file_size=size_bytes,
        transformed_chunk_size=chunk_size,
        final_transformed_chunk_size=(size_bytes - 1) % chunk_size + 1,
    )
