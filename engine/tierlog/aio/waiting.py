"""Waiting on an event loop for what threads do."""

from __future__ import annotations

import asyncio  # noqa: TID251 - this room is for event loops
import contextlib
from collections.abc import Callable
from typing import Final, TypeVar

from tierlog.errors import ForkedProcessError, NoThreadError
from tierlog.remote.api import RemoteStorageException, RetriableRemoteStorageException
from tierlog.runtime.machine.scheduling import CancelledError, Future, Pool, PoolClosedError

Result = TypeVar("Result")

#: What a cancelled task gets where it waits.
TaskCancelledError: Final = asyncio.CancelledError
_CLOSED: Final = "the storage manager is closed"


class Alarm:
    """Wakes the task that waits for it; rung from any thread, once or often."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] = self._loop.create_future()

    def ring(self) -> None:
        """Waits for nothing, raises nothing."""
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
            self._loop.call_soon_threadsafe(self._rung)

    def _rung(self) -> None:
        if not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float | None = None) -> None:
        """Until it was rung, or for so many seconds."""
        if seconds is None:
            await self._waiter
            return
        timer = self._loop.call_later(seconds, self._rung)
        try:
            await self._waiter
        finally:
            timer.cancel()
            if self._waiter.done():
                self._waiter = self._loop.create_future()


class Worker:
    """Threads that run blocking calls for event loops, and end when there are none."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def submit(self, call: Callable[[], Result]) -> Future[Result]:
        """Run it in a thread when one is free. Raises RemoteStorageException: closed, in a fork, no thread."""
        try:
            return self._pool.submit(call)
        except ForkedProcessError as error:
            raise RemoteStorageException(str(error)) from error
        except PoolClosedError:
            raise RemoteStorageException(_CLOSED) from None
        except NoThreadError as error:
            raise RetriableRemoteStorageException(str(error)) from error

    async def result(self, future: Future[Result]) -> Result:
        """What a submitted call gives. Cancelling ends the waiting, not the call. Raises what the call raised."""
        alarm = Alarm()
        future.add_done_callback(lambda _: alarm.ring())
        await alarm.wait()
        try:
            return future.result()
        except CancelledError:  # a close took it out of the line; it has nothing to do with a task's cancellation
            raise RemoteStorageException(_CLOSED) from None

    async def run(self, call: Callable[[], Result]) -> Result:
        """Both. Cancelled before it began, the call does not run."""
        future = self.submit(call)
        try:
            return await self.result(future)
        except TaskCancelledError:
            future.cancel()
            raise

    def close(self) -> None:
        """Wait for what runs; what has not begun does not."""
        self._pool.close()
