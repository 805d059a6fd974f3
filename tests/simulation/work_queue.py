"""Calls that come from anywhere, made by a few tasks of a broker: as Kafka's request threads take requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tierlog.runtime.simulated.manual_scheduler import TaskGroup
from tierlog.runtime.simulated.strands import Strand


class WorkQueue:
    """The queue, and its tasks. With the group's end its tasks end too; ``close`` ends them before.

    Args:
        group: Has the tasks.
        name: Of the tasks.
        workers: How many.
    """

    def __init__(self, group: TaskGroup, name: str, workers: int) -> None:
        self._group = group
        self._calls: deque[Callable[[], None]] = deque()
        self._idle: list[Strand] = []
        self._closed = False
        for number in range(workers):
            group.spawn(self._work, name=f"{name}-{number}")

    def put(self, call: Callable[[], None]) -> None:
        """Have a task make a call, from anywhere: also from between two turns."""
        if self._closed or self._group.is_abandoned:
            return
        self._calls.append(call)
        if self._idle:
            self._group.wake(self._idle.pop())

    def _work(self) -> None:
        while True:
            if self._calls:
                self._calls.popleft()()
            elif self._closed:
                return
            else:
                self._idle.append(self._group.current())
                self._group.wait()

    def close(self) -> None:
        """End the tasks, once what is queued is done; later calls are dropped."""
        self._closed = True
        idle, self._idle = self._idle, []
        for strand in idle:
            self._group.wake(strand)
