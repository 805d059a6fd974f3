"""The bytes of one range of a log, in order, asked for in requests that grow as a reader reads on."""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tierlog.remote.storage.batch_check import BatchCheck
from tierlog.remote.storage.chunk_fetch import ChunkFetcher
from tierlog.remote.storage.chunk_runs import CHUNKS_PER_REQUEST_MAX, ChunkFlight
from tierlog.remote.storage.prefetch import ByteBudget
from tierlog.remote.storage.segment_log import PIECE_BYTES, SegmentLog
from tierlog.remote.storage.single_flight import Flight, late_error
from tierlog.runtime.cancelling import CancelScope
from tierlog.runtime.machine import Machine
from tierlog.runtime.scheduling import Future

#: What a broker's fetch takes of a stream, as a rule: a mebibyte, and what it skips up to the offset that is wanted.
FIRST_REQUEST_BYTES: Final = (1 << 20) + (64 << 10)
#: Of a log that lies on a disk as it is. A read costs some 70 µs beside its bytes: whole segments came at 4.7 GB/s in
#: pieces of 1 MiB, 6.4 of 2, 7.1 of 3 (one run, in the page cache); who stops early has read one for nothing.
_PLAIN_PIECE_BYTES: Final = 2 << 20
#: A reader who goes on gets requests so many times larger than the last, up to the configured size.
_GROWTH: Final = 4


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How a stream asks.

    Args:
        request_bytes_max: Of one request.
        timeout_seconds: That one chunk is waited for.
    """

    request_bytes_max: int
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class _Deferred:
    """A read in the thread of who wants it."""

    chunks: ChunkFetcher
    log: SegmentLog
    start: int
    end: int

    def __call__(self) -> memoryview:
        return self.chunks.fetch_plain(self.log, self.start, self.end)


@dataclass(slots=True)
class _Piece:
    """A part of the range: bytes, the flight or the future of them, or how to get them."""

    source: memoryview | ChunkFlight | Future[memoryview] | _Deferred
    start: int
    end: int


class RangeReader:
    """Gets the bytes of one range of a log, in order, in requests that grow.

    The first request is for as much as a broker takes at a time, so that its bytes come soon and nothing is fetched in
    vain; the next ones are larger. While a reader goes on, the following request is under way before she needs it.

    Args:
        log: Of the segment.
        chunks: Fetches.
        start: First byte.
        end_exclusive: Behind the last; the range is not empty.
        is_whole_wanted: The caller named the end: all of it will be read.
        limits: Sizes and times.
        budget: Of all readers, for what goes beyond one chunk.
        on_progress: Told where the reader is, and up to where this has asked, once all of the log was asked for:
            before that, this itself asks ahead.
        again: The same reader asked for the first chunk just before.
        check: Told of all bytes in order; None for no check.
        machine: Its clock and locks.
    """

    def __init__(
        self,
        log: SegmentLog,
        chunks: ChunkFetcher,
        start: int,
        end_exclusive: int,
        *,
        is_whole_wanted: bool,
        limits: StreamLimits,
        budget: ByteBudget,
        on_progress: Callable[[int, int], None],
        again: bool,
        check: BatchCheck | None,
        machine: Machine,
    ) -> None:
        self._log = log
        self._chunks = chunks
        self._position = self._requested = start
        self._end = end_exclusive
        self._limits = limits
        self._budget = budget
        self._on_progress = on_progress
        self._again = again
        self._check = check
        self._changed = machine.scheduler.condition()
        self._clock = machine.clock
        self._pieces: collections.deque[_Piece] = collections.deque()
        self._window = FIRST_REQUEST_BYTES
        self._requests = 0
        self._is_steady = is_whole_wanted
        self._granted = 0
        self._is_past_cache = not log.segment.transformed and chunks.cache is None
        self._scope = CancelScope(machine.scheduler)
        self._awaited: _Piece | None = None
        self._closed = False

    @property
    def requested(self) -> int:
        """Up to where this has asked."""
        return self._requested

    def next_view(self) -> memoryview | None:
        """The bytes of the next chunk, or what of it belongs to the range; None at the end."""
        if self._position >= self._end:
            return None
        self._require_open()
        is_low = self._is_steady and self._requested - self._position < self._window // 2
        if not self._pieces or is_low:
            self._request()
        with self._changed:
            self._require_open()
            piece = self._awaited = self._pieces.popleft()
        view = self._wait(piece)[piece.start : piece.end]
        self._awaited = None
        if self._check is not None:
            self._check.feed(view)
        self._position += len(view)
        self._give_back(len(view))
        if self._requested >= self._log.size_bytes:
            self._on_progress(self._position - len(view), self._requested)  # what comes next is of another segment
        return view

    def _request(self) -> None:
        """Ask for what comes next."""
        start = self._requested
        if start >= self._end:
            return
        end = min(self._end, start + self._size_of_request())
        if self._is_past_cache:
            self._request_plain(start, end)
        else:
            end = min(self._end, self._log.chunk_end(end - 1))
            views = self._log.views(start, end)
            sources = self._chunks.request(self._log, views, is_wanted=self._is_open, again=self._again)
            self._again = False
            self._add([_Piece(s, v.start, v.end) for s, v in zip(sources, views, strict=True)])
        self._requested = end
        self._requests += 1
        self._is_steady |= self._requests > 1
        if self._requests > 1:
            self._window = min(self._window * _GROWTH, self._limits.request_bytes_max)

    def _size_of_request(self) -> int:
        """The window, or one chunk if all readers together have too much under way."""
        unit = FIRST_REQUEST_BYTES if self._requests == 0 else max(self._log.chunk_size, PIECE_BYTES)
        wanted = min(max(self._window, unit), self._log.chunk_size * CHUNKS_PER_REQUEST_MAX)
        if self._requests == 0:
            return wanted
        granted = self._budget.take(wanted)
        with self._changed:
            if self._closed:
                self._budget.give_back(granted)
            else:
                self._granted += granted
        return max(granted // unit * unit, unit)

    def _request_plain(self, start: int, end: int) -> None:
        """A log that is stored as it is needs no chunks, and on a disk no threads: exactly the bytes, as they lie."""
        if not self._chunks.is_local:
            self._add([_Piece(self._chunks.start_plain(self._log, start, end, self._scope), 0, end - start)])
            return
        for at in range(start, end, _PLAIN_PIECE_BYTES):
            until = min(at + _PLAIN_PIECE_BYTES, end)
            self._add([_Piece(_Deferred(self._chunks, self._log, at, until), 0, until - at)])

    def _add(self, pieces: list[_Piece]) -> None:
        with self._changed:
            if not self._closed:
                self._pieces += pieces
                return
        self._drop(pieces)

    def _wait(self, piece: _Piece) -> memoryview:
        source = piece.source
        if isinstance(source, memoryview):
            return source
        if isinstance(source, _Deferred):
            return source()
        if isinstance(source, Flight):
            source = source.future
        if not source.done():
            source.add_done_callback(self._wake)
            deadline = self._clock.monotonic_seconds() + self._limits.timeout_seconds
            with self._changed:
                while not source.done() and not self._closed:
                    left = deadline - self._clock.monotonic_seconds()
                    if left <= 0 or not self._changed.wait(left):
                        break
        self._require_open()
        if not source.done():
            with self._changed:
                self._pieces.appendleft(piece)
                self._awaited = None
            raise late_error(self._log.name, self._limits.timeout_seconds)
        return source.result()

    def _is_open(self) -> bool:
        return not self._closed

    def _require_open(self) -> None:
        if self._closed:
            raise ValueError("the stream was closed while it was read")

    def _wake(self, _: object) -> None:
        with self._changed:
            self._changed.notify_all()

    def _give_back(self, size_bytes: int) -> None:
        with self._changed:
            returned = min(size_bytes, self._granted)
            self._granted -= returned
        self._budget.give_back(returned)

    def close(self) -> None:
        """Wake who waits. What only this reader asked for, and no cache would keep, is not begun any more, or ended at
        once; what a cache keeps lands there.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
            pieces = [*([self._awaited] if self._awaited is not None else []), *self._pieces]
            self._pieces.clear()
            granted, self._granted = self._granted, 0
        self._budget.give_back(granted)
        self._drop(pieces)

    def _drop(self, pieces: list[_Piece]) -> None:
        self._chunks.leave(piece.source for piece in pieces if isinstance(piece.source, Flight))
        for piece in pieces:
            if not isinstance(piece.source, memoryview | _Deferred | Flight):
                piece.source.cancel()
        self._scope.cancel()
