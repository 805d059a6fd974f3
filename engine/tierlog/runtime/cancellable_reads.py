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

from tierlog.runtime.cancelling import CancelledReadError, ended_by_scopes, require_wanted

Result = TypeVar("Result")


class _Waiting:
    """All that obstore asks of an event loop: a future, and a call that fills it."""

    def create_future(self) -> Any:
        """One that threads wait for."""
        return Future()

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:  # noqa: ARG002
        """Fill it, in obstore's thread."""
        with contextlib.suppress(InvalidStateError):  # cancelled at this very moment
            callback(*args)


_LOOP: Final = cast(asyncio.AbstractEventLoop, _Waiting())


def read_cancellable(start: Callable[[], Awaitable[Result]]) -> Result:
    """Wait for one asynchronous call of obstore's, unless a scope of this thread's is cancelled.

    Args:
        start: Makes the call; runs here, where an event loop seems to run.

    Raises:
        CancelledReadError: it was. Else what the call raises. An interrupt of this thread ends the call too.
    """
    require_wanted()
    outside = asyncio._get_running_loop()  # noqa: SLF001 - exported for who implements a loop
    asyncio._set_running_loop(_LOOP)  # noqa: SLF001
    try:
        answer = cast("Future[Result]", start())
    finally:
        asyncio._set_running_loop(outside)  # noqa: SLF001
    try:
        with ended_by_scopes(answer.cancel):
            return answer.result()
    except CancelledError:
        raise CancelledReadError("cancelled") from None
    finally:
        answer.cancel()
