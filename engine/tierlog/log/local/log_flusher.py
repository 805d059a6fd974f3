"""The consequences of a change of a log: syncs, beside its appends or in the background, and the calls of its
listeners.

The recovery point moves when all that it covers is durable: segments, the snapshots of the producers that rolls took,
and the names of both. Kafka leaves out the names of snapshots: without the one at the recovery point a start behind a
power cut forgets the producers whose records were deleted.

Source: Kafka UnifiedLog#flush, #roll, LocalLog#flush.
"""

from __future__ import annotations

import contextlib
from functools import partial

from tierlog.arguments import require_int64
from tierlog.errors import StoreError
from tierlog.log.local.background_tasks import BackgroundTasks
from tierlog.log.local.local_log import LocalLog
from tierlog.log.local.log_contents import LogContents
from tierlog.log.local.log_errors import LogClosedError, LogOfflineError
from tierlog.log.local.log_reads import OffsetsListener
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Lock


class LogFlusher:
    """The syncs of one log, one at a time; appends do not wait for them.

    Args:
        lock: The log's, which its writers hold.
        tasks: Runs syncs without a waiter; None: the caller's thread runs them.

    Attributes:
        listeners: Called after each change of the offsets; replaced as a whole.
        syncing: Held over fsyncs, and acquired before the log's lock: a waiter for it finds the work done.
        last_flush_ms: When the log was flushed last, or opened, ms since 1970 UTC.

    Thread safety: any number of threads, none of which holds the log's lock.
    """

    def __init__(
        self,
        machine: Machine,
        local: LocalLog,
        contents: LogContents,
        *,
        lock: Lock,
        tasks: BackgroundTasks | None,
    ) -> None:
        self._machine = machine
        self._local = local
        self._contents = contents
        self._lock = lock
        self._tasks = tasks
        self.listeners: tuple[OffsetsListener, ...] = ()
        self.syncing = machine.scheduler.lock()
        self.last_flush_ms = machine.clock.time_ms()

    def settle(self, *, appended: bool = False) -> None:
        """Run the syncs that are due after a change, and call the listeners."""
        local = self._local
        if appended and local.end.log_end_offset - local.recovery_point >= local.config.flush_messages:
            self.flush()
        if self._contents.rolled_at:
            self._flush_closed()
        if self.listeners:
            self._notify()

    def _notify(self) -> None:
        for listener in self.listeners:
            listener(self._contents.state.offsets)

    def flush(self, up_to_offset: int | None = None) -> None:
        """Fsync what lies below an offset (None: all there is now), and move the recovery point there.

        Raises:
            LogOfflineError: now, or before; a failed fsync is never tried again. LogClosedError. TypeError, ValueError:
                no offset of 64 bits.
        """
        if up_to_offset is not None:
            up_to_offset = require_int64("up_to_offset", up_to_offset)
        local, contents = self._local, self._contents
        local.check_usable()
        wanted = contents.state.offsets.log_end_offset if up_to_offset is None else up_to_offset
        with self.syncing:
            with self._lock, local.changing():
                wanted = min(wanted, local.log_end_offset)
                moves = wanted > local.synced_offset
                if not moves and not contents.snapshots.has_unsynced:
                    return
                before, generation = local.synced_offset, local.generation
                segments = local.unsynced(wanted) if moves else ()
                snapshots = contents.snapshots.open_unsynced()
            with local.changing():
                local.sync(segments, snapshots.files, known_before=before)
            with self._lock, local.changing():
                contents.snapshots.note_synced(snapshots)
                if generation == local.generation and wanted > local.synced_offset:
                    local.note_synced(wanted)
                    self.last_flush_ms = self._machine.clock.time_ms()
                    contents.publish()
        self._notify()

    def _flush_closed(self) -> None:
        """Sync the segments in front of the last roll in the background, if they are not yet."""
        with self._lock:
            rolled_at, self._contents.rolled_at = self._contents.rolled_at, 0
        if rolled_at <= self._local.recovery_point and not self._contents.snapshots.has_unsynced:
            return
        if self._tasks is None:
            self.flush(rolled_at)
        else:
            self._tasks.submit(partial(self._flush_quietly, rolled_at))

    def write_epochs_later(self) -> None:
        """Write the epochs that a cut of the start left in the background."""
        if self._tasks is None:
            self._write_epochs()
        else:
            self._tasks.submit(self._write_epochs)

    def close(self) -> None:
        """Write and sync everything, with a snapshot of the producers at the log's end, and close the log; idempotent.
        An offline log is closed as it is.

        Raises:
            LogOfflineError: a file could not be written; the log is closed all the same.
        """
        local, contents = self._local, self._contents
        with self.syncing, self._lock:
            if local.is_closed:
                return
            try:
                if local.is_usable:
                    self._sync_all(local, contents)
            except StoreError as error:
                raise local.fail(error) from error
            finally:
                local.close()

    def _sync_all(self, local: LocalLog, contents: LogContents) -> None:
        local.active.on_become_inactive()
        segments, snapshots = local.unsynced(local.log_end_offset), contents.snapshots.open_unsynced()
        local.sync(segments, snapshots.files, known_before=local.synced_offset)
        contents.snapshots.note_synced(snapshots)
        local.note_synced(local.log_end_offset)
        contents.epochs.flush()
        contents.snapshots.take(contents.producers)
        self._machine.files.fsync_directory(local.folder)
        contents.publish()

    def _flush_quietly(self, up_to_offset: int) -> None:
        """Flush in the background: the next call of the log raises a failure."""
        with contextlib.suppress(LogOfflineError, LogClosedError):
            self.flush(up_to_offset)

    def _write_epochs(self) -> None:
        local = self._local
        try:
            # Asked where the write is next: the write that was waited for may be what took the log offline.
            self._contents.epochs.flush(is_wanted=lambda: local.is_usable)
        except StoreError as error:
            if local.is_usable:  # else the folder is gone, and with it the files to write
                local.fail(error)
