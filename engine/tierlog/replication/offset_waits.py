"""Requests that wait until an offset of a partition passes a bound."""

from __future__ import annotations

import heapq
from collections.abc import Hashable


class OffsetWaits:
    """The waits for one offset that only rises, such as a high watermark.

    A wait is cancelled in O(1) and leaves the heap when it comes to its top, or when more than half of the heap is
    cancelled: memory follows the waits that are left.
    """

    __slots__ = ("_heap", "_pending", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Hashable]] = []
        self._pending: dict[Hashable, int] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, bound: int, token: Hashable) -> None:
        """Let a token wait until the offset is at or above a bound; a token that waits already waits for this bound
        alone.
        """
        self._sequence += 1  # also tells an earlier wait of the same token from this one
        self._pending[token] = self._sequence
        heapq.heappush(self._heap, (bound, self._sequence, token))

    def cancel(self, token: Hashable) -> bool:
        """Let a token wait no more; whether it waited."""
        if self._pending.pop(token, None) is None:
            return False
        if len(self._heap) > 2 * len(self._pending) + 16:
            self._heap = [wait for wait in self._heap if self._pending.get(wait[2]) == wait[1]]
            heapq.heapify(self._heap)
        return True

    def reach(self, offset: int) -> list[Hashable]:
        """Remove the tokens whose bound the offset has reached, in the order of their bounds."""
        reached: list[Hashable] = []
        while self._heap and self._heap[0][0] <= offset:
            _, sequence, token = heapq.heappop(self._heap)
            if self._pending.get(token) == sequence:
                del self._pending[token]
                reached.append(token)
        return reached

    def clear(self) -> list[Hashable]:
        """Remove all tokens, in the order in which they were added."""
        left = list(self._pending)
        self._pending.clear()
        self._heap.clear()
        return left
