"""Bodies that are sent again: who limits what flows is asked before, however deep below it is that a try fails.

As with ``cancelling``, by the block that the call runs in: stores that wrap others, third parties' among them, need not
know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_ask: Final[ContextVar[Callable[[], None] | None]] = ContextVar("tierlog_ask_before_resending", default=None)


@contextmanager
def asked_before_resending(ask: Callable[[], None]) -> Iterator[None]:
    """``ask`` is called before a body goes out once more in the block, in this thread; it may wait, or raise."""
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


def before_resending() -> None:
    """Called by whoever sends the same body a second time. Raises what the block's ``ask`` raises."""
    ask = _ask.get()
    if ask is not None:
        ask()
