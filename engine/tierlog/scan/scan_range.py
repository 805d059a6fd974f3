"""The unit of work of a scan: one piece of one segment. Small, picklable, free of secrets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tierlog._native.indexes import ABORTED_DTYPE
from tierlog.remote.tier.chunks.stored_segment import StoredSegment

#: In front of each batch.
BASE_OFFSET_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class ScanRange:
    """Bytes of one segment between two batch borders, and the bounds of the records that count.

    Attributes:
        segment: Narrowed to the bytes of this range.
        start_position, end_position: In the untransformed log, bytes, end exclusive.
        from_offset, to_offset_exclusive: Records outside do not count.
        from_timestamp_ms, to_timestamp_exclusive_ms: The same by record timestamp.
        least_offset, greatest_offset: No batch between the borders begins below or ends above, both **inclusive**, as
            far as the segment and its offset index know: a batch that does is damaged.
        aborted: Rows of ABORTED_DTYPE, the aborted transactions that touch the range; None for read_uncommitted.
        fail_on_data_loss: As in ScanRequest.
    """

    segment: StoredSegment
    start_position: int
    end_position: int
    from_offset: int
    to_offset_exclusive: int
    from_timestamp_ms: int = -(2**63)
    to_timestamp_exclusive_ms: int = 2**63 - 1
    aborted: bytes | None = field(default=None, repr=False)
    fail_on_data_loss: bool = True
    least_offset: int = 0
    greatest_offset: int = 2**63 - 1

    @property
    def topic(self) -> str:
        return self.segment.topic_id_partition.topic

    @property
    def partition(self) -> int:
        return self.segment.topic_id_partition.partition

    @property
    def size_bytes(self) -> int:
        """Bytes of the original log."""
        return self.end_position - self.start_position

    @property
    def read_end_position(self) -> int:
        """The end position of a reader that looks at the base offset of the batch behind the range.

        No checksum covers a base offset; where each is looked at beside the next one, none can be wrong unseen. It is
        left out where that would take one more chunk, which a border close to a chunk's end does.
        """
        end, index = self.end_position + BASE_OFFSET_BYTES, self.segment.chunk_index
        most = self.segment.size_bytes
        if self.segment.transformed and index is not None:
            size = index.original_chunk_size
            most = min(most, -(-self.end_position // size) * size)
        return end if self.start_position < self.end_position and end <= most else self.end_position

    @property
    def offset_count(self) -> int:
        """The most records that the range can have."""
        return self.to_offset_exclusive - self.from_offset

    @property
    def aborted_transactions(self) -> NDArray[np.void] | None:
        return None if self.aborted is None else np.frombuffer(self.aborted, ABORTED_DTYPE)

    def describe(self) -> str:
        """Return the range's segment in messages: topic-partition and object."""
        return self.segment.place


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """The limits of a task.

    Attributes:
        max_bytes, max_records: Of a task that is more than one range; None for no limit.
        max_tasks: Tasks at most, of whatever size that makes them; None for no limit.
        total_bytes, total_records: The approximate sums over all ranges, so that ``max_tasks`` makes tasks of even
            size.
        min_tasks: Tasks at least, if there are ranges enough.
        ranges: How many there are; needed for ``min_tasks`` alone.
    """

    max_bytes: int
    max_records: int | None = None
    max_tasks: int | None = None
    total_bytes: int = 0
    total_records: int = 0
    min_tasks: int = 0
    ranges: int = 0


def group_ranges(ranges: Iterable[ScanRange], limits: TaskLimits) -> Iterator[tuple[ScanRange, ...]]:
    """Yield ranges in their order, put together into tasks within the limits, as they come: a topic of many small
    segments makes no thousand small tasks.
    """
    group: list[ScanRange] = []
    size_bytes = records = 0
    closed = _ClosedTasks(limits)
    for number, scan_range in enumerate(ranges):
        full = closed.is_full(size_bytes + scan_range.size_bytes, records + scan_range.offset_count)
        if group and (full or closed.needs_more(limits.ranges - number)):
            yield tuple(group)
            closed.count(size_bytes, records)
            group, size_bytes, records = [], 0, 0
        group.append(scan_range)
        size_bytes += scan_range.size_bytes
        records += scan_range.offset_count
    if group:
        yield tuple(group)


@dataclass(slots=True)
class _ClosedTasks:
    """The sum of the tasks that are closed, and how much that leaves for the others."""

    limits: TaskLimits
    tasks: int = 0
    size_bytes: int = 0
    records: int = 0

    def count(self, size_bytes: int, records: int) -> None:
        self.tasks += 1
        self.size_bytes += size_bytes
        self.records += records

    def needs_more(self, left: int) -> bool:
        """Whether ``left`` ranges must each begin a task, so that these are enough."""
        return bool(self.limits.min_tasks) and self.tasks + left < self.limits.min_tasks

    def is_full(self, size_bytes: int, records: int) -> bool:
        """Whether a task of that size is more than is allowed."""
        limits = self.limits
        if limits.max_tasks is None:
            left = None
        else:
            left = limits.max_tasks - self.tasks
            if left <= 1:
                return False
        if size_bytes > max(limits.max_bytes, _share(limits.total_bytes - self.size_bytes, left)):
            return True
        most = limits.max_records
        return most is not None and records > max(most, _share(limits.total_records - self.records, left))


def _share(total: int, parts: int | None) -> int:
    return 0 if parts is None else -(-total // parts)
