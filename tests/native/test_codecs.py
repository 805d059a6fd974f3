"""Decompression against other people's compressors, and against the oracle on broken streams."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import threading
from collections.abc import Callable

import cramjam
import lz4.block
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.support.oracle import codecs as reference
from tierlog._native import codecs
from tierlog.errors import CorruptDataError, CorruptRecordError, SizeLimitError

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
#: Before 1.5.6 libzstd reads some damaged streams otherwise than later releases, which refuse most of them. A batch's
#: CRC-32C finds such damage all the same. Wheels carry a later release; the oracle's is 1.5.7 or later.
ZSTD_IS_LAX = tuple(map(int, (codecs.library_version(ZSTD) or "").split("."))) < (1, 5, 6)
XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


def xerial(data: bytes, block_size: int = 32768) -> bytes:
    """Snappy as snappy-java frames it."""
    stream = XERIAL
    for at in range(0, len(data), block_size):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + block_size]))
        stream += struct.pack(">i", len(block)) + block
    return stream


def lz4_frame(data: bytes, **options: object) -> bytes:
    settings = {"block_linked": False, "store_size": False, "block_size": lz4.frame.BLOCKSIZE_MAX64KB, **options}
    return lz4.frame.compress(data, **settings)


COMPRESSORS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (GZIP, gzip.compress),
    "gzip-1": (GZIP, lambda data: gzip.compress(data, 1)),
    "gzip-members": (GZIP, lambda data: gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :])),
    "snappy-framed": (SNAPPY, xerial),
    "snappy-large-blocks": (SNAPPY, lambda data: xerial(data, 1 << 20)),
    "snappy-two-streams": (SNAPPY, lambda data: xerial(data[:100]) + xerial(data[100:])),
    "snappy-bare": (SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "lz4": (LZ4, lz4_frame),
    "lz4-hc": (LZ4, lambda data: lz4_frame(data, compression_level=9)),
    "lz4-4m": (LZ4, lambda data: lz4_frame(data, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
    "lz4-checksums": (LZ4, lambda data: lz4_frame(data, block_checksum=True, content_checksum=True)),
    "lz4-size": (LZ4, lambda data: lz4_frame(data, store_size=True)),
    "zstd": (ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress),
    "zstd-size": (ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress),
    "zstd-19": (ZSTD, zstandard.ZstdCompressor(19).compress),
    "zstd-frames": (ZSTD, lambda data: b"".join(zstandard.compress(data[at::3]) for at in range(3))),
}


def sample(kind: str) -> bytes:
    rng = random.Random(5)
    if kind == "empty":
        return b""
    if kind == "short":
        return b"short"
    if kind == "noise":
        return rng.randbytes(150_000)
    if kind == "zeros":
        return bytes(1_000_000)
    return b"".join(b'{"id":%d,"user":"u%04d"}' % (i, rng.randrange(3000)) for i in range(12_000))


@pytest.mark.parametrize("kind", ["empty", "short", "noise", "zeros", "text"])
@pytest.mark.parametrize("name", COMPRESSORS)
def test_reads_what_others_write(name: str, kind: str) -> None:
    """Else batches of some client library cannot be read."""
    codec, compress = COMPRESSORS[name]
    data = sample(kind)
    expected = b"".join(data[at::3] for at in range(3)) if name == "zstd-frames" else data
    stream = compress(data)
    assert codecs.decompress(stream, codec) == expected
    out = bytearray(b"?" * (len(expected) + 7))
    assert codecs.decompress_into(stream, codec, memoryview(out)[: len(expected) + 3]) == len(expected)
    assert out[: len(expected)] == expected
    assert out[-4:] == b"????"


@pytest.mark.parametrize("name", COMPRESSORS)
def test_limit_is_exact(name: str) -> None:
    """Else a bomb takes the memory of the host, or a batch that fits is refused."""
    codec, compress = COMPRESSORS[name]
    data = sample("text")
    stream = compress(data)
    assert len(codecs.decompress(stream, codec, limit=len(data))) == len(data)
    for limit in (0, 1, len(data) // 2, len(data) - 1):
        with pytest.raises(SizeLimitError) as caught:
            codecs.decompress(stream, codec, limit=limit)
        assert (caught.value.fault, caught.value.expected) == ("OVER_LIMIT", limit)
        with pytest.raises(SizeLimitError):
            codecs.decompress_into(stream, codec, bytearray(limit))


def outcome(decompress: Callable[..., bytes], stream: bytes, codec: int, magic: int) -> bytes | str:
    try:
        return decompress(stream, codec, magic=magic, limit=1 << 20)
    except CorruptDataError as error:
        return error.fault


@st.composite
def broken_streams(draw: st.DrawFn) -> tuple[bytes, int, int]:
    """A sound stream, cut, with bytes changed, or with something behind it."""
    name = draw(st.sampled_from(sorted(COMPRESSORS)))
    codec, compress = COMPRESSORS[name]
    stream = bytearray(compress(draw(st.binary(max_size=300)) * draw(st.integers(1, 20))))
    for _ in range(draw(st.integers(0, 3))):
        stream[draw(st.integers(0, min(len(stream), 40) - 1))] = draw(st.integers(0, 255))
    cut = draw(st.sampled_from([None, draw(st.integers(0, len(stream)))]))
    return (
        bytes(stream[:cut]) + draw(st.sampled_from([b"", b"", b"\0", b"tail", b"\x1f\x8b\x08"])),
        codec,
        draw(st.sampled_from([2, 2, 1, 0])),
    )


def varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])


@st.composite
def snappy_elements(draw: st.DrawFn) -> tuple[bytes, int]:
    """A literal or a copy in one of its forms, mostly sound, and its length."""
    form = draw(st.sampled_from(["literal", "literal", 1, 2, 4]))
    if form == "literal":
        length = draw(st.integers(1, 70))
        width = draw(st.integers(0 if length <= 60 else 1, 4))
        tag = bytes([59 + width << 2]) + (length - 1).to_bytes(width, "little") if width else bytes([length - 1 << 2])
        return tag + draw(st.binary(min_size=length, max_size=length)), length
    distance = draw(st.integers(0, 80))
    if form == 1:
        length = draw(st.integers(4, 11))
        return bytes([distance >> 8 << 5 | (length - 4) << 2 | 1, distance & 0xFF]), length
    length = draw(st.integers(1, 64))
    return bytes([(length - 1) << 2 | (2 if form == 2 else 3)]) + distance.to_bytes(form, "little"), length


@given(broken_streams())
def test_broken_streams_end_as_the_oracle_says(case: tuple[bytes, int, int]) -> None:
    """Else a corrupt batch is read as good, or a good one refused, by one of the two readers."""
    stream, codec, magic = case
    native = outcome(codecs.decompress, stream, codec, magic)
    expected = outcome(reference.decompress, stream, codec, magic)
    if codec == ZSTD and ZSTD_IS_LAX and native != expected:
        assert isinstance(expected, bytes) or expected == "BAD_COMPRESSED"
        assert isinstance(native, bytes) or native == "BAD_COMPRESSED"
    else:
        assert native == expected


@given(st.lists(snappy_elements(), max_size=6), st.integers(-1, 1))
def test_snappy_elements_read_as_the_oracle_says(elements: list[tuple[bytes, int]], lie: int) -> None:
    """Else a form that no compressor of ours writes, but some client's does, is read otherwise than Kafka reads it."""
    size = max(0, sum(length for _, length in elements) + lie)
    stream = varint(size) + b"".join(element for element, _ in elements)
    assert outcome(codecs.decompress, stream, SNAPPY, 2) == outcome(reference.decompress, stream, SNAPPY, 2)


