"""Batch headers with every checksum, against the checksum of the same bytes alone; and CRC-32C against the packages."""

from __future__ import annotations

from collections.abc import Callable

import crc32c as crc32c_package
import google_crc32c
import numpy as np
import pytest

from bench.logs import MIB, bench_log
from bench.side_by_side import Comparison
from tierlog._native.checksums import crc32c
from tierlog.records import scan

Compare = Callable[..., Comparison]
#: As many passes as make a round of some tens of milliseconds.
HOT_PASSES = 2000


@pytest.mark.parametrize("codec", ["none", "zstd"], ids=["none-1MiB-1000B", "zstd-1MiB-1000B"])
def test_scan(codec: str, compare: Compare) -> None:
    log = bench_log(codec, batch_bytes=MIB, mean_size=1000, total_bytes=256 * MIB)
    found = scan(log.data)
    assert bool(found.crc_ok.all())
    assert int(found.record_count.sum()) == log.records
    compare(
        lambda: scan(log.data),
        {"CRC-32C alone": lambda: crc32c(log.data)},
        bars={"CRC-32C alone": 0.85},
        size_bytes=len(log.data),
        records=log.records,
    )


@pytest.mark.parametrize("codec", ["none"], ids=["none-16KiB-100B"])
def test_scan_small_batches(codec: str, compare: Compare) -> None:
    log = bench_log(codec, batch_bytes=16 << 10, mean_size=100, total_bytes=32 * MIB)
    assert bool(scan(log.data).crc_ok.all())
    compare(
        lambda: scan(log.data),
        {"CRC-32C alone": lambda: crc32c(log.data)},
        size_bytes=len(log.data),
        records=log.records,
    )


@pytest.mark.parametrize("size", [1 << 10, 16 << 10, 256 << 10], ids=["hot-1KiB", "hot-16KiB", "hot-256KiB"])
def test_crc32c(size: int, compare: Compare) -> None:
    data = np.random.default_rng(7).bytes(size)
    assert crc32c(data) == crc32c_package.crc32c(data) == google_crc32c.value(data)
    passes = range(max(50, HOT_PASSES * (16 << 10) // size))

    def repeated(checksum: Callable[[bytes], int]) -> Callable[[], None]:
        def run() -> None:
            for _ in passes:
                checksum(data)

        return run

    packages = {"crc32c": repeated(crc32c_package.crc32c), "google-crc32c": repeated(google_crc32c.value)}
    # In 1 KiB the call of Python takes longer than the checksum, on every side: shown, but no bar.
    bars = dict.fromkeys(packages, 2.0) if size > 1 << 10 else None
    compare(repeated(crc32c), packages, bars=bars, size_bytes=size * len(passes))
