"""The running copies: phase, part and age of each, its deadline, one log line for all.

Why: the plugin's uploads can stop for good without a word. Here a copy that outlives its deadline is cancelled even if
the store never answers, every running copy can be seen in the metrics, and those that take long are named in the log.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tierlog.errors import ObjectConflictError, StoreError, StoreNotReachedError, StoreUnavailableError
from tierlog.remote.api import RemoteLogSegmentId
from tierlog.remote.storage.storage_errors import CopyAbandonedError, CopyDeadlineError
from tierlog.remote.storage.storage_metrics import PHASES, StorageMetrics
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelScope, call_within
from tierlog.runtime.machine.scheduling import CancelledError, Condition, Future, Pool
from tierlog.runtime.stores.protocol.object_store import StoredObject

Result = TypeVar("Result")

_log = logging.getLogger(__name__)

#: Seconds for an undo beyond its deadline, or the close: its caller returns within two seconds.
UNDO_SECONDS: Final = 1.2
#: Seconds in which a closing manager's copies have been cancelled, undone and left.
_CLOSE_SECONDS: Final = 1.6
#: Interval of the watchdog's looks, and of its log lines.
_LOOK_SECONDS: Final = 1.0
_SAY_SECONDS: Final = 30.0
#: After so long without a copy the watchdog ends, and buffers go back to the system.
_IDLE_SECONDS: Final = 30.0
#: Before the first line: most copies are done by then.
_SLOW_SECONDS: Final = 20.0


@dataclass(slots=True)
class RunningCopy:
    """One copy under way. Its own thread writes, others read.

    Attributes:
        phase: One of PHASES.
        part: Number of the part that was submitted last, from 1; 0 before the first.
        stored_bytes: Bytes that the store confirmed so far.
    """

    segment_id: RemoteLogSegmentId
    began_seconds: float
    deadline_seconds: float
    machine: Machine
    phase: str = "waiting"
    part: int = 0
    stored_bytes: int = 0
    called_off: str = ""
    called_off_seconds: float = math.inf
    changed: Condition = field(init=False)

    def __post_init__(self) -> None:
        self.changed = self.machine.scheduler.condition()

    def age_seconds(self) -> float:
        """Return seconds since the copy began."""
        return self.machine.clock.monotonic_seconds() - self.began_seconds

    def check(self) -> None:
        """Raise CopyDeadlineError past the deadline, CopyAbandonedError once the manager closes."""
        if self.called_off:
            raise self.abandoned()
        if self.machine.clock.monotonic_seconds() >= self.deadline_seconds:
            raise CopyDeadlineError(
                f"{self.segment_id}: the copy was called off after {self.age_seconds():.0f} s "
                f"in phase {self.phase}, part {self.part}, {self.stored_bytes} bytes stored"
            )

    def abandoned(self) -> CopyAbandonedError:
        """Return the error of a cancelled copy."""
        return CopyAbandonedError(f"{self.segment_id}: {self.called_off} in phase {self.phase}, part {self.part}")

    def call_off(self, reason: str) -> None:
        """Cancel the copy: waits for it, and checks, raise CopyAbandonedError from here on."""
        with self.changed:
            if not self.called_off:
                self.called_off, self.called_off_seconds = reason, self.machine.clock.monotonic_seconds()
            self.changed.notify_all()

    def undo_seconds_left(self) -> float:
        """Return the seconds that its undo may still be waited for; not above 0 once the time is over."""
        ends = min(self.deadline_seconds, self.called_off_seconds) + UNDO_SECONDS
        return ends - self.machine.clock.monotonic_seconds()

    def wait_for(self, future: Future[Result]) -> Result:
        """Wait for the result of a call, unless the copy is cancelled before: then the call goes on by itself."""
        if not future.done():
            future.add_done_callback(self._wake)
            with self.changed:
                while not future.done():
                    self.check()
                    left = self.deadline_seconds - self.machine.clock.monotonic_seconds()
                    self.changed.wait(min(max(left, 0.001), _LOOK_SECONDS))
        try:
            return future.result()
        except CancelledError as cause:
            raise CopyAbandonedError(f"{self.segment_id}: the manager was closed") from cause

    def _wake(self, _: object) -> None:
        with self.changed:
            self.changed.notify_all()

    def describe(self) -> str:
        """Describe the copy's phase, part and age, for the log."""
        return (
            f"{self.segment_id} {self.phase} part {self.part} "
            f"({self.stored_bytes} bytes stored) for {self.age_seconds():.0f} s"
        )


