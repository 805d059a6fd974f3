"""The flat file of KIP-405: the segments of one partition, in the shape that the KIP's text designs and no Kafka wrote.

::

    uvarint magic = 0 | string topic | uuid topic id | varlong metadata offset | entries until the end
    entry: uvarint length of what follows | uvarint type | uvarint version = 0 | data
    type 0, a segment:          uuid | int64 start offset | int64 end offset | int32 leader epoch | int64 max timestamp
                                | int64 event timestamp | int32 count, each: int32 epoch, int64 start offset
                                | int32 size | int8 state
    type 1, the partition's removal: int32 leader epoch | int64 event timestamp | int8 state

A string is an int16 length and UTF-8. The text leaves open the string's form in the header, whether the offset is
zigzag-encoded, and magic: the forms here are those of its other records, zigzag, and 0.

The form has no place for the partition's number (its folder's name says it), custom metadata, the broker, and whether
the transaction index is empty.

Source: KIP-405, "Committed offsets file format", "Internal flat-file store format of remote log metadata".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from typing_extensions import Buffer

from tierlog.errors import CorruptIndexError, CorruptRecordError
from tierlog.log.formats.message_fields import MessageReader, MessageWriter
from tierlog.remote.api import (
    EpochMap,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.snapshots.snapshot_file import as_snapshot_faults

MAGIC: Final = 0
VERSION: Final = 0
#: The broker of a segment that was read from here: nobody.
NO_BROKER: Final = -1
_SEGMENT: Final = 0
_REMOVAL: Final = 1
_EPOCH_BYTES: Final = 12
_VARLONG_BYTES_MAX: Final = 10
_NAME_BYTES_MAX: Final = 32767


@dataclass(frozen=True, slots=True)
class KipSegment:
    """A segment, as far as the KIP's text has its fields.

    Attributes:
        leader_epoch: Of the leader that wrote the event.
    """

    segment_id: Uuid
    start_offset: int
    end_offset: int
    leader_epoch: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    segment_leader_epochs: EpochMap
    segment_size_in_bytes: int
    state: RemoteLogSegmentState

    def of(self, partition: TopicIdPartition) -> RemoteLogSegmentMetadata:
        """The same as a segment of this partition, with what the form has no place for left at its defaults.

        Raises:
            ValueError: as RemoteLogSegmentMetadata does.
        """
        return RemoteLogSegmentMetadata(
            remote_log_segment_id=RemoteLogSegmentId(partition, self.segment_id),
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            max_timestamp_ms=self.max_timestamp_ms,
            broker_id=NO_BROKER,
            event_timestamp_ms=self.event_timestamp_ms,
            segment_size_in_bytes=self.segment_size_in_bytes,
            segment_leader_epochs=self.segment_leader_epochs,
            state=self.state,
        )


@dataclass(frozen=True, slots=True)
class KipRemoval:
    """A state of the partition's removal."""

    leader_epoch: int
    event_timestamp_ms: int
    state: RemotePartitionDeleteState


@dataclass(frozen=True, slots=True)
class KipFlatFile:
    """The content of the file.

    Attributes:
        metadata_offset: Up to which the metadata partition's events are in here.
        entries: In the file's order.
    """

    topic: str
    topic_id: Uuid
    metadata_offset: int
    entries: tuple[KipSegment | KipRemoval, ...]


def kip_segment(segment: RemoteLogSegmentMetadata) -> KipSegment:
    """A segment in the KIP's fields; the leader epoch is the last one of the segment. The broker is left out.

    Raises:
        ValueError: it has custom metadata, without which its storage may not find it again, or a transaction index that
            is known to be empty.
    """
    what = f"segment {segment.remote_log_segment_id}"
    if segment.custom_metadata is not None:
        raise ValueError(f"{what} has custom metadata, for which the KIP's flat file has no field")
    if segment.txn_idx_empty:
        raise ValueError(f"{what} says that its transaction index is empty, for which the KIP's flat file has no field")
    epochs = EpochMap(segment.segment_leader_epochs)
    return KipSegment(
        segment_id=segment.remote_log_segment_id.id,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        leader_epoch=max(epochs),
        max_timestamp_ms=segment.max_timestamp_ms,
        event_timestamp_ms=segment.event_timestamp_ms,
        segment_leader_epochs=epochs,
        segment_size_in_bytes=segment.segment_size_in_bytes,
        state=segment.state,
    )


def parse_kip_flat_file(data: Buffer) -> KipFlatFile:
    """Read the file.

    Raises:
        CorruptIndexError: another magic, an unknown type or version, a length that its bytes do not hold, or a value
            that cannot be.
    """
    reader = MessageReader(data)
    with as_snapshot_faults():
        magic = reader.unsigned_varint("magic")
        if magic != MAGIC:
            text = f"magic {magic}, only {MAGIC} is known"
            raise CorruptIndexError(text, fault="BAD_MAGIC", position=0, expected=MAGIC, found=magic)
        topic = reader.string("topic name")
        _require(bool(topic), "an empty topic name", 1)
        topic_id = Uuid(bytes(reader.take(16, "topic id")))
        at = reader.position
        metadata_offset = _read_varlong(reader)
        _require(metadata_offset >= 0, f"metadata offset {metadata_offset}", at)
        entries = []
        while reader.left:
            entries.append(_read_entry(reader))
    return KipFlatFile(topic, topic_id, metadata_offset, tuple(entries))


