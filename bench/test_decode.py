"""Decode with CRC into Arrow on one core, against a copy of the same bytes and against the bare codecs.

Memory decides what a copy costs, so several copies are shown: into pieces from Arrow's pool as large as the decoder's
record batches, each dropped before the next, which is what those go through (the bar's); the checksum and then that
copy, batch by batch, which is all that must be done to the bytes; into one buffer as large as the log; and into fresh
pages of the kernel's. ``decode_kept`` keeps all record batches, beside a copy that keeps all its pieces.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from bench import workload
from bench.bare import bare_codec
from bench.logs import MIB, BenchLog, bench_log
from bench.side_by_side import Comparison
from tierlog._native.checksums import crc32c
from tierlog._native.decoding import RecordDecoder

COLUMNS = ("key", "value", "offset", "timestamp", "timestampType")
PIECE_BYTES = 2 * MIB  # the decoder's default
POOL = "memcpy into Arrow's pool"
BARS = {"none": 0.8, "lz4": 0.78, "zstd": 0.8}
LARGE = {"batch_bytes": MIB, "mean_size": 1000, "total_bytes": 256 * MIB}

Compare = Callable[..., Comparison]


def decode(log: BenchLog, *, columns: tuple[str, ...] = COLUMNS, kept: list[pa.RecordBatch] | None = None) -> int:
    """Decode the log; returns the number of records. Each record batch is dropped, or put into ``kept``."""
    decoder = RecordDecoder(columns, timestamp_unit="us")
    records = 0
    for step in (decoder.feed(log.data), decoder.finish()):
        for batch in step:
            records += batch.num_rows
            if kept is not None:
                kept.append(batch)
    return records


def copy_into_pool(data: bytes, *, kept: list[pa.Buffer] | None = None) -> None:
    """Copy the bytes in pieces of the size of the decoder's record batches, each into a new buffer of Arrow's pool."""
    source = np.frombuffer(data, np.uint8)
    piece = None
    for at in range(0, len(source), PIECE_BYTES):
        size = min(PIECE_BYTES, len(source) - at)
        piece = pa.allocate_buffer(size)
        ctypes.memmove(piece.address, source.ctypes.data + at, size)
        if kept is not None:
            kept.append(piece)


def check_and_copy(log: BenchLog) -> None:
    """Check each batch, then copy its bytes into Arrow's pool: the same work without the records."""
    source = np.frombuffer(log.data, np.uint8)
    view = memoryview(log.data)
    piece, room = pa.allocate_buffer(PIECE_BYTES), PIECE_BYTES
    for at, size in zip(log.table.position.tolist(), log.table.size_bytes.tolist(), strict=True):
        crc32c(view[at : at + size])
        if room < size:
            piece, room = pa.allocate_buffer(PIECE_BYTES), PIECE_BYTES
        ctypes.memmove(piece.address + PIECE_BYTES - room, source.ctypes.data + at, size)
        room -= size


def copy_into_one(data: bytes, target: NDArray[np.uint8]) -> None:
    ctypes.memmove(target.ctypes.data, np.frombuffer(data, np.uint8).ctypes.data, len(data))


def copy_into_fresh_pages(data: bytes) -> None:
    """Pieces that the kernel gives for this copy alone, and takes back behind it."""
    source = memoryview(data)
    for at in range(0, len(source), PIECE_BYTES):
        size = min(PIECE_BYTES, len(source) - at)
        with mmap.mmap(-1, size) as pages:
            pages[:] = source[at : at + size]


def peak_of_arrow(log: BenchLog) -> int:
    """Most bytes of Arrow's pool while the log is decoded, and a check that the answer is right."""
    decoder = RecordDecoder(COLUMNS, timestamp_unit="us")
    before = pa.total_allocated_bytes()
    records = check = peak = 0
    for step in (decoder.feed(log.data), decoder.finish()):
        for batch in step:
            records += batch.num_rows
            check += int(batch.column("offset").to_numpy().sum())
            for name in ("key", "value"):
                offsets = np.frombuffer(batch.column(name).buffers()[1], np.int32)
                check += int(offsets[batch.num_rows]) - int(offsets[0])
            peak = max(peak, pa.total_allocated_bytes() - before)
    assert (records, check) == (log.records, log.check), "the decoder's answer is not the workload's"
    return peak


@pytest.mark.parametrize("codec", ["none"], ids=["none-1MiB-1000B"])
def test_decode(codec: str, compare: Compare) -> None:
    log = bench_log(codec, **LARGE)
    peak = peak_of_arrow(log)
    one = np.ones(len(log.data), np.uint8)  # written once, so that its pages are there
    compare(
        lambda: decode(log),
        {
            POOL: lambda: copy_into_pool(log.data),
            "CRC-32C, then memcpy": lambda: check_and_copy(log),
            "memcpy into one buffer": lambda: copy_into_one(log.data, one),
            "memcpy into fresh pages": lambda: copy_into_fresh_pages(log.data),
        },
        bars={POOL: BARS[codec]},
        size_bytes=len(log.data),
        records=log.records,
        notes={"peak of Arrow's memory, MiB": round(peak / MIB, 1)},
    )


@pytest.mark.parametrize("mean_size", [1000, 100], ids=["none-1MiB-1000B", "none-1MiB-100B"])
def test_decode_headers(mean_size: int, compare: Compare) -> None:
    """Three small headers a record; also what the column costs beside passing them over."""
    log = bench_log("none", batch_bytes=MIB, mean_size=mean_size, total_bytes=64 * MIB, with_headers=True)
    columns = (*COLUMNS, "headers")
    peak_of_arrow(log)
    first = next(iter(RecordDecoder(columns, timestamp_unit="us").feed(log.data))).column("headers")
    assert first.slice(1, 1).to_pylist() == [[{"key": key, "value": value} for key, value in workload.headers(1)]]
    assert len(first.flatten()) == 3 * len(first), "headers are missing"
    compare(
        lambda: decode(log, columns=columns),
        {POOL: lambda: copy_into_pool(log.data), "ours without the column headers": lambda: decode(log)},
        size_bytes=len(log.data),
        records=log.records,
    )


@pytest.mark.parametrize("codec", ["none"], ids=["none-1MiB-1000B"])
def test_decode_kept(codec: str, compare: Compare) -> None:
    log = bench_log(codec, **LARGE)
    kept: list[object] = []

    def ours() -> None:
        decode(log, kept=kept)  # type: ignore[arg-type]
        kept.clear()

    def copied() -> None:
        copy_into_pool(log.data, kept=kept)  # type: ignore[arg-type]
        kept.clear()

    compare(ours, {"memcpy into Arrow's pool, kept": copied}, size_bytes=len(log.data), records=log.records)


@pytest.mark.parametrize("codec", ["lz4", "zstd"], ids=["lz4-1MiB-1000B", "zstd-1MiB-1000B"])
def test_decode_compressed(codec: str, compare: Compare) -> None:
    log = bench_log(codec, **LARGE)
    peak_of_arrow(log)
    bare = bare_codec(codec, log.data, log.table, largest_batch_bytes=log.largest_batch_bytes)
    assert bare.decompress() == log.record_bytes, "the bare codec's bytes are not the workload's"
    compare(
        lambda: decode(log),
        {f"lib{codec} alone": bare.decompress},
        bars={f"lib{codec} alone": BARS[codec]},
        size_bytes=log.uncompressed_bytes,
        records=log.records,
        notes={"compressed MiB": round(len(log.data) / MIB, 1)},
    )