class RunningCopies:
    """All copies under way of one manager, and their watchdog.

    Args:
        metrics: Gets their number by phase, and the age of the oldest.
        deadline_seconds: Of each copy, from its begin.
        on_idle: Called by the watchdog when nothing was copied for half a minute.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        metrics: StorageMetrics,
        *,
        machine: Machine | None = None,
        deadline_seconds: float,
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        self._machine = machine or Machine()
        self._metrics = metrics
        self._deadline_seconds = deadline_seconds
        self._on_idle = on_idle
        self._changed = self._machine.scheduler.condition()
        self._copies: dict[RemoteLogSegmentId, RunningCopy] = {}
        self._watchdog: Future[None] | None = None
        self._closed = False
        for phase in PHASES:
            metrics.ask("copies_running", lambda phase=phase: float(self._count(phase)), label=phase)  # type: ignore[misc]
        metrics.ask("oldest_copy_age_seconds", self.oldest_age_seconds)

    def begin(self, segment_id: RemoteLogSegmentId) -> RunningCopy:
        """Enter a copy; give it to ``end`` whatever happens.

        Raises:
            StoreUnavailableError: the same id is being copied: let that end first. CopyAbandonedError: closed.
            NoThreadError: the watchdog does not run, and gets no thread.
        """
        now = self._machine.clock.monotonic_seconds()
        copy = RunningCopy(segment_id, now, now + self._deadline_seconds, self._machine)
        with self._changed:
            if self._closed:
                raise CopyAbandonedError(f"{segment_id}: the manager is closed")
            if segment_id in self._copies:
                raise StoreUnavailableError(f"{segment_id}: is being copied: {self._copies[segment_id].describe()}")
            if self._watchdog is None:
                self._watchdog = self._machine.scheduler.start(self._watch, name="tierlog-copy-watchdog")
            self._copies[segment_id] = copy
        return copy

    def end(self, copy: RunningCopy) -> None:
        """Take out a copy that has finished, or has failed and was cleaned up."""
        with self._changed:
            self._copies.pop(copy.segment_id, None)
            self._changed.notify_all()

    def call_off_copy(self, segment_id: RemoteLogSegmentId, reason: str) -> bool:
        """Cancel one copy, if it runs; does not wait."""
        with self._changed:
            copy = self._copies.get(segment_id)
        if copy is not None:
            copy.call_off(reason)
        return copy is not None

    def copies(self) -> list[RunningCopy]:
        """Return the copies under way, oldest first."""
        with self._changed:
            return sorted(self._copies.values(), key=lambda copy: copy.began_seconds)

    def oldest_age_seconds(self) -> float:
        """Return the age of the oldest copy; 0 without one."""
        return max((copy.age_seconds() for copy in self.copies()), default=0.0)

    def _count(self, phase: str) -> int:
        return sum(copy.phase == phase for copy in self.copies())

    def _watch(self) -> None:
        """Log slow copies; those past their deadline cancel themselves, in ``check`` and ``wait_for``."""
        clock = self._machine.clock
        idle_since = said_at = clock.monotonic_seconds()
        while True:
            with self._changed:
                if self._closed:
                    return
                self._changed.wait(_LOOK_SECONDS)
                now = clock.monotonic_seconds()
                if self._copies:
                    idle_since = now
                elif now - idle_since >= _IDLE_SECONDS:
                    self._watchdog = None
                    break
            slow = [copy for copy in self.copies() if copy.age_seconds() >= _SLOW_SECONDS]
            if slow and now - said_at >= _SAY_SECONDS:
                said_at = now
                _log.warning("copies that take long: %s", "; ".join(copy.describe() for copy in slow))
        self._on_idle()

    def call_off(self) -> None:
        """Cancel running copies, and let none begin any more; does not wait, idempotent."""
        with self._changed:
            self._closed = True
            running = list(self._copies.values())
            self._changed.notify_all()
        for copy in running:
            copy.call_off("the manager was closed")

    def close(self) -> None:
        """Cancel running copies, wait for their undo, two seconds at most, and end the watchdog."""
        self.call_off()
        clock = self._machine.clock
        with self._changed:
            since = min((copy.called_off_seconds for copy in self._copies.values()), default=math.inf)
            while self._copies and (left := since + _CLOSE_SECONDS - clock.monotonic_seconds()) > 0:
                self._changed.wait(left)
            left_behind = list(self._copies.values())
            watchdog = self._watchdog
        for copy in left_behind:
            _log.warning("closed while a copy had not ended: %s", copy.describe())
        if watchdog is not None:
            watchdog.result()


class CopyRequests:
    """The requests of one copy, ended with it.

    Args:
        running: The copy.
        pool: Sends.

    Attributes:
        doubtful: Whether a request was ended, or failed, that the store may do all the same.

    Thread safety: any number of threads.
    """

    def __init__(self, running: RunningCopy, pool: Pool) -> None:
        self.doubtful = False
        self._running = running
        self._pool = pool
        scheduler = running.machine.scheduler
        self._scope = CancelScope(scheduler)
        self._lock = scheduler.lock()
        self._tried: dict[str, None] = {}
        self._under_way: dict[Future[object], None] = {}  # in their order: a simulation repeats
        self._ended = False

    @property
    def tried_keys(self) -> list[str]:
        """Keys of objects that may have been stored, in the order of the first try."""
        with self._lock:
            return list(self._tried)

    def submit(self, call: Callable[[], Result]) -> Future[Result]:
        """Begin a request in another thread."""
        future = self._pool.submit(lambda: call_within(self._scope, call))
        with self._lock:
            self._under_way[future] = None
        future.add_done_callback(self._forget)
        return future

    def call(self, call: Callable[[], Result]) -> Result:
        """Make a request and wait for its result.

        Raises:
            CopyDeadlineError, CopyAbandonedError: the copy is cancelled. Else the request's error.
        """
        return self._running.wait_for(self.submit(call))

    def store(self, key: str, send: Callable[[], StoredObject]) -> StoredObject:
        """Send an object that becomes visible under this key, within a call of ``submit``."""
        with self._lock:
            if self._ended:
                raise StoreError(f"{key}: the copy was called off")
            self._tried[key] = None
        try:
            return send()
        except StoreError as error:
            if error.refused or isinstance(error, ObjectConflictError | StoreNotReachedError):
                with self._lock:
                    self._tried.pop(key, None)
            elif error.retriable:
                self.doubtful = True
            raise

    def _forget(self, future: Future[object]) -> None:
        with self._lock:
            self._under_way.pop(future, None)

    def end(self) -> list[Future[object]]:
        """Send nothing more, and cancel running requests. Returns those that have not ended yet."""
        with self._lock:
            self._ended = True
            under_way = list(self._under_way)
        self._scope.cancel()
        left = [future for future in under_way if not future.cancel() and not future.done()]
        self.doubtful = self.doubtful or (bool(under_way) and bool(self._tried))
        return left
