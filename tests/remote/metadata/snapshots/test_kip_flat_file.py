"""The flat file of the KIP's text."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.remote.metadata.snapshots.samples import PARTITION, SEGMENT, TOPIC_ID, segments, survives_damage
from tierlog.errors import CorruptIndexError
from tierlog.remote.api import RemoteLogSegmentMetadata, RemotePartitionDeleteState
from tierlog.remote.metadata.record_serde import RemoteLogSegmentMetadataSnapshot
from tierlog.remote.metadata.snapshots.kip_flat_file import (
    NO_BROKER,
    KipFlatFile,
    KipRemoval,
    encode_kip_flat_file,
    kip_segment,
    parse_kip_flat_file,
)

#: Metadata offset 42, one finished segment, leader epoch 2.
VECTOR = bytes.fromhex(
    "0000066f72646572730123456789abcdef1122334455667788546300000a0b0c0d0e0f1011202122232425262700000000000000000000000000"
    "000064000000020000018bcfe568000000018bcfe5687b0000000300000000000000000000000000000001000000000000001400000002000000"
    "00000000500000040001"
)
PLAIN = dataclasses.replace(SEGMENT, custom_metadata=None, txn_idx_empty=False)
REMOVAL = KipRemoval(2, 1700000000789, RemotePartitionDeleteState.DELETE_PARTITION_MARKED)


def test_the_vector_both_ways() -> None:
    """The only bytes of this form that there are."""
    file = parse_kip_flat_file(VECTOR)
    assert file == KipFlatFile("orders", TOPIC_ID, 42, (kip_segment(PLAIN),))
    assert encode_kip_flat_file(file) == VECTOR
    assert isinstance(file.entries[0], RemoteLogSegmentMetadataSnapshot)
    assert file.entries[0].of(PARTITION) == dataclasses.replace(PLAIN, broker_id=NO_BROKER)


_REMOVALS = st.builds(
    KipRemoval,
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(RemotePartitionDeleteState),
)


@given(
    st.text(min_size=1, max_size=20),
    st.integers(0, 2**63 - 1),
    st.lists(segments(plain=True).map(kip_segment) | _REMOVALS, max_size=4),
)
def test_what_is_written_is_read(
    topic: str, offset: int, entries: list[RemoteLogSegmentMetadataSnapshot | KipRemoval]
) -> None:
    """Every field, whatever its value."""
    file = KipFlatFile(topic, TOPIC_ID, offset, tuple(entries))
    assert parse_kip_flat_file(encode_kip_flat_file(file)) == file


@given(segments(plain=True))
def test_a_segment_keeps_all_but_its_broker(segment: RemoteLogSegmentMetadata) -> None:
    """What the form has no field for is known to be lost, and nothing else is."""
    assert kip_segment(segment).of(PARTITION) == dataclasses.replace(segment, broker_id=NO_BROKER)


@pytest.mark.parametrize(
    ("segment", "what"),
    [
        (dataclasses.replace(PLAIN, custom_metadata=b""), "custom metadata"),
        (dataclasses.replace(PLAIN, txn_idx_empty=True), "transaction index"),
    ],
)
def test_a_field_that_has_no_place_is_refused(segment: RemoteLogSegmentMetadata, what: str) -> None:
    """Dropped silently, its storage would not find the segment again."""
    with pytest.raises(ValueError, match=what):
        kip_segment(segment)


def test_damage_is_told() -> None:
    """A prefix that ends with an entry is a shorter file, which this form cannot tell; no other one is read."""
    first = encode_kip_flat_file(KipFlatFile("orders", TOPIC_ID, 42, ()))
    whole = encode_kip_flat_file(KipFlatFile("orders", TOPIC_ID, 42, (kip_segment(PLAIN), REMOVAL)))
    prefixes, _ = survives_damage(whole, parse_kip_flat_file)
    assert prefixes == 2
    assert parse_kip_flat_file(first).entries == ()
    assert parse_kip_flat_file(whole[: len(VECTOR)]).entries == (kip_segment(PLAIN),)


_AT = len(encode_kip_flat_file(KipFlatFile("orders", TOPIC_ID, 42, ())))


@pytest.mark.parametrize(
    ("data", "fault", "position"),
    [
        (b"", "TRUNCATED", 0),
        (b"\x01" + VECTOR[1:], "BAD_MAGIC", 0),
        (b"\x00\xff\xff" + VECTOR[3:], "BAD_FIELD_LENGTH", 1),
        (b"\x00\x00\x00" + VECTOR[9:], "BAD_ENTRY", 1),
        (VECTOR[: _AT - 1] + b"\x01" + VECTOR[_AT:], "BAD_ENTRY", _AT - 1),
        (VECTOR[: _AT - 1] + b"\x80" * 11, "BAD_VARINT", _AT - 1),
        (VECTOR[: _AT + 1] + b"\x02" + VECTOR[_AT + 2 :], "BAD_VERSION", _AT + 1),
        (VECTOR[: _AT + 2] + b"\x01" + VECTOR[_AT + 3 :], "BAD_VERSION", _AT + 2),
        (VECTOR[:_AT] + b"\x64" + VECTOR[_AT + 1 :], "TRUNCATED", _AT + 1),
        (VECTOR[:_AT] + b"\x64" + VECTOR[_AT + 1 :] + b"\x00", "TRAILING_BYTES", len(VECTOR)),
        (VECTOR[:-1] + b"\x04", "BAD_ENTRY", _AT + 1),
    ],
)
def test_what_cannot_be_is_refused(data: bytes, fault: str, position: int) -> None:
    """Each with its own fault and place."""
    with pytest.raises(CorruptIndexError) as error:
        parse_kip_flat_file(data)
    assert (error.value.fault, error.value.position) == (fault, position)


@pytest.mark.parametrize("topic", ["", "x" * 32768])
def test_a_topic_that_the_header_cannot_name_is_refused(topic: str) -> None:
    """Its length is 16 bits."""
    with pytest.raises(ValueError, match="no such file can be"):
        encode_kip_flat_file(KipFlatFile(topic, TOPIC_ID, 0, ()))
