"""Start and memory over a large bucket: ten thousand segments."""

from __future__ import annotations

import asyncio
import pathlib
import time
import tracemalloc

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.catalogs import NEVER_SECONDS, history_of, opened_catalog, relisted, spans_of
from tests.support.loops import run_on
from tierlog.broker.replica.catalog.bucket_catalog import CatalogSettings

SEGMENTS = 10_000
#: Of the start's own work; imports and connections are others'.
START_CPU_SECONDS, RESTART_CPU_SECONDS = 2.0, 0.4
PARTITION_BYTES = 6000


def wrote(root: pathlib.Path, *, partitions: int) -> None:
    for topic in range(20):
        for partition in range(partitions // 20):
            bucket = Bucket(root, f"topic{topic}", partition)
            for number in range(SEGMENTS // partitions):
                bucket.segment(f"s{number}", [message(number, "m", 0)], lineage={0: 0})


@pytest.mark.slow
def test_a_start_over_ten_thousand_segments_is_quick(tmp_path: pathlib.Path) -> None:
    """The first client would wait for minutes, and after each restart again."""
    wrote(tmp_path / "bucket", partitions=1000)
    settings = CatalogSettings(
        refresh_seconds=NEVER_SECONDS, segments_ahead_max=0, state_file=str(tmp_path / "state" / "listing")
    )
    took: list[float] = []

    async def main() -> None:
        began = time.process_time()
        async with opened_catalog(tmp_path / "bucket", settings) as catalog:
            history = await history_of(catalog, "topic3", 7).resolve()
            took.append(time.process_time() - began)
            assert len(spans_of(history)) == 10
            assert sum(len(topic.partitions) for topic in catalog.topics()) == 1000

    run_on("uvloop", main)
    run_on("uvloop", main)
    print(f"start {took[0]:.2f} s, restart {took[1]:.2f} s of CPU")
    assert took[0] < START_CPU_SECONDS
    assert took[1] < RESTART_CPU_SECONDS


@pytest.mark.slow
def test_ten_thousand_partitions_are_small(tmp_path: pathlib.Path) -> None:
    """A server over many partitions would not fit beside its caches."""
    wrote(tmp_path, partitions=SEGMENTS)

    async def main() -> None:
        async with opened_catalog(
            tmp_path, CatalogSettings(refresh_seconds=NEVER_SECONDS, segments_ahead_max=0)
        ) as catalog:
            await asyncio.gather(
                *(
                    history_of(catalog, topic.name, number).resolve()
                    for topic in catalog.topics()
                    for number in range(9)
                )
            )
            tracemalloc.start()
            await relisted(catalog)
            listed = tracemalloc.get_traced_memory()[0]
            for topic in catalog.topics():
                for number in topic.partitions:
                    await history_of(catalog, topic.name, number).resolve()
            resolved = tracemalloc.get_traced_memory()[0] - listed
            tracemalloc.stop()
            print(f"{resolved / SEGMENTS:.0f} bytes a partition of one segment")
            assert resolved / SEGMENTS < PARTITION_BYTES

    run_on("uvloop", main)
