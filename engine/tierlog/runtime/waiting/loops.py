"""Waiting on an event loop for work that threads do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from tierlog.errors import PoolClosedError, StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import LOOP_TIMERS, Timers
from tierlog.runtime.machine.scheduling import CancelledError, Future, Pool
from tierlog.runtime.waiting.waits import LOOK_SECONDS, Interrupt, Wait, Waits, seconds_left

Result = TypeVar("Result")

#: The error that a cancelled task gets where it waits.
TaskCancelledError: Final = asyncio.CancelledError


class Alarm:
    """An alarm that wakes the tasks waiting for it. Any thread may ring it, once or often.

    A ring wakes the tasks that wait when the loop comes round, one at each turn; it is not remembered. So a task checks
    its condition, and waits without another ``await`` in between.

    Args:
        timers: The clock of the loop.
    """

    __slots__ = ("_loop", "_timers", "_waiters")

    def __init__(self, timers: Timers = LOOP_TIMERS) -> None:
        self._loop = asyncio.get_running_loop()
        self._timers = timers
        self._waiters: dict[asyncio.Future[bool], None] = {}

    def ring(self) -> None:
        """Wake the tasks that wait. Does not block, raises nothing."""
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: no task waits
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, {}
        self._wake_one(iter(waiters))

    def _wake_one(self, waiters: Iterator[asyncio.Future[bool]]) -> None:
        """Wake one task, and the next one when the loop comes round: a thousand at once would hold up all else."""
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(True)
                self._loop.call_soon(self._wake_one, waiters)
                return

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait for a ring, at most ``seconds``; returns whether it came."""
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiters[waiter] = None
        timer = None if seconds is None else self._timers.call_later(seconds, partial(_expire, waiter))
        try:
            return await waiter
        finally:
            self._waiters.pop(waiter, None)
            if timer is not None:
                timer.cancel()


def _expire(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)


class LoopCalls:
    """Calls from any thread that run on the event loop which made this object; and background tasks."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, call: Callable[[], object]) -> None:
        """Submit a call, to be made soon, behind earlier ones. Does not block, raises nothing; after the loop's end it
        is not made.
        """
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a background task; it must raise nothing. On the event loop alone."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def cancel(self) -> None:
        """Cancel the coroutines that were started, and wait for their ends."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class LoopFuture(Generic[Result]):
    """A value that one task waits for and something else on the same loop gives. Not for threads."""

    def __init__(self) -> None:
        self._future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def give(self, value: Result) -> None:
        """Wake the waiting task with a value. Nothing happens if it was cancelled; a second value is an error."""
        if not self._future.cancelled():
            self._future.set_result(value)

    async def wait(self) -> Result:
        """Wait for the value."""
        return await self._future


