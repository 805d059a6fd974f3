"""Logs in memory for ``tierlog bench``: records of a fixed seed, as compressible as JSON is, in batches of 1 MiB."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from tierlog._native.codecs import compress_bound, compress_into
from tierlog.records.batch_table import CODEC_NAMES, BatchTable, scan
from tierlog.records.builder import RecordBatchBuilder, encode_batch

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
_ARROW_CODECS: Final = {"lz4": "lz4_raw", "snappy": "snappy"}
#: The builder's own take packages that only the extra dev has.
_OF_OTHERS: Final = (*_ARROW_CODECS, "zstd")
_ZSTD_LEVEL: Final = 3
#: The first bytes of a stream, bytes of a block, byte order of the blocks' sizes, the last bytes.
_FRAMES: Final[dict[str, tuple[bytes, int, Literal["little", "big"], bytes]]] = {
    "lz4": (bytes.fromhex("04224d18604082"), 64 << 10, "little", bytes(4)),
    "snappy": (b"\x82SNAPPY\0" + bytes.fromhex("0000000100000001"), 32 << 10, "big", b""),
}


@dataclass(frozen=True, slots=True)
class MadeLog:
    """Whole batches of magic 2.

    Attributes:
        data: The batches.
        table: Their headers.
        records: Number of records.
        record_bytes: Size of the uncompressed records, without batch headers.
        largest_batch_bytes: Size of the largest batch's uncompressed records.
    """

    data: bytes
    table: BatchTable
    records: int
    record_bytes: int
    largest_batch_bytes: int

    @property
    def uncompressed_bytes(self) -> int:
        """Size of the log if it were not compressed."""
        return self.record_bytes + _HEADER_BYTES * len(self.table)

    def payloads(self) -> list[memoryview]:
        """Return the compressed stream of each batch."""
        view = memoryview(self.data)
        spans = zip(self.table.position.tolist(), self.table.size_bytes.tolist(), strict=True)
        return [view[position + _HEADER_BYTES : position + size] for position, size in spans]


def make_log(codec: str, *, size_bytes: int) -> MadeLog:
    """Make a log of about ``size_bytes`` of uncompressed records; the same for the same arguments."""
    parts: list[bytes] = []
    sizes: list[int] = []
    offset = 0
    by_builder = "none" if codec in _OF_OTHERS else codec
    builder = RecordBatchBuilder(offset, codec=by_builder)
    for key, value, timestamp_ms in _records():
        builder.append(key, value, timestamp_ms=timestamp_ms)
        offset += 1
        if builder.uncompressed_size_bytes >= BATCH_BYTES:
            parts.append(_build(builder, codec))
            sizes.append(builder.uncompressed_size_bytes)
            builder = RecordBatchBuilder(offset, codec=by_builder)
            if sum(sizes) >= size_bytes:
                break
    data = b"".join(parts)
    return MadeLog(data, scan(data), offset, sum(sizes), max(sizes))


def can_make(codec: str) -> bool:
    """Whether this installation can write the codec. It can read all of them."""
    return codec not in _ARROW_CODECS or bool(pa.Codec.is_available(_ARROW_CODECS[codec]))


def _build(builder: RecordBatchBuilder, codec: str) -> bytes:
    """Build the batch; lz4 and snappy by Arrow, zstd by the core."""
    plain = builder.build()
    if codec not in _OF_OTHERS:
        return plain
    header = scan(plain)
    return encode_batch(
        base_offset=builder.base_offset,
        records=(_zstd_stream if codec == "zstd" else _arrow_stream)(plain[_HEADER_BYTES:], codec),
        record_count=len(builder),
        last_offset_delta=int(header.last_offset[0] - header.base_offset[0]),
        base_timestamp=int(header.base_timestamp[0]),
        max_timestamp=int(header.max_timestamp[0]),
        attributes=CODEC_NAMES.index(codec),
    )


def _zstd_stream(data: bytes, _: str) -> bytes:
    frame = bytearray(compress_bound(len(data)))
    return bytes(frame[: compress_into(data, frame, level=_ZSTD_LEVEL)])


def _arrow_stream(data: bytes, codec: str) -> bytes:
    """Return a stream with the framing and the block sizes of Kafka's clients; every block is smaller than
    its content.
    """
    compress = pa.Codec(_ARROW_CODECS[codec]).compress
    start, block_bytes, order, end = _FRAMES[codec]
    parts = [start]
    for at in range(0, len(data), block_bytes):
        block = compress(data[at : at + block_bytes], asbytes=True)
        parts += [len(block).to_bytes(4, order), block]
    return b"".join([*parts, end])


def _records() -> Iterator[tuple[bytes, bytes, int]]:
    """Yield an endless sequence of (key, value, timestamp in ms) with skewed keys."""
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
