"""Threads, locks and waiting, as an argument.

Nothing above this room makes a thread, a lock or a pool otherwise: a simulator that runs a whole cluster in one thread,
in an order that its seed decides, replaces the Scheduler and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Protocol, TypeVar

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class Lock(Protocol):
    """Mutual exclusion; a context manager. Not reentrant. Held for memory work only, never across a store call."""

    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...


class Condition(Lock, Protocol):
    """A lock that its holder can wait under, until another holder wakes it."""

    def wait(self, timeout: float | None = None) -> bool:
        """Let go, wait, take again; False after ``timeout`` seconds. May wake for no reason: ask again in a loop."""

    def notify_all(self) -> None:
        """Wake all who wait; only while holding."""


class Future(Protocol[Result_co]):
    """What a call will have given. concurrent.futures.Future is one."""

    def result(self, timeout: float | None = None) -> Result_co:
        """Wait for it, at most ``timeout`` seconds.

        Raises:
            TimeoutError: not yet. CancelledError: it was cancelled. Else what the call raised.
        """

    def exception(self, timeout: float | None = None) -> BaseException | None: ...
    def done(self) -> bool: ...
    def cancel(self) -> bool:
        """Keep it from beginning; False if it has begun."""

    def add_done_callback(self, function: Callable[[Future[Result_co]], object], /) -> None:
        """Called once it is done, on the thread that did it; at once if it is."""


class Pool(Protocol):
    """Some workers that run calls in the order in which they came. Any number of threads may submit."""

    def submit(self, function: Callable[[], Result], /) -> Future[Result]:
        """Run it when a worker is free. Raises RuntimeError after close."""

    def close(self, *, cancel: bool = True) -> None:
        """Cancel what has not begun (or run it), wait for what runs, end the workers; idempotent."""


class Scheduler(Protocol):
    """What the rest of the program may know of threads. Any number of threads may use one."""

    def lock(self) -> Lock: ...
    def condition(self) -> Condition: ...
    def future(self) -> PendingFuture[object]:
        """One that its maker fills by ``set_result`` or ``set_exception``."""

    def pool(self, workers: int, *, name: str) -> Pool:
        """Workers that begin when there is work. 0 workers: ``submit`` runs the call itself."""

    def start(self, function: Callable[[], None], *, name: str) -> Future[None]:
        """Run something long in a thread of its own, which does not keep the process alive."""


class PendingFuture(Future[Result], Protocol[Result]):
    """A future that its maker fills."""

    def set_result(self, result: Result, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...


class _ThreadPool:
    def __init__(self, workers: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix=name)

    def submit(self, function: Callable[[], Result], /) -> Future[Result]:
        return self._pool.submit(function)

    def close(self, *, cancel: bool = True) -> None:
        self._pool.shutdown(wait=True, cancel_futures=cancel)


class InlinePool:
    """No workers: who submits runs the call."""

    def __init__(self) -> None:
        self._closed = False

    def submit(self, function: Callable[[], Result], /) -> Future[Result]:
        """See Pool."""
        if self._closed:
            raise RuntimeError("the pool is closed")
        future: ThreadFuture[Result] = ThreadFuture()
        _run(function, future)
        return future

    def close(self, *, cancel: bool = True) -> None:  # noqa: ARG002
        """See Pool; nothing runs."""
        self._closed = True


def _run(function: Callable[[], Result], future: ThreadFuture[Result]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001
        future.set_exception(error)


class ThreadScheduler:
    """The machine's threads."""

    def lock(self) -> Lock:
        """See Scheduler."""
        return threading.Lock()

    def condition(self) -> Condition:
        """See Scheduler."""
        return threading.Condition(threading.Lock())

    def future(self) -> PendingFuture[object]:
        """See Scheduler."""
        return ThreadFuture()

    def pool(self, workers: int, *, name: str) -> Pool:
        """See Scheduler."""
        return _ThreadPool(workers, name) if workers else InlinePool()

    def start(self, function: Callable[[], None], *, name: str) -> Future[None]:
        """See Scheduler."""
        future: ThreadFuture[None] = ThreadFuture()
        future.set_running_or_notify_cancel()
        threading.Thread(target=_run, args=(function, future), name=name, daemon=True).start()
        return future
