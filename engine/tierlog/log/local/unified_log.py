"""The log of one partition: appended to by one writer at a time, read by any number of threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

from typing_extensions import Buffer

from tierlog.log.local.background_tasks import BackgroundTasks
from tierlog.log.local.leader_epoch_cache import LeaderEpochCache
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_offsets import FetchIsolation, LogOffsets, OffsetsListener
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.log.local.producers.producer_snapshots import ProducerSnapshots
from tierlog.log.local.producers.transaction_verification import VerificationGuard
from tierlog.log.local.recovery.log_loader import LogCheckpoints, RecoveryReport
from tierlog.log.local.segments.log_segment import LogSegment, TimestampAndOffset
from tierlog.log.local.segments.log_slice import LogSlice
from tierlog.runtime.machine import Machine


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The broker's settings about producers.

    Args:
        producer_id_expiration_ms: ``producer.id.expiration.ms``.
        transaction_max_timeout_ms: ``transaction.max.timeout.ms``.
        transaction_partition_verification_enable: ``transaction.partition.verification.enable``.
    """

    producer_id_expiration_ms: int = 86_400_000
    transaction_max_timeout_ms: int = 900_000
    transaction_partition_verification_enable: bool = False


class LogAppendInfo(NamedTuple):
    """What became of an append.

    Attributes:
        first_offset: Of the first record; of a duplicate, of the batch that is in the log already. -1: nothing whole
            was there to append.
        last_offset: Inclusive.
        max_timestamp_ms: The greatest in the append.
        log_append_time_ms: The leader's clock where ``message.timestamp.type`` is LogAppendTime; -1 otherwise.
        log_start_offset: Of the log, after the append.
        size_bytes: That were appended; 0 for a duplicate.
        is_duplicate: Whether the batch was in the log already.
    """

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    log_append_time_ms: int
    log_start_offset: int
    size_bytes: int
    is_duplicate: bool = False


class FetchDataInfo(NamedTuple):
    """What a read found.

    Attributes:
        records: Where the bytes lie; None if there is nothing to read yet. They begin with the first byte of the batch
            that holds the offset (or of the next one) and may end inside a batch.
        start_offset: The one asked for.
        segment_base_offset, position: Where the bytes begin, or the log ends (Kafka's LogOffsetMetadata).
        first_entry_incomplete: Whether the first batch does not fit into ``max_bytes`` and is handed out in part.
        aborted_transactions: (producer id, first offset) for TXN_COMMITTED; None for other isolations.
    """

    records: LogSlice | None
    start_offset: int
    segment_base_offset: int
    position: int
    first_entry_incomplete: bool = False
    aborted_transactions: tuple[tuple[int, int], ...] | None = None


