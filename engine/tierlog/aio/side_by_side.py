"""Many calls at once on an event loop: a bounded number side by side, within a time."""

from __future__ import annotations

import asyncio  # noqa: TID251 - this room is for event loops
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

#: Calls that one task makes before it lets others have the loop: a thousand calls that wait for nothing must not hold
#: it for their whole time.
_CALLS_A_TURN: Final = 32


async def run_each(
    calls: Sequence[Callable[[], Coroutine[Any, Any, Result]]], *, limit: int, seconds: float
) -> list[Result | None]:
    """Make calls side by side and give their results, in the order of the calls.

    A call that waits for nothing costs no task of its own.

    Args:
        calls: Each makes the coroutine of one call, whose result tells of its errors: one that raises cancels the
            others.
        limit: So many at most at once.
        seconds: For all of them together. What has not returned by then is cancelled, and its result is None.

    Raises:
        ExceptionGroup: a call raised.
    """
    results: list[Result | None] = [None] * len(calls)
    waiting = iter(enumerate(calls))

    async def work() -> None:
        for number, call in waiting:
            results[number] = await call()
            if number % _CALLS_A_TURN == _CALLS_A_TURN - 1:
                await asyncio.sleep(0)

    try:
        async with asyncio.timeout(seconds):
            if len(calls) == 1:
                await work()
                return results
            async with asyncio.TaskGroup() as group:
                for _ in range(min(limit, len(calls))):
                    group.create_task(work())
    except TimeoutError:
        return results
    return results


async def give_way() -> None:
    """Let everything else that is due on the loop run once."""
    await asyncio.sleep(0)
