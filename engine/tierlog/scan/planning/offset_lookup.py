"""The offset of a time, as Kafka's ``offsetsForTimes`` answers, and the batch border of an offset, over a tier.

The first segment whose largest timestamp is late enough is searched: time index, offset index, then the batches from
there on; where the segment has a footer, that says which batches they are, and no index is asked. As there, the first
*record* counts, and control records are records: a transaction marker carries the broker's clock and can be the answer.

Source: Kafka RemoteLogManager#findOffsetByTimestamp, RemoteIndexCache#lookupTimestamp, LogSegment.
Unlike there, a search that finds nothing (the late record lies on an abandoned branch) goes on in the next segment.

An entry of an offset index is (last offset of a batch, position of that batch) as Kafka 4.3 writes it, or (last offset
of an append of several batches, position of its first byte) as before. In both, every position is a border, everything
before it lies below the entry's offset, and everything from the *next* entry on lies above it. Nothing more is relied
on.
"""

from __future__ import annotations

import bisect
import itertools
import struct
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog._native.indexes import (
    lookup_timestamp,
    offset_index_entries,
    read_offset_index,
    time_index_entries,
)
from tierlog.errors import CorruptDataError, CorruptIndexError, CorruptRecordError
from tierlog.log.checks.index_checks import is_untrimmed
from tierlog.log.formats.segment_indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from tierlog.records.batch_runs import BatchRun
from tierlog.remote.api import IndexType
from tierlog.remote.metadata.lineage import Span
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.objects.footer import FooterBatches
from tierlog.remote.tier.tier import Tier, iter_batch_runs
from tierlog.scan.history import PartitionHistory

