"""Threads and locks, as an argument.

Nothing above this room makes a thread, a lock or a pool otherwise: a simulator that runs a whole cluster in one thread,
in an order that its seed decides, replaces the Scheduler and nothing else. ``runtime.waiting`` is built from a
Scheduler's parts, so that there is one of each primitive for all schedulers.

A simulator may switch between threads at every call of this module, and nowhere else. Code that waits in another way (a
bare loop, a lock of Python's own) stops it for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError as CancelledError  # noqa: PLC0414 - for users of a Future
from concurrent.futures import Future as ThreadFuture
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from tierlog.errors import ForkedProcessError, NoThreadError, PoolClosedError

Item = TypeVar("Item")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class Lock(Protocol):
    """Mutual exclusion; a context manager. Not reentrant. Held for memory work only, never across a store call."""

    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...


class Condition(Lock, Protocol):
    """A lock whose holder can wait until another holder wakes it."""

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, wait, take the lock again; False after ``timeout`` seconds. It may return early: call it in
        a loop.
        """

    def notify_all(self) -> None:
        """Wake all waiters. The caller holds the lock."""


class Future(Protocol[Result_co]):
    """The result of a call, once there is one. concurrent.futures.Future is one."""

    def result(self, timeout: float | None = None) -> Result_co:
        """Wait for the result, at most ``timeout`` seconds.

        Raises:
            TimeoutError: there is no result yet. CancelledError: the call was cancelled. Else the call's error.
        """

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as ``result`` does; returns the error that the call raised, or None."""

    def done(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def cancel(self) -> bool:
        """Cancel a call that has not begun; False if it has begun, or cannot be cancelled."""

    def add_done_callback(self, function: Callable[[Future[Result_co]], object], /) -> None:
        """Call a function when the result is there, in the thread that made it; at once if it is. It must neither raise
        nor wait.
        """


class PendingFuture(Future[Result], Protocol[Result]):
    """A future whose result its maker sets, once. It cannot be cancelled."""

    def set_result(self, result: Result, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...


#: Errors of ``Pool.submit``, which a caller passes on to its waiters. All other errors are bugs.
NotSubmitted: Final = (PoolClosedError, ForkedProcessError, NoThreadError)


class Pool(Protocol):
    """Workers that run calls in the order of their submission. Any number of threads may submit.

    A context manager: leaving it cancels the calls that have not begun, and waits for those that run.
    """

    def submit(self, function: Callable[[], Result], /) -> Future[Result]:
        """Run a call when a worker is free.

        Raises:
            PoolClosedError: the pool is closed. ForkedProcessError: this is a fork. NoThreadError: there is no worker,
                and no thread for one.
        """

    def call_soon(self, function: Callable[[], None], /) -> None:
        """Run a call likewise that nobody waits for, and that raises nothing; raises as ``submit``."""
        self.submit(function)

    def close(self, *, cancel: bool = True, wait_seconds: float | None = None) -> None:
        """Cancel the calls that have not begun (or run them), wait for those that run, end the workers; idempotent.

        A call that still runs after ``wait_seconds`` (None: no limit) goes on in its thread, a daemon.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Scheduler(Protocol):
    """Threads and locks, as the rest of the program sees them. Thread safety: any number of threads."""

    @property
    def cores(self) -> int:
        """The number of threads that can run at once, at least 1: for the size of pools that compute."""

    def lock(self) -> Lock: ...
    def condition(self) -> Condition: ...
    def future(self) -> PendingFuture[Result]:
        """Make a future whose maker calls ``set_result`` or ``set_exception``."""

    def pool(self, workers: int, *, name: str) -> Pool:
        """Make a pool whose workers start when there is work. With 0 workers, ``submit`` runs the call itself."""

    def start(self, function: Callable[[], None], *, name: str) -> Future[None]:
        """Run a long task in a daemon thread of its own."""


def run_into(future: ThreadFuture[Result], function: Callable[[], Result]) -> None:
    """Run a call and give the future its result, or anything that it raised: a thread that died silently would leave
    its waiters for ever.
    """
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001
        future.set_exception(error)


class InlinePool(Pool):
    """A Pool without workers: the thread that submits runs the call."""

    def __init__(self) -> None:
        self._closed = False

    def submit(self, function: Callable[[], Result], /) -> Future[Result]:
        """Run a call when a worker is free."""
        if self._closed:
            raise PoolClosedError
        future: ThreadFuture[Result] = ThreadFuture()
        run_into(future, function)
        return future

    def close(self, *, cancel: bool = True, wait_seconds: float | None = None) -> None:  # noqa: ARG002
        """Close the pool; no call is under way."""
        self._closed = True
