"""Waiting in tests for what threads do that nobody joins."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable


def wait_until(holds: Callable[[], bool]) -> None:
    """Return as soon as it holds; fail the test if it does not within a minute, which is long on a busy machine too."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def stands(thread: threading.Thread) -> bool:
    """Whether a thread waits for another one, in a condition or an event: it has done what comes before."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and (frame.f_code.co_filename, frame.f_code.co_name) == (threading.__file__, "wait")
