"""Where the last N records of each partition begin, found from the end: nothing before them is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa

from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine.scheduling import run_all
from tierlog.scan.history import PartitionHistory
from tierlog.scan.planning.plan import plan_scan, prepare_scan
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.scan_request import ScanRequest

CONCURRENCY = 16
#: Offsets that are looked at beyond the number of records wanted, as markers take some; and how that grows.
_SPARE_OFFSETS = 64
_GROWTH = 4

#: Leaves out of record batches what does not count.
Choose = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class LastRecords:
    """The search for the last records of a scan.

    Args:
        tier: Stays the caller's.
        request: The scan, with all its bounds.
        count: Records wanted of each partition, at least 1.
        columns: What ``choose`` looks at.
        choose: Which of the scan's records count.
    """

    tier: Tier
    request: ScanRequest
    count: int
    columns: Sequence[str] = ()
    choose: Choose = iter

    def first_offsets(self, histories: Sequence[PartitionHistory]) -> dict[str, dict[int, int]]:
        """Topic -> partition -> offset of the first of its last ``count`` records, or where its scan begins if it has
        fewer. For ``ScanRequest.starting_offsets``.

        Raises:
            As ``plan_scan`` and ``read_scan_range``.

        Cost: what lies between that offset and the end is read, and at most four times as many offsets.
        """
        found: dict[str, dict[int, int]] = {}
        with self.tier.machine.scheduler.pool(CONCURRENCY, name="tierlog-last") as pool:
            for history, offset in zip(histories, run_all(pool, self._first_offset, histories), strict=True):
                found.setdefault(history.topic, {})[history.partition] = offset
        return found

    def _first_offset(self, history: PartitionHistory) -> int:
        (bounds,) = prepare_scan(self.tier, self.request, histories=[history]).bounds or (None,)
        if bounds is None:  # left out by the filter
            return history.end_offset_exclusive
        left, end, step = self.count, bounds.end_offset_exclusive, self.count + _SPARE_OFFSETS
        while end > bounds.first_offset:
            first = max(bounds.first_offset, end - step)
            offsets = self._offsets(history, first, end)
            if len(offsets) >= left:
                return int(offsets[len(offsets) - left].as_py())
            left -= len(offsets)
            end, step = first, step * _GROWTH
        return bounds.first_offset

    def _offsets(self, history: PartitionHistory, first: int, end_exclusive: int) -> pa.ChunkedArray:
        """int64, ascending: the offsets of [first, end) whose records count."""
        partition = {history.topic: {history.partition: first}}, {history.topic: {history.partition: end_exclusive}}
        request = replace(
            self.request,
            starting_offsets=partition[0],
            ending_offsets=partition[1],
            starting_timestamps=None,
            ending_timestamps=None,
        )
        columns = ["offset", *(name for name in self.columns if name != "offset")]
        found = []
        for scan_range in plan_scan(self.tier, request, histories=[history]).ranges:
            with closing(read_scan_range(self.tier, scan_range, columns=columns)) as rows:  # type: ignore[type-var]
                found += [chosen.column("offset") for chosen in self.choose(rows)]
        return pa.chunked_array(found, pa.int64())
