"""Waiting on an event loop: what wakes whom, and what is left behind."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.support.loops import LOOPS, run_on
from tests.support.manual_timers import ManualTimers
from tierlog.errors import StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.loops import Alarm, LoopCalls, SharedCall, Worker
from tierlog.runtime.waiting.side_by_side import run_each


@pytest.mark.parametrize("loop", LOOPS)
def test_an_alarm_wakes_all_tasks_that_wait_and_none_later(loop: str) -> None:
    """A long poll would sleep through the news, or be answered by news that it has had already."""

    async def main() -> None:
        alarm = Alarm()
        alarm.ring()
        await asyncio.sleep(0.01)  # no task waited
        waiting = [asyncio.ensure_future(alarm.wait(seconds)) for seconds in (None, 60.0, 60.0)]
        impatient = asyncio.ensure_future(alarm.wait(0.01))
        given_up = asyncio.ensure_future(alarm.wait())
        await asyncio.sleep(0.05)
        assert not await impatient
        given_up.cancel()
        alarm.ring()
        assert await asyncio.gather(*waiting) == [True, True, True]
        assert given_up.cancelled()
        assert not await alarm.wait(0.01)

    run_on(loop, main)


@pytest.mark.parametrize("loop", LOOPS)
def test_an_alarm_wakes_one_task_a_turn(loop: str) -> None:
    """A listing that wakes a thousand long polls would hold up every other client until all have looked."""

    async def main() -> None:
        alarm = Alarm()
        went: list[int] = []
        now = 0

        async def one() -> None:
            await alarm.wait()
            went.append(now)

        tasks = [asyncio.ensure_future(one()) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks[5:8]:
            task.cancel()
        alarm.ring()
        while len(went) < 17:
            await asyncio.sleep(0)
            now += 1
        assert max(went.count(turn) for turn in went) == 1
        await asyncio.gather(*tasks, return_exceptions=True)

    run_on(loop, main)


@pytest.mark.parametrize("loop", LOOPS)
def test_calls_of_other_threads_run_on_the_loop_in_order(loop: str) -> None:
    """What threads found would be applied from two threads at once, or in another order than it happened."""

    async def main() -> None:
        calls, made = LoopCalls(), []
        done = asyncio.get_running_loop().create_future()

        def submit() -> None:
            for number in range(100):
                calls.submit(lambda number=number: made.append((number, threading.get_ident())))
            calls.submit(lambda: done.set_result(None))

        thread = threading.Thread(target=submit)
        thread.start()
        await done
        thread.join()
        assert made == [(number, threading.get_ident()) for number in range(100)]

    run_on(loop, main)


def test_a_call_behind_the_loops_end_is_dropped() -> None:
    """A thread that finishes late would die with an error at each stop of the server."""

    async def main() -> LoopCalls:
        return LoopCalls()

    run_on("uvloop", main).submit(lambda: pytest.fail("the loop is closed"))


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
        with pytest.raises(StoreUnavailableError):
            await shared.result(seconds=0.01)
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
        worker = Worker(pool, Machine())
        with pytest.raises(StoreUnavailableError, match="later try"):
            await worker.run(lambda: gate.wait(60), seconds=0.05)
        with pytest.raises(StoreUnavailableError):  # behind the first one: it does not run at all
            await worker.run(pytest.fail, seconds=0.05)
        gate.set()
        assert await worker.run(lambda: 7, seconds=60) == 7

    try:
        run_on(loop, check)
    finally:
        gate.set()
        pool.close()


@pytest.mark.parametrize("loop", LOOPS)
def test_one_call_at_a_time_holds_one_thread_whoever_gives_up(loop: str) -> None:
    """Clients that retry a search of a store that stalls would take all threads of a server."""
    gate = threading.Event()
    pool = Machine().scheduler.pool(8, name="test")
    running: list[int] = []
    most: list[int] = []

    def stalled() -> int:
        running.append(1)
        most.append(len(running))
        gate.wait(60)
        running.pop()
        return 7

    async def main() -> None:
        turns = Worker(pool, Machine()).one_at_a_time()
        calls = [asyncio.ensure_future(turns.run(stalled, seconds=0.1)) for _ in range(5)]
        calls.append(asyncio.ensure_future(turns.run(stalled, seconds=60)))
        cancelled = asyncio.ensure_future(turns.run(pytest.fail, seconds=60))
        await asyncio.sleep(0.01)
        cancelled.cancel()
        for call in calls[:5]:
            with pytest.raises(StoreUnavailableError, match="not there after"):
                await call
        gate.set()
        assert await calls[5] == 7
        with pytest.raises(KeyError):
            await turns.run(lambda: {}[1], seconds=60)  # type: ignore[index]
        assert await turns.run(lambda: 8, seconds=60) == 8

    try:
        run_on(loop, main)
    finally:
        gate.set()
        pool.close()
    assert max(most) == 1


@pytest.mark.parametrize("loop", LOOPS)
def test_time_is_the_machines(loop: str) -> None:
    """A server in a simulation would wait for real minutes, and go on in another order each time."""
    gate = threading.Event()
    pool = Machine().scheduler.pool(1, name="test")

    async def main() -> None:
        timers = ManualTimers()
        worker = Worker(pool, Machine(timers=timers))
        single = worker.one_at_a_time()

        end = asyncio.Event()

        async def endless() -> None:
            await end.wait()

        late = [
            asyncio.ensure_future(worker.run(lambda: gate.wait(60), seconds=3600)),
            asyncio.ensure_future(single.run(lambda: gate.wait(60), seconds=3600)),
            asyncio.ensure_future(SharedCall(endless, timers).result(seconds=3600)),
        ]
        others = [
            asyncio.ensure_future(Alarm(timers).wait(3600)),
            asyncio.ensure_future(run_each([endless] * 2, count=2, limit=2, seconds=3600, timers=timers)),
        ]
        await timers.advance(3599)
        assert not any(task.done() for task in (*late, *others))
        await timers.advance(1)
        assert await asyncio.gather(*others) == [False, [None, None]]
        for task in late:
            with pytest.raises(StoreUnavailableError, match=r"after 3\.6e"):
                await task
        assert not timers.waiting_count
        end.set()  # the shared call went on
        await asyncio.sleep(0.01)
        gate.set()

    try:
        run_on(loop, main)
    finally:
        gate.set()
        pool.close()
