"""The logs that a directory has open, by partition."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from tierlog.log.local.directory.directory_files import PartitionKey
from tierlog.log.local.log_errors import LogClosedError
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine.scheduling import Scheduler


class OpenLogs:
    """The logs that a directory has open, by partition: one of each, whichever threads ask at the same time.

    Thread safety: any number of threads.

    Args:
        scheduler: Has the condition by which threads wait for each other.
        path: The directory, for errors.
    """

    def __init__(self, scheduler: Scheduler, path: str) -> None:
        self._path = path
        self._changed = scheduler.condition()
        self._logs: dict[PartitionKey, UnifiedLog] = {}
        self._busy: set[PartitionKey] = set()
        self._closed = False

    @property
    def is_closed(self) -> bool:
        return self._closed

    def check_open(self) -> None:
        """Raise LogClosedError if the directory is closed."""
        if self._closed:
            raise LogClosedError(f"{self._path}: the log directory is closed")

    @contextlib.contextmanager
    def alone(self, key: PartitionKey) -> Iterator[None]:
        """A block in which no other thread loads or deletes this log, and none closes the directory.

        Raises:
            LogClosedError: the directory is closed.
        """
        with self._changed:
            while key in self._busy:
                self._changed.wait()
            self.check_open()
            self._busy.add(key)
        try:
            yield
        finally:
            with self._changed:
                self._busy.discard(key)
                self._changed.notify_all()

    def find(self, key: PartitionKey) -> UnifiedLog | None:
        """Return the log of a partition, closed or not."""
        return self._logs.get(key)

    def keys(self) -> frozenset[PartitionKey]:
        """The partitions whose logs are known here, closed or not, as they are now."""
        with self._changed:
            return frozenset(self._logs)

    def put(self, key: PartitionKey, log: UnifiedLog) -> None:
        """Take a log. The caller is ``alone`` with it."""
        with self._changed:
            self._logs[key] = log

    def remove(self, key: PartitionKey) -> None:
        """Forget a log. The caller is ``alone`` with it."""
        with self._changed:
            del self._logs[key]

    def open_ones(self) -> Mapping[PartitionKey, UnifiedLog]:
        """Return the logs that are not closed now."""
        with self._changed:
            return MappingProxyType({key: log for key, log in self._logs.items() if not log.is_closed})

    def take_offline(self, cause: Exception) -> None:
        """Take all of them offline. Does not wait: a log's own threads call it."""
        for log in tuple(self._logs.values()):
            log.take_offline(cause)

    def close(self) -> list[UnifiedLog] | None:
        """Refuse new logs, and wait for the blocks of ``alone``; return all logs, or None for a later caller."""
        with self._changed:
            if self._closed:
                return None
            self._closed = True
            while self._busy:
                self._changed.wait()
            return list(self._logs.values())
