"""Batches of segments from an offset on, as they lie in their logs: where they begin, and up to where they are sent.

The position comes from where the reader's last read ended, or from the offset index; headers are walked from there to
the batch that holds the offset (Kafka RemoteLogManager#findFirstBatch, LogSegment#translateOffset). What follows is
cut at the bytes that are wanted, as Kafka cuts it, and exactly where what counts ends: a batch of an abandoned branch,
or of an open transaction, is never sent, not even in part. Whole batches are checked before they are sent; the last
one, where the cut is in its midst, is not: clients drop it, and the next read begins with it. A checksum is compared
once, and remembered for as long as the bytes are the same.
"""

from __future__ import annotations

import contextlib
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from tierlog._native.batches import BatchWalk, RangeCheck, walk_batches
from tierlog._native.buffers import copy_into
from tierlog._native.indexes import lookup_offset
from tierlog.errors import CorruptDataError, CorruptIndexError, CorruptRecordError, SizeLimitError
from tierlog.log.fetch_data import FetchDataInfo
from tierlog.records.batch_runs import BATCH_SIZE_BYTES_MAX
from tierlog.records.batch_table import HEADER_BYTES
from tierlog.remote.manager.log_source import Log, LogSource, SourceLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.machine.scheduling import Lock
from tierlog.runtime.waiting.file_part import FilePart
from tierlog.runtime.waiting.waits import Waits

#: Bytes that are read beyond the wanted ones: an index entry is a few KiB before the wanted batch, as a rule. If it is
#: farther away, an answer is shorter.
_SLACK_BYTES: Final = 16 << 10
#: The most that one read gives, whatever is asked for: an event loop walks over its headers.
MOST_BYTES: Final = 16 << 20
#: A view of less than this part of a chunk is copied.
_LEAN_PART: Final = 8
#: Where no index has the position, reads of the search grow up to this.
_SEARCH_BYTES: Final = 4 << 20
#: Bytes that are checked at once, of batches that are passed over.
_PASSED_BYTES: Final = 1 << 20
#: The least that is read of a log: some headers.
_LEAST_BYTES: Final = 4 << 10
#: Readers that are remembered: the connections of a server, some partitions each.
_HINTS_MAX: Final = 16384
#: So much is checked by an event loop's thread too: 0.04 ms a mebibyte in memory, 0.15 of a file.
AT_ONCE_BYTES_MAX: Final = 2 << 20
#: Ranges of each chunk or file that are remembered.
_RANGES_MAX: Final = 16
Fault = tuple[str, CorruptDataError]
FoundBatches = FetchDataInfo[memoryview | FilePart]
Segment = TypeVar("Segment")


class DamagedBatchError(Exception):
    """The first batch that could be sent is damaged, as its only argument says; no search from elsewhere helps."""


class UnsoundBatch(NamedTuple):
    """The first batch of a range that is damaged.

    Attributes:
        position: Of its first byte in the log.
        offset: Behind the last offset in front of it.
        error: Its fault, and the place.
    """

    position: int
    offset: int
    error: CorruptDataError


class SoundRanges:
    """Disjoint ranges of positions, of which the oldest are forgotten when there are too many. Any number of threads;
    of two that add at once one may be forgotten.
    """

    __slots__ = ("_borders",)

    def __init__(self) -> None:
        self._borders: tuple[int, ...] = ()  # start and end of each range in turn, rising

    def covers(self, start: int, end_exclusive: int) -> bool:
        """Whether all positions of a range were added."""
        borders = self._borders
        place = bisect_right(borders, start)
        return place % 2 == 1 and end_exclusive <= borders[place]

    def add(self, start: int, end_exclusive: int) -> None:
        """Add a range, which is not empty; it is joined with those that it touches."""
        borders = self._borders
        low, high = bisect_left(borders, start), bisect_right(borders, end_exclusive)
        joined = (*borders[:low], *(start,) * (low % 2 == 0), *(end_exclusive,) * (high % 2 == 0), *borders[high:])
        self._borders = (start, end_exclusive) if len(joined) > 2 * _RANGES_MAX else joined


