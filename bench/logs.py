"""Logs for the micro-benchmarks: the records of :mod:`bench.workload` in batches of one size, every batch another."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from bench import workload
from bench.side_by_side import scaled
from tierlog.records import BatchTable, scan
from tierlog.records.builder import RecordBatchBuilder

MIB = 1 << 20


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
        total_bytes: Of keys and values, before the scale.
        with_headers: Each record has three small ones, as tracing and schema registries add them.
    """
    parts: list[bytes] = []
    builder = RecordBatchBuilder(0, codec=codec)
    offset = check = payload = record_bytes = largest = 0
    for key, value, timestamp in workload.records(scaled(total_bytes), mean_size):
        headers = workload.headers(offset) if with_headers else ()
        builder.append(key, value, timestamp_ms=timestamp, headers=headers)
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
