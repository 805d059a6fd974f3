"""Kafka 3.x's ``remote_log_snapshot``: what a broker of that time reads, and what it left."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.remote.metadata.snapshots.samples import PARTITION, SEGMENT, SEGMENT_ID, segments, survives_damage
from tierlog.errors import CorruptIndexError
from tierlog.remote.api import RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierlog.remote.metadata.record_serde import RemoteLogSegmentMetadataSnapshot, encode_record
from tierlog.remote.metadata.snapshots.kafka_snapshot import (
    HEADER_BYTES,
    KafkaSnapshot,
    encode_kafka_snapshot,
    in_reading_order,
    parse_kafka_snapshot,
)

kafka_entry = RemoteLogSegmentMetadataSnapshot.from_metadata
#: Written by Kafka: metadata partition 7, offset 42, one entry.
VECTOR = bytes.fromhex(
    "000000000007000000000000002a000000010000006c0103000a0b0c0d0e0f10112021222324252627000000000000000000000000000000"
    "64000000010000018bcfe568000000018bcfe5687b0400000000000000000000000000000000010000000000000014000000000200000000"
    "000000500000000400040102030101000101"
)


def test_the_vector_both_ways() -> None:
    """Otherwise a cluster of Kafka 3.x starts without its segments."""
    snapshot = parse_kafka_snapshot(VECTOR)
    assert snapshot is not None
    assert (snapshot.metadata_partition, snapshot.offset) == (7, 42)
    assert [entry.of(PARTITION) for entry in snapshot.entries] == [SEGMENT]
    assert encode_kafka_snapshot(snapshot) == VECTOR
    assert encode_kafka_snapshot(KafkaSnapshot(7, 42, (kafka_entry(SEGMENT),))) == VECTOR


@given(st.lists(segments(), max_size=5), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
def test_what_is_written_is_read(held: list[RemoteLogSegmentMetadata], partition: int, offset: int) -> None:
    """Every field of any segment."""
    snapshot = parse_kafka_snapshot(
        encode_kafka_snapshot(KafkaSnapshot(partition, offset, tuple(map(kafka_entry, held))))
    )
    assert snapshot is not None
    assert (snapshot.metadata_partition, snapshot.offset) == (partition, offset)
    assert [entry.of(PARTITION) for entry in snapshot.entries] == held


def test_an_empty_file_is_no_snapshot() -> None:
    """Kafka makes the file before it first writes it."""
    assert parse_kafka_snapshot(b"") is None


def test_a_segment_of_several_epochs_comes_once() -> None:
    """Kafka writes it once for each of its epochs."""
    entry = kafka_entry(SEGMENT)
    later = dataclasses.replace(entry, state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
    other = dataclasses.replace(entry, segment_id=Uuid(bytes(16)))
    assert KafkaSnapshot(0, 0, (entry, other, later, other)).segments() == [later, other]


def test_damage_is_told() -> None:
    """No prefix of the file is another state of the partition; a flip of a bit is an error, or in a number's bits."""
    two = encode_kafka_snapshot(
        KafkaSnapshot(
            7, 42, (kafka_entry(SEGMENT), dataclasses.replace(kafka_entry(SEGMENT), segment_id=Uuid(bytes(16))))
        )
    )
    prefixes, _ = survives_damage(two, parse_kafka_snapshot)
    assert prefixes == 1  # the empty one


@pytest.mark.parametrize(
    ("data", "fault", "position"),
    [
        (b"\x00\x01" + VECTOR[2:], "BAD_VERSION", 0),
        (b"\x00\x00\xff" + VECTOR[3:], "BAD_ENTRY", 2),
        (VECTOR[:6] + b"\xff" + VECTOR[7:], "BAD_ENTRY", 6),
        (VECTOR[:14] + b"\xff" + VECTOR[15:], "BAD_COUNT", 14),
        (VECTOR[:14] + b"\x7f" + VECTOR[15:], "BAD_COUNT", 14),
        (VECTOR[:17] + b"\x02" + VECTOR[18:], "TRUNCATED", len(VECTOR)),
        (VECTOR[:18] + b"\xff" + VECTOR[19:], "BAD_ENTRY", 18),
        (VECTOR[:18] + b"\x7f" + VECTOR[19:], "TRUNCATED", 22),
        (VECTOR + b"\x00", "TRAILING_BYTES", len(VECTOR)),
    ],
)
def test_what_cannot_be_is_refused(data: bytes, fault: str, position: int) -> None:
    """Each with its own fault and place."""
    with pytest.raises(CorruptIndexError) as error:
        parse_kafka_snapshot(data)
    assert (error.value.fault, error.value.position) == (fault, position)


def test_a_deleted_segment_is_refused_both_ways() -> None:
    """Kafka refuses it when it reads the file."""
    deleted = dataclasses.replace(kafka_entry(SEGMENT), state=RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
    with pytest.raises(ValueError, match="is deleted"):
        encode_kafka_snapshot(KafkaSnapshot(0, 0, (deleted,)))
    record = encode_record(deleted)
    with pytest.raises(CorruptIndexError, match="is deleted"):
        parse_kafka_snapshot(VECTOR[:HEADER_BYTES] + len(record).to_bytes(4, "big") + record)


def test_another_record_is_refused() -> None:
    """A record of the topic holds its partition, which may be another one."""
    record = encode_record(SEGMENT)
    with pytest.raises(CorruptIndexError, match="belongs into no snapshot"):
        parse_kafka_snapshot(VECTOR[:HEADER_BYTES] + len(record).to_bytes(4, "big") + record)


def test_what_covers_comes_behind_what_it_covers() -> None:
    """Kafka's cache keeps, of two that overlap, the one that it applies last; and unreadable ones come first."""

    def of(number: int, start: int, end: int, state: RemoteLogSegmentState) -> RemoteLogSegmentMetadata:
        return dataclasses.replace(
            SEGMENT,
            remote_log_segment_id=RemoteLogSegmentId(PARTITION, Uuid(bytes([number] * 16))),
            start_offset=start,
            end_offset=end,
            segment_leader_epochs={0: start},
            state=state,
        )

    finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    wide = of(1, 5, 100, finished)
    narrow, started = of(2, 10, 90, finished), of(3, 101, 200, RemoteLogSegmentState.COPY_SEGMENT_STARTED)
    same_end = of(4, 50, 100, finished)
    assert list(in_reading_order([wide, same_end, started, narrow])) == [started, narrow, same_end, wide]
    assert SEGMENT.remote_log_segment_id.id == SEGMENT_ID
