"""Producers' state restored: the newest snapshot, and the batches of the log behind it, read by columns.

One batch after the other costs more than reading and checksumming it. Between two control batches only this matters of
a producer: its last five batches of its last epoch, and the first batch of a transaction. The outcome is that of
``ProducerState.replay``.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tierlog._native.appends import Marker, find_marker, sequence_after
from tierlog.errors import CorruptIndexError, CorruptRecordError
from tierlog.log.local.log_errors import AppendRefusedError
from tierlog.log.local.producers.producer_appends import PRODUCER_COLUMNS, iter_producer_batches
from tierlog.log.local.producers.producer_entries import (
    BATCHES_KEPT,
    NO_COORDINATOR_EPOCH,
    NO_PRODUCER_ID,
    BatchMetadata,
    ProducerStateEntry,
)
from tierlog.log.local.producers.producer_snapshots import ProducerSnapshots
from tierlog.log.local.producers.producer_state import AbortedTransaction, ProducerState
from tierlog.log.local.segments.log_segment import LogSegment, LogSegments
from tierlog.records.batch_runs import BatchRuns
from tierlog.records.batch_table import CONTROL, TRANSACTIONAL

_PRODUCERS_MAGIC: Final = 2
_FOLDED: Final = (
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "base_offset",
    "last_offset",
    "max_timestamp",
    "attributes",
)
#: Columns that are read here.
REPLAYED_COLUMNS: Final = (*PRODUCER_COLUMNS, "magic")
#: A marker is some 78 bytes; no control batch is larger than this.
_CONTROL_SIZE_BYTES_MAX: Final = 1 << 20

Columns = Mapping[str, NDArray[Any]]


class ProducerReplay:
    """The replay of a log's batches in order, in pieces; ``finish`` replays those still held back.

    Args:
        state: Changed. It lags behind the fed batches until ``finish``.
        read: The bytes of a control batch: (position, size) to bytes, as ``columns["position"]`` counts.
        rows_held: Rows are held back until there are so many: a fold costs the same for a hundred as for thousands.

    Not thread-safe.
    """

    def __init__(self, state: ProducerState, *, read: Callable[[int, int], memoryview], rows_held: int = 8192) -> None:
        self._state = state
        self._read = read
        self._rows_held = rows_held
        self._held: list[dict[str, NDArray[Any]]] = []
        self._rows = 0

    def feed(self, columns: Columns) -> list[AbortedTransaction]:
        """Take batches, as ``scan_batches`` has them; the transactions that turned out to be aborted, for the index.

        Raises:
            CorruptRecordError: a control batch has no sound record, or a batch of no transaction stands in an open one;
                ``position`` is that batch's. Everything in front of it is in the state.
        """
        count = len(columns["producer_id"])
        if not count:
            return []
        self._held.append({name: columns[name] for name in REPLAYED_COLUMNS})
        self._rows += count
        return self.finish() if self._rows >= self._rows_held else []

    def finish(self) -> list[AbortedTransaction]:
        """Replay the held-back batches. Raises as ``feed``."""
        held, self._held, self._rows = self._held, [], 0
        if not held:
            return []
        rows = held[0] if len(held) == 1 else {name: np.concatenate([h[name] for h in held]) for name in held[0]}
        aborted: list[AbortedTransaction] = []
        new = np.flatnonzero(rows["magic"] >= _PRODUCERS_MAGIC)
        if not new.size:
            return aborted
        end_offset = int(rows["last_offset"][new[-1]]) + 1
        theirs = rows["producer_id"] > NO_PRODUCER_ID
        if not theirs.all():
            rows = {name: column[theirs] for name, column in rows.items()}
        for run, is_control in _runs((rows["attributes"] & CONTROL) != 0):
            part = {name: rows[name][run] for name in REPLAYED_COLUMNS}
            if is_control or not _fold(self._state, part):
                aborted += self._replay(part)
        self._state.end_offset = end_offset
        return aborted

    def _replay(self, rows: Columns) -> list[AbortedTransaction]:
        """Replay one batch after the other."""
        aborted: list[AbortedTransaction] = []
        for position, batch in iter_producer_batches(rows, self._marker_at):
            try:
                aborted += self._state.replay((batch,), end_offset=batch.last_offset + 1)
            except AppendRefusedError as cause:
                raise CorruptRecordError(
                    cause.text, fault="BAD_TRANSACTION", position=position, base_offset=batch.base_offset
                ) from cause
        return aborted

    def _marker_at(self, position: int, size_bytes: int, _: int) -> Marker | None:
        data = self._read(position, min(size_bytes, _CONTROL_SIZE_BYTES_MAX))
        try:
            return find_marker(data)
        except CorruptRecordError as error:
            error.position = position
            raise


def _runs(is_control: NDArray[np.bool_]) -> Iterator[tuple[slice, bool]]:
    """Yield the runs of control batches and of others."""
    if not is_control.size:
        return
    borders = [0, *(np.flatnonzero(is_control[1:] != is_control[:-1]) + 1).tolist(), is_control.size]
    for start, end in itertools.pairwise(borders):
        yield slice(start, end), bool(is_control[start])


def _fold(state: ProducerState, rows: Columns) -> bool:
    """Take a run without control batches at once; False, and nothing has changed, if it must go batch by batch: a
    producer in it has batches inside and outside of a transaction.
    """
    end_offset = int(rows["last_offset"][-1]) + 1
    order = np.argsort(rows["producer_id"], kind="stable")
    rows = {name: rows[name][order] for name in _FOLDED}
    starts = np.flatnonzero(np.diff(rows["producer_id"], prepend=NO_PRODUCER_ID))
    ends = np.append(starts[1:], len(order))
    transactional = (rows["attributes"] & TRANSACTIONAL) != 0
    inside = np.add.reduceat(transactional, starts, dtype=np.int64)
    # First row of each producer's last epoch: behind the last row whose epoch is not that of its producer's last row.
    other = rows["producer_epoch"] != np.repeat(rows["producer_epoch"][ends - 1], ends - starts)
    changed = np.maximum.reduceat(np.where(other, np.arange(len(order)), -1), starts)
    tails = np.maximum(np.maximum(ends - BATCHES_KEPT, changed + 1), starts)
    listed = {name: rows[name].tolist() for name in _FOLDED}
    folded: list[ProducerStateEntry] = []
    begun: list[tuple[int, int]] = []
    groups = zip(starts.tolist(), ends.tolist(), tails.tolist(), changed.tolist(), inside.tolist(), strict=True)
    for start, end, tail, change, count in sorted(groups, key=lambda group: int(order[group[0]])):
        producer_id = listed["producer_id"][start]
        before = state.producers.get(producer_id)
        open_offset = None if before is None else before.current_txn_first_offset
        if count or open_offset is not None:
            if count < end - start:
                return False
            if open_offset is None:
                open_offset = listed["base_offset"][start]
                begun.append((open_offset, producer_id))
        coordinator_epoch = NO_COORDINATOR_EPOCH if before is None else before.coordinator_epoch
        epochs = [(listed["producer_epoch"][end - 1], range(tail, end))]
        if change >= start:  # the known batches of that epoch go, also if there were some before
            epochs.insert(0, (listed["producer_epoch"][change], range(0)))
        for epoch, kept in epochs:
            entry = ProducerStateEntry(
                producer_id,
                producer_epoch=epoch,
                coordinator_epoch=coordinator_epoch,
                last_timestamp_ms=listed["max_timestamp"][end - 1],
                current_txn_first_offset=open_offset,
                batches=[_metadata(listed, row) for row in kept],
            )
            folded.append(entry)
    state.take_run(folded, begun=sorted(begun), end_offset=end_offset)
    return True


def _metadata(listed: Mapping[str, list[int]], row: int) -> BatchMetadata:
    last_offset = listed["last_offset"][row]
    delta = last_offset - listed["base_offset"][row]
    sequence = sequence_after(listed["base_sequence"][row], delta)
    return BatchMetadata(sequence, last_offset, delta, listed["max_timestamp"][row])


_log = logging.getLogger(__name__)


def restore_producers(
    *,
    segments: LogSegments,
    producers: ProducerState,
    snapshots: ProducerSnapshots,
    log_start_offset: int,
    up_to_offset: int,
    now_ms: int,
    keep_later_snapshots: bool = False,
) -> None:
    """Restore the producers as they were at an offset: of a log that was cut there, or is opened (Kafka
    rebuildProducerState).

    Snapshots that lie outside of the log are deleted, the newest of the others is loaded, and the batches from there on
    are replayed, which needs no checksum. Snapshots are written at the begin of each segment that is replayed, and at
    the offset: without them a segment is not copied to the tier.

    Args:
        segments: Those of the log; only bytes in front of ``up_to_offset`` are read.
        producers: Changed.
        snapshots: Of the log's folder.
        log_start_offset: Of the log.
        up_to_offset: Behind the last batch that counts.
        now_ms: Producers that have expired by then are forgotten.
        keep_later_snapshots: Those behind the offset are of records that are in the log.

    Raises:
        CorruptRecordError: the log cannot be read. StoreError.
    """
    was_empty = producers.is_empty and producers.end_offset >= up_to_offset
    if not keep_later_snapshots:
        snapshots.truncate(log_start_offset=log_start_offset, log_end_offset=up_to_offset)
    if producers.end_offset == up_to_offset:
        latest = max((offset for offset in snapshots.offsets if offset <= up_to_offset), default=None)
        producers.on_log_start(log_start_offset, latest_snapshot_offset=latest)
    else:
        snapshots.load_latest(producers, log_start_offset=log_start_offset, log_end_offset=up_to_offset, now_ms=now_ms)
        _forget_compacted(segments, producers)
    # Kafka skips the replay of a log that knew no producer, and so leaves a transaction of the snapshot open for ever
    # if its producer expired since: its marker lies behind the snapshot.
    if up_to_offset > producers.end_offset and not (was_empty and producers.is_empty):
        for segment in segments.between(producers.end_offset, up_to_offset):
            producers.end_offset = max(segment.base_offset, producers.end_offset, log_start_offset)
            snapshots.take(producers)
            _replay(segment, producers, up_to_offset)
    producers.end_offset = up_to_offset
    snapshots.take(producers)


def _forget_compacted(segments: LogSegments, producers: ProducerState) -> None:
    """Forget the open transactions of a snapshot of which the log has no batch any more. A compaction stays in front of
    all open transactions: they have ended since, and their markers went after the last of their batches.
    """
    for entry in producers.open_transactions() if len(segments) else ():
        first, behind = entry.transaction_first_offset, producers.end_offset
        if first < segments.first.base_offset:
            continue  # of records that retention took, or that are in the tier
        if not any(_has_batch_of(segments, entry.producer_id, first, end) for end in (first + 1, behind)):
            _log.info("producer %d: the transaction from %d on was compacted away", entry.producer_id, first)
            producers.forget_transaction(entry.producer_id)


def _has_batch_of(segments: LogSegments, producer_id: int, from_offset: int, up_to_offset: int) -> bool:
    """Whether a range has a batch of a producer's transactions; also where it cannot be read to its end."""
    for segment in segments.between(from_offset, up_to_offset):
        try:
            start, end = _bounds(segment, from_offset, up_to_offset)
        except CorruptRecordError:
            return True
        runs = BatchRuns(segment.iter_windows(start, end), end_position=start)
        for run in runs:
            is_data = run.column("attributes") & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL
            if bool((is_data & (run.column("producer_id") == producer_id)).any()):
                return True
        if runs.broken is not None or runs.oversized:
            return True
    return False


