"""Building of record batches of magic 2, as Kafka writes them.

``int64 baseOffset, int32 batchLength, int32 partitionLeaderEpoch, int8 magic = 2, uint32 crc, int16 attributes,
int32 lastOffsetDelta, int64 baseTimestamp, int64 maxTimestamp, int64 producerId, int16 producerEpoch,
int32 baseSequence, int32 recordCount``, then the records: back to back, or compressed as one stream.

Each record is a Python object here: this is for tests, for bench data and for appends of a broker's own markers, not
for a path that carries gigabytes.

Source: Kafka MemoryRecordsBuilder, DefaultRecordBatch, DefaultRecord.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from tierlog._native.checksums import crc32c
from tierlog.records.batch_table import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from tierlog.records.compression import codec_number, compress
from tierlog.records.control import ControlRecordType, EndTransactionMarker, encode_control_key

MAGIC: Final = 2
NO_TIMESTAMP: Final = -1
Headers = Sequence[tuple[str | bytes, bytes | None]]

_HEAD: Final = struct.Struct(">qiibI")
_COVERED: Final = struct.Struct(">hiqqqhii")
#: Bytes of the batch that its length field counts, in front of those that the checksum covers.
_UNCOVERED_BYTES: Final = 9
_INT32_MAX: Final = 2**31 - 1


def encode_varint(value: int) -> bytes:
    """Encode a zigzag varint of at most 64 bits; it serves for varlongs too."""
    rest = value << 1 ^ value >> 63
    if rest >> 64:
        raise ValueError(f"{value} does not fit 64 bits")
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def encode_record(
    *, offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Headers = ()
) -> bytes:
    """Encode one record of magic 2, with its length in front."""
    parts = [b"\0", encode_varint(timestamp_delta), encode_varint(offset_delta), _field(key), _field(value)]
    parts.append(encode_varint(len(headers)))
    for name, content in headers:
        parts += [_field(name.encode() if isinstance(name, str) else name), _field(content)]
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def _field(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


def encode_batch(
    *,
    base_offset: int,
    records: bytes,
    record_count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Header and payload as they are given, with a right length and checksum; nothing is checked against each other.

    Args:
        base_offset: Kafka offset.
        records: The payload, compressed already if the attributes say so.
        record_count: As the header shall declare it.
        last_offset_delta: Last offset less base offset.
        base_timestamp: ms, or the delete horizon.
        max_timestamp: ms.
        attributes: The bits of ``batch_table``.
        leader_epoch: -1 = unknown.
        producer_id: -1 = none, as are the two that follow.
        producer_epoch: Of the producer.
        base_sequence: Of the first record.
    """
    covered = (
        _COVERED.pack(
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        )
        + records
    )
    return _HEAD.pack(base_offset, _UNCOVERED_BYTES + len(covered), leader_epoch, MAGIC, crc32c(covered)) + covered


