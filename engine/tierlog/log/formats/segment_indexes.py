"""The sparse indexes of a segment: offset, time and transaction index. All numbers are big-endian.

- Offset index, entries of 8 bytes: ``int32 relative offset, int32 position``. An entry says that the batch at
  *position* ends with *offset* (Kafka 4.3), or that the batch at *position* is the first of an append that ends with
  *offset* (older brokers); both are sound. Offsets strictly rise. The file of an active segment is allocated ahead and
  zero behind its last entry.
- Time index, entries of 12 bytes: ``int64 timestamp in ms, int32 relative offset``. An entry (t, o) says that no record
  up to offset o is later than t. Timestamps strictly rise, offsets do not fall. Preallocated as the offset index is.
- Transaction index, entries of 34 bytes: ``int16 version 0, int64 producer id, int64 first offset, int64 last offset
  (of the marker), int64 last stable offset``, the last being the LSO when the marker was written: the aborted
  transactions whose abort marker lies in the segment. Last offsets strictly rise. The file exists only where something
  was aborted.

Source: Kafka AbstractIndex, OffsetIndex, TimeIndex, TransactionIndex, AbortedTxn; the searching is native
(``tierlog/index.h``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Buffer

from tierlog._native import indexes
from tierlog.arguments import require_int64

OFFSET_ENTRY_BYTES = 8


@dataclass(frozen=True, slots=True)
class OffsetPosition:
    """An offset of the log and a byte position in its file."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class OffsetIndex:
    """A view of an offset index; nothing is copied.

    Args:
        data: The file's bytes, with or without the zeros of preallocation.
        base_offset: The segment's base offset.

    Thread safety: any number of threads.
    """

    data: Buffer
    base_offset: int

    def __len__(self) -> int:
        """Return the number of entries in use."""
        return indexes.offset_index_entries(self.data)

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return (offsets, positions) of the entries in use: Kafka offsets and byte positions; both rise in a sound
        file.
        """
        return indexes.read_offset_index(self.data, self.base_offset)

    def _int64s(self, **numbers: int) -> Iterator[int]:
        """The base offset and the given numbers. Raises ValueError, which names the number: it does not fit into 64
        bits.
        """
        return (require_int64(name, number) for name, number in {"base_offset": self.base_offset, **numbers}.items())

    def lookup(self, target_offset: int) -> OffsetPosition:
        """Find the entry with the largest offset at or below the target; without one, the start of the segment."""
        return OffsetPosition(*indexes.lookup_offset(self.data, *self._int64s(target_offset=target_offset)))

    def lookup_many(self, target_offsets: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """``lookup`` of many targets at once, side by side: (offsets, positions in bytes), in the targets' order.

        Raises:
            ValueError: the targets are no row of 64-bit integers.
        """
        return indexes.lookup_offsets(self.data, require_int64("base_offset", self.base_offset), target_offsets)

    def find_upper_bound_offset(self, *, position: int, size_bytes: int) -> int | None:
        """Find the offset of the first entry at or behind ``position + size_bytes``; a fetch of that size returns no
        later offset.
        """
        return indexes.find_upper_bound_offset(self.data, *self._int64s(position=position, size_bytes=size_bytes))

    def check(self, *, segment_size_bytes: int | None = None) -> None:
        """Raise CorruptIndexError at the first entry that breaks size, order or range."""
        indexes.check_offset_index(self.data, self.base_offset, segment_size_bytes)


TIME_ENTRY_BYTES = 12


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """A timestamp in ms and an offset."""

    timestamp_ms: int
    offset: int


@dataclass(frozen=True, slots=True)
class TimeIndex:
    """A view of a time index; nothing is copied.

    Args:
        data: The file's bytes, with or without the zeros of preallocation.
        base_offset: The segment's base offset.

    Thread safety: any number of threads.
    """

    data: Buffer
    base_offset: int

    def __len__(self) -> int:
        """Return the number of entries in use."""
        return indexes.time_index_entries(self.data)

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (timestamps in ms, absolute offsets) of the entries in use."""
        return indexes.read_time_index(self.data, self.base_offset)

    def lookup(self, target_timestamp_ms: int) -> TimestampOffset:
        """Find the entry with the largest timestamp at or below the target; without one, (-1, base offset)."""
        base_offset = require_int64("base_offset", self.base_offset)
        target_ms = require_int64("target_timestamp_ms", target_timestamp_ms)
        return TimestampOffset(*indexes.lookup_timestamp(self.data, base_offset, target_ms))

    def lookup_many(self, target_timestamps_ms: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``lookup`` of many targets at once, side by side: (timestamps in ms, offsets), in the targets' order.

        Raises:
            ValueError: the targets are no row of 64-bit integers.
        """
        base_offset = require_int64("base_offset", self.base_offset)
        return indexes.lookup_timestamps(self.data, base_offset, target_timestamps_ms)

    def check(self) -> None:
        """Raise CorruptIndexError at the first entry that breaks size, order or range."""
        indexes.check_time_index(self.data, self.base_offset)


TRANSACTION_ENTRY_BYTES = 34
#: producer_id, first_offset, last_offset, last_stable_offset: int64 each.
TRANSACTION_DTYPE = indexes.TRANSACTION_DTYPE
_TRANSACTION_ENTRY = np.dtype(
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
        """Return the number of whole entries."""
        return memoryview(self.data).nbytes // TRANSACTION_ENTRY_BYTES

    def entries(self) -> NDArray[np.void]:
        """Return all whole entries, dtype TRANSACTION_DTYPE, by last offset ascending.

        A partial entry at the end is left out, as Kafka's readers do. Raises CorruptIndexError on an unknown version
        or a wrong order.
        """
        return indexes.read_transaction_index(self.data)

    def collect_aborted(self, *, fetch_offset: int, upper_bound_offset_exclusive: int) -> tuple[NDArray[np.void], bool]:
        """Collect the aborted transactions that touch a range: Kafka's collectAbortedTxns over one segment.

        Returns:
            (entries of ABORTED_DTYPE, complete): complete when no later segment can hold more.
        """
        first = require_int64("fetch_offset", fetch_offset)
        end = require_int64("upper_bound_offset_exclusive", upper_bound_offset_exclusive)
        return indexes.collect_aborted(self.data, first, end)

    def check(self) -> None:
        """Raise CorruptIndexError on a partial entry, an unknown version, a wrong order or range."""
        indexes.check_transaction_index(self.data, self.base_offset)


def encode_transaction_index(transactions: NDArray[np.void]) -> bytes:
    """Encode an index from rows of TRANSACTION_DTYPE.

    Raises:
        ValueError: last offsets do not strictly rise, or a transaction ends before it begins.
    """
    last = transactions["last_offset"]
    if (np.diff(last) <= 0).any():
        raise ValueError("last offsets must strictly rise")
    if (transactions["first_offset"] > last).any():
        raise ValueError("a transaction ends before it begins")
    entries = np.zeros(transactions.size, _TRANSACTION_ENTRY)
    for name in ("producer_id", "first_offset", "last_offset", "last_stable_offset"):
        entries[name] = transactions[name]
    return entries.tobytes()
