"""The Scheduler of production: threads, locks and conditions of this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from typing import TypeVar

from tierlog.errors import NoThreadError
from tierlog.runtime.machine.scheduling import Condition, Future, InlinePool, Lock, PendingFuture, Pool, run_into
from tierlog.runtime.machine.thread_pool import ThreadPool

Result = TypeVar("Result")


class ThreadScheduler:
    """The Scheduler of this process."""

    @property
    def cores(self) -> int:
        """How many cores this process may use."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def lock(self) -> Lock:
        """A lock of this process."""
        return threading.Lock()

    def condition(self) -> Condition:
        """A condition of this process."""
        return threading.Condition(threading.Lock())

    def future(self) -> PendingFuture[Result]:
        """A future whose maker calls ``set_result`` or ``set_exception``."""
        future: ThreadFuture[Result] = ThreadFuture()
        future.set_running_or_notify_cancel()  # or whoever waits could cancel it, and its maker fail to fill it
        return future

    def pool(self, workers: int, *, name: str) -> Pool:
        """A pool whose workers start when there is work."""
        return ThreadPool(workers, name) if workers else InlinePool()

    def start(self, function: Callable[[], None], *, name: str) -> Future[None]:
        """Run a long task in a thread of its own, which does not keep the process alive."""
        future: ThreadFuture[None] = ThreadFuture()
        thread = threading.Thread(target=run_into, args=(future, function), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as cause:
            raise NoThreadError(f"no thread for {name}: {cause}") from cause
        return future
