"""Compressed streams as Kafka's clients and brokers write them (reading is native: ``tierlog/codec.h``).

gzip: one member, operating system 255. snappy: snappy-java's stream, blocks of 32 KiB. lz4: a frame of independent
64 KiB blocks without checksums. zstd: one frame, by the core; it declares its content size, which Kafka's streams do
not and any reader takes.

Blocks of snappy and lz4 are Arrow's, which is imported where they are written: a log with its producers' codecs needs
none.

Source: Kafka GzipCompression, SnappyCompression, Lz4BlockOutputStream, ZstdCompression.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

import xxhash

from tierlog._native.codecs import compress_bound, compress_into
from tierlog.records.batch_table import CODEC_NAMES

_GZIP_HEADER: Final = bytes.fromhex("1f8b08000000000000ff")
_XERIAL_HEADER: Final = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK_BYTES: Final = 32 << 10
_LZ4_FRAME_MAGIC: Final = bytes.fromhex("04224d18")
_LZ4_DESCRIPTOR: Final = b"\x60\x40"
_LZ4_BLOCK_BYTES: Final = 64 << 10
_LZ4_STORED: Final = 0x80000000
#: Kafka's default level, which stands for the fast compressor; any other value is one of the slow one.
_LZ4_FAST: Final = 9
_ZSTD_LEVEL: Final = 3


def codec_number(codec: int | str) -> int:
    """Return the number of a codec given by number or by name, as ``compression.type`` has it."""
    if isinstance(codec, str):
        if codec not in CODEC_NAMES:
            raise ValueError(f"codec {codec!r} is none of {', '.join(CODEC_NAMES)}")
        return CODEC_NAMES.index(codec)
    if not 0 <= codec < len(CODEC_NAMES):
        raise ValueError(f"codec {codec} is not 0 to {len(CODEC_NAMES) - 1}")
    return codec


def compress(data: bytes, codec: int | str, *, magic: int = 2, level: int | None = None) -> bytes:
    """Compress one stream of a record batch.

    Args:
        data: The records back to back (magic 2), or the inner message set (magic 0 and 1).
        codec: Number or name; "none" gives the data back.
        magic: The batch's magic: magic 0 has LZ4's wrong header checksum, magic 0 and 1 have no zstd.
        level: The level, as in ``compression.gzip.level`` and its like; None = Kafka's default. Snappy has no levels.
    """
    number = codec_number(codec)
    name = CODEC_NAMES[number]
    if name == "none":
        return data
    if name == "gzip":
        return _gzip(data, -1 if level is None else level)
    if name == "snappy":
        return _snappy(data)
    if name == "lz4":
        return _lz4(data, _LZ4_FAST if level is None else level, broken_checksum=magic == 0)
    if magic < 2:
        raise ValueError(f"magic {magic} has no zstd")
    return _zstd(data, _ZSTD_LEVEL if level is None else level)


def _blocks(data: bytes, size_bytes: int) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[at : at + size_bytes] for at in range(0, len(data), size_bytes))


def _gzip(data: bytes, level: int) -> bytes:
    deflate = zlib.compressobj(level, zlib.DEFLATED, -15)
    body = deflate.compress(data) + deflate.flush()
    return _GZIP_HEADER + body + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def _snappy(data: bytes) -> bytes:
    import pyarrow as pa

    compress_block = pa.Codec("snappy").compress
    parts = [_XERIAL_HEADER]
    for block in _blocks(data, _SNAPPY_BLOCK_BYTES):
        compressed = compress_block(block, asbytes=True)
        parts += [struct.pack(">i", len(compressed)), compressed]
    return b"".join(parts)


def _lz4(data: bytes, level: int, *, broken_checksum: bool) -> bytes:
    import pyarrow as pa

    # The first writers hashed from the frame's magic instead of from the flags, and had to go on with it.
    hashed = _LZ4_FRAME_MAGIC + _LZ4_DESCRIPTOR if broken_checksum else _LZ4_DESCRIPTOR
    parts = [_LZ4_FRAME_MAGIC, _LZ4_DESCRIPTOR, bytes([xxhash.xxh32_intdigest(hashed) >> 8 & 0xFF])]
    compress_block = pa.Codec("lz4_raw", compression_level=None if level == _LZ4_FAST else level).compress
    for block in _blocks(data, _LZ4_BLOCK_BYTES):
        compressed = compress_block(block, asbytes=True)
        if len(compressed) < len(block):
            parts += [struct.pack("<I", len(compressed)), compressed]
        else:
            parts += [struct.pack("<I", len(block) | _LZ4_STORED), bytes(block)]
    return b"".join([*parts, bytes(4)])


def _zstd(data: bytes, level: int) -> bytes:
    frame = bytearray(compress_bound(len(data)))
    size = compress_into(data, frame, level=level)
    return bytes(memoryview(frame)[:size])
