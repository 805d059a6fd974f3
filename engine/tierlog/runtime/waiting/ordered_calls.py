"""Store calls side by side, bounded, their results in order.

A call belongs to whoever asked for it: what cancels its reads (``cancelled_by``) cancels the call's too.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TypeVar

from tierlog.errors import TierlogError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelScope, as_wanted_here, call_within
from tierlog.runtime.machine.forking import Origin
from tierlog.runtime.machine.scheduling import Future, Pool

Item = TypeVar("Item")
Result = TypeVar("Result")


class OrderedCalls:
    """Calls in a pool of threads, which starts with the first call; their results come in order.

    Args:
        workers: Largest number of calls under way.
        machine: Its threads.

    Thread safety: any number of threads.
    """

    def __init__(self, workers: int, machine: Machine) -> None:
        self._workers = workers
        self._scheduler = machine.scheduler
        self._lock = self._scheduler.lock()
        self._pool: Pool | None = None
        self._closed = False
        self._scope = CancelScope(self._scheduler)
        self._origin = Origin()

    def submit(self, function: Callable[[Item], Result], item: Item) -> Future[Result]:
        """Start a call. Raises ValueError after close, ForkedProcessError in a fork."""
        self._origin.require("the tier")
        with self._lock:
            if self._closed:
                raise ValueError("the tier is closed")
            if self._pool is None:
                self._pool = self._scheduler.pool(self._workers, name="tierlog-store")
            return self._pool.submit(as_wanted_here(partial(call_within, self._scope, partial(function, item))))

    def iter_ahead(self, function: Callable[[Item], Result], items: Iterable[Item], *, ahead: int) -> Generator[Result]:
        """``function`` of each item, in order, at most ``ahead`` calls beyond the one that is waited for.

        0 calls in the caller's own thread. The first error is raised where its result would come. Closing the
        iterator cancels what has not begun; what runs ends on its own and its result is dropped.
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
        self._origin.require("the tier")  # a parent's thread would fill it
        return future.result()

    def map(
        self, function: Callable[[Item], Result], items: Iterable[Item], *, ahead: int
    ) -> Generator[Result | TierlogError]:
        """As iter_ahead, but an error of this package is a result like any other."""

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
