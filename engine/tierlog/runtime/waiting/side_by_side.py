"""Many calls at once on an event loop: a bounded number side by side, within a time."""

from __future__ import annotations

import asyncio
import collections
import heapq
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from tierlog.runtime.machine.clock import LOOP_TIMERS, Timers

Result = TypeVar("Result")
Item = TypeVar("Item")

#: Calls that are made before others have the loop: a thousand calls that wait for nothing must not hold it for their
#: whole time.
_CALLS_A_TURN: Final = 32
#: How long one piece of work goes on before others have the loop, and after how many steps that is looked at.
_SLICE_SECONDS: Final = 0.002
_STEPS_A_LOOK: Final = 16
#: Items that are sorted at once: 0.5 ms.
_SORTED_AT_ONCE: Final = 2000


@asynccontextmanager
async def timeout(seconds: float, timers: Timers = LOOP_TIMERS) -> AsyncIterator[None]:
    """A block of a task that is cancelled after a time, as ``asyncio.timeout``, by a machine's clock. Raises
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
    """Make calls side by side and give their results, in the order of the calls.

    A call that waits for nothing costs no task of its own.

    Args:
        calls: Each makes the coroutine of one call, whose result tells of its errors: one that raises cancels the
            others. They are taken one by one, and need not be there before.
        count: Of the calls.
        limit: So many at most at once.
        seconds: For all of them together. What has not returned by then is cancelled, and its result is None.
        timers: The clock of the loop.

    Raises:
        ExceptionGroup: a call raised.
    """
    results: list[Result | None] = [None] * count
    waiting = iter(enumerate(calls))
    turns = OneATurn()

    async def work() -> None:
        for number, call in waiting:
            results[number] = await call()
            if number % _CALLS_A_TURN == _CALLS_A_TURN - 1:
                await turns.wait()

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


def taken(items: list[Item]) -> Iterator[Item]:
    """The items in order, each taken out of the list: what is taken can go when it is no longer used, while the end of
    a list of a hundred thousand would hold the loop for 10 ms.
    """
    items.reverse()
    while items:
        yield items.pop()


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


class LoopShare:
    """The share of the loop that one piece of work takes: some steps, then its turn is over. On one event loop.

    Args:
        turns: Of all pieces of work that are to be no more than one slice of each turn of the loop.
        now: The time in seconds, from any beginning.
    """

    __slots__ = ("_began", "_left", "_now", "_turns")

    def __init__(self, turns: OneATurn, now: Callable[[], float]) -> None:
        self._turns = turns
        self._now = now
        self._began = now()
        self._left = _STEPS_A_LOOK

    def is_over(self, steps: int = 1) -> bool:
        """Count steps that were taken, each of some microseconds. Whether to wait for the next turn now."""
        self._left -= steps
        if self._left > 0:
            return False
        self._left = _STEPS_A_LOOK
        return self._now() - self._began >= _SLICE_SECONDS

    async def wait(self) -> None:
        """Wait for the next turn."""
        await self._turns.wait()
        self._began = self._now()

    async def take(self, steps: int = 1) -> None:
        """Count steps that were taken, and wait for the next turn if this one is over."""
        if self.is_over(steps):
            await self.wait()

    async def let_go(self, objects: list[Any]) -> None:
        """Empty a list of objects that nobody else has, one by one: see ``taken``."""
        while objects:
            objects.pop()
            await self.take()


async def sorted_in_turns(items: Sequence[Item], share: LoopShare, key: Callable[[Item], Any]) -> Iterator[Item]:
    """The items, sorted by a key as they are taken; others have the loop meanwhile.

    Cost: some microseconds an item, where ``sorted`` has a fraction of one but holds the loop for all of them.
    """
    runs = []
    for start in range(0, len(items), _SORTED_AT_ONCE):
        runs.append(sorted(items[start : start + _SORTED_AT_ONCE], key=key))
        await share.take(_STEPS_A_LOOK)
    return heapq.merge(*runs, key=key) if len(runs) > 1 else iter(runs[0] if runs else ())
