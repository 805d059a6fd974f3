"""The transactions of a log, while a cleaner walks over its batches: which batches were aborted, which markers may go.

A marker may go once no batch of its transaction is left in front of it. It first gets a delete horizon, as a tombstone
does, and goes when that has passed. An aborted transaction stays in the transaction index as long as its marker has
batches in front of it.

Source: Kafka CleanedTransactionMetadata, Cleaner#cleanInto.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tierlog._native.appends import find_marker
from tierlog._native.compaction import DISCARD, EMPTY_TRANSACTION, RETAIN_EMPTY
from tierlog.log.local.producers.producer_state import AbortedTransaction, LastRecord
from tierlog.records.batch_table import CONTROL, DELETE_HORIZON, TRANSACTIONAL

_MAGIC_V2: Final = 2

Columns = Mapping[str, NDArray[Any]]


class CleanedTransactions:
    """The state in front of the next batch. Not thread-safe."""

    def __init__(self) -> None:
        self._aborted: list[tuple[int, int, AbortedTransaction]] = []
        self._order = itertools.count()
        self._committed: set[int] = set()
        #: Producer id → (its aborted transaction that is open here, whether a batch of it was met).
        self._open: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._retained: list[AbortedTransaction] = []

    def add_aborted(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Add aborted transactions of the batches to come; one may be added more than once."""
        for entry in aborted:
            heapq.heappush(self._aborted, (entry.first_offset, next(self._order), entry))

    def _begin_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[0][0] <= offset:
            entry = heapq.heappop(self._aborted)[2]
            self._open.setdefault(entry.producer_id, (entry, False))

    def meet_batch(self, producer_id: int, last_offset: int) -> bool:
        """Take a transactional batch; whether it was aborted."""
        self._begin_up_to(last_offset)
        known = self._open.get(producer_id)
        if known is None:
            self._committed.add(producer_id)
            return False
        self._open[producer_id] = (known[0], True)
        return True

    def meet_marker(self, producer_id: int, last_offset: int, *, is_commit: bool) -> bool:
        """Take the end of a transaction; whether no batch of it was met."""
        self._begin_up_to(last_offset)
        if is_commit:
            if producer_id in self._committed:
                self._committed.remove(producer_id)
                return False
            return True
        entry, has_batch = self._open.pop(producer_id, (None, False))
        if entry is not None and has_batch:
            self._retained.append(entry)
            return False
        return True

    def take_retained(self) -> list[AbortedTransaction]:
        """Take the aborted transactions whose markers were met since, and that still have batches in front of these."""
        retained, self._retained = self._retained, []
        return retained

    def aborted_batches(self, columns: Columns, window: memoryview) -> bytearray | None:
        """Judge the batches of a window for an index of its keys: DISCARD of those that were aborted. None: of none.

        Args:
            columns: Of ``scan_batches``.
            window: The bytes that were scanned, from position 0 on.

        Raises:
            CorruptRecordError: a marker is malformed.
        """
        rows = self._rows_to_judge(columns)
        verdicts = bytearray(len(columns["attributes"]))
        for row in rows:
            if self._can_go(columns, row, window):
                verdicts[row] = DISCARD
        return verdicts if rows else None

    def judge(
        self, columns: Columns, window: memoryview, *, last_records: Mapping[int, LastRecord], now_ms: int
    ) -> bytearray:
        """Judge the batches of a window for the filter: verdicts of ``_native.compaction``. Raises as the one above."""
        verdicts = bytearray(len(columns["attributes"]))
        for row in self._rows_to_judge(columns):
            if not self._can_go(columns, row, window):
                continue
            attributes = int(columns["attributes"][row])
            if not attributes & CONTROL:
                verdicts[row] = DISCARD
            elif attributes & DELETE_HORIZON and int(columns["base_timestamp"][row]) <= now_ms:
                verdicts[row] = DISCARD | EMPTY_TRANSACTION
            else:
                verdicts[row] = EMPTY_TRANSACTION
        for row in np.flatnonzero(columns["producer_id"] >= 0).tolist():
            if _is_last_of_producer(columns, row, last_records):
                verdicts[row] |= RETAIN_EMPTY
        return verdicts

    @staticmethod
    def _rows_to_judge(columns: Columns) -> list[int]:
        """The transactional batches and the control batches."""
        marked = (columns["attributes"] & (TRANSACTIONAL | CONTROL)) != 0
        rows: list[int] = np.flatnonzero(marked & (columns["magic"] == _MAGIC_V2)).tolist()
        return rows

    def _can_go(self, columns: Columns, row: int, window: memoryview) -> bool:
        """Take a batch, in order; whether it may go: an aborted one, or a marker of a transaction without batches."""
        producer_id, last_offset = int(columns["producer_id"][row]), int(columns["last_offset"][row])
        if not int(columns["attributes"][row]) & CONTROL:
            return self.meet_batch(producer_id, last_offset)
        if not int(columns["record_count"][row]):
            self._begin_up_to(last_offset)
            return True  # it was emptied by a cleaning before this one
        marker = find_marker(window[int(columns["position"][row]) :])
        if marker is None:  # a control record of another kind
            self._begin_up_to(last_offset)
            return False
        return self.meet_marker(producer_id, last_offset, is_commit=marker.is_commit)


def _is_last_of_producer(columns: Columns, row: int, last_records: Mapping[int, LastRecord]) -> bool:
    """Whether a batch has the last sequence of its producer, or, if that has no data, its epoch."""
    last = last_records.get(int(columns["producer_id"][row]))
    if last is None:
        return False
    if last.last_data_offset is not None:
        return int(columns["last_offset"][row]) == last.last_data_offset
    is_control = bool(int(columns["attributes"][row]) & CONTROL)
    return is_control and int(columns["producer_epoch"][row]) == last.producer_epoch
