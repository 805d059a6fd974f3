"""Records of magic 2, what a reader asks for, and the walk over the batches of a range.

A record: ``varint length, int8 attributes, varlong timestampDelta, varint offsetDelta, varint keyLength, key,
varint valueLength, value, varint headerCount, (varint keyLength, key, varint valueLength, value)*``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.support.oracle.batches import (
    HEADER_SIZE_V2,
    LENGTH_MIN,
    LOG_OVERHEAD,
    BatchHeader,
    PartialBatch,
    parse_header,
    verify,
)
from tests.support.oracle.codecs import decompress
from tests.support.oracle.legacy import OFFSET_MAX, iter_messages
from tierlog.errors import CorruptDataError, SizeLimitError

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_RECORD_SIZE_MIN: Final = 7
_MICROSECONDS: Final = 1000

#: Of a record, as Spark's column timestampType has them.
NO_TIMESTAMP, CREATE, LOG_APPEND = -1, 0, 1


@dataclass(frozen=True, slots=True)
class Aborted:
    """An aborted transaction of one producer: from its first record to its abort marker, both inclusive."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """The arguments of ``_native.decoding.RecordDecoder``."""

    base_position: int = 0
    verify_crc: bool = True
    from_offset: int = 0
    to_offset_exclusive: int = _INT64_MAX
    least_offset: int = 0
    greatest_offset: int = _INT64_MAX
    from_timestamp_ms: int = _INT64_MIN
    to_timestamp_exclusive_ms: int = _INT64_MAX
    aborted: Sequence[Aborted] = ()
    control_records: bool = False
    timestamp_unit: str = "ms"
    decompressed_limit: int = 1 << 28
    allow_partial: bool = False

    def wants(self, offset: int, timestamp: int) -> bool:
        """Whether a record is inside the bounds of offsets and timestamps."""
        return (
            self.from_offset <= offset < self.to_offset_exclusive
            and self.from_timestamp_ms <= timestamp
            and not self.is_late(timestamp)
        )

    def is_late(self, timestamp: int) -> bool:
        """Whether a timestamp is behind the range. 2**63 - 1 is no bound: a record may have that very timestamp."""
        return timestamp >= self.to_timestamp_exclusive_ms != _INT64_MAX

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the batch is data of an aborted transaction."""
        return any(
            entry.producer_id == header.producer_id and entry.first_offset <= header.base_offset <= entry.last_offset
            for entry in self.aborted
        )


_DEFAULT: Final = DecodeOptions()


@dataclass(frozen=True, slots=True)
class Record:
    """A row. ``timestamp`` is in the unit that was asked for; ``timestamp_type`` -1 none, 0 create, 1 append time."""

    key: bytes | None
    value: bytes | None
    offset: int
    timestamp: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int
    batch_position: int
    sequence: int


def decode_java_utf8(data: bytes) -> str:
    """Text as Java's ``new String(bytes, UTF_8)``.

    Python's "replace" but for one case: of a surrogate in three bytes (``ed a0..bf 80..bf``, also without its last
    byte) Java makes one U+FFFD, Python one a byte. 0xff, which is malformed wherever it stands, takes its place.
    """
    return re.sub(rb"\xed[\xa0-\xbf][\x80-\xbf]?", b"\xff", data).decode("utf-8", errors="replace")


class _RecordFault(Exception):
    def __init__(self, name: str, text: str) -> None:
        super().__init__(name, text)
        self.name = name
        self.text = text


