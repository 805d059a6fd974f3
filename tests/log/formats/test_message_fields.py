"""Fields of Kafka's generated messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.errors import CorruptRecordError
from tierlog.log.formats.message_fields import MessageReader, MessageWriter


@given(
    st.integers(0, 2**32 - 1),
    st.text(st.characters(codec="utf-8"), max_size=200),
    st.none() | st.binary(max_size=200),
    st.dictionaries(st.integers(0, 300), st.binary(max_size=20), max_size=5),
    st.integers(-(2**63), 2**63 - 1),
)
def test_round_trip(number: int, text: str, raw: bytes | None, tags: dict[int, bytes], wide: int) -> None:
    """Else a length above 127 or a null shifts every field behind it."""
    writer = MessageWriter()
    writer.unsigned_varint(number)
    writer.compact_string(text)
    writer.compact_bytes(raw)
    writer.tagged_fields(tags)
    writer.number(8, wide)
    reader = MessageReader(writer.finish())
    assert reader.unsigned_varint("number") == number
    assert reader.compact_string("text") == text
    assert reader.compact_bytes("raw") == raw
    assert reader.tagged_fields() == tags
    assert reader.number(8, "wide") == wide
    reader.finish()


@pytest.mark.parametrize(
    ("data", "read", "fault"),
    [
        (b"\x00\x00\x00", lambda r: r.number(4, "n"), "TRUNCATED"),
        (b"\x80\x80\x80\x80\x80\x01", lambda r: r.unsigned_varint("n"), "BAD_VARINT"),
        (b"\x80", lambda r: r.unsigned_varint("n"), "TRUNCATED"),
        (b"\x00", lambda r: r.compact_string("s"), "BAD_FIELD_LENGTH"),
        (b"\x02\xff", lambda r: r.compact_string("s"), "BAD_FIELD_LENGTH"),
        (b"\xff\xff", lambda r: r.string("s"), "BAD_FIELD_LENGTH"),
        (b"\x00\x05ab", lambda r: r.string("s"), "TRUNCATED"),
        (b"\xff\xff\xff\xff\x0fab", lambda r: r.compact_bytes("b"), "TRUNCATED"),
        (b"\x03ab", lambda r: r.compact_count("items", 2), "BAD_COUNT"),
        (b"\x7f\xff\xff\xffab", lambda r: r.count("items", 1), "BAD_COUNT"),
        (b"\xff\xff\xff\xff\x0fabcd", lambda r: r.tagged_fields(), "BAD_COUNT"),
        (b"ab", lambda r: r.finish(), "TRAILING_BYTES"),
    ],
)
def test_hostile_lengths(data: bytes, read: object, fault: str) -> None:
    """Else a length in a record's value decides how much memory we take."""
    with pytest.raises(CorruptRecordError) as caught:
        read(MessageReader(data))  # type: ignore[operator]
    assert caught.value.fault == fault


def test_nulls() -> None:
    """Else null and empty become the same."""
    assert MessageReader(b"\x00").compact_bytes("b") is None
    assert MessageReader(b"\x01").compact_bytes("b") == b""
    assert MessageReader(b"\x00").compact_count("items", 4) is None
    assert MessageReader(b"\xff\xff\xff\xff").count("items", 4) is None
    assert MessageReader(b"\x00\x02ab").string("s") == "ab"
