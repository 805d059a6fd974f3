"""One limit of bytes a second over everything that goes one way: all copies, or all fetches, of a process.

The rule is strict where a token bucket is not: between two grants at least as much time passes as the first of them
takes at the limit, so that in no window of S seconds more than ``S × limit`` bytes and one grant begin to flow.
There is no burst to save up, no smallest and no largest limit, and the limit can change while others wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.resend_hook import asked_before_resending

#: Who waits looks this often whether the limit changed, or its copy was called off.
_LOOK_SECONDS: Final = 0.1


def _nothing() -> None:
    return


class RateLimiter:
    """Grants bytes, in the order in which they are asked for.

    Args:
        bytes_per_second: The limit; None lets everything pass.
        machine: Its clock is slept on.
        on_wait: Told the seconds of each wait.

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
        self._debt_bytes = 0.0  # what must still pass, at the limit, before the next grant
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

    def acquire(self, size_bytes: int, *, check: Callable[[], None] = _nothing) -> None:
        """Wait until this many bytes may begin to flow.

        Args:
            size_bytes: As much as is then sent, or asked for, at once: the "one part" of the promise.
            check: Called while waiting; what it raises ends the wait, and the bytes do not count.
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
        """Count bytes that flowed already, because nobody knew their number before; the next grants wait for them."""
        with self._turn:
            self._settle()
            if self._limit is not None:
                self._debt_bytes += size_bytes

    @contextmanager
    def granted(self, size_bytes: int, *, check: Callable[[], None] = _nothing) -> Iterator[None]:
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
        """The first in line sleeps off the debt; the others wait for their turn."""
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
