"""The two offsets of a log that its tier gives: the last copied one, and the one at which the log starts.

The copy task must know both before it chooses a segment, and the expiration task before it asks a rule by size: until
the log knows its copied offset, its local bytes count twice (KAFKA-20732). A follower looks the copied one up for its
local retention.

Source: Kafka RemoteLogManager.RLMCopyTask#maybeUpdateLogStartOffsetOnBecomingLeader, #maybeUpdateCopiedOffset.
"""

from __future__ import annotations

from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.log.partition_log import PartitionLog
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.manager.tiered_lineage import (
    CopiedOffset,
    epochs_with_records,
    find_copied_offset,
    find_log_start_offset,
    find_unbroken_offset,
)
from tierlog.runtime.machine.cancelling import CancelScope
from tierlog.runtime.machine.scheduling import Scheduler


class TierOffsets:
    """Both offsets in one term of a partition.

    They are looked up once, and again for a log in another log directory, to which they are unknown; the copied offset
    also for a log that was cut below it. After the term's end nothing is written, neither here nor to the log.

    Args:
        topic_id_partition: The partition.
        term: The term's scope.
        scheduler: Of the machine.

    Thread safety: the partition's tasks, at once. An offset that a copy reached is never replaced by one that another
    task looked up before it.
    """

    __slots__ = (
        "_changes",
        "_copied",
        "_has_hole",
        "_lock",
        "_log_start_is_known",
        "_parent_dir",
        "_term",
        "topic_id_partition",
    )

    def __init__(self, topic_id_partition: TopicIdPartition, term: CancelScope, scheduler: Scheduler) -> None:
        self.topic_id_partition = topic_id_partition
        self._term = term
        self._lock = scheduler.lock()
        self._changes = 0
        self._copied: CopiedOffset | None = None
        self._has_hole = False
        self._log_start_is_known = False
        #: The log directory for whose log both were found.
        self._parent_dir: str | None = None

    @property
    def copied(self) -> CopiedOffset | None:
        """The last copied offset; None: it is not known."""
        return self._copied

    @property
    def has_hole(self) -> bool:
        """Whether the tier may have offsets behind the copied one and the next, which it lacks: they need no copy."""
        return self._has_hole

    def known(self, log: PartitionLog) -> CopiedOffset | None:
        """Return the copied offset, if both are known and the log has them still."""
        if not self._log_start_is_known or self._parent_dir != log.parent_dir:
            return None
        copied = self._copied
        return copied if copied is not None and log.highest_offset_in_remote_storage >= copied.offset else None

    # ---- looking up: whatever the metadata manager raises, is raised

    def require(self, services: TierServices, log: PartitionLog) -> CopiedOffset:
        """Let the log know both; return the copied offset."""
        copied = self.known(log)
        if copied is not None:
            return copied
        with self._lock:
            if self._parent_dir != log.parent_dir:
                self._parent_dir = log.parent_dir
                self._log_start_is_known = False
                self._change(None)
            log_start_is_known = self._log_start_is_known
        if not log_start_is_known:
            self.raise_log_start(services, log, self.find_log_start(services, log))
            with self._lock:
                self._log_start_is_known = self._parent_dir == log.parent_dir
        return self.known(log) or self.look_up_copied(services, log)

    def look_up_copied(self, services: TierServices, log: PartitionLog) -> CopiedOffset:
        """Look up the copied offset, whether it is known or not, and let the log know it."""
        changes = self._changes
        copied, has_hole = self._find_copied(services, log)
        with self._lock:
            if self._term.cancelled or changes != self._changes:
                return copied
            self._change(copied, has_hole=has_hole)
        may_fall = not services.config.kafka_semantics
        log.update_highest_offset_in_remote_storage(copied.offset, may_fall=may_fall, leader_epoch=copied.epoch)
        return copied

    def _find_copied(self, services: TierServices, log: PartitionLog) -> tuple[CopiedOffset, bool]:
        """Find the copied offset, and whether it lies in front of a hole. From the start of the local log on, which
        local retention deletes up to there, a reader must find each offset in the tier: segments are deleted there too,
        and one that was copied with the log's start inside it has nothing in front of that, of which this log may not
        have heard. Kafka goes on behind all that was ever copied, and local retention deletes what no tier has.
        """
        metadata, partition = services.metadata, self.topic_id_partition
        epochs, log_end_offset = _epochs_of(log), log.log_end_offset
        start_offset = max(log.log_start_offset, log.local_log_start_offset)
        copied = find_copied_offset(
            epochs, lambda epoch: metadata.highest_offset_for_epoch(partition, epoch), log_end_offset=log_end_offset
        )
        if services.config.kafka_semantics:
            return copied, False
        unbroken = find_unbroken_offset(
            epochs,
            lambda epoch, offset: metadata.remote_log_segment_metadata(partition, epoch, offset),
            start_offset=start_offset,
            copied=copied,
        )
        return unbroken, unbroken != copied

    def find_log_start(self, services: TierServices, log: PartitionLog) -> int:
        """Look up where the log starts."""
        return find_log_start_offset(
            _epochs_of(log),
            lambda epoch: services.metadata.list_remote_log_segments(self.topic_id_partition, epoch),
            local_log_start_offset=log.local_log_start_offset,
        )

    # ---- changing

    def raise_log_start(self, services: TierServices, log: PartitionLog, offset: int) -> None:
        """Raise the log's start and publish it. The log may take less of it, or nothing."""
        before = log.log_start_offset
        if offset <= before or self._term.cancelled:
            return
        start = log.update_log_start_offset_from_remote_tier(offset)
        if start > before:
            services.on_log_start_offset(self.topic_id_partition, start)

    def set_copied(self, log: PartitionLog, copied: CopiedOffset) -> None:
        """Note that a copy has finished. Nothing changes after the term's end: the log is another leader's by then, who
        may have had it cut. A term that ends just then is found by the log: its offset is of another epoch.
        """
        with self._lock:
            if self._term.cancelled:
                return
            # Behind a hole the tier goes on: how far, the next run looks up.
            self._change(None if self._has_hole else copied)
        log.update_highest_offset_in_remote_storage(copied.offset, leader_epoch=copied.epoch)

    def forget_copied(self) -> None:
        """Note that the copied offset is not known: a copy has ended, and its last state may have been stored."""
        with self._lock:
            self._change(None)

    def _change(self, copied: CopiedOffset | None, *, has_hole: bool = False) -> None:
        self._copied = copied
        self._has_hole = has_hole
        self._changes += 1


def _epochs_of(log: PartitionLog) -> LeaderEpochs:
    return epochs_with_records(log.leader_epoch_cache.epoch_with_offsets().items())
