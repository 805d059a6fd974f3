"""Checks of batches before they are sent: a checksum is compared once for as long as its bytes are the same."""

from __future__ import annotations

import contextlib
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from tierlog._native.batches import RangeCheck
from tierlog.errors import CorruptDataError, CorruptRecordError
from tierlog.remote.manager.log_source import SourceLog
from tierlog.runtime.waiting.waits import Waits

#: So much is checked by an event loop's thread too: 0.04 ms a mebibyte in memory, 0.15 of a file.
AT_ONCE_BYTES_MAX: Final = 2 << 20
#: Ranges of each chunk or file that are remembered.
_RANGES_MAX: Final = 16
Fault = tuple[str, CorruptDataError]


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