def encode_kip_flat_file(file: KipFlatFile) -> bytes:
    """The bytes of the file.

    Raises:
        ValueError: a number out of range, or a topic name that is too long.
    """
    name = file.topic.encode("utf-8")
    if not 0 < len(name) <= _NAME_BYTES_MAX or not 0 <= file.metadata_offset < 2**63:
        raise ValueError(f"topic {file.topic!r:.80}, metadata offset {file.metadata_offset}: no such file can be")
    writer = MessageWriter()
    writer.unsigned_varint(MAGIC)
    writer.number(2, len(name))
    writer.raw(name)
    writer.raw(file.topic_id.raw)
    writer.unsigned_varint(file.metadata_offset << 1)  # zigzag of what is not negative
    for entry in file.entries:
        body = _entry_bytes(entry)
        writer.unsigned_varint(len(body))
        writer.raw(body)
    return writer.finish()


def _entry_bytes(entry: KipSegment | KipRemoval) -> bytes:
    writer = MessageWriter()
    writer.unsigned_varint(_SEGMENT if isinstance(entry, KipSegment) else _REMOVAL)
    writer.unsigned_varint(VERSION)
    if isinstance(entry, KipSegment):
        writer.raw(entry.segment_id.raw)
        writer.number(8, entry.start_offset)
        writer.number(8, entry.end_offset)
        writer.number(4, entry.leader_epoch)
        writer.number(8, entry.max_timestamp_ms)
        writer.number(8, entry.event_timestamp_ms)
        writer.number(4, len(entry.segment_leader_epochs))
        for epoch, start_offset in entry.segment_leader_epochs.items():
            writer.number(4, epoch)
            writer.number(8, start_offset)
        writer.number(4, entry.segment_size_in_bytes)
    else:
        writer.number(4, entry.leader_epoch)
        writer.number(8, entry.event_timestamp_ms)
    writer.number(1, entry.state)
    return writer.finish()


def _read_entry(reader: MessageReader) -> KipSegment | KipRemoval:
    size = reader.unsigned_varint("length of an entry")
    start = reader.position
    body = MessageReader(reader.take(size, "an entry"))
    with as_snapshot_faults(start):
        kind = body.unsigned_varint("type")
        if kind not in (_SEGMENT, _REMOVAL):
            raise CorruptRecordError(f"unknown entry type {kind}", fault="BAD_VERSION", position=0, found=kind)
        at = body.position
        version = body.unsigned_varint("version")
        if version != VERSION:
            text = f"version {version} of entry type {kind}, only {VERSION} is known"
            raise CorruptRecordError(text, fault="BAD_VERSION", position=at, expected=VERSION, found=version)
        entry = _read_segment(body) if kind == _SEGMENT else _read_removal(body)
        body.finish()
    return entry


def _read_segment(body: MessageReader) -> KipSegment:
    segment_id = Uuid(bytes(body.take(16, "segment id")))
    start_offset = body.number(8, "start offset")
    end_offset = body.number(8, "end offset")
    leader_epoch = body.number(4, "leader epoch")
    max_timestamp_ms = body.number(8, "max timestamp")
    event_timestamp_ms = body.number(8, "event timestamp")
    count = body.count("leader epochs", _EPOCH_BYTES)
    if not count:
        raise CorruptRecordError("a segment without leader epochs", fault="BAD_COUNT", position=body.position - 4)
    epochs = {}
    for _ in range(count):
        epoch = body.number(4, "epoch")
        epochs[epoch] = body.number(8, "start offset of an epoch")
    size = body.number(4, "segment size")
    state = RemoteLogSegmentState(body.number(1, "state"))
    if not 0 <= start_offset <= end_offset or size < 0:
        raise ValueError("offsets or a size that no segment has")
    return KipSegment(
        segment_id=segment_id,
        start_offset=start_offset,
        end_offset=end_offset,
        leader_epoch=leader_epoch,
        max_timestamp_ms=max_timestamp_ms,
        event_timestamp_ms=event_timestamp_ms,
        segment_leader_epochs=EpochMap(epochs),
        segment_size_in_bytes=size,
        state=state,
    )


def _read_removal(body: MessageReader) -> KipRemoval:
    leader_epoch = body.number(4, "leader epoch")
    event_timestamp_ms = body.number(8, "event timestamp")
    return KipRemoval(leader_epoch, event_timestamp_ms, RemotePartitionDeleteState(body.number(1, "state")))


def _read_varlong(reader: MessageReader) -> int:
    """A zigzag-encoded varint of at most ten bytes."""
    start, value = reader.position, 0
    for place in range(_VARLONG_BYTES_MAX):
        byte = reader.take(1, "metadata offset")[0]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            value &= 2**64 - 1
            return (value >> 1) ^ -(value & 1)
    raise CorruptRecordError("metadata offset: a varint of more than ten bytes", fault="BAD_VARINT", position=start)


def _require(holds: bool, text: str, position: int) -> None:
    if not holds:
        raise CorruptIndexError(text, fault="BAD_ENTRY", position=position)
