"""Frames: ``i32`` length of the body, ``u8`` type, body; all numbers big-endian."""

from __future__ import annotations

import json
import struct
from typing import BinaryIO, Final

PROTOCOL: Final = 4
#: Of a body.
FRAME_BYTES_MAX: Final = 64 << 20

_HEAD: Final = struct.Struct(">iB")
_I32: Final = struct.Struct(">i")


class PlanProtocolError(Exception):
    """The bytes are no request of this protocol: a fault of the caller."""


class BrokenStreamError(PlanProtocolError):
    """The bytes are no frame, so that the beginning of the next one is unknown."""


def read_frame(stream: BinaryIO) -> tuple[str, bytes] | None:
    """(type, body) of the next frame; None at the end of the stream.

    Raises:
        BrokenStreamError: the stream ends inside a frame, or the bytes are no frame.
    """
    head = _read_up_to(stream, _HEAD.size)
    if not head:
        return None
    if len(head) < _HEAD.size:
        raise BrokenStreamError(f"a frame was cut after {len(head)} of the {_HEAD.size} bytes of its head")
    size_bytes, kind = _HEAD.unpack(head)
    if not 0 <= size_bytes <= FRAME_BYTES_MAX or not 0x41 <= kind <= 0x5A:
        raise BrokenStreamError(f"a frame of type 0x{kind:02x} and {size_bytes} bytes is none of the protocol's")
    body = _read_up_to(stream, size_bytes)
    if len(body) < size_bytes:
        raise BrokenStreamError(f"a frame was cut after {len(body)} of its {size_bytes} bytes")
    return chr(kind), body


def _read_up_to(stream: BinaryIO, size_bytes: int) -> bytes:
    """Read up to a size into memory that grows with the bytes, so that a wrong length allocates nothing."""
    found = bytearray()
    while len(found) < size_bytes:
        more = stream.read(min(size_bytes - len(found), 1 << 20))
        if not more:
            break
        found += more
    return bytes(found)


class FrameWriter:
    """Writes frames to a buffered stream. One thread at a time."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, kind: str, body: bytes | bytearray | memoryview = b"") -> None:
        """Write one frame. Raises ValueError: the body is larger than a frame may be."""
        if len(body) > FRAME_BYTES_MAX:
            raise ValueError(f"a frame {kind} of {len(body)} bytes, at most {FRAME_BYTES_MAX} are allowed")
        self._stream.write(_HEAD.pack(len(body), ord(kind)))
        self._stream.write(body)

    def write_json(self, kind: str, value: object) -> None:
        self.write(kind, json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))

    def warn(self, text: str) -> None:
        """Write a warning for the driver's log."""
        self.write("W", packed_text(text))

    def flush(self) -> None:
        self._stream.flush()


def packed_text(text: str) -> bytes:
    """Pack a ``str`` field. Characters that UTF-8 cannot express (half a surrogate pair of a file name) become question
    marks.
    """
    return packed_bytes(text.encode("utf-8", "replace"))


def packed_bytes(data: bytes | None) -> bytes:
    """Pack a ``bytes`` field, with length -1 for null."""
    return _I32.pack(-1) if data is None else _I32.pack(len(data)) + data
