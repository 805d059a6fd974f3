"""Waits as values: code that needs something yields a wait, and its caller drives it.

The same code serves a thread, which waits (``WaitingThreads``), and an event loop, which gets a callback.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Final, TypeVar

from tierlog.errors import StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Condition, Scheduler

Value = TypeVar("Value")

#: Factor of its time limit that a wait lasts at most, however much progress others make.
PATIENCE: Final = 12
#: Interval at which one waiter for memory looks for dropped streams, whose memory can be released. If each waiter
#: looked, two thousand threads would hold the interpreter against those whose bytes are there: 9 s and late errors
#: instead of 2.5.
LOOK_SECONDS: Final = 0.25


#: Threads that are woken and do not run yet. A thread of CPython that wants to run asks for the interpreter every 5 ms:
#: two thousand that are woken at once ask 400,000 times a second, and take the processor from the thread that could go
#: on. That took 3 to 5 s of fetches which take 2.5 s when threads that are not needed yet stay asleep. One would do; a
#: second one hides the time that the system takes to start it.
_AT_ONCE: Final = 2


class Pending:
    """Something that will be there: a load under way, or a turn for memory. A base class."""

    __slots__ = ()

    @property
    def is_done(self) -> bool:
        """Whether the value is there, or its load has failed."""
        raise NotImplementedError

    @property
    def has_work(self) -> bool:
        """Whether ``run`` would do some work."""
        return False

    @property
    def needs_looks(self) -> bool:
        """Whether the answer may never come unless the waiting thread looks for it."""
        return False

    def add_done_callback(self, function: Callable[[], None]) -> None:
        """Call a function once it is done, in the thread that did it; at once if it is. It must not raise, nor wait.

        It may be called before, too: the waiter then looks at ``has_work`` and ``needs_looks`` again.
        """
        raise NotImplementedError

    def run(self) -> bool:
        """Do the work that makes it in this thread, if there is work that no thread has begun; whether there was."""
        return False

    def look(self) -> None:
        """Look whether it can be done now; a waiter calls this now and then."""


@dataclass(slots=True)
class Wait:
    """A wait for something that code needs to go on.

    Args:
        pending: The object that it waits for.
        what: The name of that object, for an error's message.
        outcome: The further course of that object, for the same message.
        timeout_seconds: Time since ``progress`` after which the wait is an error.
        progress: The moment, by the machine's monotonic clock, at which its request was sent or another one before it
            in the queue was served.
    """

    pending: Pending
    what: str
    outcome: str
    timeout_seconds: float
    progress: Callable[[], float]

    def late(self, seconds: float) -> str:
        """Format the message for a wait that was not done in time."""
        return f"{self.what}: not there after {seconds:.3g} s; {self.outcome}"


#: The outcome of a load that its waiters do not end.
GOES_ON: Final = "the download goes on, and a later try finds it"

#: Code that waits: it yields a wait, is sent None once that is done, or is thrown the error of its driver.
Waits = Generator[Wait, None, Value]


def forget_frames(error: BaseException) -> None:
    """Take the tracebacks of an error and its causes away."""
    known: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in known:
        known.add(id(at))
        at.__traceback__ = None
        at = at.__cause__ or at.__context__


class Interrupt:
    """A switch that ends the waits of one owner early, now and from now on. Any thread may set it.

    Attributes:
        is_set: Whether it was set.
        wake: Wakes the current waiter; set by the driver of the wait.
    """

    __slots__ = ("is_set", "wake")

    def __init__(self) -> None:
        self.is_set = False
        self.wake: Callable[[], None] | None = None

    def set(self) -> None:
        """End the current wait; idempotent."""
        self.is_set = True  # before it reads ``wake``; the driver sets ``wake`` before it reads this
        wake = self.wake
        if wake is not None:
            wake()


class WaitingThreads:
    """A driver of waiting code in the threads that call it.

    Args:
        machine: Its clock and locks.

    Thread safety: any number of threads.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._queue = WakeQueue(machine.scheduler)

    def run(self, waits: Waits[Value], interrupt: Interrupt | None = None) -> Value:
        """Drive code in the calling thread.

        Args:
            waits: The code.
            interrupt: Ends a wait early; the code handles that.

        Raises:
            StoreUnavailableError: a wait is not done in time. Else the code's error.
        """
        try:
            wait = next(waits)
            while True:
                try:
                    self._wait_for(wait, interrupt)
                except BaseException as error:  # noqa: BLE001 - the code handles it, whatever it is
                    wait = waits.throw(error)
                else:
                    wait = next(waits)
        except StopIteration as end:
            value: Value = end.value
            return value

    def _wait_for(self, wait: Wait, interrupt: Interrupt | None) -> None:
        pending = wait.pending
        pending.run()
        if pending.is_done:
            return
        clock, queue = self.machine.clock, self._queue
        sleeper = Sleeper(self.machine.scheduler.condition())
        if interrupt is not None:
            interrupt.wake = partial(_notify, sleeper)

        def is_over() -> bool:
            return pending.is_done or (interrupt is not None and interrupt.is_set)

        pending.add_done_callback(partial(queue.wake, sleeper))
        began = clock.monotonic_seconds()
        try:
            while not is_over():
                pending.look()
                if pending.run():
                    continue
                seconds = seconds_left(wait, began, clock.monotonic_seconds())
                with sleeper.changed:
                    if not (is_over() or sleeper.is_called):
                        sleeper.changed.wait(min(seconds, LOOK_SECONDS) if pending.needs_looks else seconds)
                queue.runs(sleeper)
        finally:
            queue.runs(sleeper, for_good=True)
            if interrupt is not None:
                interrupt.wake = None


