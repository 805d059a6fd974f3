"""A view of a tier's segments, as a source of metadata had them when it was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.segment_table import SegmentTable
from tierlog.remote.tier.layouts.segment_lookup import KnownSegments
from tierlog.runtime.machine.process import Closeable

#: A partition without the topic's name, which is no part of its identity.
PartitionKey = tuple[Uuid, int]


def partition_key(partition: TopicIdPartition) -> PartitionKey:
    return partition.topic_id, partition.partition


class MetadataView(KnownSegments, Closeable):
    """The segments of a table, with the source's coverage: the ``known`` of ``open_tier``.

    Args:
        source: The source, for messages.
        table: Closed with the view. It changes where a later view of the same source stands on it.
        newest_ms: Partition → time of the newest record of its metadata partition, where the source has records.
        departed: Segments that the table does not hold, and the last state of each in the records: deleted ones, and
            those with updates only. None where the source does not have them.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        source: str,
        table: SegmentTable,
        *,
        newest_ms: Mapping[PartitionKey, int] | None = None,
        departed: Mapping[RemoteLogSegmentId, RemoteLogSegmentState] | None = None,
    ) -> None:
        self.source = source
        self.table = table
        self._newest_ms = newest_ms or {}
        self._departed = departed or {}
        self._partitions = {partition_key(partition): partition for partition in table.partitions()}

    def partitions(self) -> list[TopicIdPartition]:
        """Return the partitions that have, or had, segments."""
        return list(self._partitions.values())

    def knows(self, partition: TopicIdPartition) -> bool:
        """Whether anything was said of a partition, by topic id and number."""
        return partition_key(partition) in self._partitions

    def readable(self, partition: TopicIdPartition) -> Iterator[RemoteLogSegmentMetadata]:
        """Return the segments of a partition in state COPY_SEGMENT_FINISHED, ascending by start offset."""
        return (segment for segment in self.table.list(partition) if segment.state is _FINISHED)

    def segments(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield all segments in all states but DELETE_SEGMENT_FINISHED."""
        for partition in self.partitions():
            yield from self.table.list(partition)

    def find(self, segment_id: RemoteLogSegmentId) -> RemoteLogSegmentMetadata | None:
        """Find the segment of an id, in any state but DELETE_SEGMENT_FINISHED."""
        return self.table.get(segment_id) if self.knows(segment_id.topic_id_partition) else None

    def last_state(self, segment_id: RemoteLogSegmentId) -> RemoteLogSegmentState | None:
        """Return the last state of an id; None if there is none."""
        found = self.find(segment_id)
        return self._departed.get(segment_id) if found is None else found.state

    def newest_record_ms(self, partition: TopicIdPartition) -> int:
        """Return the time up to which the metadata of a partition is complete, ms since 1970; -1: unknown.

        A source without records reaches as far as the newest event that it holds of the partition.
        """
        if not self.knows(partition):
            return -1
        known = self._newest_ms.get(partition_key(partition))
        return int(self.table.columns(partition).event_timestamp_ms.max(initial=-1)) if known is None else known

    def close(self) -> None:
        """Free the table; idempotent."""
        self.table.close()


_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
