"""Waiting in tests for what threads do that nobody joins."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], bool]) -> None:
    """Return as soon as it holds; fail the test if it does not within 20 seconds."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)