class BatchChecks:
    """Checks of whole batches of logs before they are sent. Any number of threads.

    Checked ranges are remembered with a chunk, for as long as it is in memory.
    """

    def __init__(self) -> None:
        #: By the id of a chunk's memory, which need not be hashable; an entry goes with the memory.
        self._chunks: dict[int, tuple[weakref.ref[object], SoundRanges]] = {}

    @staticmethod
    def begin(log: SourceLog, position: int) -> RangeCheck:
        """Begin a check of bytes from a batch at a position on."""
        return RangeCheck(
            position=position,
            first_offset=log.start_offset,
            last_offset=log.end_offset,
            size_bytes=log.size_bytes,
            is_border=True,
            kind=CorruptRecordError,
        )

    def check_pieces(
        self, log: SourceLog, pieces: Sequence[memoryview], start: int, first: int, end_exclusive: int
    ) -> Waits[UnsoundBatch | None]:
        """Check the batches [first, end_exclusive) of a log in pieces of memory that begin at ``start``.

        Args:
            log: The log.
            pieces: Views that lie behind each other, at least up to the end.
            start: Position of their first byte in the log.
            first: Position of a batch.
            end_exclusive: Position behind a batch.

        Returns:
            The first damaged one; None if all are sound.
        """
        parts: list[tuple[int, memoryview]] = []
        at = start
        for piece in pieces:
            low, high = max(first, at), min(end_exclusive, at + len(piece))
            if low < high:
                parts.append((low, piece[low - at : high - at]))
            at += len(piece)
        if all(self._is_sound(view, low) for low, view in parts):
            return None
        check = self.begin(log, first)

        def run() -> Fault | None:
            return next(filter(None, (check.feed(view) for _, view in parts)), None)

        unsound = yield from self.run(log, check, run, end_exclusive - first)
        sound_end = end_exclusive if unsound is None else unsound.position
        for low, view in parts:
            if low < sound_end:
                self._chunk(view).add(low, min(low + len(view), sound_end))
        return unsound

    def _is_sound(self, view: memoryview, position: int) -> bool:
        found = self._chunks.get(id(view.obj))
        return found is not None and found[1].covers(position, position + len(view))

    def _chunk(self, view: memoryview) -> SoundRanges:
        """Return the ranges of the memory of a view. Memory that takes no weak reference is checked each time."""
        memory: object = view.obj
        found = self._chunks.get(id(memory))
        if found is not None:
            return found[1]
        sound = SoundRanges()
        with contextlib.suppress(TypeError):
            self._chunks[id(memory)] = weakref.ref(memory, partial(_forget, self._chunks, id(memory))), sound
        return sound

    def run(
        self, log: SourceLog, check: RangeCheck, feed: Callable[[], Fault | None], size_bytes: int
    ) -> Waits[UnsoundBatch | None]:
        """Feed a check with so many bytes; return what it finds."""
        fault = feed() if size_bytes <= AT_ONCE_BYTES_MAX else (yield from self.in_a_thread(log.name, feed))
        if fault is None:
            return None
        error = fault[1].located(log.place)
        return UnsoundBatch(error.position, check.next_offset, error)

    def in_a_thread(self, what: str, feed: Callable[[], Fault | None]) -> Waits[Fault | None]:  # noqa: ARG002
        """Make a call that takes long: here, since readers of their own thread hold up nobody else."""
        yield from ()
        return feed()


def _forget(chunks: dict[int, tuple[weakref.ref[object], SoundRanges]], key: int, _gone: weakref.ref[object]) -> None:
    """Drop the ranges of a chunk whose memory is being freed; another object has its id only behind that."""
    del chunks[key]


