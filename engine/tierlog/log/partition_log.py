"""The interface of a partition's log to replication and the RemoteLogManager: ours implements it, a broker's own can.

``tierlog.log.local.UnifiedLog`` has all of it. A log of another make has these members, none of which is called under a
lock of the manager's, and passes ``tests/contract/partition_log_suite.py``. Values that go over the border are plain
numbers, paths, and the small values of ``tierlog.log``.

Source: Kafka RemoteLogManager, TierStateMachine, Partition, ReplicaFetcherThread (what they call of UnifiedLog,
LogSegment, LeaderEpochFileCache and ProducerStateManager).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from typing_extensions import Buffer

from tierlog.log.fetch_data import FetchDataInfo
from tierlog.log.formats.leader_epochs import EpochEntry, LeaderEpochs
from tierlog.log.formats.producer_snapshot import ProducerEntry
from tierlog.log.formats.segment_files import LogSegmentData
from tierlog.log.local.log_appends import LogAppendInfo
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.segments.segment_view import TimestampAndOffset

if TYPE_CHECKING:
    from tierlog.log.local.unified_log import UnifiedLog


class PartitionConfig(Protocol):
    """A topic's configuration, as far as the tier goes by it; an immutable value. Times are ms, sizes bytes."""

    @property
    def retention_ms(self) -> int:
        """``retention.ms``, local and remote together; -1 = for ever."""

    @property
    def retention_bytes(self) -> int:
        """``retention.bytes``, local and remote together; -1 = no limit."""

    @property
    def local_retention_ms(self) -> int:
        """``local.retention.ms``; -2 = as ``retention.ms``."""

    @property
    def local_retention_bytes(self) -> int:
        """``local.retention.bytes``; -2 = as ``retention.bytes``."""

    @property
    def remote_copy_lag_ms(self) -> int | None:
        """``remote.copy.lag.ms``: a copy waits until the newest record is so old; None: no delay by age, -1 = as the
        local retention.
        """

    @property
    def remote_copy_lag_bytes(self) -> int | None:
        """``remote.copy.lag.bytes``: a copy waits until so much lies behind the segment; likewise."""

    @property
    def remote_log_copy_disable(self) -> bool:
        """``remote.log.copy.disable``: nothing more is copied, segments in the tier are read and expire."""

    @property
    def remote_log_delete_on_disable(self) -> bool:
        """``remote.log.delete.on.disable``: segments in the tier are deleted when the topic leaves it."""


class PartitionSegment(Protocol):
    """One segment: its bounds, and look-ups in it.

    Thread safety: any number of threads. A segment may be deleted while it is held: its files are gone then, and calls
    raise StoreError.
    """

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int:
        """Size of the ``.log``; it grows in the active segment."""

    @property
    def largest_timestamp_ms(self) -> int:
        """The greatest timestamp in the segment; its file's time of change if there is none."""

    def find_offset_by_timestamp(self, timestamp_ms: int, starting_offset: int) -> TimestampAndOffset | None:
        """Find the first record at or behind an offset whose timestamp is at or above one; None if there is none.

        Raises:
            CorruptRecordError. StoreError.
        """

    def collect_aborted(self, *, fetch_offset: int, upper_bound_offset: int) -> tuple[list[tuple[int, int, int]], bool]:
        """Return ((producer id, first offset, last offset) of aborted transactions in [fetch offset, upper bound),
        whether no later segment can hold more). Raises CorruptIndexError. StoreError.
        """


class RecordsPart(Protocol):
    """Bytes of batches as a read found them: a slice of a file, or of memory."""

    @property
    def size_bytes(self) -> int: ...

    def read(self) -> Buffer:
        """Return the bytes. Raises LogTruncatedError: the log was cut meanwhile. StoreError."""


