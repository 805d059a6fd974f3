"""Cancelling work in other threads: requests that belong together, and reads of a bucket that are not wanted any more.

A read is cancelled by the ``with`` block that it runs in, not by an argument: so stores that wrap others, third
parties' among them, need not pass anything on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

from tierlog.errors import StoreError
from tierlog.runtime.machine.scheduling import Scheduler

Result = TypeVar("Result")


class CancelScope:
    """A group of requests that are cancelled together; after ``cancel`` later ones are refused too.

    Any number of threads.
    """

    __slots__ = ("_cancels", "_count", "_lock", "cancelled")

    def __init__(self, scheduler: Scheduler) -> None:
        self._lock = scheduler.lock()
        self._cancels: dict[int, Callable[[], object]] = {}
        self._count = 0
        self.cancelled = False

    def enter(self, cancel: Callable[[], object]) -> int:
        """Register the function that cancels a request which begins now. It is called at once if the scope is cancelled
        already.
        """
        with self._lock:
            self._count += 1
            token = self._count
            if not self.cancelled:
                self._cancels[token] = cancel
                return token
        cancel()
        return token

    def leave(self, token: int) -> None:
        """Note that the request has ended."""
        with self._lock:
            self._cancels.pop(token, None)

    @contextmanager
    def entered(self, cancel: Callable[[], object]) -> Iterator[None]:
        """``enter`` and ``leave`` around a block."""
        token = self.enter(cancel)
        try:
            yield
        finally:
            self.leave(token)

    @property
    def running(self) -> int:
        """The number of requests that have not ended."""
        return len(self._cancels)

    def cancel(self) -> None:
        """Cancel all requests; idempotent."""
        with self._lock:
            self.cancelled = True
            cancels = list(self._cancels.values())
            self._cancels.clear()
        for cancel in cancels:
            cancel()


class CancelledCallError(StoreError):
    """A call of a store was cancelled by its caller or by a close."""


class CancelledReadError(CancelledCallError):
    """A read was cancelled so."""


_scopes: Final[ContextVar[tuple[CancelScope, ...]]] = ContextVar("tierlog_read_scopes", default=())


class _CancelledBy:
    """The block of ``cancelled_by``. Once."""

    __slots__ = ("_scope", "_token")

    def __init__(self, scope: CancelScope) -> None:
        self._scope = scope

    def __enter__(self) -> None:
        self._token = _scopes.set((*_scopes.get(), self._scope))

    def __exit__(self, *_: object) -> None:
        _scopes.reset(self._token)


def cancelled_by(scope: CancelScope) -> AbstractContextManager[None]:
    """Return a block whose reads, in this thread, raise CancelledReadError once the scope is cancelled. Blocks nest."""
    return _CancelledBy(scope)


@contextmanager
def uncancelled() -> Iterator[None]:
    """A block whose requests are not ended by the blocks around it: to remove what a cancelled call has left."""
    token = _scopes.set(())
    try:
        yield
    finally:
        _scopes.reset(token)


def call_within(scope: CancelScope, call: Callable[[], Result]) -> Result:
    """Make a call within such a block."""
    with cancelled_by(scope):
        return call()


def as_wanted_here(call: Callable[[], Result]) -> Callable[[], Result]:
    """Wrap a call for another thread, so that it runs there within the blocks of this thread."""
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
    """Raise CancelledReadError if the scope of one of this thread's blocks is cancelled."""
    if any(scope.cancelled for scope in _scopes.get()):
        raise CancelledReadError("cancelled")


class _EndedByScopes:
    """The block of ``ended_by_scopes``. Once."""

    __slots__ = ("_cancel", "_entered")

    def __init__(self, cancel: Callable[[], object]) -> None:
        self._cancel = cancel
        self._entered: list[tuple[CancelScope, int]] = []

    def __enter__(self) -> None:
        try:
            for scope in _scopes.get():
                self._entered.append((scope, scope.enter(self._cancel)))
        except BaseException:  # of the function, which was called at once
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        for scope, token in self._entered:
            scope.leave(token)


def ended_by_scopes(cancel: Callable[[], object]) -> AbstractContextManager[None]:
    """Return a block during which ``cancel`` is called, in any thread, if the scope of one of this thread's blocks is
    cancelled.
    """
    return _EndedByScopes(cancel)
