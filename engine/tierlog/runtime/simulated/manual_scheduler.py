"""A scheduler in one thread, for tests and simulation: a seed decides which task goes on, a clock moves when all wait.

Each task is a greenlet. Tasks are switched in calls of :mod:`tierlog.runtime.machine.scheduling` and in sleeps, nowhere
else, and the seed decides which task goes on: the same seed and the same code give the same run, to the last byte. A
wait that nothing can end is an error that names the waiting tasks, not a test that hangs.

Needs the package greenlet, of the extra ``dev``: production never imports this.
"""

from __future__ import annotations

import collections
import heapq
import itertools
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Generic, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

from tierlog.errors import PoolClosedError
from tierlog.runtime.machine import Machine, Process
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.machine.scheduling import Condition, Future, InlinePool, Lock, PendingFuture, Pool
from tierlog.runtime.simulated.memory_files import MemoryFiles

Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class Strand:
    """One task of a ManualScheduler.

    Attributes:
        waits: Whether it waits to be woken, or for its time limit.
        woken: How its last wait ended.
        turn: Counts its waits, so that the alarm of an earlier wait does not end a later one.
    """

    greenlet: greenlet
    name: str
    waits: bool = False
    woken: bool = False
    turn: int = 0


class WaitList:
    """Strands that wait for the same condition."""

    def __init__(self, scheduler: ManualScheduler) -> None:
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

    def __init__(self, scheduler: ManualScheduler) -> None:
        self._scheduler = scheduler
        self._owner: Strand | None = None
        self._queue = WaitList(scheduler)

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

    def __exit__(self, *_: object) -> None:
        self.give()

    def give(self) -> None:
        self._owner = None
        self._queue.wake_all()


class ManualCondition(ManualLock):
    """The Condition of a ManualScheduler."""

    def __init__(self, scheduler: ManualScheduler) -> None:
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

    def __init__(self, scheduler: ManualScheduler) -> None:
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

    def __init__(self, scheduler: ManualScheduler, workers: int, name: str) -> None:
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


class StuckError(RuntimeError):
    """All tasks wait, and none that was begun can wake another."""


class ManualScheduler(Closeable):
    """A Scheduler in one thread, driven by a seed. A context manager: leaving it ends the tasks that still wait.

    Args:
        seed: Seed of all decisions.
        clock: When all tasks wait, it moves to the next time limit; its ``sleep`` is such a wait. None makes one.
        cores: The number of cores that it reports.
        switch_rate: Probability of switching where a task could go on; 0 switches only where a task must wait.
    """

    def __init__(
        self, seed: int, *, clock: SharedClock | None = None, cores: int = 2, switch_rate: float = 0.5
    ) -> None:
        self._rng = SeededRng(seed)
        self.clock = clock or SharedClock()
        self.clock.shared_by(self)
        self._cores = cores
        self._switch_rate = switch_rate
        self._main = Strand(getcurrent(), "main")
        self._hub = greenlet(self._turns)
        self._strands: dict[greenlet, Strand] = {self._main.greenlet: self._main}
        self._ready: list[Strand] = []
        self._alarms: list[tuple[float, int, Strand, int]] = []
        self._order = itertools.count()
        self._closed = False

    @classmethod
    def machine(cls, seed: int, files: Files | None = None) -> tuple[Machine, ManualScheduler]:
        """Make a machine that repeats from a seed: clock, randomness, threads, and a disk in memory unless one is
        given.
        """
        scheduler = cls(seed)
        files = MemoryFiles(scheduler.clock) if files is None else files
        return Machine(scheduler.clock, SeededRng(seed), scheduler, files, Process()), scheduler

    @property
    def cores(self) -> int:
        """The number of threads that can run at once, at least 1: for the size of pools that compute."""
        return self._cores

    @property
    def unfinished(self) -> list[str]:
        """The names of the tasks that were begun and have not ended."""
        return sorted(strand.name for strand in self._strands.values() if strand is not self._main)

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

    def spawn(self, function: Callable[[], None], *, name: str) -> None:
        """Begin a task, which must not raise, at some later time."""

        def live() -> None:
            try:
                function()
            finally:
                del self._strands[getcurrent()]

        strand = Strand(greenlet(live, self._hub), name)
        self._strands[strand.greenlet] = strand
        self._ready.append(strand)

    def current(self) -> Strand:
        """Return the task that runs."""
        strand = self._strands.get(getcurrent())
        if strand is None:
            raise StuckError("called from a thread, or a greenlet, that is not this scheduler's")
        return strand

    def may_switch(self) -> None:
        """A point where another task may run."""
        if self._closed or not self._ready or getcurrent() is self._hub:
            return
        if self._rng.uniform(0, 1) >= self._switch_rate:
            return
        self._ready.append(self.current())
        self._hub.switch()

    def wait(self, seconds: float | None = None) -> bool:
        """Let the current task wait until ``wake`` is called for it, or for a time; returns whether it was woken.

        Raises:
            StuckError: in the task that made the scheduler, if no task can go on.
        """
        if self._closed:
            raise GreenletExit
        strand = self.current()
        strand.waits = True
        strand.woken = False
        strand.turn += 1
        if seconds is not None:
            until = self.clock.monotonic_seconds() + max(seconds, 0.0)
            heapq.heappush(self._alarms, (until, next(self._order), strand, strand.turn))
        try:
            self._hub.switch()
        finally:
            strand.waits = False
        return strand.woken

    def wake(self, strand: Strand) -> None:
        """Let a waiting task go on; does nothing if it does not wait."""
        if strand.waits:
            strand.waits = False
            strand.woken = True
            self._ready.append(strand)

    def _turns(self) -> None:
        """Run the hub, which gives one strand after another its turn."""
        while True:
            self._ring(until=self.clock.monotonic_seconds())
            while not self._ready:
                self._alarms = [alarm for alarm in self._alarms if alarm[2].waits and alarm[3] == alarm[2].turn]
                heapq.heapify(self._alarms)
                if not self._alarms:
                    names = ", ".join(strand.name for strand in self._strands.values())
                    self._main.greenlet.throw(StuckError(f"all wait, and for nothing that can come: {names}"))
                else:
                    self.clock.advance(max(0.0, self._alarms[0][0] - self.clock.monotonic_seconds()))
                    self._ring(until=self._alarms[0][0])
            self._ready.pop(self._rng.integer_below(len(self._ready))).greenlet.switch()

    def _ring(self, until: float) -> None:
        while self._alarms and self._alarms[0][0] <= until:
            _, _, strand, turn = heapq.heappop(self._alarms)
            if strand.waits and strand.turn == turn:
                strand.waits = False
                self._ready.append(strand)

    def close(self) -> None:
        """End the tasks that still wait, wherever they are; idempotent. Nothing can be begun or awaited afterwards."""
        self._closed = True
        for strand in list(self._strands.values()):
            if strand is not self._main:
                strand.greenlet.parent = getcurrent()  # where it goes on when it has ended
                strand.greenlet.throw(GreenletExit)
        self._strands = {self._main.greenlet: self._main}


class SharedClock(ManualClock):
    """The ManualClock of a ManualScheduler, for which several tasks can wait at once."""

    def __init__(self, *, time_ms: int = 1_700_000_000_000) -> None:
        super().__init__(time_ms=time_ms)
        self._scheduler: ManualScheduler | None = None

    def shared_by(self, scheduler: ManualScheduler) -> None:
        """Set the scheduler whose waits move the clock."""
        self._scheduler = scheduler

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            assert self._scheduler is not None
            self._scheduler.wait(seconds)
