"""The records of ``__remote_log_metadata`` as text: what Kafka's tools print, as JSON fields, and in the KIP's form.

Operators compare these lines and grep in them, so the form is Kafka 4.3's, character for character.

The KIP designs another one, its RemoteLogMetadataFormatter, which Kafka never built::

    partition:<n>,message-offset:<n>,type:<type>,version:<n>,event-value:<value>

All but type and value are printed only if a property asks for them. Kafka's records hold no leader epoch, which the KIP
shows: the id of the broker that made the event stands in its place, as it does in their bytes.

Source: KIP-405, Message Formatter for the internal topic.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from tierlog.errors import ConfigError
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.record_serde import VERSION, RemoteLogMetadataRecord


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


_VALUES: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class KipProperties:
    """The formatter's properties; all are false where nobody gives them. A property's name has dots for underscores."""

    print_partition: bool = False
    print_message_offset: bool = False
    print_version: bool = False
    print_all_event_value_fields: bool = False

    @classmethod
    def of(cls, given: Iterable[str]) -> KipProperties:
        """From ``name=value`` texts; of a property that comes twice the last one counts.

        Raises:
            ConfigError: an unknown property, or a value that is neither true nor false.
        """
        names = {field.name.replace("_", "."): field.name for field in fields(cls)}
        values = {}
        for text in given:
            name, separator, value = text.partition("=")
            if name not in names:
                nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
                raise ConfigError(f"unknown property {name!r}; the nearest is {nearest}=true")
            if not separator or value.lower() not in _VALUES:
                raise ConfigError(f"property {text!r}: {name}=true or {name}=false expected")
            values[names[name]] = _VALUES[value.lower()]
        return cls(**values)


def kip_line(record: RemoteLogMetadataRecord, properties: KipProperties, *, partition: int, offset: int) -> str:
    """One record of a metadata partition, without the end of the line."""
    shown = []
    if properties.print_partition:
        shown.append(f"partition:{partition}")
    if properties.print_message_offset:
        shown.append(f"message-offset:{offset}")
    shown.append(f"type:{_kip_type(record)}")
    if properties.print_version:
        shown.append(f"version:{VERSION}")
    value = record_text(record) if properties.print_all_event_value_fields else kip_value(record)
    return ",".join([*shown, f"event-value:{value}"])


def kip_value(record: RemoteLogMetadataRecord) -> str:
    """The KIP's default representation of an event."""
    if isinstance(record, RemotePartitionDeleteMetadata):
        return (
            f"{{topic-id-partition:{{{_kip_partition(record.topic_id_partition)}}},epoch:{record.broker_id},"
            f"remote-partition-delete-state:{record.state.name}}}"
        )
    if isinstance(record, RemoteLogSegmentMetadataUpdate):
        return (
            f"{{remote-log-segment-id:{_kip_segment(record.remote_log_segment_id)},leader-epoch:{record.broker_id},"
            f"remote-log-segment-state:{record.state.name}}}"
        )
    segment = record.remote_log_segment_id if isinstance(record, RemoteLogSegmentMetadata) else record.segment_id
    return (
        f"{{remote-log-segment-id:{_kip_segment(segment)},start-offset:{record.start_offset},"
        f"end-offset:{record.end_offset},leader-epoch:{record.broker_id},"
        f"remote-log-segment-state:{record.state.name}}}"
    )


def _kip_type(record: RemoteLogMetadataRecord) -> str:
    """The KIP's name of the event's type; the snapshot record, which it does not know, keeps Kafka's."""
    return "DeletePartitionState" if isinstance(record, RemotePartitionDeleteMetadata) else type(record).__name__


def _kip_segment(segment: RemoteLogSegmentId | Uuid) -> str:
    """The id of a segment; a snapshot record does not say of which partition."""
    if isinstance(segment, Uuid):
        return f"{{id:{segment}}}"
    return f"{{id:{segment.id},{_kip_partition(segment.topic_id_partition)}}}"


def _kip_partition(partition: TopicIdPartition) -> str:
    return f"topicId:{partition.topic_id},topicName:{partition.topic},partition:{partition.partition}"
