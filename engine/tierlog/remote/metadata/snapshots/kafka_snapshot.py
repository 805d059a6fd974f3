"""``remote_log_snapshot``: the segments of one partition, as Kafka 3.x stored them in the partition's folder.

::

    int16 version = 0 | int32 metadata partition | int64 its offset up to which this is complete | int32 entries
    | each: int32 length, a record of api key 3

An empty file is no snapshot. Kafka writes for each leader epoch its unreferenced segments, then the others, so that a
segment of several epochs comes several times; readers apply them in that order.

The form has no place for the partition (its folder's name says it), for what deleted segments' epochs had reached, and
for partition removals. It is that of Kafka 3.6, which writes custom metadata; earlier ones' records have another shape.

Source: Kafka 3.6 RemoteLogMetadataSnapshotFile, FileBasedRemoteLogMetadataCache.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from typing_extensions import Buffer

from tierlog.errors import CorruptIndexError
from tierlog.log.formats.message_fields import MessageReader, MessageWriter
from tierlog.remote.api import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierlog.remote.metadata.record_serde import RemoteLogSegmentMetadataSnapshot, decode_record, encode_record
from tierlog.remote.metadata.snapshots.snapshot_file import as_snapshot_faults

FILE_NAME: Final = "remote_log_snapshot"
VERSION: Final = 0
HEADER_BYTES: Final = 18
_ENTRY_BYTES_MIN: Final = 4


@dataclass(frozen=True, slots=True)
class KafkaSnapshot:
    """The content of the file.

    Attributes:
        metadata_partition: That has the partition's events.
        offset: Of the last event in it that is in here.
        entries: In the file's order; a segment may come several times.
    """

    metadata_partition: int
    offset: int
    entries: tuple[RemoteLogSegmentMetadataSnapshot, ...]

    def segments(self) -> list[RemoteLogSegmentMetadataSnapshot]:
        """Return each segment once: its last entry, in the order of the first ones."""
        return list({entry.segment_id: entry for entry in self.entries}.values())


def parse_kafka_snapshot(data: Buffer) -> KafkaSnapshot | None:
    """Read the file; None where it is empty.

    Raises:
        CorruptIndexError: another version, a length or a count that the bytes do not hold, a record that is none of a
            snapshot, one in state DELETE_SEGMENT_FINISHED (which Kafka refuses too), or bytes left over.
    """
    reader = MessageReader(data)
    if not reader.left:
        return None
    with as_snapshot_faults():
        version = reader.number(2, "version")
        if version != VERSION:
            text = f"snapshot version {version}, only {VERSION} is known"
            raise CorruptIndexError(text, fault="BAD_VERSION", position=0, expected=VERSION, found=version)
        metadata_partition = reader.number(4, "metadata partition")
        offset = reader.number(8, "metadata partition offset")
        _require(metadata_partition >= 0, "a negative metadata partition", 2)
        _require(offset >= 0, "a negative offset", 6)
        at = reader.position
        count = reader.count("entries", _ENTRY_BYTES_MIN)
        if count is None:
            raise CorruptIndexError("a negative number of entries", fault="BAD_COUNT", position=at)
        entries = tuple(_read_entry(reader) for _ in range(count))
        reader.finish()
    return KafkaSnapshot(metadata_partition, offset, entries)


def encode_kafka_snapshot(snapshot: KafkaSnapshot) -> bytes:
    """Encode the file.

    Raises:
        ValueError: a segment in state DELETE_SEGMENT_FINISHED, which no reader would take, or a number out of range.
    """
    if snapshot.metadata_partition < 0 or snapshot.offset < 0:
        raise ValueError(f"metadata partition {snapshot.metadata_partition}, offset {snapshot.offset}")
    writer = MessageWriter()
    writer.number(2, VERSION)
    writer.number(4, snapshot.metadata_partition)
    writer.number(8, snapshot.offset)
    writer.number(4, len(snapshot.entries))
    for entry in snapshot.entries:
        if entry.state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
            raise ValueError(f"segment {entry.segment_id} is deleted: no snapshot holds it")
        record = encode_record(entry)
        writer.number(4, len(record))
        writer.raw(record)
    return writer.finish()


def in_reading_order(segments: Iterable[RemoteLogSegmentMetadata]) -> Sequence[RemoteLogSegmentMetadata]:
    """Sort segments so that Kafka, which applies them one by one, finds as many as it can: those that are not readable
    first, then the others by their last offset, so that a segment that covers others comes behind them.
    """
    readable = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    return sorted(segments, key=lambda each: (each.state is readable, each.end_offset, -each.start_offset))


def _read_entry(reader: MessageReader) -> RemoteLogSegmentMetadataSnapshot:
    at = reader.position
    size = reader.number(4, "length of an entry")
    _require(size >= 0, f"an entry of {size} bytes", at)
    start = reader.position
    data = reader.take(size, "an entry")
    with as_snapshot_faults(start):
        record = decode_record(data)
        if not isinstance(record, RemoteLogSegmentMetadataSnapshot):
            raise CorruptIndexError("a record that belongs into no snapshot", fault="BAD_VERSION", position=start)
        if record.state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
            raise CorruptIndexError(f"segment {record.segment_id} is deleted", fault="BAD_ENTRY", position=start)
        _check_values(record, start)
    return record


def _check_values(record: RemoteLogSegmentMetadataSnapshot, position: int) -> None:
    _require(0 <= record.start_offset <= record.end_offset, "offsets that no segment has", position)
    _require(bool(record.segment_leader_epochs), "a segment without leader epochs", position)
    _require(record.segment_size_in_bytes >= 0, "a negative size", position)


def _require(holds: bool, text: str, position: int) -> None:
    if not holds:
        raise CorruptIndexError(text, fault="BAD_ENTRY", position=position)
