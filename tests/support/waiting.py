"""Waiting in tests: for what threads bring about that nobody joins, and for what must end by itself."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

#: What comes about at all does so within this time, on a busy machine that is four times as slow, too.
LIMIT_SECONDS: Final = 60.0
#: A time limit that must not be what ends a call: such a call has not ended within ``LIMIT_SECONDS``.
ENDLESS_SECONDS: Final = 600
#: The same of a store.
ENDLESS_STORE: Final = {"store.timeout": f"{ENDLESS_SECONDS}s"}


@contextmanager
def ends() -> Iterator[None]:
    """Fail if the block takes ``LIMIT_SECONDS``: what the test means did not end it, but a limit of something else."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < LIMIT_SECONDS


def wait_until(holds: Callable[[], bool]) -> None:
    """Return as soon as it holds; fail the test if it does not within ``LIMIT_SECONDS``."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.005)


async def until(holds: Callable[[], bool]) -> None:
    """As ``wait_until``, on an event loop."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it does not come about"
        await asyncio.sleep(0.005)


def stands(thread: threading.Thread) -> bool:
    """Whether a thread waits for another one, in a condition or an event: it has done what comes before."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and (frame.f_code.co_filename, frame.f_code.co_name) == (threading.__file__, "wait")
