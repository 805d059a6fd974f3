"""The time index: from which offset on a timestamp may be found.

Entries of 12 bytes, big-endian: ``int64 timestamp in ms, int32 relative offset``. An entry (t, o) says that no record
up to offset o is later than t. Timestamps strictly rise, offsets do not fall. Preallocated as the offset index is.

Source: Kafka TimeIndex; the searching is native (``tierlog/index.h``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Buffer

from tierlog._native import indexes
from tierlog.arguments import require_int64

ENTRY_SIZE_BYTES = 12
_ENTRY = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
_INT32_MAX = 2**31 - 1


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
        """How many entries are in use."""
        return indexes.time_index_entries(self.data)

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(timestamps in ms, absolute offsets) of the entries in use."""
        return indexes.read_time_index(self.data, self.base_offset)

    def lookup(self, target_timestamp_ms: int) -> TimestampOffset:
        """The entry with the largest timestamp at or below the target; without one, (-1, base offset)."""
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
        """Raises CorruptIndexError at the first entry that breaks size, order or range."""
        indexes.check_time_index(self.data, self.base_offset)


def encode_time_index(base_offset: int, timestamps_ms: ArrayLike, offsets: ArrayLike) -> bytes:
    """The bytes of an index, without preallocation.

    Raises:
        ValueError: timestamps do not strictly rise, offsets fall, or an offset does not fit its 31 bits.
    """
    times = np.asarray(timestamps_ms, np.int64)
    relative = np.asarray(offsets, np.int64) - base_offset
    if times.shape != relative.shape or times.ndim != 1:
        raise ValueError("timestamps and offsets differ in shape")
    if times.size and (relative[0] < 0 or relative[-1] > _INT32_MAX or (np.diff(relative) < 0).any()):
        raise ValueError(f"offsets may not fall, nor leave {base_offset} … {base_offset + _INT32_MAX}")
    if (np.diff(times) <= 0).any():
        raise ValueError("timestamps must strictly rise")
    entries = np.empty(times.size, _ENTRY)
    entries["timestamp"] = times
    entries["relative_offset"] = relative
    return entries.tobytes()
