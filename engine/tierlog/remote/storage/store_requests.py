"""Reads of a store for fetches: which goes next, how many are under way, and what each is answered.

A request under way holds no thread where the store can begin reads; for a store that only blocks there is a pool, whose
threads are those reads. Descriptions of segments and indexes go before chunks, chunks that a reader waits for before
those fetched ahead, and partitions take turns. Every byte waits for the download limit, and closing ends all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import IntEnum
from typing import Any, Final

from tierlog._native.files import ReadyFile
from tierlog.errors import CorruptObjectError, StoreError
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.machine.cancelling import CancelledReadError, CancelScope, cancelled_by, require_wanted
from tierlog.runtime.machine.scheduling import NotSubmitted, Pool
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.protocol.optional_reads import (
    Answer,
    Cancel,
    find_direct_reads,
    find_ready_reads,
    find_started_reads,
)
from tierlog.runtime.stores.wrappers.rate_limiter import LIMITED_REQUEST_BYTES, RateLimiter
from tierlog.runtime.waiting.turns import FairQueue
from tierlog.runtime.waiting.waits import GOES_ON, SharedLoad, Wait, closed_error, refusal

#: Requests for chunks under way at once, where the store needs no thread for each.
REQUESTS_MAX: Final = 512
#: Threads for a store that only blocks, where ``fetch.chunk.cache.thread.pool.size`` leaves it to us; made as needed.
BLOCKING_THREADS: Final = 64
#: Beside those of chunks, for descriptions and indexes: they never wait behind chunks.
_DESCRIPTION_REQUESTS_MAX: Final = 256
_DESCRIPTION_THREADS: Final = 8


class Lane(IntEnum):
    """The order of requests: all of a lower lane go before those of a higher one."""

    DESCRIPTIONS = 0
    READERS = 1
    AHEAD = 2


class ReadRequest:
    """A request for one range of one object, with its callbacks.

    Args:
        key: Of the object.
        start, end_exclusive: In it.
        name: For messages.
        lane: What goes before.
        turn: Whose turns go round: the partition.
        on_answer: Called with the bytes (a memoryview) or the error, once; must not raise, nor wait.
        is_exact: A shorter answer is an error; else it is the end of the object.
        before: Called when its turn has come, before the store is asked; False drops the request, without an answer. It
            may move ``start``.
    """

    __slots__ = (
        "asked_bytes",
        "before",
        "cancel_sent",
        "cut",
        "end_exclusive",
        "is_cancelled",
        "is_exact",
        "is_queued",
        "key",
        "lane",
        "name",
        "on_answer",
        "start",
        "turn",
    )

    def __init__(
        self,
        key: str,
        start: int,
        end_exclusive: int,
        *,
        name: str,
        lane: Lane,
        turn: Hashable,
        on_answer: Callable[[memoryview | BaseException], None],
        is_exact: bool = True,
        before: Callable[[ReadRequest], bool] | None = None,
    ) -> None:
        self.key = key
        self.start = start
        self.end_exclusive = end_exclusive
        self.name = name
        self.lane = lane
        self.turn = turn
        self.on_answer = on_answer
        self.is_exact = is_exact
        self.before = before
        self.asked_bytes = 0
        self.is_queued = self.is_cancelled = False
        self.cancel_sent: Cancel | None = None
        self.cut: _CutRead | None = None


class _CutRead:
    """The answer of a request that the download limit cuts: its memory, and how far it is filled."""

    def __init__(self, size_bytes: int) -> None:
        self.data = new_buffer(size_bytes)
        self.done = 0

    def add(self, found: memoryview, wanted_bytes: int) -> bool:
        """Append the next bytes; False if they are fewer than were asked for, since the object ends."""
        self.data[self.done : self.done + len(found)] = found
        self.done += len(found)
        return len(found) == wanted_bytes


class StoreRequests:
    """The reads of one store: queued by lane and turn, held to a limit, ended by a close.

    Args:
        store: Answers them.
        limiter: Of their bytes a second; None for no limit.
        metrics: Counts their bytes.
        machine: Its threads, clock and locks.
        blocking_threads: For a store that only blocks.

    Attributes:
        progress_at_seconds: When a request was last sent or answered, by the machine's monotonic clock.

    Thread safety: any number of threads; no lock is held across a store call.
    """

    def __init__(
        self,
        store: ObjectStore,
        limiter: RateLimiter | None,
        metrics: StorageMetrics,
        machine: Machine,
        *,
        blocking_threads: int = BLOCKING_THREADS,
    ) -> None:
        self.store = store
        self.metrics = metrics
        self._limiter = limiter
        self._machine = machine
        self._clock = machine.clock
        self._lock = machine.scheduler.lock()
        self._started = find_started_reads(store)
        self._direct = find_direct_reads(store)
        self._ready = find_ready_reads(store)
        self._most = (
            (_DESCRIPTION_REQUESTS_MAX, REQUESTS_MAX)
            if self._started is not None
            else (_DESCRIPTION_THREADS, max(1, blocking_threads))
        )
        self._pools: list[Pool] = []
        self._granting = machine.scheduler.pool(1, name="tierlog-limit")
        self._blocking_threads = blocking_threads
        self._queues: tuple[FairQueue[ReadRequest], ...] = tuple(FairQueue() for _ in Lane)
        self._running: dict[ReadRequest, None] = {}
        self._counts = [0, 0]  # under way: descriptions, chunks
        self._is_pumping = self._is_granting = self._again = self._closed = False
        self._scope = CancelScope(machine.scheduler)
        self.progress_at_seconds = self._clock.monotonic_seconds()

    # --- in the caller's thread: a disk, or memory ---

    def read_here(self, key: str, start: int, end_exclusive: int, name: str, *, is_exact: bool = True) -> memoryview:
        """Read a range of an object in this thread, past the queue: for a local store, where a read is a copy.

        Raises:
            CorruptObjectError: the object ends before, and ``is_exact``. StoreError and its kinds.
        """
        limiter = self._limiter
        if self._closed:
            raise closed_error()
        if limiter is None or limiter.bytes_per_second is None or not is_exact:
            found = self._call(key, start, end_exclusive)
            self._charge(0 if is_exact else len(found))
        else:
            found = self._read_limited(limiter, key, start, end_exclusive)
        self.metrics.count_fetched(len(found))
        return _exactly(found, start, end_exclusive, name) if is_exact else found

    @property
    def reads_directly(self) -> bool:
        """Whether ``read_into`` may be called: no limit cuts reads, and the store reads into the caller's memory."""
        return self._direct is not None and (self._limiter is None or self._limiter.bytes_per_second is None)

    def read_into(self, key: str, start: int, out: memoryview, name: str) -> None:
        """Read exactly as many bytes as ``out`` takes into it, in this thread; only where ``reads_directly``.

        Raises: as ``read_here``; any byte of ``out`` may have been written.
        """
        if self._closed:
            raise closed_error()
        assert self._direct is not None
        size = self._direct.fetch_range_into(key, out, start_position=start)
        self.metrics.count_fetched(size)
        _exactly(out[:size], start, start + len(out), name)

    def open_ready(self, key: str) -> ReadyFile | None:
        """Open the file of an object, for event loops, which count their reads in ``metrics``. Does not wait; None
        where the store has no file, for whatever reason: ``read_into`` raises that reason.
        """
        return None if self._ready is None or self._closed else self._ready.open_ready(key)

    def _read_limited(self, limiter: RateLimiter, key: str, start: int, end_exclusive: int) -> memoryview:
        parts = _CutRead(end_exclusive - start)
        for at in range(start, end_exclusive, LIMITED_REQUEST_BYTES):
            until = min(at + LIMITED_REQUEST_BYTES, end_exclusive)
            limiter.acquire(until - at, check=self._require_open)
            if not parts.add(self._call(key, at, until), until - at):
                break
        return parts.data[: parts.done]

    def _call(self, key: str, start: int, end_exclusive: int) -> memoryview:
        if self.store.is_local:
            found = self.store.fetch_range(key, start_position=start, end_position_exclusive=end_exclusive)
            return memoryview(found).cast("B")
        return self._ended_by_close(
            lambda: memoryview(
                self.store.fetch_range(key, start_position=start, end_position_exclusive=end_exclusive)
            ).cast("B")
        )

    def _ended_by_close(self, call: Callable[[], memoryview]) -> memoryview:
        try:
            with cancelled_by(self._scope):
                require_wanted()
                return call()
        except CancelledReadError:
            self._require_open()
            raise

    def _require_open(self) -> None:
        if self._closed:
            raise closed_error()

    def _charge(self, size_bytes: int) -> None:
        """Charge the limit for bytes whose number was not known before: later requests wait for them."""
        if self._limiter is not None and size_bytes:
            self._limiter.charge(size_bytes)

    # --- queued ---

    def wait_of(self, load: SharedLoad[Any, Any], what: str, timeout_seconds: float) -> Wait:
        """Return a wait for a load: its time runs from when its request was sent, or the last sign that the queue
        moves.
        """
        return Wait(load, what, GOES_ON, timeout_seconds, lambda: load.began_at_seconds or self.progress_at_seconds)

    def note_sent(self, load: SharedLoad[Any, Any]) -> bool:
        """The load's request is sent now: its time runs. True, for ``ReadRequest.before``."""
        load.began_at_seconds = self._clock.monotonic_seconds()
        return True

    def start(self, request: ReadRequest) -> None:
        """Send a request when its turn comes, at once if there is room; ``on_answer`` gets the outcome."""
        with self._lock:
            is_closed = self._closed
            if not is_closed:
                request.is_queued = True
                self._queues[request.lane].put(request.turn, request)
        if is_closed:
            request.on_answer(closed_error())
        else:
            self._pump()

    def promote(self, request: ReadRequest) -> None:
        """Move a request that a reader waits for now into the lane of readers; a sent one stays."""
        with self._lock:
            if request.is_queued and self._queues[request.lane].remove(request.turn, request):
                request.lane = Lane.READERS
                self._queues[Lane.READERS].put(request.turn, request)
        self._pump()

    def cancel(self, request: ReadRequest) -> None:
        """End an unwanted request: it is not sent, or its connection closes; ``on_answer`` gets an error."""
        with self._lock:
            request.is_cancelled = True
            was_queued = request.is_queued and self._queues[request.lane].remove(request.turn, request)
            request.is_queued = request.is_queued and not was_queued
            cancel_sent = request.cancel_sent
        if was_queued:
            request.on_answer(CancelledReadError("cancelled"))
        elif cancel_sent is not None:
            cancel_sent()

    def _pump(self) -> None:
        """Send what there is room for; one thread at a time, so that an answer that comes at once does not nest."""
        with self._lock:
            self._again = True
            if self._is_pumping:
                return
            self._is_pumping = True
        while True:
            with self._lock:
                if not self._again:
                    self._is_pumping = False
                    return
                self._again = False
            if self._limiter is not None and self._limiter.bytes_per_second is not None:
                self._grant_in_a_thread()
                continue
            while (request := self._next()) is not None:
                self._send(request)

    def _next(self) -> ReadRequest | None:
        """Take the next request for which there is room; it counts as pending from here on."""
        with self._lock:
            for lane, queue in enumerate(self._queues):
                kind = min(lane, 1)
                if queue and self._counts[kind] < self._most[kind]:
                    request = queue.take()
                    request.is_queued = False
                    self._counts[kind] += 1
                    self._running[request] = None
                    return request
        return None

    def _grant_in_a_thread(self) -> None:
        """Wait, under a limit, for each grant in one thread, which ends when nothing is left to send."""
        with self._lock:
            if self._is_granting or self._closed or not any(self._queues):
                return
            self._is_granting = True
        try:
            self._granting.call_soon(self._grant)
        except NotSubmitted as error:
            with self._lock:
                self._is_granting = False
                refused = self._take_queued()
            for request in refused:
                request.on_answer(refusal(error))

    def _grant(self) -> None:
        limiter = self._limiter
        assert limiter is not None
        while True:
            request = self._next()
            if request is None:
                with self._lock:
                    room = [self._counts[k] < self._most[k] for k in (0, 1)]
                    if not any(queue and room[min(lane, 1)] for lane, queue in enumerate(self._queues)):
                        self._is_granting = False
                        return
                continue
            if request.is_exact:
                try:
                    limiter.acquire(self._part_bytes(request), check=lambda r=request: self._require_wanted(r))  # type: ignore[misc]
                except StoreError as error:
                    self._answered(request, error)
                    continue
            self._send(request)

    def _require_wanted(self, request: ReadRequest) -> None:
        self._require_open()
        if request.is_cancelled:
            raise CancelledReadError("cancelled")

    def _part_bytes(self, request: ReadRequest) -> int:
        """Bytes that the next answer of this request may have."""
        done = 0 if request.cut is None else request.cut.done
        left = request.end_exclusive - request.start - done
        limited = self._limiter is not None and self._limiter.bytes_per_second is not None
        return min(left, LIMITED_REQUEST_BYTES) if limited and request.is_exact else left

    def _send(self, request: ReadRequest) -> None:
        if request.cut is None and request.before is not None and not request.is_cancelled:
            if not request.before(request):
                self._ended(request)
                return
            request.before = None
        size = request.asked_bytes = self._part_bytes(request)
        start = request.start
        if request.cut is not None:
            start += request.cut.done
        elif start + size < request.end_exclusive:
            request.cut = _CutRead(request.end_exclusive - start)
        if request.is_cancelled:
            self._answered(request, CancelledReadError("cancelled"))
        elif self._started is None:
            self._send_blocking(request, start, start + size)
        else:
            cancel = self._started.start_fetch_range(
                request.key,
                start_position=start,
                end_position_exclusive=start + size,
                on_answer=lambda answer: self._answered(request, answer),
            )
            with self._lock:
                request.cancel_sent = cancel
                is_late = self._closed
            if is_late or request.is_cancelled:
                cancel()

    def _send_blocking(self, request: ReadRequest, start: int, end_exclusive: int) -> None:
        """Read in a thread of its own, from a store that has blocking calls alone."""
        scope = CancelScope(self._machine.scheduler)

        def work() -> None:
            try:
                with cancelled_by(scope):
                    answer: Answer = self._call(request.key, start, end_exclusive)
            except BaseException as error:  # noqa: BLE001 - the waiters must get it, whatever it is
                answer = error
            self._answered(request, answer)

        with self._lock:
            request.cancel_sent = scope.cancel
        try:
            self._pool(request.lane).submit(work)
        except NotSubmitted as error:
            self._answered(request, refusal(error))

    def _pool(self, lane: Lane) -> Pool:
        with self._lock:
            if not self._pools:
                scheduler = self._machine.scheduler
                some = _DESCRIPTION_THREADS if self._blocking_threads else 0
                self._pools = [
                    scheduler.pool(some, name="tierlog-describe"),
                    scheduler.pool(self._blocking_threads, name="tierlog-fetch"),
                ]
            return self._pools[min(lane, 1)]

    def _answered(self, request: ReadRequest, answer: Answer) -> None:
        """Pass an answer on, or ask for the next part of a request that the limit cuts; in any thread."""
        parts = request.cut
        if not isinstance(answer, BaseException):
            found = memoryview(answer).cast("B")
            self.metrics.count_fetched(len(found))
            if not request.is_exact:
                self._charge(len(found))
            if parts is not None:
                if parts.add(found, request.asked_bytes) and parts.done < len(parts.data):
                    self._ended(request, again=True)
                    return
                found = parts.data[: parts.done]
            answer = found
        self._ended(request, told=answer)

    def _ended(
        self, request: ReadRequest, *, told: memoryview | BaseException | None = None, again: bool = False
    ) -> None:
        with self._lock:
            if request not in self._running:
                return  # answered already, by a close
            del self._running[request]
            self._counts[min(request.lane, 1)] -= 1
            self.progress_at_seconds = self._clock.monotonic_seconds()
            request.cancel_sent = None
            closed = self._closed
            if again and not closed:
                request.is_queued = True
                self._queues[request.lane].put(request.turn, request, first=True)
        if (again and closed) or (isinstance(told, CancelledReadError) and closed):
            request.on_answer(closed_error())
        elif told is not None:
            request.on_answer(_checked(request, told))
        self._pump()

    def close(self) -> None:
        """End all requests with an error, and any later one; idempotent. Threads that the store stalls are left."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            waiting = self._take_queued()
            running, cancels = list(self._running), [r.cancel_sent for r in self._running]
            pools = self._pools
        self._scope.cancel()
        for request in waiting:
            request.on_answer(closed_error())
        for cancel in cancels:
            if cancel is not None:
                cancel()
        for request in running:
            self._ended(request, told=closed_error())
        for pool in (self._granting, *pools):
            pool.close(wait_seconds=0)

    def _take_queued(self) -> list[ReadRequest]:
        """Remove and return all that wait for their turn. The caller holds the lock."""
        taken = [queue.take() for queue in self._queues for _ in range(len(queue))]
        for request in taken:
            request.is_queued = False
        return taken


def _checked(request: ReadRequest, answer: memoryview | BaseException) -> memoryview | BaseException:
    if isinstance(answer, BaseException) or not request.is_exact:
        return answer
    try:
        return _exactly(answer, request.start, request.end_exclusive, request.name)
    except CorruptObjectError as error:
        return error


def _exactly(found: memoryview, start: int, end_exclusive: int, name: str) -> memoryview:
    """Raise CorruptObjectError if the object ends before."""
    if len(found) != end_exclusive - start:
        text = f"the object ends early: {end_exclusive - start} bytes wanted, {len(found)} there"
        raise CorruptObjectError(
            text, fault="TRUNCATED", position=start, expected=end_exclusive - start, found=len(found), where=name
        )
    return found
