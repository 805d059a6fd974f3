"""A scheduler in one thread, for tests and simulation: a seed decides which task goes on, a clock moves when all wait.

Each task is a greenlet. Tasks are switched in calls of :mod:`tierlog.runtime.machine.scheduling` and in sleeps, nowhere
else, and the seed decides which task goes on: the same seed and the same code give the same run, to the last byte. A
wait that nothing can end is an error that names the waiting tasks, not a test that hangs.

A ``TaskGroup`` has the tasks of one of several simulated processes, which can stop for a while, or for ever as in a
crash.

Needs the package greenlet, of the extra ``dev``: production never imports this.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Final, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

from tierlog.runtime.machine import Machine, Process
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.runtime.simulated.strands import Strand, StrandGroup, StrandScheduler

Result = TypeVar("Result")


def _nothing() -> None:
    """The call of an alarm that ends a wait."""


class StuckError(RuntimeError):
    """All tasks wait, and none that was begun can wake another."""


class AbandonedError(RuntimeError):
    """A task of another group, or of none, calls an object of an abandoned group."""


class ManualScheduler(StrandScheduler, Closeable):
    """A Scheduler in one thread, driven by a seed. A context manager: leaving it ends the tasks that still wait.

    Args:
        seed: Seed of all decisions.
        clock: When all tasks wait, it moves to the next time limit; its ``sleep`` is such a wait. None makes one.
        cores: The number of cores that it reports.
        switch_rate: Probability of switching where a task could go on; 0 switches only where a task must wait.

    Attributes:
        after_turn: Called with each task that has run for a while and lets others run now, and with whether it had
            been woken, or interrupted, and not run for its time had come. It must neither wait nor take a lock.
    """

    def __init__(
        self, seed: int, *, clock: SharedClock | None = None, cores: int = 2, switch_rate: float = 0.5
    ) -> None:
        self._random = random.Random(seed)  # noqa: S311
        self.clock = clock or SharedClock()
        self.clock.shared_by(self)
        self._cores = cores
        self._switch_rate = switch_rate
        self._main = Strand(getcurrent(), "main")
        self._hub = greenlet(self._turns)
        self._strands: dict[greenlet, Strand] = {self._main.greenlet: self._main}
        self._ready: list[Strand] = []
        self._alarms: list[tuple[float, int, Strand | None, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._closed = False
        self.after_turn: Callable[[Strand, bool], None] | None = None

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

    def unfinished_of(self, group: TaskGroup) -> list[str]:
        """The names of a group's tasks that have not ended."""
        return sorted(strand.name for strand in self._strands.values() if strand.group is group)

    def group(self, name: str) -> TaskGroup:
        """Make a Scheduler of its own, over this one, whose tasks can be paused and abandoned."""
        return TaskGroup(self, name)

    def spawn(self, function: Callable[[], None], *, name: str, group: TaskGroup | None = None) -> None:
        """Begin a task, which must not raise, at some later time."""

        def live() -> None:
            try:
                function()
            finally:
                self._strands.pop(getcurrent(), None)

        strand = Strand(greenlet(live, self._hub), name, group)
        self._strands[strand.greenlet] = strand
        self._make_ready(strand)

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        """Make a call after a time, between the turns of two tasks. It must neither wait nor take a lock; its error
        ends the run.
        """
        until = self.clock.monotonic_seconds() + max(seconds, 0.0)
        heapq.heappush(self._alarms, (until, next(self._order), None, 0, call))

    def fail(self, error: BaseException) -> None:
        """Raise an error in the task that made the scheduler, now, wherever that waits. The caller never goes on."""
        if getcurrent() is self._main.greenlet:
            raise error
        self._main.greenlet.throw(error)

    def current(self) -> Strand:
        """Return the task that runs."""
        strand = self._strands.get(getcurrent())
        if strand is None:
            raise StuckError("called from a thread, or a greenlet, that is not this scheduler's")
        return strand

    def runs(self, group: TaskGroup) -> bool:
        """Whether a task of a group runs now."""
        strand = self._strands.get(getcurrent())
        return strand is not None and strand.group is group

    def may_switch(self) -> None:
        """A point where another task may run."""
        if self._closed or not self._ready or getcurrent() is self._hub:
            return
        if self._random.random() >= self._switch_rate:
            return
        strand = self.current()
        strand.woken = True
        self._make_ready(strand)
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
            heapq.heappush(self._alarms, (until, next(self._order), strand, strand.turn, _nothing))
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
            self._make_ready(strand)

    def _make_ready(self, strand: Strand) -> None:
        group = strand.group
        if group is not None and group.is_paused:
            group.held.append(strand)
        else:
            self._ready.append(strand)

    def _turns(self) -> None:
        """Run the hub, which gives one strand after another its turn."""
        while True:
            self._ring(until=self.clock.monotonic_seconds())
            while not self._ready:
                self._drop_ended_alarms()
                if not self._alarms:
                    names = ", ".join(strand.name for strand in self._strands.values())
                    self._main.greenlet.throw(StuckError(f"all wait, and for nothing that can come: {names}"))
                else:
                    self.clock.advance(max(0.0, self._alarms[0][0] - self.clock.monotonic_seconds()))
                    self._ring(until=self._alarms[0][0])
            strand = self._ready.pop(self._random.randrange(len(self._ready)))
            was_woken = strand.woken
            strand.greenlet.switch()
            if self.after_turn is not None:
                self.after_turn(strand, was_woken)

    def _drop_ended_alarms(self) -> None:
        """Drop alarms of waits that have ended, up to the first of one that goes on."""
        while self._alarms:
            strand = self._alarms[0][2]
            if strand is None or (strand.waits and strand.turn == self._alarms[0][3]):
                return
            heapq.heappop(self._alarms)

    def _ring(self, until: float) -> None:
        while self._alarms and self._alarms[0][0] <= until:
            _, _, strand, turn, call = heapq.heappop(self._alarms)
            if strand is None:
                call()
            elif strand.waits and strand.turn == turn:
                strand.waits = False
                self._make_ready(strand)

    # ---- groups

    def hold(self, group: TaskGroup) -> None:
        """Let a group's tasks that could run not run: it is paused."""
        group.held += [strand for strand in self._ready if strand.group is group]
        self._ready = [strand for strand in self._ready if strand.group is not group]

    def release(self, group: TaskGroup) -> None:
        """Let a group's tasks run again."""
        self._ready += group.held
        group.held = []

    def forget(self, group: TaskGroup) -> list[Strand]:
        """Return a group's tasks, which run no more."""
        found = [strand for strand in self._strands.values() if strand.group is group]
        for strand in found:
            strand.waits = False
            del self._strands[strand.greenlet]
        self._ready = [strand for strand in self._ready if strand.group is not group]
        return found

    def close(self) -> None:
        """End the tasks that still wait, wherever they are; idempotent. Nothing can be begun or awaited afterwards."""
        self._closed = True
        for strand in list(self._strands.values()):
            if strand is not self._main:
                strand.greenlet.parent = getcurrent()  # where it goes on when it has ended
                strand.greenlet.throw(GreenletExit)
        self._strands = {self._main.greenlet: self._main}


