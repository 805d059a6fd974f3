"""The requests of one copy: they end with it, and what they may have stored is known.

When a copy is called off, what runs is told to end, which our own stores do at once. What does not end, since its store
only knows how to block, goes on in a thread that nobody waits for; what it stores then is a leftover like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tierlog.errors import ObjectConflictError, StoreError, StoreNotReachedError
from tierlog.remote.storage.copy.running_copies import RunningCopy
from tierlog.runtime.machine.cancelling import CancelScope, call_within
from tierlog.runtime.machine.scheduling import Future, Pool
from tierlog.runtime.stores.protocol.object_store import StoredObject

Result = TypeVar("Result")


class CopyRequests:
    """The requests of one copy, ended with it.

    Args:
        running: The copy.
        pool: Sends.

    Attributes:
        doubtful: Whether a request was ended, or failed, that the store may do all the same.

    Thread safety: any number of threads.
    """

    def __init__(self, running: RunningCopy, pool: Pool) -> None:
        self.doubtful = False
        self._running = running
        self._pool = pool
        scheduler = running.machine.scheduler
        self._scope = CancelScope(scheduler)
        self._lock = scheduler.lock()
        self._tried: dict[str, None] = {}
        self._under_way: set[Future[object]] = set()
        self._ended = False

    @property
    def tried_keys(self) -> list[str]:
        """Keys of objects that may have been stored, in the order of the first try."""
        with self._lock:
            return list(self._tried)

    def submit(self, call: Callable[[], Result]) -> Future[Result]:
        """Begin a request in another thread."""
        future = self._pool.submit(lambda: call_within(self._scope, call))
        with self._lock:
            self._under_way.add(future)
        future.add_done_callback(self._forget)
        return future

    def call(self, call: Callable[[], Result]) -> Result:
        """Make a request and wait for its result.

        Raises:
            CopyDeadlineError, CopyAbandonedError: the copy is called off. What the request raises.
        """
        return self._running.wait_for(self.submit(call))

    def store(self, key: str, send: Callable[[], StoredObject]) -> StoredObject:
        """Within a call of ``submit``: send what becomes visible as an object of this key."""
        with self._lock:
            if self._ended:
                raise StoreError(f"{key}: the copy was called off")
            self._tried[key] = None
        try:
            return send()
        except StoreError as error:
            if error.refused or isinstance(error, ObjectConflictError | StoreNotReachedError):
                with self._lock:
                    self._tried.pop(key, None)
            elif error.retriable:
                self.doubtful = True
            raise

    def _forget(self, future: Future[object]) -> None:
        with self._lock:
            self._under_way.discard(future)

    def end(self) -> list[Future[object]]:
        """Send nothing more, and tell what runs to end. Returns the requests that have not ended yet."""
        with self._lock:
            self._ended = True
            under_way = list(self._under_way)
        self._scope.cancel()
        left = [future for future in under_way if not future.cancel() and not future.done()]
        self.doubtful = self.doubtful or (bool(under_way) and bool(self._tried))
        return left
