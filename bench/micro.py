"""One core, one process: decoding into Arrow, scanning, CRC-32C, and the transforms of a segment's chunks.

    python -m bench.micro [decode scan crc32c chunks] [--scale 0.05] [--rounds 5]

Memory decides what a copy costs, so several are shown beside *decode*: into pieces from Arrow's pool as large as the
decoder's record batches, each dropped before the next, as the decoder's are (the bar's); the checksum and then that
copy, batch by batch, the least work on the bytes; into one buffer; and into fresh pages. *kept* holds all record
batches, beside a copy that holds its pieces. Compressed data is held against liblz4 or libzstd alone. *scan* reads
every header and checks every batch, against the checksum alone. *chunks* is a copy's transform of a segment's bytes and
a fetch's reversal, in chunks of 4 MiB, against the libraries' own calls.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from functools import partial

import crc32c as crc32c_package
import google_crc32c
import numpy as np
import pyarrow as pa

from bench import bare, data
from bench.data import BenchLog, bench_log
from bench.harness import MIB, Suite, arguments, equal, in_turn, work_folder
from tierlog._native.checksums import crc32c
from tierlog._native.codecs import decompress_into
from tierlog._native.decoding import RecordDecoder
from tierlog.errors import CorruptRecordError
from tierlog.log.checks.segment_walk import SegmentWalk
from tierlog.records import scan
from tierlog.records.batch_runs import BatchRuns
from tierlog.remote.tier.chunks.chunk_transform import ChunkAssembler
from tierlog.runtime.machine import Machine

COLUMNS = ("key", "value", "offset", "timestamp", "timestampType")
PIECE_BYTES = 2 * MIB  # the decoder's default
POOL = "memcpy into Arrow's pool"
CHUNK, LEVEL, ZSTD = 4 * MIB, 3, 4
AAD, IV = bytes(32), bytes(12)
#: Passes over 16 KiB that make a round of some tens of milliseconds.
HOT_PASSES = 2000


def decode(log: BenchLog, *, columns: tuple[str, ...] = COLUMNS, kept: list[object] | None = None) -> int:
    """Decode the log; returns the number of records. Each record batch is dropped, or put into ``kept``."""
    decoder = RecordDecoder(columns, timestamp_unit="us")
    records = 0
    for step in (decoder.feed(log.data), decoder.finish()):
        for batch in step:
            records += batch.num_rows
            if kept is not None:
                kept.append(batch)
    return records


def checked(log: BenchLog) -> int:
    """Compare the decoded records with the workload; return the most bytes of Arrow's pool meanwhile."""
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
    equal("decode", {"ours": (records, check), "the workload": (log.records, log.check)})
    return peak


def _into_pool(source: np.ndarray, kept: list[object] | None = None) -> None:
    for at in range(0, len(source), PIECE_BYTES):
        size = min(PIECE_BYTES, len(source) - at)
        piece = pa.allocate_buffer(size)
        ctypes.memmove(piece.address, source.ctypes.data + at, size)
        if kept is not None:
            kept.append(piece)


def _check_and_copy(log: BenchLog) -> None:
    """Check each batch, then copy its bytes into Arrow's pool: the same work without the records."""
    source, view = np.frombuffer(log.data, np.uint8), memoryview(log.data)
    piece, room = pa.allocate_buffer(PIECE_BYTES), PIECE_BYTES
    for at, size in zip(log.table.position.tolist(), log.table.size_bytes.tolist(), strict=True):
        crc32c(view[at : at + size])
        if room < size:
            piece, room = pa.allocate_buffer(PIECE_BYTES), PIECE_BYTES
        ctypes.memmove(piece.address + PIECE_BYTES - room, source.ctypes.data + at, size)
        room -= size


def _into_fresh_pages(source: memoryview) -> None:
    for at in range(0, len(source), PIECE_BYTES):
        size = min(PIECE_BYTES, len(source) - at)
        with mmap.mmap(-1, size) as pages:
            pages[:] = source[at : at + size]


