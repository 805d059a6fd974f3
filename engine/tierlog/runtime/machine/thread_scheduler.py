"""The Scheduler of production: threads, locks and conditions of this process, and pools whose threads end without work.

The standard library's pool holds every thread that it ever made until it is closed, and joins them all at the end of
the process, however long a store takes. Here no stalled call delays the end of the process.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from typing import Any, Final, TypeVar

from tierlog.errors import NoThreadError, PoolClosedError
from tierlog.runtime.machine.process import Origin
from tierlog.runtime.machine.scheduling import Condition, Future, InlinePool, Lock, PendingFuture, Pool, run_into

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

#: A worker without work ends after so long.
IDLE_SECONDS: Final = 5.0
#: What still runs at the end of the process has so long.
_EXIT_SECONDS: Final = 2.0

#: A call and its future; None: nobody waits for it.
_Call = tuple[ThreadFuture[Any] | None, Callable[[], Any]]


class ThreadPool(Pool):
    """A Pool of daemon threads that start with work and end without it.

    Args:
        workers: The most threads.
        name: Name of the threads.
        idle_seconds: How long a thread waits for work before it ends.
    """

    def __init__(self, workers: int, name: str, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._most = workers
        self._name = name
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads: set[threading.Thread] = set()
        self._waiting = 0  # workers that wait for a call
        self._queued = 0  # calls that no worker has begun
        self._count = 0
        self._closed = False
        self._origin: Origin | None = None
        _pools.add(self)

    def submit(self, function: Callable[[], Result], /) -> Future[Result]:
        """Run a call when a worker is free. Workers start with the first call, so that a pool without any works after a
        fork.
        """
        future: ThreadFuture[Result] = ThreadFuture()
        self._put((future, function))
        return future

    def call_soon(self, function: Callable[[], None], /) -> None:
        """Run a call likewise that nobody waits for: there is no future."""
        self._put((None, function))

    def _put(self, call: _Call) -> None:
        if self._origin is None:
            self._origin = Origin()
        self._origin.require(f"what runs on {self._name} threads")
        with self._lock:
            if self._closed:
                raise PoolClosedError
            if self._queued >= self._waiting and len(self._threads) < self._most:
                self._start_worker()
            self._queued += 1
            self._calls.put(call)

    def _start_worker(self) -> None:
        """Start a worker, while holding the lock. If the system has no thread, the existing workers do the work."""
        self._count += 1
        thread = threading.Thread(target=self._work, name=f"{self._name}_{self._count}", daemon=True)
        try:
            self._threads.add(thread)
            thread.start()
        except RuntimeError as cause:
            self._threads.discard(thread)
            if not self._threads:
                raise NoThreadError(f"no thread for {self._name}: {cause}") from cause
        except BaseException:  # a signal's: perhaps the thread runs, perhaps it never will, and joining it would fail
            self._threads.discard(thread)
            raise

    def _work(self) -> None:
        with self._lock:
            if threading.current_thread() not in self._threads:  # its start was interrupted
                return
        while (call := self._next()) is not None:
            _run(*call)
            del call  # or its referents would live until the next call

    def _next(self) -> _Call | None:
        """Take the next call, or None if this worker is to end."""
        with self._lock:
            self._waiting += 1
        try:
            call = self._calls.get(timeout=self._idle_seconds)
        except queue.Empty:
            call = None
        with self._lock:
            self._waiting -= 1
            if call is None and not self._closed:
                try:  # one may have come just now
                    call = self._calls.get_nowait()
                except queue.Empty:
                    call = None
            if call is None:
                self._threads.discard(threading.current_thread())
            else:
                self._queued -= 1
        return call

    def close(self, *, cancel: bool = True, wait_seconds: float | None = None) -> None:
        """Close the pool, as Pool says. A fork has no threads to wait for, and the lock may be held by a thread of the
        parent.
        """
        if self._origin is not None and not self._origin.is_here:
            return
        with self._lock:
            self._closed = True
            dropped = self._take_queued() if cancel else []
            for _ in self._threads:
                self._calls.put(None)
            threads = [thread for thread in self._threads if thread is not threading.current_thread()]
        for future, _ in dropped:
            if future is not None:
                future.cancel()
        until = None if wait_seconds is None else time.monotonic() + wait_seconds
        for thread in threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))

    def _take_queued(self) -> list[_Call]:
        """Remove and return the calls that no worker has begun. The caller holds the lock."""
        found: list[_Call] = []
        while True:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return found
            if call is not None:
                self._queued -= 1
                found.append(call)


def _run(future: ThreadFuture[Any] | None, function: Callable[[], Any]) -> None:
    if future is not None:
        run_into(future, function)
        return
    try:
        function()
    except BaseException:  # noqa: BLE001 - a bug: a thread that died of it would be missed
        _log.exception("a call that nobody waits for failed")


_pools: Final[weakref.WeakSet[ThreadPool]] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """End all pools at the end of the process: else a thread in native code would be torn out of it with the
    interpreter.
    """
    until = time.monotonic() + _EXIT_SECONDS
    for pool in list(_pools):
        pool.close(wait_seconds=max(0.0, until - time.monotonic()))


class ThreadScheduler:
    """The Scheduler of this process."""

    @property
    def cores(self) -> int:
        """The number of cores that this process may use."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def lock(self) -> Lock:
        """Make a lock of this process."""
        return threading.Lock()

    def condition(self) -> Condition:
        """Make a condition of this process."""
        return threading.Condition(threading.Lock())

    def future(self) -> PendingFuture[Result]:
        """Make a future whose maker calls ``set_result`` or ``set_exception``."""
        future: ThreadFuture[Result] = ThreadFuture()
        future.set_running_or_notify_cancel()  # or a waiter could cancel it, and its maker fail to fill it
        return future

    def pool(self, workers: int, *, name: str) -> Pool:
        """Make a pool whose workers start when there is work."""
        return ThreadPool(workers, name) if workers else InlinePool()

    def start(self, function: Callable[[], None], *, name: str) -> Future[None]:
        """Run a long task in a daemon thread of its own."""
        future: ThreadFuture[None] = ThreadFuture()
        thread = threading.Thread(target=run_into, args=(future, function), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as cause:
            raise NoThreadError(f"no thread for {name}: {cause}") from cause
        return future
