"""Ending what runs in other threads: requests that belong together, and reads of a bucket that nobody wants any more.

A read is told what ends it by the block that it runs in, not by an argument: it passes through stores that wrap
others, third parties' among them, which need not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

from tierlog.errors import StoreError
from tierlog.runtime.machine.scheduling import Scheduler

Result = TypeVar("Result")


class CancelScope:
    """What belongs together and ends together: cancelling ends every request that was sent within it, and any later.

    Any number of threads.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._lock = scheduler.lock()
        self._cancels: dict[int, Callable[[], object]] = {}
        self._count = 0
        self.cancelled = False

    def enter(self, cancel: Callable[[], object]) -> int:
        """Something begins that ``cancel`` ends; called at once if it is too late."""
        with self._lock:
            self._count += 1
            token = self._count
            if not self.cancelled:
                self._cancels[token] = cancel
                return token
        cancel()
        return token

    def leave(self, token: int) -> None:
        """It has ended."""
        with self._lock:
            self._cancels.pop(token, None)

    @contextmanager
    def entered(self, cancel: Callable[[], object]) -> Iterator[None]:
        """The same for what runs within the block."""
        token = self.enter(cancel)
        try:
            yield
        finally:
            self.leave(token)

    @property
    def running(self) -> int:
        """Requests that have not ended."""
        return len(self._cancels)

    def cancel(self) -> None:
        """End all; idempotent."""
        with self._lock:
            self.cancelled = True
            cancels = list(self._cancels.values())
            self._cancels.clear()
        for cancel in cancels:
            cancel()


class CancelledCallError(StoreError):
    """A call of a store was ended by who had asked for it, or by a close: nobody waits for it."""


class CancelledReadError(CancelledCallError):
    """A read of a store was ended so."""


_scopes: Final[ContextVar[tuple[CancelScope, ...]]] = ContextVar("tierlog_read_scopes", default=())


@contextmanager
def cancelled_by(scope: CancelScope) -> Iterator[None]:
    """Reads in the block, in this thread, end with a CancelledReadError once the scope is cancelled. Blocks nest."""
    token = _scopes.set((*_scopes.get(), scope))
    try:
        yield
    finally:
        _scopes.reset(token)


def call_within(scope: CancelScope, call: Callable[[], Result]) -> Result:
    """What it gives, in such a block."""
    with cancelled_by(scope):
        return call()


def as_wanted_here(call: Callable[[], Result]) -> Callable[[], Result]:
    """The call for another thread, there within the blocks that this thread is in."""
    scopes = _scopes.get()

    def wanted() -> Result:
        token = _scopes.set(scopes)
        try:
            return call()
        finally:
            _scopes.reset(token)

    return wanted if scopes else call


def is_cancellable() -> bool:
    """Whether this thread is in such a block."""
    return bool(_scopes.get())


def require_wanted() -> None:
    """Raises CancelledReadError where a scope of this thread's blocks is cancelled."""
    if any(scope.cancelled for scope in _scopes.get()):
        raise CancelledReadError("cancelled")


@contextmanager
def ended_by_scopes(cancel: Callable[[], object]) -> Iterator[None]:
    """``cancel`` is called, from any thread, when a scope of this thread's blocks is cancelled while in this one."""
    with ExitStack() as entered:
        for scope in _scopes.get():
            entered.enter_context(scope.entered(cancel))
        yield
