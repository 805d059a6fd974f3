"""A process at its limit of threads: a scheduler that refuses one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tierlog.errors import NoThreadError
from tierlog.runtime.machine.scheduling import Condition, Future, Lock, PendingFuture, Pool, Scheduler

Result = TypeVar("Result")


class FailingScheduler(Scheduler):
    """Passes everything on, but for the n-th thread, or work for one, that is asked for, from 1; 0 fails none.

    Attributes:
        seen: How many were asked for.
    """

    def __init__(self, scheduler: Scheduler, *, at: int = 0) -> None:
        self.seen = 0
        self._at = at
        self._scheduler = scheduler

    def fail_at(self, at: int) -> None:
        """Count anew, and fail that one."""
        self.seen, self._at = 0, at

    @property
    def cores(self) -> int:
        return self._scheduler.cores

    def lock(self) -> Lock:
        return self._scheduler.lock()

    def condition(self) -> Condition:
        return self._scheduler.condition()

    def future(self) -> PendingFuture[Result]:
        return self._scheduler.future()

    def pool(self, workers: int, *, name: str) -> Pool:
        return _FailingPool(self._scheduler.pool(workers, name=name), self.count)

    def start(self, function: Callable[[], None], *, name: str) -> Future[None]:
        self.count()
        return self._scheduler.start(function, name=name)

    def count(self) -> None:
        """Count one. Raises NoThreadError."""
        self.seen += 1
        if self.seen == self._at:
            raise NoThreadError("no thread: the system gives no more")


class _FailingPool(Pool):
    def __init__(self, pool: Pool, count: Callable[[], None]) -> None:
        self._pool = pool
        self._count = count

    def submit(self, function: Callable[[], Result], /) -> Future[Result]:
        self._count()
        return self._pool.submit(function)

    def close(self, *, cancel: bool = True, wait_seconds: float | None = None) -> None:
        self._pool.close(cancel=cancel, wait_seconds=wait_seconds)
