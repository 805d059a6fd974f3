"""Waits as values: code that needs something yields a wait, and its caller drives it.

The same code serves a thread, which waits (``WaitingThreads``), and an event loop, which gets a callback.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Final, Generic, TypeVar

from tierlog.errors import PoolClosedError, StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Condition, Lock, NotSubmitted, Pool, Scheduler

Key = TypeVar("Key", bound=Hashable)
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
    """Return seconds that the wait may still take. Raises StoreUnavailableError where none are left."""
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


class SharedLoad(Pending, Generic[Key, Value]):
    """One pending load. Made by ``SharedLoads``; any number of threads.

    Args:
        key: Of the value.
        lock: The lock of all pending loads.

    Attributes:
        readers: Number of waiters.
        on_unwanted: Called when the last waiter leaves, in its thread.
        began_at_seconds: Time at which its request was sent; None while it waits for its turn.
    """

    __slots__ = (
        "_callbacks",
        "_error",
        "_is_done",
        "_lock",
        "_value",
        "_work",
        "began_at_seconds",
        "key",
        "on_unwanted",
        "readers",
    )

    def __init__(self, key: Key, lock: Lock, *, readers: int = 0) -> None:
        self.key = key
        self.readers = readers
        self.on_unwanted: Callable[[], None] | None = None
        self.began_at_seconds: float | None = None
        self._lock = lock
        self._work: Callable[[], None] | None = None
        self._value: Value | None = None
        self._error: BaseException | None = None
        self._is_done = False
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_done(self) -> bool:
        """Whether it has landed or failed."""
        return self._is_done

    @property
    def has_work(self) -> bool:
        """Whether ``run`` has work that no thread has begun."""
        return self._work is not None

    def offer(self, work: Callable[[], None]) -> None:
        """Set the work that makes the value and lands it, for the first caller of ``run``; it raises nothing."""
        self._work = work

    def run(self) -> bool:
        """Do the work in this thread; False if there is none, or another thread has begun it."""
        with self._lock:
            work, self._work = self._work, None
        if work is None:
            return False
        work()
        return True

    def call_for_help(self) -> None:
        """Wake the waiters, one of which then does the work that no thread has begun."""
        with self._lock:
            callbacks = list(self._callbacks)
        for function in callbacks:
            function()

    def withdraw(self) -> bool:
        """Take the work back; False if it was begun, or there was none."""
        with self._lock:
            work, self._work = self._work, None
        return work is not None

    def add_done_callback(self, function: Callable[[], None]) -> None:
        """Call a function once the load is done, in the thread that landed it; at once if it is. It must not raise, nor
        wait.
        """
        with self._lock:
            if not self._is_done:
                self._callbacks.append(function)
                return
        function()

    def result(self) -> Value:
        """Return the value of a load that is done, or raise its error."""
        if self._error is not None:
            raise self._error
        value: Value = self._value  # type: ignore[assignment]
        return value

    def end(self, value: Value | None, error: BaseException | None) -> None:
        """End the load; the first outcome counts. Called by ``SharedLoads``, or for a load that is not shared."""
        with self._lock:
            if self._is_done:
                return
            self._value, self._error, self._is_done = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._work = self.on_unwanted = None  # they know the load: with its value it would wait for the collector
        for function in callbacks:
            function()


class SharedLoads(Generic[Key, Value]):
    """The loads that are under way, by key: one load for all callers that want the same value at the same time.

    Waiters are notified by callbacks, so that a load needs no thread of its own. A caller that gives up does not cancel
    a load whose value will be cached, for a later try; any other load ends when the last waiter has left. The error of
    a failed load goes to its waiters and is not cached. Thread safety: any number of threads.
    """

    def __init__(self, machine: Machine) -> None:
        self._lock = machine.scheduler.lock()
        self._under_way: dict[Key, SharedLoad[Key, Value]] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def __contains__(self, key: Key) -> bool:
        return key in self._under_way

    def alone(self, key: Key) -> SharedLoad[Key, Value]:
        """Make a load of one reader's own, which no other can join; it is landed by ``SharedLoad.end``."""
        return SharedLoad(key, self._lock, readers=1)

    def join(self, key: Key) -> tuple[SharedLoad[Key, Value], bool]:
        """Join the pending load, or make a new one that the caller has to begin; return it, and whether it is new.

        A caller that begins one looks into the cache once more: an earlier load may have landed there since its first
        look.
        """
        with self._lock:
            found = self._under_way.get(key)
            if found is not None:
                found.readers += 1
                return found, False
            made = self._under_way[key] = SharedLoad(key, self._lock, readers=1)
            return made, True

    def begin(self, key: Key) -> SharedLoad[Key, Value] | None:
        """Make a load without a waiter; None if one is pending."""
        with self._lock:
            if key in self._under_way:
                return None
            made = self._under_way[key] = SharedLoad(key, self._lock)
            return made

    def land(self, load: SharedLoad[Key, Value], value: Value) -> None:
        """End the load with its value, which all waiters get; a caller that caches the value has done so before."""
        self._forget(load)
        load.end(value, None)

    def fail(self, load: SharedLoad[Key, Value], error: BaseException) -> None:
        """End the load with an error, which all waiters get."""
        self._forget(load)
        load.end(None, error)

    def _forget(self, load: SharedLoad[Key, Value]) -> None:
        with self._lock:
            if self._under_way.get(load.key) is load:  # an abandoned load may have a successor
                del self._under_way[load.key]

    def continue_in(self, pool: Pool, load: SharedLoad[Key, Value], work: Callable[[], None]) -> None:
        """Run the next step of a load in a pool; if the pool closes before it ran, the load fails."""
        try:
            future = pool.submit(work)
        except NotSubmitted as error:
            self.fail(load, refusal(error))
            return
        future.add_done_callback(lambda done: self.fail(load, closed_error()) if done.cancelled() else None)

    def leave(self, load: SharedLoad[Key, Value]) -> None:
        """Note that one waiter has left."""
        with self._lock:
            load.readers -= 1
            on_unwanted = load.on_unwanted if load.readers == 0 else None
        if on_unwanted is not None:
            on_unwanted()

    def abandon(self, under_way: Sequence[SharedLoad[Key, Value]]) -> bool:
        """End those of these loads that are pending, if none has a waiter; False if one has.

        A later caller begins a new load.
        """
        with self._lock:
            under_way = [load for load in under_way if self._under_way.get(load.key) is load]
            if any(load.readers for load in under_way):
                return False
            for load in under_way:
                del self._under_way[load.key]
            return True


def closed_error() -> StoreUnavailableError:
    """Make the error of a load's waiters when the loader is closed."""
    return StoreUnavailableError("closed while this was loaded")


def refusal(error: Exception) -> Exception:
    """Make the error of readers that wait for work which a pool did not accept (``NotSubmitted``)."""
    return closed_error() if isinstance(error, PoolClosedError) else error