@pytest.mark.parametrize("stream", ["01f00061", "01f4000061", "01f800000061", "01fc0000000061"])
def test_snappy_reads_long_forms_of_a_short_literal(stream: str) -> None:
    """Else a batch that libsnappy reads, and so Kafka, is refused: some readers want four bytes behind every tag."""
    assert codecs.decompress(bytes.fromhex(stream), SNAPPY) == b"a"
    assert reference.decompress(bytes.fromhex(stream), SNAPPY) == b"a"


def test_the_loaded_libraries_can_be_told() -> None:
    """Else nobody can say which decompressor a machine reads with: some releases pass what others refuse."""
    for codec in (GZIP, LZ4, ZSTD):
        assert all(part.isdigit() for part in (codecs.library_version(codec) or "").split("."))
    assert [codecs.library_version(codec) for codec in (-1, 0, SNAPPY, 5)] == [None] * 4


@pytest.mark.parametrize(("codec", "magic"), [(0, 2), (5, 2), (7, 2), (-1, 2), (ZSTD, 1), (ZSTD, 0)])
def test_unknown_codecs_are_refused(codec: int, magic: int) -> None:
    """Else bytes are handed to a library that they were not meant for."""
    with pytest.raises(CorruptRecordError) as caught:
        codecs.decompress(zstandard.compress(b"x"), codec, magic=magic)
    assert caught.value.fault == "BAD_CODEC"


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_an_empty_payload_is_corrupt(codec: int) -> None:
    """Kafka's readers fail on it; zstd alone takes it as no content."""
    with pytest.raises(CorruptRecordError):
        codecs.decompress(b"", codec)
    assert codecs.decompress(b"", ZSTD) == b""


