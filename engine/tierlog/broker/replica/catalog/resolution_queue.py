"""The queue of partitions to resolve: in one pool of threads, with a deadline for each request of the store.

A store may stall for some partitions alone: one prefix of its keys, one server of its own. A resolution whose request
is not answered soon is cancelled, and tried once more with the deadline of a read. Such second tries hold at most half
of the threads, and a partition that needed one is first tried so until the store has answered: threads are left for all
others, however many partitions stall.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from tierlog.errors import StoreError, StoreUnavailableError, TierlogError
from tierlog.remote.api import TopicIdPartition
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelScope, call_within
from tierlog.runtime.machine.scheduling import NotSubmitted
from tierlog.runtime.waiting.loops import LoopCalls
from tierlog.scan.following.resolution import Resolution

_log = logging.getLogger(__name__)

#: Partitions that are resolved at once, and those among them whose store did not answer soon.
THREADS: Final = 16
STALLED_MAX: Final = THREADS // 2
#: How long a request of a first try may take.
SOON_SECONDS: Final = 1.0
#: How often requests under way are compared with their deadlines.
_LOOK_SECONDS: Final = 0.25
#: Seconds that a close waits for the threads.
_CLOSE_SECONDS: Final = 5.0


class _Try(CancelScope):
    """One try of a resolution: its requests, which it cancels, and their start times.

    Args:
        partition: The partition to resolve.
        resolve: Called in a thread.
        settle: Called with the result, on the event loop.
        fail: Called with the error instead.
        seconds: How long one request may take.
        machine: Its clock and locks.
    """

    def __init__(
        self,
        partition: TopicIdPartition,
        resolve: Callable[[], Resolution],
        settle: Callable[[Resolution], None],
        fail: Callable[[Exception], None],
        *,
        seconds: float,
        machine: Machine,
    ) -> None:
        super().__init__(machine.scheduler)
        self.partition = partition
        self.resolve = resolve
        self.settle = settle
        self.fail = fail
        self.seconds = seconds
        self._clock = machine.clock
        self._began: dict[int, float] = {}  # the oldest request first

    def enter(self, cancel: Callable[[], object]) -> int:
        token = super().enter(cancel)
        with self._lock:
            self._began[token] = self._clock.monotonic_seconds()
        return token

    def leave(self, token: int) -> None:
        super().leave(token)
        with self._lock:
            self._began.pop(token, None)

    def is_late(self) -> bool:
        """Whether a request is past its deadline."""
        with self._lock:
            began = next(iter(self._began.values()), None)
        return began is not None and self._clock.monotonic_seconds() - began >= self.seconds


class ResolutionQueue:
    """The queue of partitions that threads resolve, in the order in which they are submitted. On one event loop.

    Args:
        request_seconds: How long one request of a second try may take.
        machine: Its clock and threads.
    """

    def __init__(self, *, request_seconds: float, machine: Machine) -> None:
        self._request_seconds = request_seconds
        self._machine = machine
        self._loop = LoopCalls()
        self._pool = machine.scheduler.pool(THREADS, name="tierlog-replica-resolving")
        self._pending: deque[_Try] = deque()
        self._pending_again: deque[_Try] = deque()
        self._running: set[_Try] = set()
        self._stalled: set[TopicIdPartition] = set()
        self._is_looking = False
        self._is_closed = False

    def submit(
        self,
        partition: TopicIdPartition,
        resolve: Callable[[], Resolution],
        settle: Callable[[Resolution], None],
        fail: Callable[[Exception], None],
    ) -> None:
        """Resolve a partition when a thread is free; ``settle`` or ``fail`` is called on the event loop, once.

        ``fail`` gets a StoreUnavailableError where the store does not answer a request in time.
        """
        is_stalled = partition in self._stalled
        seconds = self._request_seconds if is_stalled else min(SOON_SECONDS, self._request_seconds)
        made = _Try(partition, resolve, settle, fail, seconds=seconds, machine=self._machine)
        (self._pending_again if is_stalled else self._pending).append(made)
        self._start()

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call a function on the event loop after a time, unless this is stopped meanwhile."""
        self._machine.timers.call_later(seconds, lambda: None if self._is_closed else call())

    def _start(self) -> None:
        while not self._is_closed and len(self._running) < THREADS:
            stalled = sum(each.partition in self._stalled for each in self._running)
            if self._pending_again and stalled < STALLED_MAX:
                self._run(self._pending_again.popleft())
            elif self._pending:
                self._run(self._pending.popleft())
            else:
                break

    def _run(self, started: _Try) -> None:
        def run() -> None:
            try:
                resolution = call_within(started, started.resolve)
            except Exception as error:  # noqa: BLE001 - raised in the callers
                self._loop.submit(partial(self._failed, started, error))
            else:
                self._loop.submit(partial(self._settled, started, resolution))

        self._running.add(started)
        try:
            self._pool.submit(run)
        except NotSubmitted as error:
            failed = StoreError(f"no thread resolves {started.partition}: {error}")
            self._loop.submit(partial(self._failed, started, failed))
        if not self._is_looking:
            self._is_looking = True
            self._machine.timers.call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Cancel late tries."""
        for each in self._running:
            if not each.cancelled and each.is_late():
                each.cancel()
        self._is_looking = bool(self._running) and not self._is_closed
        if self._is_looking:
            self._machine.timers.call_later(_LOOK_SECONDS, self._look)

    def _settled(self, ended: _Try, resolution: Resolution) -> None:
        self._running.discard(ended)
        self._stalled.discard(ended.partition)
        ended.settle(resolution)
        self._start()

    def _failed(self, ended: _Try, error: Exception) -> None:
        self._running.discard(ended)
        if not ended.cancelled or self._is_closed:
            self._stalled.discard(ended.partition)
            if not isinstance(error, TierlogError):
                _log.error("%s cannot be resolved", ended.partition, exc_info=error)
            ended.fail(error)
        elif ended.partition in self._stalled:
            text = f"{ended.partition}: the store has not answered for {ended.seconds:.3g} s; a later try may succeed"
            ended.fail(StoreUnavailableError(text))
        else:
            self._stalled.add(ended.partition)
            self.submit(ended.partition, ended.resolve, ended.settle, ended.fail)
        self._start()

    async def stop(self) -> None:
        """Begin nothing any more, and cancel running tries."""
        self._is_closed = True
        self._pending.clear()
        self._pending_again.clear()
        for each in self._running:
            each.cancel()
        await self._loop.cancel()

    def close(self) -> None:
        """Wait for the threads, behind ``stop``. Blocks: in a thread."""
        self._pool.close(wait_seconds=_CLOSE_SECONDS)
