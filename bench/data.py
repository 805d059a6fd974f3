"""Records of a fixed seed, shaped like production: a mix of sizes, skewed keys, half-compressible values; logs of them.

The same records go to a real broker, which makes the log that all peers read, and into logs in memory.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tierlog.records import BatchTable, scan
from tierlog.records.builder import RecordBatchBuilder

SEED = 20261121
FIRST_TIMESTAMP_MS = 1_700_000_000_000
POOL = 8192
_WORDS = [
    f"{a}{b}".encode() for a in ("order", "user", "cart", "item", "price", "page") for b in ("_id", "Name", "At", "")
]


def values(mean_size: int, *, seed: int = SEED, pool: int = POOL) -> list[bytes]:
    """A pool of distinct values: JSON-like text with random ids in it; sizes spread log-normally round the mean."""
    rng = np.random.default_rng(seed)
    sizes = np.clip(rng.lognormal(np.log(mean_size) - 0.125, 0.5, pool), mean_size // 8 + 1, mean_size * 8).astype(int)
    made = []
    for size in sizes:
        parts: list[bytes] = [b"{"]
        length = 1
        while length < size:
            word = _WORDS[int(rng.integers(len(_WORDS)))]
            part = b'"%s":"%s",' % (word, rng.bytes(9).hex().encode())
            parts.append(part)
            length += len(part)
        made.append(b"".join(parts)[: int(size) - 1] + b"}")
    return made


def keys(count: int, *, seed: int = SEED) -> list[bytes]:
    """Skewed keys: a few are very frequent, as customers are."""
    rng = np.random.default_rng(seed + 1)
    return [b"customer-%08d" % k for k in np.minimum(rng.zipf(1.3, count), 10**8 - 1)]


def headers(number: int) -> tuple[tuple[str, bytes], ...]:
    """Three, of 26 bytes in all beside their names; the first is another one in each record."""
    return (
        ("trace-id", b"%016x" % (number * 0x9E3779B97F4A7C15 % 2**64)),
        ("schema-id", b"\0\0\1\7"),
        ("source", b"orders"),
    )


def records(total_bytes: int, mean_size: int, *, seed: int = SEED) -> Iterator[tuple[bytes, bytes, int]]:
    """(key, value, timestamp in ms) until about ``total_bytes`` of keys and values."""
    rng = np.random.default_rng(seed + 2)
    pool = values(mean_size, seed=seed)
    some_keys = keys(POOL, seed=seed)
    done = 0
    timestamp = FIRST_TIMESTAMP_MS
    while done < total_bytes:
        picks = rng.integers(POOL, size=4096)
        key_picks = rng.integers(POOL, size=4096)
        gaps = rng.integers(0, 3, size=4096)
        for pick, key_pick, gap in zip(picks.tolist(), key_picks.tolist(), gaps.tolist(), strict=True):
            timestamp += gap
            value, key = pool[pick], some_keys[key_pick]
            done += len(value) + len(key)
            yield key, value, timestamp


@dataclass(frozen=True, slots=True)
class BenchLog:
    """A log in memory.

    Attributes:
        data: Whole batches of magic 2.
        table: Their headers.
        records: How many.
        check: Sum of offsets, key sizes and value sizes: what every reader has to come to.
        payload_bytes: Of keys and values.
        record_bytes: Uncompressed records, without batch headers.
        largest_batch_bytes: Of the same in one batch.
    """

    data: bytes
    table: BatchTable
    records: int
    check: int
    payload_bytes: int
    record_bytes: int
    largest_batch_bytes: int

    @property
    def uncompressed_bytes(self) -> int:
        """Size of the log if it were not compressed."""
        return self.record_bytes + 61 * len(self.table)


@functools.cache
def bench_log(
    codec: str, *, batch_bytes: int, mean_size: int, total_bytes: int, with_headers: bool = False
) -> BenchLog:
    """Deterministic: the seed is the workload's.

    Args:
        codec: none, gzip, snappy, lz4 or zstd.
        batch_bytes: Uncompressed records of one batch, about.
        mean_size: Of a value.
        total_bytes: Of keys and values.
        with_headers: Each record has three small ones, as tracing and schema registries add them.
    """
    parts: list[bytes] = []
    builder = RecordBatchBuilder(0, codec=codec)
    offset = check = payload = record_bytes = largest = 0
    for key, value, timestamp in records(total_bytes, mean_size):
        own = headers(offset) if with_headers else ()
        builder.append(key, value, timestamp_ms=timestamp, headers=own)
        check += offset + len(key) + len(value)
        payload += len(key) + len(value)
        offset += 1
        if builder.uncompressed_size_bytes >= batch_bytes:
            parts.append(builder.build())
            record_bytes += builder.uncompressed_size_bytes
            largest = max(largest, builder.uncompressed_size_bytes)
            builder = RecordBatchBuilder(offset, codec=codec)
    if len(builder):
        parts.append(builder.build())
        record_bytes += builder.uncompressed_size_bytes
        largest = max(largest, builder.uncompressed_size_bytes)
    data = b"".join(parts)
    return BenchLog(data, scan(data), offset, check, payload, record_bytes, largest)
