"""Batches that are in the log, taken into the producers' state by columns: what recovery has to do for every batch.

One batch after the other costs more than reading and checksumming it. Between two control batches only this matters of
a producer: its last five batches of its last epoch, and the first batch of a transaction. The outcome is that of
``ProducerState.replay``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tierlog._native.appends import find_marker
from tierlog.errors import CorruptRecordError
from tierlog.log.local.log_errors import AppendRefusedError
from tierlog.log.local.producers.producer_appends import ProducerBatch
from tierlog.log.local.producers.producer_entries import (
    BATCHES_KEPT,
    NO_PRODUCER_ID,
    BatchMetadata,
    ProducerStateEntry,
    sequence_after,
)
from tierlog.log.local.producers.producer_state import AbortedTransaction, ProducerState
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
REPLAYED_COLUMNS: Final = (*_FOLDED, "position", "size_bytes", "magic")
#: A marker is some 78 bytes; nobody's control batch is larger than this.
_CONTROL_SIZE_BYTES_MAX: Final = 1 << 20

Columns = Mapping[str, NDArray[Any]]


class ProducerReplay:
    """Takes the batches of a log in order, in pieces; ``finish`` takes what is still held back.

    Args:
        state: Changed. It lags behind what was fed until ``finish``.
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
        """Take what is held back. Raises as ``feed``."""
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
        """One batch after the other."""
        listed = {name: rows[name].tolist() for name in REPLAYED_COLUMNS}
        aborted: list[AbortedTransaction] = []
        for row in range(len(listed["position"])):
            position, attributes = listed["position"][row], listed["attributes"][row]
            is_control = bool(attributes & CONTROL)
            batch = ProducerBatch(
                producer_id=listed["producer_id"][row],
                producer_epoch=listed["producer_epoch"][row],
                base_sequence=listed["base_sequence"][row],
                base_offset=listed["base_offset"][row],
                last_offset=listed["last_offset"][row],
                max_timestamp_ms=listed["max_timestamp"][row],
                is_transactional=bool(attributes & TRANSACTIONAL),
                is_control=is_control,
            )
            if is_control:
                batch = self._with_marker(batch, position, listed["size_bytes"][row])
            try:
                aborted += self._state.replay((batch,), end_offset=batch.last_offset + 1)
            except AppendRefusedError as cause:
                raise CorruptRecordError(
                    cause.text, fault="BAD_TRANSACTION", position=position, base_offset=batch.base_offset
                ) from cause
        return aborted

    def _with_marker(self, batch: ProducerBatch, position: int, size_bytes: int) -> ProducerBatch:
        data = self._read(position, min(size_bytes, _CONTROL_SIZE_BYTES_MAX))
        try:
            return batch._replace(marker=find_marker(data))
        except CorruptRecordError as error:
            error.position = position
            raise


def _runs(is_control: NDArray[np.bool_]) -> Iterator[tuple[slice, bool]]:
    """The runs of control batches and of others."""
    if not is_control.size:
        return
    borders = [0, *(np.flatnonzero(is_control[1:] != is_control[:-1]) + 1).tolist(), is_control.size]
    for start, end in itertools.pairwise(borders):
        yield slice(start, end), bool(is_control[start])


def _fold(state: ProducerState, rows: Columns) -> bool:
    """Take a run without control batches at once; False, and nothing has changed, if it must go batch by batch: a
    producer in it has batches inside and outside of a transaction.
    """
    ids = rows["producer_id"]
    groups: list[Any]  # of rows, as they index an array
    if (ids == ids[0]).all():
        groups = [slice(0, len(ids))]
    else:
        order = np.argsort(ids, kind="stable")
        borders = np.flatnonzero(np.diff(ids[order])) + 1
        groups = sorted(np.split(order, borders), key=lambda group: int(group[0]))
    appended: list[ProducerStateEntry] = []
    begun: list[tuple[int, int]] = []
    known = state.producers
    for group in groups:
        mine = {name: rows[name][group] for name in _FOLDED}
        producer_id = int(mine["producer_id"][0])
        before = known.get(producer_id)
        open_offset = None if before is None else before.current_txn_first_offset
        transactional = (mine["attributes"] & TRANSACTIONAL) != 0
        if transactional.any() or open_offset is not None:
            if not transactional.all():
                return False
            if open_offset is None:
                open_offset = int(mine["base_offset"][0])
                begun.append((open_offset, producer_id))
        appended += _folded(mine, producer_id, before, open_offset)
    state.take_run(appended, begun=sorted(begun), end_offset=int(rows["last_offset"][-1]) + 1)
    return True


def _folded(
    rows: Columns, producer_id: int, before: ProducerStateEntry | None, open_offset: int | None
) -> list[ProducerStateEntry]:
    """What one producer's batches leave of it; two entries if what is known of its epoch must go first."""
    epochs = rows["producer_epoch"]
    epoch = int(epochs[-1])
    others = np.flatnonzero(epochs != epoch)
    first = max(len(epochs) - BATCHES_KEPT, int(others[-1]) + 1 if others.size else 0)
    tail = {name: rows[name][first:].tolist() for name in _FOLDED}
    batches = []
    for base_offset, last_offset, sequence, timestamp in zip(
        tail["base_offset"], tail["last_offset"], tail["base_sequence"], tail["max_timestamp"], strict=True
    ):
        delta = last_offset - base_offset
        batches.append(BatchMetadata(sequence_after(sequence, delta), last_offset, delta, timestamp))

    def entry(epoch: int, batches: list[BatchMetadata]) -> ProducerStateEntry:
        return ProducerStateEntry(
            producer_id,
            producer_epoch=epoch,
            coordinator_epoch=-1 if before is None else before.coordinator_epoch,
            last_timestamp_ms=tail["max_timestamp"][-1],
            current_txn_first_offset=open_offset,
            batches=batches,
        )

    folded = [entry(epoch, batches)]
    if others.size:
        folded.insert(0, entry(int(epochs[others[-1]]), []))
    return folded