#: What abandoned tasks hold, until the process ends: a frame that is freed runs its ``finally`` blocks.
_ABANDONED: Final[list[object]] = []


class TaskGroup(StrandScheduler, StrandGroup):
    """A Scheduler over a ManualScheduler, for the tasks of one simulated process. Made by ``ManualScheduler.group``.

    Attributes:
        stall: Asked in front of each point where another task may run: for so many seconds the task stands still, as a
            thread does that its system does not run, while the others go on; 0 = it does not.
    """

    def __init__(self, scheduler: ManualScheduler, name: str) -> None:
        StrandGroup.__init__(self, name)
        self._scheduler = scheduler
        self.stall: Callable[[], float] | None = None

    # ---- the process

    def pause(self) -> None:
        """Let no task of the group run until ``resume``; time goes on. A task of the group does not call it."""
        if not self.is_paused and not self.is_abandoned:
            self.is_paused = True
            self._scheduler.hold(self)

    def resume(self) -> None:
        """Let the tasks run again; time limits that have passed meanwhile are over."""
        if self.is_paused:
            self.is_paused = False
            self._scheduler.release(self)

    def abandon(self, *held: object) -> None:
        """End the tasks for ever, as a crash does: no ``finally`` block of theirs runs. Whoever calls an object of the
        group later gets AbandonedError. A task of the group does not call it.

        Args:
            held: What is not to be freed either: finalizers would touch what has crashed.
        """
        if self._scheduler.runs(self):
            raise RuntimeError("a task does not abandon itself")
        self.is_abandoned, self.is_paused = True, False
        _ABANDONED.append((self._scheduler.forget(self), self.held, held))

    @property
    def unfinished(self) -> list[str]:
        """The names of its tasks that have not ended."""
        return self._scheduler.unfinished_of(self)

    # ---- Scheduler

    @property
    def cores(self) -> int:
        return self._scheduler.cores

    # ---- what locks, futures and pools ask

    def _check(self) -> None:
        if self.is_abandoned:
            raise AbandonedError(f"{self.name} was abandoned")

    def spawn(self, function: Callable[[], None], *, name: str) -> None:
        self._check()
        self._scheduler.spawn(function, name=name, group=self)

    def current(self) -> Strand:
        self._check()
        return self._scheduler.current()

    def may_switch(self) -> None:
        if self.stall is not None and self._scheduler.runs(self):
            seconds = self.stall()
            if seconds > 0:
                self._scheduler.wait(seconds)
        self._scheduler.may_switch()

    def wait(self, seconds: float | None = None) -> bool:
        self._check()
        return self._scheduler.wait(seconds)

    def wake(self, strand: Strand) -> None:
        self._scheduler.wake(strand)


