"""Threads that wait for bytes or memory are woken a few at a time: each wakes the next when it runs.

A thread of CPython that wants to run asks for the interpreter every 5 ms. Two thousand threads that are woken at once
ask 400,000 times a second, and keep the processor from the one that could go on: that took 3 to 5 s of fetches which
take 2.5 s when those that are not needed yet stay asleep.
"""

from __future__ import annotations

import collections
from enum import IntEnum
from typing import Final

from tierlog.runtime.machine.scheduling import Condition, Scheduler

#: Woken, and not running yet. One would do; a second one hides the time that the system takes to start it.
_AT_ONCE: Final = 2


class _State(IntEnum):
    WAITING = 0
    IN_LINE = 1  # to be woken
    WOKEN = 2
    GONE = 3


class Sleeper:
    """One thread's wait.

    Attributes:
        changed: What it waits on. Who notifies that directly wakes it past the line, as a close does.
    """

    __slots__ = ("changed", "state")

    def __init__(self, changed: Condition) -> None:
        self.changed = changed
        self.state = _State.WAITING

    @property
    def is_called(self) -> bool:
        """Whether the thread was told to look again."""
        return self.state is not _State.WAITING


class WakeLine:
    """The line of threads that are woken one after another. Any number of threads."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._lock = scheduler.lock()
        self._line: collections.deque[Sleeper] = collections.deque()
        self._woken = 0

    def wake(self, sleeper: Sleeper) -> None:
        """Wake a thread when its turn comes; one that is awake already, or waits no more, is left alone."""
        with self._lock:
            if sleeper.state is not _State.WAITING:
                return
            if self._woken >= _AT_ONCE:
                sleeper.state = _State.IN_LINE
                self._line.append(sleeper)
                return
            self._woken += 1
            sleeper.state = _State.WOKEN
        _notify(sleeper)

    def runs(self, sleeper: Sleeper, *, for_good: bool = False) -> None:
        """Say that this thread runs, whatever ended its wait: the next one is woken. ``for_good``: it waits no more."""
        following: Sleeper | None = None
        with self._lock:
            if sleeper.state is _State.WOKEN:
                self._woken -= 1
                following = self._next()
            sleeper.state = _State.GONE if for_good else _State.WAITING
        if following is not None:
            _notify(following)

    def _next(self) -> Sleeper | None:
        """While holding the lock: the first in line that still waits to be woken."""
        while self._line:
            sleeper = self._line.popleft()
            if sleeper.state is _State.IN_LINE:  # else its time was up, or a close woke it
                self._woken += 1
                sleeper.state = _State.WOKEN
                return sleeper
        return None


def _notify(sleeper: Sleeper) -> None:
    with sleeper.changed:
        sleeper.changed.notify_all()
