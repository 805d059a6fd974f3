"""Locks, futures and pools of a ManualScheduler, and of its groups: whoever waits is one of its strands."""

from __future__ import annotations

import abc
import collections
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from greenlet import GreenletExit, greenlet

from tierlog.errors import PoolClosedError
from tierlog.runtime.machine.scheduling import Condition, Future, InlinePool, Lock, PendingFuture, Pool

Result = TypeVar("Result")


@dataclass(eq=False)
class StrandGroup:
    """The strands of one simulated process.

    Attributes:
        name: Of the process.
        is_paused: Whether they do not run for a while.
        is_abandoned: Whether they have ended for ever.
        held: Those that go on when the group is resumed.
    """

    name: str
    is_paused: bool = False
    is_abandoned: bool = False
    held: list[Strand] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Strand:
    """One task of a ManualScheduler.

    Attributes:
        waits: Whether it waits to be woken, or for its time limit.
        woken: How its last wait ended.
        turn: Counts its waits, so that the alarm of an earlier wait does not end a later one.
        group: The group that it belongs to; None: it can neither be paused nor abandoned.
    """

    greenlet: greenlet
    name: str
    group: StrandGroup | None = None
    waits: bool = False
    woken: bool = False
    turn: int = 0


class StrandScheduler(abc.ABC):
    """A Scheduler whose tasks are strands: a ManualScheduler, or one of its groups.

    Attributes:
        held_locks: How many of its locks and conditions are held now.
    """

    held_locks = 0

    @abc.abstractmethod
    def current(self) -> Strand:
        """Return the strand that runs."""

    @abc.abstractmethod
    def may_switch(self) -> None:
        """A point where another strand may run."""

    @abc.abstractmethod
    def wait(self, seconds: float | None = None) -> bool:
        """Let the current strand wait until it is woken, or for a time; return whether it was woken."""

    @abc.abstractmethod
    def wake(self, strand: Strand) -> None:
        """Let a waiting strand go on."""

    @abc.abstractmethod
    def spawn(self, function: Callable[[], None], *, name: str) -> None:
        """Begin a strand."""

    def lock(self) -> Lock:
        """Make a lock whose holder and waiters are tasks of this scheduler."""
        return ManualLock(self)

    def condition(self) -> Condition:
        """Make a condition whose waiters are tasks of this scheduler."""
        return ManualCondition(self)

    def future(self) -> PendingFuture[Result]:
        """Make a future whose maker calls ``set_result`` or ``set_exception``."""
        future: ManualFuture[Result] = ManualFuture(self)
        future.begin()
        return future

    def pool(self, workers: int, *, name: str) -> Pool:
        """Make a pool whose workers start when there is work."""
        return ManualPool(self, workers, name) if workers else InlinePool()

    def start(self, function: Callable[[], None], *, name: str) -> Future[None]:
        """Run a long task in a daemon thread of its own."""
        future: ManualFuture[None] = ManualFuture(self)
        self.spawn(lambda: future.run(function), name=name)
        self.may_switch()
        return future


