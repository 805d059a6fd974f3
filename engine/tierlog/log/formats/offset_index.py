"""The offset index: where in a ``.log`` to start looking for an offset.

Entries of 8 bytes, big-endian: ``int32 relative offset, int32 position``. An entry says that the batch at *position*
ends with *offset* (Kafka 4.3), or that the batch at *position* is the first of an append that ends with *offset*
(older brokers); both are sound. Offsets strictly rise. The file of an active segment is allocated ahead and zero
behind its last entry.

Source: Kafka OffsetIndex, AbstractIndex; the searching is native (``tierlog/index.h``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Buffer

from tierlog._native import indexes
from tierlog.arguments import require_int64

ENTRY_SIZE_BYTES = 8
_ENTRY = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
_INT32_MAX = 2**31 - 1


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
        """How many entries are in use."""
        return indexes.offset_index_entries(self.data)

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """(offsets, positions) of the entries in use: Kafka offsets and byte positions; both rise in a sound file."""
        return indexes.read_offset_index(self.data, self.base_offset)

    def _int64s(self, **numbers: int) -> Iterator[int]:
        """The base offset and the given numbers. Raises ValueError, which names the number: it does not fit into 64
        bits.
        """
        return (require_int64(name, number) for name, number in {"base_offset": self.base_offset, **numbers}.items())

    def lookup(self, target_offset: int) -> OffsetPosition:
        """The entry with the largest offset at or below the target; without one, the start of the segment."""
        return OffsetPosition(*indexes.lookup_offset(self.data, *self._int64s(target_offset=target_offset)))

    def lookup_many(self, target_offsets: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """``lookup`` of many targets at once, side by side: (offsets, positions in bytes), in the targets' order.

        Raises:
            ValueError: the targets are no row of 64-bit integers.
        """
        return indexes.lookup_offsets(self.data, require_int64("base_offset", self.base_offset), target_offsets)

    def find_upper_bound_offset(self, *, position: int, size_bytes: int) -> int | None:
        """Offset of the first entry at or behind ``position + size_bytes``; a fetch of that size returns no later
        offset.
        """
        return indexes.find_upper_bound_offset(self.data, *self._int64s(position=position, size_bytes=size_bytes))

    def find_end_position(self, end_offset_inclusive: int) -> int | None:
        """A position at or behind which every batch lies wholly above the offset; None if the index cannot say."""
        return indexes.find_end_position(self.data, *self._int64s(end_offset_inclusive=end_offset_inclusive))

    def check(self, *, segment_size_bytes: int | None = None) -> None:
        """Raises CorruptIndexError at the first entry that breaks size, order or range."""
        indexes.check_offset_index(self.data, self.base_offset, segment_size_bytes)


def encode_offset_index(base_offset: int, offsets: ArrayLike, positions: ArrayLike) -> bytes:
    """The bytes of an index, without preallocation.

    Raises:
        ValueError: offsets do not strictly rise, or an offset or position does not fit its 31 bits.
    """
    absolute = np.asarray(offsets, np.int64)
    relative = absolute - base_offset
    places = np.asarray(positions, np.int64)
    if absolute.shape != places.shape or absolute.ndim != 1:
        raise ValueError("offsets and positions differ in shape")
    if absolute.size and (relative[0] < 0 or relative[-1] > _INT32_MAX or (np.diff(absolute) <= 0).any()):
        raise ValueError(f"offsets must strictly rise from {base_offset}, at most 2^31-1 above it")
    if ((places < 0) | (places > _INT32_MAX)).any():
        raise ValueError("a position is not 0 … 2^31-1")
    entries = np.empty(absolute.size, _ENTRY)
    entries["relative_offset"] = relative
    entries["position"] = places
    return entries.tobytes()
