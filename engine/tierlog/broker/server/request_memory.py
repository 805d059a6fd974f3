"""The memory of requests, bounded over all connections."""

from __future__ import annotations

import collections
from typing import Protocol


class MemoryWaiter(Protocol):
    """One that waits for memory."""

    def memory_given(self) -> None:
        """The bytes that were waited for are this one's."""


class RequestMemory:
    """Bytes that requests take, as Kafka's SimpleMemoryPool gives them. For one thread.

    A request begins while anything is left, so that the bound is passed by one request at most, and a request that is
    larger than the bound is not shut out.

    Args:
        limit_bytes: -1 for no bound.
        small_bytes: A request of so many bytes at most never waits, though its bytes count: who begins a few long
            requests and sends nothing more must not hold up everybody, until the deadline of those is over.
    """

    def __init__(self, limit_bytes: int, *, small_bytes: int) -> None:
        self._limit = limit_bytes
        self._small_bytes = small_bytes
        self._used = 0
        self._waiting: collections.OrderedDict[MemoryWaiter, int] = collections.OrderedDict()

    @property
    def used_bytes(self) -> int:
        return self._used

    @property
    def waiting(self) -> int:
        """How many wait for memory."""
        return len(self._waiting)

    def take(self, size_bytes: int) -> bool:
        """Whether the bytes were given; if not, ``wait`` for them."""
        if size_bytes > self._small_bytes and self._limit >= 0 and (self._used >= self._limit or self._waiting):
            return False
        self._used += size_bytes
        return True

    def wait(self, waiter: MemoryWaiter, size_bytes: int) -> None:
        """Give one its bytes when others have given theirs back, in the order of the calls."""
        self._waiting[waiter] = size_bytes

    def withdraw(self, waiter: MemoryWaiter) -> None:
        """Forget one that waits, if it does."""
        self._waiting.pop(waiter, None)

    def give(self, size_bytes: int) -> None:
        """Give bytes back."""
        self._used -= size_bytes
        while self._waiting and self._used < self._limit:
            waiter, wanted_bytes = self._waiting.popitem(last=False)
            self._used += wanted_bytes
            waiter.memory_given()
