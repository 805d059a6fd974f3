"""The log of one partition: appended to by one writer at a time, read by any number of threads.

Writers hold the one lock, over file writes too; readers take the published state, which is replaced as a whole but for
the end that usual appends move, and do not wait. The order of an append is Kafka's: check and assign, leader epoch
(synced if it is new), roll, write, end offset, producers' new state, transaction index, last stable offset, flush. But
producers are checked before the epoch and the roll: a refused batch leaves no trace, and a duplicate rolls nothing.
Source: Kafka UnifiedLog.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Self

from typing_extensions import Buffer

from tierlog.arguments import (
    INT32_MAX,
    require_buffer,
    require_flag,
    require_function,
    require_int32,
    require_int64,
    require_type,
    require_writable,
)
from tierlog.errors import CorruptIndexError, StoreError
from tierlog.log.formats.identity_files import Uuid
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.log.local.background_tasks import BackgroundTasks
from tierlog.log.local.leader_epoch_cache import require_entries
from tierlog.log.local.local_log import LocalLog
from tierlog.log.local.log_appends import LogAppendInfo
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_contents import LogContents
from tierlog.log.local.log_errors import LogBusyError
from tierlog.log.local.log_flusher import LogFlusher
from tierlog.log.local.log_folder import is_tiered, require_sibling
from tierlog.log.local.log_reads import OffsetsListener
from tierlog.log.local.log_view import LogView
from tierlog.log.local.producers.producer_appends import AppendOrigin, require_append
from tierlog.log.local.producers.producer_entries import ProducerSettings, VerificationGuard
from tierlog.log.local.producers.producer_state import LastRecord
from tierlog.log.local.recovery.log_loader import LogCheckpoints, OpenedFolder, open_folder
from tierlog.log.local.recovery.tier_start import require_tier_start
from tierlog.log.local.segments.log_segment import LogSegment
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import FileLock
from tierlog.runtime.machine.process import Closeable

#: A block in which a log is not cleaned; the cleaner's checkpoint is lowered to an offset first (None: it stays).
PauseCleaning = Callable[[int | None], AbstractContextManager[None]]


def require_beginning(offset: int, log_start_offset: int | None) -> tuple[int, int]:
    """(offset, log start) at which a log begins anew; None is a start at the offset. Raises ValueError, TypeError."""
    offset = require_int64("offset", offset)
    start = offset if log_start_offset is None else require_int64("log_start_offset", log_start_offset)
    if not 0 <= start <= offset:
        raise ValueError(f"to begin anew at offset {offset}, with a log from {start} on")
    return offset, start


class UnifiedLog(LogView, Closeable):
    """A partition's log in one folder, as Kafka 4.3 writes it. ``open`` makes one.

    After a StoreError while a file is written, synced or read, the log is offline: that call and every later one ends
    with LogOfflineError. A refused append (AppendRefusedError) changes nothing.

    Raises (all methods with arguments): TypeError: an argument is of another type. ValueError: an offset, a timestamp
    or a producer id does not fit into 64 bits, an epoch or a sequence not into 32. Nothing has changed then.
    All methods that read or change the log: LogOfflineError. LogClosedError.

    Thread safety: any number of threads; writers wait for each other, readers for none.
    """

    def __init__(
        self,
        found: OpenedFolder,
        *,
        is_sole_replica: bool,
        tasks: BackgroundTasks | None,
        on_offline: Callable[[Exception], None] | None,
        write_checkpoints: Callable[[], None] | None,
        pause_cleaning: PauseCleaning | None,
    ) -> None:
        machine = found.machine
        local = LocalLog(machine, found.loaded, config=found.config, tasks=tasks, on_offline=on_offline)
        contents = LogContents(
            machine, local, found, is_sole_replica=is_sole_replica, write_checkpoints=write_checkpoints
        )
        super().__init__(machine, found, local=local, contents=contents)
        self._broker_tiers = found.remote_log_enabled
        self._pause_cleaning: PauseCleaning = pause_cleaning or (lambda _: contextlib.nullcontext())
        self._flusher = LogFlusher(machine, local, contents, lock=self._lock, tasks=tasks)
        contents.epochs.on_unwritten = self._flusher.write_epochs_later

    @classmethod
    def open(
        cls,
        folder: str,
        *,
        machine: Machine | None = None,
        config: LogConfig | None = None,
        producer_settings: ProducerSettings | None = None,
        checkpoints: LogCheckpoints | None = None,
        had_clean_shutdown: bool = False,
        topic_id: Uuid | None = None,
        remote_log_enabled: bool = False,
        is_sole_replica: bool = False,
        tasks: BackgroundTasks | None = None,
        on_offline: Callable[[Exception], None] | None = None,
        directory_lock: FileLock | None = None,
        write_checkpoints: Callable[[], None] | None = None,
        pause_cleaning: PauseCleaning | None = None,
    ) -> Self:
        """Load the log of a folder, which is made if it does not exist, and mend it.

        Args:
            folder: ``<log dir>/<topic>-<partition>``.
            machine: Clock, chance, threads and files; None: this machine's.
            config: The topic's; None: Kafka's defaults.
            producer_settings: The broker's; None: Kafka's defaults.
            checkpoints: The log directory's checkpoints of the log; None: none. Only where they have the recovery
                point, segments behind a hole are deleted after an unclean stop: those that a power cut left.
            had_clean_shutdown: Whether the log directory was closed cleanly: then nothing is checked.
            topic_id: Written to ``partition.metadata`` or compared with it; None: whatever is there.
            remote_log_enabled: Whether this broker has tiered storage (``remote.log.storage.system.enable``).
            is_sole_replica: The high watermark follows the end of the log: there is no follower to wait for.
            tasks: Where work for later is left; None: it is done at once, by the caller's thread.
            on_offline: Called once, when a failure takes the log offline. It must not raise, wait or call this log.
            directory_lock: The lock of the log directory, if the caller holds it; None: no process may hold it now.
            write_checkpoints: For a caller that gives ``checkpoints`` with a recovery point: writes the log's own ones
                to the disk, before records go into a segment behind missing offsets, before a truncation, and behind
                one that lowers the high watermark. It is called under the log's lock, and must call nothing that waits.
            pause_cleaning: For a caller that has the log compacted: a block in which no cleaning is under way, and the
                cleaner's checkpoint is not above an offset (None: wherever it is). It may wait, and raise LogBusyError.

        Raises:
            StoreUnavailableError: a broker, or a LogDirectory, has the directory open. InconsistentTopicIdError: the
                folder has another topic's id. CorruptIndexError: a small file of the folder is malformed. ValueError:
                the folder's name is not that of a partition. StoreError.
        """
        require_flag("is_sole_replica", is_sole_replica)
        found = open_folder(
            folder,
            machine=machine,
            config=config,
            producer_settings=producer_settings,
            checkpoints=checkpoints,
            had_clean_shutdown=had_clean_shutdown,
            topic_id=topic_id,
            remote_log_enabled=remote_log_enabled,
            has_lock=directory_lock is not None,
        )
        return cls(
            found,
            is_sole_replica=is_sole_replica,
            tasks=tasks,
            on_offline=on_offline,
            write_checkpoints=write_checkpoints,
            pause_cleaning=pause_cleaning,
        )

    # ---- appending

    def append_as_leader(
        self,
        data: Buffer,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: VerificationGuard | None = None,
        transaction_version: int | None = None,
    ) -> LogAppendInfo:
        """Append one batch: check it, write offset, epoch and timestamps into it in place, and then it into the log.

        Args:
            data: Writable: one batch of magic 2, as a producer sends it; changed in place.
            leader_epoch: This leader's.
            origin: CLIENT, or COORDINATOR for a broker's own batches and markers.
            verification_guard: What ``begin_transaction_verification`` gave for this batch.
            transaction_version: Of a marker, which needs one.

        Raises AppendRefusedError: with Kafka's error. TypeError: data cannot be written to.
        """
        local, contents = self._local, self._contents
        if type(leader_epoch) is not int or not -1 <= leader_epoch <= INT32_MAX:
            leader_epoch = require_int32("leader_epoch", leader_epoch)
        if origin is not AppendOrigin.CLIENT or verification_guard is not None or transaction_version is not None:
            require_append(origin, verification_guard, transaction_version)
        with self._lock:
            if not local.is_usable:
                local.check_usable()
            now_ms = self._machine.clock.time_ms()
            try:
                # A usual batch is in the log when this returns; for any other it returns its check.
                info = contents.leader.append(data, local.end, leader_epoch, now_ms, origin is AppendOrigin.CLIENT)
                if not isinstance(info, LogAppendInfo):
                    info = contents.append_assigned(
                        data,
                        info,
                        leader_epoch=leader_epoch,
                        now_ms=now_ms,
                        origin=origin,
                        guard=verification_guard,
                        transaction_version=transaction_version,
                    )
            except (StoreError, CorruptIndexError) as error:
                raise local.fail(error) from error
            except (BufferError, TypeError):
                require_writable("data", data)
                raise
        if info.size_bytes:
            self._flusher.settle(appended=True)
        return info

    def append_as_follower(self, data: Buffer, *, leader_epoch: int) -> LogAppendInfo:
        """Append the batches that a leader sent, with their offsets and epochs.

        Args:
            data: Batches one behind the other; a cut-off one at the end is left out.
            leader_epoch: The latest that this replica knows: batches of a later one, and all behind them, are left out.

        Raises AppendRefusedError: with Kafka's error.
        """
        require_buffer("data", data)
        leader_epoch = require_int32("leader_epoch", leader_epoch)
        with self._lock:
            self._local.check_usable()
            now_ms = self._machine.clock.time_ms()
            try:
                info = self._contents.append_sent(data, leader_epoch=leader_epoch, now_ms=now_ms)
            except (StoreError, CorruptIndexError) as error:
                raise self._local.fail(error) from error
        if info.size_bytes:
            self._flusher.settle(appended=True)
        return info

    def assign_epoch_start_offset(self, leader_epoch: int, start_offset: int) -> None:
        """Begin a leader epoch: on becoming leader, at the log's end. It is durable on return. Raises ValueError."""
        leader_epoch = require_int32("leader_epoch", leader_epoch)
        with self._changing():
            self._contents.epochs.assign(leader_epoch, start_offset)

    def begin_transaction_verification(
        self, producer_id: int, *, sequence: int, producer_epoch: int, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """The guard of a transaction's first batch, which its coordinator has to allow; None: the transaction is open.
        Raises AppendRefusedError: INVALID_PRODUCER_EPOCH.
        """
        with self._lock:
            self._local.check_usable()
            return self._contents.producers.begin_verification(
                producer_id,
                sequence=sequence,
                producer_epoch=producer_epoch,
                supports_epoch_bump=supports_epoch_bump,
                now_ms=self._machine.clock.time_ms(),
            )

    def roll(self, expected_next_offset: int | None = None) -> LogSegment:
        """Close the active segment and begin another at the log's end; the new one.

        Args:
            expected_next_offset: Where it begins, if behind the log's end; appends in front of it are refused then.
        """
        with self._changing():
            segment = self._contents.roll(0 if expected_next_offset is None else expected_next_offset)
            self._contents.publish()
            return segment

    def flush(self, up_to_offset: int | None = None) -> None:
        """Fsync what lies below an offset (None: everything): the recovery point moves there. Appends go on meanwhile;
        flushes at the same time share one fsync. A failed fsync is never tried again: the log goes offline.
        """
        self._flusher.flush(up_to_offset)

    @property
    def last_flush_ms(self) -> int:
        """Time of the last flush, or of opening, ms since 1970 UTC: for ``flush.ms``."""
        return self._flusher.last_flush_ms

    # ---- offsets

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, bounded by the local log start and the log's end; return the new one."""
        with self._changing():
            self._contents.set_high_watermark(offset)
            self._contents.publish()
            return self._contents.high_watermark

    def maybe_increment_high_watermark(self, offset: int) -> int | None:
        """Raise the high watermark; the old one, None if it did not rise. Raises ValueError: behind the log's end."""
        offset = require_int64("offset", offset)
        with self._changing():
            return self._contents.raise_high_watermark(offset)

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Raise the log start; whether it rose. Raises OffsetOutOfRangeError: above the high watermark."""
        with self._changing():
            return self._contents.raise_log_start(offset, reason)

    def maybe_increment_local_log_start_offset(self, offset: int, reason: str) -> bool:
        """Raise the local log start; whether it rose. The recovery point rises to the first segment that is left."""
        with self._changing():
            return self._contents.raise_local_start(offset, reason)

    def update_highest_offset_in_remote_storage(
        self, offset: int, *, may_fall: bool = False, leader_epoch: int | None = None
    ) -> None:
        """Note that offsets up to this one are copied, as far as the log goes; a lower one, unless it may fall, one of
        another epoch than the log's there, or tiering that is off, changes nothing.
        """
        offset = require_int64("offset", offset)
        require_flag("may_fall", may_fall)
        if leader_epoch is not None:
            leader_epoch = require_int32("leader_epoch", leader_epoch)
        with self._changing():
            # In front of the first entry lies the log start: nothing that is here.
            if leader_epoch is None or self._contents.epochs.epoch_for_offset(offset) in (None, leader_epoch):
                self._contents.note_copied(offset, may_fall=may_fall)

    def update_log_start_offset_from_remote_tier(self, offset: int) -> int:
        """Raise the log start to the tier's offset, as far as the high watermark; ignored where tiering is off.

        Returns:
            Where the log starts now: a segment of the tier may be deleted only if all of it lies below.
        """
        offset = require_int64("offset", offset)
        with self._changing():
            return self._contents.raise_log_start_by_tier(offset)

    # ---- shortening: a cleaning that is under way is aborted first (LogBusyError: it did not end in time)

    def delete_old_segments(self) -> int:
        """Retention: set segments aside by start offset, size and time; how many went. A cleaning that is under way is
        aborted first.
        """
        with self._pausing(None) if self.config.is_compacted else contextlib.nullcontext(), self._changing():
            return self._contents.delete_old_segments(self._machine.clock.time_ms())

    def truncate_to(self, offset: int) -> bool:
        """Cut everything from an offset on, durably; whether anything was there. Raises ValueError: negative."""
        offset = require_int64("offset", offset, least=0)
        with self._cutting(offset):
            return self._contents.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove everything and begin anew, empty, at an offset.

        Args:
            offset: The log's end, and where the local log starts.
            log_start_offset: Where the log starts, in the tier; None: at the offset.

        Raises ValueError: negative, or a start behind the offset.
        """
        offset, log_start_offset = require_beginning(offset, log_start_offset)
        with self._pausing(offset), self._changing():
            self._contents.truncate_fully(offset, log_start_offset)

    def start_from_tier(
        self, offset: int, *, log_start_offset: int, epochs: Iterable[tuple[int, int]], producer_snapshot: Buffer
    ) -> None:
        """Begin anew, empty, behind what the tier has; a crash leaves the old log or the new one, whole.

        Args:
            offset: Where the log begins here, and ends: behind the last segment that only the tier has.
            log_start_offset: The leader's log start, in the tier.
            epochs: (epoch, start offset) of that segment's lineage, ascending; cut to [log start, ``offset``).
            producer_snapshot: Bytes of that segment's.

        Raises ValueError: negative, a start behind the offset, a lineage that begins above the start, or the topic is
        not tiered, any more. CorruptIndexError: the snapshot is none. Nothing has changed then.
        """
        start = require_tier_start(
            offset, log_start_offset=log_start_offset, epochs=epochs, producer_snapshot=producer_snapshot
        )
        with self._pausing(start.offset), self._changing():
            if not self._contents.is_tiered:
                raise ValueError(f"{self.folder}: is not tiered")
            self._contents.start_from_tier(start)

    def complete_lineage(self, epochs: Iterable[tuple[int, int]]) -> None:
        """Add the epochs of what only the tier has in front of those of the records here, which stay: for a log whose
        lineage begins above its start. Durable on return.

        Args:
            epochs: (epoch, start offset), ascending, of the tier's last segment in front of this log's records.

        Raises ValueError: they begin above the log start, or are later than the records'; or the log is empty, and has
        to begin from the tier. Nothing has changed then.
        """
        lineage = LeaderEpochs(require_entries("epochs", epochs))
        with self._changing():
            self._contents.complete_lineage(lineage)

    def take_lineage(self, epochs: Iterable[tuple[int, int]]) -> None:
        """Take another log's epochs in place of this one's, which has the same records: those of a compacted log that
        was copied batch by batch begin late, and followers that diverged in front of that would not be cut. Durable on
        return.

        Args:
            epochs: (epoch, start offset), ascending. They are cut to this log's start, which may be above the other's.

        Raises ValueError: they do not ascend. Nothing has changed then.
        """
        lineage = LeaderEpochs(require_entries("epochs", epochs))
        with self._changing():
            self._contents.epochs.replace(lineage.truncate_from_start(self._contents.log_start))

    def remove_expired_producers(self) -> int:
        """Forget producers that have been silent for too long; how many."""
        with self._lock:
            return self._contents.producers.remove_expired(self._machine.clock.time_ms())

    # ---- compaction

    def last_records_of_producers(self) -> dict[int, LastRecord]:
        """The last record of each producer below the high watermark, by its id: what lies behind may be cut (Kafka
        lastRecordsOfActiveProducers: to the log's end). Raises StoreError.
        """
        with self._lock:
            contents = self._contents
            high_watermark = contents.high_watermark
            return contents.producers.last_records_below(
                high_watermark, lambda: contents.snapshots.entries_before(high_watermark)
            )

    def create_cleaned_segment(self, base_offset: int) -> LogSegment:
        """Make an empty segment outside the log, for ``replace_segments``; its files end with ``.cleaned``."""
        with self._lock:
            self._local.check_usable()
            return self._local.create_cleaned(base_offset)

    def replace_segments(self, cleaned: LogSegment, replaced: Sequence[LogSegment], *, generation: int) -> None:
        """Put a cleaned segment, whose files and names are on the disk, in place of those that it was made of.

        Args:
            cleaned: Of ``create_cleaned_segment``; closed to appends, and flushed.
            replaced: Neighbours, the first with its base offset. Those that retention deleted meanwhile stay away.
            generation: The log's, before they were read.

        Raises LogCleaningAbortedError: the log was cut since, or they are gone; nothing has changed then.
        """
        with self._changing():
            self._contents.replace_segments(cleaned, replaced, generation=generation)

    # ---- configuration and end

    def take_offline(self, cause: Exception) -> None:
        """Let every later call end with LogOfflineError: the disk failed for another log. Does not wait."""
        self._local.fail(cause)

    def add_listener(self, listener: OffsetsListener) -> None:
        """Call a listener on every change of the offsets, until ``remove_listener``."""
        require_function("listener", listener)
        with self._lock:
            self._flusher.listeners = (*self._flusher.listeners, listener)

    def remove_listener(self, listener: OffsetsListener) -> None:
        """Remove a listener; calls that have begun may still come."""
        with self._lock:
            self._flusher.listeners = tuple(known for known in self._flusher.listeners if known != listener)

    def update_config(self, config: LogConfig) -> None:
        """Use another configuration from now on; the active segment's index sizes stay. The cleaning of a log that is
        not compacted any more is aborted first; a log that is compacted from now on is flushed up to its active
        segment; one that is tiered no more starts where it is local. Raises LogBusyError: the cleaning did not end in
        time; nothing has changed.
        """
        require_type("config", config, LogConfig, "a LogConfig")
        was_compacted = self.config.is_compacted
        ends_compaction = was_compacted and not config.is_compacted
        with self._pausing(None) if ends_compaction else contextlib.nullcontext(), self._changing():
            is_now_tiered = is_tiered(self.topic, config, broker_tiers=self._broker_tiers)
            self._contents.set_config(config, is_tiered=is_now_tiered)
        if config.is_compacted and not was_compacted:  # what a power cut takes of a segment would pass for compaction's
            self.flush(self._local.active.base_offset)

    def close(self) -> None:
        """Write the indexes out, flush, take a producer snapshot, and close; idempotent. Slices stay readable. Raises
        LogOfflineError: a file could not be written; the log is closed, and the next start has to recover it.
        """
        with contextlib.ExitStack() as paused:
            with contextlib.suppress(LogBusyError):  # a cleaning that goes on finds the log closed
                paused.enter_context(self._pause_cleaning(None))
            self._flusher.close()

    def delete(self) -> None:
        """Close, and remove the folder with all files in it. Raises StoreError: some are still there."""
        with self._flusher.syncing, self._lock:
            self._local.close()
            self._contents.epochs.clear()
            with self._contents.epochs.undisturbed():
                self._local.place.delete()

    def rename_folder(self, folder: str) -> None:
        """Go on under another folder of the same log directory (``…-delete``). Raises ValueError: no such name."""
        folder = require_sibling(self.folder, folder)
        with self._pausing(None), self._flusher.syncing, self._changing(), self._contents.epochs.undisturbed():
            self._local.place.rename_to(folder)

    def hand_over(self, future: UnifiedLog, folder: str, aside: str) -> bool:
        """Let a log that moved in take this one's place, if it has all that this one has: it gets this one's name, and
        then this one is renamed and closed. Appends wait meanwhile, and end with LogClosedError.

        Args:
            future: Its high watermark and log start become this log's.
            folder: Its folder from now on, in its directory.
            aside: This log's folder from now on, in its own.

        Returns:
            Whether it has; else nothing has changed.

        Raises LogOfflineError: of the other, and this log goes on; or of this log, and the other one's ``folder`` says
        whether it has taken over.
        """
        aside = require_sibling(self.folder, aside)
        with self._flusher.syncing, self._lock:
            self._local.check_usable()
            offsets, latest = self.offsets, self._contents.epochs.latest_entry
            if future.log_end_offset != offsets.log_end_offset:
                return False
            if latest is not None and latest.start_offset == offsets.log_end_offset:  # begun, and nothing appended yet
                last = offsets.log_end_offset - 1
                if future.leader_epoch_cache.epoch_for_offset(last) != self._contents.epochs.epoch_for_offset(last):
                    return False  # it ends in another branch, which this log was cut from
                future.assign_epoch_start_offset(*latest)
            if latest is None and offsets.log_start_offset == offsets.log_end_offset:
                # Its records are deleted, and its last epoch was cut off: the future log has neither then.
                future.update_high_watermark(offsets.high_watermark)
                future.maybe_increment_log_start_offset(offsets.log_start_offset, "of the log that moves")
                future.truncate_to(offsets.log_end_offset)
            known = future.leader_epoch_cache.latest_entry
            if (latest and latest.epoch) != (known and known.epoch):
                return False
            future.update_high_watermark(offsets.high_watermark)
            future.update_highest_offset_in_remote_storage(offsets.highest_offset_in_remote_storage)
            future.maybe_increment_log_start_offset(offsets.log_start_offset, "of the log that moves")
            future.take_lineage(self._contents.epochs.epochs)
            future.flush()
            future.rename_folder(folder)
            with self._local.changing(), self._contents.epochs.undisturbed():
                self._local.place.rename_to(aside)
            self._local.close()
        return True

    # ---- inside

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """A block that changes the log, under its lock: a file that fails in it takes the log offline."""
        with self._lock, self._local.changing():
            yield
        self._flusher.settle()

    def _pausing(self, offset: int | None) -> AbstractContextManager[None]:
        """A block in which the log is not cleaned; the cleaner's checkpoint is not above the offset."""
        self._local.check_usable()
        return self._pause_cleaning(offset)

    @contextlib.contextmanager
    def _cutting(self, offset: int) -> Iterator[None]:
        """A block that cuts the log to an offset: ``_changing``, and without a cleaning if a segment is cut that could
        be cleaned. The active one never is.
        """
        while True:
            segments = self._contents.state.segments
            first = segments.floor(offset)
            cuts_closed = offset < segments.active.base_offset
            begins_at = offset if first is None else first.base_offset
            pausing = self._pausing(begins_at) if cuts_closed else contextlib.nullcontext()
            with pausing, self._changing():
                if cuts_closed or offset >= self._local.active.base_offset:  # else it was rolled meanwhile
                    yield
                    return
