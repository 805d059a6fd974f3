"""Decode with CRC into Arrow on one core, against a copy of the same bytes and against the bare codecs.

Memory decides what a copy costs, so three copies are shown: into pieces of 8 MiB from Arrow's pool, each dropped
before the next, which is what the decoder's own record batches go through (the bar's); into one buffer, used again; and
into fresh pages of the kernel's. ``decode_kept`` keeps all record batches, beside a copy that keeps all its pieces.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from bench.bare import bare_codec
from bench.logs import MIB, BenchLog, bench_log
from bench.side_by_side import Comparison
from tierlog._native.decoding import RecordDecoder

COLUMNS = ("key", "value", "offset", "timestamp", "timestampType")
PIECE_BYTES = 8 * MIB
POOL = "memcpy into Arrow's pool"
BARS = {"none": 0.8, "lz4": 0.78, "zstd": 0.8}
LARGE = {"batch_bytes": MIB, "mean_size": 1000, "total_bytes": 256 * MIB}

Compare = Callable[..., Comparison]


def decode(log: BenchLog, *, kept: list[pa.RecordBatch] | None = None) -> int:
    """Records of the log; each record batch is dropped, or put into ``kept``."""
    decoder = RecordDecoder(COLUMNS, timestamp_unit="us")
    records = 0
    for step in (decoder.feed(log.data), decoder.finish()):
        for batch in step:
            records += batch.num_rows
            if kept is not None:
                kept.append(batch)
    return records


def copy_into_pool(data: bytes, *, kept: list[pa.Buffer] | None = None) -> None:
    """The bytes in pieces of the size of the decoder's record batches, each into a new buffer of Arrow's pool."""
    source = np.frombuffer(data, np.uint8)
    piece = None
    for at in range(0, len(source), PIECE_BYTES):
        size = min(PIECE_BYTES, len(source) - at)
        piece = pa.allocate_buffer(size)
        ctypes.memmove(piece.address, source.ctypes.data + at, size)
        if kept is not None:
            kept.append(piece)


def copy_into_one(data: bytes, target: pa.Buffer) -> None:
    source = np.frombuffer(data, np.uint8)
    for at in range(0, len(source), PIECE_BYTES):
        ctypes.memmove(target.address, source.ctypes.data + at, min(PIECE_BYTES, len(source) - at))


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
    one = pa.allocate_buffer(PIECE_BYTES)
    compare(
        lambda: decode(log),
        {
            POOL: lambda: copy_into_pool(log.data),
            "memcpy into one buffer": lambda: copy_into_one(log.data, one),
            "memcpy into fresh pages": lambda: copy_into_fresh_pages(log.data),
        },
        bars={POOL: BARS[codec]},
        size_bytes=len(log.data),
        records=log.records,
        notes={"peak of Arrow's memory, MiB": round(peak / MIB, 1)},
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