#: The search reads on from an index entry, a few KiB before its answer as a rule.
WINDOW_BYTES = 256 << 10
#: Largest timestamps of a cut segment's batches that are looked for.
_TIMESTAMPS_TRIED = 16
#: Of magic 2; the smallest batch of an older format is half as long, and is not looked at.
_HEADER_BYTES = 61
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BatchBorders:
    """The entries of one offset index, checked against the size of its log.

    Attributes:
        offsets, positions: int64[n_entries] each, rising; absolute offsets, bytes.
        size_bytes: Of the log.
        complete: Each batch of the part that is looked at has an entry, with its last offset.
    """

    offsets: NDArray[np.int64]
    positions: NDArray[np.int64]
    size_bytes: int
    complete: bool = False

    @classmethod
    def of_index(cls, data: Buffer, base_offset: int, size_bytes: int) -> Self:
        """Make the borders of an index's entries. Raises CorruptIndexError: the entries do not rise, or point outside
        of the log.
        """
        offsets, narrow = read_offset_index(data, base_offset)
        positions = narrow.astype(np.int64)
        if len(offsets):
            for name, values in (("offsets", offsets), ("positions", positions)):
                falls = np.flatnonzero(np.diff(values) <= 0)
                if len(falls):
                    entry = int(falls[0]) + 1
                    raise CorruptIndexError(
                        f"{name} of entry {entry} do not rise: {values[entry]} after {values[entry - 1]}",
                        fault="BAD_ORDER",
                        position=8 * entry,
                    )
            if positions[0] < 0 or positions[-1] >= max(size_bytes, 1) or offsets[0] < base_offset:
                raise CorruptIndexError(
                    f"entries reach from offset {offsets[0]} @ {positions[0]} to @ {positions[-1]}, "
                    f"the log from offset {base_offset} over {size_bytes} bytes",
                    fault="BAD_RANGE",
                )
        return cls(offsets, positions, size_bytes)

    @classmethod
    def of_footer(cls, batches: FooterBatches) -> Self:
        """Make the borders of all batches of a log."""
        return cls(batches.last_offset, batches.position, batches.end_position, complete=True)

    @classmethod
    def unknown(cls, size_bytes: int) -> Self:
        """Make borders without entries: the log can only be read whole."""
        none = np.empty(0, np.int64)
        return cls(none, none, size_bytes)

    def start_position(self, first_offset: int) -> int:
        """Return a border at or before the batch that holds ``first_offset`` (or, if it is gone, the next one).

        Unless all borders are known, a border before the batch in front of that one: no checksum covers an offset, and
        only the batch before shows whether the first offset that counts can be right.
        """
        if self.complete:
            entry = int(np.searchsorted(self.offsets, first_offset, side="left"))
            return int(self.positions[entry]) if entry < len(self.positions) else self.size_bytes
        entry = int(np.searchsorted(self.offsets, first_offset, side="left")) - 1
        return int(self.positions[entry]) if entry >= 0 else 0

    def end_position(self, end_offset_exclusive: int) -> int:
        """Return a border at or behind which every batch lies at or above ``end_offset_exclusive``; else the size."""
        entry = int(np.searchsorted(self.offsets, end_offset_exclusive - 1, side="left")) + 1
        return int(self.positions[entry]) if entry < len(self.positions) else self.size_bytes

    def cut(self, start_position: int, end_position: int, max_bytes: int) -> list[tuple[int, int]]:
        """Return pieces of about even size, each at most ``max_bytes`` where the borders allow it, in order, without a
        gap.
        """
        total = end_position - start_position
        if total <= 0:
            return []
        wanted = -(-total // max_bytes)
        inner = self.positions[(self.positions > start_position) & (self.positions < end_position)]
        if wanted > len(inner):
            chosen = inner
        else:
            ideals = start_position + np.arange(1, wanted, dtype=np.int64) * total // wanted
            after = np.searchsorted(inner, ideals).clip(max=len(inner) - 1)
            before = (after - 1).clip(min=0)
            nearer = ideals - inner[before] < inner[after] - ideals
            chosen = np.unique(inner[np.where(nearer, before, after)])
        return list(itertools.pairwise([start_position, *chosen.tolist(), end_position]))

    def offset_bounds(self, start_position: int, end_position: int) -> tuple[int, int]:
        """[first, end) that surely holds every offset between two borders; as narrow as the entries allow."""
        before = int(np.searchsorted(self.positions, start_position, side="left")) - 1
        behind = int(np.searchsorted(self.positions, end_position, side="left"))
        first = int(self.offsets[before]) + 1 if before >= 0 else 0
        if self.complete and 0 < behind < len(self.offsets):
            return first, int(self.offsets[behind - 1]) + 1
        end = int(self.offsets[behind]) if behind < len(self.offsets) else 2**63 - 1
        return first, end


@dataclass(frozen=True, slots=True)
class TimestampedOffset:
    """The answer: a record's offset and its timestamp in ms."""

    offset: int
    timestamp_ms: int


def find_offset_by_timestamp(
    tier: Tier, history: PartitionHistory, timestamp_ms: int, *, end_offset_exclusive: int | None = None
) -> TimestampedOffset | None:
    """Find the first record of that time or later; None if there is none below the end.

    Args:
        tier: The tier of the history.
        history: Of one partition.
        timestamp_ms: What to look for.
        end_offset_exclusive: By default the history's end; an answer at or behind it counts as none.

    Raises:
        CorruptRecordError, CorruptObjectError, StoreError and its kinds: as reading the log does.
    """
    end = history.end_offset_exclusive if end_offset_exclusive is None else end_offset_exclusive
    for span in history.spans_between(history.log_start_offset, end):
        if span.segment.metadata.max_timestamp_ms >= timestamp_ms:
            found = _search(tier, _described(tier, span), timestamp_ms)
            if found is not None:
                return found
    return None


def _described(tier: Tier, span: Span) -> Span:
    return replace(span, segment=tier.describe_segment(span.segment))


def find_max_timestamp(tier: Tier, history: PartitionHistory) -> TimestampedOffset | None:
    """Find the first record with the largest timestamp; None if there is no record with one.

    Segments are searched from the largest timestamp that their metadata claim on down, until no other can have a larger
    one. Where the claim is of a record that does not count, the segment's headers are read.

    Raises:
        As ``find_offset_by_timestamp``.
    """
    best: TimestampedOffset | None = None
    for span in sorted(history.spans, key=lambda span: (-span.segment.metadata.max_timestamp_ms, span.first_offset)):
        claimed_ms = span.segment.metadata.max_timestamp_ms
        if claimed_ms < 0 or (best is not None and claimed_ms < best.timestamp_ms):
            break
        span = _described(tier, span)
        found = _search(tier, span, claimed_ms)
        if found is None:
            least_ms = 0 if best is None else best.timestamp_ms
            found = next(filter(None, (_search(tier, span, ms) for ms in _timestamps_down(tier, span, least_ms))), None)
        if found is not None and (
            best is None or (-found.timestamp_ms, found.offset) < (-best.timestamp_ms, best.offset)
        ):
            best = found
    return best


def _timestamps_down(tier: Tier, span: Span, least_ms: int) -> list[int]:
    """Return the largest timestamps of the batches of a span, ms, descending, down to ``least_ms``; a few of them,
    since the first is that of a record that counts unless its batch lies across the span's border.
    """
    batches = tier.footers.fetch_batches(span.segment)
    if batches is not None:
        inside = (batches.last_offset >= span.first_offset) & (batches.base_offset < span.end_offset_exclusive)
        found = np.unique(batches.greatest_timestamp[inside])[-_TIMESTAMPS_TRIED:]
        return [int(ms) for ms in found[::-1] if ms >= least_ms]
    largest = np.empty(0, np.int64)
    with closing(iter_batch_runs(tier, span.segment)) as runs:  # type: ignore[type-var]
        for run in runs:
            inside = (run.column("last_offset") >= span.first_offset) & (
                run.column("base_offset") < span.end_offset_exclusive
            )
            largest = np.unique(np.concatenate([largest, run.column("max_timestamp")[inside]]))[-_TIMESTAMPS_TRIED:]
    return [int(ms) for ms in largest[::-1] if ms >= least_ms]


def offsets_in_time(tier: Tier, span: Span, first_ms: int, end_ms: int, *, by_index: bool) -> tuple[int, int]:
    """Return the offsets [first, end) of a span outside of which none of its records is of a time in [first, end), as
    far as its footer knows.

    Args:
        tier: Has the segment.
        span: Of the segment.
        first_ms: First time.
        end_ms: Behind the last time; 2^63-1 is no bound.
        by_index: Whether to ask the time index for the first offset, where there is no footer.

    Returns:
        An empty range if there is no such record.

    Raises:
        As ``fetch_borders``, but for a damaged index, which says nothing.
    """
    whole, none = (span.first_offset, span.end_offset_exclusive), (span.end_offset_exclusive,) * 2
    end = None if end_ms == _INT64_MAX else end_ms
    totals = tier.footers.fetch_totals(span.segment)
    if totals is not None and totals.greatest_timestamp_ms is not None and totals.least_timestamp_ms is not None:
        least, greatest = totals.least_timestamp_ms, totals.greatest_timestamp_ms
        if greatest < first_ms or (end is not None and least >= end):
            return none
        if least >= first_ms and (end is None or greatest < end):
            return whole
    batches = None if totals is None else tier.footers.fetch_batches(span.segment)
    if batches is None:
        first = first_late_offset(tier, span.segment, first_ms) if by_index else span.first_offset
        return max(span.first_offset, first), span.end_offset_exclusive
    wanted = batches.has_data & (batches.greatest_timestamp >= first_ms)
    wanted &= (batches.last_offset >= span.first_offset) & (batches.base_offset < span.end_offset_exclusive)
    if end is not None:
        wanted &= ~batches.times_known | (batches.least_timestamp < end)
    found = np.flatnonzero(wanted)
    if not len(found):
        return none
    first, last = int(batches.base_offset[found[0]]), int(batches.last_offset[found[-1]])
    return max(whole[0], first), min(whole[1], last + 1)


def first_late_offset(tier: Tier, segment: StoredSegment, timestamp_ms: int) -> int:
    """Return an offset below which no record of the segment is of that time or later, as far as its time
    index knows.
    """
    try:
        data = _time_index(tier, segment)
        if not data:
            return segment.start_offset
        earlier_ms, offset = lookup_timestamp(data, segment.start_offset, timestamp_ms - 1)
    except CorruptIndexError:
        return segment.start_offset
    return segment.start_offset if earlier_ms < 0 else max(segment.start_offset, offset + 1)


def fetch_borders(tier: Tier, segment: StoredSegment) -> BatchBorders:
    """Fetch the batch borders that the segment's footer or, without one, its offset index knows; none where the layout
    has no such index.

    Raises:
        CorruptIndexError, CorruptObjectError: the index is damaged; names it.
        ObjectNotFoundError, StoreError and its kinds: as ``Tier.fetch_index``.
    """
    batches = tier.footers.fetch_batches(segment)
    if batches is not None:
        return BatchBorders.of_footer(batches)
    data = tier.fetch_index(segment, IndexType.OFFSET)
    if not data:
        return BatchBorders.unknown(segment.size_bytes)
    if is_untrimmed(data, OFFSET_ENTRY_BYTES, offset_index_entries):
        data = memoryview(data)[: OFFSET_ENTRY_BYTES * _entries_in_use(tier, segment, data)]
    try:
        return BatchBorders.of_index(data, segment.start_offset, segment.size_bytes)
    except CorruptIndexError as error:
        raise error.located(f"{segment.name} (offset index)") from None


def _entries_in_use(tier: Tier, segment: StoredSegment, data: Buffer) -> int:
    """Count the entries of an active segment's offset index that point at batches of its log.

    Kafka truncates an index by its count of entries, which only the running broker knows: behind those in use there
    may be older ones, of batches that are gone. An entry is in use if the batch at its position ends with its offset.
    """
    offsets, positions = read_offset_index(data, segment.start_offset)

    def staleness(entry: int) -> int:
        return int(_last_offset_at(tier, segment, int(positions[entry])) != int(offsets[entry]))

    return bisect.bisect_left(range(len(offsets)), 1, key=staleness)


def _last_offset_at(tier: Tier, segment: StoredSegment, position: int) -> int | None:
    """Read the last offset of the batch that begins at a position; None if none can begin there."""
    end = position + _HEADER_BYTES
    if position < 0 or end > segment.size_bytes:
        return None
    with closing(tier.iter_log_windows(segment, position, end, window_bytes=_HEADER_BYTES, prefetch=0)) as windows:
        header = b"".join(window for _, window in windows)
    base_offset, magic, last_offset_delta = struct.unpack(">q8xb6xi", header[:27])
    return int(base_offset + last_offset_delta) if magic == 2 else int(base_offset)


def _time_index(tier: Tier, segment: StoredSegment) -> Buffer | None:
    """Return the time index; None where its entries cannot be distinguished from older ones that a truncation left
    behind them.
    """
    data = tier.fetch_index(segment, IndexType.TIMESTAMP)
    if data is not None and is_untrimmed(data, TIME_ENTRY_BYTES, time_index_entries):
        return None
    return data


def _search(tier: Tier, span: Span, timestamp_ms: int) -> TimestampedOffset | None:
    segment = span.segment
    begins = _first_late_batch(tier, span, timestamp_ms)
    if begins is None:
        return None
    position, next_offset = begins
    with closing(iter_batch_runs(tier, segment, position, window_bytes=WINDOW_BYTES)) as runs:  # type: ignore[type-var]
        found = None
        for run in runs:
            next_offset = _require_order(run, segment, next_offset)
            if found is not None:
                return found
            found = _search_run(run, span, timestamp_ms)
            if found is not None and found.offset < int(run.column("base_offset")[-1]):
                return found  # else the next batch shows whether that offset can be right
            if found is None and int(run.column("base_offset")[-1]) >= span.end_offset_exclusive:
                return None
    return found


def _first_late_batch(tier: Tier, span: Span, timestamp_ms: int) -> tuple[int, int] | None:
    """Return the position of a batch before which no record of a span is of that time or later, and an offset that no
    batch from there on begins below; None if no record is.
    """
    segment = span.segment
    batches = tier.footers.fetch_batches(segment)
    if batches is not None:
        late = (batches.greatest_timestamp >= timestamp_ms) & (batches.last_offset >= span.first_offset)
        found = np.flatnonzero(late & (batches.base_offset < span.end_offset_exclusive))
        if not len(found):
            return None
        first = int(found[0])
        before = int(batches.last_offset[first - 1]) + 1 if first else segment.start_offset
        return int(batches.position[first]), before
    near = max(span.first_offset, _index_offset(tier, segment, timestamp_ms))
    try:
        return fetch_borders(tier, segment).start_position(near), segment.start_offset
    except CorruptDataError:
        return 0, segment.start_offset


def _require_order(run: BatchRun, segment: StoredSegment, least_offset: int) -> int:
    """Return the least offset that can follow a run. No checksum covers a base offset: a wrong one would be the answer.

    Raises:
        CorruptRecordError: the offsets do not rise, or lie outside of the segment.
    """
    base, last = run.column("base_offset"), run.column("last_offset")
    least = np.concatenate(([least_offset], last[:-1] + 1))
    wrong = np.flatnonzero((base < least) | (last < base) | (last > segment.end_offset))
    if len(wrong):
        batch = int(wrong[0])
        raise CorruptRecordError(
            f"impossible offset: {least[batch]} to {segment.end_offset} expected, found {base[batch]} to {last[batch]}",
            fault="BAD_OFFSET",
            position=int(run.column("position")[batch]),
            base_offset=int(base[batch]),
            where=segment.place,
        )
    return int(last[-1]) + 1


def _index_offset(tier: Tier, segment: StoredSegment, timestamp_ms: int) -> int:
    """Return the offset to begin at: the last one of a batch before which no record is of that time or later."""
    try:
        data = _time_index(tier, segment)
        return lookup_timestamp(data, segment.start_offset, timestamp_ms)[1] if data else segment.start_offset
    except CorruptDataError:
        return segment.start_offset


def _search_run(run: BatchRun, span: Span, timestamp_ms: int) -> TimestampedOffset | None:
    late = run.column("max_timestamp") >= timestamp_ms
    try:
        inside = (run.column("last_offset") >= span.first_offset) & run.begins_below(span.end_offset_exclusive)
    except CorruptDataError as error:
        raise error.located(span.segment.place) from None
    found = np.flatnonzero(late & inside)
    if not found.size:
        return None
    from tierlog._native.decoding import RecordDecoder  # loads Arrow, which a server can do without until it searches

    for batch in found:
        decoder = RecordDecoder(
            ["offset", "timestamp"],
            base_position=int(run.column("position")[batch]),
            from_offset=span.first_offset,
            to_offset_exclusive=span.end_offset_exclusive,
            from_timestamp_ms=timestamp_ms,
            control_records=True,
        )
        try:
            rows = [*decoder.feed(run.bytes_of(int(batch))), *decoder.finish()]
        except CorruptDataError as error:
            raise error.located(span.segment.place) from None
        for part in rows:
            if part.num_rows:
                return TimestampedOffset(part["offset"][0].as_py(), int(part["timestamp"].cast("int64")[0].as_py()))
    return None
