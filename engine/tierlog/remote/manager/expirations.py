"""Segments of the tier that have expired are deleted: the expiration task of the partitions that this broker leads.

A run looks at a partition's segments, publishes the log's new start, and deletes the first of those that go; each
further run deletes one more, so that a partition with many of them delays no other. A partition of which nothing has
changed is not listed again.

Source: Kafka RemoteLogManager.RLMExpirationTask.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.log.partition_log import PartitionLog
from tierlog.marks import mark
from tierlog.remote.api import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierlog.remote.manager.clock_check import ClockCheck
from tierlog.remote.manager.expiry_plan import (
    Expired,
    ExpiryPlan,
    ExpiryReason,
    ExpiryRules,
    TierSummary,
    find_expiry_rules,
    find_unfinished,
    find_unreferenced,
    lowest_first,
    plan_expiry,
    size_within,
)
from tierlog.remote.manager.segment_deletions import SegmentDeletions
from tierlog.remote.manager.task_faults import is_passing
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.manager.tiered_lineage import (
    CopiedOffset,
    epochs_with_records,
    find_unbroken_offset,
    offsets_of_log,
)
from tierlog.remote.manager.tiered_partition import TieredPartition
from tierlog.runtime.machine.cancelling import cancelled_by

_log = logging.getLogger(__name__)
_STATE = RemoteLogSegmentState
_BEGUN = (_STATE.COPY_SEGMENT_STARTED, _STATE.DELETE_SEGMENT_STARTED)
_IN_TIER = (_STATE.COPY_SEGMENT_FINISHED, _STATE.DELETE_SEGMENT_STARTED)


class Expirations:
    """The task of the partitions that this broker leads.

    Args:
        services: What the manager works with.

    Attributes:
        clock_check: Whether expiry by time is suspended.

    Thread safety: any number of threads, for one partition one at a time.
    """

    def __init__(self, services: TierServices) -> None:
        self._services = services
        self._deletions = SegmentDeletions(services)
        self.clock_check = ClockCheck(services)

    def run(self, partition: TieredPartition) -> float | None:
        """Delete one segment that has expired, or find those that have; seconds until the next run, None: the term has
        ended. By a lineage that does not reach back to the log's start the tier seems to have nothing there: until it
        is completed all stays.
        """
        pause = self._services.config.task_interval_ms / 1000
        log = self._services.find_log(partition.topic_id_partition)
        is_whole = log is not None and log.remote_log_enabled() and not log.must_be_rebuilt
        if log is not None and is_whole and not partition.has_ended:
            pause = self._guarded_step(partition, log, pause)
        return None if partition.has_ended else pause

    def _guarded_step(self, partition: TieredPartition, log: PartitionLog, interval: float) -> float:
        faults = partition.expiry.faults
        try:
            is_busy = self._step(partition, log)
        except Exception as error:  # noqa: BLE001 - whatever it is, the schedule goes on
            if not partition.has_ended:
                level = logging.DEBUG if is_passing(error) else logging.WARNING
                _log.log(level, "%s: expiry: %s: %s", partition.topic_id_partition, type(error).__name__, error)
            return faults.note(error, self._services.config, self._services.machine.rng)
        faults.clear()
        return 0.0 if is_busy else interval

    def _step(self, partition: TieredPartition, log: PartitionLog) -> bool:
        """Make one step; whether the next one is due at once."""
        progress = partition.expiry
        if not progress.going:
            look = _Look(self._services, partition, log, clock_is_right=self.clock_check.trusted())
            if not look.is_needed():
                return False
            with cancelled_by(partition.scope):
                progress.going = look.find_expired()
            progress.going_bytes = sum(each.segment.segment_size_in_bytes for each in progress.going)
            self._show(partition)
            if not progress.going and look.failure is not None:
                raise look.failure
        if not progress.going or partition.has_ended:
            return False
        with cancelled_by(partition.scope):
            self._delete_first(partition)
        self._show(partition)
        return True

    def _delete_first(self, partition: TieredPartition) -> None:
        progress = partition.expiry
        going = progress.going
        segment, reason, _ = going[0]
        try:
            begun = self._deletions.begin(segment) if self._is_due(segment, reason) else None
            if begun is not None:
                going[0] = going[0]._replace(segment=begun)
                if partition.has_ended:
                    mark("expiry: the term ended between two steps")
                    return  # the next leader goes on
                self._deletions.finish(begun)
        except Exception as error:
            mark("expiry: a deletion failed")
            if going[0].segment.state is not _STATE.COPY_SEGMENT_FINISHED:
                going.append(going.pop(0))  # the others are tried first; one that is read still must be the next
            if not is_passing(error) and not partition.has_ended:
                self._services.metrics.add("delete_errors", partition.topic_id_partition.topic)
            raise
        going.pop(0)
        progress.going_bytes -= segment.segment_size_in_bytes

    def _is_due(self, segment: RemoteLogSegmentMetadata, reason: ExpiryReason) -> bool:
        """Whether a segment goes still. A copy that seemed to be given up may have finished meanwhile, and a process
        that stood still has metadata from before: its manager catches up first, if it can say that it has.
        """
        if reason is not ExpiryReason.UNFINISHED:
            return True
        if segment.state is _STATE.COPY_SEGMENT_STARTED:
            self._deletions.await_caught_up(segment.topic_id_partition)
        epoch = next(iter(segment.segment_leader_epochs))
        return any(
            each.remote_log_segment_id == segment.remote_log_segment_id and each.state is segment.state
            for each in self._services.metadata.list_remote_log_segments(segment.topic_id_partition, epoch)
        )

    def _show(self, partition: TieredPartition) -> None:
        if not partition.has_ended:
            show = self._services.metrics.set
            show("delete_lag_segments", partition.topic_id_partition, len(partition.expiry.going))
            show("delete_lag_bytes", partition.topic_id_partition, partition.expiry.going_bytes)


class _Look:
    """One look at a partition's tier: by the summary of the last one, or at its segments.

    Attributes:
        failure: Why no segment goes by size in this run.
    """

    def __init__(
        self, services: TierServices, partition: TieredPartition, log: PartitionLog, *, clock_is_right: bool
    ) -> None:
        self._services = services
        self._partition = partition
        self._topic_id_partition = partition.topic_id_partition
        self._log = log
        self._limits = log.config
        # Before the list: what changes meanwhile is seen by the next run.
        self._version = services.metadata.segments_version(partition.topic_id_partition)
        self._log_start = log.log_start_offset
        self._copied_offset = log.highest_offset_in_remote_storage
        cache = log.leader_epoch_cache
        self._bounds = (cache.earliest_entry, cache.latest_entry)
        self._now_ms = now_ms = services.machine.clock.time_ms()
        self._retention_ms = self._limits.retention_ms if clock_is_right else -1
        waits = clock_is_right and not services.config.kafka_semantics
        self._began_until_ms = now_ms - services.config.unfinished_copy_retention_ms if waits else -1
        self.failure: Exception | None = None

    def is_needed(self) -> bool:
        """Whether the segments have to be listed."""
        summary = self._partition.expiry.summary
        if summary is None or summary.version != self._version:
            return True
        if summary.log_start_offset != self._log_start or summary.epochs != self._bounds:
            return True
        if not summary.start_is_tiered and not self._start_is_here:
            return True
        is_sized = summary.tiered_bytes is not None
        if self._limits.retention_bytes >= 0 and not (is_sized and summary.copied_offset == self._copied_offset):
            return True
        rules = self._find_rules(summary.tiered_bytes)
        return not summary.holds(rules, began_until_ms=self._began_until_ms)

    def find_expired(self) -> list[Expired]:
        """List the segments, publish the log's new start, and return the segments that go."""
        log, progress = self._log, self._partition.expiry
        progress.summary = None
        epochs = epochs_with_records(log.leader_epoch_cache.epoch_with_offsets().items())
        is_sized = self._limits.retention_bytes >= 0 and self._offsets_are_known()
        clock = self._services.machine.clock
        began = clock.monotonic_seconds()
        # Before the list, or a new copy counts as local too.
        self._copied_offset = log.highest_offset_in_remote_storage
        segments = list(self._services.metadata.list_remote_log_segments(self._topic_id_partition))
        tiered_bytes: int | None = None
        if is_sized:
            # Kafka counts what lies in front of the log's start too: after a DeleteRecords, or a crash between
            # publishing and deleting, it deletes as many bytes of the log again.
            counted = (each for each in segments if self._log_start <= each.end_offset <= self._copied_offset)
            tiered_bytes = size_within(counted, epochs, log_end_offset=log.log_end_offset)
        self._show(segments, clock.monotonic_seconds() - began)
        plan = self._plan(epochs, self._find_rules(tiered_bytes))
        going = self._going(plan, segments, epochs)
        is_settled = not going and plan.is_whole and not plan.expired and self.failure is None
        if is_settled and self._version is not None and not self._partition.has_ended:
            progress.summary = self._summary(self._version, plan, segments, epochs, tiered_bytes)
        return going

    def _list(self, epoch: int) -> Iterable[RemoteLogSegmentMetadata]:
        return self._services.metadata.list_remote_log_segments(self._topic_id_partition, epoch)

    def _find_rules(self, tiered_bytes: int | None) -> ExpiryRules:
        """Find the limits; without the tier's size nothing goes by size."""
        is_sized = tiered_bytes is not None and self._limits.retention_bytes >= 0
        return find_expiry_rules(
            retention_ms=self._retention_ms,
            retention_bytes=self._limits.retention_bytes if is_sized else -1,
            now_ms=self._now_ms,
            only_local_bytes=self._log.only_local_log_segments_size() if is_sized else 0,
            tiered_bytes=tiered_bytes or 0,
        )

    # ---- what must be known first

    def _offsets_are_known(self) -> bool:
        """Have the log know its copied offset and its start, or its local bytes would count twice (KAFKA-20732)."""
        try:
            self._partition.offsets.require(self._services, self._log)
        except Exception as error:  # noqa: BLE001 - the other rules need none of this
            self.failure = error
            return False
        finally:
            self._log_start = self._log.log_start_offset
        return True

    # ---- what goes

    def _plan(self, epochs: LeaderEpochs, rules: ExpiryRules) -> ExpiryPlan:
        return plan_expiry(
            epochs,
            self._list,
            rules,
            log_start_offset=self._log_start,
            log_end_offset=self._log.log_end_offset,
            being_copied=self._partition.being_copied,
            local_bytes=self._local_bytes,
        )

    def _local_bytes(self, start_offset: int, end_offset: int) -> int:
        """Bytes of the local segments that the tier does not have, and that begin in a range."""
        copied = self._log.highest_offset_in_remote_storage
        segments = self._log.log_segments(start_offset, end_offset)
        return sum(each.size_bytes for each in segments if each.base_offset > copied)

    def _going(self, plan: ExpiryPlan, segments: list[RemoteLogSegmentMetadata], epochs: LeaderEpochs) -> list[Expired]:
        """Publish the new start, and return the segments that go by what the log made of it: the lowest first, whatever
        the reason. Kafka's go reason by reason, by their first offsets: the next leader, which may have an earlier log
        start, finds a hole behind those that are left then.
        """
        start = plan.log_start_offset
        begun = any(each.reason is ExpiryReason.DELETION_BEGAN for each in plan.expired)
        if begun:
            mark("expiry: goes on with another leader's deletion")
        # Where nothing more is copied, the local log waits for the start by Kafka's semantics too.
        finds_start = not self._services.config.kafka_semantics or self._limits.remote_log_copy_disable
        if finds_start and (begun or self._start_is_gone(segments)):
            # An earlier leader may have published a start that this log has never got, or the tier of what has gone
            # here just now: Kafka goes on offering that offset until something else expires.
            start = max(start or 0, self._partition.offsets.find_log_start(self._services, self._log))
        if start is not None:
            self._partition.offsets.raise_log_start(self._services, self._log, start)
            self._log_start = self._log.log_start_offset
        being_copied = self._partition.being_copied
        found = [
            *plan.allowed(self._log_start),
            *find_unfinished(
                [each for each in segments if self._is_needless(each, epochs)],
                began_until_ms=self._began_until_ms,
                latest_epoch=None if self._bounds[1] is None else self._bounds[1].epoch,
                being_copied=being_copied,
            ),
            *find_unreferenced(segments, epochs, being_copied=being_copied),
        ]
        return lowest_first(found)

    def _is_needless(self, segment: RemoteLogSegmentMetadata, epochs: LeaderEpochs) -> bool:
        """Whether other segments have what a copy that has begun has of the log. Its broker may finish it just in front
        of the event by which it goes, and delete the records locally.
        """
        if segment.state is not _STATE.COPY_SEGMENT_STARTED:
            return True
        low, high = offsets_of_log(segment, epochs, log_end_offset=self._log.log_end_offset)
        find, partition = self._services.metadata.remote_log_segment_metadata, self._topic_id_partition
        last = CopiedOffset(high - 1, -1)
        low = max(low, self._log_start, self._log.local_log_start_offset)  # what lies in front is not copied again
        return last == find_unbroken_offset(
            epochs, lambda epoch, offset: find(partition, epoch, offset), start_offset=low, copied=last
        )

    def _start_is_gone(self, segments: Iterable[RemoteLogSegmentMetadata]) -> bool:
        """Whether nobody has the log's first offset."""
        return not self._start_is_here and not self._start_is_tiered(segments)

    @property
    def _start_is_here(self) -> bool:
        return self._log_start >= self._log.local_log_start_offset

    def _start_is_tiered(self, segments: Iterable[RemoteLogSegmentMetadata]) -> bool:
        start = self._log_start
        return any(each.start_offset <= start <= each.end_offset for each in segments if each.state in _IN_TIER)

    # ---- what is known for the next run, and shown

    def _summary(
        self,
        version: int,
        plan: ExpiryPlan,
        segments: list[RemoteLogSegmentMetadata],
        epochs: LeaderEpochs,
        tiered_bytes: int | None,
    ) -> TierSummary:
        needless = (each for each in segments if each.state in _BEGUN and self._is_needless(each, epochs))
        begun = [each.event_timestamp_ms for each in needless]
        return TierSummary(
            version=version,
            log_start_offset=self._log_start,
            start_is_tiered=self._start_is_tiered(segments),
            epochs=self._bounds,
            tiered_bytes=tiered_bytes,
            copied_offset=self._copied_offset,
            newest_record_ms=plan.next_ms,
            stays_bytes=None if plan.stays is None else plan.stays_bytes,
            unfinished_since_ms=min(begun, default=None),
        )

    def _show(self, segments: list[RemoteLogSegmentMetadata], seconds: float) -> None:
        if self._partition.has_ended:
            return
        show = self._services.metrics.set
        show("metadata_count", self._topic_id_partition, len(segments))
        size_bytes = sum(each.segment_size_in_bytes for each in segments if each.state in _IN_TIER)
        show("log_size_bytes", self._topic_id_partition, size_bytes)
        show("log_size_computation_seconds", self._topic_id_partition, seconds)