def seconds_left(wait: Wait, began_seconds: float, now_seconds: float) -> float:
    """Seconds that the wait may still take. Raises StoreUnavailableError where none are left."""
    since = max(began_seconds, wait.progress())
    left = min(since + wait.timeout_seconds, began_seconds + PATIENCE * wait.timeout_seconds) - now_seconds
    if left <= 0:
        raise StoreUnavailableError(wait.late(now_seconds - began_seconds))
    return left


class _State(IntEnum):
    WAITING = 0
    QUEUED = 1  # to be woken
    WOKEN = 2
    GONE = 3


class Sleeper:
    """One thread's wait.

    Attributes:
        changed: The condition that it waits on. A direct notification wakes it past the queue, as a close does.
    """

    __slots__ = ("changed", "state")

    def __init__(self, changed: Condition) -> None:
        self.changed = changed
        self.state = _State.WAITING

    @property
    def is_called(self) -> bool:
        """Whether the thread was woken to look again."""
        return self.state is not _State.WAITING


class WakeQueue:
    """Threads that are woken one after another, each by the one before it. Any number of threads."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._lock = scheduler.lock()
        self._queue: collections.deque[Sleeper] = collections.deque()
        self._woken = 0

    def wake(self, sleeper: Sleeper) -> None:
        """Wake a thread when its turn comes, unless it is awake or waits no more."""
        with self._lock:
            if sleeper.state is not _State.WAITING:
                return
            if self._woken >= _AT_ONCE:
                sleeper.state = _State.QUEUED
                self._queue.append(sleeper)
                return
            self._woken += 1
            sleeper.state = _State.WOKEN
        _notify(sleeper)

    def runs(self, sleeper: Sleeper, *, for_good: bool = False) -> None:
        """Note that this thread runs, whatever ended its wait: the next one is woken. ``for_good``: it
        waits no more.
        """
        following: Sleeper | None = None
        with self._lock:
            if sleeper.state is _State.WOKEN:
                self._woken -= 1
                following = self._next()
            sleeper.state = _State.GONE if for_good else _State.WAITING
        if following is not None:
            _notify(following)

    def _next(self) -> Sleeper | None:
        """Take the first in the queue that still waits to be woken. The caller holds the lock."""
        while self._queue:
            sleeper = self._queue.popleft()
            if sleeper.state is _State.QUEUED:  # else its time was up, or a close woke it
                self._woken += 1
                sleeper.state = _State.WOKEN
                return sleeper
        return None


def _notify(sleeper: Sleeper) -> None:
    with sleeper.changed:
        sleeper.changed.notify_all()