class WantedBatches(NamedTuple):
    """The request of a read to a segment.

    Args:
        offset: The first batch that is wanted is the first with this last offset or a later one.
        end_offset_exclusive: No batch that begins here or later.
        max_bytes: At most so many, > 0 …
        is_first_whole: … but all of the first batch.
    """

    offset: int
    end_offset_exclusive: int
    max_bytes: int
    is_first_whole: bool


class PositionHints:
    """Positions of batches by log and offset, those that were asked for last. Any number of threads.

    A log is named by its ``version``, which differs from that of another one of the same key.
    """

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._positions: dict[tuple[Hashable, int], int] = {}

    def find(self, log: Hashable, offset: int) -> int | None:
        """Return the position of the batch that holds an offset, or of the next one, if a reader's read ended there."""
        with self._lock:
            position = self._positions.pop((log, offset), None)
            if position is not None:
                self._positions[log, offset] = position  # the newest is last
        return position

    def put(self, log: Hashable, offset: int, position: int) -> None:
        """Remember where the batches from an offset on begin."""
        positions = self._positions
        with self._lock:
            positions.pop((log, offset), None)
            positions[log, offset] = position
            if len(positions) > _HINTS_MAX:
                del positions[next(iter(positions))]

    def drop(self, log: Hashable, offset: int) -> None:
        """Forget a position at which no batch stands."""
        with self._lock:
            self._positions.pop((log, offset), None)


