"""The log of one segment as chunks with numbers: where each lies in its object, and how its bytes come out.

A log that is stored as it is has no chunks of its own: it is cut every mebibyte, so that caches and single flight know
one kind of thing.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Final, NamedTuple

import xxhash

from tierlog._native.chunks import ChunkIndex
from tierlog.errors import CorruptObjectError
from tierlog.remote.tier.chunks.decoding import UnitReader
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.remote.tier.chunks.segment import StoredSegment
from tierlog.runtime.machine.buffers import new_buffer

#: What a log without chunks is cut into.
PIECE_BYTES: Final = 1 << 20
#: Chunks that are read at once, at most: a hostile manifest may say that a chunk is one byte.
CHUNKS_TOGETHER_MAX: Final = 16384
#: Fixed: fingerprints are in the names of files that outlive this Python.
_PICKLE_PROTOCOL: Final = 5


class ChunkView(NamedTuple):
    """One chunk's part of a range, as ``ChunkIndex.views`` gives it; ``position`` is in the object.

    ``until``: only so many bytes of it are wanted, from its start; 0 is all of it.
    """

    number: int
    original_size: int
    start: int
    end: int
    position: int
    stored_size: int
    until: int = 0


class ChunkKey(NamedTuple):
    """A chunk, in caches.

    The object's key alone does not say which: the same key may be copied again with another data key or chunk size,
    and what a cache kept of the first copy is none of the second's. ``fingerprint`` is ``SegmentLog.fingerprint``.
    """

    log_key: str
    number: int
    until: int = 0
    fingerprint: int = 0


@dataclass(frozen=True, slots=True)
class SegmentLog:
    """Where the chunks of a log lie, and what opens them. Made by ``open_log``; any number of threads.

    Attributes:
        segment: Whose log it is.
        index: Where the chunks lie.
        fingerprint: Of how the log is stored: XXH3-64 of its chunk index, compression, wrapped data key and AAD; of a
            log that is stored as it is, its size. The same in every process.
    """

    segment: StoredSegment
    index: ChunkIndex
    reader: UnitReader
    fingerprint: int

    @property
    def name(self) -> str:
        return self.segment.name

    @property
    def size_bytes(self) -> int:
        return self.segment.size_bytes

    @property
    def chunk_size(self) -> int:
        """Original bytes of each chunk but the last."""
        return self.index.original_chunk_size

    def views(self, start: int, end_exclusive: int) -> list[ChunkView]:
        """The chunks of a range, which is not empty.

        Raises:
            CorruptObjectError: a chunk is said to be larger than any way to store it makes it.
        """
        base = self.segment.log.position
        views = [
            ChunkView(number, size, first, last, base + position, stored)
            for number, size, first, last, position, stored in self.index.list_views(start, end_exclusive)
        ]
        for view in views:
            if view.stored_size > _stored_bytes_max(view.original_size):
                text = f"chunk {view.number} of {view.original_size} bytes is said to be stored in {view.stored_size}"
                raise CorruptObjectError(
                    text, fault="OVER_LIMIT", position=view.position, found=view.stored_size, where=self.name
                )
        return views

    def key(self, view: ChunkView) -> ChunkKey:
        return ChunkKey(self.segment.log.key, view.number, view.until, self.fingerprint)

    def chunk_end(self, position: int) -> int:
        """Position where the chunk that holds a position ends."""
        return min((position // self.chunk_size + 1) * self.chunk_size, self.size_bytes)

    def open_chunk(self, stored: memoryview, view: ChunkView) -> memoryview:
        """A stored chunk as the broker's bytes, in memory of its own, or the first ``until`` of them; read-only.

        Raises:
            CorruptObjectError: not authentic, not a zstd frame, or not of its size.
        """
        out = new_buffer(view.original_size)
        self.reader.open_chunk(stored, out, position=view.position, until=view.until)
        return out[: view.until].toreadonly() if view.until else out.toreadonly()


def _stored_bytes_max(original_size: int) -> int:
    """The most that a chunk may be stored in: with what zstd adds to noise, IV and tag, and room."""
    return original_size + original_size // 64 + 4096


def open_log(key_ring: KeyRing, segment: StoredSegment) -> SegmentLog:
    """Raises EncryptionKeyError: no key of the ring opens it."""
    index = segment.chunk_index
    if index is None or not segment.transformed:
        size = segment.size_bytes
        index = ChunkIndex(
            original_chunk_size=PIECE_BYTES,
            original_file_size=size,
            transformed_chunk_size=PIECE_BYTES,
            final_transformed_chunk_size=(size - 1) % PIECE_BYTES + 1 if size else 0,
        )
    return SegmentLog(segment, index, UnitReader(key_ring, segment, segment.name), _fingerprint(segment, index))


def _fingerprint(segment: StoredSegment, index: ChunkIndex) -> int:
    if not segment.transformed:
        return segment.size_bytes
    made = xxhash.xxh3_64(pickle.dumps(index, _PICKLE_PROTOCOL))
    made.update(b"\1" if segment.compression else b"\0")
    if segment.encryption is not None:
        made.update(segment.encryption.wrapped_key)
        made.update(segment.encryption.aad)
    return made.intdigest()
