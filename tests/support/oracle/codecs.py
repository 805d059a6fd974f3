"""Decompression of batch payloads through the Python packages, framings by hand.

Format: docs/formats/log-files.md, Compression.

Each ``_…`` function raises ``_Corrupt`` or ``_TooLarge``; ``decompress`` makes them BAD_COMPRESSED and OVER_LIMIT. What
the readers of Kafka 4.3 let pass, passes: bytes behind the last gzip member or the LZ4 end mark, LZ4's content
checksum, and with magic 0 its header checksum. What Kafka refuses and a codec library takes is refused: linked LZ4
blocks, zstd windows above 128 MiB. Stricter than Kafka: bytes that are no whole snappy block are not dropped, and the
checksum and size of every gzip member count.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

import lz4.block
import xxhash
import zstandard

from tierlog.errors import CorruptRecordError, SizeLimitError

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER_SIZE: Final = 16
_LZ4_MAGIC: Final = 0x184D2204
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = range(0x184D2A50, 0x184D2A60)
_ZSTD_WINDOW_MAX: Final = 1 << 27
#: Input of one step of a streaming decompressor: 16 run-length blocks of 128 KiB at most, so a bomb stays small.
_STEP_BYTES: Final = 64


class _Corrupt(Exception):
    pass


class _TooLarge(Exception):
    pass


class _Rest:
    """The bytes that are left, read piece by piece."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def take(self, size: int) -> bytes:
        part = self.data[self.at : self.at + size]
        if len(part) < size:
            raise _Corrupt("it ends too early")
        self.at += size
        return part


def decompress(data: bytes, codec: int, *, magic: int = 2, limit: int = 1 << 28) -> bytes:
    """The content of one compressed stream.

    Raises:
        CorruptRecordError: BAD_CODEC or BAD_COMPRESSED.
        SizeLimitError: OVER_LIMIT: the content is larger than ``limit`` bytes.
    """
    if codec not in (GZIP, SNAPPY, LZ4, ZSTD) or (codec == ZSTD and magic < 2):
        raise CorruptRecordError(f"codec {codec} is unknown to magic {magic}", fault="BAD_CODEC", found=codec)
    try:
        if codec == GZIP:
            return _gzip(data, limit)
        if codec == SNAPPY:
            return _snappy(data, limit)
        if codec == LZ4:
            return _lz4(data, limit, check_header=magic > 0)
        return _zstd(data, limit)
    except _TooLarge:
        text = f"more than {limit} bytes of content"
        raise SizeLimitError(text, fault="OVER_LIMIT", expected=limit) from None
    except _Corrupt as error:
        raise CorruptRecordError(f"a corrupt stream: {error}", fault="BAD_COMPRESSED") from error


# ---- gzip ---------------------------------------------------------------------------------------------------------


def _gzip(data: bytes, limit: int) -> bytes:
    content = bytearray()
    rest = data
    first = True
    while first or rest:
        try:
            size = _gzip_header_size(rest)
        except _Corrupt:
            if first:
                raise
            return bytes(content)  # java.util.zip.GZIPInputStream: no member begins here, so it is over
        stream = zlib.decompressobj(wbits=-15)
        try:
            member = stream.decompress(rest[size:], limit - len(content) + 1)
        except zlib.error as error:
            raise _Corrupt(str(error)) from error
        content += member
        if len(content) > limit:
            raise _TooLarge
        if not stream.eof:
            raise _Corrupt("it ends inside a member")
        trailer = stream.unused_data[:8]
        if trailer != struct.pack("<II", zlib.crc32(member), len(member) & 0xFFFFFFFF):
            raise _Corrupt("checksum or size of a member differ")
        rest = stream.unused_data[8:]
        first = False
    return bytes(content)


