"""Times by which something of a connection has to have happened."""

from __future__ import annotations

import collections
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class Deadlines(Generic[Item]):
    """Items that have the same time each, from when they were last started. For one thread.

    One order for all of them, as Kafka's IdleExpiryManager has: starting one costs the same with ten thousand others,
    and whoever looks sees only those that are over.

    Args:
        seconds: The time that each item has.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._started: collections.OrderedDict[Item, float] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._started)

    def __contains__(self, item: object) -> bool:
        return item in self._started

    def start(self, item: Item, now_seconds: float) -> None:
        """Give an item its whole time, from now on."""
        self._started[item] = now_seconds
        self._started.move_to_end(item)

    def stop(self, item: Item) -> None:
        """Forget an item, if it is there."""
        self._started.pop(item, None)

    def take_expired(self, now_seconds: float) -> Iterator[Item]:
        """The items whose time is over, oldest first; each is forgotten as it is given."""
        while self._started:
            item, started = next(iter(self._started.items()))
            if now_seconds - started < self.seconds:
                return
            del self._started[item]
            yield item
