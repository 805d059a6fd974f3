"""A store whose reads keep to a limit of bytes a second."""

from __future__ import annotations

from typing import Final

from typing_extensions import Buffer

from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.runtime.stores.wrappers.rate_limiter import RateLimiter

#: One grant of the limit: any 10 s hold at most 10 × limit + 4 MiB.
LIMITED_REQUEST_BYTES: Final = 4 << 20


class LimitedStore(PassingStore):
    """The store, with reads held to a limit of bytes a second. Large ranges become several requests; all else passes.

    Args:
        store: What answers.
        limiter: Of all reads.
    """

    def __init__(self, store: ObjectStore, limiter: RateLimiter) -> None:
        super().__init__(store)
        self._limiter = limiter

    def fetch(self, key: str) -> Buffer:
        """See ObjectStore. Nobody knows the size before, so that it is the next read which waits for this one."""
        found = super().fetch(key)
        self._limiter.acquire(memoryview(found).nbytes)
        return found

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        """See ObjectStore."""
        size = end_position_exclusive - start_position
        if size <= LIMITED_REQUEST_BYTES:
            return self._piece(key, start_position, end_position_exclusive)
        found = new_buffer(size)
        done = 0
        while done < size:
            until = min(start_position + done + LIMITED_REQUEST_BYTES, end_position_exclusive)
            piece = self._piece(key, start_position + done, until)
            found[done : done + len(piece)] = piece
            done += len(piece)
            if start_position + done < until:  # the end of the object
                break
        return found[:done]

    def _piece(self, key: str, start: int, end: int) -> memoryview:
        self._limiter.acquire(end - start)
        found = super().fetch_range(key, start_position=start, end_position_exclusive=end)
        return memoryview(found).cast("B")


def limited_reads(store: ObjectStore, bytes_per_second: int | None, machine: Machine) -> ObjectStore:
    """The store with its reads held to a limit of their own; the store itself where there is no limit."""
    if bytes_per_second is None:
        return store
    return LimitedStore(store, RateLimiter(bytes_per_second, machine=machine))