def _gzip_header_size(data: bytes) -> int:
    """RFC 1952: 10 bytes, then what the flags announce. Reserved flags are not looked at, as in Java."""
    if len(data) < 10 or data[:3] != b"\x1f\x8b\x08":
        raise _Corrupt("no gzip member")
    flags, at = data[3], 10
    if flags & 4:  # FEXTRA
        if len(data) < at + 2:
            raise _Corrupt("it ends inside a header")
        at += 2 + int.from_bytes(data[at : at + 2], "little")
    for flag in (8, 16):  # FNAME, FCOMMENT
        if flags & flag:
            end = data.find(b"\0", at)
            if at > len(data) or end < 0:
                raise _Corrupt("it ends inside a header")
            at = end + 1
    if flags & 2:  # FHCRC
        if data[at : at + 2] != (zlib.crc32(data[:at]) & 0xFFFF).to_bytes(2, "little"):
            raise _Corrupt("the checksum of a header differs")
        at += 2
    if at > len(data):
        raise _Corrupt("it ends inside a header")
    return at


# ---- snappy -------------------------------------------------------------------------------------------------------


def _snappy(data: bytes, limit: int) -> bytes:
    """All blocks and the sizes they declare first, then the limit, then what is in them."""
    blocks = list(_snappy_blocks(data))
    sizes = [_snappy_content_size(block) for block in blocks]
    if sum(sizes) > limit:
        raise _TooLarge
    content = bytearray()
    for block, size in zip(blocks, sizes, strict=True):
        content += _snappy_block(block, size)
    return bytes(content)


