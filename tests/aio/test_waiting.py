"""Waiting on an event loop: what wakes whom, and what is left behind."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.support.loops import LOOPS, run_on
from tierlog.aio.waiting import Broadcast, LoopCalls


@pytest.mark.parametrize("loop", LOOPS)
def test_a_broadcast_wakes_all_who_wait_and_nobody_later(loop: str) -> None:
    """A long poll would sleep through the news, or be answered by news that it has had already."""

    async def main() -> None:
        broadcast = Broadcast()
        broadcast.ring()  # nobody waits
        waiting = [asyncio.ensure_future(broadcast.wait(seconds)) for seconds in (None, 60.0, 60.0)]
        impatient = asyncio.ensure_future(broadcast.wait(0.01))
        given_up = asyncio.ensure_future(broadcast.wait())
        await asyncio.sleep(0.05)
        assert not await impatient
        given_up.cancel()
        broadcast.ring()
        assert await asyncio.gather(*waiting) == [True, True, True]
        assert given_up.cancelled()
        assert not await broadcast.wait(0.01)

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
