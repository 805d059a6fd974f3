"""Ranges decoded side by side and returned in order: every core works, one consumer sees one stream.

Each range under way has a buffer of a few record batches. A worker fills it and goes away when it is full; taking from
it calls a worker again. So nothing waits on a lock for a consumer that is slow or has gone, and memory is bounded by
(threads + 1) buffers, whatever the plan's size.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, Self

import pyarrow as pa

from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelScope, call_within
from tierlog.runtime.machine.process import Origin
from tierlog.runtime.machine.scheduling import CancelledError, Future, Pool, Scheduler
from tierlog.scan.scan_range import ScanRange

#: Record batches that wait in the buffer of one range.
BUFFERED_BATCHES = 4
THREADS_MAX = 16
#: Closing waits so long for what runs. What cannot be cancelled, as a read of a disk that hangs, ends by itself.
_CLOSE_SECONDS: Final = 1.0

ReadRange = Callable[[ScanRange], Iterator[pa.RecordBatch]]


class ParallelScan:
    """An iterator of record batches, in the order of the ranges; closing it, or dropping it, cancels what runs.

    Args:
        ranges: In the order wanted.
        read_range: Gives the record batches of one range; called on worker threads, closed when cancelled.
        threads: Workers; by default one a core, at most 16.
        machine: Its threads.
        on_close: Called once, when all is read, closed or failed: for what belongs to this scan.

    Raises (when iterated):
        What ``read_range`` raises, at the place in the order where it happened, and again at each call behind it.
        ValueError: it was closed before its end. ForkedProcessError: in a fork.

    Thread safety: one consumer; ``close`` from any thread.
    """

    def __init__(
        self,
        ranges: Iterable[ScanRange],
        read_range: ReadRange,
        *,
        threads: int | None = None,
        machine: Machine | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._closed = True  # until there is what closing takes
        self._ranges = iter(ranges)
        self._read_range = read_range
        self._machine = machine or Machine()
        self._threads = threads or min(self._machine.scheduler.cores, THREADS_MAX)
        self._on_close = on_close
        self._lock = self._machine.scheduler.lock()
        self._scope = CancelScope(self._machine.scheduler)
        self._pool: Pool | None = None
        self._origin = Origin()
        self._feeds: collections.deque[_RangeFeed] = collections.deque()
        self._end: Exception | None = None
        self._closed = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        self._origin.require("the reader")
        if self._end is not None:
            raise self._end
        try:
            batch = self._next()
        except Exception as error:
            self._end = error
            self.close()
            raise
        except BaseException:
            self.close()
            raise
        if batch is None:
            self._end = StopIteration()
            self.close()
            raise self._end
        return batch

    def _next(self) -> pa.RecordBatch | None:
        while True:
            self._top_up()
            if not self._feeds:
                return None
            batch = self._feeds[0].take()
            if batch is not None:
                return batch
            self._feeds.popleft()

    def _top_up(self) -> None:
        """Make the workers, with the first batch that is asked for: a reader that is never used costs none."""
        with self._lock:
            if self._closed:
                raise _closed_error()
            if self._pool is None:
                self._pool = self._machine.scheduler.pool(self._threads, name="tierlog-scan")
            while len(self._feeds) <= self._threads:
                scan_range = next(self._ranges, None)
                if scan_range is None:
                    return
                feed = _RangeFeed(self._machine.scheduler, self._pool, self._scope, self._read_range, scan_range)
                self._feeds.append(feed)

    @property
    def is_closed(self) -> bool:
        """Whether no batch comes any more: it was closed, read to its end, or failed."""
        return self._closed

    def close(self) -> None:
        """Cancel what runs and wait for it, a second at most; idempotent."""
        if not self._origin.is_here:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            feeds = list(self._feeds)
        for feed in feeds:
            feed.cancel()
        self._scope.cancel()
        if self._pool is not None:
            self._pool.close(wait_seconds=0)
        clock = self._machine.clock
        deadline_seconds = clock.monotonic_seconds() + _CLOSE_SECONDS
        waited = [feed.wait_ended(max(0.0, deadline_seconds - clock.monotonic_seconds())) for feed in feeds]
        if all(waited):
            self._finish()
        else:
            self._machine.scheduler.start(self._finish, name="tierlog-scan-close")

    def _finish(self) -> None:
        """Wait for the workers, and close what belongs to the scan."""
        if self._pool is not None:
            self._pool.close()
        if self._on_close is not None:
            self._on_close()

    def __del__(self) -> None:
        if not self._closed:  # it was made, as far as there is anything to close
            self.close()


def _closed_error() -> ValueError:
    return ValueError("the reader is closed")


class _RangeFeed:
    """The buffer of one range, filled by a worker."""

    def __init__(
        self,
        scheduler: Scheduler,
        pool: Pool,
        scope: CancelScope,
        read_range: ReadRange,
        scan_range: ScanRange,
    ) -> None:
        self._pool = pool
        self._scope = scope
        self._read_range = read_range
        self._scan_range = scan_range
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._buffer: collections.deque[pa.RecordBatch] = collections.deque()
        self._changed = scheduler.condition()
        self._filling = True
        self._ended = False
        self._cancelled = False
        self._error: BaseException | None = None
        self._filled = self._submit()

    def _submit(self) -> Future[None]:
        return self._pool.submit(partial(call_within, self._scope, self._fill))

    def take(self) -> pa.RecordBatch | None:
        """Return the next batch; None behind the last. Raises the worker's error, after the batches before it."""
        with self._changed:
            while not self._buffer and not self._ended and not self._cancelled:
                self._changed.wait()
            if self._cancelled:
                raise _closed_error()
            if self._buffer:
                batch = self._buffer.popleft()
                if not self._filling and not self._ended and len(self._buffer) <= BUFFERED_BATCHES // 2:
                    self._filling = True
                    self._filled = self._submit()
                return batch
            if self._error is not None:
                raise self._error
            return None

    def cancel(self) -> None:
        """End the feed: its consumer is woken; the worker ends at its next batch."""
        with self._changed:
            self._cancelled = True
            self._buffer.clear()
            self._changed.notify_all()
            idle = not self._filling
        if idle:
            self._end(None)

    def wait_ended(self, timeout: float) -> bool:
        """Whether the worker of a cancelled feed has gone, after so many seconds at most."""
        try:
            self._filled.exception(timeout)
        except TimeoutError:
            return False
        except CancelledError:  # it never began, and nothing else closes an earlier worker's iterator
            self._end(None)
        return True

    def _fill(self) -> None:
        """Decode, in a worker, until the buffer is full or the range is done."""
        try:
            if self._batches is None:
                self._batches = self._read_range(self._scan_range)
            while True:
                with self._changed:
                    if self._cancelled:
                        break
                    if len(self._buffer) >= BUFFERED_BATCHES:
                        self._filling = False
                        return
                batch = next(self._batches, None)
                if batch is None:
                    break
                with self._changed:
                    if not self._cancelled:
                        self._buffer.append(batch)
                    self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - carried to the consumer, whatever it is
            self._end(error)
        else:
            self._end(None)

    def _end(self, error: BaseException | None) -> None:
        batches, self._batches = self._batches, None
        close = getattr(batches, "close", None)
        if close is not None:
            close()
        with self._changed:
            self._error = self._error or error
            self._ended = True
            self._filling = False
            self._changed.notify_all()