def _and_drop(action: Callable[[list[object]], object]) -> Callable[[], None]:
    """Hold all results until the round ends."""
    kept: list[object] = []

    def run() -> None:
        action(kept)
        kept.clear()

    return run


def measure_decode(suite: Suite, scale: float, rounds: int) -> None:
    log = bench_log("none", batch_bytes=MIB, mean_size=1000, total_bytes=int(256 * MIB * scale))
    source, one = np.frombuffer(log.data, np.uint8), np.ones(len(log.data), np.uint8)
    peak = checked(log)
    copies: dict[str, tuple[Callable[[], object], float | None]] = {
        POOL: (lambda: _into_pool(source), 0.8),
        "CRC-32C, then memcpy": (lambda: _check_and_copy(log), None),
        "memcpy into one buffer": (lambda: ctypes.memmove(one.ctypes.data, source.ctypes.data, len(one)), None),
        "memcpy into fresh pages": (lambda: _into_fresh_pages(memoryview(log.data)), None),
    }
    found = in_turn({**{name: copy for name, (copy, _) in copies.items()}, "ours": lambda: decode(log)}, rounds)
    for name, (_, bar) in copies.items():
        suite.speed("decode, none, 1 MiB, 1000 B", found, name, amount=len(one), bar=bar)
    suite.add("decode, none, 1 MiB, 1000 B, peak of Arrow's memory in MiB", f"of {len(one) / MIB:.0f} MiB", peak / MIB)
    kept = "memcpy into Arrow's pool, kept"
    sides = {kept: _and_drop(lambda k: _into_pool(source, k)), "ours": _and_drop(lambda k: decode(log, kept=k))}
    suite.speed("decode, all kept, none, 1 MiB, 1000 B", in_turn(sides, rounds), kept, amount=len(one))
    for size in (1000, 100):
        _decode_headers(suite, size, scale, rounds)
    for codec, bar in (("lz4", 0.78), ("zstd", 0.8)):
        packed = bench_log(codec, batch_bytes=MIB, mean_size=1000, total_bytes=int(256 * MIB * scale))
        checked(packed)
        alone = bare.codec_of(codec, packed.data, packed.table, largest_batch_bytes=packed.largest_batch_bytes)
        equal(f"lib{codec}", {"bare": alone(), "the workload": packed.record_bytes})
        found = in_turn({f"lib{codec} alone": alone, "ours": partial(decode, packed)}, rounds)
        amount = packed.uncompressed_bytes
        suite.speed(f"decode, {codec}, 1 MiB, 1000 B", found, f"lib{codec} alone", amount=amount, bar=bar)


def _decode_headers(suite: Suite, size: int, scale: float, rounds: int) -> None:
    """Measure three small headers a record; also the column's cost beside passing them over."""
    total = int(64 * MIB * scale)
    log = bench_log("none", batch_bytes=MIB, mean_size=size, total_bytes=total, with_headers=True)
    source, columns = np.frombuffer(log.data, np.uint8), (*COLUMNS, "headers")
    checked(log)
    first = next(iter(RecordDecoder(columns, timestamp_unit="us").feed(log.data))).column("headers")
    wanted = [{"key": key, "value": value} for key, value in data.headers(1)]
    equal("headers", {"ours": first.slice(1, 1).to_pylist(), "the workload": [wanted]})
    equal("count of headers", {"ours": len(first.flatten()), "the workload": 3 * len(first)})
    without = "ours without the column headers"
    sides = {POOL: lambda: _into_pool(source), without: lambda: decode(log)}
    found = in_turn({**sides, "ours": lambda: decode(log, columns=columns)}, rounds)
    for peer in sides:
        suite.speed(f"decode with headers, none, 1 MiB, {size} B", found, peer, amount=len(log.data))


