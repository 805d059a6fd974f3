"""Streams of segments, and indexes, behind the pieces that were sent last: the next piece goes on with one.

A client asks for a range piece by piece, and the server has no state: without this the chunk across two pieces, or a
request to the store, would begin anew where no cache holds it. What nobody goes on with is given up soon.
"""

from __future__ import annotations

import collections
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from tierlog.runtime.machine.clock import Clock

#: A client that reads on does so at once.
_SECONDS: Final = 2.0

Item = TypeVar("Item")


class ParkedPieces(Generic[Item]):
    """Sources of next pieces by what they are of and the position, the oldest first; one each. For the loop's thread.

    Args:
        limit: How many there are at most; the oldest goes.
    """

    def __init__(self, limit: int, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._items: collections.OrderedDict[Hashable, tuple[float, Item]] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def take(self, place: Hashable) -> Item | None:
        """Return the source that stands at a place, which is the caller's then."""
        found = self._items.pop(place, None)
        return None if found is None else found[1]

    def park(self, place: Hashable, item: Item) -> list[Item]:
        """Keep a source; return those that the caller closes instead."""
        replaced = self.take(place)
        self._items[place] = self._clock.monotonic_seconds(), item
        gone = [] if replaced is None else [replaced]
        if len(self._items) > self._limit:
            gone.append(self._items.popitem(last=False)[1][1])
        return gone

    def take_expired(self, *, all_of_them: bool = False) -> list[Item]:
        """Return the sources that nobody went on with in time, which the caller closes."""
        until = self._clock.monotonic_seconds() - _SECONDS
        gone: list[Item] = []
        while self._items:
            place, (since, item) = next(iter(self._items.items()))
            if since > until and not all_of_them:
                break
            del self._items[place]
            gone.append(item)
        return gone