def _replay(segment: LogSegment, producers: ProducerState, up_to_offset: int) -> None:
    """Replay a segment's batches from the producers' end on, up to the batch that reaches an offset.

    All of a producer count as one append, as in Kafka (loadProducersFromRecords): one whose epoch rises and falls back
    within the segment keeps its batches of before.
    """
    from_offset = producers.end_offset
    start, end = _bounds(segment, from_offset, up_to_offset)

    runs = BatchRuns(segment.iter_windows(start, end), end_position=start)
    replay = ProducerReplay(producers, read=segment.read_at)
    held: dict[int, ProducerStateEntry | None] = {}
    try:
        for run in runs:
            last_offsets = run.column("last_offset")
            inside = (last_offsets >= from_offset) & (last_offsets < up_to_offset)
            rows = {name: column[inside] for name, column in run.columns.items()}
            producers.hold_batches(np.unique(rows["producer_id"]).tolist(), held)
            replay.feed(rows)
        replay.finish()
        producers.join_batches(held)
        if runs.broken is not None:
            raise runs.broken
        if runs.oversized:
            text = f"a batch of {runs.rest_size_bytes} bytes: none is so large"
            raise CorruptRecordError(text, fault="BAD_SIZE", position=runs.end_position)
    except CorruptRecordError as error:
        raise error.located(segment.log_path) from None


def _bounds(segment: LogSegment, from_offset: int, up_to_offset: int) -> tuple[int, int]:
    """Return the positions [start, end) of a range's batches; all of the log where the offset index is useless."""
    try:
        first = segment.find_batch(from_offset)
        behind = segment.find_batch(up_to_offset)
    except CorruptIndexError as error:
        _log.warning("%s: read without its index: %s", segment.log_path, str(error))  # not its traceback's segments
        return 0, segment.size_bytes
    if first is None:
        return 0, 0
    return first.position, segment.size_bytes if behind is None else behind.position
