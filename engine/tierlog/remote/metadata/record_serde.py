"""The records of ``__remote_log_metadata``: bytes to the KIP's values and back.

A record's value is a frame, then a body in the flexible encoding::

    uvarint frame version = 1 | uvarint api key | uvarint version = 0 | body

    0  segment metadata:   topic, segment id, offsets, broker, times, leader epochs, size, custom metadata, state, tag 0
    1  segment update:     topic, segment id, broker, event time, custom metadata, state
    2  partition delete:   topic, broker, event time, state
    3  segment snapshot:   segment id, then as 0 from the offsets on; Kafka 4.3 writes it nowhere

Reading is as strict as Kafka's: an unknown frame, key or version, a body that is cut short and bytes left over are all
refused. Beyond Kafka, a state that does not exist is refused here instead of becoming null.

Source: Kafka RemoteLogMetadataSerde, BytesApiMessageSerde and the four message schemas of storage 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from typing_extensions import Buffer

from tierlog.errors import CorruptRecordError
from tierlog.log.formats.message_fields import MessageReader, MessageWriter, corrupt
from tierlog.remote.api import (
    EpochMap,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)

FRAME_VERSION: Final = 1
VERSION: Final = 0
_HEADER_NUMBER_MAX: Final = 32767
_EPOCH_SIZE_BYTES: Final = 13
_TXN_IDX_EMPTY_TAG: Final = 0


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadataSnapshot:
    """One segment as a snapshot of a metadata partition has it: the partition is known from elsewhere."""

    segment_id: Uuid
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    segment_leader_epochs: EpochMap
    segment_size_in_bytes: int
    custom_metadata: bytes | None
    state: RemoteLogSegmentState
    txn_idx_empty: bool = False

    def of(self, partition: TopicIdPartition) -> RemoteLogSegmentMetadata:
        """Return the same as a segment of this partition. Raises ValueError as RemoteLogSegmentMetadata does."""
        values = {name: getattr(self, name) for name in _SHARED}
        return RemoteLogSegmentMetadata(remote_log_segment_id=RemoteLogSegmentId(partition, self.segment_id), **values)

    @classmethod
    def from_metadata(cls, segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadataSnapshot:
        """Return the same as an entry of a snapshot."""
        values = {name: getattr(segment, name) for name in _SHARED}
        values["segment_leader_epochs"] = EpochMap(segment.segment_leader_epochs)
        return cls(segment_id=segment.remote_log_segment_id.id, **values)


#: The fields that a segment and its entry in a snapshot have both.
_SHARED: Final = tuple(each.name for each in fields(RemoteLogSegmentMetadataSnapshot))[1:]
RemoteLogMetadataRecord = (
    RemoteLogSegmentMetadata
    | RemoteLogSegmentMetadataUpdate
    | RemotePartitionDeleteMetadata
    | RemoteLogSegmentMetadataSnapshot
)


def decode_record(value: Buffer) -> RemoteLogMetadataRecord:
    """Read the value of one record.

    Raises:
        CorruptRecordError: any of the refusals above; ``position`` is that in the value.
    """
    reader = MessageReader(value)
    if reader.left == 0:
        raise corrupt("an empty value is no metadata record", "TRUNCATED", 0)
    frame = _header_number(reader, "frame version")
    if frame == 0:
        raise corrupt("frame version 0: written by a preview release", "BAD_VERSION", 0, expected=FRAME_VERSION)
    if frame != FRAME_VERSION:
        text = f"frame version {frame}, only {FRAME_VERSION} is known"
        raise corrupt(text, "BAD_VERSION", 0, expected=FRAME_VERSION, found=frame)
    at = reader.position
    key = _header_number(reader, "api key")
    if not 0 <= key < len(_KINDS):
        raise corrupt(f"unknown metadata record type {key}", "BAD_VERSION", at, found=key)
    at = reader.position
    version = _header_number(reader, "version")
    if version != VERSION:
        text = f"version {version} of metadata record type {key}, only {VERSION} is known"
        raise corrupt(text, "BAD_VERSION", at, expected=VERSION, found=version)
    try:
        record = _read_body(reader, *_KINDS[key])
    except ValueError as cause:
        if isinstance(cause, CorruptRecordError):
            raise
        raise corrupt(str(cause), "BAD_ENTRY", reader.position) from cause
    reader.finish()
    return record


def encode_record(record: RemoteLogMetadataRecord) -> bytes:
    """Encode the value of a record, as Kafka writes it. Raises ValueError: a number does not fit into its field."""
    key = next(key for key, (kind, _) in enumerate(_KINDS) if isinstance(record, kind))
    writer = MessageWriter()
    for number in (FRAME_VERSION, key, VERSION):
        writer.unsigned_varint(number)
    write_fields(writer, _KINDS[key][1], record)
    writer.tagged_fields({_TXN_IDX_EMPTY_TAG: b"\x01"} if getattr(record, "txn_idx_empty", False) else None)
    return writer.finish()


def _read_body(reader: MessageReader, kind: Any, of_kind: tuple[Field, ...]) -> RemoteLogMetadataRecord:
    values = read_fields(reader, of_kind)
    tags = reader.tagged_fields()
    if hasattr(kind, "txn_idx_empty"):
        flag = tags.get(_TXN_IDX_EMPTY_TAG)
        if flag is not None and len(flag) != 1:
            text = f"tag {_TXN_IDX_EMPTY_TAG} has {len(flag)} bytes, expected 1"
            raise corrupt(text, "BAD_SIZE", reader.position)
        values["txn_idx_empty"] = flag is not None and flag[0] != 0
    record: RemoteLogMetadataRecord = kind(**values)
    return record


def _header_number(reader: MessageReader, what: str) -> int:
    at = reader.position
    number = reader.unsigned_varint(what)
    if number > _HEADER_NUMBER_MAX:
        raise corrupt(f"{what} {number} is above {_HEADER_NUMBER_MAX}", "BAD_VERSION", at, found=number)
    return number


class Field(NamedTuple):
    """A field of a message, and the attribute of the value that has it."""

    name: str
    read: Callable[[MessageReader], Any]
    write: Callable[[MessageWriter, Any], None]


def read_fields(reader: MessageReader, of_kind: tuple[Field, ...]) -> dict[str, Any]:
    """Read the values of the fields, in their order, by name."""
    return {name: read(reader) for name, read, _ in of_kind}


def write_fields(writer: MessageWriter, of_kind: tuple[Field, ...], value: object) -> None:
    """Append the fields of a value in their order."""
    for name, _, write in of_kind:
        write(writer, getattr(value, name))


def number_field(name: str, size_bytes: int, what: str) -> Field:
    """Read a signed number."""
    return Field(
        name, lambda reader: reader.number(size_bytes, what), lambda writer, value: writer.number(size_bytes, value)
    )


def _uuid(reader: MessageReader, what: str) -> Uuid:
    return bytes.__new__(Uuid, reader.take(16, what))  # the sixteen bytes are there: nothing is left to check


def _state_field(kind: type[RemoteLogSegmentState | RemotePartitionDeleteState]) -> Field:
    def read(reader: MessageReader) -> RemoteLogSegmentState | RemotePartitionDeleteState:
        at = reader.position
        number = reader.number(1, "state")
        try:
            return kind(number)
        except ValueError as cause:
            raise corrupt(f"there is no state {number}", "BAD_ENTRY", at, found=number) from cause

    return Field("state", read, lambda writer, state: writer.number(1, state))


def _read_partition(reader: MessageReader) -> TopicIdPartition:
    name = reader.compact_string("topic name")
    topic_id = _uuid(reader, "topic id")
    partition = reader.number(4, "partition")
    reader.tagged_fields()
    return TopicIdPartition(topic_id, name, partition)


def _write_partition(writer: MessageWriter, partition: TopicIdPartition) -> None:
    writer.compact_string(partition.topic)
    writer.raw(partition.topic_id)
    writer.number(4, partition.partition)
    writer.tagged_fields()


def _read_segment_id(reader: MessageReader) -> RemoteLogSegmentId:
    partition = _read_partition(reader)
    segment_id = _uuid(reader, "segment id")
    reader.tagged_fields()
    return RemoteLogSegmentId(partition, segment_id)


def _write_segment_id(writer: MessageWriter, segment: RemoteLogSegmentId) -> None:
    _write_partition(writer, segment.topic_id_partition)
    writer.raw(segment.id)
    writer.tagged_fields()


def _read_epochs(reader: MessageReader) -> EpochMap:
    at = reader.position
    count = reader.compact_count("leader epochs", _EPOCH_SIZE_BYTES)
    if count is None:
        raise corrupt("leader epochs are null", "BAD_COUNT", at)
    epochs = {}
    for _ in range(count):
        epoch = reader.number(4, "leader epoch")
        epochs[epoch] = reader.number(8, "start offset of a leader epoch")
        reader.tagged_fields()
    return EpochMap(epochs)


def _write_epochs(writer: MessageWriter, epochs: EpochMap) -> None:
    writer.compact_count(len(epochs))
    for epoch, start_offset in sorted(epochs.items()):
        writer.number(4, epoch)
        writer.number(8, start_offset)
        writer.tagged_fields()


#: The fields that the records of the topic and the entries of the KIP's flat file have in one form.
SEGMENT_ID: Final = Field(
    "segment_id", lambda reader: _uuid(reader, "segment id"), lambda writer, value: writer.raw(value)
)
OFFSETS: Final = (number_field("start_offset", 8, "start offset"), number_field("end_offset", 8, "end offset"))
MAX_TIMESTAMP: Final = number_field("max_timestamp_ms", 8, "max timestamp")
EVENT_TIMESTAMP: Final = number_field("event_timestamp_ms", 8, "event timestamp")
SIZE: Final = number_field("segment_size_in_bytes", 4, "segment size")

_BROKER: Final = number_field("broker_id", 4, "broker id")
_CUSTOM_METADATA: Final = Field(
    "custom_metadata", lambda reader: reader.compact_bytes("custom metadata"), MessageWriter.compact_bytes
)
_STATE: Final = _state_field(RemoteLogSegmentState)
_SEGMENT: Final = Field("remote_log_segment_id", _read_segment_id, _write_segment_id)
_PARTITION: Final = Field("topic_id_partition", _read_partition, _write_partition)
_EPOCHS: Final = Field("segment_leader_epochs", _read_epochs, _write_epochs)
_BODY: Final = (*OFFSETS, _BROKER, MAX_TIMESTAMP, EVENT_TIMESTAMP, _EPOCHS, SIZE, _CUSTOM_METADATA, _STATE)
#: The value and the fields of each record, by its API key.
_KINDS: Final[tuple[tuple[Any, tuple[Field, ...]], ...]] = (
    (RemoteLogSegmentMetadata, (_SEGMENT, *_BODY)),
    (RemoteLogSegmentMetadataUpdate, (_SEGMENT, _BROKER, EVENT_TIMESTAMP, _CUSTOM_METADATA, _STATE)),
    (
        RemotePartitionDeleteMetadata,
        (_PARTITION, _BROKER, EVENT_TIMESTAMP, _state_field(RemotePartitionDeleteState)),
    ),
    (RemoteLogSegmentMetadataSnapshot, (SEGMENT_ID, *_BODY)),
)
