"""The part of ``tierlog bench`` without a store: limits of memory, checksum and codecs, and our speed beside them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tierlog._native.checksums import crc32c
from tierlog._native.codecs import decompress_into
from tierlog._native.decoding import RecordDecoder
from tierlog.cli.bench.data import MadeLog, can_make, make_log
from tierlog.cli.bench.measuring import Measurement, Task, measure
from tierlog.errors import TierlogError
from tierlog.records.batch_table import CODEC_NAMES, scan
from tierlog.runtime.machine.clock import Clock

#: What Spark asks for; the decoder's record batches are as large as the pieces of the copy.
COLUMNS = ("key", "value", "offset", "timestamp", "timestampType")
PIECE_BYTES = 2 << 20
COMPRESSED = ("lz4", "zstd", "snappy", "gzip")


class WrongAnswerError(TierlogError):
    """A benchmark's result is wrong, so that its times mean nothing."""


def measure_memory(
    clock: Clock, *, size_bytes: int, rounds: int, budget_seconds: float, skipped: list[str]
) -> Iterator[list[Measurement]]:
    """Measure groups of a limit and the calls compared with it.

    Args:
        clock: Source of monotonic time.
        size_bytes: Uncompressed size of each codec's log.
        rounds: As in ``measure``.
        budget_seconds: For each group.
        skipped: Gets a line for each codec that cannot be written here.
    """
    log = make_log("none", size_bytes=size_bytes)
    size = len(log.data)
    _check(log, int(scan(log.data).record_count.sum()), "scan")
    _check(log, decode(log.data), "decode")
    copy = Task("memcpy into Arrow's pool", lambda: copy_into_pool(log.data), size)
    ours = Task("decode, none", lambda: decode(log.data), size, log.records)
    yield measure(clock, copy, [ours], rounds=rounds, budget_seconds=budget_seconds)
    checksum = Task("CRC-32C", lambda: crc32c(log.data), size)
    ours = Task("scan", lambda: scan(log.data), size, log.records)
    yield measure(clock, checksum, [ours], rounds=rounds, budget_seconds=budget_seconds)
    for codec in COMPRESSED:
        if not can_make(codec):
            skipped.append(f"{codec}: this pyarrow cannot write data to read")
            continue
        log = make_log(codec, size_bytes=size_bytes)
        yield _measure_codec(clock, codec, log, rounds=rounds, budget_seconds=budget_seconds)


def _measure_codec(clock: Clock, codec: str, log: MadeLog, *, rounds: int, budget_seconds: float) -> list[Measurement]:
    payloads = log.payloads()
    number = CODEC_NAMES.index(codec)
    out = bytearray(log.largest_batch_bytes)

    def alone() -> int:
        return sum(decompress_into(payload, number, out) for payload in payloads)

    if alone() != log.record_bytes:
        raise WrongAnswerError(f"{codec}: the codec gives other bytes than were compressed")
    _check(log, decode(log.data), f"decode, {codec}")
    limit = Task(f"{codec} alone", alone, log.uncompressed_bytes)
    ours = Task(f"decode, {codec}", lambda: decode(log.data), log.uncompressed_bytes, log.records)
    return measure(clock, limit, [ours], rounds=rounds, budget_seconds=budget_seconds)


def decode(data: bytes) -> int:
    """Decode the log on one core into Arrow; returns the number of records. Each record batch is dropped before the
    next.
    """
    decoder = RecordDecoder(COLUMNS, timestamp_unit="us", target_bytes=PIECE_BYTES)
    records = 0
    for step in (decoder.feed(data), decoder.finish()):
        for batch in step:
            records += batch.num_rows
    return records


def copy_into_pool(data: bytes) -> None:
    """Copy the bytes piece by piece into new buffers of Arrow's pool: the least cost of decoding uncompressed data."""
    source = np.frombuffer(data, np.uint8)
    for at in range(0, len(source), PIECE_BYTES):
        piece = source[at : at + PIECE_BYTES]
        np.copyto(np.frombuffer(pa.allocate_buffer(len(piece)), np.uint8), piece)


def _check(log: MadeLog, records: int, what: str) -> None:
    if records != log.records:
        raise WrongAnswerError(f"{what}: {records} records of {log.records}")
