"""The log of one partition: appended to by one writer at a time, read by any number of threads.

Writers hold the one lock, over file writes too; readers take the published state, which is replaced as a whole but
for the end that usual appends move, and wait for nobody. The order of an append is Kafka's: check and assign, leader
epoch (synced if it is new), roll, write, end offset, producers' new state, transaction index, last stable offset,
flush. But producers are asked before the epoch and the roll: what they refuse leaves no trace, and a duplicate rolls
nothing.

Source: Kafka UnifiedLog.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Self

from typing_extensions import Buffer

from tierlog._native.appends import AssignedBatch, LeaderAppends, Refusal
from tierlog.arguments import (
    INT32_MAX,
    require_buffer,
    require_function,
    require_int32,
    require_int64,
    require_writable,
)
from tierlog.errors import CorruptIndexError, StoreError
from tierlog.log.local.background_tasks import BackgroundTasks
from tierlog.log.local.local_log import LocalLog
from tierlog.log.local.log_appends import LeaderChecks, LeaderRules, LogAppendInfo, assign_batch, check_sent_batches
from tierlog.log.local.log_config import LogConfig, ProducerSettings
from tierlog.log.local.log_contents import LogContents
from tierlog.log.local.log_flusher import LogFlusher
from tierlog.log.local.log_folder import is_tiered, require_sibling
from tierlog.log.local.log_reads import OffsetsListener
from tierlog.log.local.log_view import LogView
from tierlog.log.local.producers.producer_appends import (
    AppendOrigin,
    producer_batch_of,
    producer_batches_of,
    require_append,
)
from tierlog.log.local.producers.producer_entries import VerificationGuard
from tierlog.log.local.producers.producer_state import PreparedAppend
from tierlog.log.local.recovery.log_loader import LogCheckpoints, OpenedFolder, open_folder, require_opening
from tierlog.log.local.segments.log_segment import LogSegment
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import FileLock


class UnifiedLog(LogView):
    """A partition's log in one folder, as Kafka 4.3 keeps it. ``open`` makes one.

    After a StoreError while a file is written, synced or read, the log is offline: that call and every later one ends
    with LogOfflineError. A refused append (AppendRefusedError) changes nothing.

    Raises (all methods with arguments): TypeError: an argument is of another type. ValueError: an offset, a timestamp
    or a producer id does not fit into 64 bits, an epoch or a sequence not into 32. Nothing has changed then.

    Thread safety: any number of threads; writers wait for each other, readers for nobody.
    """

    def __init__(
        self,
        machine: Machine,
        found: OpenedFolder,
        *,
        config: LogConfig,
        remote_log_enabled: bool,
        is_sole_replica: bool,
        tasks: BackgroundTasks | None,
        on_offline: Callable[[Exception], None] | None = None,
        write_recovery_point: Callable[[], None] | None = None,
    ) -> None:
        loaded = found.loaded
        local = LocalLog(
            machine,
            loaded.place,
            config=config,
            segments=loaded.segments,
            log_end_offset=loaded.log_end_offset,
            recovery_point=max(loaded.recovery_point, loaded.local_log_start_offset),  # nothing lies below
            synced_offset=loaded.recovery_point,
            tasks=tasks,
            on_offline=on_offline,
        )
        contents = LogContents(
            machine,
            local,
            loaded=loaded,
            epochs=found.epochs,
            high_watermark=found.high_watermark,
            is_sole_replica=is_sole_replica,
            is_tiered=found.is_tiered,
            write_recovery_point=write_recovery_point,
        )
        super().__init__(local, contents, found.identity, loaded.report)
        self._machine = machine
        self._broker_tiers = remote_log_enabled
        self._epoch_file = found.epoch_file
        self._begin_leading(config)
        self._lock = machine.scheduler.lock()
        self._listeners: tuple[OffsetsListener, ...] = ()
        self._flusher = LogFlusher(machine, local, contents, lock=self._lock, tasks=tasks, on_flushed=self._notify)

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
        topic_id: bytes | None = None,
        remote_log_enabled: bool = False,
        is_sole_replica: bool = False,
        tasks: BackgroundTasks | None = None,
        on_offline: Callable[[Exception], None] | None = None,
        directory_lock: FileLock | None = None,
        write_recovery_point: Callable[[], None] | None = None,
    ) -> Self:
        """Load the log of a folder, which is made if it does not exist, and mend it.

        Args:
            folder: ``<log dir>/<topic>-<partition>``.
            machine: Clock, chance, threads and files; None: this machine's.
            config: The topic's; None: Kafka's defaults.
            producer_settings: The broker's; None: Kafka's defaults.
            checkpoints: What the log directory's checkpoints say of the log; None: nothing. Only where they tell the
                recovery point, segments behind a hole are deleted after an unclean stop: those that a power cut left.
            had_clean_shutdown: Whether the log directory was closed cleanly: then nothing is checked.
            topic_id: 16 bytes, written to ``partition.metadata`` or compared with it; None: whatever is there.
            remote_log_enabled: Whether this broker has tiered storage (``remote.log.storage.system.enable``).
            is_sole_replica: The high watermark follows the end of the log: there is no follower to wait for.
            tasks: Where work for later is left; None: it is done at once, by the caller's thread.
            on_offline: Called once, when a failure takes the log offline. It must not raise, wait or call this log.
            directory_lock: The lock of the log directory, if the caller holds it; None: nobody may hold it now.
            write_recovery_point: For a caller that gives ``checkpoints`` with a recovery point: it has
                ``recovery_point`` on the disk when it returns. Called under the log's lock, seldom: before records go
                into a segment that begins behind missing offsets (else a kill soon after loses what lies behind the
                gap), and before a truncation below it. It must call nothing of this log that waits.

        Raises:
            StoreUnavailableError: a broker, or a LogDirectory, has the directory open. InconsistentTopicIdError: the
                folder has another topic's id. CorruptIndexError: the leader epoch checkpoint or ``partition.metadata``
                is malformed. ValueError: the folder's name is not that of a partition, or the topic id is not one.
                StoreError.
        """
        require_opening(machine, config, remote_log_enabled=remote_log_enabled, is_sole_replica=is_sole_replica)
        machine, config = machine or Machine(), config or LogConfig()
        opened: list[UnifiedLog] = []
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
            on_epochs_unwritten=lambda: opened[0].flush_epochs_later() if opened else None,
        )
        log = cls(
            machine,
            found,
            config=config,
            remote_log_enabled=remote_log_enabled,
            is_sole_replica=is_sole_replica,
            tasks=tasks,
            on_offline=on_offline,
            write_recovery_point=write_recovery_point,
        )
        opened.append(log)
        return log

    def has_late_transaction(self) -> bool:
        """Whether a transaction is open for longer than any producer may leave it open."""
        with self._lock:
            return self._contents.producers.has_late_transaction(self._machine.clock.time_ms())

    def add_listener(self, listener: OffsetsListener) -> None:
        """Have somebody told of every change of the offsets, until ``remove_listener``."""
        require_function("listener", listener)
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def remove_listener(self, listener: OffsetsListener) -> None:
        """Tell somebody no more; calls that have begun may still come."""
        with self._lock:
            self._listeners = tuple(known for known in self._listeners if known != listener)

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

        Raises:
            AppendRefusedError: with Kafka's error. TypeError: data cannot be written to. LogOfflineError.
                LogClosedError.
        """
        local = self._local
        if type(leader_epoch) is not int or not -1 <= leader_epoch <= INT32_MAX:
            leader_epoch = require_int32("leader_epoch", leader_epoch)
        if origin is not AppendOrigin.CLIENT or verification_guard is not None or transaction_version is not None:
            require_append(origin, verification_guard, transaction_version)
        with self._lock:
            if not local.is_usable:
                local.check_usable()
            now_ms = self._machine.clock.time_ms()
            try:
                # A usual batch is in the log when this returns; of any other it tells what it is.
                info = self._leader.append(data, local.end, leader_epoch, now_ms, origin is AppendOrigin.CLIENT)
                if not isinstance(info, LogAppendInfo):
                    info = self._append_assigned(
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
            self._settle(appended=True)
        return info

    def _append_assigned(
        self,
        data: Buffer,
        found: AssignedBatch | Refusal | None,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin,
        guard: VerificationGuard | None,
        transaction_version: int | None,
    ) -> LogAppendInfo:
        """Append step by step what the native call left, which found this. The caller holds the lock."""
        local, contents, first_offset = self._local, self._contents, self._local.log_end_offset
        taken = assign_batch(
            self._checks,
            data,
            found,
            first_offset=first_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            origin=origin,
        )
        if taken is None:
            return LogAppendInfo.of_nothing(contents.log_start)
        view, batch = taken
        local.check_fits(batch.size_bytes)
        prepared: PreparedAppend | None = None
        if batch.producer_id >= 0:
            batches = (producer_batch_of(batch, view),)
            prepared = contents.producers.prepare(
                batches, origin=origin, guard=guard, transaction_version=transaction_version
            )
            if prepared.duplicate is not None:
                return LogAppendInfo.of_duplicate(prepared.duplicate, contents.log_start)
        local.check_place(first_offset, batch.last_offset)
        contents.epochs.assign(batch.leader_epoch, first_offset)
        if local.roll_is_due(batch.size_bytes, batch.last_offset, batch.max_timestamp, now_ms):
            contents.roll(first_offset)
        local.active.append(view, last_offset=batch.last_offset, max_timestamp_ms=batch.max_timestamp)
        contents.appended(prepared, batch.last_offset + 1)
        append_ms = now_ms if self._checks.rules.log_append_time else -1
        last_offset, start = batch.last_offset, contents.log_start
        return LogAppendInfo(first_offset, last_offset, batch.max_timestamp, append_ms, start, batch.size_bytes)

    def append_as_follower(self, data: Buffer, *, leader_epoch: int) -> LogAppendInfo:
        """Append the batches that a leader sent, with their offsets and epochs.

        Args:
            data: Batches one behind the other; one that is cut off at the end is left out.
            leader_epoch: The latest that this replica knows: batches of a later one, and all behind them, are left out.

        Raises:
            AppendRefusedError: with Kafka's error. LogOfflineError. LogClosedError.
        """
        require_buffer("data", data)
        leader_epoch = require_int32("leader_epoch", leader_epoch)
        with self._lock:
            self._local.check_usable()
            now_ms = self._machine.clock.time_ms()
            columns, size_bytes = check_sent_batches(
                data, next_offset=self._local.log_end_offset, leader_epoch=leader_epoch
            )
            if not size_bytes:
                return LogAppendInfo.of_nothing(self._contents.log_start)
            view = memoryview(data).cast("B")[:size_bytes]
            self._local.check_fits(size_bytes)
            first_offset, last_offset = int(columns["base_offset"][0]), int(columns["last_offset"][-1])
            max_timestamp_ms = int(columns["max_timestamp"].max())
            try:
                batches = producer_batches_of(columns, view)
                prepared = None
                if batches:
                    prepared = self._contents.producers.prepare(batches, origin=AppendOrigin.REPLICATION)
                self._local.check_place(max(first_offset, self._local.log_end_offset), last_offset)
                self._contents.assign_epochs(columns)
                if self._local.roll_is_due(size_bytes, last_offset, max_timestamp_ms, now_ms):
                    self._contents.roll(max(first_offset, self._local.log_end_offset))
                self._local.active.append_run(view, columns)
                self._contents.appended(prepared, last_offset + 1)
            except (StoreError, CorruptIndexError) as error:
                raise self._local.fail(error) from error
            start = self._contents.log_start
        self._settle(appended=True)
        return LogAppendInfo(first_offset, last_offset, max_timestamp_ms, -1, start, size_bytes)

    def assign_epoch_start_offset(self, leader_epoch: int, start_offset: int) -> None:
        """Begin a leader epoch: on becoming leader, at the log's end. It is durable on return.

        Raises:
            ValueError: negative. LogOfflineError. LogClosedError.
        """
        leader_epoch = require_int32("leader_epoch", leader_epoch)
        with self._changing():
            self._contents.epochs.assign(leader_epoch, start_offset)

    def begin_transaction_verification(
        self, producer_id: int, *, sequence: int, producer_epoch: int, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """What the first batch of a transaction has to bring, once its coordinator says yes; None if the transaction is
        open already. Raises AppendRefusedError: INVALID_PRODUCER_EPOCH.
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
            expected_next_offset: Where it begins if that lies behind the log's end: a follower knows from its leader.
                Appends in front of it are refused from then on, those of a leader too.

        Raises:
            LogOfflineError. LogClosedError.
        """
        with self._changing():
            segment = self._contents.roll(0 if expected_next_offset is None else expected_next_offset)
            self._contents.publish()
            return segment

    def flush(self, up_to_offset: int | None = None) -> None:
        """Fsync what lies below an offset (None: everything): the recovery point moves there.

        Appends go on meanwhile; who flushes at the same time shares one fsync. A failed fsync is never tried again: the
        log goes offline.

        Raises:
            LogOfflineError. LogClosedError.
        """
        self._flusher.flush(up_to_offset)

    @property
    def last_flush_ms(self) -> int:
        """When the log was flushed last, or opened, ms since 1970 UTC: for ``flush.ms``."""
        return self._flusher.last_flush_ms

    # ---- offsets

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, kept between the local log start and the log's end; the new one."""
        with self._changing():
            self._contents.set_high_watermark(offset)
            self._contents.publish()
            return self._contents.high_watermark

    def maybe_increment_high_watermark(self, offset: int) -> int | None:
        """Raise the high watermark; the old one, None if it did not rise. Raises ValueError: behind the log's end."""
        offset = require_int64("offset", offset)
        with self._changing():
            contents, old = self._contents, self._contents.high_watermark
            if offset > self._local.log_end_offset:
                raise ValueError(f"high watermark {offset}: the log ends at {self._local.log_end_offset}")
            if offset <= old:
                return None
            contents.set_high_watermark(offset)
            contents.publish()
            return old

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Raise the log start; whether it rose. Raises OffsetOutOfRangeError: above the high watermark."""
        with self._changing():
            return self._contents.raise_log_start(offset, reason)

    def maybe_increment_local_log_start_offset(self, offset: int, reason: str) -> bool:
        """Raise the local log start; whether it rose. The recovery point rises to the first segment that is left."""
        with self._changing():
            return self._contents.raise_local_start(offset, reason)

    def update_highest_offset_in_remote_storage(self, offset: int) -> None:
        """Note that offsets up to this one are copied; a lower one, or any where tiering is off, changes nothing. A
        truncation alone lowers it.
        """
        offset = require_int64("offset", offset)
        with self._changing():
            if self._contents.is_tiered and offset > self._contents.copied:
                self._contents.copied = offset
                self._contents.publish()

    def update_log_start_offset_from_remote_tier(self, offset: int) -> int:
        """Raise the log start to what the tier says, as far as the high watermark; ignored where tiering is off.

        Returns:
            Where the log starts now: a segment of the tier may be deleted only if all of it lies below.

        Raises:
            LogOfflineError. LogClosedError.
        """
        offset = require_int64("offset", offset)
        with self._changing():
            contents = self._contents
            if contents.is_tiered and offset > contents.log_start:
                contents.raise_log_start(min(offset, contents.high_watermark), "segments of the tier were deleted")
            return contents.log_start

    # ---- shortening

    def delete_old_segments(self) -> int:
        """Retention: set segments aside by start offset, size and time; how many went.

        Raises LogOfflineError. LogClosedError.
        """
        with self._changing():
            return self._contents.delete_old_segments(self._machine.clock.time_ms())

    def truncate_to(self, offset: int) -> bool:
        """Cut everything from an offset on; whether anything was there. What stays is on the disk on return.

        Raises:
            ValueError: negative. LogOfflineError. LogClosedError.
        """
        offset = require_int64("offset", offset, least=0)
        with self._changing():
            return self._contents.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove everything and begin anew, empty, at an offset.

        Args:
            offset: The log's end, and where the local log starts.
            log_start_offset: Where the log starts, in the tier; None: at the offset.

        Raises:
            ValueError: negative, or a start behind the offset. LogOfflineError. LogClosedError.
        """
        with self._changing():
            self._contents.truncate_fully(offset, log_start_offset)

    def load_producer_state(self, offset: int) -> None:
        """Restore the producers from the newest snapshot in the folder and the log behind it. What is known of them now
        is forgotten: a snapshot that was put there since counts.

        Args:
            offset: The log's end. Snapshots behind it, or not above the log start, are deleted, as in Kafka.

        Raises:
            ValueError: the log does not end there. LogOfflineError. LogClosedError.
        """
        offset = require_int64("offset", offset)
        with self._changing():
            if offset != self._local.log_end_offset:
                raise ValueError(f"{self.folder}: producers at {offset}, the log ends at {self._local.log_end_offset}")
            self._contents.reload_producers()

    def remove_expired_producers(self) -> int:
        """Forget producers that have been silent for too long; how many."""
        with self._lock:
            return self._contents.producers.remove_expired(self._machine.clock.time_ms())

    # ---- configuration and end

    def update_config(self, config: LogConfig) -> None:
        """Go by another configuration from now on; the active segment keeps its index sizes."""
        with self._changing():
            self._local.set_config(config)
            self._contents.is_tiered = is_tiered(self.topic, config, broker_tiers=self._broker_tiers)
            self._begin_leading(config)
            self._contents.publish()

    def close(self) -> None:
        """Write the indexes out, flush, take a producer snapshot, and close; idempotent. Slices stay readable.

        An offline log is closed as it is.

        Raises:
            LogOfflineError: a file could not be written; the log is closed, and the next start has to recover it.
        """
        with self._flusher.syncing, self._lock:
            local = self._local
            if local.is_closed:
                return
            try:
                if local.is_usable:
                    self._flusher.sync_all()
            except StoreError as error:
                raise local.fail(error) from error
            finally:
                local.close()

    def delete(self) -> None:
        """Close, and remove the folder with all files in it. Raises StoreError: some are still there."""
        with self._flusher.syncing, self._lock:
            self._local.close()
            self._contents.epochs.clear()
            with self._contents.epochs.undisturbed():
                self._local.place.delete()

    def rename_folder(self, folder: str) -> None:
        """Go on under another folder of the same log directory (``…-delete``, ``…-stray``).

        Raises:
            ValueError: not the name of a partition's folder there. LogOfflineError. LogClosedError.
        """
        folder = require_sibling(self.folder, folder)
        with self._flusher.syncing, self._changing(), self._contents.epochs.undisturbed():
            self._local.place.rename_to(folder)
            self._contents.snapshots.move_to(folder)
            self._epoch_file.move_to(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- inside: the caller holds the lock

    def _begin_leading(self, config: LogConfig) -> None:
        """Check and append by a configuration from now on."""
        self._checks = LeaderChecks(LeaderRules.of_config(config))
        self._leader = LeaderAppends(
            self._checks.native,
            self._contents.producers.known,
            self._contents.epochs.latest,
            segment_bytes=config.segment_bytes,
            segment_ms=self._local.limit_ms,
            info=LogAppendInfo,
        )

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """A block that changes the log, under its lock: a file that fails in it takes the log offline."""
        with self._lock, self._local.changing():
            yield
        self._settle()

    def _settle(self, *, appended: bool = False) -> None:
        """What follows a change once the lock is free: syncs that are due, and who listens."""
        contents = self._contents
        local = self._local
        if appended and local.log_end_offset - local.recovery_point >= local.config.flush_messages:
            self._flusher.flush()
        if contents.rolled_at:
            self._flusher.flush_closed()
        if self._listeners:
            self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener(self._contents.state.offsets)

    def flush_epochs_later(self) -> None:  # the epoch cache calls it
        """Have the epochs that a truncation left written in the background."""
        self._flusher.write_epochs_later()
