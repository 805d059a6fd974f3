"""Building of the old message sets, magic 0 and 1: nothing writes them any more, but logs and tests hold them.

Each entry: ``int64 offset, int32 size, uint32 crc, int8 magic, int8 attributes[, int64 timestamp], int32 keyLength,
key, int32 valueLength, value``. A compressed set is one entry, the wrapper, whose value is the stream of the entries.

Source: Kafka LegacyRecord, AbstractLegacyRecordBatch, MemoryRecordsBuilder.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from tierlog.records.batch_table import LOG_APPEND_TIME
from tierlog.records.compression import codec_number, compress

NO_TIMESTAMP: Final = -1


def encode_message(
    magic: int,
    *,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    timestamp_ms: int = NO_TIMESTAMP,
    attributes: int = 0,
) -> bytes:
    """One entry as it is given, with a right size and checksum. Magic 0 has no timestamp."""
    if magic not in (0, 1):
        raise ValueError(f"magic {magic} is no message set")
    covered = struct.pack(">bB", magic, attributes)
    if magic == 1:
        covered += struct.pack(">q", timestamp_ms)
    covered += _field(key) + _field(value)
    return struct.pack(">qiI", offset, 4 + len(covered), zlib.crc32(covered)) + covered


def _field(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


class MessageSetBuilder:
    """A set of messages, plain or in one compressed wrapper.

    Args:
        magic: 0 or 1.
        base_offset: Kafka offset of the first message.
        codec: Number or name; not zstd.
        log_append_time_ms: All messages report this timestamp (magic 1); None = CreateTime.
    """

    def __init__(
        self, magic: int, base_offset: int, *, codec: int | str = "none", log_append_time_ms: int | None = None
    ) -> None:
        if magic == 0 and log_append_time_ms is not None:
            raise ValueError("magic 0 has no timestamps")
        self.magic = magic
        self.base_offset = base_offset
        self._codec = codec_number(codec)
        self._log_append_time_ms = log_append_time_ms
        self._next_offset = base_offset
        self._max_timestamp = NO_TIMESTAMP
        self._messages: list[bytes] = []

    def append(
        self, key: bytes | None, value: bytes | None, *, timestamp_ms: int = NO_TIMESTAMP, offset: int | None = None
    ) -> None:
        """Add a message; ``offset`` None = the one after the message before."""
        offset = self._next_offset if offset is None else offset
        if offset < self._next_offset:
            raise ValueError(f"offset {offset} does not follow {self._next_offset - 1}")
        if self._log_append_time_ms is not None and not self._codec:
            timestamp_ms = self._log_append_time_ms
        # In a wrapper of magic 1 offsets are relative, so that the broker need not compress anew to assign them.
        stored = offset - self.base_offset if self._codec and self.magic == 1 else offset
        message = encode_message(
            self.magic,
            offset=stored,
            key=key,
            value=value,
            timestamp_ms=timestamp_ms,
            attributes=self._timestamp_type(),
        )
        self._messages.append(message)
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)
        self._next_offset = offset + 1

    def build(self) -> bytes:
        """The entries so far: one a message, or one wrapper (none for no messages)."""
        content = b"".join(self._messages)
        if not self._codec or not content:
            return content
        timestamp = self._max_timestamp if self._log_append_time_ms is None else self._log_append_time_ms
        return encode_message(
            self.magic,
            offset=self._next_offset - 1,
            key=None,
            value=compress(content, self._codec, magic=self.magic),
            timestamp_ms=timestamp,
            attributes=self._codec | self._timestamp_type(),
        )

    def _timestamp_type(self) -> int:
        return LOG_APPEND_TIME if self._log_append_time_ms is not None else 0
