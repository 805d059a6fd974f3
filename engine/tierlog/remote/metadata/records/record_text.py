"""The records of ``__remote_log_metadata`` as text: what Kafka's formatter and its dump tool print, and as JSON fields.

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
from tierlog.remote.metadata.records.record_serde import RemoteLogMetadataRecord


def record_text(record: RemoteLogMetadataRecord) -> str:
    """A record in one line, as kafka-dump-log prints it."""
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


def record_fields(record: RemoteLogMetadataRecord) -> dict[str, object]:
    """The same as JSON fields, under Kafka's names; custom metadata as hexadecimal digits."""
    fields: dict[str, object] = {"type": type(record).__name__}
    if isinstance(record, RemotePartitionDeleteMetadata):
        fields |= _partition_fields(record.topic_id_partition)
        return fields | {
            "state": record.state.name,
            "eventTimestampMs": record.event_timestamp_ms,
            "brokerId": record.broker_id,
        }
    if isinstance(record, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate):
        fields |= _partition_fields(record.remote_log_segment_id.topic_id_partition)
        fields["segmentId"] = str(record.remote_log_segment_id.id)
    else:
        fields["segmentId"] = str(record.segment_id)
    if not isinstance(record, RemoteLogSegmentMetadataUpdate):
        fields |= {
            "startOffset": record.start_offset,
            "endOffset": record.end_offset,
            "maxTimestampMs": record.max_timestamp_ms,
            "segmentLeaderEpochs": {str(epoch): start for epoch, start in sorted(record.segment_leader_epochs.items())},
            "segmentSizeInBytes": record.segment_size_in_bytes,
            "txnIdxEmpty": record.txn_idx_empty,
        }
    return fields | {
        "customMetadata": None if record.custom_metadata is None else record.custom_metadata.hex(),
        "state": record.state.name,
        "eventTimestampMs": record.event_timestamp_ms,
        "brokerId": record.broker_id,
    }


def _partition_fields(partition: TopicIdPartition) -> dict[str, object]:
    return {"topicId": str(partition.topic_id), "topic": partition.topic, "partition": partition.partition}


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
