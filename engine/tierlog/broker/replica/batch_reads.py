"""Batches of one segment from an offset on, as they lie in its log: where they begin, and up to where they are sent.

The position comes from where the reader's last read ended, or from the offset index; headers are walked from there to
the batch that holds the offset (Kafka RemoteLogManager#findFirstBatch, LogSegment#translateOffset). What follows is
cut at the bytes that are wanted, as Kafka cuts it, and exactly where what counts ends: a batch of an abandoned branch,
or of an open transaction, is never sent, not even in part. Whole batches are checked before they are sent; the last
one, where the cut is in its midst, is not: clients drop it, and the next read begins with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tierlog._native.batches import BatchWalk, walk_batches, walk_ready_batches
from tierlog._native.buffers import copy_into
from tierlog._native.indexes import lookup_offset
from tierlog.broker.file_part import FilePart
from tierlog.broker.replica.batch_checks import UnsoundBatch, log_version
from tierlog.broker.replica.segment_reads import SegmentReads
from tierlog.errors import CorruptDataError, CorruptIndexError, CorruptRecordError, SizeLimitError
from tierlog.records.batch_runs import BATCH_SIZE_BYTES_MAX
from tierlog.records.batch_table import HEADER_BYTES
from tierlog.remote.api import IndexType
from tierlog.remote.tier.chunks.segment import StoredSegment
from tierlog.remote.tier.chunks.segment_log import SegmentLog
from tierlog.remote.tier.tier import place_of
from tierlog.runtime.machine.buffers import new_buffer

#: An index entry stands a few KiB before the batch that is wanted, as a rule: so much is read beyond what is wanted.
_SLACK_BYTES: Final = 64 << 10
#: The most that one read gives, whatever is asked for: its headers are walked on the event loop.
_MOST_BYTES: Final = 16 << 20
#: A view of less than this part of a chunk is copied.
_LEAN_PART: Final = 8
#: Where no index tells the place, reads of the search grow up to this.
_SEARCH_BYTES: Final = 4 << 20
#: What is checked at once of batches that are passed over.
_PASSED_BYTES: Final = 1 << 20
#: The least that is sent as a part of a file: less is copied faster than it is sent by a call of its own.
_PART_BYTES_LEAST: Final = 64 << 10
#: The least that is read of a log: some headers.
_LEAST_BYTES: Final = 4 << 10


class FoundBatches(NamedTuple):
    """Batches of a segment.

    Attributes:
        pieces: Their bytes, in order; none where the first batch is larger than what is wanted.
        position: Of the first byte in the log.
        size_bytes: Of all pieces.
        first_base_offset: Of the first batch.
        end_offset: Behind the last whole batch; of no pieces where they would begin.
        fault: Why there are no pieces, where the first batch is damaged.
    """

    pieces: Sequence[memoryview | FilePart]
    position: int
    size_bytes: int
    first_base_offset: int
    end_offset: int
    fault: CorruptDataError | None = None


class WantedBatches(NamedTuple):
    """What a read asks of a segment.

    Args:
        offset: The first batch that is wanted is the first with this last offset or a later one.
        end_offset_exclusive: No batch that begins here or later.
        max_bytes: At most so many, > 0 …
        is_first_whole: … but all of the first batch.
        until_seconds: When the read is late, as ``SegmentReads.deadline``.
    """

    offset: int
    end_offset_exclusive: int
    max_bytes: int
    is_first_whole: bool
    until_seconds: float


async def read_batches(reads: SegmentReads, log: SegmentLog, wanted: WantedBatches) -> FoundBatches | None:
    """Read batches of a segment; None if none of those that count holds the offset or a later one.

    Raises:
        CorruptRecordError: the first batch that could be sent is damaged, or one in front of it hides where it begins.
        SizeLimitError: a first batch that is larger than any broker writes. Else as ``SegmentReads.read`` and
            ``index``.
    """
    found = await _find_batches(reads, log, wanted)
    if found is not None and found.fault is not None:
        raise found.fault
    return found


async def _find_batches(reads: SegmentReads, log: SegmentLog, wanted: WantedBatches) -> FoundBatches | None:
    """As ``read_batches``; the damage of a batch whose place is known is an attribute of what is found."""
    version = log_version(log.segment)
    position = reads.hints.find(version, wanted.offset)
    if position is not None:
        try:
            return await _read_from(reads, log, wanted, position, is_known=True)
        except CorruptRecordError:  # another object has its name now
            reads.hints.drop(version, wanted.offset)
    position = await _indexed_position(reads, log, wanted)
    if position:
        try:
            return await _read_from(reads, log, wanted, position, is_known=False)
        except CorruptRecordError:  # the index is wrong, or the log is: a walk over all of it tells
            pass
    return await _read_from(reads, log, wanted, 0, is_known=True)


async def _indexed_position(reads: SegmentReads, log: SegmentLog, wanted: WantedBatches) -> int:
    """A position at or before the batch that is wanted; 0 where no index tells."""
    segment, offset = log.segment, wanted.offset
    if offset <= segment.start_offset:
        return 0
    try:
        data = await reads.index(segment, IndexType.OFFSET, until_seconds=wanted.until_seconds)
    except CorruptDataError:  # slower without it, never wrong
        return 0
    if not data:
        return 0
    try:
        _, position = lookup_offset(data, segment.start_offset, offset)
    except CorruptIndexError:
        return 0
    return position if 0 <= position < segment.size_bytes else 0


async def _read_from(
    reads: SegmentReads, log: SegmentLog, wanted: WantedBatches, position: int, *, is_known: bool
) -> FoundBatches | None:
    """Walk from a position on; ``is_known``: the batch there is at or before the one that is wanted.

    Raises:
        CorruptRecordError: also where that was only said, and is not so.
    """
    segment = log.segment
    start, least = position, segment.start_offset
    window = max(min(wanted.max_bytes, _MOST_BYTES), _LEAST_BYTES) + (0 if is_known and position else _SLACK_BYTES)
    ready = await _find_ready(reads, log, wanted, position, window, is_known=is_known)
    if ready is not None:
        return ready
    while True:
        end = _end_ahead(log, min(start + window, segment.size_bytes))
        pieces = await reads.read(
            log,
            start,
            end,
            least_bytes=HEADER_BYTES,
            again=is_known and start == position,
            until_seconds=wanted.until_seconds,
        )
        walk, fault = _walk(segment, wanted, pieces, start, least)
        if not is_known and _begins_behind(walk, position, wanted.offset):
            raise CorruptRecordError("behind the offset that the index says", position=position, where=segment.name)
        if walk.first_position >= 0:
            if _has_gap(walk, position, wanted.offset):
                await _check_passed(reads, log, position, walk.first_position, wanted.until_seconds)
            return await _cut(reads, log, wanted, walk, _Window(pieces, start, least))
        if fault is not None:
            raise fault.located(place_of(segment))
        if walk.is_ended:
            return None
        start, least = walk.position, walk.least_offset
        window = max(window, min(2 * window, _SEARCH_BYTES))


def _end_ahead(log: SegmentLog, end: int) -> int:
    """An end of bytes, moved so that the next header is among them, unless another chunk would be asked for it."""
    return min(end + HEADER_BYTES, log.chunk_end(end - 1))


def _walk(
    segment: StoredSegment, wanted: WantedBatches, pieces: list[memoryview], start: int, least: int
) -> tuple[BatchWalk, CorruptRecordError | None]:
    return walk_batches(
        pieces,
        start_position=start,
        log_size_bytes=segment.size_bytes,
        least_offset=least,
        greatest_offset=segment.end_offset,
        wanted_offset=wanted.offset,
        end_offset_exclusive=wanted.end_offset_exclusive,
        max_bytes=min(wanted.max_bytes, _MOST_BYTES),
    )


def _has_gap(walk: BatchWalk, position: int, offset: int) -> bool:
    """Whether no batch holds an offset, as far as headers tell that were passed over from a position on."""
    return walk.first_base_offset > offset and walk.first_position > position


async def _check_passed(reads: SegmentReads, log: SegmentLog, start: int, end: int, until_seconds: float) -> None:
    """Check batches that were passed over: the size or the last offset of a damaged one hides records.

    Raises:
        CorruptRecordError: one is damaged. Else as ``SegmentReads.read``.
    """
    checks = reads.checks
    if checks is None:
        return
    check = checks.begin(log, start)
    while start < end:
        stop = min(start + _PASSED_BYTES, end)
        for piece in await reads.read(log, start, stop, least_bytes=1, again=False, until_seconds=until_seconds):
            fault = check.feed(piece)
            if fault is not None:
                raise fault[1].located(place_of(log.segment))
            start += len(piece)


async def _find_ready(
    reads: SegmentReads, log: SegmentLog, wanted: WantedBatches, position: int, window: int, *, is_known: bool
) -> FoundBatches | None:
    """The batches as a part of their file, where the system has its bytes in memory and nothing is unusual about them;
    else None: who reads them sees what it is. A segment that is written to is not sent so: its bytes may change.
    """
    segment = log.segment
    file = reads.ready_file(log) if segment.closed else None
    end = min(position + window, segment.size_bytes)
    if file is None or not file.holds(segment.log.position + position, end - position):
        return None
    max_bytes = min(wanted.max_bytes, _MOST_BYTES)
    walked = walk_ready_batches(
        file.descriptor,
        segment.log.position,
        end,
        start_position=position,
        log_size_bytes=segment.size_bytes,
        least_offset=segment.start_offset,
        greatest_offset=segment.end_offset,
        wanted_offset=wanted.offset,
        end_offset_exclusive=wanted.end_offset_exclusive,
        max_bytes=max_bytes,
    )
    if walked is None or (not is_known and _begins_behind(walked[0], position, wanted.offset)):
        return None
    walk = walked[0]
    first, size = walk.first_position, walk.first_size_bytes
    if first < 0 or size > BATCH_SIZE_BYTES_MAX or _has_gap(walk, position, wanted.offset):
        return None
    if size > wanted.max_bytes and not wanted.is_first_whole:
        return FoundBatches((), first, 0, walk.first_base_offset, walk.first_base_offset)
    if first + size > end and not file.holds(segment.log.position + first, size):
        return None
    cut = _cut_of(walk, max_bytes, end)
    if reads.checks is not None:
        try:
            unsound = await reads.checks.check_file(log, file, first, cut.whole_position)
        except BlockingIOError:
            return None
        if unsound is not None:
            if unsound.position == first:
                return _damaged(walk, unsound)
            cut = _in_front_of(unsound)
    piece: memoryview | FilePart | None
    if cut.stop - first >= _PART_BYTES_LEAST:
        piece = reads.part_of(log, file, first, cut.stop)
    else:
        piece = reads.copy_ready(log, file, first, cut.stop)
    if piece is None:
        return None
    if cut.whole_position < log.size_bytes:
        reads.hints.put(log_version(segment), cut.whole_offset, cut.whole_position)
    return FoundBatches((piece,), first, cut.stop - first, walk.first_base_offset, cut.whole_offset)


def _begins_behind(walk: BatchWalk, position: int, offset: int) -> bool:
    """Whether the batch at a position lies behind an offset, so that others may be between."""
    if walk.first_position == position:
        return walk.first_base_offset > offset
    return walk.is_ended and walk.position == position


class _Window(NamedTuple):
    """Bytes of a log, where they begin, and the least offset that may stand there."""

    pieces: list[memoryview]
    start: int
    least_offset: int


class _Cut(NamedTuple):
    """Where what is sent stops, exclusive; and the end of the last whole batch, for who reads on."""

    stop: int
    whole_position: int
    whole_offset: int


def _in_front_of(unsound: UnsoundBatch) -> _Cut:
    return _Cut(unsound.position, unsound.position, unsound.offset)


def _damaged(walk: BatchWalk, unsound: UnsoundBatch) -> FoundBatches:
    """What is found of a damaged first batch."""
    return FoundBatches((), unsound.position, 0, walk.first_base_offset, walk.first_base_offset, unsound.error)


def _cut_of(walk: BatchWalk, max_bytes: int, end: int) -> _Cut:
    """Where a walk over the bytes below ``end`` is cut: no byte at or behind the header where it ended."""
    first, size = walk.first_position, walk.first_size_bytes
    if first + size > end:  # the first batch alone, and the bytes that it lacks
        return _Cut(first + size, first + size, walk.least_offset)
    return _Cut(min(first + max(max_bytes, size), end, walk.position), walk.whole_position, walk.whole_offset)


async def _cut(
    reads: SegmentReads,
    log: SegmentLog,
    wanted: WantedBatches,
    walk: BatchWalk,
    window: _Window,
) -> FoundBatches:
    """What is sent of the bytes that were walked over: no byte at or behind the header where the walk ended."""
    pieces, start, least_offset = window
    first, size = walk.first_position, walk.first_size_bytes
    if size > wanted.max_bytes and not wanted.is_first_whole:
        return FoundBatches((), first, 0, walk.first_base_offset, walk.first_base_offset)
    if size > BATCH_SIZE_BYTES_MAX:
        text = f"a batch claims {size} bytes, more than the limit of {BATCH_SIZE_BYTES_MAX}"
        raise SizeLimitError(text, fault="OVER_LIMIT", position=first, where=place_of(log.segment))
    end = start + sum(map(len, pieces))
    if first + size > end:
        pieces = pieces[:]
        while end < first + size:
            least = first + size - end
            more = await reads.read(
                log,
                end,
                _end_ahead(log, first + size),
                least_bytes=least,
                again=True,
                until_seconds=wanted.until_seconds,
            )
            pieces += more
            end += sum(map(len, more))
        walk, fault = _walk(log.segment, wanted, pieces, start, least_offset)
        if fault is not None and walk.first_position < 0:
            return FoundBatches((), first, 0, wanted.offset, wanted.offset, fault.located(place_of(log.segment)))
    cut = _cut_of(walk, min(wanted.max_bytes, _MOST_BYTES), end)
    if reads.checks is not None:
        unsound = await reads.checks.check_pieces(log, pieces, start, first, cut.whole_position)
        if unsound is not None:
            if unsound.position == first:
                return _damaged(walk, unsound)
            cut = _in_front_of(unsound)
    if cut.whole_position < log.size_bytes:
        reads.hints.put(log_version(log.segment), cut.whole_offset, cut.whole_position)
    cut_pieces = _cut_pieces(pieces, start, first, cut.stop)
    return FoundBatches(cut_pieces, first, cut.stop - first, walk.first_base_offset, cut.whole_offset)


def _cut_pieces(pieces: Sequence[memoryview], start: int, first: int, end_exclusive: int) -> list[memoryview]:
    """The bytes [first, end) of pieces that begin at ``start``.

    What is a small part of its chunk is copied: an answer that a slow client does not take would hold the chunk.
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
