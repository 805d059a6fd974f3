"""One load for all who want the same thing at the same time.

A caller who gave up does not cancel the load where a cache will keep what comes, for her next try; where none does, the
load ends when the last one has left. A failed load is told to those who wait for it and kept for nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tierlog.errors import StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.scheduling import Future, PendingFuture, Pool

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(slots=True, eq=False)
class Flight(Generic[Key, Value]):
    """One load under way.

    Attributes:
        readers: Who wait for it.
        on_unwanted: Called, by the one who leaves, when nobody does any more.
    """

    key: Key
    future: PendingFuture[Value]
    readers: int
    on_unwanted: Callable[[], None] | None = None


class Flights(Generic[Key, Value]):
    """The loads that are under way, by key. Thread safety: any number of threads."""

    def __init__(self, machine: Machine) -> None:
        self._scheduler = machine.scheduler
        self._lock = machine.scheduler.lock()
        self._flights: dict[Key, Flight[Key, Value]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, key: Key) -> bool:
        return key in self._flights

    def join(self, key: Key) -> tuple[Flight[Key, Value], bool]:
        """The load under way, or a new one that the caller has to land; whether it is new.

        Who begins one looks into the cache once more: an earlier load may have landed there since she looked first.
        """
        with self._lock:
            found = self._flights.get(key)
            if found is not None:
                found.readers += 1
                return found, False
            made = self._flights[key] = Flight(key, self._scheduler.future(), 1)
            return made, True

    def begin(self, key: Key) -> Flight[Key, Value] | None:
        """A new load that nobody waits for; None if one is under way."""
        with self._lock:
            if key in self._flights:
                return None
            made = self._flights[key] = Flight(key, self._scheduler.future(), 0)
            return made

    def land(self, flight: Flight[Key, Value], value: Value) -> None:
        """Give it to all who wait. The cache has it already, or nobody will."""
        self._end(flight)
        flight.future.set_result(value)

    def fail(self, flight: Flight[Key, Value], error: BaseException) -> None:
        """Tell all who wait."""
        self._end(flight)
        flight.future.set_exception(error)

    def _end(self, flight: Flight[Key, Value]) -> None:
        with self._lock:
            if self._flights.get(flight.key) is flight:  # one that was abandoned may have a successor
                del self._flights[flight.key]
            flight.on_unwanted = None  # it knows the flight: with its value the two would wait for the collector

    def leave(self, flight: Flight[Key, Value]) -> None:
        """One who joined waits no more."""
        with self._lock:
            flight.readers -= 1
            unwanted = flight.readers == 0 and self._flights.get(flight.key) is flight
            on_unwanted = flight.on_unwanted if unwanted else None
        if on_unwanted is not None:
            on_unwanted()

    def abandon(self, flights: Sequence[Flight[Key, Value]]) -> bool:
        """End those of these loads that are under way, if nobody waits for any of them; False if somebody does.

        Who asks for one from now on begins a load of her own.
        """
        with self._lock:
            under_way = [flight for flight in flights if self._flights.get(flight.key) is flight]
            if any(flight.readers for flight in under_way):
                return False
            for flight in under_way:
                del self._flights[flight.key]
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
            self._submit(flight, load)
        return flight.future

    def _submit(self, flight: Flight[Key, Value], load: Callable[[], Value]) -> None:
        def run() -> None:
            try:
                value = load()
            except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
                self._flights.fail(flight, error)
            else:
                self._flights.land(flight, value)

        try:
            future = self._pool.submit(run)
        except RuntimeError:
            self._flights.fail(flight, closed_error())
            return
        # Cancelled: the pool was closed before the load began.
        future.add_done_callback(lambda done: self._flights.fail(flight, closed_error()) if done.cancelled() else None)


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
