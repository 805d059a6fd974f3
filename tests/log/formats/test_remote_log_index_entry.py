"""The remote log index of KIP-405's older page: exact bytes, and what hostile ones lead to."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.errors import CorruptIndexError
from tierlog.log.formats.remote_log_index_entry import (
    FIXED_BYTES,
    IDENTIFIER_BYTES_MAX,
    RemoteLogIndexEntry,
    encode_identifier,
    iter_entries,
    parse_entry,
    parse_identifier,
)

ENTRY = RemoteLogIndexEntry(121, 238, 1_700_000_000_000, 1_700_000_000_500, 4096, b"/remote/orders-3/0001")
VECTOR = bytes.fromhex(
    "00000043df2accef000000000000007900000000000000ee0000018bcfe568000000018bcfe569f40000100000152f72656d6f74652f6f7264"
    "6572732d332f30303031"
)
INT64 = st.integers(-(2**63), 2**63 - 1)
ENTRIES = st.builds(
    lambda offsets, first, last, length, identifier: RemoteLogIndexEntry(
        min(offsets), max(offsets), first, last, length, identifier
    ),
    st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)),
    INT64,
    INT64,
    st.integers(0, 2**31 - 1),
    st.binary(max_size=100) | st.just(bytes(IDENTIFIER_BYTES_MAX)),
)


def fault(data: bytes, position: int = 0) -> str:
    with pytest.raises(CorruptIndexError) as raised:
        parse_entry(data, position)
    return raised.value.fault


def sealed(data: bytes) -> bytes:
    """With the checksum that it should have."""
    return data[:4] + struct.pack(">I", zlib.crc32(data[8:])) + data[8:]


def test_the_vector() -> None:
    """If this fails, other programs cannot read the files, nor we theirs."""
    assert len(VECTOR) == 67
    assert ENTRY.encode() == VECTOR
    assert ENTRY.size_bytes == len(VECTOR)
    assert parse_entry(VECTOR) == ENTRY
    assert parse_entry(b"..." + VECTOR + b"more", 3) == ENTRY


def test_the_other_polynomial_is_refused() -> None:
    """If this fails, an entry that another reading of the page made passes for sound without a check."""
    assert fault(VECTOR[:4] + bytes.fromhex("a5170b98") + VECTOR[8:]) == "BAD_CRC"


@given(ENTRIES)
def test_every_entry_comes_back(entry: RemoteLogIndexEntry) -> None:
    """If this fails, an extreme offset, time or identifier is lost."""
    data = entry.encode()
    assert len(data) == entry.size_bytes == int.from_bytes(data[2:4], "big")
    assert parse_entry(data) == entry


@given(st.integers(0, len(VECTOR) - 1), st.integers(1, 255))
def test_every_changed_byte_is_found(at: int, change: int) -> None:
    """If this fails, a flipped bit sends a reader to another object."""
    damaged = bytearray(VECTOR)
    damaged[at] ^= change
    assert fault(bytes(damaged)) in ("BAD_VERSION", "BAD_SIZE", "BAD_CRC", "TRUNCATED")


@given(st.integers(0, len(VECTOR) - 1))
def test_every_torn_end_is_found(size: int) -> None:
    """If this fails, half an entry counts as one."""
    assert fault(VECTOR[:size]) == "TRUNCATED"
    torn = VECTOR[:size] + bytes(len(VECTOR) - size)
    if torn != VECTOR:
        assert fault(torn) in ("BAD_SIZE", "BAD_CRC")


@given(st.binary(max_size=200), st.integers(0, 300))
def test_no_bytes_do_harm(data: bytes, position: int) -> None:
    """If this fails, a damaged file ends the broker's task with an error that nobody expects."""
    try:
        entry = parse_entry(data, position)
    except CorruptIndexError:
        return
    assert entry.encode() == data[position : position + entry.size_bytes]


def test_what_an_entry_cannot_say_is_refused() -> None:
    """If this fails, a right checksum is enough for offsets that lead astray."""
    backwards = VECTOR[:8] + struct.pack(">qq", 238, 121) + VECTOR[24:]
    assert fault(sealed(backwards)) == "BAD_ENTRY"
    negative = VECTOR[:40] + struct.pack(">i", -1) + VECTOR[44:]
    assert fault(sealed(negative)) == "BAD_ENTRY"
    lengths = VECTOR[:2] + struct.pack(">h", FIXED_BYTES - 5) + VECTOR[4:44] + struct.pack(">h", -5) + VECTOR[46:]
    assert fault(sealed(lengths)) == "BAD_SIZE"
    assert fault(bytes(100)) == "BAD_SIZE"
    changes: list[dict[str, Any]] = [
        {"first_offset": -1},
        {"last_offset": 120},
        {"last_offset": 2**63},
        {"data_length": -1},
        {"data_length": 2**31},
        {"last_timestamp_ms": 2**63},
        {"identifier": bytes(IDENTIFIER_BYTES_MAX + 1)},
    ]
    for wrong in changes:
        with pytest.raises(ValueError, match=r"."):
            replace(ENTRY, **wrong)


def test_entries_of_a_file() -> None:
    """If this fails, an index with entries out of order is searched, and gives the wrong segment."""
    following = replace(ENTRY, first_offset=200, last_offset=300)
    data = ENTRY.encode() + following.encode()
    assert list(iter_entries(data)) == [(0, ENTRY), (67, following)]
    assert list(iter_entries(b"")) == []
    for data_wrong, position in ((VECTOR + VECTOR, 67), (data + b"\0", 134)):
        with pytest.raises(CorruptIndexError) as raised:
            list(iter_entries(data_wrong))
        assert raised.value.position == position


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=50), st.integers(0, 2**63 - 1))
def test_every_identifier_comes_back(key: str, position: int) -> None:
    """If this fails, a key with # or with letters beyond ASCII leads to another object."""
    assert parse_identifier(encode_identifier(key, position)) == (key, position)


@given(st.binary(max_size=60) | st.text(max_size=20, alphabet="a#0123456789+-_ ٣").map(str.encode))
def test_an_identifier_has_one_spelling(identifier: bytes) -> None:
    """If this fails, two identifiers name one place, and comparing them misses it."""
    try:
        key, position = parse_identifier(identifier)
    except CorruptIndexError:
        return
    assert encode_identifier(key, position) == identifier


def test_identifiers() -> None:
    """If this fails, a position is taken for a part of the key."""
    assert encode_identifier("tier/a.log", 42) == b"tier/a.log#42"
    assert parse_identifier("ä#1#0".encode()) == ("ä#1", 0)
    for foreign in (b"", b"key", b"#", b"key#", b"key#-1", b"key#01", b"key#9223372036854775808", b"\xff#0", b"k# 1"):
        with pytest.raises(CorruptIndexError):
            parse_identifier(foreign)
    for key, position in (("k", -1), ("k", 2**63), ("k" * IDENTIFIER_BYTES_MAX, 0), ("\ud800", 0)):
        with pytest.raises(ValueError, match=r"."):
            encode_identifier(key, position)
