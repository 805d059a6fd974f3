"""The bytes of one range of a log, in order, asked for in requests that grow as a reader reads on.

Between two calls a reader can lose everything but its position: its memory is needed elsewhere, or a call failed in the
middle and begins again where it began. The next read fetches anew from there, so that in any case the bytes that it
returns are those of the range, one after another.
"""

from __future__ import annotations

import bisect
import collections
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from tierlog._native.buffers import copy_into
from tierlog.errors import CorruptObjectError
from tierlog.log.checks.segment_walk import SegmentWalk
from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.remote.storage.fetch.chunk_loads import ChunkFetcher, ChunkLoad, ChunkSource
from tierlog.remote.tier.chunks.stored_segment import CHUNKS_TOGETHER_MAX, ChunkView, SegmentLog
from tierlog.runtime.waiting.turns import MemoryBudget
from tierlog.runtime.waiting.waits import Interrupt, Wait, WaitingThreads, Waits


class BatchCheck(SegmentWalk):
    """The check of one fetch: raises CorruptObjectError.

    Args:
        metadata: Of the segment: its offsets and its size.
        position: Of the first byte in the log.
        name: Of the object, for messages.
    """

    def __init__(self, metadata: RemoteLogSegmentMetadata, *, position: int, name: str) -> None:
        super().__init__(
            position=position,
            first_offset=metadata.start_offset,
            last_offset=metadata.end_offset,
            size_bytes=metadata.segment_size_in_bytes,
            name=name,
            kind=CorruptObjectError,
            misplaced_hint=": chunks of another place, or of another segment",
        )


#: Bytes that a broker's fetch reads of a stream, as a rule: a mebibyte, and those that it skips up to the wanted
#: offset.
FIRST_REQUEST_BYTES: Final = (1 << 20) + (64 << 10)
#: Bytes of a request after the reader's memory was revoked: this, or twice what it read of the last one.
SMALL_REQUEST_BYTES: Final = 64 << 10
#: Bytes of a read from a plain log on a disk. A read costs some 70 µs beside its bytes: whole segments came at 4.7 GB/s
#: in pieces of 1 MiB, 6.4 of 2, 7.1 of 3 (one run, in the page cache); a reader that stops early has read one in vain.
_PLAIN_PIECE_BYTES: Final = 2 << 20
#: Bytes of a caller's buffer from which on it is filled from the disk; for less, pieces are read that serve many calls.
_DIRECT_BYTES_MIN: Final = 256 << 10
#: Factor by which a sequential reader's requests grow, up to the configured size.
_GROWTH: Final = 4
#: Share of the memory budget that fetching ahead within a stream leaves to readers that wait for their next bytes.
_AHEAD_SHARE_LEFT: Final = 4

