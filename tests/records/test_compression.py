"""Compressed streams: written as Kafka writes them, read by oracle and native alike."""

from __future__ import annotations

import gzip
import random
import struct
import zlib

import cramjam
import lz4.frame
import pytest
import xxhash
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import oracle as reference
from tierlog._native import codecs
from tierlog.errors import CorruptDataError, CorruptRecordError, SizeLimitError
from tierlog.records.compression import compress

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = (GZIP, SNAPPY, LZ4, ZSTD)

# Streams of Kafka 4.3's own writers: nothing, and 70000 times "a" where the stream is short.
EMPTY = {
    GZIP: "1f8b08000000000000ff03000000000000000000",
    SNAPPY: "82534e41505059000000000100000001",
    LZ4: "04224d1860408200000000",
    ZSTD: "28b52ffd2000010000",
}
SEVENTY_THOUSAND_ZSTD = "28b52ffd005854000010616101006b1139c002010000"


def both(stream: bytes, codec: int, *, magic: int = 2, limit: int = 1 << 20) -> bytes | str:
    """The content, or the name of the fault; asserts that native and oracle agree."""
    answers = []
    for decompress in (reference.decompress, codecs.decompress):
        try:
            answers.append(decompress(stream, codec, magic=magic, limit=limit))
        except CorruptDataError as error:
            answers.append(error.fault)
    assert answers[0] == answers[1]
    return answers[0]


@pytest.mark.parametrize("codec", CODECS)
def test_the_streams_of_kafka(codec: int) -> None:
    """What the broker wrote must be read, and what we write must be what it would have written."""
    assert both(bytes.fromhex(EMPTY[codec]), codec) == b""
    assert both(compress(b"", codec), codec) == b""
    if codec != GZIP:
        assert compress(b"", codec).hex() == EMPTY[codec]
    data = b"a" * 70_000
    assert both(compress(data, codec), codec) == data
    if codec == ZSTD:
        assert both(bytes.fromhex(SEVENTY_THOUSAND_ZSTD), codec) == data
    if codec == SNAPPY:  # 16 bytes of header, three blocks of 32 KiB at most
        assert len(compress(data, codec)) == 3324
    if codec == LZ4:  # two blocks of 64 KiB at most
        assert len(compress(data, codec)) == 314


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=30, deadline=None)
@given(data=st.binary(max_size=300), repeat=st.integers(0, 600), magic=st.sampled_from([0, 1, 2]))
def test_round_trip(codec: int, data: bytes, repeat: int, magic: int) -> None:
    """Whatever is compressed comes out again, whole blocks and parts of them."""
    if codec == ZSTD:
        magic = 2
    content = data * repeat
    assert both(compress(content, codec, magic=magic), codec, magic=magic) == content


@pytest.mark.parametrize("level", [1, 9])
@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_levels(codec: int, level: int) -> None:
    """A topic with ``compression.*.level`` reads as any other."""
    data = bytes(range(256)) * 300
    assert both(compress(data, codec, level=level), codec) == data


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_a_limit(codec: int) -> None:
    """A few bytes that become gigabytes take the machine down."""
    stream = compress(bytes(5000), codec)
    assert both(stream, codec, limit=5000) == bytes(5000)
    assert both(stream, codec, limit=4999) == "OVER_LIMIT"
    assert both(stream, codec, limit=0) == "OVER_LIMIT"
    with pytest.raises(SizeLimitError):
        codecs.decompress(stream, codec, limit=100)


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_is_named(codec: int) -> None:
    """A stream that ends early must not pass for a shorter one."""
    content = random.Random(7).randbytes(200) * 2
    stream = compress(content, codec)
    for size in range(1, len(stream)):
        answer = both(stream[:size], codec)
        if codec == SNAPPY and size == 16:
            assert answer == b"", "a bare header is an empty stream"
        else:
            assert answer == "BAD_COMPRESSED", size


