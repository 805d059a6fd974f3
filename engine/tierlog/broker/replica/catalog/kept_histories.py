"""Which resolved histories stay in memory: those that were used last, up to a number of bytes.

A described segment takes 2 KB: of a million segments that is more than all caches have. A history that is let go of is
made again when somebody reads its partition; what is known of the partition's offsets stays.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from tierlog.runtime.weighted_cache import UNBOUNDED


class Histories(Protocol):
    """The history of one partition, which can be made again."""

    @property
    def is_wanted(self) -> bool:
        """Whether a task waits for the history at this moment."""

    def let_go(self) -> None:
        """Forget the history, and keep what tells whether the next one is the same."""


class KeptHistories:
    """The histories that are at hand. Used on the event loop alone.

    Args:
        size_bytes_max: Of all together; UNBOUNDED for no limit. The one that was used last stays in any case, and so do
            those that somebody waits for.
    """

    def __init__(self, size_bytes_max: int) -> None:
        self._limit = size_bytes_max
        self._sizes: OrderedDict[Histories, int] = OrderedDict()
        self._size_bytes = 0
        self._let_go = 0

    @property
    def size_bytes(self) -> int:
        """Memory of the histories at hand, bytes, as their resolutions measured it. Any thread."""
        return self._size_bytes

    @property
    def let_go(self) -> int:
        """How many had to make room, ever. Any thread."""
        return self._let_go

    def keep(self, histories: Histories, size_bytes: int) -> None:
        """Note that a history is at hand now; those that were used longest ago make room for it."""
        self.forget(histories)
        self._sizes[histories] = size_bytes
        self._size_bytes += size_bytes
        self.make_room()

    def use(self, histories: Histories) -> None:
        """Note that a history is used."""
        if histories in self._sizes:
            self._sizes.move_to_end(histories)

    def forget(self, histories: Histories) -> None:
        """Note that a history is not at hand any more."""
        self._size_bytes -= self._sizes.pop(histories, 0)

    def make_room(self) -> None:
        """Let go of what is too much: to be called, too, when nobody waits for a history any more."""
        over = self._size_bytes - self._limit
        if over <= 0 or self._limit == UNBOUNDED:
            return
        newest = next(reversed(self._sizes))
        left = []
        for each, size_bytes in self._sizes.items():
            if over <= 0:
                break
            if each is not newest and not each.is_wanted:
                left.append(each)
                over -= size_bytes
        for each in left:
            self.forget(each)
            each.let_go()
        self._let_go += len(left)
