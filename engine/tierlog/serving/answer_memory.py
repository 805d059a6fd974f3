"""Memory for answers: taken before the bytes are there, in turns that go round the clients' hosts."""

from __future__ import annotations

from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import Timers
from tierlog.runtime.waiting.loops import Alarm
from tierlog.runtime.waiting.turns import MemoryBudget, Ticket


class Grant:
    """Memory that one answer may fill. Released once, in parts or as a whole."""

    __slots__ = ("_budget", "_ticket", "size_bytes")

    def __init__(self, budget: MemoryBudget, ticket: Ticket) -> None:
        self._budget = budget
        self._ticket = ticket
        self.size_bytes = ticket.granted_bytes

    def shrink(self, size_bytes: int) -> None:
        """Release the bytes above ``size_bytes``."""
        if size_bytes < self.size_bytes:
            left, self.size_bytes = self.size_bytes - size_bytes, size_bytes
            self._budget.give_back(left)

    def release(self) -> None:
        """Release all of it; idempotent."""
        self.shrink(0)


class AnswerMemory:
    """Memory for the records of all answers, in turns that go round the clients' hosts. Used on the event loop alone.

    An answer takes all it wants while there is plenty, and less, but at least its minimum, when there is not. An answer
    whose minimum is above the total gets it when no other holds any.

    Args:
        total_bytes: Of all answers that are read, or on their way to a client.
        timers: Of the event loop.
        machine: For the budget's lock and clock.
    """

    def __init__(self, total_bytes: int, timers: Timers, machine: Machine) -> None:
        self._budget = MemoryBudget(total_bytes, machine)
        self._timers = timers

    @property
    def total_bytes(self) -> int:
        return self._budget.total_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes that answers hold now."""
        return self._budget.held_bytes

    async def take(self, host: str, *, least_bytes: int, wanted_bytes: int, seconds: float) -> Grant | None:
        """Take memory, when it is the host's turn.

        Args:
            host: Of the client.
            least_bytes: Without which there is no answer, > 0.
            wanted_bytes: The bytes to take while there is plenty.
            seconds: How long to wait for it.

        Returns:
            The memory; None if there was none in time.
        """
        ticket = self._budget.ask(host, least_bytes=least_bytes, wanted_bytes=wanted_bytes)
        if not ticket.is_done and seconds > 0:
            await self._wait_for(ticket, seconds)
        if not ticket.is_done:
            self._budget.cancel(ticket)
            return None
        return Grant(self._budget, ticket)

    async def _wait_for(self, ticket: Ticket, seconds: float) -> None:
        deadline = self._timers.monotonic_seconds() + seconds
        try:
            while not ticket.is_done and (left := deadline - self._timers.monotonic_seconds()) > 0:
                alarm = Alarm(self._timers)
                ticket.add_done_callback(alarm.ring)  # called for other reasons, too
                await alarm.wait(left)
        except BaseException:
            self._budget.cancel(ticket)
            raise
