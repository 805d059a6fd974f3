"""The offline recovery of all logs of a directory: a broker's work at its start there, and its files of a clean stop.

The marker of a clean stop goes first and comes back last, so that a crash in between leaves a directory that a broker
recovers by itself. Between the two every log is loaded and fsynced; then the checkpoints say so.

Source: Kafka LogManager#loadLogs and #shutdown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tierlog.errors import ConfigError, CorruptDataError, StoreError
from tierlog.log.formats.segment_files import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOCK,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    REMOTE_INDEX_CACHE,
    PartitionFolder,
    SegmentFileKind,
    find_partition_folder,
    find_segment_file,
)
from tierlog.log.local.directory.directory_files import KeptCheckpoint, PartitionKey, take_marker, write_marker
from tierlog.log.local.leader_epoch_cache import EpochCheckpointFile, LeaderEpochCache
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_folder import CLUSTER_METADATA, LogFolder, agreed_topic_id, lock_directory
from tierlog.log.local.producers.producer_state import ProducerState
from tierlog.log.local.recovery.log_loader import LogCheckpoints, LogLoader
from tierlog.log.local.recovery.segment_recovery import RecoveryReport
from tierlog.runtime.machine import Machine

_log = logging.getLogger(__name__)

#: Folders that a broker loads under their partition's own name: the copy that moves in from another directory, too.
_CURRENT: Final = ("", "future")


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """The outcome of one partition's folder.

    Attributes:
        log_start_offset, log_end_offset: Of the log as it is now; -1 after an error.
        error: Why it could not be loaded; nothing else of it counts then.
    """

    path: str
    partition: PartitionFolder
    log_start_offset: int
    log_end_offset: int
    report: RecoveryReport
    error: CorruptDataError | StoreError | None = None


@dataclass(slots=True)
class DirectoryRecovery:
    """The outcome of a directory's recovery.

    Attributes:
        was_clean: Whether a broker had closed it: then only missing files were rebuilt.
        left: (name, why) of folders that were left alone.
        notes: What else a broker would log: checkpoints that cannot be read.
    """

    path: str
    was_clean: bool
    logs: list[RecoveredLog] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        return any(log.error is not None for log in self.logs)

    @property
    def is_sound(self) -> bool:
        """Whether there was nothing to mend."""
        changes = (action.is_change for log in self.logs for action in log.report.actions)
        return self.was_clean and not self.notes and not any(log.error for log in self.logs) and not any(changes)


def recover_directory(path: str, *, machine: Machine, config: LogConfig) -> Iterator[RecoveredLog | DirectoryRecovery]:
    """Recover all logs of a directory, or the log of one partition's folder: each log's outcome, and last all of it.

    A log that cannot be loaded does not stop the others; the directory is left unclean then, as it is by a crash on the
    way. Of one partition's folder nothing outside of it is changed.

    Raises:
        ConfigError: it is neither. StoreUnavailableError: a broker has it open. StoreError: a checkpoint or the marker
            cannot be read or written.
    """
    files = machine.files
    path = path.rstrip("/") or "/"
    if not files.stat(path).is_directory:
        raise ConfigError(f"{path}: not a directory")
    entries = list(files.iter_directory(path))
    names = {entry.name for entry in entries}
    folders = [(entry.name, find_partition_folder(entry.name)) for entry in entries if entry.is_directory]
    if any(_is_log(name) for name in names):
        yield from _recover_folder(path, machine, config)
        return
    if not any(folder for _, folder in folders) and not names & {META_PROPERTIES, RECOVERY_POINTS, CLEAN_SHUTDOWN}:
        raise ConfigError(f"{path}: neither a log directory nor a partition's folder")
    with lock_directory(files, path):
        run = _Run(path, machine, config)
        for name, folder in folders:
            why = _why_left(name, folder)
            if folder is None or why is not None:
                run.outcome.left.append((name, why or "the name is not that of a partition's folder"))
            else:
                log = run.recover(name, folder)
                run.outcome.logs.append(log)
                yield log
        if not run.outcome.has_failed:
            run.write_checkpoints()
            run.mark_clean()
    yield run.outcome


def _recover_folder(path: str, machine: Machine, config: LogConfig) -> Iterator[RecoveredLog | DirectoryRecovery]:
    above, _, name = path.rpartition("/")
    partition = find_partition_folder(name) or PartitionFolder(name, 0)
    outcome = DirectoryRecovery(path, was_clean=False)
    has_lock = machine.files.find(f"{above or '.'}/{LOCK}") is not None
    lock = lock_directory(machine.files, above or ".") if has_lock else None
    try:
        log = _recovered(path, partition, machine, config, LogCheckpoints(), was_clean=False, is_tiered=False)
    finally:
        if lock is not None:
            lock.release()
    outcome.logs.append(log)
    yield log
    yield outcome


def _is_log(name: str) -> bool:
    found = find_segment_file(name)
    return found is not None and found.kind is SegmentFileKind.LOG


def _why_left(name: str, folder: PartitionFolder | None) -> str | None:
    if name == REMOTE_INDEX_CACHE:
        return "the cache of the tier's indexes, which a broker fills by itself"
    if folder is not None and folder.purpose == "delete":
        return "a broker deletes it when it starts"
    if folder is not None and folder.topic == CLUSTER_METADATA:
        return "a broker recovers the metadata log at each start"
    return None


class _Run:
    """One recovery of a log directory, which is locked."""

    def __init__(self, path: str, machine: Machine, config: LogConfig) -> None:
        self._path = path
        self._machine = machine
        self._config = config
        self._last_stop = take_marker(machine.files, path)
        self.outcome = DirectoryRecovery(path, was_clean=self._last_stop.was_clean)
        self._points = KeptCheckpoint(machine.files, path, RECOVERY_POINTS)
        self._starts = KeptCheckpoint(machine.files, path, LOG_STARTS)
        faults = (self._points.fault, self._starts.fault)
        self.outcome.notes += [f"{fault}; taken as empty" for fault in faults if fault is not None]
        self._ends: dict[PartitionKey, int] = {}
        self._new_starts: dict[PartitionKey, int] = {}

    def recover(self, name: str, folder: PartitionFolder) -> RecoveredLog:
        """Recover one folder, and note its values for the checkpoints."""
        key = (folder.topic, folder.partition)
        start = self._starts.offsets.get(key)
        checkpoints = LogCheckpoints(recovery_point=self._points.offsets.get(key), log_start_offset=start or 0)
        log = _recovered(
            f"{self._path}/{name}",
            folder,
            self._machine,
            self._config,
            checkpoints,
            was_clean=self.outcome.was_clean,
            # Only of tiered logs, and of those that begin inside their first segment, the start is written down.
            is_tiered=start is not None,
        )
        if folder.purpose in _CURRENT and log.error is None:
            self._ends[key] = log.log_end_offset
            if start is not None:
                self._new_starts[key] = log.log_start_offset
        return log

    def write_checkpoints(self) -> None:
        """Write down that all of the logs is on the disk. Raises StoreError."""
        self._points.replace_all(dict(sorted(self._ends.items())))
        self._starts.replace_all(dict(sorted(self._new_starts.items())))
        self._change(HIGH_WATERMARKS, min)
        # Else a broker's cleaner takes what is appended now for compacted; it cleans from the log's start on.
        self._change(CLEANER_OFFSETS, lambda offset, end: None if offset > end else offset)

    def _change(self, name: str, changed: Callable[[int, int], int | None]) -> None:
        """Change a checkpoint, which a broker reads when it starts, by the ends of its logs."""
        kept = KeptCheckpoint(self._machine.files, self._path, name)
        if kept.fault is not None:
            self.outcome.notes.append(f"{kept.fault}; left as it is")
        elif kept.is_whole:
            offsets = {key: changed(offset, self._ends.get(key, offset)) for key, offset in kept.offsets.items()}
            kept.replace_all({key: offset for key, offset in offsets.items() if offset is not None})

    def mark_clean(self) -> None:
        """Write the marker: no broker needs to recover anything here. Raises StoreError.

        Without the broker's epoch unless it was there before: the broker did not stop by itself.
        """
        epoch = self._last_stop.broker_epoch
        write_marker(self._machine.files, self._path, broker_epoch=-1 if epoch is None else epoch)


def _recovered(
    path: str,
    folder: PartitionFolder,
    machine: Machine,
    config: LogConfig,
    checkpoints: LogCheckpoints,
    *,
    was_clean: bool,
    is_tiered: bool,
) -> RecoveredLog:
    try:
        agreed_topic_id(machine, path, None)  # a broker does not load a log of an unknown topic
        place = LogFolder(machine, path)
        loader = LogLoader(
            place,
            machine=machine,
            config=config,
            epochs=LeaderEpochCache(EpochCheckpointFile(machine.files, place), machine=machine),
            producers=ProducerState(),
            checkpoints=checkpoints,
            had_clean_shutdown=was_clean,
            knows_topic=False,  # the disk does not say which topics are compacted, or tiered
            syncs_all=True,
        )
        loaded = loader.load(remote_log_enabled=is_tiered)
    except (CorruptDataError, StoreError) as error:
        _log.info("%s: %s", path, error)
        return RecoveredLog(path, folder, -1, -1, RecoveryReport(), error)
    for segment in loaded.segments:
        segment.close()
    return RecoveredLog(path, folder, loaded.log_start_offset, loaded.log_end_offset, loaded.report)
