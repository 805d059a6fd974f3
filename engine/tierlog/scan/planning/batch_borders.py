"""Where a segment can be cut: the batch borders that its offset index knows.

An entry is (last offset of a batch, position of that batch) as Kafka 4.3 writes it, or (last offset of an append of
several batches, position of its first byte) as before. In both, every position is a border, everything before it lies
below the entry's offset, and everything from the *next* entry on lies above it. Nothing more is relied on.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog._native.indexes import read_offset_index
from tierlog.errors import CorruptIndexError


@dataclass(frozen=True, slots=True)
class BatchBorders:
    """The entries of one offset index, checked against the size of its log.

    Attributes:
        offsets, positions: int64[n_entries] each, rising; absolute offsets, bytes.
        size_bytes: Of the log.
        complete: Each batch of the part that is looked at has an entry, with its last offset.
    """

    offsets: NDArray[np.int64]
    positions: NDArray[np.int64]
    size_bytes: int
    complete: bool = False

    @classmethod
    def of_index(cls, data: Buffer, base_offset: int, size_bytes: int) -> Self:
        """Raises CorruptIndexError: the entries do not rise, or point outside of the log."""
        offsets, narrow = read_offset_index(data, base_offset)
        positions = narrow.astype(np.int64)
        if len(offsets):
            for name, values in (("offsets", offsets), ("positions", positions)):
                falls = np.flatnonzero(np.diff(values) <= 0)
                if len(falls):
                    entry = int(falls[0]) + 1
                    raise CorruptIndexError(
                        f"{name} of entry {entry} do not rise: {values[entry]} after {values[entry - 1]}",
                        fault="BAD_ORDER",
                        position=8 * entry,
                    )
            if positions[0] < 0 or positions[-1] >= max(size_bytes, 1) or offsets[0] < base_offset:
                raise CorruptIndexError(
                    f"entries reach from offset {offsets[0]} @ {positions[0]} to @ {positions[-1]}, "
                    f"the log from offset {base_offset} over {size_bytes} bytes",
                    fault="BAD_RANGE",
                )
        return cls(offsets, positions, size_bytes)

    @classmethod
    def unknown(cls, size_bytes: int) -> Self:
        """No entries: the log can only be read whole."""
        none = np.empty(0, np.int64)
        return cls(none, none, size_bytes)

    def start_position(self, first_offset: int) -> int:
        """A border at or before the batch that holds ``first_offset`` (or, if it is gone, the next one).

        Unless all are known, before the batch in front of that one: no checksum covers an offset, and whether the first
        that counts can be right only the one before it tells.
        """
        if self.complete:
            entry = int(np.searchsorted(self.offsets, first_offset, side="left"))
            return int(self.positions[entry]) if entry < len(self.positions) else self.size_bytes
        entry = int(np.searchsorted(self.offsets, first_offset, side="left")) - 1
        return int(self.positions[entry]) if entry >= 0 else 0

    def end_position(self, end_offset_exclusive: int) -> int:
        """A border at or behind which every batch lies at or above ``end_offset_exclusive``; else the size."""
        entry = int(np.searchsorted(self.offsets, end_offset_exclusive - 1, side="left")) + 1
        return int(self.positions[entry]) if entry < len(self.positions) else self.size_bytes

    def cut(self, start_position: int, end_position: int, max_bytes: int) -> list[tuple[int, int]]:
        """Pieces of about even size, each at most ``max_bytes`` where the borders allow it, in order, without a gap."""
        total = end_position - start_position
        if total <= 0:
            return []
        wanted = -(-total // max_bytes)
        inner = self.positions[(self.positions > start_position) & (self.positions < end_position)]
        if wanted > len(inner):
            chosen = inner
        else:
            ideals = start_position + np.arange(1, wanted, dtype=np.int64) * total // wanted
            after = np.searchsorted(inner, ideals).clip(max=len(inner) - 1)
            before = (after - 1).clip(min=0)
            nearer = ideals - inner[before] < inner[after] - ideals
            chosen = np.unique(inner[np.where(nearer, before, after)])
        return list(itertools.pairwise([start_position, *chosen.tolist(), end_position]))

    def offset_bounds(self, start_position: int, end_position: int) -> tuple[int, int]:
        """[first, end) that surely holds every offset between two borders; as narrow as the entries allow."""
        before = int(np.searchsorted(self.positions, start_position, side="left")) - 1
        behind = int(np.searchsorted(self.positions, end_position, side="left"))
        first = int(self.offsets[before]) + 1 if before >= 0 else 0
        if self.complete and 0 < behind < len(self.offsets):
            return first, int(self.offsets[behind - 1]) + 1
        end = int(self.offsets[behind]) if behind < len(self.offsets) else 2**63 - 1
        return first, end
