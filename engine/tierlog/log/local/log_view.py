"""A log as its readers ask it: its offsets and segments, fetches, look-ups by timestamp and epoch. It changes nothing.

Readers take the published state, and do not wait; three calls about producers and a lease take the log's lock.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from tierlog.arguments import INT64_MAX, require_flag, require_int, require_int32, require_int64, require_type
from tierlog.errors import StoreError, TierlogError
from tierlog.log.fetch_data import FetchDataInfo
from tierlog.log.formats.producer_snapshot import ProducerEntry
from tierlog.log.local.leader_epoch_cache import LeaderEpochCache
from tierlog.log.local.local_log import LocalLog
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_contents import LogContents
from tierlog.log.local.log_reads import FetchIsolation, LogOffsets, LogReader, LogState
from tierlog.log.local.recovery.log_loader import OpenedFolder
from tierlog.log.local.recovery.segment_recovery import RecoveryReport
from tierlog.log.local.segment_lease import SegmentLease
from tierlog.log.local.segments.log_segment import LogSegment
from tierlog.log.local.segments.segment_view import LogSlice, TimestampAndOffset
from tierlog.runtime.machine import Machine


class LogView:
    """The half of a UnifiedLog that changes nothing. Any number of threads.

    Attributes:
        topic_id: None where neither the caller nor ``partition.metadata`` gave one.
        recovery_report: The changes that loading made to the log's files.
    """

    def __init__(self, machine: Machine, found: OpenedFolder, *, local: LocalLog, contents: LogContents) -> None:
        self._machine = machine
        self.topic, self.partition, self.topic_id = found.topic, found.partition, found.topic_id
        self.recovery_report: RecoveryReport = found.loaded.report
        self._local = local
        self._contents = contents
        self._reader = LogReader(local.folder)
        self._lock = machine.scheduler.lock()
        #: (generation, base offset of a segment, offset), and the position of the offset's batch.
        self._in_front = ((0, 0, 0), 0)

    # ---- look-ups: readers do not wait

    @property
    def folder(self) -> str:
        return self._local.folder

    @property
    def parent_dir(self) -> str:
        """The log directory."""
        return self._local.place.parent

    @property
    def config(self) -> LogConfig:
        return self._local.config

    @property
    def is_offline(self) -> bool:
        """Whether a file failed, so that every call ends with LogOfflineError."""
        return self._local.failure is not None

    @property
    def is_closed(self) -> bool:
        return self._local.is_closed

    @property
    def offsets(self) -> LogOffsets:
        """All offsets, of one moment."""
        return self._contents.state.offsets

    @property
    def generation(self) -> int:
        """How often the log was cut since it was opened."""
        return self._contents.state.generation

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

    def snapshot_at(self, offset: int) -> bytes | None:
        """Bytes of the producer snapshot of exactly this offset; None if there is none (Kafka fetchSnapshot)."""
        return self._contents.snapshots.read_at(require_int64("offset", offset))

    def lease(self, segment: object) -> SegmentLease:
        """The files of a closed segment, for a copy to the tier: they open until the lease is closed.

        Raises ValueError: it is the active one. LogTruncatedError: it has gone. ObjectNotFoundError: no snapshot.
        """
        known = require_type("segment", segment, LogSegment, "a segment of this log")
        with self._lock:  # nothing is renamed meanwhile
            self._local.check_usable()
            return self._contents.lease(known)

    @property
    def must_be_rebuilt(self) -> bool:
        """Whether a tiered log was cut below its first segment, or its lineage begins above its log start."""
        return self._contents.must_be_rebuilt

    def remote_log_enabled(self) -> bool:
        """Whether this log is tiered: broker and topic say so, and it is neither compacted nor internal."""
        return self._contents.is_tiered

    def log_segments(self, from_offset: int | None = None, to_offset: int | None = None) -> tuple[LogSegment, ...]:
        """Return the segments, ascending; with bounds, from the segment that contains ``from_offset`` on, base offsets
        below ``to_offset``.
        """
        segments = self._contents.state.segments
        if from_offset is None and to_offset is None:
            return segments.segments
        low = 0 if from_offset is None else require_int64("from_offset", from_offset)
        return segments.between(low, INT64_MAX if to_offset is None else require_int64("to_offset", to_offset))

    @property
    def active_segment(self) -> LogSegment:
        return self._contents.state.segments.active

    def size(self) -> int:
        """Return the bytes of all segments' logs."""
        return self._contents.state.segments.size_bytes

    def only_local_log_segments_size(self) -> int:
        """Bytes of the segments that the tier does not have, from the batch on that has the log start. Kafka counts
        what lies in front of it too.
        """
        state = self._contents.state
        segments = state.only_local
        size = sum(segment.size_bytes for segment in segments)
        start = state.offsets.log_start_offset
        if segments and segments[0].base_offset < start:
            size -= self._bytes_in_front(segments[0], start, state.generation)
        return size

    def _bytes_in_front(self, segment: LogSegment, offset: int, generation: int) -> int:
        """The bytes of a segment in front of the batch that has an offset; all, where that cannot be read: no retention
        may go by them.
        """
        place = generation, segment.base_offset, offset
        known, position = self._in_front
        if known == place:
            return position
        try:
            found = segment.find_batch(offset)
        except TierlogError:
            return segment.size_bytes
        position = segment.size_bytes if found is None else found.position
        self._in_front = place, position
        return position

    def only_local_log_segments_count(self) -> int:
        """Return the number of segments that the tier does not have."""
        return len(self._contents.state.only_local)

    def open_transactions(self) -> tuple[ProducerEntry, ...]:
        """The producers that have an open transaction, by its first offset: for a coordinator after a failover."""
        with self._lock:
            return self._contents.producers.open_transactions()

    def closed_segments(self, from_offset: int = 0) -> tuple[tuple[LogSegment, int], ...]:
        """(segment, end offset exclusive) of those that a copy may take, which end below the last stable offset."""
        return self._contents.state.closed_segments(require_int64("from_offset", from_offset))

    def has_late_transaction(self) -> bool:
        """Whether a transaction is open for longer than any producer may leave it open."""
        with self._lock:
            return self._contents.producers.has_late_transaction(self._machine.clock.time_ms())

    # ---- reading

    def reading(self) -> AbstractContextManager[LogState]:
        """A block that reads files by the state that it is given: a file that fails takes the log offline.

        Raises:
            LogTruncatedError: the segments went meanwhile.
        """
        return self._contents.reading()

    def read(
        self, start_offset: int, *, max_bytes: int, isolation: FetchIsolation, min_one_message: bool = True
    ) -> FetchDataInfo[LogSlice]:
        """Read the log from an offset on.

        Args:
            start_offset: The batch that holds it is the first one returned; without one, the next batch.
            max_bytes: At most so many bytes, but with ``min_one_message`` always the whole first batch.
            isolation: Up to where.
            min_one_message: Whether a first batch that is larger than ``max_bytes`` is returned whole.

        Raises:
            OffsetOutOfRangeError: also for what the tier alone has. CorruptRecordError: no batch stands where one must.
            LogTruncatedError: the log was cut meanwhile; read again.
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
            raise self._contents.read_failed(state, error) from error

    def fetch_offset_by_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """Kafka's answer to ListOffsets over what is local, by a timestamp or a special one of ``log_reads``. None: no
        record is late enough, or an empty segment, which compaction leaves, was changed at or after that time.
        """
        timestamp_ms = require_int64("timestamp_ms", timestamp_ms)
        with self._contents.reading() as state:
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
        with self._contents.reading() as state:
            return self._reader.collect_aborted(state, start_offset, upper_bound_offset)
