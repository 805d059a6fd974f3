"""The log of one partition: appended to by one writer at a time, read by any number of threads.

Writers hold the one lock, over file writes too; readers take the published state, which is replaced as a whole, and
wait for nobody. The order of an append is Kafka's: check and assign, leader epoch (synced if it is new), roll,
producers, write, end offset, producers' new state, transaction index, last stable offset, flush.

Source: Kafka UnifiedLog.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog.errors import CorruptDataError, CorruptIndexError, CorruptRecordError, ObjectNotFoundError, StoreError
from tierlog.log.formats.partition_metadata import PartitionMetadata, encode_partition_metadata, parse_partition_metadata
from tierlog.log.formats.segment_files import PARTITION_METADATA, find_partition_folder
from tierlog.log.local.appending.append_checks import LeaderChecks, check_sent_batches, leader_rules
from tierlog.log.local.background_tasks import BackgroundTasks
from tierlog.log.local.leader_epoch_cache import EpochCheckpointFile, LeaderEpochCache
from tierlog.log.local.local_log import LocalLog
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import (
    AppendRefusedError,
    InconsistentTopicIdError,
    KafkaError,
    LogClosedError,
    LogOfflineError,
    LogTruncatedError,
    OffsetOutOfRangeError,
)
from tierlog.log.local.log_offsets import FetchIsolation, LogOffsets, LogState, OffsetsListener
from tierlog.log.local.log_reads import LogReader
from tierlog.log.local.log_values import FetchDataInfo, LogAppendInfo, ProducerSettings
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.log.local.producers.producer_batches import producer_batch_of, producer_batches_of
from tierlog.log.local.producers.producer_snapshots import ProducerSnapshots
from tierlog.log.local.producers.producer_state import PreparedAppend, ProducerState
from tierlog.log.local.producers.transaction_verification import VerificationGuard
from tierlog.log.local.recovery.log_loader import LoadedLog, LogCheckpoints, RecoveryReport, load_log
from tierlog.log.local.recovery.producer_restoring import restore_producers
from tierlog.log.local.retention import RetentionRules
from tierlog.log.local.segments.log_segment import LogSegment, TimestampAndOffset
from tierlog.runtime.machine import Machine

_log = logging.getLogger(__name__)

_INT64_MAX: Final = 2**63 - 1
_INTERNAL_TOPICS: Final = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__remote_log_metadata")
)
_NO_APPEND: Final = -1
MAGIC_V2: Final = 2


class UnifiedLog:
    """A partition's log in one folder, as Kafka 4.3 keeps it. ``open`` makes one.

    After a StoreError while a file is written, synced or read, the log is offline: that call and every later one ends
    with LogOfflineError. A refused append (AppendRefusedError) leaves the records as they were; as in Kafka it may have
    begun a leader epoch or rolled a segment.

    Thread safety: any number of threads; writers wait for each other, readers for nobody.
    """

    def __init__(
        self,
        machine: Machine,
        folder: str,
        *,
        config: LogConfig,
        loaded: LoadedLog,
        epochs: LeaderEpochCache,
        epoch_file: EpochCheckpointFile,
        high_watermark: int,
        topic_id: bytes | None,
        remote_log_enabled: bool,
        is_sole_replica: bool,
        tasks: BackgroundTasks | None,
    ) -> None:
        self._machine = machine
        self._tasks = tasks
        self._report = loaded.report
        self._topic, self._partition = _partition_of(folder)
        self._topic_id = topic_id
        self._broker_tiers = remote_log_enabled
        self._is_sole_replica = is_sole_replica
        self._lock = machine.scheduler.lock()
        #: Held over fsyncs, taken before the lock: whoever waits for it finds the work done.
        self._syncing = machine.scheduler.lock()
        self._listeners: tuple[OffsetsListener, ...] = ()
        self._epochs = epochs
        self._epoch_file = epoch_file
        self._producers = loaded.producers
        self._snapshots = loaded.snapshots
        self._reader = LogReader(folder)
        self._local = LocalLog(
            machine,
            folder,
            config=config,
            segments=loaded.segments,
            log_end_offset=loaded.log_end_offset,
            recovery_point=loaded.recovery_point,
            tasks=tasks,
        )
        self._log_start = loaded.log_start_offset
        self._local_start = loaded.local_log_start_offset
        self._copied = -1
        self._flushed_ms = machine.clock.time_ms()
        self._must_flush = False
        self._rolled_at = 0
        self._set_config(config)
        end = loaded.log_end_offset
        self._high_watermark = end if is_sole_replica else min(max(high_watermark, self._log_start), end)
        self._producers.on_high_watermark(self._high_watermark)
        self._publish()

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
    ) -> Self:
        """Load the log of a folder, which is made if it does not exist, and mend it.

        Args:
            folder: ``<log dir>/<topic>-<partition>``.
            machine: Clock, chance, threads and files; None: this machine's.
            config: The topic's; None: Kafka's defaults.
            producer_settings: The broker's; None: Kafka's defaults.
            checkpoints: What the log directory's checkpoints say of the log; None: nothing.
            had_clean_shutdown: Whether the log directory was closed cleanly: then nothing is checked.
            topic_id: 16 bytes, written to ``partition.metadata`` or compared with it; None: whatever is there.
            remote_log_enabled: Whether this broker has tiered storage (``remote.log.storage.system.enable``).
            is_sole_replica: The high watermark follows the end of the log: there is no follower to wait for.
            tasks: Where work for later is left; None: it is done at once, by the caller's thread.

        Raises:
            InconsistentTopicIdError: the folder has another topic's id. CorruptIndexError: the leader epoch checkpoint
                or ``partition.metadata`` is malformed. ValueError: the folder's name is not that of a partition.
                StoreError.
        """
        machine = machine or Machine()
        config = config or LogConfig()
        settings = producer_settings or ProducerSettings()
        checkpoints = checkpoints or LogCheckpoints()
        topic, _ = _partition_of(folder)
        machine.files.make_directories(folder)
        known_id = _agreed_topic_id(machine, folder, topic_id)
        opened: list[UnifiedLog] = []
        epoch_file = EpochCheckpointFile(machine.files, folder)
        epochs = LeaderEpochCache(
            epoch_file,
            machine=machine,
            on_unwritten=lambda: opened[0]._flush_epochs_later() if opened else None,
        )
        producers = ProducerState(
            start_offset=checkpoints.log_start_offset,
            expiration_ms=settings.producer_id_expiration_ms,
            transaction_timeout_ms_max=settings.transaction_max_timeout_ms,
            verifies=settings.transaction_partition_verification_enable,
        )
        loaded = load_log(
            folder,
            machine=machine,
            config=config,
            epochs=epochs,
            producers=producers,
            checkpoints=checkpoints,
            had_clean_shutdown=had_clean_shutdown,
            remote_log_enabled=_tiers(topic, config, broker_tiers=remote_log_enabled),
        )
        log = cls(
            machine,
            folder,
            config=config,
            loaded=loaded,
            epochs=epochs,
            epoch_file=epoch_file,
            high_watermark=checkpoints.high_watermark,
            topic_id=known_id,
            remote_log_enabled=remote_log_enabled,
            is_sole_replica=is_sole_replica,
            tasks=tasks,
        )
        opened.append(log)
        return log

    # ---- what is known

    @property
    def folder(self) -> str:
        return self._local.folder

    @property
    def parent_dir(self) -> str:
        """The log directory."""
        return self._local.folder.rstrip("/").rpartition("/")[0] or "."

    @property
    def topic(self) -> str:
        return self._topic

    @property
    def partition(self) -> int:
        return self._partition

    @property
    def topic_id(self) -> bytes | None:
        """16 bytes; None where neither the caller nor ``partition.metadata`` gave one."""
        return self._topic_id

    @property
    def config(self) -> LogConfig:
        return self._local.config

    @property
    def recovery_report(self) -> RecoveryReport:
        """What loading did."""
        return self._report

    @property
    def is_offline(self) -> bool:
        """Whether a file failed, so that every call ends with LogOfflineError."""
        return self._local.failure is not None

    @property
    def offsets(self) -> LogOffsets:
        """All offsets, of one moment."""
        return self._state.offsets

    @property
    def log_start_offset(self) -> int:
        return self._state.offsets.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        return self._state.offsets.local_log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._state.offsets.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._state.offsets.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self._state.offsets.last_stable_offset

    @property
    def recovery_point(self) -> int:
        return self._state.offsets.recovery_point

    @property
    def highest_offset_in_remote_storage(self) -> int:
        return self._state.offsets.highest_offset_in_remote_storage

    @property
    def leader_epoch_cache(self) -> LeaderEpochCache:
        return self._epochs

    @property
    def producer_state_manager(self) -> ProducerSnapshots:
        """The producer snapshots on disk, by offset."""
        return self._snapshots

    def remote_log_enabled(self) -> bool:
        """Whether this log is tiered: broker and topic say so, and it is neither compacted nor internal."""
        return self._is_tiered

    def log_segments(self, from_offset: int | None = None, to_offset: int | None = None) -> tuple[LogSegment, ...]:
        """The segments, ascending; with bounds, from the one that contains ``from_offset`` on, base offsets below
        ``to_offset``.
        """
        segments = self._state.segments
        if from_offset is None and to_offset is None:
            return segments.segments
        return segments.between(from_offset or 0, _INT64_MAX if to_offset is None else to_offset)

    @property
    def active_segment(self) -> LogSegment:
        return self._state.segments.active

    def size(self) -> int:
        """Bytes of all segments' logs."""
        return self._state.segments.size_bytes

    def only_local_log_segments_size(self) -> int:
        """Bytes of the segments that the tier does not have: base offset at or behind the highest copied offset."""
        return sum(segment.size_bytes for segment in self._only_local())

    def only_local_log_segments_count(self) -> int:
        """How many segments the tier does not have."""
        return len(self._only_local())

    def has_late_transaction(self) -> bool:
        """Whether a transaction is open for longer than any producer may leave it open."""
        with self._lock:
            return self._producers.has_late_transaction(self._machine.clock.time_ms())

    def add_listener(self, listener: OffsetsListener) -> None:
        """Have somebody told of every change of the offsets, until ``remove_listener``."""
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
            transaction_version: Of a marker.

        Raises:
            AppendRefusedError: with Kafka's error. LogOfflineError. LogClosedError.
        """
        with self._lock:
            self._local.check_usable()
            now_ms = self._machine.clock.time_ms()
            first_offset = self._local.log_end_offset
            batch = self._checks.assign(
                data, first_offset=first_offset, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin
            )
            if batch is None:
                return self._nothing_appended()
            view = memoryview(data).cast("B")[: batch.size_bytes]
            if batch.size_bytes > self._local.config.segment_bytes:
                raise _too_large(batch.size_bytes, self._local.config)
            try:
                self._epochs.assign(batch.leader_epoch, first_offset)
                if self._local.roll_is_due(
                    batch.size_bytes,
                    last_offset=batch.last_offset,
                    max_timestamp_ms=batch.max_timestamp,
                    now_ms=now_ms,
                ):
                    self._roll(first_offset)
                prepared = None
                if batch.producer_id >= 0:
                    prepared = self._producers.prepare(
                        (producer_batch_of(batch, view),),
                        origin=origin,
                        guard=verification_guard,
                        transaction_version=transaction_version,
                    )
                    if prepared.duplicate is not None:
                        return self._duplicate(prepared)
                self._local.active.append(view, last_offset=batch.last_offset, max_timestamp_ms=batch.max_timestamp)
                self._appended(prepared, batch.last_offset + 1)
            except StoreError as error:
                raise self._local.fail(error) from error
            except CorruptRecordError as error:
                raise AppendRefusedError(KafkaError.CORRUPT_MESSAGE, str(error)) from error
            start = self._log_start
        self._settle()
        append_time_ms = now_ms if self._checks.rules.log_append_time else -1
        return LogAppendInfo(
            first_offset, batch.last_offset, batch.max_timestamp, append_time_ms, start, batch.size_bytes
        )

    def append_as_follower(self, data: Buffer, *, leader_epoch: int) -> LogAppendInfo:
        """Append the batches that a leader sent, with their offsets and epochs.

        Args:
            data: Batches one behind the other; one that is cut off at the end is left out.
            leader_epoch: The latest that this replica knows: batches of a later one, and all behind them, are left out.

        Raises:
            AppendRefusedError: with Kafka's error. LogOfflineError. LogClosedError.
        """
        with self._lock:
            self._local.check_usable()
            now_ms = self._machine.clock.time_ms()
            columns, size_bytes = check_sent_batches(
                data, next_offset=self._local.log_end_offset, leader_epoch=leader_epoch
            )
            if not size_bytes:
                return self._nothing_appended()
            view = memoryview(data).cast("B")[:size_bytes]
            if size_bytes > self._local.config.segment_bytes:
                raise _too_large(size_bytes, self._local.config)
            first_offset, last_offset = int(columns["base_offset"][0]), int(columns["last_offset"][-1])
            max_timestamp_ms = int(columns["max_timestamp"].max())
            try:
                self._assign_epochs(columns)
                if self._local.roll_is_due(
                    size_bytes, last_offset=last_offset, max_timestamp_ms=max_timestamp_ms, now_ms=now_ms
                ):
                    self._roll(max(first_offset, self._local.log_end_offset))
                prepared = None
                batches = producer_batches_of(columns, view)
                if batches:
                    prepared = self._producers.prepare(batches, origin=AppendOrigin.REPLICATION)
                self._local.active.append_run(view, columns)
                self._appended(prepared, last_offset + 1)
            except StoreError as error:
                raise self._local.fail(error) from error
            except CorruptRecordError as error:
                raise AppendRefusedError(KafkaError.CORRUPT_MESSAGE, str(error)) from error
            start = self._log_start
        self._settle()
        return LogAppendInfo(first_offset, last_offset, max_timestamp_ms, -1, start, size_bytes)

    def assign_epoch_start_offset(self, leader_epoch: int, start_offset: int) -> None:
        """Begin a leader epoch: on becoming leader, at the log's end. It is durable on return.

        Raises:
            LogOfflineError. LogClosedError.
        """
        with self._changing():
            self._epochs.assign(leader_epoch, start_offset)

    def begin_transaction_verification(
        self, producer_id: int, *, sequence: int, producer_epoch: int, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """What the first batch of a transaction has to bring, once its coordinator says yes; None if the transaction is
        open already. Raises AppendRefusedError: INVALID_PRODUCER_EPOCH.
        """
        with self._lock:
            self._local.check_usable()
            return self._producers.begin_verification(
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

        Raises:
            LogOfflineError. LogClosedError.
        """
        with self._changing():
            segment = self._roll(expected_next_offset or 0)
            self._publish()
            return segment

    def flush(self, up_to_offset: int | None = None) -> None:
        """fsync what lies below an offset (None: everything): the recovery point moves there.

        Appends go on meanwhile; who flushes at the same time shares one fsync. A failed fsync is never tried again: the
        log goes offline.

        Raises:
            LogOfflineError. LogClosedError.
        """
        self._local.check_usable()
        wanted = self._state.offsets.log_end_offset if up_to_offset is None else up_to_offset
        with self._syncing:
            with self._changing(settles=False):
                local = self._local
                wanted = min(wanted, local.log_end_offset)
                if wanted <= local.recovery_point:
                    return
                before, generation = local.recovery_point, local.generation
                segments = local.unsynced(wanted)
                snapshots = self._snapshots.open_unsynced()
            try:
                for snapshot in snapshots:
                    with snapshot:
                        snapshot.fsync()
                local.sync(segments, known_before=before)
            except StoreError as error:
                raise local.fail(error) from error
            with self._changing(settles=False):
                if generation == local.generation and wanted > local.recovery_point:
                    local.recovery_point = wanted
                    self._flushed_ms = self._machine.clock.time_ms()
                    self._publish()
        self._notify()

    @property
    def last_flush_ms(self) -> int:
        """When the log was flushed last, or opened, ms since 1970 UTC: for ``flush.ms``."""
        return self._flushed_ms

    # ---- reading

    def read(
        self, start_offset: int, *, max_bytes: int, isolation: FetchIsolation, min_one_message: bool = True
    ) -> FetchDataInfo:
        """What the log has from an offset on.

        Args:
            start_offset: The batch that holds it is the first one handed out; without one, the next batch.
            max_bytes: At most so many bytes, but with ``min_one_message`` always the whole first batch.
            isolation: Up to where.
            min_one_message: Whether a first batch that is larger than ``max_bytes`` is handed out whole.

        Raises:
            OffsetOutOfRangeError: also for what the tier alone has. CorruptRecordError: no batch stands where one must.
                LogTruncatedError: the log was cut meanwhile; read again. LogOfflineError. LogClosedError.
        """
        self._local.check_usable()
        state = self._state
        try:
            return self._reader.read(
                state, start_offset, max_bytes=max_bytes, isolation=isolation, min_one_message=min_one_message
            )
        except StoreError as error:
            raise self._read_failed(state, error) from error

    def fetch_offset_by_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """Kafka's answer to ListOffsets, for a timestamp or one of the special ones of ``log_offsets``, over what is
        local; None if no record is late enough. Raises as ``read``.
        """
        with self._reading() as state:
            return self._reader.find_by_timestamp(
                state, self._epochs.epochs, timestamp_ms, remote_log_enabled=self._is_tiered
            )

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) for OffsetsForLeaderEpoch; (-1, -1) if it is not known."""
        return self._epochs.end_offset_for(leader_epoch, self._state.offsets.log_end_offset)

    def collect_aborted_transactions(
        self, start_offset: int, upper_bound_offset: int
    ) -> tuple[tuple[int, int, int], ...]:
        """(producer id, first offset, last offset) of the aborted transactions that touch [start, upper bound)."""
        with self._reading() as state:
            return self._reader.collect_aborted(state, start_offset, upper_bound_offset)

    # ---- offsets

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, kept between the log start and the log's end; the new one."""
        with self._changing():
            self._set_high_watermark(offset)
            self._publish()
            return self._high_watermark

    def maybe_increment_high_watermark(self, offset: int) -> int | None:
        """Raise the high watermark; the old one, None if it did not rise. Raises ValueError: behind the log's end."""
        with self._changing():
            old = self._high_watermark
            if offset > self._local.log_end_offset:
                raise ValueError(f"high watermark {offset}: the log ends at {self._local.log_end_offset}")
            if offset <= old:
                return None
            self._set_high_watermark(offset)
            self._publish()
            return old

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Raise the log start; whether it rose. Raises OffsetOutOfRangeError: above the high watermark."""
        with self._changing():
            return self._raise_log_start(offset, reason)

    def maybe_increment_local_log_start_offset(self, offset: int, reason: str) -> bool:
        """Raise the local log start, and the recovery point with it; whether it rose."""
        with self._changing():
            return self._raise_local_start(offset, reason)

    def update_highest_offset_in_remote_storage(self, offset: int) -> None:
        """Note that offsets up to this one are copied; it never falls, and is ignored where tiering is off."""
        with self._changing():
            if self._is_tiered and offset > self._copied:
                self._copied = offset
                self._publish()

    def update_log_start_offset_from_remote_tier(self, offset: int) -> None:
        """Raise the log start to what the tier says; ignored where tiering is off."""
        with self._changing():
            if self._is_tiered and offset > self._log_start:
                self._raise_log_start(min(offset, self._high_watermark), "segments of the tier were deleted")

    # ---- shortening

    def delete_old_segments(self) -> int:
        """Retention: set segments aside by start offset, size and time; how many went.

        Raises:
            LogOfflineError. LogClosedError.
        """
        with self._changing():
            rules = RetentionRules(self._local.config, remote_log_enabled=self._is_tiered)
            gone = 0
            for rule in rules.breaches(self._machine.clock.time_ms()):
                breach = rule(self._state)
                if breach is not None:
                    found = rules.deletable(self._state, breach)
                    if found.rolls:
                        self._roll(0)
                    gone += self._set_aside(found.segments, copies=rules.copies)
                    self._publish()
            return gone

    def truncate_to(self, offset: int) -> bool:
        """Cut everything from an offset on; whether anything was there. What stays is on the disk on return.

        Raises:
            ValueError: negative. LogOfflineError. LogClosedError.
        """
        if offset < 0:
            raise ValueError(f"{self.folder}: truncated to offset {offset}")
        with self._changing():
            if offset >= self._local.log_end_offset:
                self._epochs.truncate_from_end(offset)  # an epoch may begin at the end, and be another leader's
                return False
            if self._local.segments.first.base_offset > offset:
                self._truncate_fully(offset, None)
                return True
            self._forget_snapshots(self._local.truncate_to(offset))
            self._epochs.truncate_from_end(offset)
            self._log_start = min(self._log_start, offset)
            self._local_start = min(self._local_start, offset)
            self._restore_producers(offset)
            self._set_high_watermark(self._high_watermark)
            self._publish()
            return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove everything and begin anew, empty, at an offset.

        Args:
            offset: The log's end, and where the local log starts.
            log_start_offset: Where the log starts, in the tier; None: at the offset.

        Raises:
            LogOfflineError. LogClosedError.
        """
        with self._changing():
            self._truncate_fully(offset, log_start_offset)

    def load_producer_state(self, offset: int) -> None:
        """Restore the producers up to an offset from the snapshots in the folder and the log behind them.

        Raises:
            LogOfflineError. LogClosedError.
        """
        with self._changing():
            self._snapshots.relist()
            self._restore_producers(offset)
            self._publish()

    def remove_expired_producers(self) -> int:
        """Forget producers that have been silent for too long; how many."""
        with self._lock:
            return self._producers.remove_expired(self._machine.clock.time_ms())

    # ---- configuration and end

    def update_config(self, config: LogConfig) -> None:
        """Go by another configuration from now on; the active segment keeps its index sizes."""
        with self._changing():
            self._set_config(config)
            self._publish()

    def close(self) -> None:
        """Write the indexes out, flush, take a producer snapshot, and close; idempotent. Slices stay readable.

        An offline log is closed as it is.

        Raises:
            LogOfflineError: a file could not be written; the log is closed, and the next start has to recover it.
        """
        with self._syncing, self._lock:
            local = self._local
            if local.is_closed:
                return
            try:
                if local.is_usable:
                    local.active.on_become_inactive()
                    local.sync(local.unsynced(local.log_end_offset), known_before=local.recovery_point)
                    local.recovery_point = local.log_end_offset
                    self._epochs.flush()
                    self._snapshots.take(self._producers)
                    self._machine.files.fsync_directory(self.folder)
                    self._publish()
            except StoreError as error:
                raise local.fail(error) from error
            finally:
                local.close()

    def delete(self) -> None:
        """Close, and remove the folder with all files in it. Raises StoreError: some are still there."""
        with self._syncing, self._lock:
            self._local.close()
            self._epochs.clear()
            files = self._machine.files
            for found in list(files.iter_directory(self.folder)):
                files.remove(found.path)
            files.remove(self.folder)
            files.fsync_directory(self.parent_dir)

    def rename_folder(self, folder: str) -> None:
        """Go on under another folder of the same log directory (``…-delete``, ``…-stray``). Raises LogOfflineError."""
        with self._syncing, self._changing():
            self._machine.files.rename(self.folder, folder)
            for segment in self._local.segments:
                segment.move_to(folder)
            self._local.folder = folder
            self._snapshots.move_to(folder)
            self._epoch_file.move_to(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- inside: the caller holds the lock

    @contextlib.contextmanager
    def _changing(self, *, settles: bool = True) -> Iterator[None]:
        """A block that changes the log, under its lock: a file that fails in it takes the log offline."""
        with self._lock:
            self._local.check_usable()
            try:
                yield
            except (StoreError, CorruptDataError) as error:
                raise self._local.fail(error) from error
        if settles:
            self._settle()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[LogState]:
        """A block that reads by the state that it is given."""
        self._local.check_usable()
        state = self._state
        try:
            yield state
        except StoreError as error:
            raise self._read_failed(state, error) from error

    def _read_failed(self, state: LogState, error: StoreError) -> Exception:
        """What a reader is told whose files failed: they may have gone under it."""
        self._local.check_usable()
        if self._state.segments is not state.segments:
            return LogTruncatedError(f"{self.folder}: segments went while they were read")
        return self._local.fail(error)

    def _publish(self) -> None:
        """Let readers see the log as it is now."""
        local, high_watermark, log_start = self._local, self._high_watermark, self._log_start
        unstable = self._producers.first_unstable_offset
        stable = high_watermark if unstable is None or unstable >= high_watermark else max(unstable, log_start)
        offsets = LogOffsets(
            log_start,
            self._local_start,
            stable,
            high_watermark,
            local.log_end_offset,
            local.recovery_point,
            self._copied,
        )
        self._state = LogState(offsets, local.segments, local.active.size_bytes, local.generation)

    def _appended(self, prepared: PreparedAppend | None, end_offset: int) -> None:
        """Take note of what was written to the active segment."""
        local = self._local
        local.log_end_offset = end_offset
        if prepared is None:
            self._producers.end_offset = end_offset
        else:
            aborted = self._producers.apply(prepared, end_offset=end_offset)
            if aborted:
                local.active.append_aborted(aborted)
        if self._is_sole_replica:
            self._high_watermark = end_offset
            self._producers.on_high_watermark(end_offset)
        self._publish()
        if end_offset - local.recovery_point >= local.config.flush_messages:
            self._must_flush = True

    def _settle(self) -> None:
        """What follows a change once the lock is free: syncs that are due, and who listens."""
        if self._must_flush:
            self._must_flush = False
            self.flush()
        if self._rolled_at > self._state.offsets.recovery_point:
            rolled_at, self._rolled_at = self._rolled_at, 0
            if self._tasks is None:
                self.flush(rolled_at)
            else:
                self._tasks.submit(partial(self._flush_quietly, rolled_at))
        self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener(self._state.offsets)

    def _flush_quietly(self, up_to_offset: int) -> None:
        """Flush in the background: whoever calls the log next is told of a failure."""
        with contextlib.suppress(LogOfflineError, LogClosedError):
            self.flush(up_to_offset)

    def _flush_epochs_later(self) -> None:
        """Write the epochs that a truncation left, in the background; called with the log's lock held."""
        if self._tasks is None:
            self._flush_epochs()
        else:
            self._tasks.submit(self._flush_epochs)

    def _flush_epochs(self) -> None:
        if self._local.is_usable:
            try:
                self._epochs.flush()
            except StoreError as error:
                if self._local.is_usable:  # else the folder is gone, and with it what was to be written
                    self._local.fail(error)

    def _nothing_appended(self) -> LogAppendInfo:
        return LogAppendInfo(_NO_APPEND, _NO_APPEND, _NO_APPEND, _NO_APPEND, self._log_start, 0)

    def _duplicate(self, prepared: PreparedAppend) -> LogAppendInfo:
        """The answer for a batch that is in the log already: where it is."""
        known = prepared.duplicate
        assert known is not None
        return LogAppendInfo(
            known.first_offset, known.last_offset, known.timestamp_ms, known.timestamp_ms, self._log_start, 0, True
        )

    def _assign_epochs(self, columns: Mapping[str, NDArray[np.generic]]) -> None:
        """Take the epochs that a leader's batches have. Formats before magic 2 have none: what is known is void then."""
        epochs = columns["leader_epoch"]
        if (columns["magic"] < MAGIC_V2).any():
            self._epochs.clear_and_flush()
            return
        changes = np.flatnonzero(np.diff(epochs, prepend=-1) != 0)
        offsets = columns["base_offset"][changes].tolist()
        entries = [entry for entry in zip(epochs[changes].tolist(), offsets, strict=True) if entry[0] >= 0]
        if entries:
            self._epochs.assign_all(entries)

    def _roll(self, expected_next_offset: int) -> LogSegment:
        """Roll, take a snapshot of the producers, and leave the sync of what is closed for later."""
        segment = self._local.roll(max(expected_next_offset, self._local.log_end_offset))
        self._producers.end_offset = segment.base_offset
        self._snapshots.take(self._producers, fsync=False)
        self._rolled_at = segment.base_offset
        return segment

    def _set_config(self, config: LogConfig) -> None:
        self._local.set_config(config)
        self._is_tiered = _tiers(self._topic, config, broker_tiers=self._broker_tiers)
        self._checks = LeaderChecks(leader_rules(config))

    def _set_high_watermark(self, offset: int) -> None:
        """Set it, kept between the log start and the log's end."""
        end = self._local.log_end_offset
        self._high_watermark = end if self._is_sole_replica else min(max(offset, self._log_start), end)
        self._producers.on_high_watermark(self._high_watermark)

    def _raise_log_start(self, offset: int, reason: str) -> bool:
        if offset > self._high_watermark:
            raise OffsetOutOfRangeError(
                f"{self.folder}: the log start cannot pass the high watermark {self._high_watermark}",
                offset=offset,
                log_start_offset=self._log_start,
                log_end_offset=self._local.log_end_offset,
            )
        rises = offset > self._log_start
        if self._is_tiered or rises:
            self._local_start = max(offset, self._local_start)
        if rises:
            _log.info("%s: the log starts at %d: %s", self.folder, offset, reason)
            self._log_start = offset
            self._local.recovery_point = max(self._local.recovery_point, offset)
            self._epochs.truncate_from_start(offset)
            self._producers.on_log_start(offset, latest_snapshot_offset=self._snapshots.latest_offset)
        self._publish()
        return rises

    def _raise_local_start(self, offset: int, reason: str) -> bool:
        if offset <= self._local_start:
            return False
        _log.info("%s: the local log starts at %d: %s", self.folder, offset, reason)
        self._local_start = offset
        self._high_watermark = max(self._high_watermark, min(offset, self._local.log_end_offset))
        self._local.recovery_point = max(self._local.recovery_point, offset)
        self._publish()
        return True

    def _set_aside(self, segments: tuple[LogSegment, ...], *, copies: bool) -> int:
        """Delete the oldest segments; how many went. The last one is replaced by an empty one first."""
        if segments and len(segments) == len(self._local.segments):
            created = self._roll(0)
            if segments[-1].base_offset == created.base_offset:
                segments = segments[:-1]
        if not segments:
            return 0
        self._local.remove(segments)
        self._forget_snapshots(segments)
        first = self._local.segments.first.base_offset
        if copies:
            self._raise_local_start(first, "segments were deleted")
        else:
            self._raise_log_start(first, "segments were deleted")
        return len(segments)

    def _forget_snapshots(self, segments: Iterable[LogSegment]) -> None:
        """Set the snapshots of segments that went aside too."""
        for segment in segments:
            path = self._snapshots.mark_deleted(segment.base_offset)
            if path is not None:
                self._local.remove_path_later(path)

    def _truncate_fully(self, offset: int, log_start_offset: int | None) -> None:
        self._local.truncate_fully_and_start_at(offset)
        self._epochs.clear_and_flush()
        self._producers.restart(offset)
        self._snapshots.truncate(log_start_offset=offset, log_end_offset=offset)
        self._log_start = offset if log_start_offset is None else log_start_offset
        self._local_start = offset
        self._high_watermark = offset
        self._publish()

    def _restore_producers(self, offset: int) -> None:
        restore_producers(
            segments=self._local.segments,
            producers=self._producers,
            snapshots=self._snapshots,
            log_start_offset=self._log_start,
            up_to_offset=offset,
            now_ms=self._machine.clock.time_ms(),
        )

    def _only_local(self) -> list[LogSegment]:
        state = self._state
        copied = state.offsets.highest_offset_in_remote_storage
        return [segment for segment in state.segments if segment.base_offset >= copied]


def _partition_of(folder: str) -> tuple[str, int]:
    """(topic, partition) of a folder's name. Raises ValueError."""
    name = folder.rstrip("/").rpartition("/")[2]
    found = find_partition_folder(name)
    if found is None:
        raise ValueError(f"{folder}: {name!r} is not the name of a partition, as orders-0")
    return found.topic, found.partition


def _tiers(topic: str, config: LogConfig, *, broker_tiers: bool) -> bool:
    return (
        broker_tiers and config.remote_storage_enable and not config.is_compacted and topic not in _INTERNAL_TOPICS
    )


def _agreed_topic_id(machine: Machine, folder: str, topic_id: bytes | None) -> bytes | None:
    """The topic's id by ``partition.metadata``, which is written if the caller knows it and there is none."""
    path = f"{folder}/{PARTITION_METADATA}"
    try:
        known = parse_partition_metadata(machine.files.read_whole(path)).topic_id
    except ObjectNotFoundError:
        if topic_id is not None:
            machine.files.write_whole(path, encode_partition_metadata(PartitionMetadata(topic_id)))
        return topic_id
    except CorruptIndexError as error:
        raise error.located(path) from None
    if topic_id is not None and topic_id != known:
        raise InconsistentTopicIdError(
            f"{folder}: topic id {PartitionMetadata(known).topic_id_text}, not {PartitionMetadata(topic_id).topic_id_text}"
        )
    return known


def _too_large(size_bytes: int, config: LogConfig) -> AppendRefusedError:
    text = f"{size_bytes} bytes in one append, segment.bytes is {config.segment_bytes}"
    return AppendRefusedError(KafkaError.RECORD_LIST_TOO_LARGE, text)
