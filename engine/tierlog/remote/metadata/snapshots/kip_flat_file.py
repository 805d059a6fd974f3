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

from dataclasses import dataclass, replace
from typing import Final

from typing_extensions import Buffer

from tierlog.errors import CorruptIndexError, CorruptRecordError
from tierlog.log.formats.message_fields import MessageReader, MessageWriter
from tierlog.remote.api import (
    EpochMap,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    Uuid,
)
from tierlog.remote.metadata.record_serde import (
    EVENT_TIMESTAMP,
    MAX_TIMESTAMP,
    OFFSETS,
    SEGMENT_ID,
    SIZE,
    Field,
    RemoteLogSegmentMetadataSnapshot,
    number_field,
    read_fields,
    write_fields,
)
from tierlog.remote.metadata.snapshots.snapshot_file import as_snapshot_faults

MAGIC: Final = 0
VERSION: Final = 0
#: The broker id of a segment that was read from here: none.
NO_BROKER: Final = -1
_SEGMENT: Final = 0
_REMOVAL: Final = 1
_EPOCH_BYTES: Final = 12
_VARLONG_BYTES_MAX: Final = 10
_NAME_BYTES_MAX: Final = 32767


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
    entries: tuple[RemoteLogSegmentMetadataSnapshot | KipRemoval, ...]


def kip_segment(segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadataSnapshot:
    """Return a segment as far as the KIP's text has its fields: without its broker.

    Raises:
        ValueError: it has custom metadata, without which its storage may not find it again, or a transaction index that
            is known to be empty.
    """
    what = f"segment {segment.remote_log_segment_id}"
    if segment.custom_metadata is not None:
        raise ValueError(f"{what} has custom metadata, for which the KIP's flat file has no field")
    if segment.txn_idx_empty:
        raise ValueError(f"{what} says that its transaction index is empty, for which the KIP's flat file has no field")
    return replace(RemoteLogSegmentMetadataSnapshot.from_metadata(segment), broker_id=NO_BROKER)


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
    """Encode the file.

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
    writer.raw(file.topic_id)
    writer.unsigned_varint(file.metadata_offset << 1)  # zigzag of a number >= 0
    for entry in file.entries:
        body = _entry_bytes(entry)
        writer.unsigned_varint(len(body))
        writer.raw(body)
    return writer.finish()


def _entry_bytes(entry: RemoteLogSegmentMetadataSnapshot | KipRemoval) -> bytes:
    writer = MessageWriter()
    writer.unsigned_varint(_SEGMENT if isinstance(entry, RemoteLogSegmentMetadataSnapshot) else _REMOVAL)
    writer.unsigned_varint(VERSION)
    if isinstance(entry, RemoteLogSegmentMetadataSnapshot):
        write_fields(writer, _BEFORE_LEADER_EPOCH, entry)
        writer.number(4, max(entry.segment_leader_epochs))
        write_fields(writer, _BEHIND_LEADER_EPOCH, entry)
    else:
        write_fields(writer, _OF_REMOVAL, entry)
    return writer.finish()


def _read_entry(reader: MessageReader) -> RemoteLogSegmentMetadataSnapshot | KipRemoval:
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
        entry = _read_segment(body) if kind == _SEGMENT else KipRemoval(**read_fields(body, _OF_REMOVAL))
        body.finish()
    return entry


def _read_segment(body: MessageReader) -> RemoteLogSegmentMetadataSnapshot:
    values = read_fields(body, _BEFORE_LEADER_EPOCH)
    body.number(4, "leader epoch")  # of the leader that wrote it, for which Kafka's values have no field
    values |= read_fields(body, _BEHIND_LEADER_EPOCH)
    if not 0 <= values["start_offset"] <= values["end_offset"] or values["segment_size_in_bytes"] < 0:
        raise ValueError("offsets or a size that no segment has")
    return RemoteLogSegmentMetadataSnapshot(**values, broker_id=NO_BROKER, custom_metadata=None)


def _read_epochs(body: MessageReader) -> EpochMap:
    count = body.count("leader epochs", _EPOCH_BYTES)
    if not count:
        raise CorruptRecordError("a segment without leader epochs", fault="BAD_COUNT", position=body.position - 4)
    pairs = ((body.number(4, "epoch"), body.number(8, "start offset of an epoch")) for _ in range(count))
    return EpochMap(dict(pairs))


def _write_epochs(writer: MessageWriter, epochs: EpochMap) -> None:
    writer.number(4, len(epochs))
    for epoch, start_offset in epochs.items():
        writer.number(4, epoch)
        writer.number(8, start_offset)


def _state_field(kind: type[RemoteLogSegmentState | RemotePartitionDeleteState]) -> Field:
    return Field("state", lambda body: kind(body.number(1, "state")), lambda writer, state: writer.number(1, state))


_BEFORE_LEADER_EPOCH: Final = (SEGMENT_ID, *OFFSETS)
_BEHIND_LEADER_EPOCH: Final = (
    MAX_TIMESTAMP,
    EVENT_TIMESTAMP,
    Field("segment_leader_epochs", _read_epochs, _write_epochs),
    SIZE,
    _state_field(RemoteLogSegmentState),
)
_OF_REMOVAL: Final = (
    number_field("leader_epoch", 4, "leader epoch"),
    EVENT_TIMESTAMP,
    _state_field(RemotePartitionDeleteState),
)


def _read_varlong(reader: MessageReader) -> int:
    """Read a zigzag-encoded varint of at most ten bytes."""
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
