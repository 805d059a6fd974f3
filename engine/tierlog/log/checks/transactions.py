"""Transactions of a partition, found by replaying its log: the open ones, the aborted ones, the last stable offset.

Kafka holds this in memory and in two files, the producer snapshot and the transaction index. Where the files are
missing (a lone ``.log``, the active segment of a log directory) the log itself holds the same facts: a transaction
begins with the first transactional batch of its producer and ends with the next marker of that producer.

Source: Kafka ProducerAppendInfo, ProducerStateManager#completeTxn, AbortedTxn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog._native.indexes import ABORTED_DTYPE, TRANSACTION_DTYPE
from tierlog.records.batch_runs import BatchColumns
from tierlog.records.batch_table import CONTROL, TRANSACTIONAL

ABORT = 0
COMMIT = 1


def read_markers(
    data: Buffer, columns: BatchColumns, *, base_position: int = 0, verify_crc: bool = True
) -> dict[int, int]:
    """Read the types of the control batches of a byte range.

    Args:
        data: The bytes that ``columns`` describe.
        columns: Columns of ``scan_batches``.
        base_position: Position of data[0] in the file, as it was given to the scan.
        verify_crc: Check the checksums of the control batches.

    Returns:
        Index of the batch in ``columns`` → type of its first record (0 abort, 1 commit, others are no markers).
        A control batch that compaction emptied is left out: its transaction is gone with it.

    Raises:
        CorruptRecordError: a control batch is malformed; its position is that among the control batches alone.
    """
    control = (columns["attributes"].astype(np.int64) & CONTROL != 0) & (columns["record_count"] != 0)
    chosen = np.flatnonzero(control)
    if not chosen.size:
        return {}
    from tierlog._native.decoding import RecordDecoder  # loads Arrow, of which a log without transactions needs nothing

    view = memoryview(data).cast("B")
    starts = columns["position"].astype(np.int64)[chosen] - base_position
    sizes = columns["size_bytes"].astype(np.int64)[chosen]
    joined = b"".join(view[start : start + size] for start, size in zip(starts.tolist(), sizes.tolist(), strict=True))
    decoder = RecordDecoder(("key", "batchPosition"), verify_crc=verify_crc, control_records=True)
    borders = np.cumsum(sizes) - sizes
    types: dict[int, int] = {}
    for rows in [*decoder.feed(joined), *decoder.finish()]:
        places = np.searchsorted(borders, rows.column("batchPosition").to_numpy())
        for place, key in zip(places.tolist(), rows.column("key").to_pylist(), strict=True):
            types.setdefault(int(chosen[place]), int.from_bytes(key[2:4], "big", signed=True))
    return types


@dataclass(slots=True)
class TransactionReplay:
    """The transactions of a run of batches; feed the batches in offset order.

    Attributes:
        open_transactions: Producer id → first offset of its open transaction. To begin with, those of the producer
            snapshot at the start of the run, if there is one.
    """

    open_transactions: dict[int, int] = field(default_factory=dict)
    _aborted: list[tuple[int, int, int, int]] = field(default_factory=list)

    def add(self, columns: BatchColumns, markers: Mapping[int, int]) -> None:
        """Replay further batches.

        Args:
            columns: Columns of ``scan_batches``.
            markers: What ``read_markers`` returned for the same batches.
        """
        attributes = columns["attributes"].astype(np.int64)
        producers = columns["producer_id"].astype(np.int64)
        counted = np.flatnonzero((attributes & TRANSACTIONAL != 0) & (producers >= 0))
        base_offsets = columns["base_offset"].astype(np.int64)[counted].tolist()
        control = (attributes[counted] & CONTROL != 0).tolist()
        rows = zip(counted.tolist(), producers[counted].tolist(), base_offsets, control, strict=True)
        for index, producer_id, offset, is_control in rows:
            if not is_control:
                self.open_transactions.setdefault(producer_id, offset)
            elif markers.get(index) in (ABORT, COMMIT):
                self._complete(producer_id, offset, aborted=markers[index] == ABORT)

    def _complete(self, producer_id: int, marker_offset: int, *, aborted: bool) -> None:
        first_offset = self.open_transactions.pop(producer_id, None)
        if first_offset is None or not aborted:  # a marker without data completes nothing
            return
        stable = min(self.open_transactions.values(), default=marker_offset + 1)
        self._aborted.append((producer_id, first_offset, marker_offset, stable))

    def aborted(self) -> NDArray[np.void]:
        """Return the aborted transactions so far, dtype TRANSACTION_DTYPE, by last offset: the rows of a transaction
        index.
        """
        return np.array(self._aborted, TRANSACTION_DTYPE)

    def aborted_ranges(self) -> NDArray[np.void]:
        """Return the aborted transactions as ABORTED_DTYPE, which ``sort_aborted`` and the decoder take."""
        rows = self.aborted()
        ranges = np.empty(rows.size, ABORTED_DTYPE)
        for name in ("producer_id", "first_offset", "last_offset"):
            ranges[name] = rows[name]
        return ranges

    def last_stable_offset(self, end_offset_exclusive: int) -> int:
        """Return the first offset of the earliest open transaction, else the end of the log: read_committed ends before
        it.
        """
        return min([*self.open_transactions.values(), end_offset_exclusive])