class RecordBatchBuilder:
    """One batch, record by record.

    Args:
        base_offset: Kafka offset of the first record, even if it is not appended (compaction).
        codec: Number or name.
        compression_level: None = Kafka's default.
        leader_epoch: -1 = unknown.
        producer_id: -1 = none; then the next two are -1 too.
        producer_epoch: Of the producer.
        base_sequence: Of the first record.
        transactional: The batch belongs to a transaction.
        control: The records are markers; such a batch is never compressed.
        log_append_time_ms: All records report this timestamp (LogAppendTime); None = CreateTime.
        delete_horizon_ms: When compaction may drop tombstones; None = not set.

    Not thread-safe.
    """

    def __init__(
        self,
        base_offset: int,
        *,
        codec: int | str = "none",
        compression_level: int | None = None,
        leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        log_append_time_ms: int | None = None,
        delete_horizon_ms: int | None = None,
    ) -> None:
        if base_offset < 0:
            raise ValueError(f"base_offset {base_offset} is negative")
        if control and codec_number(codec):
            raise ValueError("a control batch is never compressed")
        self.base_offset = base_offset
        self._codec = codec_number(codec)
        self._level = compression_level
        self._leader_epoch = leader_epoch
        self._producer = {"producer_id": producer_id, "producer_epoch": producer_epoch, "base_sequence": base_sequence}
        self._transactional = transactional
        self._control = control
        self._log_append_time_ms = log_append_time_ms
        self._delete_horizon_ms = delete_horizon_ms
        self._base_timestamp = delete_horizon_ms
        self._max_timestamp = NO_TIMESTAMP
        self._next_offset = base_offset
        self._records = bytearray()
        self._count = 0

    def __len__(self) -> int:
        """Return the number of records that were appended."""
        return self._count

    @property
    def next_offset(self) -> int:
        """The offset that the next record gets unless another is given."""
        return self._next_offset

    @property
    def uncompressed_size_bytes(self) -> int:
        """Size of the records so far, without the header."""
        return len(self._records)

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp_ms: int = NO_TIMESTAMP,
        headers: Headers = (),
        offset: int | None = None,
    ) -> None:
        """Add a record.

        Args:
            key: None = null.
            value: None = null (a tombstone).
            timestamp_ms: -1 = none.
            headers: (name, value) pairs in order; names may repeat.
            offset: None = the one after the record before. Gaps are legal, as compaction leaves them.
        """
        offset = self._next_offset if offset is None else offset
        if not self._next_offset <= offset <= self.base_offset + _INT32_MAX:
            raise ValueError(f"offset {offset} does not follow {self._next_offset - 1} in this batch")
        if self._base_timestamp is None:
            self._base_timestamp = timestamp_ms
        self._records += encode_record(
            offset_delta=offset - self.base_offset,
            timestamp_delta=timestamp_ms - self._base_timestamp,
            key=key,
            value=value,
            headers=headers,
        )
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)
        self._next_offset = offset + 1
        self._count += 1

    def build(self, *, last_offset: int | None = None, max_timestamp_ms: int | None = None) -> bytes:
        """Build the batch so far.

        Args:
            last_offset: Last offset of the batch, inclusive, if compaction removed its last records; None = that of the
                last record.
            max_timestamp_ms: Largest timestamp, if compaction removed the record that had it; None = that of the
                records.

        A batch that compaction emptied is a bare header without a codec's stream, of base timestamp -1.
        """
        last_offset = self._next_offset - 1 if last_offset is None else last_offset
        if not max(self._next_offset - 1, self.base_offset) <= last_offset <= self.base_offset + _INT32_MAX:
            raise ValueError(f"last_offset {last_offset} is not in the range of this batch")
        max_timestamp = self._max_timestamp if max_timestamp_ms is None else max_timestamp_ms
        if self._log_append_time_ms is not None:
            max_timestamp = self._log_append_time_ms
        payload = compress(bytes(self._records), self._codec, level=self._level) if self._count else b""
        return encode_batch(
            base_offset=self.base_offset,
            records=payload,
            record_count=self._count,
            last_offset_delta=last_offset - self.base_offset,
            base_timestamp=NO_TIMESTAMP if self._base_timestamp is None else self._base_timestamp,
            max_timestamp=max_timestamp,
            attributes=self._attributes(),
            leader_epoch=self._leader_epoch,
            **self._producer,
        )

    def _attributes(self) -> int:
        return (
            self._codec
            | (LOG_APPEND_TIME if self._log_append_time_ms is not None else 0)
            | (TRANSACTIONAL if self._transactional else 0)
            | (CONTROL if self._control else 0)
            | (DELETE_HORIZON if self._delete_horizon_ms is not None else 0)
        )


def build_end_transaction_marker(
    base_offset: int,
    kind: ControlRecordType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    leader_epoch: int = -1,
) -> bytes:
    """Build the batch that ends a transaction: ``kind`` is ABORT or COMMIT."""
    builder = RecordBatchBuilder(
        base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
    marker = EndTransactionMarker(kind, coordinator_epoch)
    builder.append(encode_control_key(kind), marker.encode(), timestamp_ms=timestamp_ms)
    return builder.build()
