"""The readers' half of a log: everything that is answered from its published state, without a lock."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from tierlog.arguments import require_flag, require_int, require_int32, require_int64, require_type
from tierlog.errors import StoreError
from tierlog.log.local.leader_epoch_cache import LeaderEpochCache
from tierlog.log.local.local_log import LocalLog
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_contents import LogContents
from tierlog.log.local.log_errors import LogTruncatedError
from tierlog.log.local.log_folder import LogIdentity
from tierlog.log.local.log_reads import FetchDataInfo, FetchIsolation, LogOffsets, LogReader, LogState
from tierlog.log.local.producers.producer_snapshots import ProducerSnapshots
from tierlog.log.local.recovery.segment_recovery import RecoveryReport
from tierlog.log.local.segments.log_segment import LogSegment
from tierlog.log.local.segments.segment_view import TimestampAndOffset

_INT64_MAX: Final = 2**63 - 1


class LogView:
    """A log as its readers see it. Thread safety: any number of threads, which wait for nobody."""

    def __init__(
        self, local: LocalLog, contents: LogContents, identity: LogIdentity, recovery_report: RecoveryReport
    ) -> None:
        self._local = local
        self._identity = identity
        self._report = recovery_report
        self._contents = contents
        self._reader = LogReader(local.folder)

    @property
    def folder(self) -> str:
        return self._local.folder

    @property
    def parent_dir(self) -> str:
        """The log directory."""
        return self._local.folder.rstrip("/").rpartition("/")[0] or "."

    @property
    def config(self) -> LogConfig:
        return self._local.config

    @property
    def is_offline(self) -> bool:
        """Whether a file failed, so that every call ends with LogOfflineError."""
        return self._local.failure is not None

    def take_offline(self, cause: Exception) -> None:
        """Let every later call end with LogOfflineError: the disk failed for another log. Waits for nobody."""
        self._local.fail(cause)

    @property
    def is_closed(self) -> bool:
        return self._local.is_closed

    @property
    def topic(self) -> str:
        return self._identity.topic

    @property
    def partition(self) -> int:
        return self._identity.partition

    @property
    def topic_id(self) -> bytes | None:
        """16 bytes; None where neither the caller nor ``partition.metadata`` gave one."""
        return self._identity.topic_id

    @property
    def recovery_report(self) -> RecoveryReport:
        """The changes that loading made to the log's files."""
        return self._report

    @property
    def offsets(self) -> LogOffsets:
        """All offsets, of one moment."""
        return self._contents.state.offsets

    @property
    def log_start_offset(self) -> int:
        return self._contents.state.offsets.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        return self._contents.state.offsets.local_log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._contents.state.offsets.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._contents.state.offsets.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self._contents.state.offsets.last_stable_offset

    @property
    def recovery_point(self) -> int:
        return self._contents.state.offsets.recovery_point

    @property
    def highest_offset_in_remote_storage(self) -> int:
        return self._contents.state.offsets.highest_offset_in_remote_storage

    @property
    def leader_epoch_cache(self) -> LeaderEpochCache:
        return self._contents.epochs

    @property
    def producer_state_manager(self) -> ProducerSnapshots:
        """The producer snapshots on disk, by offset."""
        return self._contents.snapshots

    def remote_log_enabled(self) -> bool:
        """Whether this log is tiered: broker and topic say so, and it is neither compacted nor internal."""
        return self._contents.is_tiered

    def log_segments(self, from_offset: int | None = None, to_offset: int | None = None) -> tuple[LogSegment, ...]:
        """The segments, ascending; with bounds, from the one that contains ``from_offset`` on, base offsets below
        ``to_offset``.
        """
        segments = self._contents.state.segments
        if from_offset is None and to_offset is None:
            return segments.segments
        if from_offset is not None:
            from_offset = require_int64("from_offset", from_offset)
        if to_offset is not None:
            to_offset = require_int64("to_offset", to_offset)
        return segments.between(from_offset or 0, _INT64_MAX if to_offset is None else to_offset)

    @property
    def active_segment(self) -> LogSegment:
        return self._contents.state.segments.active

    def size(self) -> int:
        """Bytes of all segments' logs."""
        return self._contents.state.segments.size_bytes

    def only_local_log_segments_size(self) -> int:
        """Bytes of the segments that the tier does not have: base offset at or behind the highest copied offset."""
        return sum(segment.size_bytes for segment in self._only_local())

    def only_local_log_segments_count(self) -> int:
        """How many segments the tier does not have."""
        return len(self._only_local())

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
        if type(start_offset) is not int or type(max_bytes) is not int or type(isolation) is not FetchIsolation:
            start_offset, max_bytes = require_int("start_offset", start_offset), require_int("max_bytes", max_bytes)
            require_type("isolation", isolation, FetchIsolation, "a FetchIsolation")
        if min_one_message is not True:
            require_flag("min_one_message", min_one_message)
        self._local.check_usable()
        state = self._contents.state
        try:
            return self._reader.read(
                state, start_offset, max_bytes=max_bytes, isolation=isolation, min_one_message=min_one_message
            )
        except StoreError as error:
            raise self._read_failed(state, error) from error

    def fetch_offset_by_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """Kafka's answer to ListOffsets, for a timestamp or one of the special ones of ``log_offsets``, over what is
        local; None if no record is late enough, or where Kafka gives up: at an empty segment, which compaction leaves,
        whose file was changed at or after that time. Raises as ``read``.
        """
        timestamp_ms = require_int64("timestamp_ms", timestamp_ms)
        with self._reading() as state:
            return self._reader.find_by_timestamp(
                state, self._contents.epochs.epochs, timestamp_ms, remote_log_enabled=self._contents.is_tiered
            )

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) for OffsetsForLeaderEpoch; (-1, -1) if it is not known."""
        leader_epoch = require_int32("leader_epoch", leader_epoch)
        return self._contents.epochs.end_offset_for(leader_epoch, self._contents.state.offsets.log_end_offset)

    def collect_aborted_transactions(
        self, start_offset: int, upper_bound_offset: int
    ) -> tuple[tuple[int, int, int], ...]:
        """(producer id, first offset, last offset) of the aborted transactions that touch [start, upper bound)."""
        start_offset = require_int64("start_offset", start_offset)
        upper_bound_offset = require_int64("upper_bound_offset", upper_bound_offset)
        with self._reading() as state:
            return self._reader.collect_aborted(state, start_offset, upper_bound_offset)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[LogState]:
        """A block that reads by the state that it is given."""
        self._local.check_usable()
        state = self._contents.state
        try:
            yield state
        except StoreError as error:
            raise self._read_failed(state, error) from error

    def _read_failed(self, state: LogState, error: StoreError) -> Exception:
        """What a reader is told whose files failed: they may have gone under it."""
        self._local.check_usable()
        if self._contents.state.segments is not state.segments:
            return LogTruncatedError(f"{self.folder}: segments went while they were read")
        return self._local.fail(error)

    def _only_local(self) -> list[LogSegment]:
        state = self._contents.state
        copied = state.offsets.highest_offset_in_remote_storage
        return [segment for segment in state.segments if segment.base_offset >= copied]
