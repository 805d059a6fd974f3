"""Stored chunks: the plugin's vector, an oracle out of two packages, and what reading makes of them again."""

from __future__ import annotations

import itertools
import pathlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import config_of
from tierlog._native.codecs import library_version
from tierlog.remote.tier.chunks.chunk_transform import CHUNK_BYTES_MAX, ChunkAssembler
from tierlog.remote.tier.tier_paths import open_tier

KEY, AAD, IV = bytes(range(32)), bytes(range(0x20, 0x40)), bytes(range(0xA0, 0xAC))
SAME_LIBRARY = library_version(4) == ".".join(map(str, zstandard.ZSTD_VERSION))
#: zstd-jni's in the plugin that wrote the fixtures.
PLUGINS_LIBRARY = "1.5.7"
FORMS = list(itertools.product([None, 3], [False, True]))


def assembler(level: int | None, *, encrypted: bool, chunk: int = 1 << 20, file: int = 1 << 30) -> ChunkAssembler:
    return ChunkAssembler(
        original_chunk_size=chunk,
        original_file_size=file,
        compression_level=level,
        data_key=KEY if encrypted else None,
        aad=AAD if encrypted else None,
    )


def stored(maker: ChunkAssembler, data: bytes, iv: bytes | None) -> bytes:
    out = bytearray(maker.stored_bound(len(data)) + 5)
    out[-5:] = b"guard"
    size = maker.transform(data, out, iv=iv)
    assert out[-5:] == b"guard"
    return bytes(out[:size])


def undone(unit: bytes, level: int | None, *, encrypted: bool) -> bytes:
    """A chunk undone by the packages alone (docs/formats/objects.md, Chunks)."""
    if encrypted:
        unit = AESGCM(KEY).decrypt(unit[:12], unit[12:], AAD)
    if level is None:
        return unit
    content = zstandard.frame_content_size(unit)
    assert content >= 0
    return zstandard.decompress(unit, max_output_size=max(1, content))


def test_the_plugins_unit() -> None:
    """A unit that the plugin decrypted: if this fails, it cannot decrypt what we write."""
    expected = "a0a1a2a3a4a5a6a7a8a9aaab9271195f20af2fcc160af5b2601fe0bd18d9377b045147426e8db667faa5b6af6e9ffe92"
    maker = assembler(None, encrypted=True)
    assert stored(maker, b"tiered-storage chunk", IV).hex() == expected
    unit = bytearray(48)
    assert maker.seal(b"tiered-storage chunk", unit, iv=IV) == 48
    assert unit.hex() == expected


@given(st.binary(max_size=3000), st.integers(1, 60), st.sampled_from(FORMS), st.binary(min_size=12, max_size=12))
def test_chunks_are_those_of_the_format(piece: bytes, times: int, form: tuple[int | None, bool], iv: bytes) -> None:
    """Otherwise a segment that was deleted locally cannot be read back."""
    data = piece * times
    level, encrypted = form
    found = stored(assembler(level, encrypted=encrypted), data, iv if encrypted else None)
    assert undone(found, level, encrypted=encrypted) == data
    if level is None or SAME_LIBRARY:
        frame = data if level is None else zstandard.ZstdCompressor(level).compress(data)
        assert found == (iv + AESGCM(KEY).encrypt(iv, frame, AAD) if encrypted else frame)


def test_the_plugins_frames_are_made_again(fixtures: pathlib.Path) -> None:
    """Otherwise buckets grow by the change to us; with the plugin's libzstd, a frame that differs has another form."""
    ours = theirs = count = 0
    maker = assembler(3, encrypted=False, chunk=CHUNK_BYTES_MAX)
    with open_tier(str(fixtures / "zstd" / "objects"), config=config_of(fixtures / "zstd")) as tier:
        for segment in tier.iter_segments():
            assert segment.chunk_index is not None
            stored_log = (fixtures / "zstd" / "objects" / segment.log.key).read_bytes()
            for view in segment.chunk_index.views(0, segment.size_bytes):
                start, size = int(view["transformed_position"]), int(view["transformed_size"])
                frame = stored_log[start : start + size]
                found = stored(maker, undone(frame, 3, encrypted=False), None)
                assert found == frame or library_version(4) != PLUGINS_LIBRARY
                ours, theirs, count = ours + len(found), theirs + size, count + 1
    assert count > 20
    assert ours <= 1.005 * theirs


