"""A queue whose turns go round by key: one partition with a thousand in line does not keep out another with one."""

from __future__ import annotations

import collections
from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Items in order of arrival for one key, keys in turn. The caller's lock guards it."""

    def __init__(self) -> None:
        self._lines: collections.OrderedDict[Hashable, collections.deque[Item]] = collections.OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, key: Hashable, item: Item, *, first: bool = False) -> None:
        """Put an item behind those of its key, or before all if it had its turn and goes on."""
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = collections.deque()
        if first:
            line.appendleft(item)
            self._lines.move_to_end(key, last=False)
        else:
            line.append(item)
        self._count += 1

    def first(self) -> Item | None:
        """The item whose turn it is; None of an empty queue."""
        return next(iter(self._lines.values()))[0] if self._count else None

    def last(self) -> Item | None:
        """The newest item of the key whose turn comes last; None of an empty queue."""
        return next(reversed(self._lines.values()))[-1] if self._count else None

    def take(self) -> Item:
        """Take out the first item; its key comes last from here on. Raises LookupError: the queue is empty."""
        if not self._count:
            raise LookupError("nothing is in the queue")
        key, line = next(iter(self._lines.items()))
        item = line.popleft()
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
        line.remove(item)
        if not line:
            del self._lines[key]
        self._count -= 1
        return True
