"""Tasks of many partitions at their times, by few threads."""

from __future__ import annotations

import heapq
import itertools
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from tierlog.errors import NoThreadError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.machine.scheduling import Future, NotSubmitted, PendingFuture, Pool

_log = logging.getLogger(__name__)

#: A call that does a part of a task's work. Returns seconds until the next call (0: at once, behind the tasks that
#: wait already); None: the task has ended.
Run = Callable[[], float | None]

#: Tasks that fall due within this time are begun together.
_TICK_SECONDS: Final = 0.01
_WAIT_SECONDS_MAX: Final = 3600.0
#: Pause of a task whose run raised: a bug, since runs handle their errors.
_FAULT_PAUSE_SECONDS: Final = 30.0


class ScheduledTask:
    """A task of a TaskSchedule: at most one of its runs goes on at a time. Its attributes are the schedule's.

    Thread safety: any number of threads.
    """

    __slots__ = ("due_seconds", "ended", "is_again", "is_ending", "is_queued", "is_running", "run", "schedule")

    def __init__(self, schedule: TaskSchedule, run: Run, due_seconds: float) -> None:
        self.schedule = schedule
        self.run = run
        self.due_seconds = due_seconds
        self.is_queued = self.is_running = self.is_again = self.is_ending = False
        self.ended: PendingFuture[None] | None = None

    def wake(self) -> None:
        """Run the task now, or once more as soon as its present run ends."""
        self.schedule.wake(self)

    def end(self) -> Future[None]:
        """End the task: no run begins any more. The future is done when the present run has ended."""
        return self.schedule.end(self)


class TaskSchedule(Closeable):
    """Threads that run tasks when they are due, those that are due for longest first. A context manager.

    A run that is one of many of its partition returns 0 and goes behind the others: so a partition with much to do
    delays none for longer than one run.

    Args:
        machine: Has the clock and the threads.
        name: Of the threads.
        workers: Their number.

    Attributes:
        workers: The number of threads; ``resize`` changes it.
        busy_seconds: Time that threads spent in runs that have ended.

    Thread safety: any number of threads; ``close`` not by a task.
    """

    def __init__(self, machine: Machine, *, name: str, workers: int) -> None:
        self._clock = machine.clock
        self._scheduler = machine.scheduler
        self._name = name
        self._changed = self._scheduler.condition()
        self._times: list[tuple[float, int, ScheduledTask]] = []
        self._order = itertools.count()
        self._ready: deque[ScheduledTask] = deque()
        self._busy = 0
        self._closed = False
        self._timer: Future[None] | None = None
        self._pool: Pool = self._scheduler.pool(workers, name=name)
        self.workers = workers
        self.busy_seconds = 0.0

    @property
    def waiting(self) -> int:
        """The number of tasks that are due and wait for a thread."""
        return len(self._ready)

    @property
    def running(self) -> int:
        """The number of threads that run tasks now."""
        return self._busy

    def add(self, run: Run, *, delay_seconds: float = 0.0) -> ScheduledTask:
        """Add a task whose first run is due after a delay. After ``close`` none of its runs begins."""
        task = ScheduledTask(self, run, self._clock.monotonic_seconds() + delay_seconds)
        with self._changed:
            if not self._closed:
                self._put(task, delay_seconds)
        return task

    def resize(self, workers: int) -> None:
        """Change the number of threads. Present runs end in their threads."""
        with self._changed:
            if self._closed or workers == self.workers:
                return
            before, self._pool = self._pool, self._scheduler.pool(workers, name=self._name)
            self.workers = workers
            self._employ()
        before.close(cancel=False, wait_seconds=0)

    def close(self, *, wait_seconds: float = 10.0) -> None:
        """Begin no run any more, and wait for the present ones, at most for a time; idempotent."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._times.clear()
            self._changed.notify_all()
        self._pool.close(cancel=True, wait_seconds=wait_seconds)
        if self._timer is not None:
            self._timer.exception(wait_seconds)

    # ---- under the lock

    def _put(self, task: ScheduledTask, delay_seconds: float) -> None:
        if delay_seconds <= 0:
            self._queue(task)
            return
        task.due_seconds = self._clock.monotonic_seconds() + delay_seconds
        is_first = not self._times or task.due_seconds < self._times[0][0]
        heapq.heappush(self._times, (task.due_seconds, next(self._order), task))
        if self._timer is None:
            self._timer = self._scheduler.start(self._tick, name=f"{self._name}-timer")
        elif is_first:
            self._changed.notify_all()

    def _queue(self, task: ScheduledTask) -> None:
        task.is_queued = True
        task.due_seconds = -1.0  # what the heap has of it counts no more
        self._ready.append(task)
        self._employ()

    def _employ(self) -> None:
        while self._busy < min(self.workers, self._busy + len(self._ready)):
            try:
                self._pool.submit(self._work)
            except NotSubmitted as error:
                if not isinstance(error, NoThreadError) or not self._busy:
                    _log.warning("%s: tasks wait for the next time: %s", self._name, error)
                return
            self._busy += 1

    # ---- calls of tasks

    def wake(self, task: ScheduledTask) -> None:
        """Run a task now, as its ``wake`` says."""
        with self._changed:
            if self._closed or task.is_ending or task.is_queued:
                return
            if task.is_running:
                task.is_again = True
            else:
                self._queue(task)

    def end(self, task: ScheduledTask) -> Future[None]:
        """End a task, as its ``end`` says."""
        with self._changed:
            task.is_ending = True
            task.due_seconds = -1.0
            if task.ended is None:
                task.ended = self._scheduler.future()
                if not task.is_running:
                    task.ended.set_result(None)
            return task.ended

    # ---- threads

    def _tick(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                now = self._clock.monotonic_seconds()
                while self._times and self._times[0][0] <= now + _TICK_SECONDS:
                    due, _, task = heapq.heappop(self._times)
                    if task.due_seconds == due and not task.is_ending:
                        self._queue(task)
                left = self._times[0][0] - now if self._times else _WAIT_SECONDS_MAX
                self._changed.wait(min(left, _WAIT_SECONDS_MAX))

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._ready or self._closed or self._busy > self.workers:
                    self._busy -= 1
                    return
                task = self._ready.popleft()
                task.is_queued = False
                if task.is_ending:
                    continue
                task.is_running = True
            began = self._clock.monotonic_seconds()
            delay: float | None = _FAULT_PAUSE_SECONDS
            try:
                delay = task.run()
            except Exception:  # noqa: BLE001 - a fault in one partition's task must not end all the others
                _log.exception("%s: a task failed", self._name)
            with self._changed:
                self.busy_seconds += self._clock.monotonic_seconds() - began
                self._ran(task, delay)

    def _ran(self, task: ScheduledTask, delay_seconds: float | None) -> None:
        task.is_running = False
        if delay_seconds is None:
            task.is_ending = True
        if task.is_ending:
            if task.ended is not None:
                task.ended.set_result(None)
        elif not self._closed:
            is_again, task.is_again = task.is_again, False
            self._put(task, 0.0 if is_again else delay_seconds or 0.0)
