"""Which reads of local files the memory cache is filled for."""

from __future__ import annotations

import pathlib
import random

import pytest

from tests.broker.replica.test_segment_reads import MIB, bucket_of
from tests.support.file_parts import bytes_of
from tests.support.loops import run_on
from tests.support.replica_reads import Served, read_on, served
from tierlog.broker.replica.recent_pieces import RecentPieces


def test_what_is_read_once_is_always_new() -> None:
    """A scan of a log larger than the cache would copy it into memory for nobody."""
    pieces = RecentPieces(100)
    assert all(pieces.note(number % 101) for number in range(1000))
    assert all(RecentPieces(0).note(1) for _ in range(3))


def test_what_is_read_often_stays_known() -> None:
    """The pieces that all consumers want would be forgotten for those of one who passes."""
    pieces, chance = RecentPieces(10), random.Random(5)
    pieces.note("hot")
    for number in range(1000):
        pieces.note(number)
        if chance.random() < 0.5:
            assert not pieces.note("hot")
        elif number % 5 == 0:
            pieces.note("hot")


@pytest.mark.usefixtures("untold")
def test_a_plain_local_log_that_is_read_again_comes_from_memory(tmp_path: pathlib.Path) -> None:
    """Many consumers of one local log would each pay for a copy of it, and for a thread."""
    log = bucket_of(tmp_path, "orders")

    async def check(here: Served) -> None:
        partition, cache = here.partitions["orders", 0], here.reads._fetcher._cache
        assert cache is not None
        sizes = []
        for _ in range(3):
            read = await read_on(partition, read_committed=False, max_bytes=lambda: MIB)
            assert b"".join(bytes_of(found.records) for _, found in read).startswith(log[:MIB])
            sizes.append(cache.figures.size_bytes)
        assert sizes == [0, len(log), len(log)]
        hits = cache.figures.hits
        assert (await partition.read(0, max_bytes=MIB, is_first_whole=True, read_committed=False)).size_bytes == MIB
        assert cache.figures.hits > hits

    with served(str(tmp_path), {"fetch.prefetch.enabled": "false"}) as here:
        run_on("uvloop", lambda: check(here))
    with served(str(tmp_path), {"fetch.chunk.cache.size": "0"}) as here:

        async def never(here: Served) -> None:
            for _ in range(3):
                await read_on(here.partitions["orders", 0], read_committed=False, max_bytes=lambda: MIB)
            assert here.reads._fetcher._cache.figures.hits == 0  # type: ignore[union-attr]

        run_on("uvloop", lambda: never(here))