class Worker:
    """Threads that run blocking calls for event loops. They end when there are no calls.

    Args:
        pool: The threads.
        machine: Its clock and its loop's timers.
    """

    def __init__(self, pool: Pool, machine: Machine) -> None:
        self._pool = pool
        self._machine = machine

    def submit(self, call: Callable[[], Result]) -> Future[Result]:
        """Run a call in a thread when one is free. Raises PoolClosedError, ForkedProcessError, NoThreadError."""
        return self._pool.submit(call)

    async def result(self, future: Future[Result], *, seconds: float | None = None) -> Result:
        """Wait for the result of a submitted call, or the error that it raised. Cancelling ends the waiting, not the
        call.

        Raises:
            StoreUnavailableError: there is none after ``seconds``. PoolClosedError: closed before the call began.
        """
        alarm = Alarm(self._machine.timers)
        future.add_done_callback(lambda _: alarm.ring())
        await alarm.wait(seconds)
        if seconds is not None and not future.done():
            raise _late(seconds)
        try:
            return future.result()
        except CancelledError:  # by a close; it has nothing to do with a task's cancellation
            raise PoolClosedError from None

    async def run(self, call: Callable[[], Result], *, seconds: float | None = None) -> Result:
        """Submit a call and wait for its result. A call that is cancelled, or late, before it began does not run.

        Raises:
            StoreUnavailableError: there is no result after ``seconds``. Else the call's error.
        """
        future = self.submit(call)
        try:
            return await self.result(future, seconds=seconds)
        except (TaskCancelledError, StoreUnavailableError):
            future.cancel()
            raise

    async def drive(
        self, waits: Waits[Result], interrupt: Interrupt | None = None, *, until_seconds: float | None = None
    ) -> Result:
        """Run code that yields its waits on the event loop. Its work (reading a disk, opening a chunk) runs in a
        thread.

        Args:
            waits: The code, which yields its waits.
            interrupt: Ends a wait early, as in ``WaitingThreads.run``.
            until_seconds: When all waits are late, by the machine's monotonic clock, whatever their own limits.

        Raises:
            StoreUnavailableError: a wait took longer than its limit. Else the code's error.
        """
        try:
            wait = next(waits)
            while True:
                try:
                    await self._wait_for(wait, interrupt, until_seconds)
                except BaseException as error:  # noqa: BLE001 - the code handles it, a cancellation too
                    wait = waits.throw(error)
                else:
                    wait = next(waits)
        except StopIteration as end:
            value: Result = end.value
            return value

    async def _wait_for(self, wait: Wait, interrupt: Interrupt | None, until_seconds: float | None) -> None:
        pending, clock = wait.pending, self._machine.clock

        def is_over() -> bool:
            return pending.is_done or (interrupt is not None and interrupt.is_set)

        if is_over():
            return
        alarm = Alarm(self._machine.timers)
        pending.add_done_callback(alarm.ring)
        began = clock.monotonic_seconds()
        if interrupt is not None:
            interrupt.wake = alarm.ring
        try:
            while not is_over():
                pending.look()
                if pending.has_work:
                    self.submit(pending.run)
                now = clock.monotonic_seconds()
                seconds = seconds_left(wait, began, now)
                if until_seconds is not None:
                    seconds = min(seconds, until_seconds - now)
                    if seconds <= 0:
                        raise StoreUnavailableError(wait.late(now - began))
                await alarm.wait(min(seconds, LOOK_SECONDS) if pending.needs_looks else seconds)
        finally:
            if interrupt is not None:
                interrupt.wake = None

    def one_at_a_time(self) -> SingleCalls:
        """Return the same threads for an owner that is to hold one of them at most. On the event loop that runs the
        caller.
        """
        return SingleCalls(self, self._machine.timers)

    def close(self) -> None:
        """Wait for the calls under way. Calls that have not begun do not run."""
        self._pool.close()


class SingleCalls:
    """Calls of one owner in a Worker's threads, one after another: an owner whose calls stall holds one thread. Made by
    ``Worker.one_at_a_time``, for one event loop.
    """

    def __init__(self, worker: Worker, timers: Timers) -> None:
        self._worker = worker
        self._timers = timers
        self._ended = Alarm(timers)
        self._running: Future[Any] | None = None

    async def run(self, call: Callable[[], Result], *, seconds: float) -> Result:
        """Run a call in a thread, when those before it have ended, and wait for its result.

        Cancelling, and being late, end the waiting alone: the next call still begins after this one.

        Raises:
            StoreUnavailableError: there is no result after ``seconds``. Else the call's error.
        """
        until = self._timers.monotonic_seconds() + seconds
        while self._running is not None and not self._running.done():
            left = until - self._timers.monotonic_seconds()
            if left <= 0:
                raise _late(seconds)
            await self._ended.wait(left)
        self._running = future = self._worker.submit(call)
        future.add_done_callback(lambda _: self._ended.ring())
        return await self._worker.result(future, seconds=max(0.0, until - self._timers.monotonic_seconds()))


def _late(seconds: float) -> StoreUnavailableError:
    return StoreUnavailableError(f"not there after {seconds:.3g} s; a later try may find it")


