"""The metadata records, both ways, against the bytes that Kafka 4.3 made."""

from __future__ import annotations

import dataclasses
import pathlib
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.metadata_records import FINISHED, PARTITION, SEGMENT, SNAPSHOT, STARTED
from tierlog.errors import CorruptRecordError
from tierlog.records.decoding import decode
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.record_serde import RemoteLogMetadataRecord, decode_record, encode_record

TOPIC_HEX = "076f72646572730123456789abcdef11223344556677880000000300"
SEGMENT_HEX = TOPIC_HEX + "0a0b0c0d0e0f1011202122232425262700"
OFFSETS_HEX = "0000000000000000000000000000006400000001"
TIMES_HEX = "0000018bcfe568000000018bcfe5687b"
EPOCHS_HEX = "0400000000000000000000000000000000010000000000000014000000000200000000000000500000000400"
VECTORS: dict[str, tuple[str, RemoteLogMetadataRecord]] = {
    "A-started": ("010000" + SEGMENT_HEX + OFFSETS_HEX + TIMES_HEX + EPOCHS_HEX + "000000", STARTED),
    "B-finished": ("010000" + SEGMENT_HEX + OFFSETS_HEX + TIMES_HEX + EPOCHS_HEX + "040102030101000101", FINISHED),
    "C-empty-custom-metadata": (
        "010000" + SEGMENT_HEX + OFFSETS_HEX + "ffffffffffffffff0000018bcfe5687b" + EPOCHS_HEX + "010000",
        dataclasses.replace(STARTED, max_timestamp_ms=-1, custom_metadata=b""),
    ),
    "D-update": (
        "010100" + SEGMENT_HEX + "000000010000018bcfe569c8000100",
        RemoteLogSegmentMetadataUpdate(
            SEGMENT,
            event_timestamp_ms=1700000000456,
            custom_metadata=None,
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            broker_id=1,
        ),
    ),
    "E-delete": (
        "010100" + SEGMENT_HEX + "000000010000018bcfe569c803dead0200",
        RemoteLogSegmentMetadataUpdate(
            SEGMENT,
            event_timestamp_ms=1700000000456,
            custom_metadata=b"\xde\xad",
            state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
            broker_id=1,
        ),
    ),
    "F-partition-delete": (
        "010200" + TOPIC_HEX + "000000010000018bcfe56b150000",
        RemotePartitionDeleteMetadata(
            PARTITION, RemotePartitionDeleteState.DELETE_PARTITION_MARKED, event_timestamp_ms=1700000000789, broker_id=1
        ),
    ),
    "G-snapshot": (
        "0103000a0b0c0d0e0f10112021222324252627" + OFFSETS_HEX + TIMES_HEX + EPOCHS_HEX + "040102030101000101",
        SNAPSHOT,
    ),
}
SIZES = {"A-started": 131, "B-finished": 137, "D-update": 63, "F-partition-delete": 45, "G-snapshot": 108}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_read_and_write_byte_for_byte(name: str) -> None:
    """Else a broker cannot read what we write to the metadata topic, or we misread what it wrote."""
    data, record = bytes.fromhex(VECTORS[name][0]), VECTORS[name][1]
    assert len(data) == SIZES.get(name, len(data))
    assert decode_record(data) == record
    assert encode_record(record) == data


D = bytes.fromhex(VECTORS["D-update"][0])
A = bytes.fromhex(VECTORS["A-started"][0])


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "TRUNCATED"),
        (b"\x01", "TRUNCATED"),
        (b"\x00" + D[1:], "BAD_VERSION"),
        (b"\x02" + D[1:], "BAD_VERSION"),
        (b"\x01\x09\x00", "BAD_VERSION"),
        (b"\x01\x00\x01", "BAD_VERSION"),
        (b"\x80\x80\x02" + D[1:], "BAD_VERSION"),
        (b"\xff\xff\xff\xff\xff\x0f", "BAD_VARINT"),
        (D + b"\x00", "TRAILING_BYTES"),
        (D[:-1], "TRUNCATED"),
        (D[:-2] + b"\x07\x00", "BAD_ENTRY"),
        (D[:3] + b"\x00" + D[4:], "BAD_FIELD_LENGTH"),
        (D[:3] + b"\xff\xff\xff\xff\x0f" + D[4:], "TRUNCATED"),
        (D[:4] + b"\xff" + D[5:], "BAD_FIELD_LENGTH"),
        (A.replace(bytes.fromhex("0400000000"), bytes.fromhex("ffffffff0f00000000"), 1), "BAD_COUNT"),
        (A.replace(bytes.fromhex("0400000000"), bytes.fromhex("0000000000"), 1), "BAD_COUNT"),
    ],
)
def test_refusals(data: bytes, fault: str) -> None:
    """Else a damaged metadata record becomes a wrong segment list, an endless allocation or a traceback."""
    with pytest.raises(CorruptRecordError) as caught:
        decode_record(data)
    assert caught.value.fault == fault
    assert 0 <= caught.value.position <= len(data)


