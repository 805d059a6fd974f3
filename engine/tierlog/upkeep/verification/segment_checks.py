"""A segment's log against what describes it: its description, leader epochs, transaction index, producer snapshot.

The index and the snapshot describe producers, of which the log shows only those that wrote in this very segment; so
only contradictions with the segment itself are faults. A compacted log has lost batches and markers that the snapshot,
which the cleaner does not change, still describes: facts about a gap in the offsets are believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import Buffer

from tierlog._native import indexes
from tierlog.errors import CorruptIndexError
from tierlog.log.checks.findings import Finding, fault, fault_of, note
from tierlog.log.checks.segment_walk import CheckedRun, Walk
from tierlog.log.checks.transactions import ABORT, COMMIT
from tierlog.log.formats.producer_snapshot import ProducerEntry
from tierlog.records.batch_table import CONTROL, TRANSACTIONAL


class CleanedOffsets:
    """The gaps of a segment, in memory for the queried offsets alone.

    Args:
        asked: The offsets that ``is_gone`` will be asked about.
        end_offset: Last offset that the segment may hold, inclusive; None if it is not known.

    A batch has its offsets as long as one of its records is left, so an offset between two batches belonged to a batch
    that is gone. A marker that the cleaner emptied has its header still and says no more than a gap.
    """

    def __init__(self, asked: Iterable[int], end_offset: int | None) -> None:
        self._asked = np.array(sorted(set(asked)), np.int64)
        self._held = np.zeros(len(self._asked), np.bool_)
        self._end_offset = end_offset
        self._last_offset = -1
        self._newest_gone = -1

    def observe(self, run: CheckedRun) -> None:
        base, last = run.column("base_offset"), run.column("last_offset")
        before = np.concatenate(([self._last_offset], last[:-1]))
        gaps = np.flatnonzero(base > before + 1)
        emptied = np.flatnonzero(((run.column("attributes") & CONTROL) != 0) & (run.column("record_count") == 0))
        if len(gaps):
            self._newest_gone = max(self._newest_gone, int(base[gaps[-1]]) - 1)
        if len(emptied):
            self._newest_gone = max(self._newest_gone, int(last[emptied[-1]]))
        self._last_offset = int(last[-1])
        place = np.searchsorted(last, self._asked)
        inside = place < len(last)
        self._held[inside] |= base[place[inside]] <= self._asked[inside]

    def is_gone(self, offset: int) -> bool:
        """Whether no batch holds an offset of those asked about, and the segment could have held it."""
        if self._end_offset is not None and offset > self._end_offset:
            return False
        place = int(np.searchsorted(self._asked, offset))
        return not self._held[place]

    def is_any_gone_above(self, offset: int) -> bool:
        """Whether something that was written behind an offset is there no more."""
        newest = self._newest_gone
        if self._end_offset is not None and self._end_offset > self._last_offset:
            newest = self._end_offset
        return newest > offset


TRANSACTION_ENTRY_BYTES = 34
#: More producers than this in one segment are not followed: each costs memory, and the bytes are not trusted.
PRODUCERS_MAX = 1 << 20


class EpochCheck:
    """Checks that each batch was written in the leader epoch that a checkpoint gives to its offset.

    Args:
        epochs: Epoch to start offset. Batches below the first start, or of an unknown epoch (-1), are not judged.
        source: Name of the checkpoint, for messages.
    """

    def __init__(self, epochs: Mapping[int, int], where: str, source: str) -> None:
        pairs = sorted(epochs.items())
        self._epochs = np.array([epoch for epoch, _ in pairs], np.int64)
        self._starts = np.array([start for _, start in pairs], np.int64)
        self._where = where
        self._source = source
        self._said: set[tuple[int, int]] = set()

    def observe(self, run: CheckedRun) -> Iterator[Finding]:
        if not len(self._epochs):
            return
        offsets, found = run.column("base_offset"), run.column("leader_epoch")
        place = np.searchsorted(self._starts, offsets, side="right") - 1
        expected = self._epochs[np.maximum(place, 0)]
        for batch in np.flatnonzero(run.sound & (place >= 0) & (found >= 0) & (found != expected)).tolist():
            pair = (int(expected[batch]), int(found[batch]))
            if pair not in self._said:  # once a pair, not once a batch
                self._said.add(pair)
                yield fault(
                    "LEADER_EPOCH",
                    f"leader epoch of the batch differs from {self._source}",
                    self._where,
                    position=int(run.column("position")[batch]),
                    offset=int(offsets[batch]),
                    expected=pair[0],
                    found=pair[1],
                )

    def finish(self, _walk: Walk, /) -> Iterator[Finding]:
        yield from ()


class RangeCheck:
    """Checks that offsets lie within those of the segment's description. Gaps between batches are legal, and counted.

    Args:
        start_offset: Lowest offset that may be in the log; None if unknown.
        end_offset: Last offset, inclusive, of the description; None if it was read from this very log.
        max_timestamp_ms: Largest timestamp of the description; None if unknown.
    """

    def __init__(
        self, where: str, *, start_offset: int | None, end_offset: int | None, max_timestamp_ms: int | None
    ) -> None:
        self._where = where
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._max_timestamp_ms = max_timestamp_ms
        self._last_offset = -1
        self._newest = -1
        self._gaps = 0
        self._first_gap = (-1, -1)

    def observe(self, run: CheckedRun) -> Iterator[Finding]:
        if self._start_offset is not None:
            yield from self._below(run, self._start_offset)
        self._count_gaps(run)
        if run.sound.any():
            self._last_offset = max(self._last_offset, int(run.column("last_offset")[run.sound].max()))
            self._newest = max(self._newest, int(run.column("max_timestamp")[run.sound].max()))

    def _below(self, run: CheckedRun, start_offset: int) -> Iterator[Finding]:
        low = np.flatnonzero(run.sound & (run.column("last_offset") < start_offset))
        if len(low):
            batch = int(low[0])
            yield fault(
                "SEGMENT_OFFSET",
                "the batch lies below the base offset of its segment",
                self._where,
                position=int(run.column("position")[batch]),
                offset=int(run.column("base_offset")[batch]),
                expected=f"at least {start_offset}",
                found=int(run.column("last_offset")[batch]),
            )

    def _count_gaps(self, run: CheckedRun) -> None:
        before = np.concatenate(([self._last_offset], run.column("last_offset")[:-1]))
        gaps = np.flatnonzero(run.sound & (before >= 0) & (run.column("base_offset") > before + 1))
        if len(gaps) and not self._gaps:
            first = int(gaps[0])
            self._first_gap = (int(before[first]) + 1, int(run.column("base_offset")[first]))
        self._gaps += len(gaps)

    def finish(self, walk: Walk, /) -> Iterator[Finding]:
        if self._gaps:
            first, end = self._first_gap
            yield note(
                "OFFSET_GAP",
                f"{self._gaps} gaps between batches (legal after compaction), the first from {first} to {end - 1}",
                self._where,
                offset=first,
            )
        if not walk.complete or self._last_offset < 0:
            return
        if self._end_offset is not None and self._last_offset != self._end_offset:
            above = self._last_offset > self._end_offset
            yield (fault if above else note)(
                "SEGMENT_OFFSET" if above else "OFFSET_GAP",
                "the last offset of the log is not the end offset of the segment's description",
                self._where,
                position=walk.end_position,
                expected=self._end_offset,
                found=self._last_offset,
            )
        if self._max_timestamp_ms is not None and self._newest >= 0 and self._newest != self._max_timestamp_ms:
            yield note(
                "MAX_TIMESTAMP",
                "the largest timestamp of the log is not that of the segment's description",
                self._where,
                expected=self._max_timestamp_ms,
                found=self._newest,
            )


@dataclass(slots=True)
class ProducerTrace:
    """The traces of one producer in this segment.

    Attributes:
        last_offset: Last offset of its last data batch here; -1 if there is none.
        epoch: Producer epoch of its last batch or marker here.
        newest_offset: Last offset of its last batch or marker here.
        marked: Whether its last batch here is a marker.
        first_open_offset: First offset here of the transaction that is open at the end; -1 if none began here.
    """

    last_offset: int = -1
    epoch: int = -1
    newest_offset: int = -1
    marked: bool = False
    first_open_offset: int = -1


class ProducerChecks:
    """The producers of a segment, compared with the transaction index and the producer snapshot."""

    def __init__(
        self,
        *,
        transaction_index: Buffer | None,
        transaction_index_where: str,
        snapshot: Sequence[ProducerEntry] | None,
        snapshot_where: str,
        end_offset: int | None,
    ) -> None:
        self._index_where = transaction_index_where
        self._snapshot_where = snapshot_where
        self._snapshot = snapshot
        told = [offset for each in snapshot or () for offset in (each.last_offset, each.transaction_first_offset)]
        self._cleaned = CleanedOffsets(told, end_offset)
        self._end_offset = end_offset
        self._early: list[Finding] = []
        self._known = transaction_index is not None
        self._entries = self._read_index(transaction_index)
        self._traces: dict[int, ProducerTrace] = {}
        self._next_entry = 0
        self._followed = True

    def _read_index(self, data: Buffer | None) -> list[tuple[int, int, int, int]]:
        if data is None:
            return []
        spare = memoryview(data).nbytes % TRANSACTION_ENTRY_BYTES
        if spare:
            self._early.append(
                fault(
                    "BAD_SIZE",
                    "the size is no multiple of an entry",
                    self._index_where,
                    position=memoryview(data).nbytes - spare,
                    expected=f"a multiple of {TRANSACTION_ENTRY_BYTES}",
                    found=memoryview(data).nbytes,
                )
            )
        try:
            entries = indexes.read_transaction_index(data)
        except CorruptIndexError as error:
            self._early.append(fault_of(error, self._index_where))
            self._known = False
            return []
        return [
            (int(producer), int(first), int(last), int(stable)) for producer, first, last, stable in entries.tolist()
        ]

    def observe(self, run: CheckedRun) -> Iterator[Finding]:
        yield from self._early
        self._early = []
        if not self._followed:
            return
        self._cleaned.observe(run)
        attributes = run.column("attributes")
        for batch in np.flatnonzero((run.column("producer_id") >= 0) & run.sound).tolist():
            if attributes[batch] & CONTROL:
                yield from self._marker(run, batch)
            else:
                self._data(run, batch, bool(attributes[batch] & TRANSACTIONAL))
        if len(self._traces) > PRODUCERS_MAX:
            self._followed = False
            yield note(
                "NOT_CHECKED",
                f"more than {PRODUCERS_MAX} producers in one segment: their state was not checked",
                self._snapshot_where,
            )

    def _data(self, run: CheckedRun, batch: int, transactional: bool) -> None:
        trace = self._traces.setdefault(int(run.table["producer_id"][batch]), ProducerTrace())
        trace.last_offset = trace.newest_offset = int(run.table["last_offset"][batch])
        trace.epoch = int(run.table["producer_epoch"][batch])
        trace.marked = False
        if transactional and trace.first_open_offset < 0:
            trace.first_open_offset = int(run.table["base_offset"][batch])

    def _marker(self, run: CheckedRun, batch: int) -> Iterator[Finding]:
        kind = run.markers.get(batch)
        if kind not in (ABORT, COMMIT):
            return
        producer_id, offset = int(run.table["producer_id"][batch]), int(run.table["base_offset"][batch])
        trace = self._traces.setdefault(producer_id, ProducerTrace())
        if kind == ABORT and self._known:
            yield from self._abort(producer_id, offset, trace.first_open_offset)
        trace.epoch = int(run.table["producer_epoch"][batch])
        trace.newest_offset = offset
        trace.marked = True
        trace.first_open_offset = -1

    def _abort(self, producer_id: int, offset: int, first_open_offset: int) -> Iterator[Finding]:
        """Compare the index entries up to an abort marker: earlier ones point at no marker, the one at the marker must
        fit.
        """
        while self._next_entry < len(self._entries) and self._entries[self._next_entry][2] < offset:
            yield self._without_marker(self._next_entry)
            self._next_entry += 1
        at = self._next_entry
        if at == len(self._entries) or self._entries[at][2] > offset:
            if first_open_offset >= 0:
                yield fault(
                    "MISSING_ABORT",
                    f"no entry for the transaction of producer {producer_id} that begins at "
                    f"{first_open_offset} and is aborted at {offset}",
                    self._index_where,
                    offset=offset,
                )
            return
        self._next_entry += 1
        found_producer, first, _, _ = self._entries[at]
        position = at * TRANSACTION_ENTRY_BYTES
        if found_producer != producer_id:
            yield fault(
                "ABORT_PRODUCER",
                "the abort marker is another producer's",
                self._index_where,
                position=position,
                offset=offset,
                expected=producer_id,
                found=found_producer,
            )
        elif first > offset or (first_open_offset >= 0 and first > first_open_offset):
            yield fault(
                "ABORT_FIRST_OFFSET",
                "the transaction began earlier",
                self._index_where,
                position=position,
                offset=offset,
                expected=first_open_offset if first_open_offset >= 0 else f"at most {offset}",
                found=first,
            )

    def _without_marker(self, entry: int) -> Finding:
        producer_id, _, last, _ = self._entries[entry]
        return fault(
            "ABORT_WITHOUT_MARKER",
            f"the log has no abort marker of producer {producer_id} there",
            self._index_where,
            position=entry * TRANSACTION_ENTRY_BYTES,
            offset=last,
        )

    def finish(self, walk: Walk, /) -> Iterator[Finding]:
        yield from self._early
        if not (walk.complete and self._followed) or walk.findings:
            return  # an unreadable log proves nothing against the others
        for entry in range(self._next_entry, len(self._entries)):
            yield self._without_marker(entry)
        for place, state in enumerate(self._snapshot or ()):
            yield from self._compare_state(place, state)

    def _compare_state(self, place: int, state: ProducerEntry) -> Iterator[Finding]:
        where, who = self._snapshot_where, f"producer {state.producer_id}"
        position = 10 + 46 * place
        if self._end_offset is not None and max(state.last_offset, state.transaction_first_offset) > self._end_offset:
            yield fault(
                "SNAPSHOT_OFFSET",
                f"{who}: an offset above the end of the segment",
                where,
                position=position,
                expected=f"at most {self._end_offset}",
                found=max(state.last_offset, state.transaction_first_offset),
            )
            return
        trace = self._traces.get(state.producer_id)
        if trace is None:
            return
        if trace.last_offset >= 0 and not self._fits_last_offset(trace, state.last_offset):
            yield fault(
                "SNAPSHOT_OFFSET",
                f"{who}: its newest batch in the log is another one",
                where,
                position=position,
                expected=trace.last_offset,
                found=state.last_offset,
            )
        newer = state.producer_epoch > trace.epoch and self._cleaned.is_any_gone_above(trace.newest_offset)
        if state.producer_epoch != trace.epoch and not newer:
            yield fault(
                "SNAPSHOT_EPOCH",
                f"{who}: its newest batch in the log has another epoch",
                where,
                position=position,
                expected=trace.epoch,
                found=state.producer_epoch,
            )
        opened = state.transaction_first_offset
        if trace.marked and opened >= 0 and not (opened > trace.newest_offset and self._cleaned.is_gone(opened)):
            yield fault(
                "SNAPSHOT_TRANSACTION",
                f"{who}: its transaction is over, but stands as open",
                where,
                position=position,
                expected=-1,
                found=opened,
            )
        elif trace.first_open_offset >= 0 and not 0 <= opened <= trace.first_open_offset:
            yield fault(
                "SNAPSHOT_TRANSACTION",
                f"{who}: its open transaction is not there",
                where,
                position=position,
                expected=trace.first_open_offset,
                found=opened,
            )

    def _fits_last_offset(self, trace: ProducerTrace, last_offset: int) -> bool:
        """Whether a snapshot's last offset is that of the newest batch here, or of a newer batch that was cleaned away.

        A marker of a newer epoch makes Kafka forget the batches (transactions v2): -1 then.
        """
        if last_offset == -1:
            return trace.marked or self._cleaned.is_any_gone_above(trace.newest_offset)
        return last_offset == trace.last_offset or (
            last_offset > trace.last_offset and self._cleaned.is_gone(last_offset)
        )
