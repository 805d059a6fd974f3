"""Ranges of objects, by the download limit, counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tierlog.remote.storage.chunk_reading import fetch_exactly
from tierlog.remote.storage.limited_store import LIMITED_REQUEST_BYTES
from tierlog.remote.storage.metrics import StorageMetrics
from tierlog.remote.storage.rate_limiter import RateLimiter
from tierlog.remote.storage.segment import StoredPart
from tierlog.remote.storage.single_flight import closed_error
from tierlog.runtime.buffers import new_buffer
from tierlog.runtime.cancelling import CancelledReadError, CancelScope, cancelled_by, require_wanted
from tierlog.runtime.machine import Machine
from tierlog.runtime.object_store import ObjectStore


class Downloads:
    """See the module.

    Args:
        store: Of the objects.
        limiter: Of all downloads; None for no limit.
        metrics: Where they are counted.
        machine: Its locks.

    Thread safety: any number of threads.
    """

    def __init__(
        self, store: ObjectStore, limiter: RateLimiter | None, metrics: StorageMetrics, machine: Machine
    ) -> None:
        self.store = store
        self.metrics = metrics
        self._limiter = limiter
        self._scope = CancelScope(machine.scheduler)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Where the store is read otherwise: reads in the block end with a StoreUnavailableError on close."""
        try:
            with cancelled_by(self._scope):
                yield
        except CancelledReadError:
            self._require_open()
            raise

    def fetch(self, part: StoredPart, name: str, start: int, end_exclusive: int) -> memoryview:
        """A range of a part's object, all of it; in several requests where a limit asks for that.

        Raises:
            CorruptObjectError: the object ends before. StoreError and its kinds.
        """
        with self.reading():
            return self._fetched(part, name, start, end_exclusive)

    def fetch_whole(self, part: StoredPart) -> memoryview:
        """A part's object whose size nobody knows before. Raises StoreError and its kinds."""
        with self.reading():
            found = memoryview(self.store.fetch(part.key)).cast("B")
        self.charge(len(found))
        return found

    def _fetched(self, part: StoredPart, name: str, start: int, end_exclusive: int) -> memoryview:
        size, limiter = end_exclusive - start, self._limiter
        if limiter is None or limiter.bytes_per_second is None or size <= LIMITED_REQUEST_BYTES:
            self._acquire(size)
            found = fetch_exactly(self.store, part, name, start, end_exclusive)
        else:
            found = new_buffer(size)
            for at in range(start, end_exclusive, LIMITED_REQUEST_BYTES):
                until = min(at + LIMITED_REQUEST_BYTES, end_exclusive)
                self._acquire(until - at)
                found[at - start : until - start] = fetch_exactly(self.store, part, name, at, until)
        self.metrics.add("fetch_bytes_total", size)
        return found

    def charge(self, size_bytes: int) -> None:
        """Count what was fetched otherwise, because its size was not known before; the next ones wait for it."""
        self._acquire(size_bytes)
        self.metrics.add("fetch_bytes_total", size_bytes)

    def _acquire(self, size_bytes: int) -> None:
        if self._limiter is not None:
            self._limiter.acquire(size_bytes, check=self._check)

    def _check(self) -> None:
        self._require_open()
        require_wanted()

    def _require_open(self) -> None:
        if self._scope.cancelled:
            raise closed_error() from None

    def close(self) -> None:
        """Requests under way end, and whoever waits for the limit gets an error; idempotent."""
        self._scope.cancel()
