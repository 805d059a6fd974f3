"""The log of one segment as chunks with numbers: where each lies in its object, and how its bytes come out.

A log that is stored as it is has no chunks of its own: it is cut every mebibyte, so that caches and single flight know
one kind of thing.
"""

from __future__ import annotations

import pickle
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple

import xxhash

from tierlog._native.chunks import ChunkIndex
from tierlog.errors import CorruptObjectError
from tierlog.remote.tier.chunks.chunk_transform import UnitReader, fetch_exactly
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.remote.tier.chunks.segment import StoredSegment
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.waiting.threads import OrderedCalls

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


Window = tuple[int, memoryview]


def iter_windows(
    store: ObjectStore,
    key_ring: KeyRing,
    calls: OrderedCalls,
    segment: StoredSegment,
    *,
    start_position: int,
    end_position_exclusive: int,
    window_bytes: int,
    prefetch: int,
) -> Generator[Window]:
    """The windows of ``Tier.iter_log_windows``, which says what they are and what they raise."""
    if start_position == end_position_exclusive:
        return
    if segment.transformed:
        chunks = ChunkedLog(store, open_log(key_ring, segment))
        step = chunks.window_size(window_bytes)
        read = chunks.read
    else:
        step = window_bytes
        read = PlainLog(store, segment).read
    # Memory stays within the windows asked for when one chunk alone is larger than that.
    ahead = min(prefetch, (prefetch + 1) * window_bytes // step)
    pieces = _pieces(start_position, end_position_exclusive, step, aligned=segment.transformed)
    with closing(calls.iter_ahead(read, pieces, ahead=ahead)) as windows:
        yield from windows


def _pieces(start: int, end_exclusive: int, step: int, *, aligned: bool) -> Iterator[tuple[int, int]]:
    """[start, end) cut every ``step`` bytes; aligned: at multiples of it, so that no chunk is read twice."""
    at = start
    while at < end_exclusive:
        following = min((at // step + 1) * step if aligned else at + step, end_exclusive)
        yield at, following
        at = following


class PlainLog:
    """A log that is stored as it is: the GET's buffer is the window."""

    def __init__(self, store: ObjectStore, segment: StoredSegment) -> None:
        self._store = store
        self._segment = segment

    def read(self, piece: tuple[int, int]) -> Window:
        """The bytes [start, end) of the log."""
        log = self._segment.log
        start, end = piece
        found = fetch_exactly(self._store, log, self._segment.name, log.position + start, log.position + end)
        return start, found


class ChunkedLog:
    """A log of transformed chunks: one GET for a run of them, then each into its place."""

    def __init__(self, store: ObjectStore, log: SegmentLog) -> None:
        self._store = store
        self._log = log

    def window_size(self, window_bytes: int) -> int:
        """As many whole chunks as fit, at least one, in untransformed bytes."""
        chunk_size = self._log.chunk_size
        return chunk_size * max(1, min(window_bytes // chunk_size, CHUNKS_TOGETHER_MAX))

    def read(self, piece: tuple[int, int]) -> Window:
        """The untransformed bytes [start, end) of the log; the last chunk is decompressed no further than that."""
        log, (start, end) = self._log, piece
        views = log.views(start, end)
        base, last = views[0].position, views[-1]
        stored = fetch_exactly(self._store, log.segment.log, log.name, base, last.position + last.stored_size)
        out = new_buffer(sum(view.original_size for view in views))
        filled = 0
        for view in views:
            at = view.position - base
            log.reader.open_chunk(
                stored[at : at + view.stored_size],
                out[filled : filled + view.original_size],
                position=view.position,
                until=view.end if view.end < view.original_size else 0,
            )
            filled += view.original_size
        skipped = views[0].start
        return start, out[skipped : skipped + end - start]
