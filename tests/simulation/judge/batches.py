"""Record batches of format 2, read by struct and nothing of the engine: for the judge alone.

Source: Kafka DefaultRecordBatch and DefaultRecord, by their bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from tests.support.batches import crc32c
from tests.support.oracle.codecs import decompress

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = _HEADER.size
_PREFIX_BYTES: Final = 12
_CHECKED_FROM: Final = 21


class UnreadableBatchError(ValueError):
    """Bytes that are no whole batch of format 2, or whose checksum or records are wrong."""


class Record(NamedTuple):
    """One record."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class Batch(NamedTuple):
    """One batch; ``raw`` is all of it."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    raw: bytes

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 0x20)

    @property
    def is_commit(self) -> bool | None:
        """Whether a control batch is a commit marker; None: neither commit nor abort, or compaction took its record:
        the batch stays for its producer's sequence.
        """
        records = self.records()
        if not records:
            return None
        (record,) = records
        if record.key is None or len(record.key) < 4:
            raise UnreadableBatchError(f"control batch at {self.base_offset}: its key is too short")
        kind = struct.unpack_from(">h", record.key, 2)[0]
        return {0: False, 1: True}.get(kind)

    def is_sound(self) -> bool:
        """Whether the checksum is right."""
        return crc32c(self.raw[_CHECKED_FROM:]) == self.crc

    def records(self) -> tuple[Record, ...]:
        """Its records. Raises UnreadableBatchError."""
        return _records(self.raw)

    def read_records(self) -> tuple[Record, ...]:
        """``records``, without what is remembered."""
        data = _uncompressed(self.raw[HEADER_BYTES:], self.attributes & 7)
        found, at = [], 0
        try:
            for _ in range(self.count):
                record, at = self._record(data, at)
                found.append(record)
        except IndexError as error:
            raise UnreadableBatchError(f"batch at {self.base_offset}: a record ends behind it") from error
        if at != len(data):
            raise UnreadableBatchError(f"batch at {self.base_offset}: {len(data) - at} bytes behind its records")
        return tuple(found)

    def _record(self, data: bytes, at: int) -> tuple[Record, int]:
        size, at = _varint(data, at)
        end = at + size
        if size < 0 or end > len(data):
            raise UnreadableBatchError(f"batch at {self.base_offset}: a record of {size} bytes")
        delta, at = _varint(data, at + 1)
        position, at = _varint(data, at)
        key, at = _bytes(data, at)
        value, at = _bytes(data, at)
        headers, at = _varint(data, at)
        for _ in range(headers):
            _, at = _bytes(data, at)
            _, at = _bytes(data, at)
        if at != end:
            raise UnreadableBatchError(f"batch at {self.base_offset}: a record's size is not its own")
        timestamp = self.max_timestamp if self.attributes & 8 else self.base_timestamp + delta
        return Record(self.base_offset + position, timestamp, key, value), end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise UnreadableBatchError("a varint of more than ten bytes")


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    if size < 0:
        return None, at
    if at + size > len(data):
        raise UnreadableBatchError("a field ends behind its batch")
    return data[at : at + size], at + size


@lru_cache(maxsize=8192)
def _records(raw: bytes) -> tuple[Record, ...]:
    """Every consumer reads the same bytes again."""
    return parse(raw)[0].read_records()


def _uncompressed(data: bytes, codec: int) -> bytes:
    if codec == 0:
        return data
    try:
        return decompress(data, codec)
    except ValueError as error:
        raise UnreadableBatchError(f"codec {codec}: {error}") from error


def parse(data: bytes) -> list[Batch]:
    """Read whole batches. Raises UnreadableBatchError: something else lies there."""
    found, at, end = [], 0, len(data)
    while at < end:
        if end - at < HEADER_BYTES:
            raise UnreadableBatchError(f"{end - at} bytes behind the last batch")
        base, length, epoch, magic, crc, attributes, delta, first, last, *producer = _HEADER.unpack_from(data, at)
        after = at + _PREFIX_BYTES + length
        if magic != 2 or length < HEADER_BYTES - _PREFIX_BYTES or after > end:
            raise UnreadableBatchError(f"at {at} of {end} bytes: magic {magic}, length {length}")
        found.append(Batch(base, base + delta, epoch, crc, attributes, first, last, *producer, data[at:after]))
        at = after
    return found


# ---- what readers make of them


def visible(batches: Iterable[Batch], aborted: Iterable[tuple[int, int]], from_offset: int) -> Iterator[Record]:
    """The records that a read committed consumer takes: not those of aborted transactions.

    Args:
        batches: Of one answer.
        aborted: Producer id and first offset of each, as the answer has them.
        from_offset: What was asked for; records in front of it are skipped.
    """
    waiting = sorted(aborted, key=lambda each: each[1])
    open_ones: set[int] = set()
    for batch in batches:
        while waiting and waiting[0][1] <= batch.last_offset:
            open_ones.add(waiting.pop(0)[0])
        if batch.is_control:
            if batch.is_commit is False:
                open_ones.discard(batch.producer_id)
            continue
        if batch.is_transactional and batch.producer_id in open_ones:
            continue
        yield from (each for each in batch.records() if each.offset >= from_offset)