class PartitionEpochs(Protocol):
    """The log's leader epochs. Thread safety: any number of threads; what changes them is durable on return."""

    @property
    def earliest_entry(self) -> EpochEntry | None: ...

    @property
    def latest_entry(self) -> EpochEntry | None: ...

    def previous_entry(self, epoch: int) -> EpochEntry | None:
        """Return the entry of the largest epoch below this one."""

    def previous_epoch(self, epoch: int | None = None) -> int | None:
        """Return the largest epoch below this one; None = below the latest."""

    def next_epoch(self, epoch: int) -> int | None:
        """Return the smallest epoch above this one."""

    def epoch_entry(self, epoch: int) -> EpochEntry | None:
        """Return the entry of exactly this epoch."""

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch in which an offset was written; None before the first entry."""

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (epoch, end offset exclusive) for OffsetsForLeaderEpoch; (-1, -1) if it is not known."""

    def epoch_entries_in_range(self, start_offset: int, end_offset_exclusive: int) -> LeaderEpochs:
        """Return the epochs of the offsets [start, end), as they go with a segment: the first begins at the start."""

    def epoch_with_offsets(self) -> dict[int, int]:
        """Return epoch to start offset, ascending."""


class PartitionLog(Protocol):
    """One partition's log, as its leader, its followers and the RemoteLogManager see it.

    Raises (all methods): LogOfflineError: a file could not be read or written, and the log is offline. LogClosedError.

    Thread safety: any number of threads: the tasks of one partition (copy, expiration, follower) and reads go on side
    by side, beside the broker's own appends.
    """

    # ---- the log's state

    @property
    def folder(self) -> str:
        """Folder of the log's files; for messages."""

    @property
    def parent_dir(self) -> str:
        """The log directory: if it changes, the copy task begins anew."""

    @property
    def config(self) -> PartitionConfig:
        """The configuration as it is now."""

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read, here or in the tier."""

    @property
    def local_log_start_offset(self) -> int:
        """The first offset that can be read here."""

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int:
        """Replicated up to here, exclusive; at or above the local log start, also after an unclean stop."""

    @property
    def last_stable_offset(self) -> int:
        """End of a copy, exclusive: a segment is copied once all of it lies below."""

    def open_transactions(self) -> Sequence[ProducerEntry]:
        """Return the producers with an open transaction, by its first offset: for a coordinator after a failover."""

    @property
    def highest_offset_in_remote_storage(self) -> int:
        """The last offset that is copied, inclusive; -1 if none is. A truncation lowers it: records appended then are
        in no tier.
        """

    @property
    def leader_epoch_cache(self) -> PartitionEpochs: ...

    def snapshot_at(self, offset: int) -> bytes | None:
        """Return bytes of the producer snapshot of exactly this offset; None if there is none (Kafka fetchSnapshot)."""

    def lease(self, segment: PartitionSegment) -> AbstractContextManager[LogSegmentData]:
        """Return the files of a closed segment, as ``copy_log_segment_data`` takes them. Their paths open, for any
        code, until the block ends, whatever retention, a truncation, a deletion of the log or a rename of its folder do
        meanwhile.

        Raises:
            ValueError: the segment is the active one. LookupError: the segment has gone.
            ObjectNotFoundError: it has no producer snapshot at its end.
        """

    def remote_log_enabled(self) -> bool:
        """Whether this log is tiered: broker and topic say so, and it is neither compacted nor internal."""

    # ---- segments

    def log_segments(self, from_offset: int | None = None, to_offset: int | None = None) -> Sequence[PartitionSegment]:
        """Return the segments, ascending by base offset; with bounds, from the segment that contains ``from_offset``
        on, base offsets below ``to_offset``.
        """

    def closed_segments(self, from_offset: int = 0) -> Sequence[tuple[PartitionSegment, int]]:
        """Return the segments that a copy may take: (segment, end offset exclusive), ascending, from the one that
        contains ``from_offset`` on, those that end at or below the last stable offset.
        """

    @property
    def active_segment(self) -> PartitionSegment:
        """The last segment, which is appended to and never copied."""

    def size(self) -> int:
        """Return the bytes of all segments' logs."""

    def only_local_log_segments_size(self) -> int:
        """Return the bytes of the segments that the tier does not have: base offset behind the highest copied one.
        What lies in front of the log start does not count: neither segments that end there, as they are to be deleted,
        nor, of the segment that has it, the batches in front of its batch.
        """

    def only_local_log_segments_count(self) -> int:
        """Return the number of those segments."""

    # ---- updates from the tier

    def update_highest_offset_in_remote_storage(
        self, offset: int, *, may_fall: bool = False, leader_epoch: int | None = None
    ) -> None:
        """Note that offsets up to this one, inclusive, are copied; any where tiering is off changes nothing, and one at
        or behind the log's end counts as the last one here: the log was cut meanwhile. Local retention may delete them
        from now on.

        Args:
            offset: Inclusive.
            may_fall: Whether a lower one than the log has is taken: it was looked up in the tier's metadata, whose
                segments up to the log's may have been deleted. Else it is late news, and changes nothing.
            leader_epoch: In which the copied offset was written. Where the log has another one there, nothing changes:
                it was cut meanwhile, and filled by another leader. None: it is known that it was not.
        """

    def update_log_start_offset_from_remote_tier(self, offset: int) -> int:
        """Raise the log start to the tier's first offset, at most to the high watermark; it never falls, and is ignored
        where tiering is off.

        Returns:
            The new log start. It may lie below ``offset``: segments that it still covers must not be deleted.
        """

    def maybe_increment_local_log_start_offset(self, offset: int, reason: str) -> bool:
        """Raise the local log start; whether it rose."""

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Raise the log start; whether it rose. Raises OffsetOutOfRangeError: above the high watermark."""

    # ---- a follower that starts from the tier

    @property
    def must_be_rebuilt(self) -> bool:
        """Whether the log is tiered and lacks what it must have of the tier: it was cut below its first segment, or its
        lineage does not reach back to its start. ``start_from_tier`` ends that, or ``complete_lineage``. The log takes
        appends all the same: ``Leader`` and ``Follower`` of ``tierlog.replication`` make none until then, nor may
        another caller.
        """

    def start_from_tier(
        self, offset: int, *, log_start_offset: int, epochs: Iterable[tuple[int, int]], producer_snapshot: Buffer
    ) -> None:
        """Begin anew, empty, behind what the tier has, with its lineage and producers: one durable switch, after which
        a crash leaves the old log or the new one. A transaction that is open in the snapshot holds the last stable
        offset.

        Raises:
            ValueError: negative, a start behind the offset, or a lineage that begins above the start.
            CorruptIndexError: the snapshot is none. Nothing has changed then.
        """

    def complete_lineage(self, epochs: Iterable[tuple[int, int]]) -> None:
        """Add the tier's epochs in front of those of the records here, which stay; durable on return. It ends
        ``must_be_rebuilt`` of a log with records: a leader's, or a follower's that begin as the leader's.

        Raises ValueError: they begin above the log start, or are later than the records'; or the log is empty, and has
        to begin from the tier. Nothing has changed then.
        """

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove everything here and begin anew, empty, at an offset; ``log_start_offset`` is that of the tier, None =
        the same offset. Epochs and producers are forgotten.
        """

    # ---- leaders and followers

    def append_as_leader(self, data: Buffer, *, leader_epoch: int) -> LogAppendInfo:
        """Append one batch of a producer, in place. Raises AppendRefusedError: nothing has changed."""

    def append_as_follower(self, data: Buffer, *, leader_epoch: int) -> LogAppendInfo:
        """Append whole batches that the leader of an epoch sent, with offsets and epochs; a batch that is cut off,
        or of a later epoch, ends them. Raises AppendRefusedError: nothing has changed; also where offsets do not rise,
        or epochs fall.
        """

    def assign_epoch_start_offset(self, leader_epoch: int, start_offset: int) -> None:
        """Begin a leader epoch; durable on return."""

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset exclusive) for OffsetsForLeaderEpoch; (-1, -1) if it is not known."""

    def truncate_to(self, offset: int) -> bool:
        """Cut everything from an offset on, durably; whether anything was there. A tiered log that is cut below its
        first segment keeps its start and its lineage, and must be rebuilt.
        """

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, kept between the local log start and the log's end; the new one."""

    def maybe_increment_high_watermark(self, offset: int) -> int | None:
        """Raise the high watermark; the old one, None if it did not rise."""

    def read(
        self, start_offset: int, *, max_bytes: int, isolation: FetchIsolation, min_one_message: bool = True
    ) -> FetchDataInfo[RecordsPart]:
        """Batches from the one that holds an offset on, up to the end of an isolation.

        Raises:
            OffsetOutOfRangeError: also for an offset that the tier alone has: ``is_in_tier``. LogTruncatedError: cut
                meanwhile.
        """

    def fetch_offset_by_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """ListOffsets over what is local, by a timestamp or a special one; None: there is none."""


if TYPE_CHECKING:

    def _is_one(log: UnifiedLog) -> PartitionLog:
        """Let the type checker confirm, with every change of either, that our log is a PartitionLog."""
        return log
