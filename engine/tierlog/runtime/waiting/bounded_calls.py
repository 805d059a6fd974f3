"""Store calls with a time limit of the caller's, whatever the store does.

When the time is up the call is cancelled (``cancelling``), which ends it at once in our own stores. In a store that can
only block, the call goes on in a thread that nobody waits for. Its result is lost, so that the caller must assume that
it may have taken effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from tierlog.errors import PoolClosedError, StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelScope, call_within, ended_by_scopes
from tierlog.runtime.machine.scheduling import Future

Result = TypeVar("Result")

#: What a call gets to end in, once it is told to.
ENDING_SECONDS: Final = 0.2


class CallAbandonedError(StoreUnavailableError):
    """Nobody waits for the call any more; it may have taken effect, or may yet."""


class BoundedCalls:
    """Runs store calls with a time limit.

    Args:
        machine: Has the threads and the clock.
        workers: The most calls under way, those that were abandoned included.
        name: Name of the threads.

    Thread safety: any number of threads.
    """

    def __init__(self, machine: Machine, workers: int, *, name: str) -> None:
        self._machine = machine
        self._pool = machine.scheduler.pool(workers, name=name)
        self._changed = machine.scheduler.condition()
        self._closed = False

    def run(self, what: str, call: Callable[[], Result], *, seconds: float) -> Result:
        """Run a call and return its result.

        Args:
            what: What the call does, for the message.
            call: Runs in another thread within a ``cancelled_by`` block; cancelling this thread's blocks cancels it
                too.
            seconds: How long to wait.

        Raises:
            CallAbandonedError: the call did not end in time, or ``close`` was called. Else what the call raises.
        """
        scope = CancelScope(self._machine.scheduler)
        clock = self._machine.clock
        began = clock.monotonic_seconds()
        try:
            future = self._pool.submit(lambda: call_within(scope, call))
        except PoolClosedError as cause:
            raise CallAbandonedError(f"{what}: the manager is closed") from cause
        try:
            with ended_by_scopes(scope.cancel):
                in_time = self._wait(future, until=began + seconds, heeds_close=True)
        finally:
            scope.cancel()
        if not in_time and not future.cancel():
            self._wait(future, until=clock.monotonic_seconds() + ENDING_SECONDS, heeds_close=False)
        if not in_time:
            why = "the manager was closed" if self._closed else "no answer in time"
            error = CallAbandonedError(f"{what}: {why}, after {clock.monotonic_seconds() - began:.1f} s")
            if not future.done():
                error.add_note(f"{what}: the store still works on it")
            elif not future.cancelled() and future.exception() is None:
                return future.result()
            raise error
        return future.result()

    def _wait(self, future: Future[Result], *, until: float, heeds_close: bool) -> bool:
        future.add_done_callback(self._wake)
        with self._changed:
            while not future.done():
                left = until - self._machine.clock.monotonic_seconds()
                if left <= 0 or (heeds_close and self._closed):
                    return False
                self._changed.wait(left)
        return True

    def _wake(self, _: object) -> None:
        with self._changed:
            self._changed.notify_all()

    def give_up(self) -> None:
        """Raise CallAbandonedError in all who wait, now and later."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close(self) -> None:
        """Give up all calls, and end the threads that can be ended; idempotent."""
        self.give_up()
        self._pool.close(wait_seconds=0)
