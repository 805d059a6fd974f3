"""The admission of a request before work on it begins: memory, bounded over all connections, and its client host's
turn.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tierlog.runtime.waiting.loops import LoopFuture
from tierlog.runtime.waiting.turns import FairQueue

#: So many requests begin before the loop looks at its sockets again; and so many at once, as they come, in a time in
#: which no more than that can be worked on.
_STARTS_MAX: Final = 32
_AT_ONCE_SECONDS: Final = 0.001

#: Called when the bytes that were waited for are the caller's.
Given = Callable[[], None]


@dataclass(frozen=True, eq=False, slots=True)
class _Decoding:
    """A request that waits to be decoded."""

    size_bytes: int
    given: LoopFuture[None]


class RequestMemory:
    """Bytes that requests take, as Kafka's SimpleMemoryPool gives them. On one event loop.

    A request begins while anything is left, so that the bound is passed by one request at most, and a request that is
    larger than the bound is not shut out.

    A request takes memory twice: for its bytes, and for its decoded form, up to thirty times as much. A request that
    waits for the second holds the first, so one of the waiting ones is decoded whatever is left while no other is; its
    end lets the next one in. Requests that wait to be decoded come before new bytes, and their hosts take turns.

    Args:
        limit_bytes: -1 for no bound.
        small_bytes: A request of so many bytes at most never waits, though its bytes count: a client that begins a few
            long requests and sends nothing more must not hold up all others until their deadline is over.
    """

    def __init__(self, limit_bytes: int, *, small_bytes: int) -> None:
        self._limit = limit_bytes
        self._small_bytes = small_bytes
        self._used = 0
        self._waiting: collections.OrderedDict[Given, int] = collections.OrderedDict()
        #: Requests that hold more than a small one for their decoded form.
        self._large_decoded = 0
        self._decoding: FairQueue[_Decoding] = FairQueue()
        #: Whether a request waits: else releasing memory, with each request, asks no further.
        self._has_waiting = False

    @property
    def used_bytes(self) -> int:
        return self._used

    @property
    def waiting(self) -> int:
        """The number of requests that wait for memory."""
        return len(self._waiting) + len(self._decoding)

    def take(self, size_bytes: int) -> bool:
        """Whether the bytes of a request were given; if not, ``wait`` for them."""
        if size_bytes > self._small_bytes and self._limit >= 0 and (self._used >= self._limit or self._waiting):
            return False
        self._used += size_bytes
        return True

    def wait(self, given: Given, size_bytes: int) -> None:
        """Grant a request its bytes when others have released theirs, in the order of the calls."""
        self._waiting[given] = size_bytes
        self._has_waiting = True

    def withdraw(self, given: Given) -> None:
        """Remove a request from the queue, if it waits."""
        self._waiting.pop(given, None)

    def give(self, size_bytes: int) -> None:
        """Release bytes."""
        self._used -= size_bytes
        if self._has_waiting:
            self._pass_on()

    def take_decoded(self, size_bytes: int) -> bool:
        """Whether memory was granted for the decoded form of a request, whose bytes have theirs; if not,
        ``wait_decoded`` for it.
        """
        if size_bytes <= self._small_bytes:
            self._used += size_bytes
            return True
        if self._limit >= 0 and self._large_decoded and (self._used >= self._limit or self._decoding):
            return False
        self._hold_decoded(size_bytes)
        return True

    async def wait_decoded(self, client_host: str, size_bytes: int) -> None:
        """Wait for the memory until it is the client's turn."""
        waiter = _Decoding(size_bytes, LoopFuture())
        self._decoding.put(client_host, waiter)
        self._has_waiting = True
        try:
            await waiter.given.wait()
        except BaseException:
            if not self._decoding.remove(client_host, waiter):  # given meanwhile
                self.give_decoded(size_bytes)
            raise

    def shrink_decoded(self, size_bytes: int, to_bytes: int) -> None:
        """Release the part of ``size_bytes`` that decoding did not need."""
        self._hold_decoded(to_bytes)
        self.give_decoded(size_bytes)

    def give_decoded(self, size_bytes: int) -> None:
        """Release the memory of a decoded request."""
        if size_bytes > self._small_bytes:
            self._large_decoded -= 1
        self.give(size_bytes)

    def _hold_decoded(self, size_bytes: int) -> None:
        self._used += size_bytes
        self._large_decoded += size_bytes > self._small_bytes

    def _pass_on(self) -> None:
        """Grant the free memory to waiting requests."""
        while self._decoding and (self._used < self._limit or not self._large_decoded):
            decoding = self._decoding.take()
            self._hold_decoded(decoding.size_bytes)
            decoding.given.give(None)
        while self._waiting and self._used < self._limit:
            given, wanted_bytes = self._waiting.popitem(last=False)
            self._used += wanted_bytes
            given()
        self._has_waiting = bool(self._waiting or self._decoding)


#: Begins the work on a request, without waiting for it; False if it is not wanted any more. Whoever began calls
#: ``Turns.leave`` when the work is over.
Begin = Callable[[], bool]


class Turns:
    """The order in which requests begin: at once while there are few, else one client host after another, so that a
    host with a thousand connections delays another by some requests, not by a thousand. For one thread.

    Args:
        limit: Requests at work at once.
        now: The time in seconds, from any beginning.
        rested: Called when the last request at work is over.
        call_soon: Has a function called when the loop has looked at its sockets.
    """

    def __init__(
        self,
        limit: int,
        *,
        now: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
        rested: Callable[[], None],
    ) -> None:
        self._limit = limit
        self._now = now
        self._period_began = -_AT_ONCE_SECONDS
        self._begun_at_once = 0
        self._call_soon = call_soon
        self._rested = rested
        self._is_scheduled = False
        self._at_work = 0
        self._waiting: FairQueue[Begin] = FairQueue()

    @property
    def at_work(self) -> int:
        """Requests that began and are not over."""
        return self._at_work

    @property
    def waiting(self) -> int:
        """Requests that have not begun."""
        return len(self._waiting)

    def enter(self, client_host: str, begin: Begin) -> None:
        """Begin a request: now, or when it is its host's turn."""
        if not self._waiting and self._at_work < self._limit and self._may_begin_at_once():
            self._at_work += begin()
            return
        self._waiting.put(client_host, begin)
        self._schedule()

    def withdraw(self, client_host: str, begin: Begin) -> None:
        """Forget a request that waits, if it does: its client has gone."""
        self._waiting.remove(client_host, begin)

    def leave(self) -> None:
        """Note that the work of a request is over."""
        self._at_work -= 1
        if self._waiting:
            self._schedule()
        if not self._at_work:
            self._rested()

    def _may_begin_at_once(self) -> bool:
        now = self._now()
        if now - self._period_began >= _AT_ONCE_SECONDS:
            self._period_began = now
            self._begun_at_once = 0
        self._begun_at_once += 1
        return self._begun_at_once <= _STARTS_MAX

    def _schedule(self) -> None:
        if not self._is_scheduled and self._at_work < self._limit:
            self._is_scheduled = True
            self._call_soon(self._begin_some)

    def _begin_some(self) -> None:
        self._is_scheduled = False
        left = _STARTS_MAX
        while left and self._waiting and self._at_work < self._limit:
            self._at_work += self._waiting.take()()
            left -= 1
        if self._waiting:
            self._schedule()
