"""Which request is worked on next: client hosts take turns."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Final

#: So many requests begin before the loop looks at its sockets again; and so many at once, as they come, in a time in
#: which no more than that can be worked on.
_STARTS_MAX: Final = 32
_AT_ONCE_SECONDS: Final = 0.001


#: Begins the work on a request, without waiting for it; False if it is not wanted any more. Whoever began calls
#: ``Turns.leave`` when the work is over.
Begin = Callable[[], bool]


class Turns:
    """Begins requests: at once while there are few, else one client host after another, so that who has a thousand
    connections delays another host by some requests, not by a thousand. For one thread.

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
        self._waiting: collections.OrderedDict[str, collections.OrderedDict[Begin, None]] = collections.OrderedDict()

    @property
    def at_work(self) -> int:
        """Requests that began and are not over."""
        return self._at_work

    @property
    def waiting(self) -> int:
        """Requests that have not begun."""
        return sum(map(len, self._waiting.values()))

    def enter(self, client_host: str, begin: Begin) -> None:
        """Have a request begun: now, or when it is its host's turn."""
        if not self._waiting and self._at_work < self._limit and self._may_begin_at_once():
            self._at_work += begin()
            return
        queue = self._waiting.get(client_host)
        if queue is None:
            queue = self._waiting[client_host] = collections.OrderedDict()
        queue[begin] = None
        self._schedule()

    def withdraw(self, client_host: str, begin: Begin) -> None:
        """Forget a request that waits, if it does: its client has gone."""
        queue = self._waiting.get(client_host)
        if queue is not None:
            queue.pop(begin, None)
            if not queue:
                del self._waiting[client_host]

    def leave(self) -> None:
        """The work of a request is over."""
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
            host, queue = self._waiting.popitem(last=False)
            begin, _ = queue.popitem(last=False)
            if queue:
                self._waiting[host] = queue
            self._at_work += begin()
            left -= 1
        if self._waiting:
            self._schedule()
