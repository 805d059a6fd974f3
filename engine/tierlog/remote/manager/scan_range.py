"""The unit of work of a scan: one piece of one segment. Small, picklable, free of secrets."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tierlog._native.indexes import ABORTED_DTYPE
from tierlog.remote.metadata.batch_stream import place_of
from tierlog.remote.storage.segment import StoredSegment


@dataclass(frozen=True, slots=True)
class ScanRange:
    """Bytes of one segment between two batch borders, and which of their records count.

    Attributes:
        segment: Narrowed to the bytes of this range.
        start_position, end_position: In the untransformed log, bytes, end exclusive.
        from_offset, to_offset_exclusive: Records outside do not count.
        from_timestamp_ms, to_timestamp_exclusive_ms: The same by record timestamp.
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

    @property
    def topic(self) -> str:
        return self.segment.topic_id_partition.topic

    @property
    def partition(self) -> int:
        return self.segment.topic_id_partition.partition

    @property
    def size_bytes(self) -> int:
        """Of the original log."""
        return self.end_position - self.start_position

    @property
    def offset_count(self) -> int:
        """At most so many records."""
        return self.to_offset_exclusive - self.from_offset

    @property
    def aborted_transactions(self) -> NDArray[np.void] | None:
        return None if self.aborted is None else np.frombuffer(self.aborted, ABORTED_DTYPE)

    def describe(self) -> str:
        """For messages: topic-partition and object."""
        return place_of(self.segment)


def group_ranges(
    ranges: tuple[ScanRange, ...], *, max_bytes: int, max_records: int | None = None
) -> list[tuple[ScanRange, ...]]:
    """Ranges in their order, put together into tasks of at most ``max_bytes`` and ``max_records`` where a range alone
    is not more: a topic of many small segments makes no thousand small tasks.
    """
    groups: list[tuple[ScanRange, ...]] = []
    group: list[ScanRange] = []
    size_bytes = records = 0
    for scan_range in ranges:
        full = size_bytes + scan_range.size_bytes > max_bytes or (
            max_records is not None and records + scan_range.offset_count > max_records
        )
        if group and full:
            groups.append(tuple(group))
            group, size_bytes, records = [], 0, 0
        group.append(scan_range)
        size_bytes += scan_range.size_bytes
        records += scan_range.offset_count
    return [*groups, tuple(group)] if group else groups
