"""One limit of bytes a second over everything that goes one way: all copies, or all fetches, of a process.

The rule is strict where a token bucket is not: between two grants at least as much time passes as the first of them
takes at the limit, so that in no window of S seconds more than ``S × limit`` bytes and one grant begin to flow.
There is no burst to save up, no smallest and no largest limit, and the limit can change while others wait.
``LimitedStore`` holds the reads of a store to one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from typing_extensions import Buffer

from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.protocol.store_writer import asked_before_resending
from tierlog.runtime.stores.wrappers.passing_store import PassingStore

#: Interval at which a waiter looks whether the limit changed, or its copy was cancelled.
_LOOK_SECONDS: Final = 0.1


class RateLimiter:
    """A limiter that grants bytes in the order of the requests.

    Args:
        bytes_per_second: The limit; None lets everything pass.
        machine: Its clock is slept on.
        on_wait: Called with the seconds of each wait.

    Raises:
        ValueError: the limit is not positive.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        bytes_per_second: float | None,
        *,
        machine: Machine | None = None,
        on_wait: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._machine = machine or Machine()
        self._on_wait = on_wait
        self._turn = self._machine.scheduler.condition()
        self._limit = _checked(bytes_per_second)
        self._debt_bytes = 0.0  # bytes that must still pass, at the limit, before the next grant
        self._as_of = self._machine.clock.monotonic_seconds()
        self._waiting: list[object] = []

    @property
    def bytes_per_second(self) -> float | None:
        return self._limit

    def change(self, bytes_per_second: float | None) -> None:
        """Set another limit, which waiting calls follow within a tenth of a second. Raises ValueError: not positive."""
        limit = _checked(bytes_per_second)
        with self._turn:
            self._settle()
            self._limit = limit
            self._turn.notify_all()

    def acquire(self, size_bytes: int, *, check: Callable[[], None] = lambda: None) -> None:
        """Wait until this many bytes may begin to flow.

        Args:
            size_bytes: As much as is then sent, or asked for, at once: the "one part" of the promise.
            check: Called while waiting; its error ends the wait, and the bytes do not count.
        """
        with self._turn:
            if self._limit is None and not self._waiting:
                return
        clock = self._machine.clock
        began = clock.monotonic_seconds()
        ticket = object()
        with self._turn:
            self._waiting.append(ticket)
        try:
            while (seconds := self._try_grant(ticket, size_bytes)) > 0:
                check()
                self._wait(ticket, min(seconds, _LOOK_SECONDS))
        finally:
            with self._turn:
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
                self._turn.notify_all()
            self._on_wait(clock.monotonic_seconds() - began)

    def charge(self, size_bytes: int) -> None:
        """Count bytes that flowed already, because their number was unknown before; the next grants wait for them."""
        with self._turn:
            self._settle()
            if self._limit is not None:
                self._debt_bytes += size_bytes

    @contextmanager
    def granted(self, size_bytes: int, *, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        """``acquire`` for a body that is sent in the block, in this thread: each time that it is sent again as well."""
        self.acquire(size_bytes, check=check)
        with asked_before_resending(lambda: self.acquire(size_bytes, check=check)):
            yield

    def _try_grant(self, ticket: object, size_bytes: int) -> float:
        """0 if the bytes are granted and counted, else the seconds after which to ask again."""
        with self._turn:
            if self._waiting[0] is not ticket:
                return _LOOK_SECONDS
            self._settle()
            if self._limit is not None and self._debt_bytes > 0:
                return max(self._debt_bytes / self._limit, 1e-6)
            self._waiting.pop(0)
            self._debt_bytes = float(size_bytes) if self._limit is not None else 0.0
            return 0.0

    def _wait(self, ticket: object, seconds: float) -> None:
        """Sleep off the debt, as the first in the queue; the others wait for their turn."""
        with self._turn:
            if self._waiting[0] is not ticket:
                self._turn.wait(seconds)
                return
        self._machine.clock.sleep(seconds)

    def _settle(self) -> None:
        now = self._machine.clock.monotonic_seconds()
        passed = 0.0 if self._limit is None else (now - self._as_of) * self._limit
        self._debt_bytes = 0.0 if self._limit is None else max(0.0, self._debt_bytes - passed)
        self._as_of = now


def _checked(bytes_per_second: float | None) -> float | None:
    if bytes_per_second is not None and not bytes_per_second > 0:
        raise ValueError(f"a rate limit is above 0 bytes a second, not {bytes_per_second}")
    return bytes_per_second


#: One grant of the limit: any 10 s hold at most 10 × limit + 4 MiB.
LIMITED_REQUEST_BYTES: Final = 4 << 20


class LimitedStore(PassingStore):
    """The store, with reads held to a limit of bytes a second. Large ranges become several requests; all else passes.

    Args:
        store: What answers.
        limiter: Of all reads.
    """

    def __init__(self, store: ObjectStore, limiter: RateLimiter) -> None:
        super().__init__(store)
        self._limiter = limiter

    def fetch(self, key: str) -> Buffer:
        """Fetch an object. Its size is unknown before, so that the next read waits for this one."""
        found = super().fetch(key)
        self._limiter.acquire(memoryview(found).nbytes)
        return found

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        size = end_position_exclusive - start_position
        if size <= LIMITED_REQUEST_BYTES:
            return self._piece(key, start_position, end_position_exclusive)
        found = new_buffer(size)
        done = 0
        while done < size:
            until = min(start_position + done + LIMITED_REQUEST_BYTES, end_position_exclusive)
            piece = self._piece(key, start_position + done, until)
            found[done : done + len(piece)] = piece
            done += len(piece)
            if start_position + done < until:  # the end of the object
                break
        return found[:done]

    def _piece(self, key: str, start: int, end: int) -> memoryview:
        self._limiter.acquire(end - start)
        found = super().fetch_range(key, start_position=start, end_position_exclusive=end)
        return memoryview(found).cast("B")


def limited_reads(store: ObjectStore, bytes_per_second: int | None, machine: Machine) -> ObjectStore:
    """Return the store with its reads held to a limit of their own; the store itself where there is no limit."""
    if bytes_per_second is None:
        return store
    return LimitedStore(store, RateLimiter(bytes_per_second, machine=machine))
