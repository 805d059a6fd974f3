"""The parts of a log, and their joint changes: segments, producers, epochs, offsets.

Nothing here locks: the caller holds the log's lock, and publishes what has changed. A failure on the way leaves the
parts as they happen to be: the log goes offline.

Source: Kafka UnifiedLog.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog._native.appends import AssignedBatch, LeaderAppends, LogEnd, Refusal
from tierlog.arguments import require_int64, require_text
from tierlog.errors import StoreError
from tierlog.log.formats.leader_epochs import LeaderEpochs, encode_leader_epochs
from tierlog.log.local.leader_epoch_cache import LeaderEpochCache
from tierlog.log.local.local_log import LocalLog
from tierlog.log.local.log_appends import (
    LeaderChecks,
    LogAppendInfo,
    assign_batch,
    check_sent_batches,
    check_sent_epochs,
    least_offset,
)
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import LogCleaningAbortedError, LogTruncatedError, OffsetOutOfRangeError
from tierlog.log.local.log_reads import LogOffsets, LogState, PublishedState, last_stable_offset
from tierlog.log.local.producers.producer_appends import AppendOrigin, producer_batch_of, producer_batches_of
from tierlog.log.local.producers.producer_entries import VerificationGuard
from tierlog.log.local.producers.producer_snapshots import ProducerSnapshots
from tierlog.log.local.producers.producer_state import PreparedAppend, ProducerState
from tierlog.log.local.recovery.log_loader import OpenedFolder
from tierlog.log.local.recovery.producer_replay import restore_producers
from tierlog.log.local.recovery.tier_start import TierStart, TierStartFile, TierStartState, empty_start, raised_start
from tierlog.log.local.retention import RetentionRules
from tierlog.log.local.segment_lease import SegmentLease
from tierlog.log.local.segments.log_segment import LogSegment
from tierlog.runtime.machine import Machine

_log = logging.getLogger(__name__)

_MAGIC_V2: Final = 2
_new = tuple.__new__


class LogContents:
    """The parts of one log. One thread at a time, but for ``state``, which any thread reads.

    Args:
        local: The segments.
        found: The log as it was found on disk, and its high watermark as far as it is known.
        is_sole_replica: Whether the high watermark follows the log's end.
        write_checkpoints: Writes the published offsets to the directory's checkpoints; None: they are not written.

    Attributes:
        copied: Last offset that the tier has, inclusive; -1: none. A cut lowers it; Kafka's only rises.
        leader: Appends the usual batch of a leader by one native call; for any other it returns its check.
        is_tiered: Whether the log is copied to, or deleted from, a tier.
        must_be_rebuilt: Whether it lacks what it must have of the tier, and has to be begun anew from there.
        rolled_at: Base offset of the last segment that was begun; 0 once the sync of the segments before is scheduled.
    """

    _published: PublishedState

    def __init__(
        self,
        machine: Machine,
        local: LocalLog,
        found: OpenedFolder,
        *,
        is_sole_replica: bool,
        write_checkpoints: Callable[[], None] | None,
    ) -> None:
        self._machine = machine
        self._is_sole_replica = is_sole_replica
        self._write_checkpoints = write_checkpoints
        self._local = local
        self.copied = -1
        self.epochs: LeaderEpochCache = found.epochs
        self.producers: ProducerState = found.loaded.producers
        self.snapshots: ProducerSnapshots = found.loaded.snapshots
        self.is_tiered = found.is_tiered
        self.must_be_rebuilt = found.loaded.must_be_rebuilt
        self._tier_start = found.loaded.tier_start
        self._tier_start_file = TierStartFile(machine.files, local.place)
        self.rolled_at = 0
        self.log_start = found.loaded.log_start_offset
        self.local_start = found.loaded.local_log_start_offset
        self._begin_leading(local.config)
        self._high_watermark = 0
        self.set_high_watermark(found.high_watermark)
        self.publish()

    @property
    def high_watermark(self) -> int:
        return self._local.log_end_offset if self._is_sole_replica else self._high_watermark

    def publish(self) -> None:
        """Publish the current log to readers; later native appends become visible by themselves."""
        local, high_watermark, log_start = self._local, self.high_watermark, self.log_start
        end_offset, active = local.log_end_offset, local.active
        unstable = self.producers.first_unstable_offset
        stable = last_stable_offset(high_watermark, unstable, log_start)
        offsets = (log_start, self.local_start, stable, high_watermark, end_offset, local.recovery_point, self.copied)
        # Past the constructors of named tuples, which are Python's and take twice as long.
        state = _new(LogState, (_new(LogOffsets, offsets), local.segments, active.size_bytes, local.generation))
        local.end = LogEnd(end_offset, log_start_offset=log_start, segment=active.end)
        self._published = PublishedState(state, local.end, unstable)

    @property
    def state(self) -> LogState:
        """The log as readers see it: as it was published, with later appends. Any thread."""
        published = self._published
        end_offset, end_position = published.end.read()
        state = published.seen
        if state.offsets.log_end_offset != end_offset:
            state = published.seen = self._moved(published, end_offset, end_position)
        return state

    @contextlib.contextmanager
    def reading(self) -> Iterator[LogState]:
        """A block that reads files by the state that it is given. Any thread."""
        self._local.check_usable()
        state = self.state
        try:
            yield state
        except StoreError as error:
            raise self.read_failed(state, error) from error

    def read_failed(self, state: LogState, error: StoreError) -> Exception:
        """The error for a reader by a state whose files failed: they may have gone under it. Any thread."""
        self._local.check_usable()
        if self.state.segments is not state.segments:
            return LogTruncatedError(f"{self._local.folder}: segments went while they were read")
        return self._local.fail(error)

    def _moved(self, published: PublishedState, end_offset: int, end_position: int) -> LogState:
        """Return the published state with another log end, and the offsets that follow the end."""
        offsets = published.seen.offsets._replace(log_end_offset=end_offset)
        if self._is_sole_replica:
            stable = last_stable_offset(end_offset, published.unstable, offsets.log_start_offset)
            offsets = offsets._replace(high_watermark=end_offset, last_stable_offset=stable)
        return published.seen._replace(offsets=offsets, end_position=end_position)

    def _begin_leading(self, config: LogConfig) -> None:
        """Check and append by a configuration from now on."""
        self._checks = LeaderChecks(config)
        self.leader = LeaderAppends(
            self._checks.native,
            self.producers.known,
            self.epochs.latest,
            segment_bytes=config.segment_bytes,
            segment_ms=self._local.limit_ms,
            info=LogAppendInfo,
        )

    def set_config(self, config: LogConfig, *, is_tiered: bool) -> None:
        """Use another configuration from now on; the active segment's index sizes stay. Raises TypeError."""
        self._local.set_config(config)
        if self.is_tiered and not is_tiered:
            self._leave_tier()
        self.is_tiered = is_tiered
        self._begin_leading(config)
        self.publish()

    def _leave_tier(self) -> None:
        """Start with what is local. Kafka raises a leader's start alone: a follower would offer what nobody has."""
        if self._tier_start is not None and self._tier_start.state is TierStartState.NEEDED:
            self._note_tier_start(replace(self._tier_start, state=TierStartState.STARTED))
        self.raise_log_start(self.local_start, "the topic left the tier")
        self.copied, self.must_be_rebuilt = -1, False  # a later tier begins with nothing

    def append_assigned(
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
        """Append step by step a leader's batch that ``leader`` left, which found this. Raises AppendRefusedError."""
        local, first_offset = self._local, self._local.log_end_offset
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
            return LogAppendInfo.of_nothing(self.log_start)
        view, batch = taken
        local.check_fits(batch.size_bytes)
        prepared: PreparedAppend | None = None
        if batch.producer_id >= 0:
            batches = (producer_batch_of(batch, view),)
            prepared = self.producers.prepare(
                batches, origin=origin, guard=guard, transaction_version=transaction_version
            )
            if prepared.duplicate is not None:
                return LogAppendInfo.of_duplicate(prepared.duplicate, self.log_start)
        local.check_place(first_offset, batch.last_offset)
        self.epochs.assign(batch.leader_epoch, first_offset)
        if local.roll_is_due(batch.size_bytes, batch.last_offset, batch.max_timestamp, now_ms):
            self.roll(first_offset)
        local.active.append(view, last_offset=batch.last_offset, max_timestamp_ms=batch.max_timestamp)
        self._appended(prepared, batch.last_offset + 1)
        append_ms = now_ms if self._checks.log_append_time else -1
        last_offset, start = batch.last_offset, self.log_start
        return LogAppendInfo(first_offset, last_offset, batch.max_timestamp, append_ms, start, batch.size_bytes)

    def append_sent(self, data: Buffer, *, leader_epoch: int, now_ms: int) -> LogAppendInfo:
        """Append the batches that a leader sent, also if they are larger than a segment: its own may be larger, since
        ``segment.bytes`` was. (Kafka refuses them, and the replica stands still.) Raises AppendRefusedError.
        """
        local = self._local
        columns, size_bytes = check_sent_batches(data, next_offset=local.log_end_offset, leader_epoch=leader_epoch)
        if not size_bytes:
            return LogAppendInfo.of_nothing(self.log_start)
        view = memoryview(data).cast("B")[:size_bytes]
        first_offset, last_offset = int(columns["base_offset"][0]), int(columns["last_offset"][-1])
        max_timestamp_ms = int(columns["max_timestamp"].max())
        prepared: PreparedAppend | None = None
        batches = producer_batches_of(columns, view)
        if batches:
            prepared = self.producers.prepare(batches, origin=AppendOrigin.REPLICATION)
        local.check_place(max(first_offset, local.log_end_offset), last_offset)
        check_sent_epochs(columns, self.epochs.latest_epoch)
        self._assign_epochs(columns)
        if local.roll_is_due(size_bytes, last_offset, max_timestamp_ms, now_ms):
            self.roll(max(least_offset(columns), local.log_end_offset))
        local.active.append_run(view, columns)
        self._appended(prepared, last_offset + 1)
        return LogAppendInfo(first_offset, last_offset, max_timestamp_ms, -1, self.log_start, size_bytes)

    def _appended(self, prepared: PreparedAppend | None, end_offset: int) -> None:
        """Note batches that were written to the active segment."""
        local = self._local
        local.log_end_offset = end_offset
        if prepared is None:
            self.producers.end_offset = end_offset
        else:
            aborted = self.producers.apply(prepared, end_offset=end_offset)
            if aborted:
                local.active.append_aborted(aborted)
        if self._is_sole_replica:
            self.producers.on_high_watermark(end_offset)
        self.publish()

    def _assign_epochs(self, columns: Mapping[str, NDArray[np.generic]]) -> None:
        """Assign the epochs of a leader's batches. Formats before magic 2 have none: the known epochs are void then."""
        epochs = columns["leader_epoch"].astype(np.int64)
        if (columns["magic"].astype(np.int64) < _MAGIC_V2).any():
            self.epochs.clear_and_flush()
            return
        changes = np.flatnonzero(np.diff(epochs, prepend=-1) != 0)
        offsets = columns["base_offset"][changes].tolist()
        entries = [entry for entry in zip(epochs[changes].tolist(), offsets, strict=True) if entry[0] >= 0]
        if entries:
            self.epochs.assign_all(entries)

    def roll(self, expected_next_offset: int) -> LogSegment:
        """Roll, write a snapshot of the producers, and leave the sync of the closed segment for later; but where
        offsets are missing in front of the new segment, sync and checkpoint before the first byte is in it.
        """
        expected_next_offset = require_int64("expected_next_offset", expected_next_offset)
        local = self._local
        base_offset = max(expected_next_offset, local.log_end_offset)
        is_behind_gap = base_offset > local.records_end
        segment = local.roll(base_offset)
        self.producers.end_offset = base_offset
        self.snapshots.take(self.producers, fsync=is_behind_gap)
        self.rolled_at = base_offset
        if is_behind_gap:
            self._record_gap(base_offset)
        return segment

    def _record_gap(self, base_offset: int) -> None:
        """Write the recovery point at a gap: else a start takes it for a loss, and deletes all segments behind it."""
        local = self._local
        self._sync_snapshots(local.unsynced(base_offset), known_before=local.synced_offset)
        local.note_synced(base_offset)
        self._publish_checkpoints()

    def _lower_checkpoints(self, offset: int, log_start: int | None = None) -> None:
        """Lower the recovery point to a cut or below, and the log start (None: it stays), on the disk too, before the
        cut: a start after a power cut would believe, unread, later appends, or delete or hide those in front of the old
        log start. Kafka's LogManager writes both behind the cut.
        """
        local = self._local
        if log_start is not None and log_start < self.log_start:
            self.log_start = self.local_start = log_start
        elif offset >= local.recovery_point:
            return
        local.recovery_point, local.synced_offset = min(offset, local.recovery_point), min(offset, local.synced_offset)
        self._publish_checkpoints()

    def _publish_checkpoints(self) -> None:
        """Publish the offsets, and have them on the disk. Raises LogOfflineError."""
        self.publish()
        if self._write_checkpoints is not None:
            self._write_checkpoints()
            self._local.check_usable()

    def _publish_cut(self) -> None:
        """Publish a cut. A high watermark that fell is on the disk then: later appends would pass for committed."""
        if self.high_watermark < self.state.offsets.high_watermark:
            self._publish_checkpoints()
        else:
            self.publish()

    def set_high_watermark(self, offset: int) -> None:
        """Set it between the local log start (Kafka: the log start) and the log's end: retention deletes below it."""
        offset = require_int64("offset", offset)
        end = self._local.log_end_offset
        self._high_watermark = min(max(offset, self.local_start), end)
        self.producers.on_high_watermark(self.high_watermark)

    def raise_high_watermark(self, offset: int) -> int | None:
        """The old one; None if it did not rise. Raises ValueError: behind the log's end."""
        old = self.high_watermark
        if offset > self._local.log_end_offset:
            raise ValueError(f"high watermark {offset}: the log ends at {self._local.log_end_offset}")
        if offset <= old:
            return None
        self.set_high_watermark(offset)
        self.publish()
        return old

    def raise_log_start(self, offset: int, reason: str) -> bool:
        offset = require_int64("offset", offset)
        require_text("reason", reason)
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"{self._local.folder}: the log start cannot pass the high watermark {self.high_watermark}",
                offset=offset,
                log_start_offset=self.log_start,
                log_end_offset=self._local.log_end_offset,
            )
        if (rises := offset > self.log_start) or self.is_tiered:
            self.local_start = max(offset, self.local_start)
        if rises:
            _log.info("%s: the log starts at %d: %s", self._local.folder, offset, reason)
            if self.is_tiered:  # before its lineage goes: the directory's checkpoint is written later
                self._note_tier_start(raised_start(self._tier_start, offset, latest_epoch=self._latest_epoch))
            self.log_start = offset
            self._local.recovery_point = max(self._local.recovery_point, offset)
            self.producers.on_log_start(offset, latest_snapshot_offset=self.snapshots.latest_offset)
        self.publish()
        if rises:  # now: by a lineage that is cut the tier's segments in front of it go
            self.epochs.truncate_from_start(offset)
        return rises

    def raise_log_start_by_tier(self, offset: int) -> int:
        """Raise the log start to what the tier says, as far as the high watermark; where it is now."""
        if self.is_tiered and offset > self.log_start:
            self.raise_log_start(min(offset, self.high_watermark), "segments of the tier were deleted")
        return self.log_start

    def note_copied(self, offset: int, *, may_fall: bool = False) -> None:
        """Note what the tier has, as far as this log goes; a lower offset, unless it may fall, changes nothing."""
        offset = min(offset, self._local.log_end_offset - 1)
        if self.is_tiered and (offset > self.copied or (may_fall and offset < self.copied)):
            self.copied = offset
            self.publish()

    def raise_local_start(self, offset: int, reason: str) -> bool:
        offset = require_int64("offset", offset)
        require_text("reason", reason)
        if offset <= self.local_start:
            return False
        _log.info("%s: the local log starts at %d: %s", self._local.folder, offset, reason)
        durable_to = min(offset, self._local.segments.first.base_offset)  # a restart opens what still lies below offset
        if durable_to > self._local.recovery_point:  # which will cover the snapshots up to there
            self._sync_snapshots()
            self._local.recovery_point = durable_to
        self.local_start = offset
        self._high_watermark = max(self.high_watermark, min(offset, self._local.log_end_offset))
        self.publish()
        return True

    def _sync_snapshots(self, segments: Sequence[LogSegment] = (), *, known_before: int = 0) -> None:
        """Sync the producers' snapshots, and segments with them: see ``LocalLog.sync``."""
        if segments or self.snapshots.has_unsynced:
            snapshots = self.snapshots.open_unsynced()
            self._local.sync(segments, snapshots.files, known_before=known_before)
            self.snapshots.note_synced(snapshots)

    def delete_old_segments(self, now_ms: int) -> int:
        """Set segments aside that retention deletes; return their number."""
        rules = RetentionRules(self._local.config, remote_log_enabled=self.is_tiered)
        gone = 0
        for rule in rules.breaches(now_ms):
            breach = rule(self.state)
            if breach is not None:
                found = rules.deletable(self.state, breach)
                if found.rolls:
                    self.roll(0)
                gone += self.set_aside(found.segments, copies=rules.copies)
                self.publish()
        return gone

    def truncate_to(self, offset: int) -> bool:
        """Cut everything from an offset on; whether anything was there."""
        local = self._local
        if offset >= local.log_end_offset:
            self.epochs.truncate_from_end(local.log_end_offset)  # an epoch may begin there, and be another leader's
            return False
        if local.segments.first.base_offset > offset:
            if self.is_tiered and offset > self.log_start:
                self._cut_below_segments(offset)
            else:
                self.truncate_fully(offset, offset)
            return True
        self._lower_checkpoints(offset, offset)
        self._forget_tier_start(above=offset)
        self._forget_snapshots(local.truncate_to(offset))
        self.epochs.truncate_from_end(offset)
        self.local_start = min(self.local_start, offset)
        self.copied = min(self.copied, offset - 1)
        self.restore_producers(offset)
        self.set_high_watermark(self.high_watermark)
        self._publish_cut()
        return True

    def set_aside(self, segments: tuple[LogSegment, ...], *, copies: bool) -> int:
        """Delete the oldest segments; how many went. The last one is replaced by an empty one first."""
        if segments and len(segments) == len(self._local.segments):
            created = self.roll(0)
            if segments[-1].base_offset == created.base_offset:
                segments = segments[:-1]
        if not segments:
            return 0
        behind = self._local.segments.higher(segments[-1].base_offset)
        assert behind is not None
        if copies:  # whose records would make the producers anew, and are in the tier alone then
            self._sync_snapshots()
        else:  # on the disk before they go: a tiered log that is killed in between would start in front of its segments
            self.raise_log_start(behind.base_offset, "segments are deleted")
        self._local.remove(segments)
        self._forget_snapshots(segments)
        if copies:
            self.raise_local_start(behind.base_offset, "segments were deleted")
        return len(segments)

    def replace_segments(self, cleaned: LogSegment, replaced: Sequence[LogSegment], *, generation: int) -> None:
        """Put a cleaned segment in place of its own ones; LogCleaningAbortedError, and no change: the log was cut."""
        local = self._local
        if local.generation != generation or all(segment not in replaced for segment in local.segments):
            raise LogCleaningAbortedError(f"{local.folder}: its segments went while they were cleaned")
        gone = local.replace(cleaned, replaced)
        self._forget_snapshots(segment for segment in gone if segment.base_offset != cleaned.base_offset)
        self.publish()

    def _forget_snapshots(self, segments: Iterable[LogSegment]) -> None:
        """Set the snapshots of segments that went aside too."""
        for segment in segments:
            if (path := self.snapshots.mark_deleted(segment.base_offset)) is not None:
                self._local.remove_later(path.rpartition("/")[2])

    def truncate_fully(self, offset: int, start: int) -> None:
        """Remove everything and begin anew, empty, at an offset; ``start`` is the log's, in the tier."""
        begun = empty_start(self._tier_start, offset, start, before=self.log_start, latest_epoch=self._latest_epoch)
        if self.is_tiered:  # or a kill leaves a log that ends here and starts, in the tier, where that of before did
            self._lower_checkpoints(offset)
            self._note_tier_start(begun)
        else:
            self._lower_checkpoints(offset, max(offset, self._local.segments.first.base_offset))
            self._forget_tier_start(above=-1)
        self._begin_anew(offset, start)
        self.epochs.clear_and_flush()
        self.producers.on_log_start(self.log_start, latest_snapshot_offset=self.snapshots.latest_offset)
        self.snapshots.take(self.producers)
        if self.is_tiered:  # before an epoch is on the disk that begins behind what the directory's checkpoint says
            self._note_tier_start(begun.finished())
        self.must_be_rebuilt = False
        self._publish_cut()

    def _begin_anew(self, offset: int, log_start_offset: int) -> None:
        """Remove all segments and producers, and begin an empty log at an offset."""
        self._local.truncate_fully_and_start_at(offset)
        self.producers.restart(offset)
        self.snapshots.truncate(log_start_offset=offset, log_end_offset=offset)
        self.log_start, self.local_start = log_start_offset, offset
        self.copied = min(self.copied, offset - 1)
        self._high_watermark = offset

    # ---- a log that is copied to, or begins in, the tier

    def lease(self, segment: LogSegment) -> SegmentLease:
        """Lease a closed segment's files; errors are those of ``UnifiedLog.lease``."""
        segments = self._local.segments.segments
        if segment not in segments:
            raise LogTruncatedError(f"{self._local.folder}: the segment from {segment.base_offset} on has gone")
        if (behind := segments.index(segment) + 1) == len(segments):
            raise ValueError(f"{self._local.folder}: the segment from {segment.base_offset} on is appended to")
        end_offset = segments[behind].base_offset
        return SegmentLease(
            self._machine.files,
            log_segment=segment.log_path,
            offset_index=segment.offset_index_path,
            time_index=segment.time_index_path,
            transaction_index=segment.transaction_index_path,
            producer_snapshot=self.snapshots.path_of(end_offset),
            leader_epoch_index=encode_leader_epochs(self.epochs.epochs.truncate_from_end(end_offset)),
        )

    def _cut_below_segments(self, offset: int) -> None:
        """Cut to an offset that only the tier has: log start and lineage stay, and the log has to be rebuilt."""
        start = TierStart(TierStartState.CUTTING, offset, self.log_start, self.log_start, self._latest_epoch)
        self._lower_checkpoints(offset)
        self._note_tier_start(start)
        self._begin_anew(offset, self.log_start)
        self.epochs.truncate_from_end(offset)
        self._note_tier_start(start.finished())
        self.must_be_rebuilt = True
        self._publish_cut()

    def start_from_tier(self, start: TierStart) -> None:
        """Begin anew behind what the tier has, with the tier's lineage and producers."""
        start = replace(start, superseded_offset=self.log_start, superseded_epoch=self._latest_epoch)
        self._lower_checkpoints(start.offset)
        self._note_tier_start(start)
        self._begin_anew(start.offset, start.log_start_offset)
        self.epochs.replace(start.epochs)
        self.snapshots.install(start.offset, start.producer_snapshot)
        self._note_tier_start(start.finished())
        self.must_be_rebuilt = False
        self.reload_producers()
        if self._write_checkpoints is not None:
            self._publish_checkpoints()  # with the log start, which the file need not tell any more
            self._forget_tier_start(above=-1)

    def complete_lineage(self, earlier: LeaderEpochs) -> None:
        """Add the tier's epochs in front of those of the records. Raises ValueError: it is no lineage of this log, or
        the log has to begin from the tier. Nothing has changed then.
        """
        is_needed = self._tier_start is not None and self._tier_start.state is TierStartState.NEEDED
        if is_needed or self._local.log_end_offset == self.local_start:
            raise ValueError(f"{self._local.folder}: has no records that a lineage could belong to")
        self.epochs.replace(self.epochs.epochs.continuing(earlier, self.log_start, self.local_start))
        self.must_be_rebuilt = False

    @property
    def _latest_epoch(self) -> int:
        return -1 if (latest := self.epochs.latest_entry) is None else latest.epoch

    def _note_tier_start(self, start: TierStart) -> None:
        """Write the word on the log start. A checkpoint of the log before the last one may be on the disk still."""
        if (known := self._tier_start) is not None:
            start = replace(start, superseded_offset=max(start.superseded_offset, known.superseded_offset))
        self._tier_start_file.write(start)
        self._tier_start = start

    def _forget_tier_start(self, *, above: int) -> None:
        """Remove the word on a log start above an offset: loading would believe it."""
        if self._tier_start is not None and self._tier_start.log_start_offset > above:
            self._tier_start_file.remove()
            self._tier_start = None

    def reload_producers(self) -> None:
        """Forget the producers, and restore them from the snapshots that are in the folder now (Kafka
        truncateFullyAndReloadSnapshots, which its follower calls first).
        """
        self.snapshots.relist()
        self.producers.restart(self.log_start)
        self.restore_producers(self._local.log_end_offset)
        self.publish()

    def restore_producers(self, offset: int) -> None:
        restore_producers(
            segments=self._local.segments,
            producers=self.producers,
            snapshots=self.snapshots,
            log_start_offset=self.log_start,
            up_to_offset=offset,
            now_ms=self._machine.clock.time_ms(),
        )
