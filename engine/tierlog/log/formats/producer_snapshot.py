"""The producer snapshot: a broker's state of each producer at one offset.

``int16 version 1, uint32 CRC-32C of all that follows, int32 count``, then 46 bytes a producer, big-endian: ``int64
producer id, int16 producer epoch, int32 last sequence, int64 last offset, int32 offset delta, int64 timestamp, int32
coordinator epoch, int64 first offset of the open transaction``; -1 for a missing value. Only the newest batch of each
producer is stored; the order of producers has no meaning.

Source: Kafka ProducerStateManager#readSnapshot.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from typing_extensions import Buffer

from tierlog._native.checksums import crc32c
from tierlog.errors import CorruptIndexError

VERSION = 1
_HEADER = struct.Struct(">hIi")
_CHECKED_FROM = 6
_ENTRY = np.dtype(
    [
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp_ms", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("transaction_first_offset", ">i8"),
    ]
)
ENTRY_SIZE_BYTES = _ENTRY.itemsize


def first_sequence(last_sequence: int, offset_delta: int) -> int:
    """Return the first sequence number of a batch. Sequence numbers wrap from 2^31-1 to 0."""
    first = last_sequence - offset_delta
    return first if first >= 0 else first + 2**31


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """One producer.

    Attributes:
        last_sequence: Last sequence number of the last batch; -1 if no batch is known (only a marker was seen).
        last_offset: Last offset of the last batch; -1 if none is known.
        offset_delta: Last minus first offset of that batch.
        timestamp_ms: Timestamp of the last batch or marker.
        coordinator_epoch: Coordinator epoch of the last marker; -1 if there was none.
        transaction_first_offset: First offset of the open transaction; -1 if none is open.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int

    @property
    def has_batch(self) -> bool:
        """Whether a data batch of this producer is known, as Kafka decides it."""
        return self.last_offset >= 0

    @property
    def first_sequence(self) -> int:
        """First sequence number of the last batch."""
        return first_sequence(self.last_sequence, self.offset_delta)


@dataclass(frozen=True, slots=True)
class ProducerSnapshot:
    """All producers of a partition at one offset, in the file's order."""

    entries: tuple[ProducerEntry, ...]

    def open_transactions(self) -> dict[int, int]:
        """Return producer id → first offset of its open transaction."""
        return {e.producer_id: e.transaction_first_offset for e in self.entries if e.transaction_first_offset >= 0}


def parse_producer_snapshot(data: Buffer) -> ProducerSnapshot:
    """Read a ``.snapshot`` file.

    Raises:
        CorruptIndexError: too short, an unknown version, a wrong checksum, or a count that is not that of the bytes.
    """
    view = memoryview(data).cast("B")
    if len(view) < _HEADER.size:
        text = f"a producer snapshot has at least {_HEADER.size} bytes, this file {len(view)}"
        raise CorruptIndexError(text, fault="TRUNCATED", position=0, expected=_HEADER.size, found=len(view))
    version, stored, count = _HEADER.unpack_from(view)
    if version != VERSION:
        text = f"producer snapshot version {version}, only {VERSION} is known"
        raise CorruptIndexError(text, fault="BAD_VERSION", position=0, expected=VERSION, found=version)
    computed = crc32c(view[_CHECKED_FROM:])
    if computed != stored:
        text = f"CRC-32C 0x{computed:08x}, stored 0x{stored:08x}"
        raise CorruptIndexError(text, fault="BAD_CRC", position=2, expected=stored, found=computed)
    size = _HEADER.size + count * ENTRY_SIZE_BYTES
    if count < 0 or size != len(view):
        text = f"{count} producers declared, which makes {size} bytes; the file has {len(view)}"
        raise CorruptIndexError(text, fault="BAD_COUNT", position=_CHECKED_FROM, expected=count, found=len(view))
    rows = np.frombuffer(view, _ENTRY, offset=_HEADER.size)
    return ProducerSnapshot(tuple(ProducerEntry(*row) for row in rows.tolist()))


def encode_producer_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Encode a ``.snapshot`` file, producers in the given order."""
    rows = np.array(
        [
            (
                e.producer_id,
                e.producer_epoch,
                e.last_sequence,
                e.last_offset,
                e.offset_delta,
                e.timestamp_ms,
                e.coordinator_epoch,
                e.transaction_first_offset,
            )
            for e in entries
        ],
        _ENTRY,
    )
    body = struct.pack(">i", rows.size) + rows.tobytes()
    return struct.pack(">hI", VERSION, crc32c(body)) + body