class SharedCall(Generic[Result]):
    """A call that all tasks share which ask for it at once; a task that asks after its end begins another one. On one
    event loop.

    Args:
        call: Makes the coroutine. A task that is cancelled ends its own waiting: the call goes on, also for no task.
        timers: The clock of the loop.
    """

    def __init__(self, call: Callable[[], Coroutine[Any, Any, Result]], timers: Timers = LOOP_TIMERS) -> None:
        self._call = call
        self._timers = timers
        self._task: asyncio.Task[Result] | None = None

    async def result(self, *, seconds: float | None = None) -> Result:
        """Return the result of the pending call, or of a new one.

        Raises:
            StoreUnavailableError: there is none after ``seconds``; the call goes on. Else the call's error.
        """
        task = self._task
        if task is None or task.done():
            task = self._task = asyncio.get_running_loop().create_task(self._call())
            task.add_done_callback(self._ended)
        alarm = Alarm(self._timers)
        task.add_done_callback(lambda _: alarm.ring())
        await alarm.wait(seconds)
        if seconds is not None and not task.done():
            raise _late(seconds)
        return task.result()

    def _ended(self, task: asyncio.Task[Result]) -> None:
        if self._task is task:
            self._task = None
        if not task.cancelled():
            task.exception()  # or asyncio would log it where no task asked


class Begun(Generic[Result]):
    """A coroutine that has run up to its first wait. If it had to wait, it goes on as a task of the running loop; if
    not, there was no task at all: what answers out of memory costs next to nothing.

    Its first part runs inside the caller's task, so that a coroutine that remembers its task (``asyncio.timeout``) is
    not for here.

    Args:
        coroutine: Owned from here on.
    """

    __slots__ = ("_error", "_result", "_task")

    def __init__(self, coroutine: Coroutine[Any, Any, Result]) -> None:
        self._result: Result | None = None
        self._error: Exception | None = None
        self._task: asyncio.Task[Result] | None = None
        try:
            awaited = coroutine.send(None)
        except StopIteration as end:
            self._result = end.value
        except Exception as error:  # noqa: BLE001 - raised by ``result``, like a task's error
            self._error = error
        else:
            self._task = asyncio.get_running_loop().create_task(_Rest(coroutine, awaited))

    @property
    def is_done(self) -> bool:
        """Whether the coroutine has returned or raised, or was cancelled."""
        return self._task is None or self._task.done()

    def result(self) -> Result:
        """Return the coroutine's result, or raise its error. Not before it ``is_done``."""
        if self._task is not None:
            return self._task.result()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value] # it has returned

    def add_done_callback(self, call: Callable[[], None]) -> None:
        """Call a function on the loop once the coroutine is done; at once if it is."""
        if self._task is None:
            call()
        else:
            self._task.add_done_callback(lambda _: call())

    async def cancel(self) -> None:
        """Cancel the coroutine and wait for its end. Its result or error is dropped; idempotent."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()  # it is retrieved, so that asyncio does not log it


class _Rest(Coroutine[Any, Any, Result]):
    """The rest of a coroutine that waits for something, as a coroutine that has not begun.

    A task throws a cancellation that comes before its first step into the coroutine: here it arrives where the
    coroutine waits, and its ``finally`` blocks run.
    """

    __slots__ = ("_awaited", "_coroutine", "_has_begun")

    def __init__(self, coroutine: Coroutine[Any, Any, Result], awaited: object) -> None:
        self._coroutine = coroutine
        self._awaited: object = awaited
        self._has_begun = False

    def send(self, value: Any) -> Any:
        if not self._has_begun:
            self._has_begun = True
            awaited, self._awaited = self._awaited, None
            return awaited
        return self._coroutine.send(value)

    def throw(
        self, kind: Any, error: BaseException | object | None = None, trace: TracebackType | None = None, /
    ) -> Any:
        self._has_begun = True
        if isinstance(kind, BaseException):
            return self._coroutine.throw(kind)
        return self._coroutine.throw(kind, error, trace)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Any:
        raise TypeError("a task runs it")