def _snappy_block(block: bytes, size: int) -> bytes:
    """Literals and copies up to the end of the block, which must be the end of the content.

    By hand, since cramjam refuses what libsnappy and so Kafka reads: a literal whose length has bytes of its own, where
    fewer than four bytes are behind the tag (``01 f0 00 61`` is "a").
    """
    content = bytearray()
    rest = _Rest(block, _uvarint_size(block))
    take = rest.take
    while rest.at < len(block):
        (tag,) = take(1)
        if tag & 3 == 0:
            length = tag >> 2
            if length >= 60:
                length = int.from_bytes(take(length - 59), "little")
            length += 1
            content += take(length)
        else:
            if tag & 3 == 1:
                length, distance = 4 + (tag >> 2 & 7), tag >> 5 << 8 | take(1)[0]
            else:
                length, distance = 1 + (tag >> 2), int.from_bytes(take(2 if tag & 3 == 2 else 4), "little")
            if not 0 < distance <= len(content):
                raise _Corrupt("a copy from before the block")
            pattern = content[-distance:][:length]
            content += (pattern * (length // len(pattern) + 1))[:length]
        if len(content) > size:
            break
    if len(content) != size:
        raise _Corrupt("a block is not what it declares")
    return bytes(content)


def _snappy_blocks(data: bytes) -> Iterator[bytes]:
    """The raw blocks of a snappy-java stream; without its header the data are one raw block."""
    if len(data) < _XERIAL_HEADER_SIZE or not data.startswith(XERIAL_MAGIC):
        yield data
        return
    at = 0
    while at < len(data):
        if data[at : at + 4] == XERIAL_MAGIC[:4]:  # a header: of the stream, or of another one put behind it
            header = data[at : at + _XERIAL_HEADER_SIZE]
            if len(header) < _XERIAL_HEADER_SIZE or not header.startswith(XERIAL_MAGIC):
                raise _Corrupt("it ends inside a header")
            # Of the first header snappy-java does not look at the version (1.1.10.7 was asked).
            if at and struct.unpack_from(">i", header, 8)[0] < 1:
                raise _Corrupt("an unknown version")
            at += _XERIAL_HEADER_SIZE
            continue
        size = int.from_bytes(data[at : at + 4], "big")
        if len(data) - at < 4 or size > len(data) - at - 4:
            raise _Corrupt("it ends inside a block")
        yield data[at + 4 : at + 4 + size]
        at += 4 + size


def _uvarint_size(block: bytes) -> int:
    for size in range(1, 6):
        if len(block) < size:
            break
        if block[size - 1] < 0x80:
            return size
    raise _Corrupt("the size of a block")


def _snappy_content_size(block: bytes) -> int:
    """The uvarint in front. Three bytes copy at most 64, so a block cannot grow by more than that."""
    width = _uvarint_size(block)
    size = sum((block[i] & 0x7F) << 7 * i for i in range(width))
    if size >= 1 << 32 or size // 64 > len(block) // 3:
        raise _Corrupt("a size that the block cannot hold")
    return size


# ---- lz4 ----------------------------------------------------------------------------------------------------------


def _lz4(data: bytes, limit: int, *, check_header: bool) -> bytes:
    block_size_max, blocks = _lz4_blocks(data, check_header=check_header)
    content = bytearray()
    for block, stored in blocks:
        if stored:
            content += block
        else:
            try:
                content += lz4.block.decompress(block, uncompressed_size=block_size_max)
            except lz4.block.LZ4BlockError as error:
                raise _Corrupt(str(error)) from error
        if len(content) > limit:
            raise _TooLarge
    return bytes(content)


def _lz4_blocks(data: bytes, *, check_header: bool) -> tuple[int, list[tuple[bytes, bool]]]:
    """(largest content of a block, [(bytes, stored uncompressed)]): Kafka's KafkaLZ4BlockInputStream."""
    rest = _Rest(data)
    take = rest.take
    magic, flags, sizes = struct.unpack("<IBB", take(6))
    if magic != _LZ4_MAGIC:
        raise _Corrupt("no LZ4 frame")
    if flags >> 6 != 1 or not flags & 0x20 or flags & 0x03:
        raise _Corrupt(f"flags 0x{flags:02x}")
    if sizes & 0x8F or sizes >> 4 < 4:
        raise _Corrupt(f"block descriptor 0x{sizes:02x}")
    if flags & 0x08:
        take(8)  # content size: not looked at
    descriptor = data[4 : rest.at]
    (checksum,) = take(1)
    if check_header and checksum != xxhash.xxh32_intdigest(descriptor) >> 8 & 0xFF:
        raise _Corrupt("the checksum of the header differs")
    block_size_max = 1 << (8 + 2 * (sizes >> 4))
    blocks = []
    while True:
        (word,) = struct.unpack("<I", take(4))
        size = word & 0x7FFFFFFF
        if size == 0:
            break
        if size > block_size_max:
            raise _Corrupt("a block larger than declared")
        block = take(size)
        if flags & 0x10 and take(4) != struct.pack("<I", xxhash.xxh32_intdigest(block)):
            raise _Corrupt("the checksum of a block differs")
        blocks.append((block, bool(word & 0x80000000)))
    if flags & 0x04:
        take(4)  # content checksum: read past, not compared
    return block_size_max, blocks


# ---- zstd ---------------------------------------------------------------------------------------------------------


def _zstd(data: bytes, limit: int) -> bytes:
    """Frames and skippable frames up to the end of the data; no data is no content."""
    content = bytearray()
    rest = data
    while rest:
        if len(rest) < 4:
            raise _Corrupt("it ends inside a frame")
        magic = int.from_bytes(rest[:4], "little")
        if magic in _ZSTD_SKIPPABLE:
            size = 8 + int.from_bytes(rest[4:8], "little")
            if len(rest) < size:
                raise _Corrupt("it ends inside a frame")
            rest = rest[size:]
            continue
        if magic != _ZSTD_MAGIC:
            raise _Corrupt("no zstd frame")
        part, rest = _zstd_frame(rest, limit - len(content))
        content += part
    return bytes(content)


def _zstd_frame(data: bytes, limit: int) -> tuple[bytes, bytes]:
    """(content, the bytes behind the frame)."""
    stream = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX).decompressobj()
    content = bytearray()
    for at in range(0, len(data), _STEP_BYTES):
        try:
            content += stream.decompress(data[at : at + _STEP_BYTES])
        except zstandard.ZstdError as error:
            raise _Corrupt(str(error)) from error
        if len(content) > limit:
            raise _TooLarge
        if stream.eof:
            return bytes(content), stream.unused_data + data[at + _STEP_BYTES :]
    raise _Corrupt("it ends inside a frame")