def test_lz4_that_breaks_the_end_rule_reads_alike_in_any_room() -> None:
    """Else the same batch reads or fails by the size of the buffer that an earlier batch left behind."""
    block = b"\x60abcdef" + b"\3\0" + b"\x50vwxyz"  # its last match begins 9 bytes before the end, not 12
    frame = lz4_frame(b"")[:7] + struct.pack("<I", len(block)) + block + bytes(4)
    expected = lz4.block.decompress(block, uncompressed_size=1 << 16)
    assert codecs.decompress(frame, LZ4) == expected
    assert len(expected) == 15
    assert codecs.decompress_into(frame, LZ4, bytearray(1 << 17)) == len(expected)


def test_threads_do_not_share_a_context() -> None:
    """Else concurrent reads give each other's bytes."""
    samples = [
        (codec, compress(sample("text") + name.encode()), name) for name, (codec, compress) in COMPRESSORS.items()
    ]
    wrong: list[str] = []

    def read(shift: int) -> None:
        for codec, stream, name in samples[shift:] + samples[:shift]:
            if name != "zstd-frames" and not codecs.decompress(stream, codec).endswith(name.encode()):
                wrong.append(name)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_output_must_be_writable() -> None:
    """Else an immutable object changes under its owner."""
    with pytest.raises(BufferError):
        codecs.decompress_into(zstandard.compress(b"x"), ZSTD, b"?")


@given(st.binary(max_size=5000), st.integers(0, 6000), st.integers(1, 40), st.booleans())
def test_a_prefix_is_the_start_of_the_content(content: bytes, wanted: int, times: int, told: bool) -> None:
    """If this fails, a part of a chunk has other bytes than the whole chunk has there."""
    content *= times
    frame = zstandard.ZstdCompressor(write_content_size=told).compress(content)
    out = bytearray(len(content))
    decoded = codecs.decompress_prefix_into(frame, out, wanted)
    assert min(wanted, len(content)) <= decoded <= len(content)
    assert out[:decoded] == content[:decoded]
    assert codecs.decompress(frame, ZSTD) == content  # the context is as it was


@given(broken_streams(), st.integers(0, 3000))
def test_prefixes_of_broken_streams_end_in_our_errors(case: tuple[bytes, int, int], wanted: int) -> None:
    """If this fails, a damaged chunk crashes the process, or reads past its memory."""
    out = bytearray(4096)
    with contextlib.suppress(CorruptDataError):
        assert codecs.decompress_prefix_into(case[0], out, wanted) <= len(out)
