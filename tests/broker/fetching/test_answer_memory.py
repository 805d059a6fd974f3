"""Memory of answers: never more than there is, always released, in turns."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.support.fetch_client import Ask, FetchRig
from tests.support.loops import run_on
from tests.support.manual_timers import ManualTimers, settle
from tierlog.broker.fetching.fetch_handler import FetchLimits
from tierlog.runtime.machine import Machine
from tierlog.serving.answer_memory import AnswerMemory, Grant

MIB = 1 << 20


def test_turns_go_round_the_hosts() -> None:
    """Otherwise a host with a hundred consumers keeps out one that has a single one."""

    async def main() -> None:
        memory = AnswerMemory(10, ManualTimers(), Machine())
        first = await memory.take("first", least_bytes=10, wanted_bytes=10, seconds=0)
        assert first is not None
        order: list[str] = []

        async def take(host: str) -> None:
            grant = await memory.take(host, least_bytes=10, wanted_bytes=10, seconds=60)
            assert grant is not None
            order.append(host)
            await settle()
            grant.release()

        asking = [asyncio.ensure_future(take(host)) for host in ("many", "many", "many", "one", "other")]
        await settle()
        assert order == []
        first.release()
        await asyncio.gather(*asking)
        assert order == ["many", "one", "other", "many", "many"]
        assert memory.held_bytes == 0

    run_on("asyncio", main)


def test_who_waits_too_long_gets_nothing_and_takes_nothing() -> None:
    """Otherwise a consumer hangs behind slow readers for longer than it asked to wait."""

    async def main() -> None:
        timers = ManualTimers()
        memory = AnswerMemory(10, timers, Machine())
        first = await memory.take("a", least_bytes=8, wanted_bytes=10, seconds=0)
        assert first is not None
        assert await memory.take("b", least_bytes=5, wanted_bytes=5, seconds=0) is None
        asking = asyncio.ensure_future(memory.take("b", least_bytes=5, wanted_bytes=5, seconds=0.5))
        await timers.advance(0.6)
        assert await asking is None
        first.release()
        first.release()
        assert memory.held_bytes == 0
        second = await memory.take("b", least_bytes=50, wanted_bytes=50, seconds=0)
        assert second is not None, "what is larger than all of it comes alone"
        assert await memory.take("a", least_bytes=1, wanted_bytes=1, seconds=0) is None
        second.release()
        assert memory.held_bytes == 0
        assert timers.waiting_count == 0

    run_on("asyncio", main)


@pytest.mark.parametrize("seed", range(8))
def test_never_holds_more_than_there_is(seed: int) -> None:
    """Otherwise slow readers of large answers fill the machine's memory; or what dead clients held is gone for good."""
    total = 8 * MIB

    async def main() -> None:
        rig = FetchRig(FetchLimits(answers_max_bytes=total))
        draw = random.Random(seed)
        partitions = rig.catalog.add("orders", 6)
        for partition in partitions:
            for _ in range(draw.randrange(8)):
                partition.append(draw.choice([100, 300_000, 1_500_000, 3 * MIB]))
        held: list[tuple[int, Grant]] = []

        async def fetch() -> None:
            asks = [Ask("orders", number, 0, max_bytes=draw.choice([100, MIB, 20 * MIB])) for number in range(6)]
            draw.shuffle(asks)
            asks = asks[: draw.randrange(1, 6)]
            request = rig.request(12, asks, max_wait_ms=200, max_bytes=draw.choice([1, MIB, 50 * MIB]))
            body = await rig.ask(12, request, host=draw.choice("abc"))
            try:
                size = sum(len(buffer) for buffer in body.buffers if isinstance(buffer, memoryview))
                sizes.add(size)
                assert size <= rig.handler.memory.held_bytes <= total
                for _ in range(draw.randrange(5)):
                    await asyncio.sleep(0)
            finally:
                body.release()

        sizes: set[int] = set()
        asking = [asyncio.ensure_future(fetch()) for _ in range(60)]
        for step in range(400):
            if step % 7 == 0:
                draw.choice(asking).cancel()
            if step % 5 == 0:
                await rig.timers.advance(0.01)
            await asyncio.sleep(0)
            assert rig.handler.memory.held_bytes <= total
        await rig.timers.advance(1.0)
        for one in asking:
            if not one.cancelled():
                await one
        assert rig.handler.memory.held_bytes == 0
        assert not held
        assert rig.timers.waiting_count == 0

    run_on("asyncio", main)


def test_a_first_batch_larger_than_the_share_is_read_once_there_is_room() -> None:
    """Otherwise a batch of more than a share is never sent, or is sent beyond what memory there is."""

    async def main() -> None:
        rig = FetchRig(FetchLimits(answers_max_bytes=8 * MIB))
        (partition,) = rig.catalog.add("orders")
        batch = partition.append(5 * MIB)
        other = await rig.handler.memory.take("other", least_bytes=6 * MIB, wanted_bytes=6 * MIB, seconds=0)
        assert other is not None
        request = rig.request(12, [Ask("orders", 0, 0)], max_wait_ms=500)
        asking = asyncio.ensure_future(rig.ask(12, request))
        await settle()
        assert not asking.done()
        assert rig.handler.memory.held_bytes == 6 * MIB, "nothing is held while more is waited for"
        other.release()
        body = await asking
        assert rig.handler.memory.held_bytes == 5 * MIB
        assert rig.read(12, body).records == {("orders", 0): batch.data}
        body.release()
        assert rig.handler.memory.held_bytes == 0

    run_on("asyncio", main)


def test_an_answer_without_memory_is_empty_when_the_time_is_over() -> None:
    """Otherwise a client takes a full server for a dead one."""

    async def main() -> None:
        rig = FetchRig(FetchLimits(answers_max_bytes=2 * MIB))
        partition, other = rig.catalog.add("orders", 2)
        partition.append(100)
        taken = await rig.handler.memory.take("other", least_bytes=2 * MIB, wanted_bytes=2 * MIB, seconds=0)
        assert taken is not None
        asks = [Ask("orders", 0, 0), Ask("orders", 1, 0)]
        opening = asyncio.ensure_future(rig.fetch(12, asks, max_wait_ms=500, session_epoch=0))
        await rig.timers.advance(0.6)
        answer = await opening
        assert [(told.error, told.high_watermark, told.records) for told in answer.partitions] == [
            ("none", 1, b""),
            ("none", 0, b""),
        ]
        taken.release()
        answer = await rig.fetch(12, session_id=answer.session_id, session_epoch=1, max_wait_ms=500)
        assert list(answer.records) == [("orders", 0)], "a session knows that there was more"
        assert other.reads_count == 0

    run_on("asyncio", main)