class SkewedClock:
    """The clock of one simulated computer: a SharedClock's time, and by how much it is wrong.

    Args:
        clock: The true one.
        skew_ms: By how much it is ahead.
        drift: What it gains in a ms.
    """

    def __init__(self, clock: SharedClock, *, skew_ms: int = 0, drift: float = 0.0) -> None:
        self._clock = clock
        self._skew_ms = skew_ms
        self._drift = drift

    def time_ms(self) -> int:
        true_ms = self._clock.monotonic_seconds() * 1000
        return self._clock.time_ms() + self._skew_ms + int(true_ms * self._drift)

    def monotonic_seconds(self) -> float:
        return self._clock.monotonic_seconds()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    def jump(self, ms: int) -> None:
        """Set the time ahead, or back."""
        self._skew_ms += ms

    def set_drift(self, drift: float) -> None:
        """Let it gain so much in a ms from now on."""
        self._skew_ms += int(self._clock.monotonic_seconds() * 1000 * self._drift)
        self._drift = drift
        self._skew_ms -= int(self._clock.monotonic_seconds() * 1000 * drift)


class SharedClock(ManualClock):
    """The ManualClock of a ManualScheduler, for which several tasks can wait at once."""

    def __init__(self, *, time_ms: int = 1_700_000_000_000) -> None:
        super().__init__(time_ms=time_ms)
        self._scheduler: ManualScheduler | None = None

    def time_ms(self) -> int:
        return self._start_ms + int(self._elapsed_seconds * 1000)

    def monotonic_seconds(self) -> float:
        return self._elapsed_seconds

    def shared_by(self, scheduler: ManualScheduler) -> None:
        """Set the scheduler whose waits move the clock."""
        self._scheduler = scheduler

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            assert self._scheduler is not None
            self._scheduler.wait(seconds)
