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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

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

State = TypeVar("State", RemoteLogSegmentState, RemotePartitionDeleteState)


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadataSnapshot:
    """One segment as a snapshot of a metadata partition keeps it: the partition is known from elsewhere."""

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
        """The same as a segment of this partition. Raises ValueError as RemoteLogSegmentMetadata does."""
        return RemoteLogSegmentMetadata(
            remote_log_segment_id=RemoteLogSegmentId(partition, self.segment_id),
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            max_timestamp_ms=self.max_timestamp_ms,
            broker_id=self.broker_id,
            event_timestamp_ms=self.event_timestamp_ms,
            segment_size_in_bytes=self.segment_size_in_bytes,
            segment_leader_epochs=self.segment_leader_epochs,
            custom_metadata=self.custom_metadata,
            state=self.state,
            txn_idx_empty=self.txn_idx_empty,
        )


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
    if key not in _DECODERS:
        raise corrupt(f"unknown metadata record type {key}", "BAD_VERSION", at, found=key)
    at = reader.position
    version = _header_number(reader, "version")
    if version != VERSION:
        text = f"version {version} of metadata record type {key}, only {VERSION} is known"
        raise corrupt(text, "BAD_VERSION", at, expected=VERSION, found=version)
    try:
        record = _DECODERS[key](reader)
    except ValueError as cause:
        if isinstance(cause, CorruptRecordError):
            raise
        raise corrupt(str(cause), "BAD_ENTRY", reader.position) from cause
    reader.finish()
    return record


def encode_record(record: RemoteLogMetadataRecord) -> bytes:
    """The value of one record, byte for byte as Kafka 4.3 writes it."""
    writer = MessageWriter()
    writer.unsigned_varint(FRAME_VERSION)
    if isinstance(record, RemoteLogSegmentMetadata):
        _begin(writer, 0)
        _write_segment_id(writer, record.remote_log_segment_id)
        _write_segment_body(writer, record)
    elif isinstance(record, RemoteLogSegmentMetadataUpdate):
        _begin(writer, 1)
        _write_segment_id(writer, record.remote_log_segment_id)
        writer.number(4, record.broker_id)
        writer.number(8, record.event_timestamp_ms)
        writer.compact_bytes(record.custom_metadata)
        writer.number(1, record.state)
        writer.tagged_fields()
    elif isinstance(record, RemotePartitionDeleteMetadata):
        _begin(writer, 2)
        _write_partition(writer, record.topic_id_partition)
        writer.number(4, record.broker_id)
        writer.number(8, record.event_timestamp_ms)
        writer.number(1, record.state)
        writer.tagged_fields()
    else:
        _begin(writer, 3)
        writer.raw(record.segment_id.raw)
        _write_segment_body(writer, record)
    return writer.finish()


def _header_number(reader: MessageReader, what: str) -> int:
    at = reader.position
    number = reader.unsigned_varint(what)
    if number > _HEADER_NUMBER_MAX:
        raise corrupt(f"{what} {number} is above {_HEADER_NUMBER_MAX}", "BAD_VERSION", at, found=number)
    return number


def _begin(writer: MessageWriter, key: int) -> None:
    writer.unsigned_varint(key)
    writer.unsigned_varint(VERSION)


def _uuid(reader: MessageReader, what: str) -> Uuid:
    return Uuid(bytes(reader.take(16, what)))


def _state(reader: MessageReader, kind: type[State]) -> State:
    at = reader.position
    number = reader.number(1, "state")
    try:
        return kind(number)
    except ValueError as cause:
        raise corrupt(f"there is no state {number}", "BAD_ENTRY", at, found=number) from cause


def _read_partition(reader: MessageReader) -> TopicIdPartition:
    name = reader.compact_string("topic name")
    topic_id = _uuid(reader, "topic id")
    partition = reader.number(4, "partition")
    reader.tagged_fields()
    return TopicIdPartition(topic_id, name, partition)


def _write_partition(writer: MessageWriter, partition: TopicIdPartition) -> None:
    writer.compact_string(partition.topic)
    writer.raw(partition.topic_id.raw)
    writer.number(4, partition.partition)
    writer.tagged_fields()


def _read_segment_id(reader: MessageReader) -> RemoteLogSegmentId:
    partition = _read_partition(reader)
    segment_id = _uuid(reader, "segment id")
    reader.tagged_fields()
    return RemoteLogSegmentId(partition, segment_id)