class BatchReads(Generic[Segment, Log]):
    """Reads batches of segments, as code that yields its waits. Any number of threads.

    Args:
        source: Of the segments' bytes.
        machine: Its locks.
        checks: Of the batches, before they are sent; None: they are sent as they are.

    Attributes:
        hints: Where sequential readers go on.
    """

    def __init__(self, source: LogSource[Segment, Log], machine: Machine, *, checks: BatchChecks | None) -> None:
        self._source = source
        self._checks = checks
        self.hints = PositionHints(machine.scheduler.lock())

    def read_waits(self, segment: Segment, wanted: WantedBatches) -> Waits[FoundBatches | None]:
        """Read batches of a segment; None if none of those that count holds the offset or a later one. There are no
        records where the first batch is larger than the wanted bytes.

        Raises:
            CorruptRecordError: the first batch that could be sent is damaged, or one in front of it hides its begin.
            SizeLimitError: a first batch is larger than any broker writes. Else as the source's ``log_waits``,
            ``read_waits`` and ``offset_index_waits``.
        """
        log = yield from self._source.log_waits(segment)
        try:
            return (yield from self._find_batches(log, wanted))
        except DamagedBatchError as damaged:
            raise damaged.args[0] from None

    def _find_batches(self, log: Log, wanted: WantedBatches) -> Waits[FoundBatches | None]:
        """Find batches like ``read_waits``. Raises DamagedBatchError: a batch whose place is known."""
        version = log.version
        position = self.hints.find(version, wanted.offset)
        if position is not None:
            try:
                return (yield from self._read_from(log, wanted, position, is_known=True))
            except CorruptRecordError:  # another object has its name now
                self.hints.drop(version, wanted.offset)
        position = yield from self._indexed_position(log, wanted)
        if position:
            try:
                return (yield from self._read_from(log, wanted, position, is_known=False))
            except CorruptRecordError:  # the index is wrong, or the log is: a walk over all of it shows which
                pass
        return (yield from self._read_from(log, wanted, 0, is_known=True))

    def _indexed_position(self, log: Log, wanted: WantedBatches) -> Waits[int]:
        """Find a position at or before the batch that is wanted; 0 where no index has one."""
        offset = wanted.offset
        if offset <= log.start_offset:
            return 0
        try:
            data = yield from self._source.offset_index_waits(log)
        except CorruptDataError:  # slower without it, never wrong
            return 0
        if not data:
            return 0
        try:
            _, position = lookup_offset(data, log.start_offset, offset)
        except CorruptIndexError:
            return 0
        return position if 0 <= position < log.size_bytes else 0

    def _read_from(
        self, log: Log, wanted: WantedBatches, position: int, *, is_known: bool
    ) -> Waits[FoundBatches | None]:
        """Walk from a position on; ``is_known``: the batch there is at or before the wanted one.

        Raises:
            CorruptRecordError: also where that was only said, and is not so.
        """
        start, least = position, log.start_offset
        window = max(min(wanted.max_bytes, MOST_BYTES), _LEAST_BYTES) + (0 if is_known and position else _SLACK_BYTES)
        ready = yield from self.find_ready(log, wanted, position, window, is_known=is_known)
        if ready is not None:
            return ready
        while True:
            end = _end_ahead(log, min(start + window, log.size_bytes))
            pieces = yield from self._source.read_waits(
                log, start, end, least_bytes=HEADER_BYTES, again=is_known and start == position
            )
            walk, fault = _walk(log, wanted, pieces, start, least)
            if not is_known and begins_behind(walk, position, wanted.offset):
                raise CorruptRecordError("behind the offset that the index says", position=position, where=log.name)
            if walk.first_position >= 0:
                if has_gap(walk, position, wanted.offset):
                    yield from self._check_passed(log, position, walk.first_position)
                return (yield from self._cut(log, wanted, walk, _Window(pieces, start, least)))
            if fault is not None:
                raise fault.located(log.place)
            if walk.is_ended:
                return None
            start, least = walk.position, walk.least_offset
            window = max(window, min(2 * window, _SEARCH_BYTES))

    def _check_passed(self, log: Log, start: int, end: int) -> Waits[None]:
        """Check batches that were passed over: the size or the last offset of a damaged one hides records.

        Raises:
            CorruptRecordError: one is damaged. Else as the source's ``read_waits``.
        """
        checks = self._checks
        if checks is None:
            return
        check = checks.begin(log, start)
        while start < end:
            stop = min(start + _PASSED_BYTES, end)
            for piece in (yield from self._source.read_waits(log, start, stop, least_bytes=1, again=False)):
                fault = check.feed(piece)
                if fault is not None:
                    raise fault[1].located(log.place)
                start += len(piece)

    def find_ready(
        self,
        log: Log,  # noqa: ARG002 - a source of no open files has none
        wanted: WantedBatches,  # noqa: ARG002
        position: int,  # noqa: ARG002
        window: int,  # noqa: ARG002
        *,
        is_known: bool,  # noqa: ARG002
    ) -> Waits[FoundBatches | None]:
        """Find the batches without reading them, as a part of an open file; None where that cannot be."""
        yield from ()
        return None

    def _cut(self, log: Log, wanted: WantedBatches, walk: BatchWalk, window: _Window) -> Waits[FoundBatches]:
        """Cut the walked bytes to those that are sent: no byte at or behind the header where the walk ended."""
        pieces, start, least_offset = window
        first, size = walk.first_position, walk.first_size_bytes
        if size > wanted.max_bytes and not wanted.is_first_whole:
            return found_batches(log, wanted, walk, (), BatchCut(first, first, walk.first_base_offset))
        if size > BATCH_SIZE_BYTES_MAX:
            text = f"a batch claims {size} bytes, more than the limit of {BATCH_SIZE_BYTES_MAX}"
            raise SizeLimitError(text, fault="OVER_LIMIT", position=first, where=log.place)
        end = start + sum(map(len, pieces))
        if first + size > end:
            pieces = pieces[:]
            while end < first + size:
                least = first + size - end
                more = yield from self._source.read_waits(
                    log, end, _end_ahead(log, first + size), least_bytes=least, again=True
                )
                pieces += more
                end += sum(map(len, more))
            walk, fault = _walk(log, wanted, pieces, start, least_offset)
            if fault is not None and walk.first_position < 0:
                raise DamagedBatchError(fault.located(log.place))
        cut = cut_of(walk, min(wanted.max_bytes, MOST_BYTES), end)
        if self._checks is not None:
            unsound = yield from self._checks.check_pieces(log, pieces, start, first, cut.whole_position)
            if unsound is not None:
                if unsound.position == first:
                    raise DamagedBatchError(unsound.error)
                cut = BatchCut(unsound.position, unsound.position, unsound.offset)
        if cut.whole_position < log.size_bytes:
            self.hints.put(log.version, cut.whole_offset, cut.whole_position)
        cut_pieces = _cut_pieces(pieces, start, first, cut.stop)
        return found_batches(log, wanted, walk, cut_pieces, cut)


