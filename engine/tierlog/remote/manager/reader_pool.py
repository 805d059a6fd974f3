"""The threads of remote reads, and the reads that wait for one, of which there may be so many."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from tierlog.errors import PoolClosedError
from tierlog.remote.api import RetriableRemoteStorageException
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.machine.scheduling import NotSubmitted

_log = logging.getLogger(__name__)

#: A call that raises nothing.
Call = Callable[[], None]

_NAME: Final = "tierlog-rlm-reader"


class ReaderPool(Closeable):
    """Threads that run calls, in the order of their submission. A context manager.

    A call has no future: its caller knows itself how it ends, and may withdraw it until it begins.

    Args:
        machine: Has the threads.
        threads: Their number, >= 1.
        pending_max: So many calls may wait for a thread.

    Attributes:
        threads: The number of threads; ``resize`` changes it.
        running: The number of calls that go on.

    Thread safety: any number of threads.
    """

    def __init__(self, machine: Machine, *, threads: int, pending_max: int) -> None:
        self._scheduler = machine.scheduler
        self._lock = machine.scheduler.lock()
        self._pool = machine.scheduler.pool(threads, name=_NAME)
        self._pending_max = pending_max
        self._queue: OrderedDict[Call, None] = OrderedDict()
        self._busy = 0  # threads
        self._closed = False
        self.threads = threads
        self.running = 0

    @property
    def waiting(self) -> int:
        """The number of calls that have not begun."""
        return len(self._queue)

    @property
    def idle_ratio(self) -> float:
        """The part of the threads that runs nothing."""
        return max(0.0, 1 - self.running / self.threads)

    def submit(self, call: Call) -> None:
        """Run a call when a thread is free. The same object waits once, however often it is submitted.

        Raises:
            RetriableRemoteStorageException: as many calls wait as may. Else as ``submit`` of a Pool.
        """
        with self._lock:
            if self._closed:
                raise PoolClosedError
            if len(self._queue) + self.running >= self.threads + self._pending_max:
                raise RetriableRemoteStorageException(f"{len(self._queue)} remote reads wait already, no more may")
            self._queue[call] = None
            is_short = self._busy < self.threads
            self._busy += is_short
        if is_short:
            try:
                self._start()
            except NotSubmitted:
                with self._lock:
                    self._busy -= 1
                if self.withdraw(call):
                    raise

    def withdraw(self, call: Call) -> bool:
        """Take a call back; False if it has begun, or was not submitted."""
        with self._lock:
            return self._queue.pop(call, self) is None

    def _start(self) -> None:
        """Have one more thread work. Raises as ``submit`` of a Pool."""
        while True:
            pool = self._pool
            try:
                pool.call_soon(self._work)
                return
            except PoolClosedError:
                if pool is self._pool:  # else it was resized
                    raise

    def _work(self) -> None:
        call = self._next(ended=0)
        while call is not None:
            try:
                call()
            except Exception:  # noqa: BLE001 - a fault of one call must not end the others
                _log.exception("a remote read failed")
            except BaseException:  # of the thread
                with self._lock:
                    self.running -= 1
                    self._busy -= 1
                raise
            call = None  # or what it refers to would live until the next one
            call = self._next(ended=1)

    def _next(self, *, ended: int) -> Call | None:
        """Note that a call has ended, and take the next one; None: there is none for this thread, which works no
        more.
        """
        with self._lock:
            self.running -= ended
            if not self._queue or self._busy > self.threads:
                self._busy -= 1
                return None
            self.running += 1
            return self._queue.popitem(last=False)[0]

    def resize(self, threads: int) -> None:
        """Change the number of threads. Calls that have begun go on in those that there were."""
        with self._lock:
            if self._closed or threads == self.threads:
                return
            before, self._pool = self._pool, self._scheduler.pool(threads, name=_NAME)
            more = max(0, min(threads - self._busy, len(self._queue)))
            self._busy += more
            self.threads = threads
        before.close(cancel=False, wait_seconds=0)
        for _ in range(more):
            try:
                self._start()
            except NotSubmitted as error:
                _log.warning("remote reads wait for the threads that there were: %s", error)
                with self._lock:
                    self._busy -= 1

    def close(self, *, wait_seconds: float | None = None) -> None:
        """Drop the calls that have not begun, and wait for those that run, at most for a time; idempotent."""
        with self._lock:
            self._closed = True
            self._queue.clear()
        self._pool.close(cancel=False, wait_seconds=wait_seconds)
