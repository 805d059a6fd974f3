"""The times of the copied segments of a table's partitions: searches by time look at three columns alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tierlog.remote.api import RemoteLogSegmentState, TopicIdPartition
from tierlog.runtime.machine import Machine

if TYPE_CHECKING:
    from tierlog.remote.metadata.segment_row import SegmentColumns

#: Partitions whose segments' times are remembered, those that were asked for last.
_PARTITIONS_MAX: Final = 64


class SegmentTimes(NamedTuple):
    """The copied segments of a partition, by start offset: int64[n] each, and the ids, uint8[n, 16].

    Attributes:
        version: The table's, of the partition, before they were listed.
    """

    version: int
    start_offsets: NDArray[np.int64]
    end_offsets: NDArray[np.int64]
    max_timestamps_ms: NDArray[np.int64]
    ids: NDArray[np.uint8]

    def find(self, timestamp_ms: int, start_offset: int, end_offset_exclusive: int) -> NDArray[np.intp]:
        """Return the indexes of those that may have a record from a time on in a range of offsets, ascending."""
        wanted = (
            (self.max_timestamps_ms >= timestamp_ms)
            & (self.end_offsets >= start_offset)
            & (self.start_offsets < end_offset_exclusive)
        )
        return np.flatnonzero(wanted)


class KnownTimes:
    """The SegmentTimes of the partitions that were asked for last: listed again only after a change of them.

    Thread safety: any number of threads.
    """

    def __init__(self, machine: Machine) -> None:
        self._times: dict[TopicIdPartition, SegmentTimes] = {}
        self._lock = machine.scheduler.lock()

    def find(self, partition: TopicIdPartition, version: int, columns: Callable[[], SegmentColumns]) -> SegmentTimes:
        """Return the times of a partition whose segments have a version, of its columns if they are not known."""
        with self._lock:
            known = self._times.get(partition)
        if known is not None and known.version == version:
            return known
        rows = columns()
        copied = rows["state"] == int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        names = ("start_offset", "end_offset", "max_timestamp_ms", "segment_id")
        start, end, newest, ids = (rows[name][copied] for name in names)
        made = SegmentTimes(version, start, end, newest, ids)
        with self._lock:
            self._times.pop(partition, None)
            self._times[partition] = made  # the newest is last
            if len(self._times) > _PARTITIONS_MAX:
                del self._times[next(iter(self._times))]
        return made
