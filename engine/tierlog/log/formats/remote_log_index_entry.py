"""Entries of the remote log index of KIP-405's older page: which records of a partition are in the tier, in a file
beside its log.

Entries have different lengths and stand one behind another, big-endian. A segment has one entry or several:

::

    int16 magic 0 | int16 length of the entry | int32 CRC-32 of all that follows | int64 first offset
    int64 last offset | int64 first timestamp | int64 last timestamp | int32 data length | int16 identifier length
    identifier

The page leaves open which bytes the length counts (here: the whole entry) and the checksum's polynomial (here: zlib's).
The identifier is the store's own; ours is the object's key, ``#``, and the position of the data in the object, in
UTF-8.

Beside it stand a remote offset index and a remote time index: the normal formats of 8 and 12 bytes an entry, whose
last field is the position of an entry in the remote log index.

Source: KIP-405 as of September 2020, "Remote Log Indexes".
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from typing_extensions import Buffer

from tierlog.arguments import INT64_MAX, INT64_MIN
from tierlog.errors import CorruptIndexError

MAGIC: Final = 0
_HEAD: Final = struct.Struct(">hhI")
_FACTS: Final = struct.Struct(">qqqqih")
#: Of an entry without its identifier.
FIXED_BYTES: Final = _HEAD.size + _FACTS.size
#: Of an entry: its length is an int16.
ENTRY_BYTES_MAX: Final = 2**15 - 1
IDENTIFIER_BYTES_MAX: Final = ENTRY_BYTES_MAX - FIXED_BYTES
#: Of an entry's data: its length is an int32.
DATA_LENGTH_MAX: Final = 2**31 - 1
#: Of an entry without a timestamp.
NO_TIMESTAMP_MS: Final = -1
_POSITION: Final = re.compile(r"0|[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class RemoteLogIndexEntry:
    """One entry: a range of records that is in the tier.

    Args:
        first_offset: First offset of the records; >= 0.
        last_offset: **Inclusive**; >= first_offset.
        first_timestamp_ms: Timestamp of the first record; -1 if it has none.
        last_timestamp_ms: None of the records is later; -1 if none has one.
        data_length: Bytes of the data at the place that the identifier names; 0 … 2^31-1.
        identifier: Where the data is, at most 32721 bytes (``encode_identifier``).

    Raises:
        ValueError: one of the rules is broken.
    """

    first_offset: int
    last_offset: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    data_length: int
    identifier: bytes

    def __post_init__(self) -> None:
        if not 0 <= self.first_offset <= self.last_offset <= INT64_MAX:
            raise ValueError(f"offsets {self.first_offset} … {self.last_offset} are no range")
        if not 0 <= self.data_length <= DATA_LENGTH_MAX:
            raise ValueError(f"data length {self.data_length} is not 0 … 2^31-1")
        if len(self.identifier) > IDENTIFIER_BYTES_MAX:
            raise ValueError(f"an identifier of {len(self.identifier)} bytes; {IDENTIFIER_BYTES_MAX} are the most")
        for timestamp in (self.first_timestamp_ms, self.last_timestamp_ms):
            if not INT64_MIN <= timestamp <= INT64_MAX:
                raise ValueError(f"timestamp {timestamp} is no 64-bit number")

    @property
    def size_bytes(self) -> int:
        """Size of the entry in its file."""
        return FIXED_BYTES + len(self.identifier)

    def encode(self) -> bytes:
        """Encode the entry."""
        facts = _FACTS.pack(
            self.first_offset,
            self.last_offset,
            self.first_timestamp_ms,
            self.last_timestamp_ms,
            self.data_length,
            len(self.identifier),
        )
        checked = facts + self.identifier
        return _HEAD.pack(MAGIC, self.size_bytes, zlib.crc32(checked)) + checked


def parse_entry(data: Buffer, position: int = 0) -> RemoteLogIndexEntry:
    """Parse the entry that begins at a position; the bytes behind it are not read.

    Args:
        data: The bytes of a file, or of a part of it.
        position: Where the entry begins in ``data``; errors name it.

    Raises:
        CorruptIndexError: TRUNCATED where ``data`` ends inside the entry, so that more of it may help; else
            BAD_VERSION, BAD_SIZE, BAD_CRC or BAD_ENTRY.
    """
    view = memoryview(data).cast("B")
    left = len(view) - position
    if left < FIXED_BYTES:
        raise _corrupt("the file ends inside an entry", "TRUNCATED", position, FIXED_BYTES, left)
    magic, length, stored = _HEAD.unpack_from(view, position)
    if magic != MAGIC:
        raise _corrupt(f"magic {magic}, only {MAGIC} is known", "BAD_VERSION", position, MAGIC, magic)
    first, last, first_ms, last_ms, data_length, named = _FACTS.unpack_from(view, position + _HEAD.size)
    if length != FIXED_BYTES + named or named < 0:
        text = f"an entry of {length} bytes with an identifier of {named}"
        raise _corrupt(text, "BAD_SIZE", position, FIXED_BYTES + named, length)
    if left < length:
        raise _corrupt("the file ends inside an entry", "TRUNCATED", position, length, left)
    computed = zlib.crc32(view[position + _HEAD.size : position + length])
    if computed != stored:
        raise _corrupt(f"CRC-32 0x{computed:08x}, stored 0x{stored:08x}", "BAD_CRC", position, stored, computed)
    try:
        identifier = bytes(view[position + FIXED_BYTES : position + length])
        return RemoteLogIndexEntry(first, last, first_ms, last_ms, data_length, identifier)
    except ValueError as cause:
        raise _corrupt(str(cause), "BAD_ENTRY", position) from cause


def iter_entries(data: Buffer) -> Iterator[tuple[int, RemoteLogIndexEntry]]:
    """Yield (position, entry) of all entries of a file.

    Raises:
        CorruptIndexError: see ``parse_entry``; also BAD_ORDER for an entry that does not begin behind the one before
            it.
    """
    size, position, before = memoryview(data).nbytes, 0, -1
    while position < size:
        entry = parse_entry(data, position)
        require_order(entry, before, position)
        yield position, entry
        position += entry.size_bytes
        before = entry.first_offset


def require_order(entry: RemoteLogIndexEntry, first_offset_before: int, position: int) -> None:
    """Raise CorruptIndexError unless the entry begins behind the one before it. Entries may overlap."""
    if entry.first_offset <= first_offset_before:
        text = f"an entry from offset {entry.first_offset} behind one from {first_offset_before}"
        raise _corrupt(text, "BAD_ORDER", position, first_offset_before + 1, entry.first_offset)


def encode_identifier(key: str, position: int = 0) -> bytes:
    """Encode the identifier of data in a store.

    Args:
        key: The object's key; it may contain a ``#``.
        position: Position of the data's first byte in the object; 0 … 2^63-1.

    Raises:
        ValueError: the position is out of range, the key is no UTF-8, or both together are too long.
    """
    if not 0 <= position <= INT64_MAX:
        raise ValueError(f"position {position} is not 0 … 2^63-1")
    identifier = f"{key}#{position}".encode()
    if len(identifier) > IDENTIFIER_BYTES_MAX:
        raise ValueError(f"an identifier of {len(identifier)} bytes; {IDENTIFIER_BYTES_MAX} are the most")
    return identifier


def parse_identifier(identifier: bytes) -> tuple[str, int]:
    """Return (key, position) of an identifier of ours; each has one spelling. Raises CorruptIndexError: not of our
    form.
    """
    try:
        key, mark, digits = identifier.decode().rpartition("#")
    except UnicodeDecodeError as cause:
        raise CorruptIndexError(f"an identifier that is no UTF-8: {identifier!r:.80}", fault="BAD_ENTRY") from cause
    if not mark or _POSITION.fullmatch(digits) is None or int(digits) > INT64_MAX:
        raise CorruptIndexError(f"{identifier!r:.80} is not <key>#<position>", fault="BAD_ENTRY")
    return key, int(digits)


def _corrupt(text: str, fault: str, position: int, expected: int = 0, found: int = 0) -> CorruptIndexError:
    return CorruptIndexError(text, fault=fault, position=position, expected=expected, found=found)
