"""The fields of Kafka's generated messages: fixed-width numbers, compact strings and arrays, tagged fields.

Two encodings: the flexible one (lengths and counts as unsigned varint of n + 1, 0 for null, a block of tagged fields
behind every structure) and the old one (int16 and int32 lengths, -1 for null). All numbers are big-endian.

Input is hostile: every length and count is compared with the bytes that are left before anything is made of it.

Source: KIP-482; Kafka ByteBufferAccessor, RawTaggedField.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from typing_extensions import Buffer

from tierlog.errors import CorruptRecordError

VARINT_SIZE_BYTES_MAX = 5
_NUMBERS = {1: struct.Struct(">b"), 2: struct.Struct(">h"), 4: struct.Struct(">i"), 8: struct.Struct(">q")}


def corrupt(text: str, fault: str, position: int, *, expected: int = 0, found: int = 0) -> CorruptRecordError:
    """Make the error of a malformed message; the position is that in the record's key or value."""
    return CorruptRecordError(text, fault=fault, position=position, expected=expected, found=found)


class MessageReader:
    """A read position over one message. Every read raises CorruptRecordError where the bytes do not hold it."""

    def __init__(self, data: Buffer) -> None:
        self._view = memoryview(data).cast("B")
        self.position = 0

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self._view) - self.position

    def take(self, size_bytes: int, what: str) -> memoryview:
        if not 0 <= size_bytes <= self.left:
            text = f"{what} takes {size_bytes} bytes, {self.left} are left"
            raise corrupt(text, "TRUNCATED", self.position, expected=size_bytes, found=self.left)
        start, self.position = self.position, self.position + size_bytes
        return self._view[start : self.position]

    def number(self, size_bytes: int, what: str) -> int:
        """Read a signed number of 1, 2, 4 or 8 bytes."""
        value: int = _NUMBERS[size_bytes].unpack(self.take(size_bytes, what))[0]
        return value

    def unsigned_varint(self, what: str) -> int:
        """Read an unsigned varint of at most five bytes: 0 … 2^32-1."""
        start, value = self.position, 0
        for place in range(VARINT_SIZE_BYTES_MAX):
            byte = self.take(1, what)[0]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value & 0xFFFFFFFF
        raise corrupt(f"{what}: a varint of more than {VARINT_SIZE_BYTES_MAX} bytes", "BAD_VARINT", start)

    def compact_bytes(self, what: str) -> bytes | None:
        """Compact bytes; None for null."""
        size = self.unsigned_varint(f"length of {what}") - 1
        return None if size < 0 else bytes(self.take(size, what))

    def compact_string(self, what: str) -> str:
        """Read a compact string. Null is an error, as it is in Kafka for a field that is not nullable."""
        start = self.position
        raw = self.compact_bytes(what)
        if raw is None:
            raise corrupt(f"{what} is null", "BAD_FIELD_LENGTH", start)
        return self._text(raw, start, what)

    def string(self, what: str) -> str:
        """Read a string of the old form, with an int16 length. Null is an error."""
        start = self.position
        size = self.number(2, f"length of {what}")
        if size < 0:
            raise corrupt(f"{what} has length {size}", "BAD_FIELD_LENGTH", start, found=size)
        return self._text(bytes(self.take(size, what)), start, what)

    def compact_count(self, what: str, element_size_bytes_min: int) -> int | None:
        """Read the number of elements of a compact array; None for null."""
        start = self.position
        return self._count(start, self.unsigned_varint(f"number of {what}") - 1, what, element_size_bytes_min)

    def count(self, what: str, element_size_bytes_min: int) -> int | None:
        """Read the number of elements of an array of the old form, an int32; None for null."""
        start = self.position
        return self._count(start, self.number(4, f"number of {what}"), what, element_size_bytes_min)

    def tagged_fields(self) -> dict[int, memoryview]:
        """Tag → content of all tagged fields, known or not; of a repeated tag the last one counts."""
        fields = {}
        for _ in range(self._count(self.position, self.unsigned_varint("number of tags"), "tags", 2) or 0):
            tag = self.unsigned_varint("tag")
            fields[tag] = self.take(self.unsigned_varint("size of a tagged field"), f"tagged field {tag}")
        return fields

    def finish(self) -> None:
        """Raise CorruptRecordError if bytes are left over."""
        if self.left:
            text = f"{self.left} bytes left over behind the message"
            raise corrupt(text, "TRAILING_BYTES", self.position, found=self.left)

    def _count(self, start: int, count: int, what: str, element_size_bytes_min: int) -> int | None:
        if count < 0:
            return None
        if count > self.left // element_size_bytes_min:
            raise corrupt(f"{count} {what} in {self.left} bytes", "BAD_COUNT", start, expected=count, found=self.left)
        return count

    @staticmethod
    def _text(raw: bytes, position: int, what: str) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as cause:
            raise corrupt(f"{what} is not UTF-8", "BAD_FIELD_LENGTH", position) from cause


class MessageWriter:
    """The counterpart of MessageReader: appends fields, all in the flexible encoding."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def number(self, size_bytes: int, value: int) -> None:
        """Append a signed number of 1, 2, 4 or 8 bytes. Raises ValueError: the number does not fit."""
        try:
            self._bytes += _NUMBERS[size_bytes].pack(value)
        except struct.error:
            raise ValueError(f"{value} does not fit into {8 * size_bytes} bits, which its field has") from None

    def raw(self, data: Buffer) -> None:
        self._bytes += memoryview(data).cast("B")

    def unsigned_varint(self, value: int) -> None:
        while value > 0x7F:
            self._bytes.append(value & 0x7F | 0x80)
            value >>= 7
        self._bytes.append(value)

    def compact_bytes(self, value: bytes | None) -> None:
        self.unsigned_varint(0 if value is None else len(value) + 1)
        self._bytes += value or b""

    def compact_string(self, value: str) -> None:
        self.compact_bytes(value.encode("utf-8"))

    def compact_count(self, count: int) -> None:
        self.unsigned_varint(count + 1)

    def tagged_fields(self, fields: Mapping[int, bytes] | None = None) -> None:
        fields = fields or {}
        self.unsigned_varint(len(fields))
        for tag, content in sorted(fields.items()):
            self.unsigned_varint(tag)
            self.unsigned_varint(len(content))
            self._bytes += content

    def finish(self) -> bytes:
        return bytes(self._bytes)
