"""The ranges of spans that count: pruned by time, cut at batch borders, made lazily.

An index, or a footer in its place, is fetched only where a cut falls inside a segment, several at a time and a little
ahead of the caller: a plan of a million ranges is never in memory at once unless its caller collects it. An upper bound
of time cuts segments with footers alone: no index says how early the records behind a place are.

A request for a number of tasks may need finer cuts: an offset index has an entry for every few KiB at best. Where its
entries are too few, the headers of the batches themselves say where they begin, of logs that are small enough to be
read for it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tierlog.errors import CorruptDataError, ObjectNotFoundError, TierlogError
from tierlog.remote.metadata.lineage import Span
from tierlog.remote.tier.tier import Tier, iter_batch_runs
from tierlog.runtime.machine.scheduling import Future, Pool
from tierlog.runtime.waiting.threads import run_all
from tierlog.scan.history import PartitionHistory
from tierlog.scan.planning.footer_answers import FooterAnswer, answer_span
from tierlog.scan.planning.offset_lookup import BatchBorders, fetch_borders, offsets_in_time
from tierlog.scan.record_summary import SummaryField
from tierlog.scan.scan_range import ScanRange
from tierlog.scan.scan_request import ScanRequest
from tierlog.scan.transaction_history import aborted_transactions

#: Index parts that are fetched at once.
CONCURRENCY = 16
#: Segments that are cut ahead of the one whose ranges are iterated.
_AHEAD = 4 * CONCURRENCY
#: Log bytes that are read for the borders of their batches, at most.
WALKED_BYTES_MAX: Final = 512 << 20
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class WantedOffsets:
    """The offsets of one partition that a scan reads: [first, end)."""

    history: PartitionHistory
    first_offset: int
    end_offset_exclusive: int

    def iter_spans(self, first_timestamp_ms: int) -> Iterator[tuple[Span, bool]]:
        """Iterate the spans that hold any of it of that time or later, as far as the segments say; and whether such
        records may begin only within the span: then its time index knows where.
        """
        found = self.history.all_spans.iter_late(self.first_offset, self.end_offset_exclusive, first_timestamp_ms)
        if first_timestamp_ms > 0:
            return found
        return ((span, False) for span, _ in found)

    def estimated(self, first_timestamp_ms: int) -> tuple[int, int]:
        """Return bytes and offsets of the spans of ``iter_spans``; bytes by offsets, without an index."""
        return self.history.all_spans.estimated(self.first_offset, self.end_offset_exclusive, first_timestamp_ms)

    @property
    def may_have_footers(self) -> bool:
        """Whether a segment of its history may have one."""
        return self.history.all_spans.have_footers


@dataclass(frozen=True, slots=True)
class _Piece:
    """A span that counts, before it is cut."""

    wanted: WantedOffsets
    span: Span
    aborted: NDArray[np.void] | None
    cut_early: bool
    """The filter by time begins within this segment: its footer, or its time index, knows where."""
    cut_by_footer: bool = False
    """The filter by time has an upper bound, and the segment a footer, which knows what is above it."""

    @property
    def is_cut(self) -> bool:
        return self.cut_early or self.cut_by_footer


@dataclass(frozen=True, slots=True)
class CutPiece:
    """A span that counts, and the borders at which it can be cut.

    Attributes:
        first_offset: The first offset that can count.
        end_offset_exclusive: Behind the last one.
        borders: None: it is read whole.
    """

    piece: _Piece
    first_offset: int
    end_offset_exclusive: int
    borders: BatchBorders | None


_Cut = ScanRange | CutPiece | None


@dataclass(frozen=True, slots=True)
class RangeCutter:
    """The maker of one scan's ranges.

    Args:
        tier: Of the segments.
        request: The request of the scan.
        max_bytes: Of a range, where batch borders allow it.
        max_records: Offsets of a range at most; None for no limit.
        lose: Called with a text about missing records; it raises where that is an error.
        warn: Called with a text about a fact that makes the read slower, not wrong.
    """

    tier: Tier
    request: ScanRequest
    max_bytes: int
    max_records: int | None
    lose: Callable[[str, TierlogError | None], None]
    warn: Callable[[str], None]

    def iter_ranges(self, wanted: Iterable[WantedOffsets]) -> Iterator[ScanRange]:
        """Iterate the ranges of some partitions, in their order, by offset. Closing it waits for the requests under
        way.

        Raises:
            CorruptDataError, StoreError and their kinds: an object that is needed is damaged, or cannot be fetched.
        """
        with self.tier.machine.scheduler.pool(CONCURRENCY, name="tierlog-plan") as pool:
            waiting: deque[ScanRange | Future[_Cut]] = deque()
            for piece in self._iter_pieces(pool, wanted):
                if self.tier.store.is_local and self._is_whole(piece):
                    described = self._described(piece)
                    if described is None:
                        continue
                    piece = described
                whole = self._whole(piece) if piece.span.segment.is_described else None
                waiting.append(pool.submit(partial(self._cut, piece)) if whole is None else whole)
                while waiting and (len(waiting) > _AHEAD or isinstance(waiting[0], ScanRange)):
                    yield from self._iter_found(waiting.popleft())
            while waiting:
                yield from self._iter_found(waiting.popleft())

    def iter_pieces(self, wanted: Iterable[WantedOffsets]) -> Iterator[CutPiece]:
        """Iterate the pieces that ranges are cut of, with all borders that the offset indexes know.

        Raises:
            As ``iter_ranges``.
        """
        with self.tier.machine.scheduler.pool(CONCURRENCY, name="tierlog-plan") as pool:
            waiting: deque[Future[CutPiece | None]] = deque()
            for piece in self._iter_pieces(pool, wanted):
                waiting.append(pool.submit(partial(self._all_places, piece)))
                if len(waiting) > _AHEAD and (found := waiting.popleft().result()) is not None:
                    yield found
            while waiting:
                if (found := waiting.popleft().result()) is not None:
                    yield found

    def iter_answers(
        self, wanted: Iterable[WantedOffsets], fields: Collection[SummaryField]
    ) -> Iterator[tuple[WantedOffsets, FooterAnswer]]:
        """Iterate the answers of the footers of some partitions, in their order, by offset.

        Raises:
            EncryptionKeyError, StoreError and their kinds: a footer cannot be fetched. And as ``iter_ranges`` where
                transactions were aborted.
        """

        def answer(piece: _Piece) -> FooterAnswer:
            if piece.span.segment.footer is not None:
                described = self._described(piece)
                if described is None:
                    return FooterAnswer()
                piece = described
            return answer_span(self.tier, piece.span, self.request.record_filter, piece.aborted, fields)

        with self.tier.machine.scheduler.pool(CONCURRENCY, name="tierlog-plan") as pool:
            waiting: deque[tuple[WantedOffsets, FooterAnswer | Future[FooterAnswer]]] = deque()
            for piece in self._iter_pieces(pool, wanted):
                without = piece.span.segment.footer is None
                found = answer(piece) if without else pool.submit(partial(answer, piece))
                waiting.append((piece.wanted, found))
                while waiting and (len(waiting) > _AHEAD or isinstance(waiting[0][1], FooterAnswer)):
                    yield _answered(*waiting.popleft())
            for each in waiting:
                yield _answered(*each)

    def iter_bounds(self, found: CutPiece, max_bytes: int) -> Iterator[tuple[int, int, int, int]]:
        """Iterate the positions [start, end) and offsets [first, end) of the ranges of a piece, of at most
        ``max_bytes`` where the borders allow it. One after another: a segment can have half a million.
        """
        first, end = found.first_offset, found.end_offset_exclusive
        if first >= end:
            return
        if found.borders is None:
            yield 0, found.piece.span.segment.size_bytes, found.piece.span.first_offset, end
            return
        for part_first, part_end in _iter_even_parts(first, end, self.max_records):
            start, stop = found.borders.start_position(part_first), found.borders.end_position(part_end)
            for low, high in found.borders.cut(start, stop, max_bytes):
                yield low, high, part_first, part_end

    def iter_cut(self, found: CutPiece, max_bytes: int) -> Iterator[ScanRange]:
        """Iterate the ranges of a piece: see ``iter_bounds``."""
        for low, high, first, end in self.iter_bounds(found, max_bytes):
            yield self._range(found.piece, low, high, first, end, found.borders)

    def _iter_pieces(self, pool: Pool, wanted: Iterable[WantedOffsets]) -> Iterator[_Piece]:
        if not self.request.read_committed:
            for each in wanted:
                yield from self._pieces(each, None)
            return
        waiting: deque[tuple[WantedOffsets, Future[NDArray[np.void]]]] = deque()
        for each in wanted:
            waiting.append((each, pool.submit(partial(self._aborted, each))))
            if len(waiting) > CONCURRENCY:
                offsets, found = waiting.popleft()
                yield from self._pieces(offsets, found.result())
        for offsets, found in waiting:
            yield from self._pieces(offsets, found.result())

    def _pieces(self, wanted: WantedOffsets, aborted: NDArray[np.void] | None) -> Iterator[_Piece]:
        chosen = self.request.record_filter
        has_end = chosen.end_timestamp_exclusive_ms < _INT64_MAX
        for span, cut_early in wanted.iter_spans(chosen.first_timestamp_ms):
            by_footer = has_end and span.segment.footer is not None
            yield _Piece(wanted, span, _touching(aborted, span), cut_early, by_footer)

    def _aborted(self, wanted: WantedOffsets) -> NDArray[np.void]:
        """Return the aborted transactions that touch a partition, with the transaction indexes of the spans that are
        read.
        """
        first = next(wanted.iter_spans(self.request.record_filter.first_timestamp_ms), None)
        start = wanted.end_offset_exclusive if first is None else first[0].first_offset
        entries, faults = aborted_transactions(self.tier, wanted.history, start, wanted.end_offset_exclusive)
        for fault in faults:
            self.lose(f"aborted transactions are not known for certain: {fault}", fault)
        return entries

    def _cut(self, piece: _Piece) -> _Cut:
        described = self._described(piece)
        return None if described is None else self._whole(described) or self._places(described)

    def _all_places(self, piece: _Piece) -> CutPiece | None:
        described = self._described(piece)
        return None if described is None else self._places(described, whole=False)

    def _described(self, piece: _Piece) -> _Piece | None:
        """Return the piece with its segment described; None if that is lost, and may be."""
        if piece.span.segment.is_described:
            return piece
        try:
            segment = self.tier.describe_segment(piece.span.segment)
        except (CorruptDataError, ObjectNotFoundError) as error:
            self.lose(f"left out: {error}", error)
            return None
        span = Span(segment, piece.span.first_offset, piece.span.end_offset_exclusive)
        return _Piece(piece.wanted, span, piece.aborted, piece.cut_early, piece.cut_by_footer)

    def _whole(self, piece: _Piece) -> ScanRange | None:
        """Return the one range of a segment that is read whole; None if it has to be cut."""
        if not self._is_whole(piece):
            return None
        span = piece.span
        return self._range(piece, 0, span.segment.size_bytes, span.first_offset, span.end_offset_exclusive)

    def _is_whole(self, piece: _Piece) -> bool:
        segment = piece.span.segment
        first, end = piece.span.first_offset, piece.span.end_offset_exclusive
        if piece.is_cut or first > segment.start_offset or end <= segment.end_offset:
            return False
        too_many = self.max_records is not None and end - first > self.max_records
        return segment.size_bytes <= self.max_bytes and not too_many

    def _places(self, piece: _Piece, *, whole: bool = True) -> CutPiece:
        """Fetch the borders that a cut of the piece needs; ``whole``: none where the piece is read whole."""
        span, chosen = piece.span, self.request.record_filter
        first, end = span.first_offset, span.end_offset_exclusive
        if piece.is_cut:
            first, end = offsets_in_time(
                self.tier,
                span,
                chosen.first_timestamp_ms,
                chosen.end_timestamp_exclusive_ms,
                by_index=piece.cut_early,
            )
            if first >= end:
                return CutPiece(piece, first, end, None)
            is_whole = self._is_whole(replace(piece, cut_early=False, cut_by_footer=False))
            if whole and (first, end) == (span.first_offset, span.end_offset_exclusive) and is_whole:
                return CutPiece(piece, first, end, None)
        return CutPiece(piece, first, end, self._borders(piece))

    def _iter_found(self, found: ScanRange | Future[_Cut]) -> Iterator[ScanRange]:
        made = found if isinstance(found, ScanRange) else found.result()
        if isinstance(made, ScanRange):
            yield made
        elif made is not None:
            yield from self.iter_cut(made, self.max_bytes)

    def _borders(self, piece: _Piece) -> BatchBorders:
        """Return the borders; a segment without a usable index is read whole: slower, never wrong."""
        segment = piece.span.segment
        try:
            return fetch_borders(self.tier, segment)
        except (CorruptDataError, ObjectNotFoundError) as error:
            self.warn(f"read whole, as its offset index cannot be used: {error}")
            return BatchBorders.unknown(segment.size_bytes)

    def _range(
        self, piece: _Piece, start: int, stop: int, first: int, end: int, borders: BatchBorders | None = None
    ) -> ScanRange:
        chosen = self.request.record_filter
        aborted, segment = piece.aborted, piece.span.segment
        least, greatest = segment.start_offset, segment.end_offset
        if borders is not None:
            low, high = borders.offset_bounds(start, stop)
            least, greatest = max(least, low), min(greatest, high - 1)
            if aborted is not None:
                aborted = _overlapping(aborted, max(low, first), min(high, end))
        return ScanRange(
            segment.narrowed(start, stop),
            start,
            stop,
            first,
            end,
            chosen.first_timestamp_ms,
            chosen.end_timestamp_exclusive_ms,
            None if aborted is None else aborted.tobytes(),
            self.request.fail_on_data_loss,
            least,
            greatest,
        )


def _answered(wanted: WantedOffsets, found: FooterAnswer | Future[FooterAnswer]) -> tuple[WantedOffsets, FooterAnswer]:
    return wanted, found if isinstance(found, FooterAnswer) else found.result()


def _touching(aborted: NDArray[np.void] | None, span: Span) -> NDArray[np.void] | None:
    return None if aborted is None else _overlapping(aborted, span.first_offset, span.end_offset_exclusive)


def _overlapping(aborted: NDArray[np.void], first: int, end_exclusive: int) -> NDArray[np.void]:
    return aborted[(aborted["last_offset"] >= first) & (aborted["first_offset"] < end_exclusive)]


def _iter_even_parts(first: int, end_exclusive: int, limit: int | None) -> Iterator[tuple[int, int]]:
    """[first, end) in pieces of at most ``limit`` offsets, of even size."""
    total = end_exclusive - first
    count = 1 if limit is None else -(-total // limit)
    return itertools.pairwise(first + total * number // count for number in range(count + 1))


def cut_into(cutter: RangeCutter, wanted: Sequence[WantedOffsets], least: int) -> list[ScanRange]:
    """Return the ranges of some partitions, in their order, by offset: at least ``least``, or one for each batch.

    A log whose batches cannot be found is left as its index divides it: its reader reports that, or a warning does.

    Raises:
        CorruptDataError, StoreError and their kinds: as ``RangeCutter.iter_ranges``.
    """
    ranges = list(cutter.iter_ranges(wanted))
    if len(ranges) >= least:
        return ranges
    pieces = list(cutter.iter_pieces(wanted))
    if _count(cutter, pieces, 1) < least:
        pieces = _walked(cutter, pieces, least)
    size = _size(cutter, pieces, least)
    return [each for piece in pieces for each in cutter.iter_cut(piece, size)]


def _size(cutter: RangeCutter, pieces: Sequence[CutPiece], least: int) -> int:
    """Return the largest size of a range that makes ranges enough; 1, a batch each, where none does."""
    size = cutter.max_bytes
    while size > 1 and _count(cutter, pieces, size) < least:
        size //= 2
    return max(1, size)


def _count(cutter: RangeCutter, pieces: Sequence[CutPiece], max_bytes: int) -> int:
    return sum(1 for piece in pieces for _ in cutter.iter_bounds(piece, max_bytes))


def _walked(cutter: RangeCutter, pieces: Sequence[CutPiece], least: int) -> list[CutPiece]:
    """Return the pieces with the borders of all their batches."""
    size_bytes = sum(end - start for start, end in map(_extent, pieces))
    if size_bytes > WALKED_BYTES_MAX:
        why = f"offset indexes divide the log no further, and {size_bytes} bytes of it are not read for that"
        cutter.warn(f"{_count(cutter, pieces, 1)} tasks, not {least}: {why}")
        return list(pieces)
    with cutter.tier.machine.scheduler.pool(CONCURRENCY, name="tierlog-walk") as pool:
        return list(run_all(pool, lambda piece: _with_batches(cutter.tier, piece), pieces))


def _extent(piece: CutPiece) -> tuple[int, int]:
    """Return the positions [start, end) of a piece's bytes to read."""
    if piece.borders is None or piece.first_offset >= piece.end_offset_exclusive:
        return 0, 0
    start = piece.borders.start_position(piece.first_offset)
    return start, piece.borders.end_position(piece.end_offset_exclusive)


def _with_batches(tier: Tier, piece: CutPiece) -> CutPiece:
    """Return the piece with all its batches. What follows a fault stays one range, whose reader reports the fault."""
    start, end = _extent(piece)
    offsets: list[int] = []
    positions: list[int] = []
    segment = piece.piece.span.segment
    at, is_sound = start, True
    try:
        for run in iter_batch_runs(tier, segment, start, end):
            last = run.column("last_offset")
            before = [offsets[-1] if offsets else segment.start_offset - 1, *last[:-1].tolist()]
            is_sound &= bool((run.column("base_offset") > before).all() and last[-1] <= segment.end_offset)
            offsets += run.column("last_offset").tolist()
            positions += run.column("position").tolist()
            at = positions[-1] + int(run.column("size_bytes")[-1])
    except (CorruptDataError, ObjectNotFoundError):
        offsets.append(_INT64_MAX)
        positions.append(at)
    if (
        piece.borders is None
        or not offsets
        or not is_sound
        or any(one >= other for one, other in itertools.pairwise(offsets))
    ):
        return piece
    size_bytes = piece.borders.size_bytes
    return replace(piece, borders=BatchBorders(np.array(offsets), np.array(positions), size_bytes, complete=True))
