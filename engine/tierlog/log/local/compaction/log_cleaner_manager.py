"""The compaction of one log directory's logs: which is the dirtiest, how far each is clean, which must be left alone.

``cleaner-offset-checkpoint`` says up to which offset each log is compacted. It is lowered before a truncation cuts what
it covers, so that a crash leaves nothing that is taken for compacted and is not; Kafka lowers it behind the cut.

Source: Kafka LogCleanerManager, which has one for all directories.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from tierlog.errors import CorruptDataError, StoreError
from tierlog.log.local.compaction.cleanable_logs import LogToClean, find_cleanable_bytes, find_cleanable_offsets
from tierlog.log.local.compaction.cleaning_states import CleaningStates
from tierlog.log.local.directory.directory_files import PartitionKey
from tierlog.log.local.directory.directory_state import DirectoryState
from tierlog.log.local.log_errors import LogClosedError, LogOfflineError, LogTruncatedError
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.waits import forget_frames

_log = logging.getLogger(__name__)

#: Errors of a log that is offline, closed or cut: nothing is wrong with its records.
_GONE = (LogOfflineError, LogClosedError, LogTruncatedError)


class LogCleanerManager:
    """The cleanings of one directory. Thread safety: any number of threads.

    Args:
        machine: Has the clock and the locks.
        path: The directory.
        state: Has the checkpoint, and is offline after a failure of a file.
        logs: The logs that are open now.

    Attributes:
        states: What is cleaned now, and what is paused.
    """

    def __init__(
        self,
        machine: Machine,
        path: str,
        *,
        state: DirectoryState,
        logs: Callable[[], Mapping[PartitionKey, UnifiedLog]],
    ) -> None:
        self.path = path
        self.states = CleaningStates(machine)
        self._state = state
        self._logs = logs
        self._lock = machine.scheduler.lock()  # of what is below
        self._uncleanable: dict[PartitionKey, Exception] = {}
        self._is_closed = False

    # ---- choosing

    def find_dirty_logs(self, now_ms: int) -> list[LogToClean]:
        """Look at each compacted log that is free, not empty and not uncleanable; an invalid checkpoint is reset. A log
        that cannot be looked at becomes uncleanable.
        """
        if self._state.failure is not None:
            return []
        found = (self._look_at(key, log, now_ms) for key, log in self._logs().items() if self._is_wanted(key, log))
        return [each for each in found if each is not None and each.total_bytes > 0]

    def _is_wanted(self, key: PartitionKey, log: UnifiedLog) -> bool:
        return log.config.is_compacted and key not in self._uncleanable and self.states.is_free(key)

    def _look_at(self, key: PartitionKey, log: UnifiedLog, now_ms: int) -> LogToClean | None:
        try:
            with log.reading() as state:
                offsets = find_cleanable_offsets(state, log.config, self.cleaner_offset(key), now_ms)
                found = LogToClean.of(key, log, state, offsets, now_ms)
            if offsets.is_reset:
                self._reset(key, log)
        except Exception as error:  # noqa: BLE001 - a fault in one log must not keep others from being cleaned
            self.note_failure(key, log, error)
            return None
        return found

    def _reset(self, key: PartitionKey, log: UnifiedLog) -> None:
        """Write the log's start in place of a checkpoint that lies in front of it, or behind the log's end; unless the
        log is being cleaned, or cut, which both write another one.
        """
        if not self.states.pause_if_free(key):
            return
        try:
            known, offsets, policy = self.cleaner_offset(key), log.offsets, log.config.cleanup_policy
            start, end = offsets.log_start_offset, offsets.log_end_offset
            if known is None or start <= known <= end:
                return
            if known > end or "delete" not in policy:  # with retention a start rises
                text = "%s: the cleaner's checkpoint %d is not in [%d, %d]: the log is cleaned from its start on"
                _log.warning(text, log.folder, known, start, end)
            self.write_checkpoint(key, start)
        finally:
            self.states.resume(key)

    def begin(self, chosen: LogToClean, now_ms: int) -> LogToClean | None:
        """Begin to clean a log, if it is free, and is the one that the directory has now.

        Returns:
            What is to be cleaned of it: from here on nothing can be cut. The caller calls ``end``. None: nothing is.
        """
        if not self.states.begin(chosen.key):
            return None
        found = None
        try:
            if self._logs().get(chosen.key) is chosen.log and chosen.log.config.is_compacted:
                found = self._look_at(chosen.key, chosen.log, now_ms)
                found = found if found is not None and found.may_be_cleaned else None
        finally:
            if found is None:
                self.states.end(chosen.key)
        return found

    def end(self, cleaned: LogToClean, next_dirty_offset: int | None) -> None:
        """End what ``begin`` began, with the checkpoint first; None: the cleaning was aborted, and changed nothing."""
        try:
            if next_dirty_offset is not None:
                with contextlib.suppress(LogOfflineError):  # the directory knows
                    self.write_checkpoint(cleaned.key, next_dirty_offset)
        finally:
            self.states.end(cleaned.key)

    # ---- retention

    def delete_old_segments(self, check: Callable[[], None]) -> None:
        """Run retention of the compacted logs that are not being cleaned: by their start, and with ``compact,delete``
        by size and time. By the cleaner's thread.

        Args:
            check: Called before each log; raises to end the call.
        """
        for key, log in self._logs().items():
            check()
            if self._state.failure is None and self._is_wanted(key, log):
                try:
                    self._delete_old_segments(log, is_compacted=True)
                except Exception as error:  # noqa: BLE001 - a fault in one log must not keep others from theirs
                    self.note_failure(key, log, error)

    def retain(self, log: UnifiedLog) -> None:
        """Run retention of a log, if it is not compacted: the cleaner does it for those that are.

        Raises:
            LogOfflineError. LogClosedError.
        """
        self._delete_old_segments(log, is_compacted=False)

    def _delete_old_segments(self, log: UnifiedLog, *, is_compacted: bool) -> None:
        """Run retention of a log, if its policy is this one; no cleaning begins meanwhile, should that change."""
        key = log.topic, log.partition
        if self.states.pause_if_free(key):
            try:
                if log.config.is_compacted == is_compacted:
                    log.delete_old_segments()
            finally:
                self.states.resume(key)

    # ---- a log that changes

    def check_loaded(self, key: PartitionKey, log: UnifiedLog) -> None:
        """Forget the checkpoint of a log that ends in front of it, by a crash: what is appended now would count as
        compacted. Kafka does so when its cleaner looks at the log next, which may be behind such appends.
        """
        known = self.cleaner_offset(key)
        if known is not None and known > log.log_end_offset:
            text = "%s: the cleaner's checkpoint %d is behind the log's end %d: the log is cleaned from its start on"
            _log.warning(text, log.folder, known, log.log_end_offset)
            with contextlib.suppress(LogOfflineError):  # the directory knows
                self.write_checkpoint(key, log.log_start_offset)

    @contextlib.contextmanager
    def paused(self, key: PartitionKey, cut_to_offset: int | None = None) -> Iterator[None]:
        """A block in which a log is not cleaned; a cleaning that is under way is aborted first.

        Args:
            key: The log.
            cut_to_offset: From where the log is cut in the block: the checkpoint is lowered to it; None: nowhere.

        Raises:
            LogBusyError: the cleaning did not end in time. LogOfflineError: the checkpoint cannot be written.
        """
        with self.states.paused(key):
            known = None if cut_to_offset is None else self._state.checkpoints.cleaner_offset(key)
            if known is not None and cut_to_offset is not None and cut_to_offset < known:
                self.write_checkpoint(key, cut_to_offset)
            yield

    def forget(self, key: PartitionKey) -> None:
        """Forget a log that was deleted."""
        with self._lock:
            self._uncleanable.pop(key, None)

    def move_checkpoint(self, key: PartitionKey, to: LogCleanerManager) -> None:
        """Move what is known of a log to the manager of the directory that it was moved to (Kafka alterCheckpointDir).

        Raises:
            LogOfflineError: a checkpoint cannot be written.
        """
        offset = self._state.checkpoints.cleaner_offset(key)
        if offset is not None:
            to.write_checkpoint(key, offset)
            self.write_checkpoint(key, None)
        with self._lock:
            error = self._uncleanable.pop(key, None)
        if error is not None:
            to.mark_uncleanable(key, error)

    # ---- results

    def cleaner_offset(self, key: PartitionKey) -> int | None:
        """Up to which offset a log is compacted; None: that is not known."""
        return self._state.checkpoints.cleaner_offset(key)

    def write_checkpoint(self, key: PartitionKey, offset: int | None) -> None:
        """Write up to which offset a log is compacted; not of a directory that is closed.

        Raises:
            LogOfflineError: the file cannot be written, or the directory is offline.
        """
        with self._lock:
            if not self._is_closed:
                with self._state.writing() as checkpoints:
                    checkpoints.write_cleaner_offset(key, offset)

    def note_failure(self, key: PartitionKey, log: UnifiedLog, error: Exception) -> None:
        """Note an error of a cleaning: a failed file takes the directory offline, any other error makes the log
        uncleanable, and others are cleaned.
        """
        if isinstance(error, _GONE) or log.is_closed:
            _log.info("%s: not cleaned: %s", log.folder, error)
        elif isinstance(error, StoreError):
            self._state.fail(error)
        else:
            self.mark_uncleanable(key, error)

    def mark_uncleanable(self, key: PartitionKey, error: Exception) -> None:
        """Leave a log alone until the directory is opened again."""
        with self._lock:
            self._uncleanable[key] = error
        text = "%s/%s-%d: the log is not compacted any more until the next start, and grows: %s"
        _log.warning(text, self.path, *key, error, exc_info=error)
        forget_frames(error)  # which hold the damaged segment open

    @property
    def uncleanable(self) -> Mapping[PartitionKey, Exception]:
        """The logs whose cleaning failed, with the error: they are left alone until the directory is opened again."""
        with self._lock:
            return MappingProxyType(dict(self._uncleanable))

    def uncleanable_bytes(self, now_ms: int) -> int:
        """Bytes of the uncleanable logs that would be cleaned now."""
        logs, total = self._logs(), 0
        for key in self.uncleanable:
            log = logs.get(key)
            if log is not None:
                with contextlib.suppress(CorruptDataError, *_GONE), log.reading() as state:
                    offsets = find_cleanable_offsets(state, log.config, self.cleaner_offset(key), now_ms)
                    total += find_cleanable_bytes(state, *offsets[:2])[1]
        return total

    def close(self) -> None:
        """Abort all cleanings, and let none begin; a thread that does not notice in time writes no checkpoint."""
        if not self.states.close():
            _log.warning("%s: a cleaning goes on while the directory is closed", self.path)
        with self._lock:
            self._is_closed = True
