"""Frames of chunks: what the plugin's library would have written, whoever asks, and however often."""

from __future__ import annotations

import threading

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tierlog._native import codecs

ZSTD = 4
SAME_LIBRARY = codecs.library_version(ZSTD) == ".".join(map(str, zstandard.ZSTD_VERSION))
#: Bytes that compress, do not, or are a little of both; around the sizes at which the form of the frame changes.
CONTENT = st.one_of(
    st.binary(max_size=600),
    st.builds(lambda piece, count: piece * count, st.binary(max_size=50), st.integers(0, 3000)),
    st.builds(
        lambda size, seed: bytes((seed * i * i >> 3) & 0xFF for i in range(size)),
        st.integers(0, 70_000),
        st.integers(1, 9),
    ),
)


def compressed(data: bytes, level: int = 3) -> bytes:
    out = bytearray(codecs.compress_bound(len(data)))
    return bytes(out[: codecs.compress_into(data, out, level=level)])


def expect_frame(frame: bytes, data: bytes, level: int) -> None:
    """A frame that the plugin's reader opens: it allocates what the header declares."""
    parameters = zstandard.get_frame_parameters(frame)
    assert (parameters.content_size, parameters.has_checksum, parameters.dict_id) == (len(data), False, 0)
    assert zstandard.frame_header_size(frame) <= len(frame)
    assert zstandard.decompress(frame, max_output_size=max(1, len(data))) == data
    if SAME_LIBRARY:
        assert frame == zstandard.ZstdCompressor(level, write_content_size=True).compress(data)


@given(CONTENT, st.sampled_from([-5, 1, 3, 9]))
def test_frames_are_those_of_the_library(data: bytes, level: int) -> None:
    """Otherwise the plugin cannot open what we wrote, or objects differ from the plugin's without a reason."""
    expect_frame(compressed(data, level), data, level)


@pytest.mark.parametrize(
    ("size", "head"),
    [
        (0, "28b52ffd2000"),
        (255, "28b52ffd20ff"),
        (256, "28b52ffd600000"),
        (65_791, "28b52ffd60ffff"),
        (65_792, "28b52ffda000010100"),
    ],
)
def test_the_header_declares_the_size(size: int, head: str) -> None:
    """The plugin takes a frame without it for one of 0 bytes, and the segment for lost.

    Format: docs/formats/objects.md, Compression of chunks.
    """
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    assert compressed(data).hex().startswith(head)


def test_a_context_that_was_used_changes_nothing() -> None:
    """Otherwise what is stored depends on what was copied before, and a copy cannot be compared with its retry."""
    samples = [bytes(range(256)) * 999, b"", b"x" * 100_000, b"tiered storage" * 5000]
    fresh = {(level, data): compressed(data, level) for level in (3, 19, 1) for data in samples}
    for level, data in reversed(list(fresh)):
        assert compressed(data, level) == fresh[level, data]


def test_contexts_that_nobody_uses_can_be_dropped() -> None:
    """A broker that lies idle would keep some MiB for each thread that ever compressed."""
    data = bytes(range(256)) * 100
    first = compressed(data, level=3)
    assert codecs._idle_compressors
    codecs.drop_contexts()
    assert not codecs._idle_compressors
    assert not codecs._idle_codecs
    assert compressed(data, level=3) == first


def test_threads_do_not_share_a_context() -> None:
    """Otherwise chunks that are compressed side by side are mixed up."""
    samples = [bytes((i * n >> 2) & 0xFF for i in range(200_000)) for n in range(1, 9)]
    expected = [compressed(sample) for sample in samples]
    wrong = []

    def work(number: int) -> None:
        for turn in range(12):
            at = (number + turn) % len(samples)
            if compressed(samples[at]) != expected[at]:
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("level", [codecs.COMPRESSION_LEVEL_MIN - 1, codecs.COMPRESSION_LEVEL_MAX + 1, 10**6])
def test_an_unknown_level_is_refused(level: int) -> None:
    """The library takes the nearest it knows: a typo would be slow, or large, for months."""
    with pytest.raises(ValueError, match="argument"):
        compressed(b"x", level)


def test_no_room_is_told_before_anything_is_written() -> None:
    """Otherwise a part buffer that is nearly full is written past its end, or half a frame is taken for one."""
    data = bytes(range(256)) * 40
    out = bytearray(codecs.compress_bound(len(data)) - 1)
    with pytest.raises(ValueError, match="the frame may take"):
        codecs.compress_into(data, out, level=3)
    assert not any(out)
    with pytest.raises((BufferError, TypeError)):
        codecs.compress_into(data, bytes(10_000), level=3)


@given(st.integers(0, 1 << 30), st.integers(0, 1 << 30))
def test_the_bound_rises(one: int, other: int) -> None:
    """Room for the largest chunk is then room for all."""
    less, more = sorted((one, other))
    assert less < codecs.compress_bound(less) <= codecs.compress_bound(more)


def test_more_than_a_frame_holds_is_refused() -> None:
    """Otherwise the bound wraps, and what it bounds is written past the end."""
    with pytest.raises(ValueError, match="more than one frame"):
        codecs.compress_bound(2**64 - 1)
