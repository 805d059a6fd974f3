"""Chunks of a segment made and opened again, against the bare libraries over the same bytes; one thread on each side.

What a whole copy takes is another suite's; here the limits are the libraries' own, so that the ratio is what our layer
costs.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from bench.bare_chunks import BareGcm, BareZstd, Bytes, versions
from bench.logs import MIB, bench_log
from bench.side_by_side import Comparison
from tierlog._native.checksums import crc32c
from tierlog._native.codecs import decompress_into
from tierlog.errors import CorruptRecordError
from tierlog.log.checks.batch_walk import BatchWalk
from tierlog.records.batch_runs import BatchRuns
from tierlog.remote.tier.chunks.encoding import ChunkAssembler
from tierlog.runtime.machine import Machine

Compare = Callable[..., Comparison]
CHUNK = 4 * MIB
KEY, AAD, IV = bytes(range(32)), bytes(32), bytes(12)
LEVEL = 3


@dataclass(frozen=True)
class Side:
    """Chunks, buffers for one, and both ways to make them."""

    chunks: list[Bytes]
    out: Bytes
    size_bytes: int


@pytest.fixture(scope="module")
def side() -> Side:
    data = np.frombuffer(bench_log("none", batch_bytes=MIB, mean_size=1000, total_bytes=64 * MIB).data, np.uint8)
    chunks = [data[start : start + CHUNK] for start in range(0, len(data), CHUNK)]
    return Side(chunks, np.ones(2 * CHUNK, np.uint8), len(data))


def assembler(side: Side, *, compressed: bool, encrypted: bool) -> ChunkAssembler:
    return ChunkAssembler(
        original_chunk_size=CHUNK,
        original_file_size=side.size_bytes,
        compression_level=LEVEL if compressed else None,
        data_key=KEY if encrypted else None,
        aad=AAD if encrypted else None,
    )


def test_assemble_zstd(side: Side, compare: Compare) -> None:
    maker, bare = assembler(side, compressed=True, encrypted=False), BareZstd(LEVEL)
    other = np.ones_like(side.out)
    for chunk in side.chunks:
        size = maker.transform(chunk, side.out)
        assert size == bare.compress(chunk, other) or versions()["libzstd"] == "1.5.7"
        assert size < len(chunk)
    compare(
        lambda: [maker.transform(chunk, side.out) for chunk in side.chunks],
        {"ZSTD_compress2": lambda: [bare.compress(chunk, side.out) for chunk in side.chunks]},
        bars={"ZSTD_compress2": 0.9},
        size_bytes=side.size_bytes,
        notes=versions(),
    )


def test_assemble_aes(side: Side, compare: Compare) -> None:
    maker, bare = assembler(side, compressed=False, encrypted=True), BareGcm(KEY, AAD)
    other = np.ones_like(side.out)
    for chunk in side.chunks:
        size = maker.transform(chunk, side.out, iv=IV)
        assert bare.encrypt(IV, chunk, other) == size - len(IV)
        assert np.array_equal(side.out[len(IV) : size], other[: size - len(IV)])
    compare(
        lambda: [maker.transform(chunk, side.out, iv=IV) for chunk in side.chunks],
        {"EVP_CipherUpdate": lambda: [bare.encrypt(IV, chunk, side.out) for chunk in side.chunks]},
        bars={"EVP_CipherUpdate": 0.9},
        size_bytes=side.size_bytes,
        notes=versions(),
    )


def test_assemble_zstd_and_aes(side: Side, compare: Compare) -> None:
    maker, zstd, gcm = assembler(side, compressed=True, encrypted=True), BareZstd(LEVEL), BareGcm(KEY, AAD)
    frame = np.ones_like(side.out)

    def bare(chunk: Bytes) -> int:
        return gcm.encrypt(IV, frame[: zstd.compress(chunk, frame)], side.out)

    compare(
        lambda: [maker.transform(chunk, side.out, iv=IV) for chunk in side.chunks],
        {"ZSTD_compress2, EVP_CipherUpdate": lambda: [bare(chunk) for chunk in side.chunks]},
        bars={"ZSTD_compress2, EVP_CipherUpdate": 0.9},
        size_bytes=side.size_bytes,
        notes=versions(),
    )


def test_assemble_plain(side: Side, compare: Compare, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(chunk.tobytes() for chunk in side.chunks))
    part, view = memoryview(side.out)[:CHUNK], [memoryview(side.out)[:CHUNK]]
    positions = range(0, side.size_bytes - CHUNK + 1, CHUNK)
    descriptor = os.open(path, os.O_RDONLY)
    with Machine().files.open_read(str(path)) as file:
        compare(
            lambda: [file.read_into(part, position=position) for position in positions],
            {"pread": lambda: [os.preadv(descriptor, view, position) for position in positions]},
            bars={"pread": 0.95},
            size_bytes=len(positions) * CHUNK,
        )
    os.close(descriptor)


@pytest.mark.parametrize("batch_bytes", [MIB, 16 << 10], ids=["1MiB-batches", "16KiB-batches"])
def test_check(batch_bytes: int, compare: Compare) -> None:
    """The checks of every copied batch, chunk by chunk."""
    log = bench_log("none", batch_bytes=batch_bytes, mean_size=1000, total_bytes=64 * MIB)
    data = memoryview(log.data)
    pieces = [data[start : start + CHUNK] for start in range(0, len(data), CHUNK)]
    borders = zip(log.table.position.tolist(), log.table.size_bytes.tolist(), strict=True)
    batches = [data[position : position + size] for position, size in borders]

    def streamed() -> int:
        walk = BatchWalk(
            position=0,
            first_offset=int(log.table.base_offset[0]),
            last_offset=int(log.table.last_offset[-1]),
            size_bytes=len(data),
            name="log",
            kind=CorruptRecordError,
        )
        return sum(len(walk.collect(piece)["position"]) for piece in pieces)

    def joined() -> int:
        return sum(int(run.columns["crc_ok"].sum()) for run in BatchRuns(pieces, verify_crc=True))

    assert streamed() == joined() == len(log.table)
    compare(
        streamed,
        {"CRC-32C, a call a batch": lambda: [crc32c(batch) for batch in batches], "BatchRuns": joined},
        bars={"CRC-32C, a call a batch": 0.8},
        size_bytes=len(data),
        records=log.records,
    )


def stored_chunks(side: Side) -> Iterator[bytes]:
    maker = assembler(side, compressed=True, encrypted=False)
    for chunk in side.chunks:
        yield bytes(side.out[: maker.transform(chunk, side.out)])


def test_open_zstd(side: Side, compare: Compare) -> None:
    bare, frames = BareZstd(LEVEL), list(stored_chunks(side))
    arrays = [np.frombuffer(frame, np.uint8) for frame in frames]
    rooms = [side.out[: len(chunk)] for chunk in side.chunks]
    for frame, chunk, room in zip(frames, side.chunks, rooms, strict=True):
        assert decompress_into(frame, 4, room) == len(chunk)
        assert np.array_equal(room, chunk)
    compare(
        lambda: [decompress_into(frame, 4, room) for frame, room in zip(frames, rooms, strict=True)],
        {"ZSTD_decompressDCtx": lambda: [bare.decompress(a, room) for a, room in zip(arrays, rooms, strict=True)]},
        bars={"ZSTD_decompressDCtx": 0.9},
        size_bytes=side.size_bytes,
        notes=versions(),
    )
