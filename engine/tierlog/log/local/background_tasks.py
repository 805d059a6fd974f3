"""Work that a log leaves for later: syncing closed segments, removing files that were set aside, retention."""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tierlog.errors import NoThreadError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable, Origin

_log = logging.getLogger(__name__)

#: The longest wait in one piece: Python's locks know no year.
_WAIT_SECONDS_MAX: Final = 3600.0


@dataclass(slots=True, order=True)
class _Task:
    due_seconds: float
    order: int
    function: Callable[[], None] = field(compare=False)
    interval_seconds: float = field(compare=False, default=0.0)


class BackgroundTasks(Closeable):
    """Tasks run by one thread, which begins with work and ends without it. A context manager.

    Tasks run one after another, the longest due first. A task must not raise: a failure of its files takes its log
    offline. An error of a task is logged all the same, and the others go on. In a fork of the process nothing is
    called: the thread stayed with the parent.

    Args:
        machine: Has the clock and the thread.
        name: Of the thread.

    Thread safety: any number of threads; ``close`` not by a task.
    """

    def __init__(self, machine: Machine, *, name: str = "tierlog-log-tasks") -> None:
        self._machine = machine
        self._name = name
        self._changed = machine.scheduler.condition()
        self._tasks: list[_Task] = []
        self._order = itertools.count()
        self._origin = Origin()
        self._works = False
        self._closed = False

    def submit(self, function: Callable[[], None], *, delay_ms: int = 0) -> None:
        """Call a function once, in the thread, after a delay. It never waits and never raises; after ``close`` nothing
        is called any more.
        """
        self._add(function, delay_ms=delay_ms, interval_ms=0)

    def submit_every(self, interval_ms: int, function: Callable[[], None], *, delay_ms: int) -> None:
        """Call a function at intervals.

        Args:
            interval_ms: From the beginning of one call to the next one's; a call that takes longer delays those
                behind it, and none is made up for. 0: one call.
            function: The function to call.
            delay_ms: Before the first call.
        """
        self._add(function, delay_ms=delay_ms, interval_ms=interval_ms)

    def close(self) -> None:
        """Drop tasks that have not begun, and wait for the running one; idempotent."""
        if not self._origin.is_here:
            return
        with self._changed:
            self._closed = True
            self._tasks.clear()
            self._changed.notify_all()
            while self._works:
                self._changed.wait()

    def _add(self, function: Callable[[], None], *, delay_ms: int, interval_ms: int) -> None:
        if not self._origin.is_here:
            return
        due = self._machine.clock.monotonic_seconds() + max(delay_ms, 0) / 1000
        with self._changed:
            if self._closed:
                return
            heapq.heappush(self._tasks, _Task(due, next(self._order), function, interval_ms / 1000))
            if self._works:
                self._changed.notify_all()
                return
            self._works = True
            try:
                self._machine.scheduler.start(self._work, name=self._name)
            except NoThreadError as error:
                self._works = False
                _log.warning("%s: what is to be done later waits for the next time: %s", self._name, error)

    def _work(self) -> None:
        while (function := self._next()) is not None:
            try:
                function()
            except Exception:  # noqa: BLE001 - a fault in one task must not end all the others
                _log.exception("%s: a task failed", self._name)
            del function  # or its referents would live until the next call

    def _next(self) -> Callable[[], None] | None:
        """Wait for the next task that is due; None if the thread is to end."""
        with self._changed:
            while self._tasks:
                now = self._machine.clock.monotonic_seconds()
                task = self._tasks[0]
                if task.due_seconds <= now:
                    heapq.heappop(self._tasks)
                    if task.interval_seconds:
                        task.due_seconds = now + task.interval_seconds
                        heapq.heappush(self._tasks, task)
                    return task.function
                self._changed.wait(min(task.due_seconds - now, _WAIT_SECONDS_MAX))
            self._works = False
            self._changed.notify_all()
            return None
