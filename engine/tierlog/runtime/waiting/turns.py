"""Turns that go round by key: a queue, and memory that is lent in turns.

A stream that needs memory for its next bytes takes all of it at once, holding none: so no two wait for one another.
When there is none left, streams that are not being read at this moment release theirs (they fetch the bytes again when
they are read on), and a stream that still lacks memory waits for its turn, partition by partition. Bytes that a caller
has read out of a stream belong to the caller, and do not count.
"""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, TypeVar

from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.waits import Pending

Holder = TypeVar("Holder")
Item = TypeVar("Item", bound=Hashable)

#: Share of the total that a large grant leaves to others: a quarter.
_SHARE_LEFT: Final = 4


class FairQueue(Generic[Item]):
    """A queue of items, each once, in order of arrival for one key, keys in turn: a partition with a thousand entries
    does not starve another with one. The caller's lock guards it.
    """

    def __init__(self) -> None:
        self._lines: collections.OrderedDict[Hashable, collections.OrderedDict[Item, None]] = collections.OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, key: Hashable, item: Item, *, first: bool = False) -> None:
        """Put an item behind those of its key, or before all if it had its turn and goes on."""
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = collections.OrderedDict()
        line[item] = None
        if first:
            line.move_to_end(item, last=False)
            self._lines.move_to_end(key, last=False)
        self._count += 1

    def first(self) -> Item | None:
        """Return the item whose turn it is; None of an empty queue."""
        return next(iter(next(iter(self._lines.values())))) if self._count else None

    def last(self) -> Item | None:
        """Return the newest item of the key whose turn comes last; None of an empty queue."""
        return next(reversed(next(reversed(self._lines.values())))) if self._count else None

    def take(self) -> Item:
        """Take out the first item; its key comes last from here on. Raises LookupError: the queue is empty."""
        if not self._count:
            raise LookupError("nothing is in the queue")
        key, line = next(iter(self._lines.items()))
        item, _ = line.popitem(last=False)
        if line:
            self._lines.move_to_end(key)
        else:
            del self._lines[key]
        self._count -= 1
        return item

    def remove(self, key: Hashable, item: Item) -> bool:
        """Take out an item wherever it stands; False if it is not there."""
        line = self._lines.get(key)
        if line is None or item not in line:
            return False
        del line[item]
        if not line:
            del self._lines[key]
        self._count -= 1
        return True


#: A stream that holds memory and is not read, and its method that releases it.
_Resting = tuple[weakref.ref[Any], Callable[[Any], None]]


class Ticket(Pending):
    """One stream's turn for memory, granted when enough is released.

    Attributes:
        granted_bytes: 0 until it is granted.
    """

    __slots__ = ("_budget", "_callbacks", "granted_bytes", "key", "least_bytes", "wanted_bytes")

    def __init__(self, budget: MemoryBudget, key: Hashable, least_bytes: int, wanted_bytes: int) -> None:
        self._budget = budget
        self.key = key
        self.least_bytes = least_bytes
        self.wanted_bytes = wanted_bytes
        self.granted_bytes = 0
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_done(self) -> bool:
        """Whether memory was granted."""
        return self.granted_bytes > 0

    def add_done_callback(self, function: Callable[[], None]) -> None:
        """Call a function once memory is granted, or once ``needs_looks`` becomes true; in any thread."""
        self._callbacks.append(function)
        if self.is_done:  # it was granted just now; the waiter may look once too often, which is harmless
            function()

    @property
    def needs_looks(self) -> bool:
        """Whether this queued ticket is the one that looks for dropped streams."""
        return self._budget.is_looked_after_by(self)

    def look(self) -> None:
        """Take back the memory of streams that were dropped."""
        self._budget.release_dropped()

    def tell(self) -> None:
        """Call all callbacks."""
        for function in self._callbacks:
            function()