class _Reader:
    """A read position in ``data[at:end]``."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.end = end

    @property
    def left(self) -> int:
        return self.end - self.at

    def take(self, size: int) -> bytes:
        part = self.data[self.at : self.at + size]
        self.at += size
        return part

    def varint(self, bits: int, short: str) -> int:
        """A zigzag varint of ``bits`` 32 or 64; ``short`` names the fault when the bytes end inside it."""
        value = 0
        for index in range(5 if bits == 32 else 10):
            if not self.left:
                raise _RecordFault(short, "a varint runs past its end")
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                value &= (1 << bits) - 1
                return value >> 1 ^ -(value & 1)
        raise _RecordFault("BAD_VARINT", f"a varint of more than {bits} bits")

    def field(self, minimum: int) -> bytes | None:
        """Length and bytes; None for a length of -1."""
        length = self.varint(32, "BAD_RECORD_LENGTH")
        if length < minimum or length > self.left:
            raise _RecordFault("BAD_FIELD_LENGTH", f"a field of {length} bytes, {self.left} are left")
        return None if length < 0 else self.take(length)


@dataclass(frozen=True, slots=True)
class _RawRecord:
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def _parse_record(content: bytes, at: int) -> tuple[_RawRecord, int]:
    """(the record at ``content[at:]``, the position behind it): steps 4a to 4d."""
    if at == len(content):
        raise _RecordFault("BAD_COUNT", "fewer records than declared")
    reader = _Reader(content, at, len(content))
    length = reader.varint(32, "TRUNCATED")
    if length < 0 or length > reader.left:
        raise _RecordFault("BAD_RECORD_LENGTH", f"a record of {length} bytes, {reader.left} are left")
    reader.end = reader.at + length
    if not reader.left:
        raise _RecordFault("BAD_RECORD_LENGTH", "a record without attributes")
    reader.take(1)
    timestamp_delta = reader.varint(64, "BAD_RECORD_LENGTH")
    offset_delta = reader.varint(32, "BAD_RECORD_LENGTH")
    key = reader.field(-1)
    value = reader.field(-1)
    count = reader.varint(32, "BAD_RECORD_LENGTH")
    if count < 0 or count > reader.left // 2:
        raise _RecordFault("BAD_HEADER_COUNT", f"{count} headers in {reader.left} bytes")
    headers = tuple((decode_java_utf8(reader.field(0) or b""), reader.field(-1)) for _ in range(count))
    if reader.left:
        raise _RecordFault("BAD_RECORD_LENGTH", f"{reader.left} bytes left in a record")
    return _RawRecord(timestamp_delta, offset_delta, key, value, headers), reader.end


def _wrap_int64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def _sequence(header: BatchHeader, offset_delta: int) -> int:
    """DefaultRecordBatch.incrementSequence: after 2147483647 comes 0."""
    return -1 if header.base_sequence < 0 else (header.base_sequence + offset_delta) % 2**31


def _in_unit(header: BatchHeader, index: int, timestamp: int, options: DecodeOptions) -> int:
    if options.timestamp_unit == "ms":
        return timestamp
    if not _INT64_MIN <= timestamp * _MICROSECONDS <= _INT64_MAX:
        raise header.fault("BAD_TIMESTAMP", f"{timestamp} ms do not fit microseconds", index)
    return timestamp * _MICROSECONDS


def _payload(header: BatchHeader, entry: bytes, options: DecodeOptions) -> bytes:
    """Step 3."""
    payload = entry[HEADER_SIZE_V2:]
    count = header.record_count
    if count < 0:
        raise header.fault("BAD_COUNT", f"{count} records")
    if header.codec == 0 and count > len(payload) // _RECORD_SIZE_MIN:
        raise header.fault("BAD_COUNT", f"{count} records in {len(payload)} bytes")
    if header.codec > 4:
        raise header.fault("BAD_CODEC", f"codec {header.codec}")
    if header.codec == 0 or (not payload and not count):
        return payload
    return _decompressed(header, payload, options)


def _decompressed(header: BatchHeader, payload: bytes, options: DecodeOptions) -> bytes:
    try:
        return decompress(payload, header.codec, magic=header.magic, limit=options.decompressed_limit)
    except CorruptDataError as error:
        error.position = header.position
        error.base_offset = header.base_offset
        raise


def _iter_v2(
    header: BatchHeader, entry: bytes, next_offset: int, options: DecodeOptions
) -> Iterator[tuple[int, Record | None]]:
    """Steps 3 and 4: (offset, the row, or None for a record that was not asked for)."""
    content = _payload(header, entry, options)
    at = 0
    for index in range(header.record_count):
        try:
            raw, at = _parse_record(content, at)
        except _RecordFault as fault:
            raise header.fault(fault.name, fault.text, index) from fault
        offset = header.base_offset + raw.offset_delta
        if not 0 <= raw.offset_delta <= header.last_offset_delta or offset < next_offset:
            raise header.fault("BAD_OFFSET", f"offset {offset}", index)
        next_offset = offset + 1
        if header.is_control and (raw.key is None or len(raw.key) < 4 or struct.unpack_from(">h", raw.key)[0] < 0):
            raise header.fault("BAD_CONTROL", "a control record without version and type", index)
        timestamp = _wrap_int64(header.base_timestamp + raw.timestamp_delta)
        if header.is_log_append_time:
            timestamp = header.max_timestamp
        if not options.wants(offset, timestamp):
            yield offset, None
            continue
        yield (
            offset,
            Record(
                key=raw.key,
                value=raw.value,
                offset=offset,
                timestamp=_in_unit(header, index, timestamp, options),
                timestamp_type=LOG_APPEND if header.is_log_append_time else CREATE,
                headers=raw.headers,
                leader_epoch=header.leader_epoch,
                batch_position=header.position,
                sequence=_sequence(header, raw.offset_delta),
            ),
        )
    if at != len(content):
        raise header.fault("TRAILING_BYTES", f"{len(content) - at} bytes behind the last record")


def _iter_legacy(
    header: BatchHeader, entry: bytes, next_offset: int, options: DecodeOptions
) -> Iterator[tuple[int, Record | None]]:
    """Step 5, as ``_iter_v2``."""
    append_time = header.magic == 1 and header.is_log_append_time
    messages = iter_messages(
        header, entry, next_offset, options.verify_crc, lambda payload: _decompressed(header, payload, options)
    )
    for index, message in enumerate(messages):
        timestamp = header.max_timestamp if append_time else message.timestamp
        if not options.wants(message.offset, timestamp):
            yield message.offset, None
            continue
        yield (
            message.offset,
            Record(
                key=message.key,
                value=message.value,
                offset=message.offset,
                timestamp=_in_unit(header, index, timestamp, options),
                timestamp_type=NO_TIMESTAMP if header.magic == 0 else LOG_APPEND if append_time else CREATE,
                headers=(),
                leader_epoch=-1,
                batch_position=header.position,
                sequence=-1,
            ),
        )


def _is_ruled_out(header: BatchHeader, options: DecodeOptions) -> bool:
    """Step 2f: whether the header alone says that none of the records is wanted."""
    if header.magic != 2:
        return False
    if header.is_control:
        if not options.control_records:
            return True
    elif header.is_transactional and options.is_aborted(header):
        return True
    if header.max_timestamp < options.from_timestamp_ms:
        return True
    return header.is_log_append_time and options.is_late(header.max_timestamp)


def _check_limit(data: bytes, at: int, options: DecodeOptions) -> None:
    """Step 1c: a batch that is too large is refused before anyone waits for its end."""
    if len(data) - at < 17:
        return
    base_offset, length = struct.unpack_from(">qi", data, at)
    if length >= LENGTH_MIN[0] and length + LOG_OVERHEAD > options.decompressed_limit:
        raise SizeLimitError(
            f"a batch of {length + LOG_OVERHEAD} bytes",
            fault="OVER_LIMIT",
            position=options.base_position + at,
            base_offset=base_offset,
        )


def iter_records(data: bytes, options: DecodeOptions = _DEFAULT) -> Iterator[Record]:
    """All records that are asked for, in order.

    Raises:
        CorruptRecordError, SizeLimitError: after the records in front of the fault were yielded.
    """
    at = 0
    next_offset = 0
    behind_end = False
    while at < len(data):
        _check_limit(data, at, options)
        try:
            header = parse_header(data, at, options.base_position)
        except PartialBatch as partial:
            if options.allow_partial:
                return
            raise partial.truncated() from None
        entry = data[at : at + header.size_bytes]
        at += header.size_bytes
        if header.base_offset < 0 or header.last_offset_delta < 0 or header.last_offset > OFFSET_MAX:
            raise header.fault("BAD_OFFSET", f"offsets {header.base_offset} to {header.last_offset}")
        if header.base_offset < max(next_offset, options.least_offset) or header.last_offset > options.greatest_offset:
            raise header.fault("BAD_OFFSET", f"offsets {header.base_offset} to {header.last_offset} cannot stand here")
        is_wrapper = header.magic < 2 and header.codec != 0
        is_behind = header.base_offset >= options.to_offset_exclusive and not is_wrapper
        if is_behind and behind_end:
            return
        behind_end |= is_behind
        if options.verify_crc:
            verify(entry, header)
        if header.last_offset >= options.from_offset and not is_behind and not _is_ruled_out(header, options):
            rows = (_iter_v2 if header.magic == 2 else _iter_legacy)(header, entry, next_offset, options)
            for offset, row in rows:
                next_offset = offset + 1
                if row is not None:
                    yield row
        next_offset = max(next_offset, header.last_offset + 1)


def decode(data: bytes, options: DecodeOptions = _DEFAULT) -> tuple[list[Record], CorruptDataError | None]:
    """All records in front of the first fault, and the fault."""
    records: list[Record] = []
    try:
        records.extend(iter_records(data, options))
    except CorruptDataError as error:
        return records, error
    return records, None
