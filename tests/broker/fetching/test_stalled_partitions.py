"""Fetches of partitions that a store keeps waiting, beside others."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.fetch_client import Ask, FetchRig, on_loop
from tests.support.manual_timers import settle


def test_slow_partitions_are_read_beside_each_other() -> None:
    """Otherwise the time of a cold fetch is the sum of its partitions' times."""

    async def test(rig: FetchRig) -> None:
        partitions = rig.catalog.add("orders", 40)
        gate = asyncio.Event()
        for number, partition in enumerate(partitions):
            partition.append(100)
            if number % 2:
                partition.gate = gate
        partitions[1].is_loaded = partitions[2].is_loaded = False
        asking = asyncio.ensure_future(rig.fetch(12, [Ask("orders", number, 0) for number in range(40)]))
        await settle()
        assert sum(partition.waiting_count for partition in partitions) == 16
        gate.set()
        answer = await asking
        assert [told.partition for told in answer.partitions] == list(range(40))
        assert all(len(told.records) == 100 for told in answer.partitions)

    on_loop(test)


def test_a_partition_that_stalls_keeps_none_of_the_others() -> None:
    """Otherwise a store that stalls for a minute for one object stops a consumer of a hundred partitions."""

    async def test(rig: FetchRig) -> None:
        partitions = rig.catalog.add("orders", 40)
        for partition in partitions:
            partition.append(100)
        slow = partitions[3]
        slow.gate = asyncio.Event()
        asks = [Ask("orders", number, 0) for number in range(40)]
        asking = asyncio.ensure_future(rig.fetch(12, asks))
        await rig.timers.advance(0.4)
        assert not asking.done()
        await rig.timers.advance(0.2)
        answer = await asking
        assert len(answer.records) == 39
        assert (answer.partitions[3].error, answer.partitions[3].high_watermark) == ("none", 1)
        assert (slow.waiting_count, slow.cancelled_count) == (1, 0), "the read goes on"
        asking = asyncio.ensure_future(rig.fetch(12, asks[3:5]))
        await rig.timers.advance(0.6)
        assert len((await asking).records) == 1
        assert slow.reads_count == 1, "nobody begins it anew"
        asking = asyncio.ensure_future(rig.fetch(12, asks[3:4], max_wait_ms=60_000))
        await rig.timers.advance(5.0)
        assert not asking.done(), "with nothing else to tell it is waited for"
        slow.gate.set()
        await settle()
        assert list((await asking).records) == [("orders", 3)]

    on_loop(test)


@pytest.mark.parametrize("knows_offsets", [True, False])
@pytest.mark.parametrize(("crowd", "max_bytes"), [(40, 50 << 20), (3, 100)])
def test_a_crowd_that_stalls_keeps_none_of_the_others(knows_offsets: bool, crowd: int, max_bytes: int) -> None:
    """Otherwise partitions whose prefix of the store stalls stop every partition behind them, for as long."""

    async def test(rig: FetchRig) -> None:
        partitions = rig.catalog.add("orders", 42)
        for partition in partitions:
            partition.append(100)
        for partition in partitions[:crowd]:
            partition.gate = asyncio.Event()
            partition.is_loaded = knows_offsets
        asks = [Ask("orders", number, 0) for number in (*range(crowd), 40, 41)]
        asking = asyncio.ensure_future(rig.fetch(12, asks, max_bytes=max_bytes))
        for _ in range(30):
            await rig.timers.advance(0.1)
        answer = await asking
        assert set(answer.records) <= {("orders", 40), ("orders", 41)}
        assert len(answer.records) == min(2, max_bytes // 100)
        assert sum(partition.cancelled_count for partition in partitions) == 0
        await rig.handler.close()

    on_loop(test)


def test_reads_that_nobody_waits_for_end_with_the_server() -> None:
    """Otherwise a server does not stop while a store stalls, or so many reads go on that memory runs out."""

    async def test(rig: FetchRig) -> None:
        partitions = rig.catalog.add("orders", 100)
        for partition in partitions:
            partition.append(100)
        for partition in partitions[1:]:
            partition.gate = asyncio.Event()
        for first in range(1, 100, 16):
            asks = [Ask("orders", 0, 0)] + [Ask("orders", number, 0) for number in range(first, min(first + 16, 100))]
            asking = asyncio.ensure_future(rig.fetch(12, asks))
            await rig.timers.advance(0.6)
            assert list((await asking).records) == [("orders", 0)]
        assert sum(partition.waiting_count for partition in partitions) == 64
        assert sum(partition.cancelled_count for partition in partitions) == 99 - 64
        await rig.handler.close()
        assert sum(partition.waiting_count for partition in partitions) == 0

    on_loop(test)
