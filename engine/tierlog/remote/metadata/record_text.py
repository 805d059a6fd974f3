"""The records of ``__remote_log_metadata`` as text: what Kafka's tools print, as JSON fields, and in the KIP's form.

Operators compare these lines and grep in them, so the form is Kafka 4.3's, character for character.

The KIP designs another one, its RemoteLogMetadataFormatter, which Kafka never built::

    partition:<n>,message-offset:<n>,type:<type>,version:<n>,event-value:<value>

All but type and value are printed only if a property asks for them. Kafka's records hold no leader epoch, which the KIP
shows: the id of the broker that made the event stands in its place, as it does in their bytes.

Source: KIP-405, Message Formatter for the internal topic.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from tierlog.config_keys import nearest_name
from tierlog.errors import ConfigError
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.record_serde import VERSION, RemoteLogMetadataRecord, RemoteLogSegmentMetadataSnapshot

#: The fields that kafka-dump-log prints of each record, by Kafka's names and in its order.
_PRINTED: Final[Mapping[type, str]] = {
    RemoteLogSegmentMetadata: "remoteLogSegmentId startOffset endOffset brokerId maxTimestampMs eventTimestampMs "
    "segmentLeaderEpochs segmentSizeInBytes customMetadata state txnIdxEmpty",
    RemoteLogSegmentMetadataUpdate: "remoteLogSegmentId customMetadata state eventTimestampMs brokerId",
    RemotePartitionDeleteMetadata: "topicPartition state eventTimestampMs brokerId",
    RemoteLogSegmentMetadataSnapshot: "segmentId startOffset endOffset maxTimestampMs segmentLeaderEpochs "
    "segmentSizeInBytes customMetadata state txnIdxEmpty",
}
#: Fields of the JSON form behind the subject's, of records that have them.
_IN_JSON: Final = (
    "startOffset endOffset maxTimestampMs segmentLeaderEpochs segmentSizeInBytes txnIdxEmpty customMetadata state "
    "eventTimestampMs brokerId"
)


@functools.cache
def _attribute(name: str) -> str:
    """Our name of a field of Kafka's."""
    return "topic_id_partition" if name == "topicPartition" else re.sub("(?=[A-Z])", "_", name).lower()


def record_text(record: RemoteLogMetadataRecord) -> str:
    """Return a record in one line, as kafka-dump-log prints it."""
    kind = next(kind for kind in _PRINTED if isinstance(record, kind))
    shown = (f"{name}={_text(getattr(record, _attribute(name)))}" for name in _PRINTED[kind].split())
    return f"{kind.__name__}{{{', '.join(shown)}}}"


def record_fields(record: RemoteLogMetadataRecord) -> dict[str, object]:
    """Return the same as JSON fields, under Kafka's names; custom metadata as hexadecimal digits."""
    fields: dict[str, object] = {"type": type(record).__name__}
    if isinstance(record, RemotePartitionDeleteMetadata):
        fields |= _partition_fields(record.topic_id_partition)
    elif isinstance(record, RemoteLogSegmentMetadataSnapshot):
        fields["segmentId"] = str(record.segment_id)
    else:
        fields |= _partition_fields(record.remote_log_segment_id.topic_id_partition)
        fields["segmentId"] = str(record.remote_log_segment_id.id)
    values = {name: getattr(record, _attribute(name)) for name in _IN_JSON.split() if hasattr(record, _attribute(name))}
    return fields | {name: _in_json(value) for name, value in values.items()}


def _partition_fields(partition: TopicIdPartition) -> dict[str, object]:
    return {"topicId": str(partition.topic_id), "topic": partition.topic, "partition": partition.partition}


def _in_json(value: object) -> object:
    match value:
        case Mapping():
            return {str(epoch): start for epoch, start in sorted(value.items())}
        case bytes():
            return value.hex()
        case enum.Enum():
            return value.name
    return value


def _text(value: object) -> str:
    match value:
        case TopicIdPartition():
            return f"{value.topic_id}:{value}"
        case RemoteLogSegmentId():
            return f"RemoteLogSegmentId{{topicIdPartition={_text(value.topic_id_partition)}, id={value.id}}}"
        case Mapping():
            return "{" + ", ".join(f"{epoch}={start}" for epoch, start in sorted(value.items())) + "}"
        case None:  # custom metadata, which alone can be missing
            return "Optional.empty"
        case Uuid():
            return str(value)
        case bytes():
            return f"Optional[CustomMetadata{{{len(value)} bytes}}]"
        case bool():
            return str(value).lower()
        case enum.Enum():
            return value.name
    return str(value)


_VALUES: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class KipProperties:
    """The formatter's properties; all are false by default. A property's name has dots for underscores."""

    print_partition: bool = False
    print_message_offset: bool = False
    print_version: bool = False
    print_all_event_value_fields: bool = False

    @classmethod
    def of(cls, given: Iterable[str]) -> KipProperties:
        """Parse ``name=value`` texts; of a property that comes twice the last one counts.

        Raises:
            ConfigError: an unknown property, or a value that is neither true nor false.
        """
        names = {field.name.replace("_", "."): field.name for field in fields(cls)}
        values = {}
        for text in given:
            name, separator, value = text.partition("=")
            if name not in names:
                raise ConfigError(f"unknown property {name!r}; the nearest is {nearest_name(name, names)}=true")
            if not separator or value.lower() not in _VALUES:
                raise ConfigError(f"property {text!r}: {name}=true or {name}=false expected")
            values[names[name]] = _VALUES[value.lower()]
        return cls(**values)


def kip_line(record: RemoteLogMetadataRecord, properties: KipProperties, *, partition: int, offset: int) -> str:
    """Return one record of a metadata partition, without the end of the line."""
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
    """Return the KIP's default representation of an event."""
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
    """Return the KIP's name of the event's type; the snapshot record, which it does not know, has Kafka's."""
    return "DeletePartitionState" if isinstance(record, RemotePartitionDeleteMetadata) else type(record).__name__


def _kip_segment(segment: RemoteLogSegmentId | Uuid) -> str:
    """Return the id of a segment; a snapshot record does not say of which partition."""
    if isinstance(segment, Uuid):
        return f"{{id:{segment}}}"
    return f"{{id:{segment.id},{_kip_partition(segment.topic_id_partition)}}}"


def _kip_partition(partition: TopicIdPartition) -> str:
    return f"topicId:{partition.topic_id},topicName:{partition.topic},partition:{partition.partition}"
