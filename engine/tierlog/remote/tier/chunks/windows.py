"""Windows of log bytes for scans: joined ranged reads, several under way, opened side by side into one buffer each.

Fetches read the same chunks by the same ``SegmentLog``, in another order of work (decision 0011).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing

from tierlog.remote.tier.chunks.decoding import fetch_exactly
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.remote.tier.chunks.ordered_calls import OrderedCalls
from tierlog.remote.tier.chunks.segment import StoredSegment
from tierlog.remote.tier.chunks.segment_log import CHUNKS_TOGETHER_MAX, SegmentLog, open_log
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.stores.protocol.object_store import ObjectStore

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
