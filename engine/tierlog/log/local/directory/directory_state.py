"""The state of a log directory: whether it works, how it was left, and the offset checkpoints of its logs.

Entries of logs that are there and not open stay as they were read, and so does the order of the lines: a checkpoint in
which nothing has changed is not written again.

Source: Kafka LogManager, ReplicaManager (docs/formats/log-files.md).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from tierlog.errors import CorruptDataError, StoreError
from tierlog.log.formats.identity_files import MetaProperties
from tierlog.log.formats.segment_files import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from tierlog.log.local.directory.directory_files import (
    DirectoryIdentity,
    KeptCheckpoint,
    PartitionKey,
    check_identity,
    read_identity,
    take_marker,
    write_identity,
)
from tierlog.log.local.log_errors import LogOfflineError
from tierlog.log.local.recovery.log_loader import LogCheckpoints
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import TEMPORARY_SUFFIX, Files
from tierlog.runtime.waiting.waits import forget_frames

_log = logging.getLogger(__name__)


class DirectoryState:
    """The state of a directory that is locked. Making one removes the marker of a clean stop.

    Args:
        machine: Has the files.
        path: The directory.
        there: The logs that it has.
        identity: Its required owner; None: any.
        on_failure: Called once, with what takes the directory offline. It must not raise or wait.

    Attributes:
        properties: Its ``meta.properties``; None if there are none.
        last_stop: How it was left.
        checkpoints: To be changed in a ``writing`` block.
        failure: What took it offline; None while nothing has.

    Raises:
        ConfigError: it is another broker's, or meta.properties is malformed. StoreError.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        machine: Machine,
        path: str,
        *,
        there: Collection[PartitionKey],
        identity: DirectoryIdentity | None,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._path = path
        self._on_failure = on_failure
        self._lock = machine.scheduler.lock()
        self.failure: Exception | None = None
        self.properties = _agreed_identity(machine, path, identity)
        self.last_stop = take_marker(machine.files, path)
        for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS):
            left = f"{path}/{name}{TEMPORARY_SUFFIX}"  # of a crash: where no log lies any more nothing writes it again
            if machine.files.find(left) is not None:
                machine.files.remove(left)
        self.checkpoints = DirectoryCheckpoints(machine.files, path, there=there)

    def fail(self, cause: Exception) -> None:
        """Take the directory offline; the first cause stays. Does not wait: a log's own threads call it."""
        if self.failure is None:
            self.failure = cause
            forget_frames(cause)  # which hold the file open that failed
            _log.error("%s: the log directory is offline: %s", self._path, cause)
            self._on_failure(cause)

    def check_online(self) -> None:
        """Raise LogOfflineError if the directory is offline."""
        if self.failure is not None:
            raise LogOfflineError(f"{self._path}: the log directory is offline: {self.failure}") from self.failure

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """A block whose failure to read or write takes the directory offline. Raises LogOfflineError."""
        self.check_online()
        try:
            yield
        except (StoreError, CorruptDataError) as error:
            self.fail(error)
            self.check_online()

    @contextlib.contextmanager
    def writing(self) -> Iterator[DirectoryCheckpoints]:
        """A ``working`` block of one thread at a time, which changes the directory's own files."""
        with self._lock, self.working():
            yield self.checkpoints


def _agreed_identity(machine: Machine, path: str, identity: DirectoryIdentity | None) -> MetaProperties | None:
    """Return the directory's ``meta.properties``, checked, or written if an owner is required."""
    if identity is None:
        return read_identity(machine.files, path)
    found = check_identity(machine.files, path, identity)
    if found is None or found.directory_id is None:  # Kafka 3.7's brokers write the missing id
        return write_identity(machine, path, identity)
    return found


