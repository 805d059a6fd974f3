"""The end of a move: a future log takes the place of its partition's log, which lies in another directory.

Two renames in two directories end a move, the future log's and then the old one's, in Kafka's order. A power cut
between them leaves a partition with two logs, which Kafka refuses to open. So the folder of the new one has a file
``moved-from``, written before the first rename and removed behind the second: a start knows which of the two is the
partition's, also where the other lies in a directory that was offline meanwhile. Kafka passes over the file.

Source: Kafka LogManager#replaceCurrentWithFutureLog, #loadLog.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from tierlog.errors import ObjectNotFoundError, StoreError
from tierlog.log.local.directory.directory_files import PartitionKey
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_folder import agreed_topic_id, deleted_folder_name, partition_folder_name
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine

MOVED_FROM_FILE: Final = "moved-from"

_SIZE_BYTES_MAX: Final = 1 << 20


class LogSwitch:
    """The switch of one partition, from a directory to another one.

    Args:
        machine: Has the files.
        key: The partition.
        target: The directory of the future log.
        source: That of the log that is replaced; None: there is none any more.
    """

    def __init__(self, machine: Machine, key: PartitionKey, target: LogDirectory, source: LogDirectory | None) -> None:
        self._machine = machine
        self._key = key
        self._target = target
        self._source = source
        self._folder = f"{target.path}/{partition_folder_name(*key)}"

    def run(self) -> UnifiedLog | None:
        """Let the future log be the partition's, and set the other aside; None: it does not have all that this one has,
        or one of them is gone.

        What the future log has, and where it starts, is on the disk before it counts. A power cut leaves the old log,
        or the new one, or both with the file ``moved-from``.

        Raises:
            LogOfflineError: of the target; or of the source, where the log has moved all the same. LogBusyError: a
                cleaning of the log did not end in time.
        """
        target, source = self._target, self._source
        with target.held(*self._key) as future:
            if future is None or not target.has(*self._key, is_future=True):
                return None
            future.flush()
            target.checkpoint()
            if source is None:
                future.rename_folder(self._folder)
                target.has_moved_in(*self._key)
                return future
            with source.held(*self._key) as current:
                return future if current is not None and self._replaced(source, current, future) else None

    def _replaced(self, source: LogDirectory, current: UnifiedLog, future: UnifiedLog) -> bool:
        with _failing(self._target):
            if future.topic_id is None:  # the power went before its folder had the file: a start takes it for a stray
                future.topic_id = agreed_topic_id(self._machine, future.folder, current.topic_id)
            write_moved_from(self._machine, future.folder, left_folders(self._machine, current.folder) | {source.name})
        try:
            aside = f"{source.path}/{deleted_folder_name(*self._key, self._machine.rng)}"
            if not current.hand_over(future, self._folder, aside):
                return False
        finally:
            if future.folder == self._folder:
                self._target.has_moved_in(*self._key)
        source.cleaner_manager.move_checkpoint(self._key, self._target.cleaner_manager)
        source.forget(current)
        with _failing(self._target):
            self._machine.files.remove(f"{self._folder}/{MOVED_FROM_FILE}")
            self._machine.files.fsync_directory(self._folder)
        return True


def left_folders(machine: Machine, folder: str) -> frozenset[str]:
    """The names of the directories that a log has left, which was to be switched to its folder. Raises StoreError."""
    try:
        data = machine.files.read_whole(f"{folder}/{MOVED_FROM_FILE}", limit_bytes=_SIZE_BYTES_MAX)
    except ObjectNotFoundError:
        return frozenset()
    return frozenset(data.decode("utf-8", "surrogateescape").splitlines())


def write_moved_from(machine: Machine, folder: str, names: frozenset[str]) -> None:
    """Write the file, durably: the names of the directories that the folder's log leaves. Raises StoreError."""
    text = "".join(f"{name}\n" for name in sorted(names))
    machine.files.write_whole(f"{folder}/{MOVED_FROM_FILE}", text.encode("utf-8", "surrogateescape"))


def settle(machine: Machine, key: PartitionKey, one: LogDirectory, other: LogDirectory) -> LogDirectory | None:
    """Finish a switch that was interrupted between its renames: set aside one of two logs of a partition, neither of
    which is loaded; the other's directory. None: neither has moved in. Raises LogOfflineError.
    """
    for new, old in ((one, other), (other, one)):
        with _failing(new):
            left = left_folders(machine, f"{new.path}/{partition_folder_name(*key)}")
        if old.name in left or old.path in left:
            old.set_aside(*key)
            return new
    return None


@contextlib.contextmanager
def _failing(directory: LogDirectory) -> Iterator[None]:
    """A block whose failures to read or write take a directory offline."""
    try:
        yield
    except StoreError as error:
        raise directory.take_offline(error) from error
