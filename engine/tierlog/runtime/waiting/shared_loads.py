"""One load for all callers that want the same value at the same time.

Waiters are notified by callbacks, so that a load needs no thread of its own: the first caller begins it, the thread
that has the bytes lands it. A load that computes, or reads a disk, is work that is done once, by the first thread that
needs its result or by a pool's, whichever comes first.

A caller that gives up does not cancel a load whose value will be cached, for a later try; any other load ends when the
last waiter has left. The error of a failed load goes to its waiters and is not cached.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from tierlog.errors import PoolClosedError, StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Lock, NotSubmitted, Pool
from tierlog.runtime.waiting.waits import Pending

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


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
    """The pending loads, by key. Thread safety: any number of threads."""

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
