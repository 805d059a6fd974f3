"""The transaction index: the aborted transactions whose abort marker lies in a segment.

Entries of 34 bytes, big-endian: ``int16 version 0, int64 producer id, int64 first offset, int64 last offset (of the
marker), int64 last stable offset``, the last being the LSO when the marker was written. Last offsets strictly rise.
The file exists only where something was aborted.

Source: Kafka TransactionIndex, AbortedTxn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog._native import indexes
from tierlog.arguments import require_int64

ENTRY_SIZE_BYTES = 34
#: producer_id, first_offset, last_offset, last_stable_offset: int64 each.
TRANSACTION_DTYPE = indexes.TRANSACTION_DTYPE
_ENTRY = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)


@dataclass(frozen=True, slots=True)
class TransactionIndex:
    """A view of a transaction index; nothing is copied.

    Args:
        data: The file's bytes.
        base_offset: The segment's base offset; only ``check`` needs it.

    Thread safety: any number of threads.
    """

    data: Buffer
    base_offset: int = 0

    def __len__(self) -> int:
        """How many whole entries there are."""
        return memoryview(self.data).nbytes // ENTRY_SIZE_BYTES

    def entries(self) -> NDArray[np.void]:
        """All whole entries, dtype TRANSACTION_DTYPE, by last offset ascending.

        A partial entry at the end is left out, as Kafka's readers do. Raises CorruptIndexError on an unknown version
        or a wrong order.
        """
        return indexes.read_transaction_index(self.data)

    def collect_aborted(self, *, fetch_offset: int, upper_bound_offset_exclusive: int) -> tuple[NDArray[np.void], bool]:
        """Aborted transactions that touch a range: Kafka's collectAbortedTxns over one segment.

        Returns:
            (entries of ABORTED_DTYPE, complete): complete when no later segment can hold more.
        """
        first = require_int64("fetch_offset", fetch_offset)
        end = require_int64("upper_bound_offset_exclusive", upper_bound_offset_exclusive)
        return indexes.collect_aborted(self.data, first, end)

    def check(self) -> None:
        """Raises CorruptIndexError on a partial entry, an unknown version, a wrong order or range."""
        indexes.check_transaction_index(self.data, self.base_offset)


def encode_transaction_index(transactions: NDArray[np.void]) -> bytes:
    """The bytes of an index from rows of TRANSACTION_DTYPE.

    Raises:
        ValueError: last offsets do not strictly rise, or a transaction ends before it begins.
    """
    last = transactions["last_offset"]
    if (np.diff(last) <= 0).any():
        raise ValueError("last offsets must strictly rise")
    if (transactions["first_offset"] > last).any():
        raise ValueError("a transaction ends before it begins")
    entries = np.zeros(transactions.size, _ENTRY)
    for name in ("producer_id", "first_offset", "last_offset", "last_stable_offset"):
        entries[name] = transactions[name]
    return entries.tobytes()
