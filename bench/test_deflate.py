"""Why gzip goes through libdeflate: the three libraries over the gzip batches of one log, each behind its package.

Ours is the core's own call, with its walk over the members; docs/decisions/0003 has the choice.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import deflate
from isal import isal_zlib

from bench.logs import MIB, bench_log
from bench.side_by_side import Comparison
from tierlog._native.codecs import decompress_into

GZIP = 1
_HEADER_BYTES = 61
_GZIP_WINDOW = 31


def test_gzip_1MiB_1000B(compare: Callable[..., Comparison]) -> None:
    log = bench_log("gzip", batch_bytes=MIB, mean_size=1000, total_bytes=64 * MIB)
    streams = [
        log.data[position + _HEADER_BYTES : position + size]
        for position, size in zip(log.table.position.tolist(), log.table.size_bytes.tolist(), strict=True)
    ]
    room = log.largest_batch_bytes
    out = bytearray(room)
    ways: dict[str, Callable[[bytes], int]] = {
        "zlib": lambda stream: len(zlib.decompress(stream, _GZIP_WINDOW, room)),
        "isa-l": lambda stream: len(isal_zlib.decompress(stream, _GZIP_WINDOW, room)),
        "libdeflate": lambda stream: len(deflate.gzip_decompress(stream, room)),
    }

    def ours(stream: bytes) -> int:
        return decompress_into(stream, GZIP, out)

    for way in (ours, *ways.values()):
        assert sum(map(way, streams)) == log.record_bytes
    compare(
        lambda: sum(map(ours, streams)),
        {name: (lambda way=way: sum(map(way, streams))) for name, way in ways.items()},
        size_bytes=log.record_bytes,
        records=log.records,
    )