class WaitList:
    """Strands that wait for the same condition."""

    def __init__(self, scheduler: StrandScheduler) -> None:
        self._scheduler = scheduler
        self._strands: list[Strand] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Wait; returns whether the strand was woken before its time limit."""
        strand = self._scheduler.current()
        self._strands.append(strand)
        try:
            return self._scheduler.wait(timeout)
        finally:
            if strand in self._strands:  # or it would be woken out of its next wait, for another thing
                self._strands.remove(strand)

    def wake_all(self) -> None:
        strands, self._strands = self._strands, []
        for strand in strands:
            self._scheduler.wake(strand)


class ManualLock:
    """The Lock of a ManualScheduler."""

    def __init__(self, scheduler: StrandScheduler) -> None:
        self._scheduler = scheduler
        self._owner: Strand | None = None
        self._queue = WaitList(scheduler)

    @property
    def is_held(self) -> bool:
        """Whether a strand holds it."""
        return self._owner is not None

    def __enter__(self) -> None:
        self._scheduler.may_switch()
        self.take()

    def take(self) -> None:
        strand = self._scheduler.current()
        if self._owner is strand:
            raise RuntimeError("a lock is taken again by its holder: in production this waits for ever")
        while self._owner is not None:
            self._queue.wait()
        self._owner = strand
        self._scheduler.held_locks += 1

    def __exit__(self, *_: object) -> None:
        self.give()

    def give(self) -> None:
        self._scheduler.held_locks -= self._owner is not None
        self._owner = None
        self._queue.wake_all()


class ManualCondition(ManualLock):
    """The Condition of a ManualScheduler."""

    def __init__(self, scheduler: StrandScheduler) -> None:
        super().__init__(scheduler)
        self._waiting = WaitList(scheduler)

    def wait(self, timeout: float | None = None) -> bool:
        self._check_held()
        self.give()
        try:
            return self._waiting.wait(timeout)
        finally:
            self.take()

    def notify_all(self) -> None:
        self._check_held()
        self._waiting.wake_all()

    def _check_held(self) -> None:
        if self._owner is not self._scheduler.current():
            raise RuntimeError("only the holder of a condition may do this")


class ManualFuture(Generic[Result]):
    """The Future and PendingFuture of a ManualScheduler."""

    def __init__(self, scheduler: StrandScheduler) -> None:
        self._scheduler = scheduler
        self._state = "waiting"
        self._result: list[Result] = []
        self._error: BaseException | None = None
        self._queue = WaitList(scheduler)
        self._callbacks: list[Callable[[Future[Result]], object]] = []

    def begin(self) -> bool:
        """Mark the call as running, so that it cannot be cancelled; False if it was cancelled."""
        if self._state == "waiting":
            self._state = "running"
        return self._state == "running"

    def run(self, function: Callable[[], Result]) -> None:
        if not self.begin():
            return
        try:
            result = function()
        except GreenletExit:  # the scheduler is closed: no waiter is left
            raise
        except BaseException as error:  # noqa: BLE001 - all errors go to the waiter
            self.set_exception(error)
        else:
            self.set_result(result)

    def set_result(self, result: Result, /) -> None:
        self._result.append(result)
        self._end("done")

    def set_exception(self, error: BaseException, /) -> None:
        self._error = error
        self._end("done")

    def _end(self, state: str) -> None:
        if self.done():
            raise RuntimeError("a future is filled twice")
        self._state = state
        self._queue.wake_all()
        callbacks, self._callbacks = self._callbacks, []
        for function in callbacks:
            function(self)

    def done(self) -> bool:
        return self._state in ("done", "cancelled")

    def cancelled(self) -> bool:
        return self._state == "cancelled"

    def cancel(self) -> bool:
        if self._state == "waiting":
            self._end("cancelled")
        return self.cancelled()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._scheduler.may_switch()
        while not self.done():
            if not self._queue.wait(timeout) and not self.done():
                raise TimeoutError
        if self.cancelled():
            raise CancelledError
        return self._error

    def result(self, timeout: float | None = None) -> Result:
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._result[0]

    def add_done_callback(self, function: Callable[[Future[Result]], object], /) -> None:
        if self.done():
            function(self)
        else:
            self._callbacks.append(function)


class ManualPool(Pool):
    """The Pool of a ManualScheduler."""

    def __init__(self, scheduler: StrandScheduler, workers: int, name: str) -> None:
        self._scheduler = scheduler
        self._name = name
        self._workers = workers
        self._alive = 0
        self._closed = False
        self._calls: collections.deque[tuple[Callable[[], None], Callable[[], bool]]] = collections.deque()
        self._ended = WaitList(scheduler)

    def submit(self, function: Callable[[], Result], /) -> Future[Result]:
        if self._closed:
            raise PoolClosedError
        future: ManualFuture[Result] = ManualFuture(self._scheduler)
        self._calls.append((lambda: future.run(function), future.cancel))
        if self._alive < self._workers:
            self._alive += 1
            self._scheduler.spawn(self._work, name=self._name)
        self._scheduler.may_switch()
        return future

    def _work(self) -> None:
        while self._calls:
            run, _ = self._calls.popleft()
            run()
            self._scheduler.may_switch()
        self._alive -= 1  # with no switch since the last look at the calls: the next submit begins another worker
        self._ended.wake_all()

    def close(self, *, cancel: bool = True, wait_seconds: float | None = None) -> None:
        self._closed = True
        while cancel and self._calls:
            self._calls.popleft()[1]()
        while self._alive:
            if not self._ended.wait(wait_seconds) and wait_seconds is not None:
                return
