"""The memory of requests, bounded over all connections."""

from __future__ import annotations

import collections
from collections.abc import Callable


class RequestMemory:
    """Bytes that requests take, as Kafka's SimpleMemoryPool gives them. For one thread.

    A request begins while anything is left, so that the bound is passed by one request at most, and a request that is
    larger than the bound is not shut out.

    Args:
        limit_bytes: -1 for no bound.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._used = 0
        self._waiting: collections.deque[Callable[[], None]] = collections.deque()

    @property
    def used_bytes(self) -> int:
        return self._used

    @property
    def waiting(self) -> int:
        """Calls that wait for memory."""
        return len(self._waiting)

    def take(self, size_bytes: int) -> bool:
        """Whether the bytes were given. Who was refused calls ``wait``."""
        if self._limit >= 0 and (self._used >= self._limit or self._waiting):
            return False
        self._used += size_bytes
        return True

    def wait(self, size_bytes: int, call: Callable[[], None]) -> None:
        """Take the bytes when others have given theirs back, in the order of the calls, and have a function called
        then. It is called even if nobody wants the bytes any more, and gives them back.
        """

        def given() -> None:
            self._used += size_bytes
            call()

        self._waiting.append(given)

    def give(self, size_bytes: int) -> None:
        """Give bytes back."""
        self._used -= size_bytes
        while self._waiting and self._used < self._limit:
            self._waiting.popleft()()
