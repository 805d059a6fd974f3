"""The order of checks in the oracle's docstring, step by step: one case a rule, for oracle and native alike."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

import pytest

from tests.records.differential import decode_native, fault_of, rows_of
from tests.support import oracle as reference
from tests.support.message_set_builder import MessageSetBuilder, encode_message
from tierlog._native.checksums import crc32c
from tierlog.records.builder import RecordBatchBuilder, encode_batch, encode_record, encode_varint
from tierlog.records.compression import compress

INT64_MAX = 2**63 - 1
POSITION = 1000


def batch(records: bytes, *, count: int = 1, last_delta: int = 0, base: int = 10, **fields: int) -> bytes:
    return encode_batch(
        base_offset=base,
        records=records,
        record_count=count,
        last_offset_delta=last_delta,
        **{"base_timestamp": 0, "max_timestamp": 0, **fields},
    )


def record(body: bytes, *, length: int | None = None) -> bytes:
    return encode_varint(len(body) if length is None else length) + body


def good(delta: int = 0) -> bytes:
    return encode_record(offset_delta=delta, timestamp_delta=0, key=b"k", value=b"v")


def body(*, key: bytes = b"\x02k", value: bytes = b"\x02v", headers: bytes = b"\0", deltas: bytes = b"\0\0") -> bytes:
    return b"\0" + deltas + key + value + headers


def patched(data: bytes, at: int, form: str, *values: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(form, out, at, *values)
    return bytes(out)


def with_crc(data: bytes) -> bytes:
    return patched(data, 17, ">I", crc32c(data[21:]))


def wrapper(content: bytes, *, magic: int = 1, offset: int = 20, codec: int = 1, value: bytes | None = None) -> bytes:
    value = compress(content, codec, magic=magic) if value is None else value
    return encode_message(magic, offset=offset, key=None, value=value, attributes=codec)


def message(offset: int = 0, *, magic: int = 1, attributes: int = 0) -> bytes:
    return encode_message(magic, offset=offset, key=b"k", value=b"v", attributes=attributes)


def legacy(fields: bytes, *, magic: int = 1, attributes: int = 0, offset: int = 10) -> bytes:
    """An entry whose key and value fields are these bytes."""
    covered = struct.pack(">bB", magic, attributes) + (bytes(8) if magic == 1 else b"") + fields
    return struct.pack(">qiI", offset, 4 + len(covered), zlib.crc32(covered)) + covered


SIZED_K = struct.pack(">i", 1) + b"k"
NULL = struct.pack(">i", -1)
GOOD = batch(good())
#: One record with the bytes of several, so that a higher count is not refused by the payload's size.
LONG = encode_record(offset_delta=0, timestamp_delta=0, key=bytes(20), value=b"")
CONTROL = 0x20


def control(key: bytes | None) -> bytes:
    return batch(encode_record(offset_delta=0, timestamp_delta=0, key=key, value=b"v"), attributes=CONTROL)


@dataclass(frozen=True)
class Case:
    """``fault``: name, base offset, record; the position is that of the last entry. None: no fault."""

    data: bytes
    fault: tuple[str, int, int] | None
    rows: int = 0
    options: dict[str, object] = field(default_factory=dict)
    at: int = 0


CASES = {
    # 1. the entry
    "1a nothing but 16 bytes": Case(GOOD[:16], ("TRUNCATED", -1, -1)),
    "1b before d: length 13": Case(patched(GOOD, 8, ">i", 13)[:17], ("BAD_SIZE", 10, -1)),
    "1c before d: above the limit": Case(
        patched(GOOD, 8, ">i", 2**31 - 1), ("OVER_LIMIT", 10, -1), options={"decompressed_limit": 2**31}
    ),
    "1c before e: above the limit, magic 9": Case(
        patched(patched(GOOD, 8, ">i", 5000), 16, ">b", 9), ("OVER_LIMIT", 10, -1), options={"decompressed_limit": 4096}
    ),
    "1c is above, not at": Case(GOOD, None, rows=1, options={"decompressed_limit": len(GOOD)}),
    "1d before e: cut, magic 9": Case(patched(GOOD, 16, ">b", 9)[:-1], ("TRUNCATED", 10, -1)),
    "1d is allowed on request": Case(GOOD + GOOD[:-1], None, rows=1, options={"allow_partial": True}),
    "1e magic 3": Case(patched(GOOD, 16, ">b", 3), ("BAD_MAGIC", 10, -1)),
    "1e magic -1": Case(patched(GOOD, 16, ">b", -1), ("BAD_MAGIC", 10, -1)),
    "1f magic 2 of 60 bytes": Case(patched(GOOD, 8, ">i", 48)[:60], ("BAD_SIZE", 10, -1)),
    "1f magic 1 of 33 bytes": Case(patched(message()[:33], 8, ">i", 21), ("BAD_SIZE", 0, -1)),
    # 2. the header
    "2a base offset": Case(batch(good(), base=-1), ("BAD_OFFSET", -1, -1)),
    "2a last offset delta, before the checksum": Case(
        patched(GOOD, 23, ">i", -1), ("BAD_OFFSET", 10, -1), options={"from_offset": 0}
    ),
    "2a the sum": Case(batch(good(), base=INT64_MAX - 1, last_delta=1), ("BAD_OFFSET", INT64_MAX - 1, -1)),
    "2a the largest offset": Case(batch(good(), base=INT64_MAX - 1), None, rows=1),
    "2b falling": Case(GOOD + batch(good(), base=10), ("BAD_OFFSET", 10, -1), rows=1, at=len(GOOD)),
    "2b behind a batch that was skipped": Case(
        GOOD + batch(good(), base=9), ("BAD_OFFSET", 9, -1), options={"from_offset": 11}, at=len(GOOD)
    ),
    "2b behind the range of a compacted batch": Case(
        batch(good(), last_delta=5) + batch(good(), base=15),
        ("BAD_OFFSET", 15, -1),
        rows=1,
        at=len(GOOD),
    ),
    "2b below the least": Case(GOOD, ("BAD_OFFSET", 10, -1), options={"least_offset": 11}),
    "2b at the least and the greatest": Case(GOOD, None, rows=1, options={"least_offset": 10, "greatest_offset": 10}),
    "2b above the greatest": Case(
        GOOD + batch(good(), base=11, last_delta=2),
        ("BAD_OFFSET", 11, -1),
        rows=1,
        options={"greatest_offset": 12},
        at=len(GOOD),
    ),
    "2b before d: below the least, and a checksum": Case(
        patched(GOOD, 17, ">I", 0), ("BAD_OFFSET", 10, -1), options={"least_offset": 11}
    ),
    "2b behind the first batch at the end": Case(
        patched(GOOD, 0, ">q", 30) + batch(good(), base=11),
        ("BAD_OFFSET", 11, -1),
        options={"to_offset_exclusive": 20},
        at=len(GOOD),
    ),
    "2c the end, and nothing behind it counts": Case(
        GOOD + batch(good(), base=11) + patched(batch(good(), base=12), 17, ">I", 0) + b"garbage" * 9,
        None,
        rows=1,
        options={"to_offset_exclusive": 11},
    ),
    "2d before e: of one that is skipped too": Case(
        patched(GOOD, 17, ">I", 0) + batch(good(), base=11), ("BAD_CRC", 10, -1), options={"from_offset": 11}
    ),
    "2d of the first batch at the end": Case(
        GOOD + patched(batch(good(), base=11), 17, ">I", 0),
        ("BAD_CRC", 11, -1),
        rows=1,
        options={"to_offset_exclusive": 11},
        at=len(GOOD),
    ),
    "2c not for a wrapper": Case(
        wrapper(message(0) + message(1), offset=11), None, rows=1, options={"to_offset_exclusive": 11}
    ),
    "2d checksum": Case(patched(GOOD, 17, ">I", 0), ("BAD_CRC", 10, -1)),
    "2d checksum, not asked for": Case(patched(GOOD, 17, ">I", 0), None, rows=1, options={"verify_crc": False}),
    "2d before f: control batch": Case(patched(control(b"\0\0\0\1"), 17, ">I", 0), ("BAD_CRC", 10, -1)),
    "2f control batches are not looked into": Case(batch(b"garbage", attributes=CONTROL), None),
    "2f older than asked for": Case(batch(b"garbage", max_timestamp=99), None, options={"from_timestamp_ms": 100}),
    "2f append time, later than asked for": Case(
        batch(b"garbage", max_timestamp=100, attributes=8), None, options={"to_timestamp_exclusive_ms": 100}
    ),
    "2f no bound at the largest timestamp": Case(
        batch(good(), max_timestamp=INT64_MAX, attributes=8), None, rows=1, options={"from_offset": 5}
    ),
    "2f aborted": Case(
        batch(b"garbage", attributes=0x10, producer_id=7), None, options={"aborted": (reference.Aborted(7, 10, 12),)}
    ),
    # 3. the payload
    "3a count": Case(batch(good(), count=-1), ("BAD_COUNT", 10, -1)),
    "3a before c": Case(batch(good(), count=-1, attributes=5), ("BAD_COUNT", 10, -1)),
    "3b count above the bytes": Case(batch(good() * 2, count=3, last_delta=9), ("BAD_COUNT", 10, -1)),
    "3b only where uncompressed": Case(
        batch(compress(good(), "gzip"), count=2**31 - 1, attributes=1), ("BAD_COUNT", 10, 1), rows=1
    ),
    "3c codec": Case(batch(good(), attributes=5), ("BAD_CODEC", 10, -1)),
    "3d empty": Case(batch(b"", count=0, attributes=3), None),
    "3e empty, but records": Case(batch(b"", count=1, attributes=3), ("BAD_COMPRESSED", 10, -1)),
    "3e limit": Case(
        batch(compress(bytes(1000), "zstd"), attributes=4), ("OVER_LIMIT", 10, -1), options={"decompressed_limit": 999}
    ),
    # 4. the records
    "4a no byte": Case(batch(LONG, count=2, last_delta=1), ("BAD_COUNT", 10, 1), rows=1),
    "4b length cut": Case(batch(LONG + b"\x80" * 4, count=2, last_delta=1), ("TRUNCATED", 10, 1), rows=1),
    "4b length of 6 bytes": Case(batch(b"\x80" * 6 + good()), ("BAD_VARINT", 10, 0)),
    "4b length negative": Case(batch(record(bytes(9), length=-1)), ("BAD_RECORD_LENGTH", 10, 0)),
    "4b length beyond": Case(batch(record(bytes(9), length=10)), ("BAD_RECORD_LENGTH", 10, 0)),
    "4c no attributes": Case(batch(record(b"", length=0) + bytes(6)), ("BAD_RECORD_LENGTH", 10, 0)),
    "4c timestamp of 11 bytes": Case(batch(record(body(deltas=b"\x80" * 11))), ("BAD_VARINT", 10, 0)),
    "4c timestamp cut": Case(batch(record(b"\0" + b"\x80" * 8)), ("BAD_RECORD_LENGTH", 10, 0)),
    "4c offset delta of 6 bytes": Case(batch(record(body(deltas=b"\0" + b"\x80" * 6))), ("BAD_VARINT", 10, 0)),
    "4c key -2": Case(batch(record(body(key=b"\x03"))), ("BAD_FIELD_LENGTH", 10, 0)),
    "4c key beyond": Case(batch(record(body(key=b"\x20"))), ("BAD_FIELD_LENGTH", 10, 0)),
    "4c value -2": Case(batch(record(body(value=b"\x03"))), ("BAD_FIELD_LENGTH", 10, 0)),
    "4c value to the record's end": Case(
        batch(record(body(value=b"\x04v", headers=b"\0")) + bytes(7)), ("BAD_RECORD_LENGTH", 10, 0)
    ),
    "4c header count -1": Case(batch(record(body(headers=b"\x01"))), ("BAD_HEADER_COUNT", 10, 0)),
    "4c header count above the bytes": Case(batch(record(body(headers=b"\x04\0\0\0"))), ("BAD_HEADER_COUNT", 10, 0)),
    "4c header key null": Case(batch(record(body(headers=b"\x02\x01\x01"))), ("BAD_FIELD_LENGTH", 10, 0)),
    "4c header value -2": Case(batch(record(body(headers=b"\x02\x00\x03"))), ("BAD_FIELD_LENGTH", 10, 0)),
    "4c header value null": Case(batch(record(body(headers=b"\x02\x00\x01"))), None, rows=1),
    "4d bytes left": Case(batch(record(body() + b"\0")), ("BAD_RECORD_LENGTH", 10, 0)),
    "4e delta negative": Case(batch(record(body(deltas=b"\0\x01"))), ("BAD_OFFSET", 10, 0)),
    "4e delta above": Case(batch(good(1)), ("BAD_OFFSET", 10, 0)),
    "4e delta twice": Case(batch(good(1) + good(1), count=2, last_delta=1), ("BAD_OFFSET", 10, 1), rows=1),
    "4e before f": Case(
        batch(encode_record(offset_delta=1, timestamp_delta=0, key=None, value=None), attributes=CONTROL),
        ("BAD_OFFSET", 10, 0),
        options={"control_records": True},
    ),
    "4f key null": Case(control(None), ("BAD_CONTROL", 10, 0), options={"control_records": True}),
    "4f key short": Case(control(b"\0\0\0"), ("BAD_CONTROL", 10, 0), options={"control_records": True}),
    "4f version -1": Case(control(b"\xff\xff\0\1"), ("BAD_CONTROL", 10, 0), options={"control_records": True}),
    "4f version 9 is 0": Case(control(b"\0\x09\0\1"), None, rows=1, options={"control_records": True}),
    "4h microseconds": Case(
        batch(good(), base_timestamp=2**60, max_timestamp=2**60),
        ("BAD_TIMESTAMP", 10, 0),
        options={"timestamp_unit": "us"},
    ),
    "4g before h": Case(
        batch(good(), base_timestamp=2**60, max_timestamp=2**60),
        None,
        options={"timestamp_unit": "us", "to_timestamp_exclusive_ms": 2**59},
    ),
    "4 timestamps wrap": Case(
        batch(
            encode_record(offset_delta=0, timestamp_delta=1, key=None, value=None),
            base_timestamp=INT64_MAX,
            max_timestamp=INT64_MAX,
        ),
        None,
        rows=1,
    ),
    "4 bytes behind the last record": Case(batch(good() * 2), ("TRAILING_BYTES", 10, -1), rows=1),
    # 5. magic 0 and 1
    "5a bytes behind the value": Case(legacy(NULL + NULL + b"x"), ("BAD_RECORD_LENGTH", 10, 0)),
    "5a no room for the value": Case(legacy(struct.pack(">i", 4) + bytes(4)), ("BAD_RECORD_LENGTH", 10, 0)),
    "5a key -2": Case(legacy(struct.pack(">i", -2) + NULL), ("BAD_FIELD_LENGTH", 10, 0)),
    "5a value beyond": Case(legacy(SIZED_K + struct.pack(">i", 2) + b"v"), ("BAD_FIELD_LENGTH", 10, 0)),
    "5b codec": Case(legacy(NULL + SIZED_K, attributes=4), ("BAD_CODEC", 10, -1)),
    "5b fields": Case(legacy(NULL + SIZED_K + b"x", attributes=1), ("BAD_RECORD_LENGTH", 10, -1)),
    "5b null": Case(legacy(NULL + NULL, attributes=1), ("BAD_LEGACY", 10, -1)),
    "5b stream": Case(wrapper(b"", value=b"no stream"), ("BAD_COMPRESSED", 20, -1)),
    "5c cut": Case(wrapper(message(0) + message(1)[:-1]), ("TRUNCATED", 20, 1)),
    "5c size": Case(wrapper(patched(message(), 8, ">i", 13)), ("BAD_SIZE", 20, 0)),
    "5c magic unknown": Case(wrapper(patched(message(), 16, ">b", 7)), ("BAD_MAGIC", 20, 0)),
    "5c checksum": Case(wrapper(message(0) + patched(message(1), 12, ">I", 0)), ("BAD_CRC", 20, 1)),
    "5c magic of the other": Case(wrapper(message(magic=0)), ("BAD_LEGACY", 20, 0)),
    "5c compressed twice": Case(wrapper(message(attributes=1)), ("BAD_LEGACY", 20, 0)),
    "5c before e: all messages first": Case(
        wrapper(message(5) + message(4) + message(6, attributes=2)), ("BAD_LEGACY", 20, 2)
    ),
    "5d no message": Case(wrapper(b""), ("BAD_LEGACY", 20, -1)),
    "5d last above the wrapper": Case(wrapper(message(21)), ("BAD_LEGACY", 20, -1)),
    "5d last negative": Case(wrapper(message(-1)), ("BAD_LEGACY", 20, -1)),
    "5d wrapper at 0": Case(wrapper(message(0) + message(1), offset=0), None, rows=2),
    "5d not for magic 0": Case(wrapper(message(21, magic=0), magic=0), None, rows=1),
    "5e fields of a message": Case(
        wrapper(message(0) + legacy(SIZED_K + NULL + b"x", offset=1)), ("BAD_RECORD_LENGTH", 20, 1), rows=1
    ),
    "5e falling": Case(wrapper(message(1) + message(0) + message(2)), ("BAD_OFFSET", 20, 1), rows=1),
    "5e overflowing": Case(wrapper(message(INT64_MAX) + message(1)), ("BAD_OFFSET", 20, 0)),
    "5e too large": Case(wrapper(message(INT64_MAX, magic=0), magic=0), ("BAD_OFFSET", 20, 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_first_check_that_fails_is_the_one_that_is_named(name: str) -> None:
    """Two readers that name different faults send their users to different places; and what none names is read on."""
    case = CASES[name]
    options = reference.DecodeOptions(base_position=POSITION, **case.options)  # type: ignore[arg-type]
    expected = None
    if case.fault is not None:
        fault, base_offset, index = case.fault
        expected = (fault, POSITION + case.at, base_offset, index)
    records, error = reference.decode(case.data, options)
    assert (fault_of(error), len(records)) == (expected, case.rows)
    batches, native_error = decode_native([case.data], options)
    assert fault_of(native_error) == expected
    assert rows_of(batches) == records


def test_a_straddling_batch_above_the_limit_is_named_behind_its_rows() -> None:
    """Rows in front of a fault must come out wherever a fetch happens to cut the bytes."""
    data = GOOD + patched(batch(good(), base=11), 8, ">i", 2**20)
    options = reference.DecodeOptions(decompressed_limit=1000)
    for cut in range(len(data) + 1):
        batches, error = decode_native([data[:cut], data[cut:]], options)
        assert (fault_of(error), len(rows_of(batches))) == (("OVER_LIMIT", len(GOOD), 11, -1), 1), cut


def test_faults_leave_the_good_records_in_front_of_them() -> None:
    """A scan that skips damage must not lose what stands before it in the same batch."""
    builder = RecordBatchBuilder(0)
    for number in range(50):
        builder.append(b"%d" % number, None)
    data = bytearray(builder.build())
    data[-1] = 3
    batches, error = decode_native([with_crc(bytes(data))], reference.DecodeOptions(), target_bytes=100)
    assert error is not None
    assert [row.key for row in rows_of(batches)] == [b"%d" % number for number in range(49)]


def test_old_sets_are_built_as_they_are_read() -> None:
    """Offsets of magic 1 are relative to the wrapper: a slip shifts every record of an old topic."""
    for magic in (0, 1):
        builder = MessageSetBuilder(magic, 100, codec="lz4")
        for offset in (100, 102, 107):
            builder.append(None, b"%d" % offset, offset=offset)
        records, error = reference.decode(builder.build())
        assert error is None
        assert [(row.offset, row.value) for row in records] == [(o, b"%d" % o) for o in (100, 102, 107)]
