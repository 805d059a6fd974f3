"""Threads, locks and waiting, as an argument.

Nothing above this room makes a thread, a lock or a pool otherwise: a simulator that runs a whole cluster in one thread,
in an order that its seed decides, replaces the Scheduler and nothing else. ``Event``, ``Arrivals`` and ``run_all`` are
made of a Scheduler's parts, so that there is one of each for all schedulers.

A simulator may switch at every call of this module, and at no other place. What waits otherwise (a bare loop, a lock of
the language) stops it for ever.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError as CancelledError  # noqa: PLC0414 - for who uses a Future
from concurrent.futures import Future as ThreadFuture
from functools import partial
from types import TracebackType
from typing import Final, Generic, Protocol, Self, TypeVar

from tierlog.errors import ForkedProcessError, NoThreadError

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

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as ``result`` does; what the call raised, None if it gave a result."""

    def done(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def cancel(self) -> bool:
        """Keep it from beginning; False if it has begun, or is nobody's to cancel."""

    def add_done_callback(self, function: Callable[[Future[Result_co]], object], /) -> None:
        """Called once it is done, on the thread that did it; at once if it is. It must not raise, nor wait."""


class PendingFuture(Future[Result], Protocol[Result]):
    """A future that its maker fills, once; it cannot be cancelled."""

    def set_result(self, result: Result, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...


class PoolClosedError(RuntimeError):
    """A call came after a pool's close. Of a caller's kind of error each caller makes its own."""

    def __init__(self) -> None:
        super().__init__("the pool is closed")


#: What ``Pool.submit`` raises: who has somebody waiting tells her so. All else is a fault of ours.
NotSubmitted: Final = (PoolClosedError, ForkedProcessError, NoThreadError)


class Pool(Protocol):
    """Some workers that run calls in the order in which they came. Any number of threads may submit.

    A context manager: leaving it cancels what has not begun, and waits for what runs.
    """

    def submit(self, function: Callable[[], Result], /) -> Future[Result]:
        """Run it when a worker is free.

        Raises:
            PoolClosedError: after close. ForkedProcessError: in a fork. NoThreadError: it has no worker, and gets none.
        """

    def close(self, *, cancel: bool = True, wait_seconds: float | None = None) -> None:
        """Cancel what has not begun (or run it), wait for what runs, end the workers; idempotent.

        What still runs after ``wait_seconds`` (None: however long it takes) goes on in its thread, which ends with it
        and does not keep the process alive.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


class Scheduler(Protocol):
    """What the rest of the program may know of threads. Any number of threads may use one."""

    @property
    def cores(self) -> int:
        """Threads that can run at once, at least 1: for the size of pools that compute."""

    def lock(self) -> Lock: ...
    def condition(self) -> Condition: ...
    def future(self) -> PendingFuture[Result]:
        """One that its maker fills by ``set_result`` or ``set_exception``."""

    def pool(self, workers: int, *, name: str) -> Pool:
        """Workers that begin when there is work. 0 workers: ``submit`` runs the call itself."""

    def start(self, function: Callable[[], None], *, name: str) -> Future[None]:
        """Run something long in a thread of its own, which does not keep the process alive."""


class Event:
    """Something that happens once: set by anybody, looked at and waited for by anybody."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._changed = scheduler.condition()
        self._is_set = False

    @property
    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Wake all who wait; again is fine."""
        with self._changed:
            self._is_set = True
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is set, or for ``timeout`` seconds; whether it is set."""
        with self._changed:
            while not self._is_set and self._changed.wait(timeout):
                pass
            return self._is_set


class Arrivals(Generic[Result]):
    """Futures in the order in which they are done: how to wait for the first of several.

    ``len`` is the number of those that were added and not taken yet. Thread safety: any number of threads may add; one
    takes.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._changed = scheduler.condition()
        self._done: collections.deque[Future[Result]] = collections.deque()
        self._awaited = 0

    def __len__(self) -> int:
        return self._awaited

    def add(self, future: Future[Result]) -> None:
        """Wait for this one too."""
        with self._changed:
            self._awaited += 1
        future.add_done_callback(self._arrived)

    def _arrived(self, future: Future[Result]) -> None:
        with self._changed:
            self._done.append(future)
            self._changed.notify_all()

    def take(self) -> Future[Result]:
        """The next one that is done, or was cancelled. Raises LookupError: none is awaited."""
        with self._changed:
            if not self._awaited:
                raise LookupError("nothing is awaited")
            while not self._done:
                self._changed.wait()
            self._awaited -= 1
            return self._done.popleft()


def run_all(pool: Pool, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """``function`` of each item, all submitted at once; results in order, as they are asked for.

    The first error is raised where its result would come; then, and when the iterator is closed, what has not begun is
    cancelled. Nothing is submitted before the first result is asked for.
    """
    futures = collections.deque(pool.submit(partial(function, item)) for item in items)
    try:
        while futures:
            yield futures.popleft().result()
    finally:
        for future in futures:
            future.cancel()


def run_into(future: ThreadFuture[Result], function: Callable[[], Result]) -> None:
    """Everything that can be raised is the future's: a thread that dies silently is a wait for ever."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001
        future.set_exception(error)


class InlinePool(Pool):
    """No workers: who submits runs the call."""

    def __init__(self) -> None:
        self._closed = False

    def submit(self, function: Callable[[], Result], /) -> Future[Result]:
        """See Pool."""
        if self._closed:
            raise PoolClosedError
        future: ThreadFuture[Result] = ThreadFuture()
        _run(function, future)
        return future

    def close(self, *, cancel: bool = True, wait_seconds: float | None = None) -> None:  # noqa: ARG002
        """See Pool; nothing runs."""
        self._closed = True


def _run(function: Callable[[], Result], future: ThreadFuture[Result]) -> None:
    """Everything that can be raised is the future's: a thread that dies silently is a wait for ever."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001
        future.set_exception(error)
