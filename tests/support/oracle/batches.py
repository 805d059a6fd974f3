"""Batch headers of all three magics, and the walk from batch to batch.

Magic 2, big-endian: ``int64 baseOffset, int32 batchLength, int32 partitionLeaderEpoch, int8 magic, uint32 crc,
int16 attributes, int32 lastOffsetDelta, int64 baseTimestamp, int64 maxTimestamp, int64 producerId,
int16 producerEpoch, int32 baseSequence, int32 recordCount``, then the records. CRC-32C from the attributes on.

Magic 0 and 1: ``int64 offset, int32 size, uint32 crc, int8 magic, int8 attributes[, int64 timestamp], key, value``.
CRC-32 from the magic on.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tierlog.errors import CorruptRecordError

LOG_OVERHEAD: Final = 12
HEADER_SIZE_V2: Final = 61
#: Smallest length field by magic.
LENGTH_MIN: Final = {0: 14, 1: 22, 2: 49}
_INT32_MAX: Final = 2**31 - 1
_V2: Final = struct.Struct(">qiibIhiqqqhii")

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """A batch header under Kafka's names. Fields that magic 0/1 do not have are -1, as in ``tierlog/batch.h``."""

    position: int
    size_bytes: int
    magic: int
    base_offset: int
    last_offset_delta: int
    leader_epoch: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    attributes: int
    crc: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return self.magic == 2 and bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return self.magic == 2 and bool(self.attributes & CONTROL)

    def fault(self, name: str, text: str, record: int = -1, expected: int = 0, found: int = 0) -> CorruptRecordError:
        """An error at this batch."""
        return CorruptRecordError(
            text,
            fault=name,
            position=self.position,
            base_offset=self.base_offset,
            record=record,
            expected=expected,
            found=found,
        )


class PartialBatch(Exception):
    """The data end inside the batch at ``position``. This asks for more bytes and is no fault."""

    def __init__(self, position: int, base_offset: int) -> None:
        super().__init__(position, base_offset)
        self.position = position
        self.base_offset = base_offset

    def truncated(self) -> CorruptRecordError:
        """The fault that it is if there are no more bytes."""
        return CorruptRecordError(
            "the data end inside a batch", fault="TRUNCATED", position=self.position, base_offset=self.base_offset
        )


def parse_header(data: bytes, at: int, base_position: int = 0) -> BatchHeader:
    """The header at ``data[at:]``, step 1 of the order of checks.

    Raises:
        PartialBatch: the data end inside the batch.
        CorruptRecordError: BAD_SIZE or BAD_MAGIC.
    """
    position = base_position + at
    if len(data) - at < 17:
        raise PartialBatch(position, -1)
    base_offset, length = struct.unpack_from(">qi", data, at)

    def fault(name: str, text: str, expected: int, found: int) -> CorruptRecordError:
        return CorruptRecordError(
            text, fault=name, position=position, base_offset=base_offset, expected=expected, found=found
        )

    if length < LENGTH_MIN[0]:
        raise fault("BAD_SIZE", "a batch shorter than any can be", LENGTH_MIN[0], length)
    if length + LOG_OVERHEAD > len(data) - at:
        raise PartialBatch(position, base_offset)
    (magic,) = struct.unpack_from(">b", data, at + 16)
    if magic not in LENGTH_MIN:
        raise fault("BAD_MAGIC", "an unknown magic", 2, magic)
    if length < LENGTH_MIN[magic] or length + LOG_OVERHEAD > _INT32_MAX:
        raise fault("BAD_SIZE", "a batch shorter than its header", LENGTH_MIN[magic], length)
    return (_parse_v2 if magic == 2 else _parse_legacy)(data, at, position)


def _parse_v2(data: bytes, at: int, position: int) -> BatchHeader:
    fields = _V2.unpack_from(data, at)
    return BatchHeader(
        position=position,
        base_offset=fields[0],
        size_bytes=fields[1] + LOG_OVERHEAD,
        leader_epoch=fields[2],
        magic=fields[3],
        crc=fields[4],
        attributes=fields[5],
        last_offset_delta=fields[6],
        base_timestamp=fields[7],
        max_timestamp=fields[8],
        producer_id=fields[9],
        producer_epoch=fields[10],
        base_sequence=fields[11],
        record_count=fields[12],
    )


def _parse_legacy(data: bytes, at: int, position: int) -> BatchHeader:
    offset, length, crc, magic, attributes = struct.unpack_from(">qiIbB", data, at)
    timestamp = struct.unpack_from(">q", data, at + 18)[0] if magic == 1 else -1
    return BatchHeader(
        position=position,
        base_offset=offset,
        size_bytes=length + LOG_OVERHEAD,
        leader_epoch=-1,
        magic=magic,
        crc=crc,
        attributes=attributes,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=-1 if attributes & CODEC_MASK else 1,
    )


def _crc32c_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC32C: Final = _crc32c_table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), a byte at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC32C[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def computed_crc(entry: bytes, header: BatchHeader) -> int:
    """The checksum that the entry should store."""
    return crc32c(entry[21:]) if header.magic == 2 else zlib.crc32(entry[16:])


def verify(entry: bytes, header: BatchHeader) -> None:
    """Raises CorruptRecordError BAD_CRC if the stored and the computed checksum differ."""
    computed = computed_crc(entry, header)
    if computed != header.crc:
        raise header.fault("BAD_CRC", "the checksum differs", expected=header.crc, found=computed)


def iter_batches(data: bytes, base_position: int = 0) -> Iterator[tuple[BatchHeader, bytes]]:
    """(header, whole entry) one after the other; raises as ``parse_header``."""
    at = 0
    while at < len(data):
        header = parse_header(data, at, base_position)
        yield header, data[at : at + header.size_bytes]
        at += header.size_bytes


@dataclass(frozen=True, slots=True)
class BatchScan:
    """The result of ``scan``; as that of ``_native.batches.scan_batches``, with a list of headers for the columns."""

    headers: list[BatchHeader]
    crc_ok: list[bool]
    end_position: int
    partial: bool
    fault: CorruptRecordError | None


def scan(data: bytes, *, base_position: int = 0, verify_crc: bool = True) -> BatchScan:
    """All headers up to the end, a partial tail or the first entry that is malformed."""
    headers: list[BatchHeader] = []
    crc_ok: list[bool] = []
    partial, fault, end = False, None, base_position
    try:
        for header, entry in iter_batches(data, base_position):
            headers.append(header)
            crc_ok.append(not verify_crc or computed_crc(entry, header) == header.crc)
            end = header.position + header.size_bytes
    except PartialBatch:
        partial = True
    except CorruptRecordError as error:
        fault = error
    return BatchScan(headers, crc_ok, end, partial, fault)
