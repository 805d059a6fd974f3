"""A scheduler in one thread, for tests and simulation: a seed decides who goes on, a clock moves when all wait.

Each task is a greenlet. Tasks are switched in calls of :mod:`tierlog.runtime.machine.scheduling` and in sleeps, nowhere
else, and the seed decides which task goes on: the same seed and the same code give the same run, to the last byte. A
wait that nothing can end is an error that names the waiting tasks, not a test that hangs.

Needs the package greenlet, of the extra ``dev``: production never imports this.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

from tierlog.runtime.machine import Machine, Process
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.machine.scheduling import Condition, Future, InlinePool, Lock, PendingFuture, Pool
from tierlog.runtime.simulated.manual_waiting import ManualCondition, ManualFuture, ManualLock, ManualPool, Strand
from tierlog.runtime.simulated.memory_files import MemoryFiles

Result = TypeVar("Result")


class StuckError(RuntimeError):
    """All tasks wait, and none that was begun can wake another."""


class ManualScheduler:
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
        """A machine that repeats from a seed: clock, randomness, threads, and a disk in memory unless one is given."""
        scheduler = cls(seed)
        files = MemoryFiles(scheduler.clock) if files is None else files
        return Machine(scheduler.clock, SeededRng(seed), scheduler, files, Process()), scheduler

    @property
    def cores(self) -> int:
        """How many threads can run at once, at least 1: for the size of pools that compute."""
        return self._cores

    @property
    def unfinished(self) -> list[str]:
        """The names of the tasks that were begun and have not ended."""
        return sorted(strand.name for strand in self._strands.values() if strand is not self._main)

    def lock(self) -> Lock:
        """A lock whose holder and waiters are tasks of this scheduler."""
        return ManualLock(self)

    def condition(self) -> Condition:
        """A condition whose waiters are tasks of this scheduler."""
        return ManualCondition(self)

    def future(self) -> PendingFuture[Result]:
        """A future whose maker calls ``set_result`` or ``set_exception``."""
        future: ManualFuture[Result] = ManualFuture(self)
        future.begin()
        return future

    def pool(self, workers: int, *, name: str) -> Pool:
        """A pool whose workers start when there is work."""
        return ManualPool(self, workers, name) if workers else InlinePool()

    def start(self, function: Callable[[], None], *, name: str) -> Future[None]:
        """Run a long task in a thread of its own, which does not keep the process alive."""
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
        """The task that runs."""
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
        """The hub: gives one strand after another its turn."""
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
