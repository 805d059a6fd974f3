"""Control records: the markers of transactions, and KRaft's own."""

from __future__ import annotations

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.vectors import vector
from tests.support import oracle as reference
from tierlog.errors import CorruptRecordError
from tierlog.records.control import (
    ControlKey,
    ControlRecordType,
    Endpoint,
    EndTransactionMarker,
    KraftVersion,
    KraftVoter,
    KraftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    encode_control_key,
    parse_control_key,
    parse_control_value,
)

DIRECTORY = uuid.UUID("01234567-89ab-cdef-1122-334455667788")
VOTER = struct.pack(">i", 7) + DIRECTORY.bytes + b"\0"
ENDPOINT = b"\x0bCONTROLLER\x05host" + struct.pack(">H", 65535) + b"\0"
KRAFT_VOTER = struct.pack(">i", 7) + DIRECTORY.bytes + b"\x02" + ENDPOINT + struct.pack(">hh", 0, 1) + b"\0\0"


def record(name: str) -> tuple[bytes | None, bytes | None]:
    (row,), fault = reference.decode(vector(name), reference.DecodeOptions(control_records=True))
    assert fault is None
    return row.key, row.value


def key_of(kind: ControlRecordType) -> ControlKey:
    return ControlKey(0, kind)


@pytest.mark.parametrize("kind", [ControlRecordType.ABORT, ControlRecordType.COMMIT])
def test_markers_of_kafka(kind: ControlRecordType) -> None:
    """An abort that is taken for a commit shows records that were taken back."""
    key, value = record(f"endtxn.{kind.name.lower()}")
    parsed = parse_control_key(key)
    assert parsed == ControlKey(0, kind)
    assert parsed.type.is_end_of_transaction
    assert encode_control_key(kind) == key
    marker = parse_control_value(parsed, value)
    assert marker == EndTransactionMarker(kind, coordinator_epoch=7)
    assert isinstance(marker, EndTransactionMarker)
    assert marker.encode() == value


def test_leader_change_of_kafka() -> None:
    """The metadata log holds them; `dump` must print them."""
    key, value = record("leaderchange")
    parsed = parse_control_key(key)
    assert parsed.type is ControlRecordType.LEADER_CHANGE
    assert not parsed.type.is_end_of_transaction
    assert parse_control_value(parsed, value) == LeaderChange(0, 1, (Voter(1), Voter(2)), (Voter(1),))


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (
            ControlRecordType.LEADER_CHANGE,
            struct.pack(">hi", 1, 7) + b"\x02" + VOTER + b"\x01\0",
            LeaderChange(1, 7, (Voter(7, DIRECTORY),), ()),
        ),
        (ControlRecordType.SNAPSHOT_HEADER, struct.pack(">hq", 0, 5) + b"\0", SnapshotHeader(0, 5)),
        (ControlRecordType.SNAPSHOT_FOOTER, bytes(3), SnapshotFooter(0)),
        (ControlRecordType.SNAPSHOT_FOOTER, bytes(2) + b"\x01\x05\x03abc", SnapshotFooter(0)),
        (ControlRecordType.KRAFT_VERSION, struct.pack(">hh", 0, 1) + b"\0", KraftVersion(0, 1)),
        (
            ControlRecordType.KRAFT_VOTERS,
            bytes(2) + b"\x02" + KRAFT_VOTER + b"\0",
            KraftVoters(0, (KraftVoter(7, DIRECTORY, (Endpoint("CONTROLLER", "host", 65535),), 0, 1),)),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, ControlRecordType) else "",
)
def test_values_of_kraft(kind: ControlRecordType, value: bytes, expected: object) -> None:
    """Field by field as the message definitions have them, tagged fields passed over."""
    assert parse_control_value(key_of(kind), value) == expected
    assert parse_control_value(key_of(kind), value + b"of a later version") == expected


def test_unknown_types_are_passed_over() -> None:
    """A newer broker may write types that we do not know: clients must go on."""
    key = parse_control_key(struct.pack(">hh", 0, 77))
    assert (key.type, key.number) == (ControlRecordType.UNKNOWN, 77)
    assert parse_control_key(struct.pack(">hh", 0, -1)).type is ControlRecordType.UNKNOWN
    assert parse_control_value(key, b"anything") is None
    with pytest.raises(ValueError, match="unknown type"):
        encode_control_key(ControlRecordType.UNKNOWN)


def test_a_later_version_of_the_key_is_read_as_the_first() -> None:
    """As Kafka's ControlRecordType.parse does."""
    assert parse_control_key(struct.pack(">hh", 3, 1) + b"more").type is ControlRecordType.COMMIT


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\1"])
def test_bad_keys(key: bytes | None) -> None:
    """The same rule as the decoder's BAD_CONTROL."""
    with pytest.raises(CorruptRecordError) as caught:
        parse_control_key(key)
    assert caught.value.fault == "BAD_CONTROL"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ControlRecordType.COMMIT, None),
        (ControlRecordType.COMMIT, b""),
        (ControlRecordType.COMMIT, b"\xff\xff\0\0\0\0"),
        (ControlRecordType.COMMIT, bytes(5)),
        (ControlRecordType.SNAPSHOT_FOOTER, bytes(2)),
        (ControlRecordType.SNAPSHOT_FOOTER, bytes(2) + b"\xff" * 6),
        (ControlRecordType.SNAPSHOT_FOOTER, bytes(2) + b"\xff\xff\xff\xff\x0f" + bytes(9)),
        (ControlRecordType.LEADER_CHANGE, bytes(6) + b"\0"),
        (ControlRecordType.LEADER_CHANGE, bytes(6) + b"\xff\xff\xff\xff\x0f" + bytes(50)),
        (ControlRecordType.KRAFT_VOTERS, bytes(2) + b"\x02" + KRAFT_VOTER[:20] + b"\x02\0"),
    ],
)
def test_bad_values(kind: ControlRecordType, value: bytes | None) -> None:
    """A hostile count must neither be believed nor end in a traceback."""
    with pytest.raises(CorruptRecordError) as caught:
        parse_control_value(key_of(kind), value)
    assert caught.value.fault == "BAD_CONTROL"


@given(kind=st.sampled_from(list(ControlRecordType)), value=st.binary(max_size=80))
def test_any_bytes_end_in_a_value_or_a_typed_error(kind: ControlRecordType, value: bytes) -> None:
    """`dump` reads whatever lies in a bucket."""
    fault = "BAD_CONTROL"
    try:
        parsed = parse_control_value(key_of(kind), bytes(2) + value)
        assert (parsed is None) == (kind is ControlRecordType.UNKNOWN)
    except CorruptRecordError as error:
        fault = error.fault
    assert fault == "BAD_CONTROL"
