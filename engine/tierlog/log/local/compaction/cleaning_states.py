"""The cleanings of a log directory that are under way, and those that wait until a log may be cleaned again.

A log whose segments go (truncation, deletion, another folder) pauses its cleaning first: one that is under way is
aborted, which it notices between two windows of bytes, and no other begins before each pause has been resumed.

Source: Kafka LogCleaningState, LogCleanerManager, where a second pause is an error while the first waits; here both
wait.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

from tierlog.log.local.directory.directory_files import PartitionKey
from tierlog.log.local.log_errors import LogBusyError, LogCleaningAbortedError
from tierlog.runtime.machine import Machine

#: The longest that a pause waits for the end of a cleaning: that of one read or write of a window.
ABORT_SECONDS_MAX: Final = 60.0


class CleaningState(NamedTuple):
    """The state of one partition.

    Attributes:
        paused_count: How many pauses are not resumed; 0 while a cleaning goes on.
    """

    kind: Literal["none", "in progress", "aborted", "paused"]
    paused_count: int = 0


class CleaningStates:
    """The states of one directory's partitions. Thread safety: any number of threads.

    Args:
        machine: Has the clock, and the condition by which threads wait.
    """

    def __init__(self, machine: Machine) -> None:
        self._clock = machine.clock
        self._changed = machine.scheduler.condition()
        self._cleaning: set[PartitionKey] = set()
        self._pauses: dict[PartitionKey, int] = {}
        self._is_closed = False

    def state_of(self, key: PartitionKey) -> CleaningState:
        with self._changed:
            pauses = self._pauses.get(key, 0)
            if key in self._cleaning:
                return CleaningState("aborted" if pauses else "in progress")
            return CleaningState("paused", pauses) if pauses else CleaningState("none")

    def is_free(self, key: PartitionKey) -> bool:
        """Whether a partition is neither cleaned nor paused."""
        with self._changed:
            return key not in self._cleaning and key not in self._pauses

    def begin(self, key: PartitionKey) -> bool:
        """Begin to clean a partition, if it is free; whether it was. The caller that cleans it calls ``end``."""
        with self._changed:
            if key in self._cleaning or key in self._pauses or self._is_closed:
                return False
            self._cleaning.add(key)
            return True

    def end(self, key: PartitionKey) -> None:
        """End what ``begin`` began."""
        with self._changed:
            self._cleaning.discard(key)
            self._changed.notify_all()

    def is_aborted(self, key: PartitionKey) -> bool:
        """Whether a pause, or the directory's end, waits for the end of a cleaning."""
        with self._changed:
            return key in self._cleaning and (key in self._pauses or self._is_closed)

    def check_aborted(self, key: PartitionKey) -> None:
        """Raise LogCleaningAbortedError if a cleaning is to end."""
        if self.is_aborted(key):
            raise LogCleaningAbortedError(f"{key[0]}-{key[1]}: the cleaning was aborted")

    def pause_if_free(self, key: PartitionKey) -> bool:
        """Pause a partition that is free; whether it was. The caller that paused it calls ``resume``."""
        with self._changed:
            if key in self._cleaning or key in self._pauses:
                return False
            self._pauses[key] = 1
            return True

    def abort_and_pause(self, key: PartitionKey) -> None:
        """Abort the cleaning of a partition, wait for its end, and let none begin before ``resume``.

        Raises:
            LogBusyError: the cleaning did not end in time; nothing is paused then.
        """
        with self._changed:
            self._pauses[key] = self._pauses.get(key, 0) + 1
            if not self._wait_until(lambda: key not in self._cleaning):
                self._resume(key)
                raise LogBusyError(f"{key[0]}-{key[1]}: a cleaning did not end within {ABORT_SECONDS_MAX:.0f} s")

    def resume(self, key: PartitionKey) -> None:
        """Undo one pause."""
        with self._changed:
            self._resume(key)

    @contextlib.contextmanager
    def paused(self, key: PartitionKey) -> Iterator[None]:
        """A block in which a partition is not cleaned. Raises LogBusyError, before it."""
        self.abort_and_pause(key)
        try:
            yield
        finally:
            self.resume(key)

    def close(self) -> bool:
        """Abort all cleanings and let none begin; whether all ended in time. Idempotent."""
        with self._changed:
            self._is_closed = True
            return self._wait_until(lambda: not self._cleaning)

    def _wait_until(self, is_so: Callable[[], bool]) -> bool:
        """Wait for a change to come true, and return whether it did in time. The caller holds the condition."""
        latest = self._clock.monotonic_seconds() + ABORT_SECONDS_MAX
        while not is_so():
            left = latest - self._clock.monotonic_seconds()
            if left <= 0:
                return False
            self._changed.wait(left)
        return True

    def _resume(self, key: PartitionKey) -> None:
        if self._pauses[key] > 1:
            self._pauses[key] -= 1
        else:
            del self._pauses[key]
