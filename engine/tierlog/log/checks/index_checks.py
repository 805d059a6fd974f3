"""The offset and time index of a segment: held against the log that they index while it streams by, or built from it.

Entries of all Kafka versions are legal: since 4.3 an entry points at the batch whose last offset it holds; before, one
entry stood for a whole append, with the position of its first byte and the offset of its last record; before 0.11 with
the first offset. The check demands the properties that a lookup relies on, which are the same for all.

A copy without one of its indexes (or with an index that does not pass its check) is made whole by the IndexBuilder, and
the verifier compares with it: it builds as Kafka 4.3 does while appending, one entry a batch.

Source: Kafka LogSegment#append, #recover and #onBecomeInactiveSegment (docs/formats/log-files.md, Offset index).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Unpack

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog._native import indexes
from tierlog._native.appends import IndexTail
from tierlog.arguments import INT32_MAX
from tierlog.errors import CorruptIndexError, CorruptRecordError
from tierlog.log.checks.findings import Details, Finding, Severity, fault, fault_of, note
from tierlog.log.checks.segment_walk import CheckedRun, Walk
from tierlog.log.formats.segment_indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from tierlog.records.batch_runs import BatchColumns


class _IndexCheck:
    """One index: its entries that can be compared with the log, and the faults that it has in itself.

    Args:
        check: Raises CorruptIndexError at the first fault.
        count: How many entries are in use.
    """

    def __init__(
        self, data: Buffer, entry_bytes: int, check: Callable[[], None], count: Callable[[Buffer], int], where: str
    ) -> None:
        self._where = where
        self._entry_bytes = entry_bytes
        self._early: list[Finding] = []
        in_use = used = count(data)
        try:
            check()
        except CorruptIndexError as error:
            self._early.append(fault_of(error, where))
            if error.position >= 0:
                in_use = min(in_use, error.position // entry_bytes)
        spare = memoryview(data).nbytes // entry_bytes - used
        if spare > 0:
            text = f"{spare} empty entries behind the last one (the index was not trimmed)"
            self._early.append(note("PREALLOCATED", text, where, position=used * entry_bytes))
        self._whole = memoryview(data)[: in_use * entry_bytes]

    def _take_early(self) -> Iterator[Finding]:
        yield from self._early
        self._early = []

    def _fault(self, entry: int, kind: str, text: str, **details: Unpack[Details]) -> Finding:
        """Return the fault of one entry; ``details`` has no position."""
        details["position"] = entry * self._entry_bytes
        return fault(kind, text, self._where, **details)


class OffsetIndexCheck(_IndexCheck):
    """Checks that each entry points at the start of a batch from which a lookup of its offset may begin."""

    def __init__(self, data: Buffer, base_offset: int, where: str) -> None:
        check = partial(indexes.check_offset_index, data, base_offset)
        super().__init__(data, OFFSET_ENTRY_BYTES, check, indexes.offset_index_entries, where)
        offsets, positions = indexes.read_offset_index(self._whole, base_offset)
        self._offsets = offsets.astype(np.int64)
        self._positions = positions.astype(np.int64)
        self._matched = 0  # entries whose position was compared
        self._resolved = 0  # entries whose offset was compared
        self._first_offset = np.full(len(self._offsets), -1, np.int64)  # of the batch at the entry's position
        self._comparable = True

    def observe(self, run: CheckedRun) -> Iterator[Finding]:
        yield from self._take_early()
        yield from self._match_positions(run)
        yield from self._resolve_offsets(run)

    def finish(self, walk: Walk, /) -> Iterator[Finding]:
        yield from self._take_early()
        if not walk.complete:
            return
        for entry in range(self._matched, len(self._offsets)):
            yield self._fault(
                entry,
                "INDEX_POSITION",
                "the entry points behind the last batch of the log",
                offset=int(self._offsets[entry]),
                expected=f"below {walk.end_position}",
                found=int(self._positions[entry]),
            )
        for entry in range(self._resolved, self._matched if self._comparable else 0):
            yield self._fault(
                entry,
                "INDEX_OFFSET",
                "the entry's offset is above the last offset of the log",
                found=int(self._offsets[entry]),
                expected="the last offset of a batch",
            )

    def _match_positions(self, run: CheckedRun) -> Iterator[Finding]:
        batches = run.column("position")
        start, stop = self._matched, int(np.searchsorted(self._positions, run.end_position))
        if stop <= start:
            return
        positions, offsets = self._positions[start:stop], self._offsets[start:stop]
        place = np.searchsorted(batches, positions, side="right") - 1
        first = run.column("base_offset")[place]
        inside = batches[place] != positions
        below = ~inside & (offsets < first) & run.sound[place]
        for at in np.flatnonzero(inside | below).tolist():
            if inside[at]:
                yield self._fault(
                    start + at,
                    "INDEX_POSITION",
                    "the entry points into a batch, not at its start",
                    offset=int(offsets[at]),
                    expected=int(batches[place[at]]),
                    found=int(positions[at]),
                )
            else:
                yield self._fault(
                    start + at,
                    "INDEX_OFFSET",
                    "the entry's offset is below the batch that it points at",
                    expected=f"at least {int(first[at])}",
                    found=int(offsets[at]),
                )
        self._first_offset[start:stop] = first
        self._matched = stop

    def _resolve_offsets(self, run: CheckedRun) -> Iterator[Finding]:
        last = run.column("last_offset")
        self._comparable = self._comparable and bool(run.sound.all()) and bool((np.diff(last) > 0).all())
        start = self._resolved
        stop = int(np.searchsorted(self._offsets[: self._matched], last[-1], side="right"))
        if not self._comparable or stop <= start:
            return
        offsets = self._offsets[start:stop]
        place = np.searchsorted(last, offsets)
        judged = offsets > self._first_offset[start:stop]  # else the oldest style, or said by _match_positions
        between = judged & (last[place] != offsets)
        following = self._positions[start + 1 : stop + 1]
        following = np.concatenate((following, np.full(len(offsets) - len(following), 2**62)))
        behind = judged & ~between & (run.column("position")[place] >= following)
        for at in np.flatnonzero(between | behind).tolist():
            if between[at]:
                yield self._fault(
                    start + at,
                    "INDEX_OFFSET",
                    "the entry's offset is not the last one of a batch",
                    found=int(offsets[at]),
                    expected=int(last[place[at]]),
                )
            else:
                yield self._fault(
                    start + at,
                    "INDEX_OFFSET",
                    "the entry's offset lies at or behind the next entry's batch",
                    found=int(offsets[at]),
                    expected=f"an offset before position {int(following[at])}",
                )
        self._resolved = stop


class TimeIndexCheck(_IndexCheck):
    """Checks that each entry holds the largest timestamp so far and an offset of the batch that has it."""

    def __init__(self, data: Buffer, base_offset: int, where: str) -> None:
        check = partial(indexes.check_time_index, data, base_offset)
        super().__init__(data, TIME_ENTRY_BYTES, check, indexes.time_index_entries, where)
        self._timestamps, self._offsets = indexes.read_time_index(self._whole, base_offset)
        self._next = 0
        self._newest = -1
        self._comparable = True

    def observe(self, run: CheckedRun) -> Iterator[Finding]:
        yield from self._take_early()
        last, newest = run.column("last_offset"), run.column("max_timestamp")
        so_far = np.maximum.accumulate(np.maximum(newest, self._newest))
        self._comparable = self._comparable and bool((np.diff(last) > 0).all())
        stop = int(np.searchsorted(self._offsets, last[-1], side="right")) if self._comparable else self._next
        if stop > self._next:
            yield from self._compare_all(run, slice(self._next, stop), so_far)
        self._next = max(self._next, stop)
        self._newest = int(so_far[-1])

    def _compare_all(self, run: CheckedRun, entries: slice, so_far: NDArray[np.int64]) -> Iterator[Finding]:
        """Compare all entries at once; only wrong entries are then looked at one by one."""
        timestamps, offsets = self._timestamps[entries], self._offsets[entries]
        place = np.searchsorted(run.column("last_offset"), offsets)
        first, newest = run.column("base_offset")[place], run.column("max_timestamp")[place]
        wrong = (offsets < first) | (timestamps != newest) | (so_far[place] > timestamps)
        for at in np.flatnonzero(wrong & run.sound[place]).tolist():
            yield from self._compare(
                entries.start + at,
                int(first[at]),
                int(newest[at]),
                int(so_far[place[at]]),
                int(run.column("position")[place[at]]),
            )

    def _compare(self, entry: int, first: int, newest: int, so_far: int, batch_position: int) -> Iterator[Finding]:
        timestamp, offset = int(self._timestamps[entry]), int(self._offsets[entry])
        if offset < first:
            yield self._fault(
                entry,
                "TIME_INDEX_OFFSET",
                "no batch of the log holds the entry's offset",
                found=offset,
                expected=f"an offset of a batch, as {first}",
            )
        elif timestamp != newest:
            yield self._fault(
                entry,
                "TIME_INDEX_TIMESTAMP",
                f"the timestamp is not the largest of the batch at log position {batch_position}",
                offset=offset,
                expected=newest,
                found=timestamp,
            )
        elif so_far > timestamp:
            yield self._fault(
                entry,
                "TIME_INDEX_TIMESTAMP",
                "an earlier batch of the log has a larger timestamp",
                offset=offset,
                expected=so_far,
                found=timestamp,
            )

    def finish(self, walk: Walk, /) -> Iterator[Finding]:
        yield from self._take_early()
        if not (walk.complete and self._comparable):
            return
        for entry in range(self._next, len(self._offsets)):
            yield self._fault(
                entry,
                "TIME_INDEX_OFFSET",
                "the entry's offset is above the last offset of the log",
                found=int(self._offsets[entry]),
            )


def is_untrimmed(data: Buffer, entry_bytes: int, count: Callable[[Buffer], int]) -> bool:
    """Whether an index has zeros behind its entries, as while its broker runs or after an unclean stop."""
    return memoryview(data).nbytes // entry_bytes > count(data)


class LiveIndexCheck:
    """Checks the untrimmed index of an active segment: all entries that do not fit the log become one note.

    When a log is truncated, the broker lowers its count of entries and leaves the file as it is: until old entries are
    overwritten, or the index is trimmed by a roll or a clean stop, they stand behind those in use. After a crash the
    broker builds such an index anew. (Kafka: AbstractIndex#truncateToEntries0.)
    """

    def __init__(self, check: OffsetIndexCheck | TimeIndexCheck, where: str) -> None:
        self._check = check
        self._where = where
        self._stale: set[int] = set()

    def observe(self, run: CheckedRun) -> Iterator[Finding]:
        yield from self._sifted(self._check.observe(run))

    def finish(self, walk: Walk, /) -> Iterator[Finding]:
        yield from self._sifted(self._check.finish(walk))
        if self._stale:
            yield note(
                "STALE_ENTRIES",
                f"{len(self._stale)} entries do not fit the log (the active segment: truncating it leaves them behind)",
                self._where,
                position=min(self._stale),
            )

    def _sifted(self, findings: Iterator[Finding]) -> Iterator[Finding]:
        for finding in findings:
            if finding.severity is Severity.FAULT:
                self._stale.add(finding.position)
            else:
                yield finding


#: Kafka's default of index.interval.bytes.
INDEX_INTERVAL_BYTES = 4096


class IndexBuilder:
    """The builder of one segment's offset and time index from its batches in file order.

    They get the entries that a log writes while it grows. The last time entry is that of closing the segment.

    Args:
        base_offset: The segment's base offset.
        index_interval_bytes: The topic's index.interval.bytes when the segment was written.
    """

    def __init__(self, base_offset: int, *, index_interval_bytes: int = INDEX_INTERVAL_BYTES) -> None:
        self._tail = IndexTail(
            base_offset, interval_bytes=index_interval_bytes, offset_entries_max=INT32_MAX, time_entries_max=INT32_MAX
        )
        self._last_offset = base_offset - 1
        self._offsets = bytearray()
        self._times = bytearray()

    def add(self, columns: BatchColumns) -> None:
        """Take further batches.

        Args:
            columns: Columns of ``scan_batches``; positions count from the start of the segment.

        Raises:
            CorruptRecordError: offsets do not rise, or do not fit an index of this base offset.
        """
        last_offsets, positions = (columns[name].astype(np.int64) for name in ("last_offset", "position"))
        if not positions.size:
            return
        before = np.concatenate(([self._last_offset], last_offsets[:-1]))
        for at in np.flatnonzero(last_offsets <= before)[:1].tolist():
            text = f"the batch ends at offset {last_offsets[at]}, behind {before[at]}"
            raise CorruptRecordError(text, fault="BAD_OFFSET", position=int(positions[at]))
        offsets, times = self._tail.add(columns, position=int(positions[0]))
        self._offsets += offsets
        self._times += times
        self._last_offset = int(last_offsets[-1])

    def offset_index(self) -> bytes:
        """Return the ``.index`` of the batches so far."""
        return bytes(self._offsets)

    def time_index(self, *, closed: bool = True) -> bytes:
        """Return the ``.timeindex`` of the batches so far.

        Args:
            closed: Whether to add the entry of a roll or a clean stop; False for a segment that is still written to.
        """
        if closed:
            self._times += self._tail.close()
        return bytes(self._times)
