"""Many segments as numpy columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class SegmentColumns:
    """Segments, one a row; copied out of the table, so that no later event changes them.

    Attributes:
        rows: The rows (``tierlog._native.segments.SEGMENT_DTYPE``), of which the columns below are views. Offsets are
            inclusive; times are milliseconds, -1 for none; ``state`` has the numbers of RemoteLogSegmentState;
            ``custom_metadata_size`` is -1 where there is none.
        found: bool[n]. A row of a question that nothing answers is False, and zeros. Of a listing all are True.
    """

    rows: NDArray[np.void]
    found: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def segment_id(self) -> NDArray[np.uint8]:
        """uint8[n, 16]."""
        return self.rows["segment_id"]

    @property
    def start_offset(self) -> NDArray[np.int64]:
        return self.rows["start_offset"]

    @property
    def end_offset(self) -> NDArray[np.int64]:
        return self.rows["end_offset"]

    @property
    def max_timestamp_ms(self) -> NDArray[np.int64]:
        return self.rows["max_timestamp_ms"]

    @property
    def event_timestamp_ms(self) -> NDArray[np.int64]:
        return self.rows["event_timestamp_ms"]

    @property
    def broker_id(self) -> NDArray[np.int32]:
        return self.rows["broker_id"]

    @property
    def segment_size_in_bytes(self) -> NDArray[np.int32]:
        return self.rows["segment_size_in_bytes"]

    @property
    def state(self) -> NDArray[np.uint8]:
        return self.rows["state"]

    @property
    def txn_idx_empty(self) -> NDArray[np.bool_]:
        return self.rows["txn_idx_empty"]

    @property
    def epoch_count(self) -> NDArray[np.uint32]:
        return self.rows["epoch_count"]

    @property
    def custom_metadata_size(self) -> NDArray[np.int64]:
        """Bytes; -1 where there is none."""
        return self.rows["custom_metadata_size"]
