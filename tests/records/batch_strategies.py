"""Hypothesis strategies: logs of batches of all kinds, what is done to their bytes, and how they are asked for."""

from __future__ import annotations

import itertools
import struct
import zlib
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.support import oracle as reference
from tests.support.message_set_builder import MessageSetBuilder
from tierlog._native.checksums import crc32c
from tierlog.records.builder import RecordBatchBuilder
from tierlog.records.control import ControlRecordType, encode_control_key

T = 1_700_000_000_000
timestamps = st.integers(T - 9, T + 9) | st.sampled_from([-1, 0, 2**63 - 1, -(2**63)])
#: Lengths around those at which the core copies in other ways.
sizes = st.sampled_from([1, 3, 31, 32, 33, 63, 64, 65, 127, 128, 400])
fields = st.none() | st.just(b"") | st.binary(max_size=12) | sizes.map(lambda size: bytes(range(256))[:size] * 2)
header_names = st.sampled_from([b"h", b"", "é€😀".encode(), b"\xed\xa0\x80z", b"\xff\xfe", b"a\xe2\x82"]) | st.binary(
    max_size=6
)
headers = st.just([]) | st.lists(st.tuples(header_names, fields), max_size=3)
gaps = st.sampled_from([0, 0, 0, 1, 5])


@dataclass(frozen=True)
class Log:
    """Batches one behind the other, and where each begins."""

    data: bytes
    starts: tuple[int, ...]


@st.composite
def record_batches(draw: st.DrawFn, base_offset: int) -> tuple[bytes, int]:
    """(a batch of magic 2, the offset behind it)."""
    codec = draw(st.sampled_from([0, 0, 1, 2, 3, 4]))
    control = codec == 0 and draw(st.integers(0, 4)) == 0
    builder = RecordBatchBuilder(
        base_offset,
        codec=codec,
        leader_epoch=draw(st.sampled_from([-1, 0, 5])),
        producer_id=draw(st.sampled_from([-1, 1, 2])),
        producer_epoch=0,
        base_sequence=draw(st.sampled_from([-1, 0, 2**31 - 2])),
        transactional=draw(st.booleans()),
        control=control,
        log_append_time_ms=draw(st.none() | timestamps),
        delete_horizon_ms=draw(st.none() | st.just(T + 100)),
    )
    for _ in range(draw(st.integers(0, 5))):
        key = encode_control_key(draw(st.sampled_from(list(ControlRecordType)[:7]))) if control else draw(fields)
        timestamp = draw(st.integers(T - 9, T + 9))
        offset = builder.next_offset + draw(gaps)
        builder.append(key, draw(fields), timestamp_ms=timestamp, headers=draw(headers), offset=offset)
    last_offset = max(builder.next_offset - 1, base_offset) + draw(gaps)
    return builder.build(last_offset=last_offset), last_offset + 1


@st.composite
def message_sets(draw: st.DrawFn, base_offset: int) -> tuple[bytes, int]:
    """(messages of magic 0 or 1, the offset behind them)."""
    magic = draw(st.sampled_from([0, 1]))
    append_time = draw(st.none() | timestamps) if magic else None
    builder = MessageSetBuilder(
        magic, base_offset, codec=draw(st.sampled_from([0, 1, 2, 3])), log_append_time_ms=append_time
    )
    offset = base_offset
    for _ in range(draw(st.integers(1, 4))):
        builder.append(draw(fields), draw(fields), timestamp_ms=draw(timestamps), offset=offset)
        offset += 1 + draw(gaps)
    return builder.build(), offset


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Sound logs of one to four batches."""
    offset = draw(st.sampled_from([0, 0, 5, 2**40, 2**63 - 2**32]))
    parts: list[bytes] = []
    for _ in range(draw(st.integers(1, 4))):
        part, offset = draw(record_batches(offset) | message_sets(offset))
        parts.append(part)
        offset += draw(gaps)
    starts, at = [], 0
    for part in parts:
        starts.append(at)
        at += len(part)
    return Log(b"".join(parts), tuple(starts))


def repair(data: bytearray, start: int) -> None:
    """Makes the checksum of the batch at ``start`` right again, so that the fault behind it is met."""
    if len(data) - start < 18:
        return
    length, magic = struct.unpack_from(">i", data, start + 8)[0], data[start + 16]
    end = start + 12 + length
    if length < 14 or end > len(data):
        return
    if magic == 2 and length >= 49:
        struct.pack_into(">I", data, start + 17, crc32c(bytes(data[start + 21 : end])))
    elif magic in (0, 1):
        struct.pack_into(">I", data, start + 12, zlib.crc32(bytes(data[start + 16 : end])))


tempting_bytes = st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFE, 0xFF]) | st.integers(0, 255)


@st.composite
def damaged_logs(draw: st.DrawFn) -> bytes:
    """Logs with a few bytes changed, put in, taken out or cut off; most with right checksums."""
    log = draw(logs())
    data = bytearray(log.data)
    resized = False
    for _ in range(draw(st.integers(1, 3))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        what = draw(st.sampled_from(["set", "set", "set", "fill", "insert", "delete", "cut"]))
        if what == "set":
            data[at] = draw(tempting_bytes)
        elif what == "fill":
            filling = draw(st.sampled_from([bytes(8), b"\xff" * 8, b"\x80" * 8, b"\x7f" + b"\xff" * 7]))
            data[at : at + 8] = filling[: len(data) - at]
        elif what == "cut":
            del data[at:]
        else:
            resized = True
            data[at : at + (1 if what == "delete" else 0)] = b"" if what == "delete" else bytes([draw(tempting_bytes)])
    if resized and len(log.starts) == 1 and len(data) > 12:
        struct.pack_into(">i", data, 8, len(data) - 12)
    if draw(st.integers(0, 4)):
        for start in log.starts:
            repair(data, start)
    return bytes(data)


@st.composite
def decode_options(draw: st.DrawFn, *, limit: int | None = None) -> reference.DecodeOptions:
    """All that can be asked for, each with its default as the likeliest."""
    near = st.integers(0, 12)
    aborted = draw(st.sampled_from([(), (reference.Aborted(1, 0, 4), reference.Aborted(2, 3, 7))]))
    return reference.DecodeOptions(
        base_position=draw(st.sampled_from([0, 4096])),
        verify_crc=draw(st.sampled_from([True, True, False])),
        from_offset=draw(st.just(0) | near),
        to_offset_exclusive=draw(st.just(2**63 - 1) | near),
        from_timestamp_ms=draw(st.just(-(2**63)) | st.integers(T - 9, T + 9)),
        to_timestamp_exclusive_ms=draw(st.just(2**63 - 1) | st.integers(T - 9, T + 9)),
        aborted=aborted,
        control_records=draw(st.booleans()),
        timestamp_unit=draw(st.sampled_from(["ms", "us"])),
        decompressed_limit=draw(st.sampled_from([1 << 20, 1 << 20, 300])) if limit is None else limit,
        allow_partial=draw(st.booleans()),
    )


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The bytes in pieces, cut at these places (taken modulo the length)."""
    borders = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(borders)]