def measure_scan(suite: Suite, scale: float, rounds: int) -> None:
    alone = "CRC-32C alone"
    for codec, batch, size, total, bar in (
        ("none", MIB, 1000, 256, 0.85),
        ("zstd", MIB, 1000, 256, 0.85),
        ("none", 16 << 10, 100, 32, None),
    ):
        log = bench_log(codec, batch_bytes=batch, mean_size=size, total_bytes=int(total * MIB * scale))
        found = scan(log.data)
        told = (bool(found.crc_ok.all()), int(found.record_count.sum()))
        equal("scan", {"ours": told, "the workload": (True, log.records)})
        sides = {alone: partial(crc32c, log.data), "ours": partial(scan, log.data)}
        what = f"scan, {codec}, {batch >> 10} KiB, {size} B"
        suite.speed(what, in_turn(sides, rounds), alone, amount=len(log.data), bar=bar)


def measure_crc32c(suite: Suite, scale: float, rounds: int) -> None:
    """Over data in the cache. In 1 KiB the call from Python takes longer than the checksum: shown, but no bar."""
    sums: dict[str, Callable[[bytes], int]] = {"crc32c": crc32c_package.crc32c, "google-crc32c": google_crc32c.value}

    def repeated(checksum: Callable[[bytes], int], block: bytes, passes: int) -> None:
        for _ in range(passes):
            checksum(block)

    for size in (1 << 10, 16 << 10, 256 << 10):
        block, passes = np.random.default_rng(7).bytes(size), max(50, int(scale * HOT_PASSES * (16 << 10)) // size)
        equal("CRC-32C", {name: checksum(block) for name, checksum in {**sums, "ours": crc32c}.items()})
        everyone = {**sums, "ours": crc32c}
        found = in_turn({name: partial(repeated, one, block, passes) for name, one in everyone.items()}, rounds)
        for peer in sums:
            bar = 2.0 if size > 1 << 10 else None
            suite.speed(f"CRC-32C, hot, {size >> 10} KiB", found, peer, amount=size * passes, bar=bar)


def measure_chunks(suite: Suite, scale: float, rounds: int) -> None:
    log = bench_log("none", batch_bytes=MIB, mean_size=1000, total_bytes=int(64 * MIB * scale))
    source = np.frombuffer(log.data, np.uint8)
    chunks = [source[start : start + CHUNK] for start in range(0, len(source), CHUNK)]
    out, frame = np.ones(2 * CHUNK, np.uint8), np.ones(2 * CHUNK, np.uint8)

    def maker(compressed: bool, encrypted: bool) -> ChunkAssembler:
        return ChunkAssembler(
            original_chunk_size=CHUNK,
            original_file_size=len(source),
            compression_level=LEVEL if compressed else None,
            data_key=bare.KEY if encrypted else None,
            aad=AAD if encrypted else None,
        )

    def both(chunk: bare.Bytes) -> int:
        return bare.seal(IV, frame[: bare.compress(LEVEL, chunk, frame)], out, aad=AAD)

    zstd, aes, all_of_it = maker(True, False), maker(False, True), maker(True, True)
    calls: dict[str, dict[str, Callable[[bare.Bytes], int]]] = {
        "made, zstd": {
            "ZSTD_compress2": lambda chunk: bare.compress(LEVEL, chunk, out),
            "ours": lambda chunk: zstd.transform(chunk, out),
        },
        "made, AES": {
            "EVP_EncryptUpdate": lambda chunk: bare.seal(IV, chunk, out, aad=AAD),
            "ours": lambda chunk: aes.transform(chunk, out, iv=IV),
        },
        "made, zstd + AES": {
            "ZSTD_compress2, EVP_EncryptUpdate": both,
            "ours": lambda chunk: all_of_it.transform(chunk, out, iv=IV),
        },
    }
    size = bare.seal(IV, chunks[0], frame, aad=AAD)
    same = aes.transform(chunks[0], out, iv=IV) == size + len(IV) and np.array_equal(out[12 : 12 + size], frame[:size])
    equal("AES", {"ours": same, "bare": True})
    for what, pair in calls.items():
        found = in_turn({name: lambda f=call: [f(chunk) for chunk in chunks] for name, call in pair.items()}, rounds)
        suite.speed(f"chunks {what}", found, next(iter(pair)), amount=len(source), unit="MB/s", bar=0.9)
    frames = [out[: zstd.transform(chunk, out)].copy() for chunk in chunks]
    rooms = [out[: len(chunk)] for chunk in chunks]
    for packed, chunk, room in zip(frames, chunks, rooms, strict=True):
        if decompress_into(packed.tobytes(), ZSTD, room) != len(chunk) or not np.array_equal(room, chunk):
            raise SystemExit("a chunk opens otherwise")
    stored = [packed.tobytes() for packed in frames]
    sides = {
        "ZSTD_decompressDCtx": lambda: [bare.decompress(f, r) for f, r in zip(frames, rooms, strict=True)],
        "ours": lambda: [decompress_into(f, ZSTD, r) for f, r in zip(stored, rooms, strict=True)],
    }
    found = in_turn(sides, rounds)
    suite.speed("chunks opened, zstd", found, "ZSTD_decompressDCtx", amount=len(source), unit="MB/s", bar=0.9)
    _plain(suite, chunks, out, rounds)
    for batch_bytes in (MIB, 16 << 10):
        _checks(suite, batch_bytes, scale, rounds)


def _plain(suite: Suite, chunks: list[bare.Bytes], out: bare.Bytes, rounds: int) -> None:
    part = memoryview(out)[:CHUNK]
    with work_folder() as folder:
        path = folder / "log"
        path.write_bytes(b"".join(chunk.tobytes() for chunk in chunks))
        positions = range(0, max(path.stat().st_size - CHUNK + 1, 1), CHUNK)
        descriptor = os.open(path, os.O_RDONLY)
        with Machine().files.open_read(str(path)) as file:
            sides = {
                "pread": lambda: [os.preadv(descriptor, [part], position) for position in positions],
                "ours": lambda: [file.read_into(part, position=position) for position in positions],
            }
            found = in_turn(sides, rounds)
        os.close(descriptor)
    suite.speed("chunks read, plain", found, "pread", amount=len(positions) * CHUNK, bar=0.95)


def _checks(suite: Suite, batch_bytes: int, scale: float, rounds: int) -> None:
    """The checks of every copied batch, chunk by chunk; BatchRuns joins one across two chunks, as reading does."""
    log = bench_log("none", batch_bytes=batch_bytes, mean_size=1000, total_bytes=int(64 * MIB * scale))
    view = memoryview(log.data)
    pieces = [view[start : start + CHUNK] for start in range(0, len(view), CHUNK)]
    borders = zip(log.table.position.tolist(), log.table.size_bytes.tolist(), strict=True)
    batches = [view[position : position + size] for position, size in borders]
    first, last = int(log.table.base_offset[0]), int(log.table.last_offset[-1])
    given = {"position": 0, "first_offset": first, "last_offset": last, "size_bytes": len(view), "name": "log"}

    def streamed() -> int:
        walk = SegmentWalk(**given, kind=CorruptRecordError)
        return sum(len(walk.collect(piece)["position"]) for piece in pieces)

    def joined() -> int:
        return sum(int(run.columns["crc_ok"].sum()) for run in BatchRuns(pieces, verify_crc=True))

    equal("batches", {"ours": streamed(), "BatchRuns": joined(), "the workload": len(log.table)})
    sides = {"CRC-32C, a call a batch": lambda: [crc32c(batch) for batch in batches], "BatchRuns": joined}
    found = in_turn({**sides, "ours": streamed}, rounds)
    for peer, bar in (("CRC-32C, a call a batch", 0.8), ("BatchRuns", None)):
        suite.speed(f"chunks checked, batches of {batch_bytes >> 10} KiB", found, peer, amount=len(view), bar=bar)


PARTS = {"decode": measure_decode, "scan": measure_scan, "crc32c": measure_crc32c, "chunks": measure_chunks}


def main() -> None:
    chosen = arguments(__doc__, list(PARTS))
    suite = Suite("micro", bare.versions())
    for part in chosen.parts:
        PARTS[part](suite, chosen.scale, chosen.rounds)
    suite.save()


if __name__ == "__main__":
    main()
