"""Windows of log bytes: joined ranged reads, several under way, undone side by side into one buffer each."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Final

from tierlog._native.chunks import ChunkIndex
from tierlog.remote.storage.chunks.decoding import UnitReader, fetch_exactly
from tierlog.remote.storage.chunks.key_ring import KeyRing
from tierlog.remote.storage.chunks.ordered_calls import Background
from tierlog.remote.storage.chunks.segment import StoredSegment
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.stores.protocol.object_store import ObjectStore

#: Chunks of one window at most: a hostile manifest may say that a chunk is one byte.
CHUNKS_PER_WINDOW_MAX: Final = 16384

Window = tuple[int, memoryview]


def iter_windows(
    store: ObjectStore,
    key_ring: KeyRing,
    background: Background,
    segment: StoredSegment,
    *,
    start_position: int,
    end_position_exclusive: int,
    window_bytes: int,
    prefetch: int,
) -> Generator[Window]:
    """See ``Tier.iter_log_windows``."""
    if start_position == end_position_exclusive:
        return
    if segment.transformed:
        assert segment.chunk_index is not None
        chunks = ChunkedLog(store, key_ring, segment, segment.chunk_index)
        step = chunks.window_size(window_bytes)
        read = chunks.read
    else:
        step = window_bytes
        read = PlainLog(store, segment).read
    # Memory stays within the windows asked for when one chunk alone is larger than that.
    ahead = min(prefetch, (prefetch + 1) * window_bytes // step)
    pieces = _pieces(start_position, end_position_exclusive, step, aligned=segment.transformed)
    with closing(background.iter_ahead(read, pieces, ahead=ahead)) as windows:
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

    def __init__(self, store: ObjectStore, key_ring: KeyRing, segment: StoredSegment, index: ChunkIndex) -> None:
        self._store = store
        self._segment = segment
        self._index = index
        self._reader = UnitReader(key_ring, segment, segment.name)

    def window_size(self, window_bytes: int) -> int:
        """As many whole chunks as fit, at least one, in untransformed bytes."""
        chunk_size = self._index.original_chunk_size
        return chunk_size * max(1, min(window_bytes // chunk_size, CHUNKS_PER_WINDOW_MAX))

    def read(self, piece: tuple[int, int]) -> Window:
        """The untransformed bytes [start, end) of the log."""
        start, end = piece
        views = self._index.views(start, end)
        first, last = views[0], views[-1]
        base = int(first["transformed_position"])
        object_end = int(last["transformed_position"]) + int(last["transformed_size"])
        log, name = self._segment.log, self._segment.name
        stored = fetch_exactly(self._store, log, name, log.position + base, log.position + object_end)
        out = new_buffer(int(views["original_size"].sum()))
        filled = 0
        for position, stored_size, original_size in zip(
            views["transformed_position"].tolist(),
            views["transformed_size"].tolist(),
            views["original_size"].tolist(),
            strict=True,
        ):
            at = position - base
            self._reader.open_chunk(
                stored[at : at + stored_size], out[filled : filled + original_size], position=log.position + position
            )
            filled += original_size
        skipped = int(first["from"])
        return start, out[skipped : skipped + end - start]