class MemoryBudget:
    """The memory of all readers beyond the caches, together: pending requests, chunks that are being opened, and bytes
    that streams have fetched and their callers have not read yet. Any number of threads.

    Args:
        total_bytes: Of all holders; a stream that needs more for a single chunk gets it when no other holds any.
        machine: Its clock and locks.
    """

    def __init__(self, total_bytes: int, machine: Machine) -> None:
        self._lock = machine.scheduler.lock()
        self._clock = machine.clock
        self._total_bytes = self._left_bytes = total_bytes
        self._waiting: FairQueue[Ticket] = FairQueue()
        self._resting: collections.OrderedDict[int, tuple[weakref.ref[Any], Callable[[Any], None]]] = (
            collections.OrderedDict()
        )
        self._is_serving = False
        self._dropped: collections.deque[Callable[[], None]] = collections.deque()
        self._granted_at_seconds = 0.0
        self._looking: Ticket | None = None  # the queued ticket that looks for dropped streams

    @property
    def total_bytes(self) -> int:
        return self._total_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes that are held now; above the total only while one chunk larger than that is read."""
        if self._dropped:
            self.release_dropped()
        return self._total_bytes - self._left_bytes

    @property
    def granted_at_seconds(self) -> float:
        """Time of the last grant, in seconds of the machine's monotonic clock."""
        return self._granted_at_seconds

    def rest(self, holder: Holder, give_up: Callable[[Holder], None]) -> None:
        """Note that a stream holds memory and is not being read: the stream that rests for longest gives its memory up
        first.
        """
        self._resting[id(holder)] = (weakref.ref(holder), give_up)
        if self._waiting:
            self._serve()

    def wake(self, holder: object) -> None:
        """Note that a stream is being read again, or holds nothing any more."""
        self._resting.pop(id(holder), None)

    def drop(self, abandon: Callable[[], None]) -> None:
        """Note a dropped stream; from a finalizer, which may run in the middle of anything."""
        self._dropped.append(abandon)

    def try_take(self, size_bytes: int, *, leaving_bytes: int = 0) -> bool:
        """Take memory if so much is left, and ``leaving_bytes`` beyond it, and no ticket waits."""
        with self._lock:
            if self._waiting or self._left_bytes - size_bytes < leaving_bytes:
                return False
            self._left_bytes -= size_bytes
            return True

    def ask(self, key: Hashable, *, least_bytes: int, wanted_bytes: int) -> Ticket:
        """Ask memory for a stream that holds none: granted at once where there is enough, else at its turn.

        Args:
            key: The partition; partitions are served in turn.
            least_bytes: The least that it can go on with.
            wanted_bytes: The most that it is granted while there is plenty.
        """
        if self._dropped:
            self.release_dropped()
        ticket = Ticket(self, key, least_bytes, max(least_bytes, wanted_bytes))
        with self._lock:
            if not self._waiting and self._grant(ticket):
                return ticket
            self._waiting.put(key, ticket)
            self._looking = self._looking or ticket
        self._serve()
        return ticket

    def is_looked_after_by(self, ticket: Ticket) -> bool:
        """Whether this queued ticket is the one that looks for dropped streams."""
        return self._looking is ticket

    def _looking_anew(self) -> tuple[Ticket, ...]:
        """Choose the ticket that looks from now on, since the last one left the queue; return it for ``tell``. The
        caller holds the lock.

        The last in the queue: it waits for longest, so that the choice is rarely made again.
        """
        self._looking = self._waiting.last()
        return () if self._looking is None else (self._looking,)

    def _grant(self, ticket: Ticket) -> bool:
        """Grant all that a ticket wants, or as much as leaves something to others. The caller holds the lock."""
        left = self._left_bytes
        if left < ticket.least_bytes and left < self._total_bytes:
            return False
        granted = max(ticket.least_bytes, min(ticket.wanted_bytes, left - self._total_bytes // _SHARE_LEFT))
        self._left_bytes -= granted
        ticket.granted_bytes = granted
        self._granted_at_seconds = self._clock.monotonic_seconds()
        return True

    def cancel(self, ticket: Ticket) -> None:
        """Take a ticket out of the queue, and release memory that it was granted meanwhile."""
        with self._lock:
            self._waiting.remove(ticket.key, ticket)
            granted, ticket.granted_bytes = ticket.granted_bytes, 0
            told = self._looking_anew() if self._looking is ticket else ()
        for other in told:
            other.tell()
        self.give_back(granted)

    def give_back(self, size_bytes: int) -> None:
        """Release bytes of a grant or of ``try_take``."""
        if not size_bytes:
            return
        granted: list[Ticket] = []
        with self._lock:
            self._left_bytes += size_bytes
            while (ticket := self._waiting.first()) is not None and self._grant(ticket):
                self._waiting.take()
                granted.append(ticket)
            told = self._looking_anew() if self._looking in granted else ()
        for ticket in (*granted, *told):
            ticket.tell()

    def release_dropped(self) -> None:
        """Release the memory of dropped streams."""
        while self._dropped:
            try:
                abandon = self._dropped.popleft()
            except IndexError:
                return
            abandon()

    def _serve(self) -> None:
        """Let streams at rest release memory while a ticket waits; one thread at a time: calls do not nest."""
        with self._lock:
            if self._is_serving:  # the serving thread looks under the lock before it ends, and sees this ticket
                return
            self._is_serving = True
        while True:
            with self._lock:
                if not (self._waiting and self._resting):
                    self._is_serving = False
                    return
                try:
                    _, (reference, give_up) = self._resting.popitem(last=False)
                except KeyError:  # it was read on just now
                    continue
            holder = reference()
            if holder is not None:
                give_up(holder)