def numbers_that_lie() -> Iterator[tuple[str, bytes]]:
    """Each record with each of its lengths and counts replaced by the largest that its field can hold, and by ones
    just above what is left.
    """
    epochs_at = A.index(bytes.fromhex("0400000000"))
    custom_at = len(A) - 3
    places = [("topic", D, 3), ("topic tags", D, 30), ("custom metadata", D, len(D) - 3), ("tags", D, len(D) - 1)]
    places += [("epochs", A, epochs_at), ("custom metadata", A, custom_at), ("tags", A, len(A) - 1)]
    for what, data, at in places:
        for size in (len(data) - at + 2, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1):
            yield what, data[:at] + uvarint(size) + data[at + 1 :]


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def test_no_declared_size_makes_anything_before_it_is_checked() -> None:
    """Else 60 bytes in the metadata topic take the memory of whoever reads them, broker or tool."""
    tracemalloc.start()
    try:
        for what, data in numbers_that_lie():
            with pytest.raises(CorruptRecordError) as caught:
                decode_record(data)
            assert caught.value.fault in {"TRUNCATED", "BAD_COUNT"}, what
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


BAD_RECORDS = {
    "01-unknown-api-key": ("BAD_VERSION", "frame version 99"),
    "02-unknown-version": ("BAD_VERSION", "unknown metadata record type 9"),
    "03-truncated": ("TRUNCATED", "takes 8 bytes, 3 are left"),
    "04-empty-value": ("TRUNCATED", "an empty value is no metadata record"),
    "06-trailing": ("TRAILING_BYTES", "2 bytes left over"),
    "07-string-length-lies": ("TRUNCATED", "topic name takes 13182 bytes, 104 are left"),
}


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_bad_records_are_told_apart(data: pathlib.Path, name: str) -> None:
    """Else whoever finds a broken record in the topic is not told what is wrong with it, and where."""
    fault, text = BAD_RECORDS[name]
    value = decode((data / f"bad/rlmm/{name}.log").read_bytes()).column("value")[0].as_py()
    with pytest.raises(CorruptRecordError, match=text) as caught:
        decode_record(value)
    assert caught.value.fault == fault


def test_rules_of_the_values_are_faults_of_the_record() -> None:
    """Else a segment that ends before it begins reaches the planner as a bare ValueError."""
    data = bytes.fromhex(VECTORS["A-started"][0])
    swapped = data.replace(
        bytes.fromhex("00000000000000000000000000000064"), bytes.fromhex("00000000000000640000000000000000")
    )
    assert swapped != data
    with pytest.raises(CorruptRecordError, match="end offset 0 is below start offset 100"):
        decode_record(swapped)


def test_unknown_tags_are_skipped_and_a_false_flag_is_read() -> None:
    """Else a record of a newer broker, or one that writes the default out, cannot be read."""
    data = bytes.fromhex(VECTORS["A-started"][0])
    assert decode_record(data[:-1] + bytes.fromhex("0200010007020102")) == STARTED
    with pytest.raises(CorruptRecordError):
        decode_record(data[:-1] + bytes.fromhex("0100020101"))


@given(st.data())
def test_cut_and_flipped_records_fail_cleanly(data: st.DataObject) -> None:
    """Else hostile bytes in the metadata topic end in something that callers do not catch."""
    name = data.draw(st.sampled_from(sorted(VECTORS)))
    raw = bytearray(bytes.fromhex(VECTORS[name][0]))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    del raw[data.draw(st.integers(0, len(raw))) :]
    try:
        record = decode_record(raw)
    except CorruptRecordError:
        return
    assert decode_record(encode_record(record)) == record


identifiers = st.binary(min_size=16, max_size=16).map(Uuid)
partitions = st.builds(
    TopicIdPartition,
    identifiers,
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=300),
    st.integers(0, 2**31 - 1),
)
updates = st.builds(
    RemoteLogSegmentMetadataUpdate,
    st.builds(RemoteLogSegmentId, partitions, identifiers),
    event_timestamp_ms=st.integers(-(2**63), 2**63 - 1),
    custom_metadata=st.none() | st.binary(max_size=300),
    state=st.sampled_from(RemoteLogSegmentState),
    broker_id=st.integers(-(2**31), 2**31 - 1),
)


@given(updates)
def test_any_update_survives_the_round_trip(update: RemoteLogSegmentMetadataUpdate) -> None:
    """Else a length above 127, an empty custom metadata or a non-ASCII topic is stored as something else."""
    assert decode_record(encode_record(update)) == update