def test_gzip_of_others() -> None:
    """Other clients write names, comments, several members; Java's reader takes them, so we do."""
    content = b"content" * 20
    plain = gzip.compress(content, mtime=0)
    assert both(plain, GZIP) == content
    assert both(plain + plain, GZIP) == content * 2
    assert both(plain + b"no member", GZIP) == content
    assert both(plain + plain[:-9], GZIP) == "BAD_COMPRESSED"
    head = plain[:3] + bytes([4 | 8 | 16 | 2]) + plain[4:10] + b"\x02\0xy" + b"name\0" + b"comment\0"
    full = head + struct.pack("<H", zlib.crc32(head) & 0xFFFF) + plain[10:]
    assert both(full, GZIP) == content
    assert both(head + b"\0\0" + plain[10:], GZIP) == "BAD_COMPRESSED"
    assert both(plain[:3] + b"\xe0" + plain[4:], GZIP) == content
    assert both(plain[:-8] + bytes(4) + plain[-4:], GZIP) == "BAD_COMPRESSED"
    assert both(plain[:-4] + bytes(4), GZIP) == "BAD_COMPRESSED"
    assert both(plain[:3] + b"\x08" + plain[4:10] + b"a name without an end", GZIP) == "BAD_COMPRESSED"


def test_snappy_of_others() -> None:
    """Bare blocks, large blocks and streams put one behind the other occur in real topics."""
    content = random.Random(3).randbytes(1000) * 100
    block = bytes(cramjam.snappy.compress_raw(content))
    stream = compress(content, SNAPPY)
    large = stream[:16] + struct.pack(">i", len(block)) + block
    assert both(block, SNAPPY) == content
    assert both(large, SNAPPY) == content
    assert both(stream + large, SNAPPY) == content * 2
    assert both(stream + large[:4] + b"x" + large[5:], SNAPPY) == "BAD_COMPRESSED"
    assert both(stream + large[:12], SNAPPY) == "BAD_COMPRESSED"
    # As snappy-java 1.1.10.7 does: a version below 1 is refused of a later stream, not of the first.
    version_0 = large[:8] + bytes(4) + large[12:]
    assert both(version_0, SNAPPY) == content
    assert both(stream + version_0, SNAPPY) == "BAD_COMPRESSED"
    assert both(b"", SNAPPY) == "BAD_COMPRESSED"
    # A size that the bytes cannot hold is refused before anything is made of it.
    assert both(stream[:16] + struct.pack(">i", 6) + b"\xff\xff\xff\xff\x0f\0", SNAPPY) == "BAD_COMPRESSED"
    assert both(stream[:16] + struct.pack(">i", -1), SNAPPY) == "BAD_COMPRESSED"


def lz4_frame(
    *, flags: int = 0x60, sizes: int = 0x40, extra: bytes = b"", magic: int = 2, blocks: bytes = b""
) -> bytes:
    descriptor = bytes([flags, sizes]) + extra
    hashed = descriptor if magic else bytes.fromhex("04224d18") + descriptor
    return bytes.fromhex("04224d18") + descriptor + bytes([xxhash.xxh32_intdigest(hashed) >> 8 & 0xFF]) + blocks


STORED = struct.pack("<I", 0x80000000 | 3) + b"abc"


@pytest.mark.parametrize(
    ("stream", "answer"),
    [
        (lz4_frame(blocks=STORED + bytes(4)), b"abc"),
        (lz4_frame(blocks=STORED + bytes(4) + b"behind the end"), b"abc"),
        (lz4_frame(blocks=STORED + struct.pack("<I", 0x80000000)), b"abc"),
        (lz4_frame(flags=0x68, extra=b"any size", blocks=STORED + bytes(4)), b"abc"),
        (lz4_frame(flags=0x64, blocks=STORED + bytes(4) + b"sums"), b"abc"),
        (lz4_frame(flags=0x64, blocks=STORED + bytes(4) + b"sum"), "BAD_COMPRESSED"),
        (lz4_frame(flags=0x70, blocks=STORED + struct.pack("<I", xxhash.xxh32_intdigest(b"abc")) + bytes(4)), b"abc"),
        (lz4_frame(flags=0x70, blocks=STORED + bytes(8)), "BAD_COMPRESSED"),
        (lz4_frame(flags=0x40, blocks=STORED + bytes(4)), "BAD_COMPRESSED"),
        (lz4_frame(flags=0xA0, blocks=STORED + bytes(4)), "BAD_COMPRESSED"),
        (lz4_frame(flags=0x61, extra=bytes(4), blocks=STORED + bytes(4)), "BAD_COMPRESSED"),
        (lz4_frame(flags=0x62, blocks=STORED + bytes(4)), "BAD_COMPRESSED"),
        (lz4_frame(sizes=0x30, blocks=STORED + bytes(4)), "BAD_COMPRESSED"),
        (lz4_frame(sizes=0xC0, blocks=STORED + bytes(4)), "BAD_COMPRESSED"),
        (lz4_frame(sizes=0x41, blocks=STORED + bytes(4)), "BAD_COMPRESSED"),
        (lz4_frame(sizes=0x70, blocks=struct.pack("<I", 0x80000000 | 70000) + bytes(70004)), bytes(70000)),
        (lz4_frame(sizes=0x40, blocks=struct.pack("<I", 0x80000000 | 70000) + bytes(70004)), "BAD_COMPRESSED"),
        (lz4_frame(blocks=STORED), "BAD_COMPRESSED"),
        (lz4_frame(magic=0, blocks=STORED + bytes(4)), "BAD_COMPRESSED"),
    ],
    ids=str,
)
def test_lz4_frames(stream: bytes, answer: bytes | str) -> None:
    """Kafka's reader and liblz4's disagree about frames; a topic is read as Kafka reads it."""
    assert both(stream, LZ4) == answer