def _write_segment_id(writer: MessageWriter, segment: RemoteLogSegmentId) -> None:
    _write_partition(writer, segment.topic_id_partition)
    writer.raw(segment.id.raw)
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


def _read_segment_body(reader: MessageReader, segment_id: Uuid) -> RemoteLogSegmentMetadataSnapshot:
    start_offset = reader.number(8, "start offset")
    end_offset = reader.number(8, "end offset")
    broker_id = reader.number(4, "broker id")
    max_timestamp_ms = reader.number(8, "max timestamp")
    event_timestamp_ms = reader.number(8, "event timestamp")
    epochs = _read_epochs(reader)
    size = reader.number(4, "segment size")
    custom_metadata = reader.compact_bytes("custom metadata")
    state = _state(reader, RemoteLogSegmentState)
    tags = reader.tagged_fields()
    flag = tags.get(_TXN_IDX_EMPTY_TAG)
    if flag is not None and len(flag) != 1:
        raise corrupt(f"tag {_TXN_IDX_EMPTY_TAG} has {len(flag)} bytes, expected 1", "BAD_SIZE", reader.position)
    return RemoteLogSegmentMetadataSnapshot(
        segment_id=segment_id,
        start_offset=start_offset,
        end_offset=end_offset,
        broker_id=broker_id,
        max_timestamp_ms=max_timestamp_ms,
        event_timestamp_ms=event_timestamp_ms,
        segment_leader_epochs=epochs,
        segment_size_in_bytes=size,
        custom_metadata=custom_metadata,
        state=state,
        txn_idx_empty=flag is not None and flag[0] != 0,
    )


def _write_segment_body(
    writer: MessageWriter, segment: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataSnapshot
) -> None:
    writer.number(8, segment.start_offset)
    writer.number(8, segment.end_offset)
    writer.number(4, segment.broker_id)
    writer.number(8, segment.max_timestamp_ms)
    writer.number(8, segment.event_timestamp_ms)
    writer.compact_count(len(segment.segment_leader_epochs))
    for epoch, start_offset in sorted(segment.segment_leader_epochs.items()):
        writer.number(4, epoch)
        writer.number(8, start_offset)
        writer.tagged_fields()
    writer.number(4, segment.segment_size_in_bytes)
    writer.compact_bytes(segment.custom_metadata)
    writer.number(1, segment.state)
    writer.tagged_fields({_TXN_IDX_EMPTY_TAG: b"\x01"} if segment.txn_idx_empty else None)


def _decode_segment(reader: MessageReader) -> RemoteLogSegmentMetadata:
    segment = _read_segment_id(reader)
    return _read_segment_body(reader, segment.id).of(segment.topic_id_partition)


def _decode_update(reader: MessageReader) -> RemoteLogSegmentMetadataUpdate:
    segment = _read_segment_id(reader)
    broker_id = reader.number(4, "broker id")
    event_timestamp_ms = reader.number(8, "event timestamp")
    custom_metadata = reader.compact_bytes("custom metadata")
    state = _state(reader, RemoteLogSegmentState)
    reader.tagged_fields()
    return RemoteLogSegmentMetadataUpdate(
        segment,
        event_timestamp_ms=event_timestamp_ms,
        custom_metadata=custom_metadata,
        state=state,
        broker_id=broker_id,
    )


def _decode_partition_delete(reader: MessageReader) -> RemotePartitionDeleteMetadata:
    partition = _read_partition(reader)
    broker_id = reader.number(4, "broker id")
    event_timestamp_ms = reader.number(8, "event timestamp")
    state = _state(reader, RemotePartitionDeleteState)
    reader.tagged_fields()
    return RemotePartitionDeleteMetadata(partition, state, event_timestamp_ms=event_timestamp_ms, broker_id=broker_id)


def _decode_snapshot(reader: MessageReader) -> RemoteLogSegmentMetadataSnapshot:
    return _read_segment_body(reader, _uuid(reader, "segment id"))


_DECODERS: Mapping[int, Callable[[MessageReader], RemoteLogMetadataRecord]] = {
    0: _decode_segment,
    1: _decode_update,
    2: _decode_partition_delete,
    3: _decode_snapshot,
}
