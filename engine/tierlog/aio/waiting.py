"""Waiting on an event loop for what threads do."""

from __future__ import annotations

import asyncio  # noqa: TID251 - this room is for event loops
import contextlib
from collections.abc import Callable
from typing import Final, TypeVar

from tierlog.remote.api import RemoteStorageException
from tierlog.runtime.scheduling import CancelledError, Future, Pool

Result = TypeVar("Result")

#: What a cancelled task gets where it waits.
TaskCancelledError: Final = asyncio.CancelledError
_CLOSED: Final = "the storage manager is closed"


async def wait_until(tell: Callable[[Callable[[], object]], object]) -> None:
    """Wait until a function is called, from any thread.

    Args:
        tell: Gets that function; may call it at once.
    """
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
            loop.call_soon_threadsafe(_fill, waiter)

    tell(wake)
    await waiter


def _fill(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Worker:
    """Threads that run blocking calls for event loops, and end when there are none."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def submit(self, call: Callable[[], Result]) -> Future[Result]:
        """Run it in a thread when one is free. Raises RemoteStorageException after close."""
        try:
            return self._pool.submit(call)
        except RuntimeError:
            raise RemoteStorageException(_CLOSED) from None

    async def result(self, future: Future[Result]) -> Result:
        """What a submitted call gives. Cancelling ends the waiting, not the call. Raises what the call raised."""
        await wait_until(lambda wake: future.add_done_callback(lambda _: wake()))
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
