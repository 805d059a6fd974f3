"""Record batches (magic 2, uncompressed) spelled out on ``struct``, independent of the code under test.

Source: the formats of DefaultRecordBatch and EndTransactionMarker.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_LANE_BYTES = 128
_LANES_FROM_BYTES = 1 << 13
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20


@dataclass(frozen=True)
class Batch:
    """One batch as a script gives it; ``marker`` makes it a control batch ("commit" or "abort").

    Without ``values`` it is what the cleaner leaves of a batch of one record: a header that counts none.
    ``append_time`` gives all records the largest timestamp.
    """

    base_offset: int
    values: tuple[bytes | None, ...] = (b"v",)
    epoch: int = 0
    timestamp_ms: int = 1_700_000_000_000
    producer_id: int = -1
    producer_epoch: int = -1
    transactional: bool = False
    marker: str | None = None
    keys: tuple[bytes | None, ...] = ()
    headers: tuple[tuple[bytes, bytes | None], ...] = ()  # of every record
    append_time: bool = False

    @property
    def last_offset(self) -> int:
        return self.base_offset + max(len(self.values) - 1, 0)

    @property
    def max_timestamp_ms(self) -> int:
        return self.timestamp_ms + len(self.values) - 1


def message(offset: int, value: str, epoch: int) -> Batch:
    """``o:mN/E`` of the KIP's scripts: one record in a batch of its own."""
    return Batch(offset, (value.encode(),), epoch, timestamp_ms=1_700_000_000_000 + 1000 * offset)


def encode(batch: Batch) -> bytes:
    """The bytes of a batch as a broker stores it; record i has timestamp ``timestamp_ms + i``."""
    if batch.marker is not None and batch.values:
        kind = {"abort": 0, "commit": 1}[batch.marker]
        records = [_record(0, 0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 7))]
    else:
        keys = batch.keys or (None,) * len(batch.values)
        records = [
            _record(i, i, key, value, batch.headers)
            for i, (key, value) in enumerate(zip(keys, batch.values, strict=True))
        ]
    attributes = (_TRANSACTIONAL if batch.transactional or batch.marker else 0) | (_CONTROL if batch.marker else 0)
    attributes |= _LOG_APPEND_TIME if batch.append_time else 0
    covered = struct.pack(
        ">hiqqqhii",
        attributes,
        max(len(records) - 1, 0),
        batch.timestamp_ms,
        batch.timestamp_ms + max(len(records) - 1, 0),
        batch.producer_id,
        batch.producer_epoch,
        -1 if batch.marker or batch.producer_id < 0 else batch.base_offset,
        len(records),
    ) + b"".join(records)
    head = struct.pack(">qiibI", batch.base_offset, 9 + len(covered), batch.epoch, 2, crc32c(covered))
    return head + covered


def crc32c(data: bytes) -> int:
    rest = len(data) % _LANE_BYTES if len(data) >= _LANES_FROM_BYTES else len(data)
    crc = 0xFFFFFFFF
    for byte in data[:rest]:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return _lanes(crc, data[rest:]) ^ 0xFFFFFFFF


def _lanes(crc: int, data: bytes) -> int:
    """Goes on over lanes of the data, all at once: a CRC is linear, so each begins at 0, and they are put together by
    what a lane of zeros makes of each bit of what came before.
    """
    if not data:
        return crc
    lanes = np.frombuffer(data, np.uint8).reshape(-1, _LANE_BYTES).T.astype(np.uint32)
    zeros = np.zeros((_LANE_BYTES, 32), np.uint32)
    state = np.concatenate([np.zeros(lanes.shape[1], np.uint32), np.uint32(1) << np.arange(32, dtype=np.uint32)])
    table = np.array(_TABLE, np.uint32)
    for step in np.hstack([lanes, zeros]):
        state = table[(state ^ step) & 0xFF] ^ (state >> 8)
    own, bits = state[:-32].tolist(), state[-32:].tolist()
    for lane in own:
        behind, bit = 0, 0
        while crc:
            behind ^= bits[bit] if crc & 1 else 0
            crc, bit = crc >> 1, bit + 1
        crc = behind ^ lane
    return int(crc)


def _table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ 0x82F63B78 if value & 1 else value >> 1
        table.append(value)
    return tuple(table)


_TABLE = _table()


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while True:
        byte, value = value & 0x7F, value >> 7
        if not value:
            return bytes([*out, byte])
        out.append(byte | 0x80)


def _record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
) -> bytes:
    body = b"\0" + _varint(timestamp_delta) + _varint(offset_delta) + _field(key) + _field(value)
    body += _varint(len(headers)) + b"".join(_field(name) + _field(value) for name, value in headers)
    return _varint(len(body)) + body


def _field(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data
