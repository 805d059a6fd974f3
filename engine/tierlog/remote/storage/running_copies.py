"""What is being copied right now: phase, part and age of each, a deadline that is kept, one log line for all.

Why: the plugin's uploads can stop for good without a word. Here a copy that outlives its deadline is called off even if
the store never answers, every running copy can be seen in the metrics, and those that take long are named in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from tierlog.errors import StoreUnavailableError
from tierlog.remote.api import RemoteLogSegmentId
from tierlog.remote.storage.metrics import PHASES, StorageMetrics
from tierlog.runtime.machine import Machine
from tierlog.runtime.scheduling import CancelledError, Future

Result = TypeVar("Result")

_log = logging.getLogger(__name__)

#: How often the watchdog looks, and how often it says what it sees.
_LOOK_SECONDS: Final = 1.0
_SAY_SECONDS: Final = 30.0
#: After so long without a copy the watchdog ends, and buffers go back to the system.
_IDLE_SECONDS: Final = 30.0
#: Before the first line: most copies are done by then.
_SLOW_SECONDS: Final = 20.0


class CopyDeadlineError(StoreUnavailableError):
    """A copy took longer than it may and was called off: a later attempt may be quicker."""


class CopyAbandonedError(StoreUnavailableError):
    """The manager was closed while the copy ran."""


@dataclass(slots=True)
class RunningCopy:
    """One copy under way. Its own thread writes, others read.

    Attributes:
        phase: One of PHASES.
        part: Number of the part that was handed over last, from 1; 0 before the first.
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

    def age_seconds(self) -> float:
        """Since it began."""
        return self.machine.clock.monotonic_seconds() - self.began_seconds

    def check(self) -> None:
        """Raises CopyDeadlineError past the deadline, CopyAbandonedError once the manager closes."""
        if self.called_off:
            raise CopyAbandonedError(f"{self.segment_id}: {self.called_off} in phase {self.phase}, part {self.part}")
        if self.machine.clock.monotonic_seconds() >= self.deadline_seconds:
            raise CopyDeadlineError(
                f"{self.segment_id}: the copy was called off after {self.age_seconds():.0f} s "
                f"in phase {self.phase}, part {self.part}, {self.stored_bytes} bytes stored"
            )

    def wait_for(self, future: Future[Result]) -> Result:
        """What the call gives, unless the copy is called off before: then the call goes on by itself."""
        while not future.done():
            self.check()
            left = self.deadline_seconds - self.machine.clock.monotonic_seconds()
            try:
                return future.result(timeout=min(max(left, 0.001), _LOOK_SECONDS))
            except TimeoutError:
                if future.done():
                    break
            except CancelledError as cause:
                raise CopyAbandonedError(f"{self.segment_id}: the manager was closed") from cause
        return future.result()

    def describe(self) -> str:
        """For the log line."""
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
        """
        now = self._machine.clock.monotonic_seconds()
        copy = RunningCopy(segment_id, now, now + self._deadline_seconds, self._machine)
        with self._changed:
            if self._closed:
                raise CopyAbandonedError(f"{segment_id}: the manager is closed")
            if segment_id in self._copies:
                raise StoreUnavailableError(f"{segment_id}: is being copied: {self._copies[segment_id].describe()}")
            self._copies[segment_id] = copy
            if self._watchdog is None:
                self._watchdog = self._machine.scheduler.start(self._watch, name="tierlog-copy-watchdog")
        return copy

    def end(self, copy: RunningCopy) -> None:
        """It finished, or failed and was cleaned up."""
        with self._changed:
            self._copies.pop(copy.segment_id, None)
            self._changed.notify_all()

    def call_off_copy(self, segment_id: RemoteLogSegmentId, reason: str) -> bool:
        """Call off one copy, if it runs; waits for nothing."""
        with self._changed:
            copy = self._copies.get(segment_id)
            if copy is not None:
                copy.called_off = copy.called_off or reason
        return copy is not None

    def copies(self) -> list[RunningCopy]:
        """Oldest first."""
        with self._changed:
            return sorted(self._copies.values(), key=lambda copy: copy.began_seconds)

    def oldest_age_seconds(self) -> float:
        """0 without a copy."""
        return max((copy.age_seconds() for copy in self.copies()), default=0.0)

    def _count(self, phase: str) -> int:
        return sum(copy.phase == phase for copy in self.copies())

    def _watch(self) -> None:
        """Names slow copies; those past their deadline call themselves off, which ``check`` and ``wait_for`` see to."""
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

    def close(self) -> None:
        """Call off what runs, wait until it is cleaned up, end the watchdog; idempotent."""
        with self._changed:
            self._closed = True
            for copy in self._copies.values():
                copy.called_off = copy.called_off or "the manager was closed"
            self._changed.notify_all()
            while self._copies:
                self._changed.wait(_LOOK_SECONDS)
            watchdog = self._watchdog
        if watchdog is not None:
            watchdog.result()