_NOTHING: Final = memoryview(b"")


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The limits of a stream's requests.

    Args:
        request_bytes_max: Of one request.
        timeout_seconds: That one chunk is waited for.
    """

    request_bytes_max: int
    timeout_seconds: float


@dataclass(slots=True)
class _Piece:
    """A part of the range: bytes or the load of them, and its share of the memory budget."""

    source: ChunkSource
    start: int
    end: int
    held_bytes: int


class RangeReader:
    """The bytes of one range of a log, in order, asked for in requests that grow.

    The first request is for as much as a broker takes at a time, so that its bytes come soon and nothing is fetched in
    vain; the next ones are larger. While a reader goes on, the following request is pending before the bytes are
    needed. Nothing is asked for before the first call.

    Args:
        log: The segment's log.
        chunks: Fetches its chunks.
        start: First byte.
        end_exclusive: Behind the last byte; the range is not empty.
        turn: Whose turns go round: the partition.
        is_whole_wanted: The caller named the end: all of it will be read.
        limits: Sizes and times.
        budget: Of the memory of all readers.
        on_progress: Called with the reader's position, and the position up to which chunks were requested, once all of
            the log was requested: before that, this itself fetches ahead. None: not called.
        on_first: Called when the first bytes are there.
        again: The same reader asked for the first chunk just before.
        check: Gets all bytes in order; None for no check.
        threads: Drives waits in the threads that take.
        closing: Of the driver of ``take_waits``; None makes one.

    Attributes:
        position: Of the next byte to return, in the log.
        closing: Ends a reader's wait.

    Thread safety: one thread at a time takes; ``close`` and ``give_up`` come from any.
    """

    def __init__(
        self,
        log: SegmentLog,
        chunks: ChunkFetcher,
        start: int,
        end_exclusive: int,
        *,
        turn: Hashable,
        is_whole_wanted: bool,
        limits: StreamLimits,
        budget: MemoryBudget,
        on_progress: Callable[[int, int], None] | None,
        on_first: Callable[[], None],
        again: bool,
        check: BatchCheck | None,
        threads: WaitingThreads,
        closing: Interrupt | None = None,
    ) -> None:
        self._log = log
        self._chunks = chunks
        self.position = self._requested = self._checked = start
        self._end = end_exclusive
        self._turn = turn
        self._limits = limits
        self._budget = budget
        self._on_progress = on_progress
        self._on_first: Callable[[], None] | None = on_first
        self._again = again
        self._check = check
        self._threads = threads
        self._lock = threads.machine.scheduler.lock()
        self._pieces: collections.deque[_Piece] = collections.deque()
        self._current = _NOTHING
        self._current_held = 0
        self._window = FIRST_REQUEST_BYTES
        self._requests = 0
        self._asked_from = start
        self._is_steady = is_whole_wanted
        self._is_past_cache = not log.segment.transformed and chunks.cache is None
        self._is_busy = self._closed = self._is_resting = False
        self._failure: BaseException | None = None
        self.closing = closing or Interrupt()

    @property
    def left_bytes(self) -> int:
        """Bytes of the range that were not returned yet."""
        return self._end - self.position

    @property
    def is_holding(self) -> bool:
        """Whether memory is held, or asked for."""
        return bool(self._pieces) or self._current_held > 0

    @property
    def requested(self) -> int:
        """The position up to which bytes have been asked for."""
        return self._requested

    def take(self, size_bytes: int) -> memoryview:
        """Take the next bytes, at least one and at most so many, of one chunk; none at the end.

        Raises:
            ValueError: closed. StoreUnavailableError: not there in time. What fetching, opening and checking raise;
            the position stays.
        """
        self._enter()
        try:
            if not self._current and self.position < self._end:
                self._threads.run(self._more(), self.closing)
            return self._taken(size_bytes)
        finally:
            self._leave()

    def take_into(self, out: memoryview) -> int:
        """Take the next bytes into memory of the reader's, at least one, or none at the end; return their number.

        Raises: as ``take``; any byte of ``out`` may have been written.
        """
        self._enter()
        try:
            if self._is_past_cache and not self._current and not self._pieces and self._chunks.reads_directly:
                size = min(len(out), self._end - self.position)
                if size >= _DIRECT_BYTES_MIN or 0 < size == self._end - self.position:
                    return self._read_into(out[:size])
            if not self._current and self.position < self._end:
                self._threads.run(self._more(), self.closing)
            return copy_into(out, self._taken(len(out)))
        finally:
            self._leave()

    def take_waits(self, size_bytes: int) -> Waits[memoryview]:
        """Take like ``take``, for callers that drive the waits otherwise than in a waiting thread."""
        self._enter()
        try:
            if not self._current and self.position < self._end:
                yield from self._more()
            return self._taken(size_bytes)
        finally:
            self._leave()

    def _enter(self) -> None:
        with self._lock:
            if self._closed:
                raise ValueError("the stream is closed")
            if self._is_busy:
                raise ValueError("the stream is being read by another thread")
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            self._is_busy = True
        if self._is_resting:
            self._is_resting = False
            self._budget.wake(self)

    def _leave(self) -> None:
        self._is_busy = False
        if self.is_holding and not self._closed:
            self._is_resting = True
            self._budget.rest(self, RangeReader.give_up)

    def _taken(self, size_bytes: int) -> memoryview:
        taken = self._current[:size_bytes]
        self.position += len(taken)
        if len(taken) < len(self._current):
            self._current = self._current[size_bytes:]
            return taken
        self._current = _NOTHING  # not an empty rest: that would hold the chunk without being counted
        held, self._current_held = self._current_held, 0
        if held:
            self._budget.give_back(held)
        return taken

    # --- getting the next piece ---

    def _more(self) -> Waits[None]:
        """Wait until the bytes of the next piece are there."""
        if not self._pieces:
            yield from self._ask()
        elif self._is_steady and self._requested - self.position < self._window // 2:
            self._ask_ahead()
        with self._lock:
            self._require_open()
            piece = self._pieces[0]
        source = piece.source
        if isinstance(source, memoryview):
            view = source
        else:
            if not source.is_done:
                yield self._chunks.requests.wait_of(source, self._log.name, self._limits.timeout_seconds)
                self._require_open()
            try:
                view = source.result()
            except BaseException:
                self._lose()
                raise
        self._use(piece, view[piece.start : piece.end])

    def _read_into(self, out: memoryview) -> int:
        """Read from the store into the reader's memory, with none between them."""
        self._chunks.read_into(self._log, self.position, out)
        self._check_next(out)
        self._require_open()
        self.position = self._requested = self._asked_from = self.position + len(out)
        self._requests += 1
        self._tell()
        return len(out)

    def _use(self, piece: _Piece, view: memoryview) -> None:
        self._check_next(view)
        with self._lock:
            self._require_open()
            self._pieces.popleft()
            self._current, self._current_held = view, piece.held_bytes
        self._tell()

    def _check_next(self, view: memoryview) -> None:
        """Check the bytes at the position, of which some may have been checked before."""
        if self._check is not None and self.position + len(view) > self._checked:
            try:
                self._check.feed(view[max(0, self._checked - self.position) :])
            except BaseException as error:
                self._failure = error  # the check cannot go back: no bytes of this range are returned any more
                self._lose()
                raise
            self._checked = self.position + len(view)

    def _tell(self) -> None:
        """Call the callbacks: bytes are there."""
        if self._on_first is not None:
            self._on_first()
            self._on_first = None
        if self._on_progress is not None and self._requested >= self._log.size_bytes:
            self._on_progress(self.position, self._requested)  # the next bytes are of another segment

    def _require_open(self) -> None:
        if self._closed:
            raise ValueError("the stream was closed while it was read")

    def _ask(self) -> Waits[None]:
        """Request the next bytes once there is memory for them; nothing is held while that is waited for."""
        start = self._requested
        views = [] if self._is_past_cache else self._views(start)
        wanted = self._plain_bytes(start) if self._is_past_cache else self._memory_of(views)
        least = min(wanted, self._window, FIRST_REQUEST_BYTES) if self._is_past_cache else self._memory_of(views[:1])
        ticket = self._budget.ask(self._turn, least_bytes=least, wanted_bytes=wanted)
        try:
            if not ticket.is_done:
                yield Wait(
                    ticket,
                    self._log.name,
                    "other readers hold all of fetch.memory.max.bytes, and a later try may find some",
                    self._limits.timeout_seconds,
                    lambda: self._budget.granted_at_seconds,
                )
                self._require_open()
        except BaseException:
            self._budget.cancel(ticket)
            raise
        self._request(start, views, ticket.granted_bytes, soon=True)

    def _ask_ahead(self) -> None:
        """Request the bytes behind those that were asked for, if there is memory to spare."""
        start = self._requested
        if start >= self._end:
            return
        views = [] if self._is_past_cache else self._views(start)
        leaving = self._budget.total_bytes // _AHEAD_SHARE_LEFT
        sizes = (
            (self._plain_bytes(start),) if self._is_past_cache else (self._memory_of(views), self._memory_of(views[:1]))
        )
        for size in sizes:
            if self._budget.try_take(size, leaving_bytes=leaving):
                self._request(start, views, size, soon=False)
                return

    def _plain_bytes(self, start: int) -> int:
        most = _PLAIN_PIECE_BYTES if self._chunks.is_local else self._limits.request_bytes_max
        return min(self._window, most, self._end - start)

    def _views(self, start: int) -> list[ChunkView]:
        """Return the chunks of the next request."""
        size = min(max(self._window, 1), self._log.chunk_size * CHUNKS_TOGETHER_MAX)
        end = min(self._end, start + size)
        return self._log.views(start, min(self._end, self._log.chunk_end(end - 1)))

    def _memory_of(self, views: list[ChunkView]) -> int:
        return self._chunks.memory_of(self._log, views)

    def _request(self, start: int, views: list[ChunkView], granted: int, *, soon: bool) -> None:
        """Request as much as the memory is for; the rest of it is released."""
        pieces: list[_Piece]
        if self._is_past_cache:
            end = start + min(granted, self._plain_bytes(start))
            source = self._chunks.request_plain(self._log, start, end, self._turn)
            pieces = [_Piece(source, 0, end - start, end - start)]
            held = end - start
        else:
            views = self._affordable(views, granted)
            sources, lent = self._chunks.request(self._log, views, turn=self._turn, again=self._again, soon=soon)
            self._again = False
            pieces = [_Piece(s, v.start, v.end, v.original_size) for s, v in zip(sources, views, strict=True)]
            end = start + sum(view.end - view.start for view in views)
            held = lent + sum(view.original_size for view in views)
        self._budget.give_back(granted - held)
        with self._lock:
            is_late = self._closed
            if not is_late:
                self._pieces += pieces
        if is_late:
            self._drop(pieces)
            raise ValueError("the stream was closed while it was read")
        self._asked_from = start
        self._requested = end
        self._requests += 1
        if self._requests > 1:
            self._is_steady = True
            self._window = min(self._window * _GROWTH, self._limits.request_bytes_max)

    def _affordable(self, views: list[ChunkView], granted: int) -> list[ChunkView]:
        """Return the first chunks that the granted memory is enough for, one at least."""
        counts = range(1, len(views) + 1)
        return views[: max(1, bisect.bisect_right(counts, granted, key=lambda count: self._memory_of(views[:count])))]

    # --- releasing ---

    def seek(self, position: int) -> None:
        """Go back to a byte that a call took which then failed."""
        if position != self.position:
            self._lose()
            self.position = self._requested = position

    def _lose(self) -> None:
        """Release all but the position."""
        with self._lock:
            pieces, held = self._emptied()
        self._budget.give_back(held)
        self._drop(pieces)

    def _emptied(self) -> tuple[list[_Piece], int]:
        """Empty the reader, while holding the lock; return its pieces and their memory."""
        pieces = list(self._pieces)
        self._pieces.clear()
        held, self._current_held = self._current_held, 0
        self._current = _NOTHING
        self._requested = self.position
        return pieces, held

    def _drop(self, pieces: list[_Piece]) -> None:
        if not pieces:
            return
        under_way: list[ChunkLoad] = [p.source for p in pieces if not isinstance(p.source, memoryview)]
        self._chunks.leave(under_way)
        self._budget.give_back(sum(piece.held_bytes for piece in pieces))

    def give_up(self) -> None:
        """Release all memory, unless this is being read; a later read goes on from its position."""
        with self._lock:
            if self._is_busy or self._closed or not (self._pieces or self._current_held):
                return
            consumed = self.position - self._asked_from
            self._window = max(SMALL_REQUEST_BYTES, min(2 * max(consumed, 0), self._window))
            self._is_steady = False
            self._requests = min(self._requests, 1)
            pieces, held = self._emptied()
        self._budget.give_back(held)
        self._drop(pieces)

    def close(self) -> None:
        """Wake the waiter. Loads that only this reader wants, and no cache would store, are not begun any more, or
        cancelled; others land in the cache. Idempotent.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            pieces, held = self._emptied()
        self.closing.set()
        if self._is_resting:
            self._budget.wake(self)
        self._budget.give_back(held)
        self._drop(pieces)
