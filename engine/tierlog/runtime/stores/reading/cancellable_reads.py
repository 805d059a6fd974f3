"""Reads by obstore that another thread can end: the connection closes, and no more bytes come.

Obstore's synchronous calls cannot be cancelled, its asynchronous ones can, by the event loop's future that each gives.
The loop here has no thread: the thread that asks waits for the future, and obstore's own thread fills it. So a read
costs no change of threads more than a synchronous one does, and a process of many stores needs no thread for each.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any, Final, TypeVar, cast

from tierlog.runtime.machine.cancelling import CancelledReadError, ended_by_scopes, require_wanted
from tierlog.runtime.stores.protocol.optional_reads import Cancel

Result = TypeVar("Result")


class _Waiting:
    """All that obstore asks of an event loop: a future, and a call that fills it."""

    def create_future(self) -> Any:
        """Create a future that threads wait for."""
        return Future()

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:  # noqa: ARG002
        """Fill the future, in obstore's thread."""
        with contextlib.suppress(InvalidStateError):  # cancelled at this very moment
            callback(*args)


class _Answer:
    """A future without a wait, which obstore fills and which calls one function."""

    __slots__ = ("_callbacks", "_is_done", "_told", "cancelled_by_us")

    def __init__(self, told: Callable[[Any], None]) -> None:
        self._told = told
        self._callbacks: list[Callable[[_Answer], object]] = []
        self._is_done = False
        self.cancelled_by_us = False

    def add_done_callback(self, function: Callable[[_Answer], object]) -> None:
        """Store a callback of obstore, which learns by it that the future is cancelled."""
        self._callbacks.append(function)

    def cancelled(self) -> bool:
        """Whether it is cancelled; obstore asks before it fills this."""
        return self.cancelled_by_us

    def set_result(self, result: Any) -> None:
        self._end(result)

    def set_exception(self, error: BaseException) -> None:
        self._end(error)

    def _end(self, answer: Any) -> None:
        if not self._is_done:
            self._is_done = True
            callbacks, self._callbacks = self._callbacks, []
            for function in callbacks:
                function(self)
            self._told(answer)

    def cancel(self) -> None:
        """Cancel the request: the outcome is a CancelledReadError, unless the answer came first."""
        if not self._is_done:
            self.cancelled_by_us = True
            self._end(CancelledReadError("cancelled"))


class _Telling:
    """The loop of one started read: its future is filled, and calls back, in obstore's thread."""

    __slots__ = ("answer", "told")

    def __init__(self, told: Callable[[Any], None]) -> None:
        self.told = told
        self.answer: _Answer | None = None

    def create_future(self) -> Any:
        self.answer = _Answer(self.told)
        return self.answer

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:  # noqa: ARG002
        callback(*args)


_LOOP: Final = cast(asyncio.AbstractEventLoop, _Waiting())


def start_read(start: Callable[[], Awaitable[Result]], told: Callable[[Result | BaseException], None]) -> Cancel:
    """Begin one asynchronous call of obstore's; ``told`` gets its answer, or its error, in obstore's thread.

    Args:
        start: Makes the call; runs here, where an event loop seems to run.
        told: Called once; must not raise, nor wait.

    Returns:
        What ends the request.
    """
    loop = _Telling(told)
    outside = asyncio._get_running_loop()  # noqa: SLF001 - as below
    asyncio._set_running_loop(cast(asyncio.AbstractEventLoop, loop))  # noqa: SLF001
    try:
        start()
    except BaseException as error:  # noqa: BLE001 - passed on, as later errors are
        told(error)
        return _nothing
    finally:
        asyncio._set_running_loop(outside)  # noqa: SLF001
    assert loop.answer is not None, "obstore asks the loop for a future"
    return loop.answer.cancel


def _nothing() -> None:
    """Do nothing: there is no request to end."""


def read_cancellable(
    start: Callable[[], Awaitable[Result]],
    *,
    slow_seconds: float | None = None,
    when_slow: Callable[[Cancel], Cancel] = lambda _: _nothing,
) -> Result:
    """Wait for one asynchronous call of obstore's, unless a scope of this thread's is cancelled.

    Args:
        start: Makes the call; runs here, where an event loop seems to run.
        slow_seconds: After which ``when_slow`` is called; None: never.
        when_slow: Called in this thread with the function that cancels the call; the function that it returns is called
            at the end.

    Raises:
        CancelledReadError: it was. Else the call's error. An interrupt of this thread ends the call too.
    """
    require_wanted()
    outside = asyncio._get_running_loop()  # noqa: SLF001 - exported for implementers of loops
    asyncio._set_running_loop(_LOOP)  # noqa: SLF001
    try:
        answer = cast("Future[Result]", start())
    finally:
        asyncio._set_running_loop(outside)  # noqa: SLF001
    try:
        with ended_by_scopes(answer.cancel):
            if slow_seconds is not None and not _is_done_within(answer, slow_seconds):
                end = when_slow(lambda: _ignored(answer.cancel()))
                try:
                    return answer.result()
                finally:
                    end()
            return answer.result()
    except CancelledError:
        raise CancelledReadError("cancelled") from None
    finally:
        answer.cancel()


def _ignored(_: object) -> None:
    """Ignore an outcome."""


def _is_done_within(answer: Future[Any], seconds: float) -> bool:
    try:
        answer.exception(seconds)
    except TimeoutError:
        return answer.done()
    except CancelledError:
        return True
    return True
