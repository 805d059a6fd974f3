"""One load for all who want the same thing at the same time; it goes on when they leave.

A caller who gave up does not cancel the load: what comes lands in the cache, for her next try. A failed load is told to
those who wait for it and kept for nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tierlog.errors import StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.scheduling import Future, PendingFuture, Pool

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(slots=True)
class _Flight(Generic[Value]):
    future: PendingFuture[Value]
    is_joined: bool = False


class Flights(Generic[Key, Value]):
    """The loads that are under way, by key. Thread safety: any number of threads."""

    def __init__(self, machine: Machine) -> None:
        self._scheduler = machine.scheduler
        self._lock = machine.scheduler.lock()
        self._flights: dict[Key, _Flight[Value]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, key: Key) -> bool:
        return key in self._flights

    def join(self, key: Key) -> tuple[Future[Value], bool]:
        """The load under way, or a new one that the caller has to land; whether it is new.

        Who begins one looks into the cache once more: an earlier load may have landed there since she looked first.
        """
        with self._lock:
            found = self._flights.get(key)
            if found is not None:
                found.is_joined = True
                return found.future, False
            made: PendingFuture[Value] = self._scheduler.future()
            self._flights[key] = _Flight(made)
            return made, True

    def begin(self, key: Key) -> bool:
        """A new load that nobody waits for; False if one is under way."""
        with self._lock:
            if key in self._flights:
                return False
            self._flights[key] = _Flight(self._scheduler.future())
            return True

    def land(self, key: Key, value: Value) -> None:
        """Give it to all who wait. The cache has it already, or nobody will."""
        with self._lock:
            flight = self._flights.pop(key)
        flight.future.set_result(value)

    def fail(self, key: Key, error: BaseException) -> None:
        """Tell all who wait."""
        with self._lock:
            flight = self._flights.pop(key)
        flight.future.set_exception(error)

    def abandon(self, key: Key) -> bool:
        """End a load that was begun by ``begin`` and that nobody joined; False if somebody did, who must get it."""
        with self._lock:
            if self._flights[key].is_joined:
                return False
            del self._flights[key]
            return True


class SingleFlight(Generic[Key, Value]):
    """Loads single values in a pool.

    Args:
        pool: Where loads run.
        machine: Its locks.

    Thread safety: any number of threads.
    """

    def __init__(self, pool: Pool, machine: Machine) -> None:
        self._pool = pool
        self._flights: Flights[Key, Value] = Flights(machine)

    def fetch(self, key: Key, load: Callable[[], Value], *, timeout_seconds: float, what: str) -> Value:
        """The value of the one load of this key.

        Args:
            key: Of the value.
            load: Makes it, and keeps it where it is looked for next time.
            timeout_seconds: How long to wait for it; the load goes on after that.
            what: For the message.

        Raises:
            StoreUnavailableError: it is not there in time, or the pool was closed. Else what the load raised.
        """
        return wait_for(self.start(key, load), timeout_seconds=timeout_seconds, what=what)

    def start(self, key: Key, load: Callable[[], Value]) -> Future[Value]:
        """Begin the load, or join the one that is under way."""
        flight, is_new = self._flights.join(key)
        if is_new:
            self._submit(key, load)
        return flight

    def _submit(self, key: Key, load: Callable[[], Value]) -> None:
        def run() -> None:
            try:
                value = load()
            except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
                self._flights.fail(key, error)
            else:
                self._flights.land(key, value)

        try:
            future = self._pool.submit(run)
        except RuntimeError:
            self._flights.fail(key, closed_error())
            return
        future.add_done_callback(lambda done: self._abandon(key) if done.cancelled() else None)

    def _abandon(self, key: Key) -> None:
        """The pool was closed before the load began."""
        self._flights.fail(key, closed_error())


def closed_error() -> StoreUnavailableError:
    """For who waits while everything is closed."""
    return StoreUnavailableError("the fetcher was closed while this was fetched")


def wait_for(future: Future[Value], *, timeout_seconds: float, what: str) -> Value:
    """Its result. Raises StoreUnavailableError if it is not there in time; else what its load raised."""
    try:
        return future.result(timeout_seconds)
    except TimeoutError:
        if future.done():  # the load itself raised it
            raise
        raise late_error(what, timeout_seconds) from None


def late_error(what: str, timeout_seconds: float) -> StoreUnavailableError:
    """Says that the load goes on."""
    told = f"{what}: not there after {timeout_seconds:g} s; the download goes on, and a later try finds it"
    return StoreUnavailableError(told)
