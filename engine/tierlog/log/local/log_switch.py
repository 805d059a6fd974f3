"""The end of a move: a future log takes the place of its partition's log, which lies in another directory.

Two renames in two directories end a move, the future log's and then the old one's, in Kafka's order. A failure
between them leaves a partition with two logs, which Kafka refuses to open. So the folder of the new one has a file
``moved-from``, written before the first rename: while it says ``leaving``, the old log is the partition's, if it is
there, for it goes on where the new one's disk fails. Where the old one's disk fails, or is offline at a start, the
file says so before the new log goes on alone: then the old one is left, whenever it comes back. A start keeps of the
file what lies in no directory that works. Kafka passes over it.

Source: Kafka LogManager#replaceCurrentWithFutureLog, #loadLog.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tierlog.errors import ConfigError, ObjectNotFoundError, StoreError
from tierlog.log.local.directory.directory_files import PartitionKey
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_errors import LogOfflineError
from tierlog.log.local.log_folder import agreed_topic_id, deleted_folder_name, partition_folder_name
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine

MOVED_FROM_FILE: Final = "moved-from"

_SIZE_BYTES_MAX: Final = 1 << 20
_LEAVING: Final = "leaving "


class LeftDirectories(NamedTuple):
    """What ``moved-from`` says of the other directories that may have a log of the partition, by their names.

    Attributes:
        names: Those whose log is older than this one.
        leaving: The one whose log is the partition's, if it is still there; None: the switch is over.
    """

    names: frozenset[str] = frozenset()
    leaving: str | None = None

    @property
    def every(self) -> frozenset[str]:
        """All of them."""
        return self.names if self.leaving is None else self.names | {self.leaving}


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
            LogOfflineError: of the target: the old log goes on; or of the source, and the log may have moved all the
                same. LogBusyError: a cleaning of the log did not end in time.
        """
        target, source = self._target, self._source
        with target.held(*self._key) as future:
            if future is None or not target.has(*self._key, is_future=True):
                return None
            future.flush()
            target.checkpoint()
            if source is None:
                with _failing(target):
                    write_left(self._machine, future.folder, LeftDirectories(self._left(future).every))
                future.rename_folder(self._folder)
                target.has_moved_in(*self._key)
                return future
            with source.held(*self._key) as current:
                return future if current is not None and self._replaced(source, current, future) else None

    def _left(self, log: UnifiedLog) -> LeftDirectories:
        return read_left(self._machine, log.folder)

    def _replaced(self, source: LogDirectory, current: UnifiedLog, future: UnifiedLog) -> bool:
        with _failing(source):
            names = self._left(current).names
        with _failing(self._target):
            if future.topic_id is None:  # the power went before its folder had the file: a start takes it for a stray
                future.topic_id = agreed_topic_id(self._machine, future.folder, current.topic_id)
            write_left(self._machine, future.folder, LeftDirectories(names, leaving=source.name))
        try:
            aside = f"{source.path}/{deleted_folder_name(*self._key, self._machine.rng)}"
            if not current.hand_over(future, self._folder, aside):
                return False
        except LogOfflineError:
            if future.folder == self._folder and not self._target.is_offline:
                self._write_over(names | {source.name})  # before the new log has anything that the old one lacks
            raise
        finally:
            if future.folder == self._folder:
                self._target.has_moved_in(*self._key)
        source.cleaner_manager.move_checkpoint(self._key, self._target.cleaner_manager)
        source.forget(current)
        self._write_over(names)
        return True

    def _write_over(self, names: frozenset[str]) -> None:
        """Write that the switch is over, and which directories may have an older log."""
        with _failing(self._target):
            write_left(self._machine, self._folder, LeftDirectories(names))


def read_left(machine: Machine, folder: str) -> LeftDirectories:
    """Read the file of a log's folder. Raises StoreError."""
    try:
        data = machine.files.read_whole(f"{folder}/{MOVED_FROM_FILE}", limit_bytes=_SIZE_BYTES_MAX)
    except ObjectNotFoundError:
        return LeftDirectories()
    lines = data.decode("utf-8", "surrogateescape").splitlines()
    leaving = [each.removeprefix(_LEAVING) for each in lines if each.startswith(_LEAVING)]
    names = frozenset(each for each in lines if not each.startswith(_LEAVING))
    return LeftDirectories(names, leaving[0] if leaving else None)


def write_left(machine: Machine, folder: str, left: LeftDirectories) -> None:
    """Write the file durably, or remove it if it would name none. Raises StoreError."""
    path = f"{folder}/{MOVED_FROM_FILE}"
    if left.every:
        lines = sorted(left.names) if left.leaving is None else [_LEAVING + left.leaving, *sorted(left.names)]
        machine.files.write_whole(path, "".join(f"{each}\n" for each in lines).encode("utf-8", "surrogateescape"))
    else:
        machine.files.remove(path)
        machine.files.fsync_directory(folder)


def settle(machine: Machine, directories: Sequence[LogDirectory]) -> None:
    """Finish switches that were interrupted between their renames, and keep of each log's file the directories that are
    none of these, the ones that work: an older log may come back with them. No log is loaded yet.

    Raises:
        ConfigError: two directories have a log of one partition otherwise, or a future log of it. LogOfflineError: one
            of them is offline now.
    """
    for is_future in (False, True):
        seen: dict[PartitionKey, LogDirectory] = {}
        for directory in directories:
            for key in directory.known_logs(is_future=is_future):
                other = seen.setdefault(key, directory)
                if other is not directory:
                    seen[key] = _settled(machine, key, other, directory, is_future=is_future)
    for directory in directories:
        for key in directory.known_logs():
            _forget_gone(machine, key, directory, directories)


def _settled(
    machine: Machine, key: PartitionKey, one: LogDirectory, other: LogDirectory, *, is_future: bool
) -> LogDirectory:
    """The directory of two that has the partition's log; the other one's is set aside."""
    old: set[LogDirectory] = set()
    for new, known in () if is_future else ((one, other), (other, one)):
        with _failing(new):
            left = read_left(machine, f"{new.path}/{partition_folder_name(*key)}")
        if left.names & _names_of(known):
            old.add(known)
        elif left.every & _names_of(known):
            old.add(new)
    if len(old) != 1:  # none says it, or each says it of the other
        raise ConfigError(
            f"Duplicate log directories for {key[0]}-{key[1]} are found in both {one.path} and {other.path}: "
            "delete the one in the directory that has failed last"
        )
    (left_one,) = old
    left_one.set_aside(*key)
    return other if left_one is one else one


def _forget_gone(machine: Machine, key: PartitionKey, directory: LogDirectory, known: Sequence[LogDirectory]) -> None:
    folder = f"{directory.path}/{partition_folder_name(*key)}"
    with _failing(directory):
        found = read_left(machine, folder)
    names = found.every
    for each in known:
        if names & _names_of(each):
            with _failing(each):  # its log is not there, but a kill may have come in front of this fsync
                machine.files.fsync_directory(each.path)
            names -= _names_of(each)
    if found != LeftDirectories(names):
        with _failing(directory):
            write_left(machine, folder, LeftDirectories(names))


def _names_of(directory: LogDirectory) -> frozenset[str]:
    """By its id, and as it was called before it had one."""
    return frozenset((directory.name, directory.path))


@contextlib.contextmanager
def _failing(directory: LogDirectory) -> Iterator[None]:
    """A block whose failures to read or write take a directory offline."""
    try:
        yield
    except StoreError as error:
        raise directory.take_offline(error) from error
