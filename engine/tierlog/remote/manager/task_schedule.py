"""Tasks of many partitions at their times, by few threads."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
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

#: Tasks that fall due within this time are begun together; and while tasks wait, one more thread begins each time.
_TICK_SECONDS: Final = 0.01
#: Pauses above it end at whole seconds: of ten thousand tasks that find nothing to do, waking threads for each
#: one costs more than the runs.
_LONG_SECONDS: Final = 10.0
_NO_THREAD_SECONDS: Final = 1.0
_WAIT_SECONDS_MAX: Final = 3600.0
#: Pause of a task whose run raised: a bug, since runs handle their errors.
_FAULT_PAUSE_SECONDS: Final = 30.0
#: Places of the heap from which on those are removed that no task needs any more.
_PLACES_MIN: Final = 256


class ScheduledTask:
    """A task of a TaskSchedule: at most one of its runs goes on at a time. Its attributes are the schedule's.

    Thread safety: any number of threads.
    """

    __slots__ = (
        "began_seconds",
        "due_seconds",
        "ended",
        "is_again",
        "is_ending",
        "is_held",
        "is_queued",
        "run",
        "schedule",
    )

    def __init__(self, schedule: TaskSchedule, run: Run) -> None:
        self.schedule = schedule
        self.run = run
        self.due_seconds = self.began_seconds = -1.0  # monotonic: of its place in the heap, of its present run
        self.is_queued = self.is_again = self.is_ending = self.is_held = False
        self.ended: PendingFuture[None] | None = None

    @property
    def is_running(self) -> bool:
        return self.began_seconds >= 0

    def wake(self) -> None:
        """Run the task now, or once more as soon as its present run ends."""
        self.schedule.wake(self)

    def end(self) -> Future[None]:
        """End the task: no run begins any more. The future is done when the present run has ended."""
        return self.schedule.end(self)

    def drop(self) -> None:
        """End the task likewise, for a caller that does not wait for its run. What it runs is not referenced any
        more.
        """
        self.is_ending, self.run = True, _nothing
        self.due_seconds = -1.0  # without the lock: a place that is taken just now is passed over when it is due


class TaskSchedule(Closeable):
    """Threads that run tasks when they are due, those that are due for longest first. A context manager.

    A run that is one of many of its partition returns 0 and goes behind the others: so a partition with much to do
    delays none for longer than one run. Threads begin with the work and end without it; one more of them begins every
    10 ms while tasks wait.

    Args:
        machine: Has the clock and the threads.
        name: Of the threads.
        workers: Their number.

    Attributes:
        workers: The number of threads; ``resize`` changes it.

    Raises:
        NoThreadError: there is no thread for the times.

    Thread safety: any number of threads; ``close`` not by a task.
    """

    def __init__(self, machine: Machine, *, name: str, workers: int) -> None:
        self._clock = machine.clock
        self._scheduler = machine.scheduler
        self._name = name
        self._changed = self._scheduler.condition()
        self._times: list[tuple[float, int, ScheduledTask]] = []
        self._places_max = _PLACES_MIN  # then it is looked for those whose task is due at another time, or never
        self._order = itertools.count()
        self._ready: deque[ScheduledTask] = deque()
        self._busy = self._running = 0  # threads; of them, those within a run
        self._wakes_at = 0.0  # when the timer looks again
        self._closed = False
        self._pool: Pool = self._scheduler.pool(workers, name=name)
        self.workers = workers
        self._timer = self._scheduler.start(self._tick, name=f"{name}-timer")

    @property
    def waiting(self) -> int:
        """The number of tasks that are due and wait for a thread."""
        return len(self._ready)

    @property
    def running(self) -> int:
        """The number of runs that go on now."""
        return self._running

    def add(self, run: Run, *, delay_seconds: float = 0.0) -> ScheduledTask:
        """Add a task whose first run is due after a delay. After ``close`` none of its runs begins."""
        task = ScheduledTask(self, run)
        with self._changed:
            if not self._closed:
                self._put(task, delay_seconds)
        return task

    def add_behind(self, before: ScheduledTask, run: Run) -> ScheduledTask:
        """Add a task whose first run is due when another task has ended, which holds no thread until then."""
        task = ScheduledTask(self, run)
        task.is_held = True
        before.end().add_done_callback(lambda _: self._release(task))
        return task

    def _release(self, task: ScheduledTask) -> None:
        with self._changed:
            task.is_held = False
            if not (self._closed or task.is_ending):
                self._put(task, 0.0)

    def resize(self, workers: int) -> None:
        """Change the number of threads. Present runs end in their threads."""
        with self._changed:
            if self._closed or workers == self.workers:
                return
            before, self._pool = self._pool, self._scheduler.pool(workers, name=self._name)
            self.workers = workers
            self._look_again()
        before.close(cancel=False, wait_seconds=0)

    def close(self, *, wait_seconds: float = 10.0) -> None:
        """Begin no run any more, and wait for the present ones, at most for a time: ``running`` says how many go on
        nevertheless. Idempotent.
        """
        until = self._clock.monotonic_seconds() + wait_seconds
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._times.clear()
            self._wakes_at = 0.0
            self._changed.notify_all()
        self._pool.close(cancel=False, wait_seconds=0)  # what has not begun finds that it is closed
        with self._changed:
            while self._busy and (left := until - self._clock.monotonic_seconds()) > 0:
                self._changed.wait(left)
            still_runs = self._busy > 0
        self._timer.exception(wait_seconds)
        if not still_runs:
            self._pool.close(wait_seconds=1)

    # ---- under the lock

    def _put(self, task: ScheduledTask, delay_seconds: float) -> None:
        if delay_seconds <= 0:
            self._queue(task)
            return
        task.due_seconds = self._clock.monotonic_seconds() + delay_seconds
        if len(self._times) >= self._places_max:
            self._times = [place for place in self._times if place[2].due_seconds == place[0]]
            heapq.heapify(self._times)
            self._places_max = max(_PLACES_MIN, 2 * len(self._times))
        heapq.heappush(self._times, (task.due_seconds, next(self._order), task))
        self._look_at(task.due_seconds)

    def _aligned(self, pause_seconds: float) -> float:
        """A pause between two runs; a long one ends at a whole second."""
        if pause_seconds <= _LONG_SECONDS:
            return pause_seconds
        now = self._clock.monotonic_seconds()
        return math.ceil(now + pause_seconds) - now

    def _queue(self, task: ScheduledTask) -> None:
        task.due_seconds = -1.0  # its place in the heap, if it has one, is passed over
        task.is_queued = True
        self._ready.append(task)
        if self._busy or not self._employ():
            self._look_again()

    def _look_again(self) -> None:
        """Have the timer begin threads for the tasks that wait."""
        if self._ready and self._busy < self.workers:
            pause = _TICK_SECONDS if self._busy else _NO_THREAD_SECONDS
            self._look_at(self._clock.monotonic_seconds() + pause)

    def _look_at(self, seconds: float) -> None:
        """Have the timer look at this time at the latest."""
        if seconds < self._wakes_at:
            self._wakes_at = seconds
            self._changed.notify_all()

    def _employ(self) -> bool:
        """Begin one more thread, if tasks wait for one; whether it was begun."""
        if not self._ready or self._busy >= self.workers:
            return False
        try:
            self._pool.submit(self._work)
        except NotSubmitted as error:
            if not isinstance(error, NoThreadError) or not self._busy:
                _log.warning("%s: tasks wait for a thread: %s", self._name, error)
            return False
        self._busy += 1
        return True

    # ---- calls of tasks

    def wake(self, task: ScheduledTask) -> None:
        """Run a task now, as its ``wake`` says."""
        with self._changed:
            if self._closed or task.is_ending or task.is_queued or task.is_held:
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
            has_ended = task.ended is None and not task.is_running
            if task.ended is None:
                task.ended = self._scheduler.future()
            ended = task.ended
        if has_ended:
            ended.set_result(None)  # without the lock: what it calls may call here
        return ended

    # ---- threads

    def _tick(self) -> None:
        with self._changed:
            while not self._closed:
                now = self._clock.monotonic_seconds()
                while self._times and self._times[0][0] <= now + _TICK_SECONDS:
                    due, _, task = heapq.heappop(self._times)
                    if task.due_seconds != due or task.is_ending:
                        continue
                    task.due_seconds = -1.0
                    task.is_queued = True
                    self._ready.append(task)
                self._employ()
                self._wakes_at = self._times[0][0] if self._times else now + _WAIT_SECONDS_MAX
                self._look_again()
                while (left := self._wakes_at - self._clock.monotonic_seconds()) > 0:
                    self._changed.wait(left)

    def _work(self) -> None:
        """Run tasks as long as some are ready."""
        while (task := self._take()) is not None:
            delay: float | None = _FAULT_PAUSE_SECONDS
            try:
                delay = task.run()
            except Exception:  # noqa: BLE001 - a fault in one partition's task must not end all the others
                _log.exception("%s: a task failed", self._name)
            except BaseException:  # of the thread
                self._ran(task, delay)
                with self._changed:
                    self._leave()
                raise
            self._ran(task, delay)

    def _take(self) -> ScheduledTask | None:
        with self._changed:
            while self._ready and self._busy <= self.workers and not self._closed:
                task = self._ready.popleft()
                task.is_queued = False
                if not task.is_ending:
                    task.began_seconds = self._clock.monotonic_seconds()
                    self._running += 1
                    return task
            self._leave()
            return None

    def _leave(self) -> None:
        self._busy -= 1
        if self._closed:
            self._changed.notify_all()

    def _ran(self, task: ScheduledTask, delay_seconds: float | None) -> None:
        ended = None
        with self._changed:
            task.began_seconds = -1.0
            self._running -= 1
            if delay_seconds is None:
                task.is_ending = True
            if task.is_ending:
                ended = task.ended
            elif not self._closed:
                is_again, task.is_again = task.is_again, False
                self._put(task, 0.0 if is_again else self._aligned(delay_seconds or 0.0))
        if ended is not None:
            ended.set_result(None)


def _nothing() -> None:
    """The task was dropped."""
