"""Waiting on a loop for threads and for one another: shared, bounded, cancelled."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.support.loops import LOOPS, run_on
from tierlog.aio.waiting import SharedCall, Worker
from tierlog.errors import StoreUnavailableError
from tierlog.runtime.machine import Machine


@pytest.mark.parametrize("loop", LOOPS)
def test_who_asks_while_a_call_is_under_way_shares_it(loop: str) -> None:
    """A thousand clients that come at once would each make the server do the same search."""

    async def check() -> None:
        calls: list[asyncio.Event] = []

        async def call() -> int:
            calls.append(asyncio.Event())
            number = len(calls)
            await calls[-1].wait()
            if number == 2:
                raise KeyError(number)
            return number

        shared = SharedCall(call)
        asking = [asyncio.create_task(shared.result()) for _ in range(50)]
        await asyncio.sleep(0.01)
        asking[0].cancel()  # also the one that began it
        await asyncio.sleep(0.01)
        calls[0].set()
        with pytest.raises(asyncio.CancelledError):
            await asking[0]
        assert [await task for task in asking[1:]] == [1] * 49
        asking = [asyncio.create_task(shared.result()) for _ in range(2)]
        await asyncio.sleep(0.01)
        calls[1].set()
        for task in asking:  # an error is told to all, and kept for nobody
            with pytest.raises(KeyError):
                await task
        again = asyncio.create_task(shared.result())
        await asyncio.sleep(0.01)
        calls[2].set()
        assert await again == 3
        nobodys = asyncio.create_task(shared.result())
        await asyncio.sleep(0.01)
        nobodys.cancel()
        calls[3].set()
        await asyncio.sleep(0.01)
        assert nobodys.cancelled()

    run_on(loop, check)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_late_call_ends_the_waiting(loop: str) -> None:
    """A disk that stalls would hang a client for as long as it stalls."""
    gate = threading.Event()
    machine = Machine()
    pool = machine.scheduler.pool(1, name="test")

    async def check() -> None:
        worker = Worker(pool)
        with pytest.raises(StoreUnavailableError, match="later try"):
            await worker.run(lambda: gate.wait(10), seconds=0.05)
        with pytest.raises(StoreUnavailableError):  # behind the first one: it does not run at all
            await worker.run(pytest.fail, seconds=0.05)
        gate.set()
        assert await worker.run(lambda: 7, seconds=5) == 7

    try:
        run_on(loop, check)
    finally:
        gate.set()
        pool.close()
