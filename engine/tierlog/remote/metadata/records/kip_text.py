"""The records of ``__remote_log_metadata`` as KIP-405's RemoteLogMetadataFormatter prints them, one line each.

::

    partition:<n>,message-offset:<n>,type:<type>,version:<n>,event-value:<value>

All but type and value are printed only if a property asks for them. Kafka's records hold no leader epoch, which the KIP
shows: the id of the broker that made the event stands in its place, as it does in their bytes. Kafka never built this
formatter; what its own tools print is in ``record_text``.

Source: KIP-405, Message Formatter for the internal topic.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
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
from tierlog.remote.metadata.records.record_serde import VERSION, RemoteLogMetadataRecord
from tierlog.remote.metadata.records.record_text import record_text

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
    shown.append(f"type:{_type(record)}")
    if properties.print_version:
        shown.append(f"version:{VERSION}")
    value = record_text(record) if properties.print_all_event_value_fields else kip_value(record)
    return ",".join([*shown, f"event-value:{value}"])


def kip_value(record: RemoteLogMetadataRecord) -> str:
    """The KIP's default representation of an event."""
    if isinstance(record, RemotePartitionDeleteMetadata):
        return (
            f"{{topic-id-partition:{{{_partition(record.topic_id_partition)}}},epoch:{record.broker_id},"
            f"remote-partition-delete-state:{record.state.name}}}"
        )
    if isinstance(record, RemoteLogSegmentMetadataUpdate):
        return (
            f"{{remote-log-segment-id:{_segment(record.remote_log_segment_id)},leader-epoch:{record.broker_id},"
            f"remote-log-segment-state:{record.state.name}}}"
        )
    segment = record.remote_log_segment_id if isinstance(record, RemoteLogSegmentMetadata) else record.segment_id
    return (
        f"{{remote-log-segment-id:{_segment(segment)},start-offset:{record.start_offset},"
        f"end-offset:{record.end_offset},leader-epoch:{record.broker_id},"
        f"remote-log-segment-state:{record.state.name}}}"
    )


def _type(record: RemoteLogMetadataRecord) -> str:
    """The KIP's name of the event's type; the snapshot record, which it does not know, keeps Kafka's."""
    return "DeletePartitionState" if isinstance(record, RemotePartitionDeleteMetadata) else type(record).__name__


def _segment(segment: RemoteLogSegmentId | Uuid) -> str:
    """The id of a segment; a snapshot record does not say of which partition."""
    if isinstance(segment, Uuid):
        return f"{{id:{segment}}}"
    return f"{{id:{segment.id},{_partition(segment.topic_id_partition)}}}"


def _partition(partition: TopicIdPartition) -> str:
    return f"topicId:{partition.topic_id},topicName:{partition.topic},partition:{partition.partition}"
