"""Logs in memory for ``tierlog bench``: records of a fixed seed, as compressible as JSON is, in batches of 1 MiB."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tierlog.records.batch_table import BatchTable, scan
from tierlog.records.builder import RecordBatchBuilder

SEED = 20261121
BATCH_BYTES = 1 << 20
MEAN_VALUE_BYTES = 1000
_FIRST_TIMESTAMP_MS = 1_700_000_000_000
_POOL = 8192
_FIELD_NAMES = (
    b"orderId",
    b"customerId",
    b"cartId",
    b"createdAt",
    b"updatedBy",
    b"productPage",
    b"sessionToken",
    b"price",
)
#: Of a field with its id and its quotes, about.
_FIELD_BYTES = 30
_HEADER_BYTES = 61


@dataclass(frozen=True, slots=True)
class MadeLog:
    """Whole batches of magic 2.

    Attributes:
        data: The batches.
        table: Their headers.
        records: How many.
        record_bytes: Of the uncompressed records, without batch headers.
        largest_batch_bytes: The same of one batch.
    """

    data: bytes
    table: BatchTable
    records: int
    record_bytes: int
    largest_batch_bytes: int

    @property
    def uncompressed_bytes(self) -> int:
        """Of the log if it were not compressed."""
        return self.record_bytes + _HEADER_BYTES * len(self.table)

    def payloads(self) -> list[memoryview]:
        """The compressed stream of each batch."""
        view = memoryview(self.data)
        spans = zip(self.table.position.tolist(), self.table.size_bytes.tolist(), strict=True)
        return [view[position + _HEADER_BYTES : position + size] for position, size in spans]


def make_log(codec: str, *, size_bytes: int) -> MadeLog:
    """A log of about ``size_bytes`` of uncompressed records; the same for the same arguments.

    Raises:
        ModuleNotFoundError: the package that writes this codec is not installed; reading needs none.
    """
    parts: list[bytes] = []
    sizes: list[int] = []
    offset = 0
    builder = RecordBatchBuilder(offset, codec=codec)
    for key, value, timestamp_ms in _records():
        builder.append(key, value, timestamp_ms=timestamp_ms)
        offset += 1
        if builder.uncompressed_size_bytes >= BATCH_BYTES:
            parts.append(builder.build())
            sizes.append(builder.uncompressed_size_bytes)
            builder = RecordBatchBuilder(offset, codec=codec)
            if sum(sizes) >= size_bytes:
                break
    data = b"".join(parts)
    return MadeLog(data, scan(data), offset, sum(sizes), max(sizes))


def _records() -> Iterator[tuple[bytes, bytes, int]]:
    """(key, value, timestamp in ms) without end: keys are skewed."""
    rng = np.random.default_rng(SEED)
    pool = _values()
    keys = [b"customer-%08d" % key for key in np.minimum(rng.zipf(1.3, _POOL), 10**8 - 1)]
    timestamp_ms = _FIRST_TIMESTAMP_MS
    while True:
        picks = rng.integers(_POOL, size=(4096, 2))
        for value_pick, key_pick in picks.tolist():
            timestamp_ms += value_pick & 1
            yield keys[key_pick], pool[value_pick], timestamp_ms


@functools.cache
def _values() -> tuple[bytes, ...]:
    """Distinct values of mixed sizes: fields of a known name and a new id. More than fit the window of a codec."""
    rng = np.random.default_rng(SEED + 1)
    counts = (rng.lognormal(np.log(MEAN_VALUE_BYTES / _FIELD_BYTES), 0.4, _POOL).astype(int) + 1).tolist()
    names = rng.integers(len(_FIELD_NAMES), size=sum(counts)).tolist()
    ids = rng.bytes(8 * sum(counts)).hex().encode()
    fields = [b'"%s":"%s"' % (_FIELD_NAMES[name], ids[16 * i : 16 * i + 16]) for i, name in enumerate(names)]
    ends = itertools.accumulate(counts)
    return tuple(b"{%s}" % b",".join(fields[end - count : end]) for end, count in zip(ends, counts, strict=True))