@given(st.integers(0, 300), st.integers(0, 7))
def test_a_bit_that_flips_is_found(at: int, bit: int) -> None:
    """Otherwise whoever can write to the bucket writes to the log."""
    unit = bytearray(stored(assembler(3, encrypted=True), b"tiered" * 50, IV))
    unit[at % len(unit)] ^= 1 << bit
    with pytest.raises(InvalidTag):
        undone(bytes(unit), 3, encrypted=True)


@pytest.mark.parametrize(("level", "encrypted"), FORMS)
def test_the_bound_holds(level: int | None, encrypted: bool) -> None:
    """A part buffer with this much room left must take any chunk, and none may need more."""
    maker = assembler(level, encrypted=encrypted, chunk=70_000)
    noise = bytes((i * i * 2654435761 >> 16) & 0xFF for i in range(70_000))
    for size in (0, 1, 255, 256, 65_791, 70_000):
        assert len(stored(maker, noise[:size], IV if encrypted else None)) <= maker.stored_bound(size)


@pytest.mark.parametrize(("level", "encrypted"), FORMS)
def test_threads_share_one_assembler(level: int | None, encrypted: bool) -> None:
    """Parts are made side by side; one context too few would mix them."""
    maker = assembler(level, encrypted=encrypted)
    jobs = [(bytes([number]) * 100_000, number.to_bytes(12) if encrypted else None) for number in range(40)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda job: stored(maker, *job), jobs))
    assert found == [stored(maker, *job) for job in jobs]
    assert [undone(unit, level, encrypted=encrypted) for unit in found] == [data for data, _ in jobs]


def test_an_iv_is_asked_for_where_it_is_needed() -> None:
    """An IV that is left out, cut or ignored is how GCM loses the key stream."""
    for iv in (None, b"", bytes(11), bytes(13)):
        with pytest.raises(ValueError, match="IV"):
            stored(assembler(3, encrypted=True), b"x", iv)
        with pytest.raises(ValueError, match="IV"):
            assembler(3, encrypted=True).seal(b"x", bytearray(100), iv=iv or b"")
    with pytest.raises(ValueError, match="IV"):
        stored(assembler(3, encrypted=False), b"x", IV)
    with pytest.raises(ValueError, match="key"):
        assembler(3, encrypted=False).seal(b"x", bytearray(100), iv=IV)


def test_room_and_sizes_are_checked() -> None:
    """Otherwise a chunk is cut off at the end of its part, or one goes in that readers will not take."""
    maker = assembler(None, encrypted=True, chunk=100)
    with pytest.raises(ValueError, match="at most 100"):
        maker.transform(bytes(100), bytearray(127), iv=IV)
    with pytest.raises(ValueError, match="at most 100"):
        maker.transform(bytes(101), bytearray(200), iv=IV)
    with pytest.raises(ValueError, match="unit of 228 bytes"):
        maker.seal(bytes(200), bytearray(227), iv=IV)
    assert maker.seal(bytes(200), bytearray(228), iv=IV) == 228  # an index may be larger than a chunk


@pytest.mark.parametrize(
    "change",
    [
        {"original_chunk_size": 0},
        {"original_chunk_size": CHUNK_BYTES_MAX + 1},
        {"original_file_size": -1},
        {"compression_level": 23},
        {"data_key": bytes(16), "aad": AAD},
        {"data_key": KEY},
        {"aad": AAD},
    ],
)
def test_nonsense_is_refused(change: dict[str, object]) -> None:
    """Otherwise it is found by whoever reads the segment, years later."""
    sound = {
        "original_chunk_size": 9,
        "original_file_size": 9,
        "compression_level": None,
        "data_key": None,
        "aad": None,
    }
    with pytest.raises(ValueError, match=r"bytes|level|together"):
        ChunkAssembler(**{**sound, **change})  # type: ignore[arg-type]
