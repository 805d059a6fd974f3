"""Checksums against their definitions and against other people's implementations."""

from __future__ import annotations

import array
import zlib

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tierlog._native import checksums


def crc32c_by_bits(data: bytes) -> int:
    """The definition: reflected polynomial 0x1EDC6F41, a bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_check_values() -> None:
    """Else every batch of every log is called corrupt."""
    assert checksums.crc32c(b"123456789") == 0xE3069283
    assert checksums.crc32c(b"") == 0
    assert checksums.crc32(b"123456789") == 0xCBF43926
    assert checksums.xxhash32(b"") == 0x02CC5D05


@given(st.binary(max_size=700), st.integers(0, 2**32 - 1))
def test_all_forms_agree(data: bytes, start: int) -> None:
    """Else a log is sound on one processor and corrupt on another."""
    assert checksums.crc32c(data) == checksums.crc32c_table(data) == crc32c_by_bits(data)
    assert checksums.crc32c(data, start) == checksums.crc32c_table(data, start)
    assert checksums.crc32(data, start) == zlib.crc32(data, start)
    assert checksums.xxhash32(data, start) == xxhash.xxh32_intdigest(data, start)


@pytest.mark.parametrize("size", [767, 768, 3840, 15872, 16367, 16368, 40_000, 128_000, 300_001])
def test_long_runs_agree_with_the_tables(size: int) -> None:
    """Else only large batches are called corrupt: each step of the fast path has constants of its own."""
    data = np.random.default_rng(size).bytes(size + 3)
    for start in range(3):
        view = memoryview(data)[start : start + size]
        assert checksums.crc32c(view) == checksums.crc32c_table(view)


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_combine_is_the_checksum_of_both(a: bytes, b: bytes) -> None:
    """Else a checksum put together from windows fails sound data."""
    combined = checksums.crc32c_combine(checksums.crc32c(a), checksums.crc32c(b), len(b))
    assert combined == checksums.crc32c(a + b) == checksums.crc32c(b, checksums.crc32c(a))


def test_combine_takes_sizes_beyond_memory() -> None:
    """Else a checksum over a whole topic is wrong."""
    twice = checksums.crc32c_combine(checksums.crc32c_combine(7, 0, 2**40), 0, 2**41 + 5)
    assert twice == checksums.crc32c_combine(7, 0, 2**40 + 2**41 + 5)


@pytest.mark.parametrize(
    "data",
    [
        bytearray(b"123456789"),
        memoryview(b"x123456789")[1:],
        pa.py_buffer(b"123456789"),
        np.frombuffer(b"123456789", np.uint8),
        array.array("b", b"123456789"),
    ],
    ids=["bytearray", "memoryview", "arrow", "numpy", "array"],
)
def test_any_contiguous_buffer_will_do(data: object) -> None:
    """Else a caller copies its buffer into bytes first."""
    assert checksums.crc32c(data) == 0xE3069283  # type: ignore[arg-type]


def test_what_is_no_buffer_is_refused() -> None:
    """Else the process reads memory that is not there."""
    with pytest.raises(TypeError):
        checksums.crc32c("text")  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        checksums.crc32c(memoryview(b"123456789")[::2])
    with pytest.raises(OverflowError):
        checksums.crc32c(b"", 2**32)


def test_implementation_is_named() -> None:
    """Else a slow machine cannot be told from a slow build."""
    assert checksums.crc32c_implementation() in ("sse42-vpclmul", "sse42-pclmul", "armv8", "table")
