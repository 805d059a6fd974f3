"""Which offsets of a segment no batch holds any more: what the log cleaner took away, and what it could have told."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tierlog.log.checks.segment_walk import CheckedRun
from tierlog.log.checks.transactions import CONTROL


class CleanedOffsets:
    """Follows the gaps of a segment, in memory for the offsets that are asked about alone.

    Args:
        asked: The offsets that ``is_gone`` will be asked about.
        end_offset: Last offset that the segment may hold, inclusive; None if it is not known.

    A batch keeps its offsets as long as one of its records is left, so an offset between two batches belonged to a
    batch of which nothing is left. A marker that the cleaner emptied keeps its header and tells no more than a gap.
    """

    def __init__(self, asked: Iterable[int], end_offset: int | None) -> None:
        self._asked = np.array(sorted(set(asked)), np.int64)
        self._held = np.zeros(len(self._asked), np.bool_)
        self._end_offset = end_offset
        self._last_offset = -1
        self._newest_gone = -1

    def observe(self, run: CheckedRun) -> None:
        base, last = run.column("base_offset"), run.column("last_offset")
        before = np.concatenate(([self._last_offset], last[:-1]))
        gaps = np.flatnonzero(base > before + 1)
        emptied = np.flatnonzero(((run.column("attributes") & CONTROL) != 0) & (run.column("record_count") == 0))
        if len(gaps):
            self._newest_gone = max(self._newest_gone, int(base[gaps[-1]]) - 1)
        if len(emptied):
            self._newest_gone = max(self._newest_gone, int(last[emptied[-1]]))
        self._last_offset = int(last[-1])
        place = np.searchsorted(last, self._asked)
        inside = place < len(last)
        self._held[inside] |= base[place[inside]] <= self._asked[inside]

    def is_gone(self, offset: int) -> bool:
        """Whether no batch holds an offset of those asked about, and the segment could have held it."""
        if self._end_offset is not None and offset > self._end_offset:
            return False
        place = int(np.searchsorted(self._asked, offset))
        return not self._held[place]

    def is_any_gone_above(self, offset: int) -> bool:
        """Whether something that was written behind an offset is there no more."""
        newest = self._newest_gone
        if self._end_offset is not None and self._end_offset > self._last_offset:
            newest = self._end_offset
        return newest > offset
