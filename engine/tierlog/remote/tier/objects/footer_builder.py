"""The footer of a log that streams by: its batches are collected as long as they fit a table, its totals always."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tierlog.records.batch_runs import BatchColumns, BatchRun
from tierlog.records.record_times import least_timestamps
from tierlog.remote.tier.objects.footer import (
    ATTRIBUTES_MASK,
    BATCHES_MAX,
    FooterBatches,
    FooterTotals,
    SegmentFooter,
)

_MAGIC: Final = 2
_INT64: Final = ("base_offset", "last_offset", "position", "size_bytes", "record_count", "max_timestamp")


class FooterBuilder:
    """The batches of one log, added in order. One thread.

    The caller checks them: their checksums, that offsets rise and lie within the segment, and that the log ends with
    the last one.

    Attributes:
        unfit: Why there will be no footer; None as long as there can be one.

    Memory: 58 bytes a batch, of 2^20 at most.
    """

    def __init__(self) -> None:
        self.unfit: str | None = None
        self._runs: list[FooterBatches] = []
        self._count = 0
        self._totals: FooterTotals | None = None
        self._first_timestamp_ms = 0
        self._end_position = 0

    def add(self, run: BatchRun) -> None:
        """Add the batches of a run, whose records are read for their times."""
        if self._fits(run.columns):
            self._add(run.columns, *least_timestamps(run))

    def add_timed(self, columns: BatchColumns, least_timestamp: NDArray[np.int64], known: NDArray[np.bool_]) -> None:
        """Add batches whose times are known already.

        Args:
            columns: Of their headers, as ``scan_batches`` gives them.
            least_timestamp: int64[n], ms: as of FooterBatches.
            known: bool[n]: its ``times_known``.
        """
        if self._fits(columns):
            self._add(columns, least_timestamp, known)

    def _add(self, columns: BatchColumns, least_timestamp: NDArray[np.int64], known: NDArray[np.bool_]) -> None:
        base, last, position, size, count, greatest = (columns[name].astype(np.int64) for name in _INT64)
        attributes = (columns["attributes"].astype(np.int64) & ATTRIBUTES_MASK).astype(np.uint8)
        run = FooterBatches(base, last, position, size, count, greatest, least_timestamp, known, attributes)
        if self._totals is None:
            self._totals, self._first_timestamp_ms = run.totals(), int(greatest[0])
        else:
            self._totals = self._totals.followed_by(run.totals())
        self._count += len(run)
        self._end_position = run.end_position
        if self._count <= BATCHES_MAX:
            self._runs.append(run)
        else:
            self._runs.clear()

    def finish(self) -> SegmentFooter | None:
        """Return the footer of all batches; None if there can be none."""
        if self.unfit is not None:
            return None
        joined = FooterBatches.joined(self._runs) if self._count <= BATCHES_MAX else None
        totals = FooterBatches.joined([]).totals() if self._totals is None else self._totals
        return SegmentFooter(totals, self._first_timestamp_ms, self._end_position, joined)

    def _fits(self, columns: BatchColumns) -> bool:
        """Whether a footer can have these batches, and all before."""
        if self.unfit is None and (columns["magic"] != _MAGIC).any():
            self.unfit = "it has batches of magic 0 or 1, whose headers do not say how many records they have"
        if self.unfit is None:
            count = columns["record_count"].astype(np.int64)
            span = columns["last_offset"].astype(np.int64) - columns["base_offset"].astype(np.int64) + 1
            if ((count < 0) | (count > span)).any():
                self.unfit = "a batch says that it has more records than offsets"
        if self.unfit is not None:
            self._runs.clear()
        return self.unfit is None