class DirectoryCheckpoints:
    """The checkpoints of one log directory, read when it is made: a malformed one counts as empty, as Kafka has it.

    Recovery points are more than Kafka has them: without a file that can be read they are unknown, not 0. So that those
    of a new directory are known from the start, the file is written at once if there are no logs; and where it was
    lost, it is written only once all logs that were there are open: it would say 0 of the others.

    One thread at a time.

    Args:
        files: The file system.
        folder: The log directory.
        there: The logs that it has.

    Raises:
        StoreError: a file cannot be read, or written.
    """

    def __init__(self, files: Files, folder: str, *, there: Collection[PartitionKey]) -> None:
        self._recovery_points: Final = _kept(files, folder, RECOVERY_POINTS)
        self._unknown = set() if self._recovery_points.is_whole else set(there)
        self._log_starts: Final = _kept(files, folder, LOG_STARTS)
        self._high_watermarks: Final = _kept(files, folder, HIGH_WATERMARKS)
        self._cleaner_offsets: Final = _kept(files, folder, CLEANER_OFFSETS)
        for kept in (self._recovery_points, self._log_starts, self._high_watermarks, self._cleaner_offsets):
            if gone := kept.offsets.keys() - set(there):  # a crash cut a deletion short: its name begins anew
                kept.replace(dict.fromkeys(gone))
        if not there and not self._recovery_points.is_whole:
            self._recovery_points.replace({})

    def of(self, key: PartitionKey) -> LogCheckpoints:
        """Recovery point, log start and high watermark of one log, as the checkpoint files have them."""
        points = self._recovery_points
        return LogCheckpoints(
            recovery_point=points.offsets.get(key, 0) if points.is_whole else None,
            log_start_offset=self._log_starts.offsets.get(key, 0),
            high_watermark=self._high_watermarks.offsets.get(key, 0),
        )

    def promises_more(self, log: UnifiedLog) -> bool:
        """Whether the file has a higher recovery point than a log, which a crash made shorter."""
        return log.recovery_point < self._recovery_points.on_disk.get(_key(log), 0)

    def write_recovery_points(self, logs: Iterable[UnifiedLog]) -> None:
        """Write up to where each log is flushed, and first where it starts: what lies in front of that need not be
        flushed, and must not come back with a start that a crash takes back.
        """
        known = list(logs)
        points = {_key(log): log.recovery_point for log in known}
        self.write_log_starts(known)
        if self._unknown <= points.keys():
            self._recovery_points.replace(points)
            self._unknown.clear()

    def write_log_starts(self, logs: Iterable[UnifiedLog]) -> None:
        """Write each log's start, if its first segment does not show it."""
        self._log_starts.replace({_key(log): _told_start(log) for log in logs})

    def write_high_watermarks(self, logs: Iterable[UnifiedLog]) -> None:
        """Write the logs' high watermarks."""
        self._high_watermarks.replace({_key(log): log.high_watermark for log in logs})

    def cleaner_offset(self, key: PartitionKey) -> int | None:
        """Return the offset up to which a log is compacted; None if that is not known. Any thread."""
        return self._cleaner_offsets.offsets.get(key)

    def write_cleaner_offset(self, key: PartitionKey, offset: int | None) -> None:
        """Write the offset up to which a log is compacted; None: the log is not here any more."""
        self._cleaner_offsets.replace({key: offset})

    def write_all(self, logs: Iterable[UnifiedLog]) -> None:
        """Write all that are of the logs' offsets."""
        known = list(logs)
        self.write_recovery_points(known)
        self.write_high_watermarks(known)

    def forget(self, key: PartitionKey) -> None:
        """Remove a log that was deleted from all of them."""
        self._unknown.discard(key)
        if not self._unknown:
            self._recovery_points.replace({key: None})
        for kept in (self._log_starts, self._high_watermarks, self._cleaner_offsets):
            kept.replace({key: None})


def _kept(files: Files, folder: str, name: str) -> KeptCheckpoint:
    kept = KeptCheckpoint(files, folder, name)
    if kept.fault is not None:
        _log.warning("taken as empty: %s", kept.fault)
    return kept


def _key(log: UnifiedLog) -> PartitionKey:
    return log.topic, log.partition


def _told_start(log: UnifiedLog) -> int | None:
    segments = log.log_segments()
    tells = log.remote_log_enabled() or not segments or log.log_start_offset > segments[0].base_offset
    return log.log_start_offset if tells else None
