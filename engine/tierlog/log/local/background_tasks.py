"""Work that a log leaves for later: syncing closed segments, removing files that were set aside, retention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class BackgroundTasks(Protocol):
    """Where a log leaves work. A function must not raise: what fails it tells its log, which goes offline."""

    def submit(self, function: Callable[[], None], *, delay_ms: int = 0) -> None:
        """Have a function called once, in another thread, after a delay. Never waits, never raises; after ``close``
        nothing is called any more.
        """