class UnifiedLog:
    """A partition's log in one folder, as Kafka 4.3 keeps it.

    After a StoreError while a file is written, synced or read, the log is offline: that call and every later one ends
    with LogOfflineError. A refused append (AppendRefusedError) changes nothing.

    Thread safety: any number of threads; writers wait for each other, readers for nobody.
    """

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
            checkpoints: What the log directory's checkpoints say of it; None: nothing.
            had_clean_shutdown: Whether the log directory was closed cleanly: then nothing is checked.
            topic_id: Written to ``partition.metadata``, or compared with it; None: whatever is there.
            remote_log_enabled: Whether this broker has tiered storage (``remote.log.storage.system.enable``).
            is_sole_replica: The high watermark follows the end of the log: there is no follower to wait for.
            tasks: Where work for later is left; None: it is done at once, by the caller's thread.

        Raises:
            AppendRefusedError: INCONSISTENT_TOPIC_ID. CorruptIndexError: the leader epoch checkpoint is malformed.
            StoreError.
        """
        raise NotImplementedError

    # ---- what is known

    @property
    def folder(self) -> str:
        raise NotImplementedError

    @property
    def parent_dir(self) -> str:
        """The log directory."""
        raise NotImplementedError

    @property
    def topic(self) -> str:
        raise NotImplementedError

    @property
    def partition(self) -> int:
        raise NotImplementedError

    @property
    def topic_id(self) -> bytes | None:
        raise NotImplementedError

    @property
    def config(self) -> LogConfig:
        raise NotImplementedError

    @property
    def recovery_report(self) -> RecoveryReport:
        """What loading did."""
        raise NotImplementedError

    @property
    def offsets(self) -> LogOffsets:
        """All offsets, of one moment."""
        raise NotImplementedError

    @property
    def log_start_offset(self) -> int:
        raise NotImplementedError

    @property
    def local_log_start_offset(self) -> int:
        raise NotImplementedError

    @property
    def log_end_offset(self) -> int:
        raise NotImplementedError

    @property
    def high_watermark(self) -> int:
        raise NotImplementedError

    @property
    def last_stable_offset(self) -> int:
        raise NotImplementedError

    @property
    def recovery_point(self) -> int:
        raise NotImplementedError

    @property
    def highest_offset_in_remote_storage(self) -> int:
        raise NotImplementedError

    @property
    def leader_epoch_cache(self) -> LeaderEpochCache:
        raise NotImplementedError

    @property
    def producer_state_manager(self) -> ProducerSnapshots:
        raise NotImplementedError

    def remote_log_enabled(self) -> bool:
        """Whether this log is tiered: broker and topic say so, and it is neither compacted nor internal."""
        raise NotImplementedError

    def log_segments(self, from_offset: int | None = None, to_offset: int | None = None) -> tuple[LogSegment, ...]:
        """The segments, ascending; with bounds, from the one that contains ``from_offset`` on, base offsets below
        ``to_offset``.
        """
        raise NotImplementedError

    @property
    def active_segment(self) -> LogSegment:
        raise NotImplementedError

    def size(self) -> int:
        """Bytes of all segments' logs."""
        raise NotImplementedError

    def only_local_log_segments_size(self) -> int:
        """Bytes of the segments that the tier does not have: base offset at or behind the highest copied offset."""
        raise NotImplementedError

    def only_local_log_segments_count(self) -> int:
        raise NotImplementedError

    def add_listener(self, listener: OffsetsListener) -> None:
        """Have somebody told of every change of the offsets, until ``remove_listener``."""
        raise NotImplementedError

    def remove_listener(self, listener: OffsetsListener) -> None:
        raise NotImplementedError

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
            transaction_version: Of a marker.

        Raises:
            AppendRefusedError: with Kafka's error; nothing has changed. LogOfflineError. LogClosedError.
        """
        raise NotImplementedError

    def append_as_follower(self, data: Buffer, *, leader_epoch: int) -> LogAppendInfo:
        """Append the batches that a leader sent, with their offsets and epochs. Raises as ``append_as_leader``."""
        raise NotImplementedError

    def assign_epoch_start_offset(self, leader_epoch: int, start_offset: int) -> None:
        """Begin a leader epoch: on becoming leader, at the log's end. It is durable on return."""
        raise NotImplementedError

    def begin_transaction_verification(
        self, producer_id: int, *, sequence: int, producer_epoch: int, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """What the first batch of a transaction has to bring (ProducerState.begin_verification)."""
        raise NotImplementedError

    def roll(self, expected_next_offset: int | None = None) -> LogSegment:
        """Close the active segment and begin another at the log's end; the new one (or the active one, if it is empty
        and begins there).
        """
        raise NotImplementedError

    def flush(self, up_to_offset: int | None = None) -> None:
        """Fsync what lies below an offset (None: everything): the recovery point moves there. A failed fsync is never
        tried again: the log goes offline.
        """
        raise NotImplementedError

    # ---- reading

    def read(
        self, start_offset: int, *, max_bytes: int, isolation: FetchIsolation, min_one_message: bool = True
    ) -> FetchDataInfo:
        """What the log has from an offset on.

        Args:
            max_bytes: At most so many bytes, but with ``min_one_message`` always the whole first batch.

        Raises:
            OffsetOutOfRangeError. CorruptRecordError: no batch stands where one must. LogOfflineError. LogClosedError.
        """
        raise NotImplementedError

    def fetch_offset_by_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """Kafka's answer to ListOffsets, for a timestamp or one of the special ones of ``log_offsets``, over what is
        local; None if no record is late enough.
        """
        raise NotImplementedError

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) for OffsetsForLeaderEpoch; (-1, -1) if it is not known."""
        raise NotImplementedError

    def collect_aborted_transactions(
        self, start_offset: int, upper_bound_offset: int
    ) -> tuple[tuple[int, int, int], ...]:
        """(producer id, first offset, last offset) of the aborted transactions that touch [start, upper bound)."""
        raise NotImplementedError

    # ---- offsets

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, kept between the local log start and the log's end; the new one."""
        raise NotImplementedError

    def maybe_increment_high_watermark(self, offset: int) -> int | None:
        """Raise the high watermark; the old one, None if it did not rise. Raises ValueError: behind the log's end."""
        raise NotImplementedError

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Raise the log start. Raises OffsetOutOfRangeError: above the high watermark."""
        raise NotImplementedError

    def maybe_increment_local_log_start_offset(self, offset: int, reason: str) -> bool:
        """Raise the local log start, and the recovery point with it."""
        raise NotImplementedError

    def update_highest_offset_in_remote_storage(self, offset: int) -> None:
        """Note that offsets up to this one are copied; it never falls, and is ignored where tiering is off."""
        raise NotImplementedError

    def update_log_start_offset_from_remote_tier(self, offset: int) -> None:
        """Raise the log start to what the tier says; ignored where tiering is off."""
        raise NotImplementedError

    # ---- shortening

    def delete_old_segments(self) -> int:
        """Retention: set segments aside by start offset, size and time; how many went."""
        raise NotImplementedError

    def truncate_to(self, offset: int) -> bool:
        """Cut everything from an offset on; whether anything was there."""
        raise NotImplementedError

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove everything and begin anew, empty, at an offset."""
        raise NotImplementedError

    def load_producer_state(self, offset: int) -> None:
        """Restore the producers up to an offset from the snapshots and the log (after a snapshot from the tier)."""
        raise NotImplementedError

    def remove_expired_producers(self) -> int:
        """Forget producers that have been silent for too long; how many."""
        raise NotImplementedError

    # ---- configuration and end

    def update_config(self, config: LogConfig) -> None:
        """Go by another configuration from now on; the active segment keeps its index sizes. Raises ConfigError."""
        raise NotImplementedError

    def close(self) -> None:
        """Take a producer snapshot, write the indexes out, flush, and close; idempotent. Slices stay readable."""
        raise NotImplementedError

    def delete(self) -> None:
        """Close and remove all files and the folder."""
        raise NotImplementedError

    def rename_folder(self, folder: str) -> None:
        """Go on under another folder of the same log directory (``…-delete``, ``…-stray``)."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