def test_lz4_of_magic_0_has_another_header_checksum() -> None:
    """The first clients hashed the wrong bytes; their topics are still on disk."""
    wrong = lz4_frame(magic=0, blocks=STORED + bytes(4))
    assert wrong[6] == 0x1A
    assert both(wrong, LZ4, magic=0) == b"abc"
    assert both(wrong, LZ4, magic=1) == "BAD_COMPRESSED"
    assert both(lz4_frame(blocks=STORED + bytes(4)), LZ4, magic=0) == b"abc"


def test_lz4_of_the_reference_tool() -> None:
    """Clients that use the frame API write larger blocks and content sizes."""
    content = random.Random(5).randbytes(1000) * 300
    frame = lz4.frame.compress(content, block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX256KB, store_size=True)
    assert both(frame, LZ4) == content
    assert both(lz4.frame.compress(content, block_linked=True), LZ4) == "BAD_COMPRESSED"


def test_zstd_of_others() -> None:
    """Frames with sizes and checksums, several of them, and frames to skip are all one topic's bytes."""
    content = random.Random(9).randbytes(1000) * 40
    sized = zstandard.ZstdCompressor(write_checksum=True, write_content_size=True).compress(content)
    skip = struct.pack("<II", 0x184D2A5F, 3) + b"xyz"
    assert both(sized, ZSTD) == content
    assert both(skip + sized + skip + sized, ZSTD) == content * 2
    assert both(skip[:-1], ZSTD) == "BAD_COMPRESSED"
    assert both(sized + b"abc", ZSTD) == "BAD_COMPRESSED"
    assert both(sized + b"garbage behind", ZSTD) == "BAD_COMPRESSED"
    assert both(sized[:-1] + bytes([sized[-1] ^ 1]), ZSTD) == "BAD_COMPRESSED"
    assert both(b"", ZSTD) == b""


@pytest.mark.parametrize(("codec", "magic"), [(0, 2), (5, 2), (7, 2), (-1, 2), (ZSTD, 1), (ZSTD, 0)])
def test_unknown_codecs(codec: int, magic: int) -> None:
    """A codec that this format does not have is named as such, not as corruption."""
    assert both(b"whatever", codec, magic=magic) == "BAD_CODEC"


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
@settings(max_examples=120, deadline=None)
@given(
    data=st.lists(st.sampled_from([b"abcd", b"\0\0\0\0", b"\xff" * 9, b"xyz"]), max_size=40).map(b"".join),
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_damage_is_judged_alike(codec: int, data: bytes, edits: list[tuple[int, int]]) -> None:
    """Native and oracle refuse the same streams, and where damage passes they read the same out of it.

    Not for zstd: releases of libzstd before 1.5.6 pass some streams that later ones refuse.
    """
    stream = bytearray(compress(data, codec))
    for place, byte in edits:
        stream[place % len(stream)] = byte
    answer = both(bytes(stream), codec)
    assert isinstance(answer, bytes) or answer in ("BAD_COMPRESSED", "OVER_LIMIT")


def test_errors_are_typed() -> None:
    """A caller tells damage from a limit by the class."""
    with pytest.raises(CorruptRecordError):
        reference.decompress(b"x", GZIP)
    with pytest.raises(SizeLimitError):
        reference.decompress(compress(bytes(10), GZIP), GZIP, limit=9)
    with pytest.raises(ValueError, match="no zstd"):
        compress(b"", ZSTD, magic=1)
