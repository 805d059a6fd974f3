"""Small reads at the ends of a scan: its first and last offset, how few ranges hold a number of records, and where the
last records of each partition begin.

The first three stay within a budget of log bytes: an answer that costs more is left to a reader of everything. The last
records are found from the end: nothing before them is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from tierlog._native.decoding import RecordDecoder
from tierlog.errors import CorruptDataError, ObjectNotFoundError
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.threads import run_all
from tierlog.scan.history import PartitionHistory
from tierlog.scan.planning.offset_lookup import BatchBorders, fetch_borders
from tierlog.scan.planning.plan import plan_scan, prepare_scan
from tierlog.scan.reading.read import range_decoder, read_scan_range
from tierlog.scan.scan_range import ScanRange
from tierlog.scan.scan_request import ScanRequest

#: Of the first read at an end; the next ones are larger.
_PIECE_BYTES: Final = 64 << 10
_GROWTH: Final = 4
_CONCURRENCY: Final = 16
#: Offsets that are looked at beyond the number of records wanted, as markers take some.
_SPARE_OFFSETS: Final = 64
_WINDOW_BYTES_MAX: Final = 8 << 20
#: Of the reads that look for the first records.
_WINDOW_BYTES: Final = 256 << 10

#: Leaves out of record batches what does not count.
Choose = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class OverBudgetError(Exception):
    """An answer would cost more than it may."""


class ByteBudget:
    """Log bytes that may still be read. Thread safety: any number of threads."""

    def __init__(self, left_bytes: int, machine: Machine | None = None) -> None:
        self.left_bytes = left_bytes
        self._lock = (machine or Machine()).scheduler.lock()

    def spend(self, size_bytes: int) -> None:
        """Count bytes. Raises OverBudgetError: there is not so much left."""
        with self._lock:
            self.left_bytes -= size_bytes
            if self.left_bytes < 0:
                raise OverBudgetError


def find_first_offset(
    tier: Tier, ranges: Iterable[ScanRange], budget: ByteBudget, *, verify_checksums: bool = True
) -> int | None:
    """Find the offset of the first record of some ranges of one partition, which are in order; None if they have none.

    No checksum covers the offset of a batch. The next batch has to lie behind it, as it has to where all are read.

    Raises:
        OverBudgetError: it was not found within the budget.
        CorruptDataError, StoreError and their kinds: as reading the log does.
    """
    for scan_range in ranges:
        decoder = _decoder(scan_range, scan_range.start_position, verify_checksums)
        found: int | None = None
        for start, end in _grown(scan_range.start_position, scan_range.end_position):
            budget.spend(end - start)
            for rows in _fed(tier, scan_range, decoder, start, end):
                found = int(rows[0]) if found is None and len(rows) else found
                if found is not None and not _stands_alone(decoder):
                    return found
            if not _stands_alone(decoder):  # its rows, of which it gives out thousands at once by itself
                for batch in decoder.finish(allow_partial=True):
                    found = int(batch.column(0)[0].as_py()) if found is None and batch.num_rows else found
                if found is not None:
                    return found
        for batch in decoder.finish():
            found = int(batch.column(0)[0].as_py()) if found is None and batch.num_rows else found
        if found is not None:
            return found
    return None


def find_last_offset(
    tier: Tier, ranges: Sequence[ScanRange], budget: ByteBudget, *, verify_checksums: bool = True
) -> int | None:
    """Find the offset of the last record of some ranges of one partition, which are in order; None if they have none.

    The batch before has to lie before it, as ``find_first_offset`` asks of the next one.

    Raises: as ``find_first_offset``.
    """
    for scan_range in reversed(ranges):
        borders = _borders(tier, scan_range)
        end, wanted = scan_range.end_position, _PIECE_BYTES
        while end > scan_range.start_position:
            start = borders.at_or_before(max(scan_range.start_position, end - wanted), scan_range.start_position)
            budget.spend(end - start)
            decoder = _decoder(scan_range, start, verify_checksums)
            found = [rows for rows in _fed(tier, scan_range, decoder, start, end) if len(rows)]
            found += [np.asarray(batch.column(0)) for batch in decoder.finish() if batch.num_rows]
            alone = _stands_alone(decoder) and start > scan_range.start_position
            if found and not alone:
                return int(found[-1][-1])
            end, wanted = end if found else start, wanted * _GROWTH
    return None


def _stands_alone(decoder: RecordDecoder) -> bool:
    """Whether it has decoded no two batches, whose order says something of their offsets."""
    return decoder.counters["batches"] < 2


def take_enough(tier: Tier, ranges: Iterable[ScanRange], limit: int, budget: ByteBudget) -> list[ScanRange]:
    """Take the first ranges, the last of them cut, that hold at least ``limit`` records.

    Offsets do not say how many records there are, so headers are read, with their checksums.

    Raises:
        OverBudgetError: the budget or the ranges ended before, or a batch is damaged.
        StoreError and its kinds: as reading the log does.
    """
    taken: list[ScanRange] = []
    count = 0
    for scan_range in ranges:
        decoder = range_decoder(scan_range, (), verify_checksums=True, summary=("count",))
        found = 0
        start, end = scan_range.start_position, scan_range.read_end_position
        windows = tier.iter_log_windows(scan_range.segment, start, end, window_bytes=_WINDOW_BYTES, prefetch=0)
        with closing(windows):
            try:
                for _, window in windows:
                    budget.spend(len(window))
                    list(decoder.feed(window))
                    found = decoder.summary["count"] or 0
                    if count + found >= limit:
                        stop = decoder.position
                        cut = replace(scan_range, end_position=stop, segment=scan_range.segment.narrowed(start, stop))
                        return [*taken, cut]
                    if decoder.done:
                        break
                list(decoder.finish())
            except CorruptDataError as error:
                raise OverBudgetError from error
        count += found
        taken.append(scan_range)
    raise OverBudgetError


@dataclass(frozen=True, slots=True)
class _Borders:
    borders: BatchBorders

    def at_or_before(self, position: int, start_position: int) -> int:
        """Return the last batch border from the start on that is not behind a position."""
        positions = self.borders.positions
        entry = int(np.searchsorted(positions, position, side="right")) - 1
        return max(start_position, int(positions[entry])) if entry >= 0 else start_position


def _borders(tier: Tier, scan_range: ScanRange) -> _Borders:
    if scan_range.size_bytes <= _PIECE_BYTES:
        return _Borders(BatchBorders.unknown(scan_range.segment.size_bytes))
    try:
        return _Borders(fetch_borders(tier, scan_range.segment))
    except (CorruptDataError, ObjectNotFoundError):  # slower, never wrong
        return _Borders(BatchBorders.unknown(scan_range.segment.size_bytes))


def _grown(start: int, end: int) -> Iterator[tuple[int, int]]:
    size = _PIECE_BYTES
    while start < end:
        stop = min(end, start + size)
        yield start, stop
        start, size = stop, size * _GROWTH


def _decoder(scan_range: ScanRange, start_position: int, verify_checksums: bool) -> RecordDecoder:
    return range_decoder(
        scan_range, ["offset"], verify_checksums=verify_checksums, start_position=start_position, target_bytes=1 << 16
    )


def _fed(
    tier: Tier, scan_range: ScanRange, decoder: RecordDecoder, start: int, end: int
) -> Iterator[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    if end == scan_range.end_position:
        end = scan_range.read_end_position
    windows = tier.iter_log_windows(
        scan_range.segment, start, end, window_bytes=min(end - start, _WINDOW_BYTES_MAX), prefetch=0
    )
    with closing(windows):
        try:
            for _, window in windows:
                for batch in decoder.feed(window):
                    yield np.asarray(batch.column(0))
        except CorruptDataError as error:
            raise error.located(scan_range.describe()) from error.__cause__


@dataclass(frozen=True, slots=True)
class LastRecords:
    """The search for the last records of a scan.

    Args:
        tier: Stays the caller's.
        request: The scan, with all its bounds.
        count: Records wanted of each partition, at least 1.
        columns: What ``choose`` looks at.
        choose: Which of the scan's records count.
    """

    tier: Tier
    request: ScanRequest
    count: int
    columns: Sequence[str] = ()
    choose: Choose = iter

    def first_offsets(self, histories: Sequence[PartitionHistory]) -> dict[str, dict[int, int]]:
        """Return topic -> partition -> offset of the first of its last ``count`` records, or where its scan begins if
        it has fewer. For ``ScanRequest.starting_offsets``.

        Raises:
            As ``plan_scan`` and ``read_scan_range``.

        Cost: what lies between that offset and the end is read, and at most four times as many offsets.
        """
        found: dict[str, dict[int, int]] = {}
        with self.tier.machine.scheduler.pool(_CONCURRENCY, name="tierlog-last") as pool:
            for history, offset in zip(histories, run_all(pool, self._first_offset, histories), strict=True):
                found.setdefault(history.topic, {})[history.partition] = offset
        return found

    def _first_offset(self, history: PartitionHistory) -> int:
        (bounds,) = prepare_scan(self.tier, self.request, histories=[history]).bounds or (None,)
        if bounds is None:  # left out by the filter
            return history.end_offset_exclusive
        left, end, step = self.count, bounds.end_offset_exclusive, self.count + _SPARE_OFFSETS
        while end > bounds.first_offset:
            first = max(bounds.first_offset, end - step)
            offsets = self._offsets(history, first, end)
            if len(offsets) >= left:
                return int(offsets[len(offsets) - left].as_py())
            left -= len(offsets)
            end, step = first, step * _GROWTH
        return bounds.first_offset

    def _offsets(self, history: PartitionHistory, first: int, end_exclusive: int) -> pa.ChunkedArray:
        """int64, ascending: the offsets of [first, end) whose records count."""
        partition = {history.topic: {history.partition: first}}, {history.topic: {history.partition: end_exclusive}}
        request = replace(
            self.request,
            starting_offsets=partition[0],
            ending_offsets=partition[1],
            starting_timestamps=None,
            ending_timestamps=None,
        )
        columns = ["offset", *(name for name in self.columns if name != "offset")]
        found = []
        for scan_range in plan_scan(self.tier, request, histories=[history]).ranges:
            with closing(read_scan_range(self.tier, scan_range, columns=columns)) as rows:  # type: ignore[type-var]
                found += [chosen.column("offset") for chosen in self.choose(rows)]
        return pa.chunked_array(found, pa.int64())
