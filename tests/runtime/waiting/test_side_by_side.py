"""Many calls at once on a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest

from tests.support.loops import LOOPS, run_on
from tierlog.runtime.waiting.side_by_side import run_each


class Calls:
    """Calls that wait, and how many are under way."""

    def __init__(self) -> None:
        self.running = self.most = self.cancelled = 0

    async def wait(self, seconds: float, result: int) -> int:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        return result


async def at_once(result: int) -> int:
    return result


@pytest.mark.parametrize("loop", LOOPS)
def test_results_come_in_the_order_of_the_calls(loop: str) -> None:
    """Partitions would get each other's answers."""
    calls = Calls()

    async def main() -> list[int | None]:
        waits = [partial(calls.wait, 0.001 * (7 - number % 7), number) for number in range(40)]
        return await run_each(waits, count=len(waits), limit=5, seconds=10)

    assert run_on(loop, main) == list(range(40))
    assert calls.most == 5


@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_calls_that_wait_for_nothing(count: int) -> None:
    """An answer from memory would be lost, or made twice."""

    async def main() -> list[int | None]:
        return await run_each((partial(at_once, number) for number in range(count)), count=count, limit=3, seconds=10)

    assert run_on("asyncio", main) == list(range(count))


@pytest.mark.parametrize("count", [1, 8])
def test_what_is_late_has_no_result_and_runs_no_longer(count: int) -> None:
    """A stalled store would hold the request for ever, or its calls would pile up behind the client's back."""
    calls = Calls()

    async def main() -> list[int | None]:
        waits = [partial(calls.wait, 60.0, 1) for _ in range(count)]
        return await run_each(
            [*waits, *[partial(at_once, 2)] * (count - 1)], count=len(waits) + count - 1, limit=count + 1, seconds=0.05
        )

    assert run_on("asyncio", main) == [None] * count + [2] * (count - 1)
    assert (calls.cancelled, calls.running) == (count, 0)


def test_cancelling_ends_the_calls() -> None:
    """A client that has gone would leave its searches running."""
    calls = Calls()

    async def main() -> None:
        task = asyncio.create_task(run_each([partial(calls.wait, 60.0, 1)] * 4, count=4, limit=2, seconds=60))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_on("asyncio", main)
    assert (calls.cancelled, calls.running) == (2, 0)


def test_a_call_that_raises_ends_the_others() -> None:
    """A bug in one answer would be taken for a partition that is late."""

    def broken() -> Coroutine[Any, Any, int]:
        raise ZeroDivisionError

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:
            await run_each([partial(at_once, 1), broken], count=2, limit=2, seconds=10)
        assert [type(error) for error in caught.value.exceptions] == [ZeroDivisionError]

    run_on("asyncio", main)


def test_others_have_the_loop_meanwhile() -> None:
    """A request for thousands of partitions would stop all other clients until it is answered."""
    turns = 0

    async def main() -> None:
        task = asyncio.create_task(run_each([partial(at_once, 1)] * 3200, count=3200, limit=4, seconds=10))

        async def other() -> None:
            nonlocal turns
            while not task.done():
                turns += 1
                await asyncio.sleep(0)

        await other()
        await task

    run_on("asyncio", main)
    assert turns > 20
