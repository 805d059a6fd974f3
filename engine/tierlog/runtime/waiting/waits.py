"""Waiting for what others land, in one place: code that needs something yields it, and is driven by who calls it.

The same code serves a thread, which waits (``WaitingThreads``), and an event loop, which is told.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from tierlog.errors import StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Condition
from tierlog.runtime.waiting.wake_line import Sleeper, WakeLine

Value = TypeVar("Value")

#: However much progress others make, nobody waits longer than so many times her time limit.
PATIENCE: Final = 12
#: Of those who wait for memory one looks this often for streams that were dropped and can give some back. If each did,
#: two thousand threads would keep the interpreter from those whose bytes are there: 9 s and late errors instead of 2.5.
LOOK_SECONDS: Final = 0.25


class Pending(Protocol):
    """Something that will be there: a load under way, or a turn for memory."""

    @property
    def is_done(self) -> bool: ...
    @property
    def has_work(self) -> bool:
        """Whether ``run`` would do some work."""

    @property
    def needs_looks(self) -> bool:
        """Whether the answer may never come unless the waiting thread looks for it."""

    def add_done_callback(self, function: Callable[[], None]) -> None:
        """Called once it is done, in the thread that did it; at once if it is. It must not raise, nor wait.

        It may be called before, too: who waits then looks at ``has_work`` and ``needs_looks`` again.
        """

    def run(self) -> bool:
        """Do the work that makes it in this thread, if there is work that nobody has begun; whether there was."""

    def look(self) -> None:
        """Look whether it can be done now; whoever waits calls this now and then."""


@dataclass(slots=True)
class Wait:
    """Something that code cannot go on without.

    Args:
        pending: What it waits for.
        what: For the message of an error: what is waited for.
        outcome: For the same: what becomes of it.
        timeout_seconds: How long it may take since ``progress`` before that is an error.
        progress: The moment, by the machine's monotonic clock, at which its request was sent or somebody else before
            it in line was served.
    """

    pending: Pending
    what: str
    outcome: str
    timeout_seconds: float
    progress: Callable[[], float]

    def late(self, seconds: float) -> str:
        """The message where it was not done in time."""
        return f"{self.what}: not there after {seconds:.3g} s; {self.outcome}"


#: The outcome of a load that who waits for it does not end.
GOES_ON: Final = "the download goes on, and a later try finds it"

#: Code that waits: yields what it needs, is sent None once that is there, or is thrown the error of who waits for it.
Waits = Generator[Wait, None, Value]


class Interruptible(Protocol):
    """Whose wait another thread can end: it sets ``is_closed`` and notifies ``changed``.

    Attributes:
        changed: What its thread waits on now.
    """

    changed: Condition | None

    @property
    def is_closed(self) -> bool: ...


class WaitingThreads:
    """Drives code in the threads that call it, which wait for what it needs.

    Args:
        machine: Its clock and locks.

    Thread safety: any number of threads.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._line = WakeLine(machine.scheduler)

    def run(self, waits: Waits[Value], owner: Interruptible | None = None) -> Value:
        """Drive code in this thread.

        Args:
            waits: The code.
            owner: Whose close ends a wait early; the code sees to what that means.

        Raises:
            StoreUnavailableError: something is not there in time. Else what the code raises.
        """
        try:
            wait = next(waits)
            while True:
                try:
                    self._wait_for(wait, owner)
                except BaseException as error:  # noqa: BLE001 - the code's to see to, whatever it is
                    wait = waits.throw(error)
                else:
                    wait = next(waits)
        except StopIteration as end:
            value: Value = end.value
            return value

    def _wait_for(self, wait: Wait, owner: Interruptible | None) -> None:
        pending = wait.pending
        pending.run()
        if pending.is_done:
            return
        clock, line = self.machine.clock, self._line
        sleeper = Sleeper(self.machine.scheduler.condition())
        if owner is not None:
            owner.changed = sleeper.changed

        def is_over() -> bool:
            return pending.is_done or (owner is not None and owner.is_closed)

        pending.add_done_callback(partial(line.wake, sleeper))
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
                line.runs(sleeper)
        finally:
            line.runs(sleeper, for_good=True)
            if owner is not None:
                owner.changed = None


def seconds_left(wait: Wait, began_seconds: float, now_seconds: float) -> float:
    """Seconds that the wait may still take. Raises StoreUnavailableError where none are left."""
    since = max(began_seconds, wait.progress())
    left = min(since + wait.timeout_seconds, began_seconds + PATIENCE * wait.timeout_seconds) - now_seconds
    if left <= 0:
        raise StoreUnavailableError(wait.late(now_seconds - began_seconds))
    return left
