"""Waiting of threads: an event, the first of several futures, calls side by side, calls with a time limit."""

from __future__ import annotations

import collections
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Final, Generic, TypeVar

from tierlog.errors import PoolClosedError, StoreUnavailableError, TierlogError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelScope, as_wanted_here, call_within, ended_by_scopes
from tierlog.runtime.machine.process import Origin
from tierlog.runtime.machine.scheduling import Future, Pool, Scheduler

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Time that a cancelled call has to end.
ENDING_SECONDS: Final = 0.2


class Event:
    """An event that happens once: any thread may set it, ask for it and wait for it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._changed = scheduler.condition()
        self._is_set = False

    @property
    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Wake all waiters; idempotent."""
        with self._changed:
            self._is_set = True
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set, at most ``timeout`` seconds; returns whether it is set."""
        with self._changed:
            while not self._is_set and self._changed.wait(timeout):
                pass
            return self._is_set


class Arrivals(Generic[Result]):
    """Futures in the order in which they are done: a way to wait for the first of several.

    ``len`` is the number of futures that were added and not yet returned. Thread safety: any number of threads may add;
    one thread takes.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._changed = scheduler.condition()
        self._done: collections.deque[Future[Result]] = collections.deque()
        self._awaited = 0

    def __len__(self) -> int:
        return self._awaited

    def add(self, future: Future[Result]) -> None:
        """Add a future to those that are awaited."""
        with self._changed:
            self._awaited += 1
        future.add_done_callback(self._arrived)

    def _arrived(self, future: Future[Result]) -> None:
        with self._changed:
            self._done.append(future)
            self._changed.notify_all()

    def take(self) -> Future[Result]:
        """Take the next future that is done or cancelled. Raises LookupError: none is awaited."""
        with self._changed:
            if not self._awaited:
                raise LookupError("nothing is awaited")
            while not self._done:
                self._changed.wait()
            self._awaited -= 1
            return self._done.popleft()


def run_all(pool: Pool, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield the results of ``function`` for each item, in order. All calls are submitted when the first result is asked
    for.

    The first error is raised in the place of its result. Then, and when the iterator is closed, calls that have not
    begun are cancelled.
    """
    futures = collections.deque(pool.submit(partial(function, item)) for item in items)
    try:
        while futures:
            yield futures.popleft().result()
    finally:
        for future in futures:
            future.cancel()


class OrderedCalls:
    """Store calls side by side in a pool of threads, which starts with the first call; their results come in order.

    A call belongs to its caller: what cancels the caller's reads (``cancelled_by``) cancels the call's too.

    Args:
        workers: Largest number of calls under way.
        machine: Its threads.
        owner: Whose calls they are, for messages: "the tier".

    Thread safety: any number of threads.
    """

    def __init__(self, workers: int, machine: Machine, owner: str) -> None:
        self._owner = owner
        self._workers = workers
        self._scheduler = machine.scheduler
        self._lock = self._scheduler.lock()
        self._pool: Pool | None = None
        self._closed = False
        self._scope = CancelScope(self._scheduler)
        self._origin = Origin()

    def submit(self, function: Callable[[Item], Result], item: Item) -> Future[Result]:
        """Start a call. Raises ValueError after close, ForkedProcessError in a fork."""
        self._origin.require(self._owner)
        with self._lock:
            if self._closed:
                raise ValueError(f"{self._owner} is closed")
            if self._pool is None:
                self._pool = self._scheduler.pool(self._workers, name="tierlog-store")
            return self._pool.submit(as_wanted_here(partial(call_within, self._scope, partial(function, item))))

    def iter_ahead(self, function: Callable[[Item], Result], items: Iterable[Item], *, ahead: int) -> Generator[Result]:
        """``function`` of each item, in order, at most ``ahead`` calls beyond the one whose result is next.

        0 calls in the caller's own thread. The first error is raised where its result would come. Closing the iterator
        cancels calls that have not begun; running calls end on their own and their results are dropped.
        """
        if ahead <= 0:
            yield from map(function, items)
            return
        source = iter(items)
        running: collections.deque[Future[Result]] = collections.deque()
        try:
            for item in source:
                running.append(self.submit(function, item))
                if len(running) > ahead:
                    yield self._result(running.popleft())
            while running:
                yield self._result(running.popleft())
        finally:
            for future in running:
                future.cancel()

    def _result(self, future: Future[Result]) -> Result:
        self._origin.require(self._owner)  # a parent's thread would fill it
        return future.result()

    def map(
        self, function: Callable[[Item], Result], items: Iterable[Item], *, ahead: int
    ) -> Generator[Result | TierlogError]:
        """Yield results like ``iter_ahead``, but an error of this package is a result like any other."""

        def outcome(item: Item) -> Result | TierlogError:
            try:
                return function(item)
            except TierlogError as error:
                return error

        return self.iter_ahead(outcome, items, ahead=ahead)

    def close(self) -> None:
        """Cancel what waits and what runs, wait for its end, end the threads; idempotent."""
        if not self._origin.is_here:
            return
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        self._scope.cancel()
        if pool is not None:
            pool.close()


class CallAbandonedError(StoreUnavailableError):
    """No caller waits for the call any more; it may have taken effect, or may yet."""


class BoundedCalls:
    """Store calls with a time limit of the caller's, whatever the store does.

    When the time is up the call is cancelled (``cancelling``), which ends it at once in our own stores. In a store that
    can only block, the call goes on in a thread without a waiter. Its result is lost, so that the caller must assume
    that it may have taken effect.

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
            what: The call's action, for the message.
            call: Runs in another thread within a ``cancelled_by`` block; cancelling this thread's blocks cancels it
                too.
            seconds: How long to wait.

        Raises:
            CallAbandonedError: the call did not end in time, or ``close`` was called. Else the call's error.
        """
        scope = CancelScope(self._machine.scheduler)
        clock = self._machine.clock
        began = clock.monotonic_seconds()
        try:
            future = self._pool.submit(lambda: call_within(scope, call))
        except PoolClosedError as cause:
            raise CallAbandonedError(f"{what}: closed") from cause
        try:
            with ended_by_scopes(scope.cancel):
                in_time = self._wait(future, until=began + seconds, heeds_close=True)
        finally:
            scope.cancel()
        if not in_time and not future.cancel():
            self._wait(future, until=clock.monotonic_seconds() + ENDING_SECONDS, heeds_close=False)
        if not in_time:
            why = "closed" if self._closed else "no answer in time"
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
        """Raise CallAbandonedError in all waiters, now and later."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close(self) -> None:
        """Give up all calls, and end the threads that can be ended; idempotent."""
        self.give_up()
        self._pool.close(wait_seconds=0)
