"""The threads of remote reads, and the reads that wait for one, of which there may be so many."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from tierlog.errors import PoolClosedError
from tierlog.remote.api import RetriableRemoteStorageException
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Future, Pool

Result = TypeVar("Result")

_NAME: Final = "tierlog-rlm-reader"


class ReaderPool(Pool):
    """A Pool with a bound for what waits in it, which can be resized. A context manager.

    Args:
        machine: Has the threads.
        threads: Their number, >= 1.
        pending_max: So many calls may wait for a thread.

    Attributes:
        threads: The number of threads; ``resize`` changes it.
        waiting: The number of calls that have not begun.
        running: The number of calls that go on.

    Thread safety: any number of threads.
    """

    def __init__(self, machine: Machine, *, threads: int, pending_max: int) -> None:
        self._scheduler = machine.scheduler
        self._lock = machine.scheduler.lock()
        self._pool = machine.scheduler.pool(threads, name=_NAME)
        self._pending_max = pending_max
        self._closed = False
        self.threads = threads
        self.waiting = self.running = 0

    @property
    def idle_ratio(self) -> float:
        """The part of the threads that runs nothing."""
        return max(0.0, 1 - self.running / self.threads)

    def submit(self, function: Callable[[], Result], /) -> Future[Result]:
        """Run a call when a thread is free.

        Raises:
            RetriableRemoteStorageException: as many calls wait as may. Else as Pool.
        """
        with self._lock:
            if self.waiting + self.running >= self.threads + self._pending_max:
                raise RetriableRemoteStorageException(f"{self.waiting} remote reads wait already, no more may")
            self.waiting += 1
        try:
            future = self._submit(partial(self._run, function))
        except BaseException:
            self._leave_queue()
            raise
        future.add_done_callback(self._ended)
        return future

    def _submit(self, call: Callable[[], Result]) -> Future[Result]:
        while True:
            pool = self._pool
            try:
                return pool.submit(call)
            except PoolClosedError:
                if pool is self._pool:
                    raise

    def _run(self, function: Callable[[], Result]) -> Result:
        with self._lock:
            self.waiting -= 1
            self.running += 1
        try:
            return function()
        finally:
            with self._lock:
                self.running -= 1

    def _ended(self, future: Future[object]) -> None:
        if future.cancelled():
            self._leave_queue()

    def _leave_queue(self) -> None:
        with self._lock:
            self.waiting -= 1

    def resize(self, threads: int) -> None:
        """Change the number of threads. Calls that were submitted go on in those that there were."""
        with self._lock:
            if self._closed or threads == self.threads:
                return
            before, self._pool = self._pool, self._scheduler.pool(threads, name=_NAME)
            self.threads = threads
        before.close(cancel=False, wait_seconds=0)

    def close(self, *, cancel: bool = True, wait_seconds: float | None = None) -> None:
        """Close the pool, as Pool says."""
        with self._lock:
            self._closed = True
        self._pool.close(cancel=cancel, wait_seconds=wait_seconds)
