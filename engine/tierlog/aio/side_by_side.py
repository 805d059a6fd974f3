"""Many calls at once on an event loop: a bounded number side by side, within a time."""

from __future__ import annotations

import asyncio  # noqa: TID251 - this room is for event loops
import collections
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


class OneATurn:
    """Lets tasks go on one by one, each at another turn of the loop: what wakes a thousand of them at once does not
    hold up everything else for as long as all of them take. On one event loop.
    """

    def __init__(self) -> None:
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()
        self._is_running = False

    async def wait(self) -> None:
        """Wait for a turn; those who came first have it first."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if not self._is_running:
            self._is_running = True
            loop.call_soon(self._next, loop)
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # cancelled
                turn.set_result(None)
                break
        self._is_running = bool(self._waiting)
        if self._is_running:
            loop.call_soon(self._next, loop)
