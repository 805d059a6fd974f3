"""The segment table as a dict: what the one in C must come to, in the fewest words."""

from __future__ import annotations

from collections.abc import Iterator

from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
)

STATE = RemoteLogSegmentState
_NEXT = {
    None: {STATE.COPY_SEGMENT_STARTED},
    STATE.COPY_SEGMENT_STARTED: {
        STATE.COPY_SEGMENT_STARTED,
        STATE.COPY_SEGMENT_FINISHED,
        STATE.DELETE_SEGMENT_STARTED,
    },
    STATE.COPY_SEGMENT_FINISHED: {STATE.COPY_SEGMENT_FINISHED, STATE.DELETE_SEGMENT_STARTED},
    STATE.DELETE_SEGMENT_STARTED: {STATE.DELETE_SEGMENT_STARTED, STATE.DELETE_SEGMENT_FINISHED},
}


class SegmentTableModel:
    """Segments by id and highest offsets by epoch, of the partitions that are assigned."""

    def __init__(self) -> None:
        self.segments: dict[TopicIdPartition, dict[RemoteLogSegmentId, RemoteLogSegmentMetadata]] = {}
        self.highest: dict[tuple[TopicIdPartition, int], int] = {}

    def assign(self, partition: TopicIdPartition) -> None:
        self.segments[partition] = {}

    def unassign(self, partition: TopicIdPartition) -> None:
        self.segments.pop(partition, None)
        self.highest = {key: offset for key, offset in self.highest.items() if key[0] != partition}

    def apply_record(self, record: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate) -> bool:
        """Whether the event was applied; one of a partition that is not assigned never is."""
        of = self.segments.get(record.remote_log_segment_id.topic_id_partition)
        if of is None:
            return False
        found = of.get(record.remote_log_segment_id)
        if record.state not in _NEXT[None if found is None else found.state]:
            return False
        if isinstance(record, RemoteLogSegmentMetadata):
            made = record
        elif found is None or record.state is STATE.COPY_SEGMENT_STARTED:
            return False
        else:
            made = found.create_with_updates(record)
        of[record.remote_log_segment_id] = made
        if made.state is STATE.DELETE_SEGMENT_FINISHED:
            del of[record.remote_log_segment_id]
        elif made.state is STATE.COPY_SEGMENT_FINISHED:
            for epoch, _, end in parts(made):
                key = (record.remote_log_segment_id.topic_id_partition, epoch)
                self.highest[key] = max(self.highest.get(key, -1), end)
        return True

    def readable(self, partition: TopicIdPartition, epoch: int, offset: int) -> list[RemoteLogSegmentMetadata]:
        """All finished segments with an offset of an epoch."""
        return [
            segment
            for segment in self.segments[partition].values()
            if segment.state is STATE.COPY_SEGMENT_FINISHED
            and any(e == epoch and start <= offset <= end for e, start, end in parts(segment))
        ]

    def listed(self, partition: TopicIdPartition, epoch: int | None = None) -> list[RemoteLogSegmentMetadata]:
        """The segments of a partition, or of one epoch."""
        found = self.segments[partition].values()
        return [segment for segment in found if epoch is None or epoch in segment.segment_leader_epochs]


def parts(segment: RemoteLogSegmentMetadata) -> Iterator[tuple[int, int, int]]:
    """Each epoch of a segment with its first and last offset in it."""
    epochs = list(segment.segment_leader_epochs.items())
    for (epoch, start), (_, following) in zip(epochs, [*epochs[1:], (-1, segment.end_offset + 1)], strict=True):
        yield epoch, start, following - 1
