"""Many calls at once on an event loop: a bounded number side by side, within a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from tierlog.runtime.machine.clock import LOOP_TIMERS, Timers

Result = TypeVar("Result")

#: Calls that are made before others have the loop: a thousand calls that wait for nothing must not hold it for their
#: whole time.
_CALLS_A_TURN: Final = 32


@asynccontextmanager
async def timeout(seconds: float, timers: Timers = LOOP_TIMERS) -> AsyncIterator[None]:
    """Return a block of a task that is cancelled after a time, as ``asyncio.timeout``, by a machine's clock. Raises
    TimeoutError.
    """
    async with asyncio.timeout(None) as limit:
        timer = timers.call_later(seconds, lambda: limit.reschedule(asyncio.get_running_loop().time()))
        try:
            yield
        finally:
            timer.cancel()


async def run_each(
    calls: Iterable[Callable[[], Coroutine[Any, Any, Result]]],
    *,
    count: int,
    limit: int,
    seconds: float,
    timers: Timers = LOOP_TIMERS,
) -> list[Result | None]:
    """Make calls side by side and return their results, in the order of the calls.

    A call that does not wait costs no task of its own.

    Args:
        calls: Each makes the coroutine of one call, whose result says its errors: a coroutine that raises cancels the
            others. The iterable is read lazily.
        count: Of the calls.
        limit: So many at most at once.
        seconds: For all of them together. A call that has not returned by then is cancelled, and its result is None.
        timers: The clock of the loop.

    Raises:
        ExceptionGroup: a call raised.
    """
    results: list[Result | None] = [None] * count
    waiting = iter(enumerate(calls))

    async def work() -> None:
        for number, call in waiting:
            results[number] = await call()
            if number % _CALLS_A_TURN == _CALLS_A_TURN - 1:
                await give_way()

    try:
        async with timeout(seconds, timers):
            if count == 1:
                await work()
                return results
            async with asyncio.TaskGroup() as group:
                for _ in range(min(limit, count)):
                    group.create_task(work())
    except TimeoutError:
        return results
    return results


async def give_way() -> None:
    """Let all other due callbacks of the loop run once."""
    await asyncio.sleep(0)
