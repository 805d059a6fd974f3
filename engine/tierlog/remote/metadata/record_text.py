"""The records of ``__remote_log_metadata`` as text: what Kafka's formatter and its dump tool print of them.

Operators compare these lines and grep in them, so the form is Kafka 4.3's, character for character.
"""

from __future__ import annotations

from collections.abc import Mapping

from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from tierlog.remote.metadata.record_serde import RemoteLogMetadataRecord


def record_text(record: RemoteLogMetadataRecord) -> str:
    """One line."""
    if isinstance(record, RemoteLogSegmentMetadata):
        return (
            f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment(record.remote_log_segment_id)}, "
            f"startOffset={record.start_offset}, endOffset={record.end_offset}, brokerId={record.broker_id}, "
            f"maxTimestampMs={record.max_timestamp_ms}, eventTimestampMs={record.event_timestamp_ms}, "
            f"segmentLeaderEpochs={_epochs(record.segment_leader_epochs)}, "
            f"segmentSizeInBytes={record.segment_size_in_bytes}, "
            f"customMetadata={_custom(record.custom_metadata)}, state={record.state.name}, "
            f"txnIdxEmpty={_boolean(record.txn_idx_empty)}}}"
        )
    if isinstance(record, RemoteLogSegmentMetadataUpdate):
        return (
            f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment(record.remote_log_segment_id)}, "
            f"customMetadata={_custom(record.custom_metadata)}, state={record.state.name}, "
            f"eventTimestampMs={record.event_timestamp_ms}, brokerId={record.broker_id}}}"
        )
    if isinstance(record, RemotePartitionDeleteMetadata):
        return (
            f"RemotePartitionDeleteMetadata{{topicPartition={_partition(record.topic_id_partition)}, "
            f"state={record.state.name}, eventTimestampMs={record.event_timestamp_ms}, brokerId={record.broker_id}}}"
        )
    return (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={record.segment_id}, startOffset={record.start_offset}, "
        f"endOffset={record.end_offset}, maxTimestampMs={record.max_timestamp_ms}, "
        f"segmentLeaderEpochs={_epochs(record.segment_leader_epochs)}, "
        f"segmentSizeInBytes={record.segment_size_in_bytes}, customMetadata={_custom(record.custom_metadata)}, "
        f"state={record.state.name}, txnIdxEmpty={_boolean(record.txn_idx_empty)}}}"
    )


def _partition(partition: TopicIdPartition) -> str:
    return f"{partition.topic_id}:{partition}"


def _segment(segment: RemoteLogSegmentId) -> str:
    return f"RemoteLogSegmentId{{topicIdPartition={_partition(segment.topic_id_partition)}, id={segment.id}}}"


def _epochs(epochs: Mapping[int, int]) -> str:
    return "{" + ", ".join(f"{epoch}={start}" for epoch, start in sorted(epochs.items())) + "}"


def _custom(metadata: bytes | None) -> str:
    return "Optional.empty" if metadata is None else f"Optional[CustomMetadata{{{len(metadata)} bytes}}]"


def _boolean(value: bool) -> str:
    return "true" if value else "false"