def _end_ahead(log: SourceLog, end: int) -> int:
    """Move an end of bytes so that the next header is among them, unless that needs another chunk."""
    return min(end + HEADER_BYTES, log.chunk_end(end - 1))


def _walk(
    log: SourceLog, wanted: WantedBatches, pieces: list[memoryview], start: int, least: int
) -> tuple[BatchWalk, CorruptRecordError | None]:
    return walk_batches(
        pieces,
        start_position=start,
        log_size_bytes=log.size_bytes,
        least_offset=least,
        greatest_offset=log.end_offset,
        wanted_offset=wanted.offset,
        end_offset_exclusive=wanted.end_offset_exclusive,
        max_bytes=min(wanted.max_bytes, MOST_BYTES),
    )


def has_gap(walk: BatchWalk, position: int, offset: int) -> bool:
    """Whether no batch holds an offset, by the headers that were passed over from a position on."""
    return walk.first_base_offset > offset and walk.first_position > position


def begins_behind(walk: BatchWalk, position: int, offset: int) -> bool:
    """Whether the batch at a position lies behind an offset, so that others may be between."""
    if walk.first_position == position:
        return walk.first_base_offset > offset
    return walk.is_ended and walk.position == position


class _Window(NamedTuple):
    """Bytes of a log, where they begin, and the least offset that may stand there."""

    pieces: list[memoryview]
    start: int
    least_offset: int


class BatchCut(NamedTuple):
    """The end of the bytes that are sent, exclusive; and the end of the last whole batch, where the reader goes on."""

    stop: int
    whole_position: int
    whole_offset: int


def found_batches(
    log: SourceLog, wanted: WantedBatches, walk: BatchWalk, pieces: Sequence[memoryview | FilePart], cut: BatchCut
) -> FoundBatches:
    """Return the batches of a walk, as these pieces have them."""
    first = walk.first_position
    return FetchDataInfo(
        wanted.offset,
        log.start_offset,
        first,
        pieces,
        cut.stop - first,
        walk.first_base_offset,
        cut.whole_offset - 1,
        first_entry_incomplete=not pieces,
    )


def cut_of(walk: BatchWalk, max_bytes: int, end: int) -> BatchCut:
    """Return the cut of a walk over the bytes below ``end``: no byte at or behind the header where it ended."""
    first, size = walk.first_position, walk.first_size_bytes
    if first + size > end:  # the first batch alone, and the bytes that it lacks
        return BatchCut(first + size, first + size, walk.least_offset)
    return BatchCut(min(first + max(max_bytes, size), end, walk.position), walk.whole_position, walk.whole_offset)


def _cut_pieces(pieces: Sequence[memoryview], start: int, first: int, end_exclusive: int) -> list[memoryview]:
    """Cut the bytes [first, end) of pieces that begin at ``start``.

    A small part of its chunk is copied: an answer to a slow client would hold the chunk.
    """
    cut: list[memoryview] = []
    at = start
    for piece in pieces:
        size = len(piece)
        low, high = max(first - at, 0), min(end_exclusive - at, size)
        if low < high:
            cut.append(_lean(piece if high - low == size else piece[low:high]))
        at += size
    return cut


def _lean(view: memoryview) -> memoryview:
    if _LEAN_PART * len(view) >= memoryview(view.obj).nbytes:
        return view
    copied = new_buffer(len(view))
    copy_into(copied, view)
    return copied.toreadonly()
