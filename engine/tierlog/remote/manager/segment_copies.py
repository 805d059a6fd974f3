"""The copy task of the partitions that this broker leads: closed segments go to the tier, ascending, one a run.

A segment is copied once all of it lies below the last stable offset, under a new id each time. Its metadata comes
first, then its bytes, then the state that readers see. Its files are leased for all of that. A copy of a term that has
ended is undone, and never finished: another broker leads, and makes its own.

Errors are of three kinds. What may go away by itself is tried again, and what was begun stays, to be removed later;
what the store refuses is tried again too, and undone at once; a local segment that is damaged, and a storage manager
that breaks its contract, stop the partition's copying: nothing of it is deleted locally then.

Source: Kafka RemoteLogManager.RLMCopyTask.
"""

from __future__ import annotations

import dataclasses
import logging

from tierlog.errors import CorruptDataError, ObjectNotFoundError
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.log.formats.segment_files import LogSegmentData
from tierlog.log.partition_log import PartitionLog, PartitionSegment
from tierlog.remote.api import (
    CustomMetadata,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemoteStorageException,
    SegmentFileError,
)
from tierlog.remote.manager.byte_quota import ByteQuota
from tierlog.remote.manager.segment_deletions import SegmentDeletions
from tierlog.remote.manager.task_faults import is_passing
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.manager.tiered_lineage import (
    CopiedOffset,
    epochs_with_records,
    find_copied_offset,
    find_log_start_offset,
)
from tierlog.remote.manager.tiered_partition import TieredPartition
from tierlog.runtime.machine.cancelling import cancelled_by

_log = logging.getLogger(__name__)

_STATE = RemoteLogSegmentState


class CopyContractError(RemoteStorageException):
    """The storage manager gave more custom metadata than a segment may have: its copy is undone."""


class SegmentCopies:
    """The task of the partitions that this broker leads. A run copies one segment, or finds that none is closed.

    Args:
        services: What the manager works with.
        quota: Of all copies.

    Thread safety: any number of threads, for one partition one at a time.
    """

    def __init__(self, services: TierServices, quota: ByteQuota) -> None:
        self._services = services
        self._quota = quota
        self._deletions = SegmentDeletions(services)

    def run(self, partition: TieredPartition) -> float | None:
        """Copy the next segment; seconds until the next run, None: the term copies no more."""
        services = self._services
        if partition.has_ended or partition.copying_stopped:
            return None
        log = services.find_log(partition.topic_id_partition)
        if log is None or not log.remote_log_enabled() or log.config.remote_log_copy_disable or log.must_be_rebuilt:
            return services.config.task_interval_ms / 1000
        try:
            is_busy = self._copy_next(partition, log)
        except Exception as error:  # noqa: BLE001 - whatever it is, the schedule goes on
            return self._failed(partition, error)
        partition.failure = None
        partition.copy_faults.clear()
        return 0.0 if is_busy else services.config.task_interval_ms / 1000

    def _failed(self, partition: TieredPartition, error: Exception) -> float | None:
        topic_id_partition = partition.topic_id_partition
        if partition.has_ended or partition.copying_stopped:
            _log.debug("%s: the copy ended with its term: %s", topic_id_partition, error)
            return None
        partition.failure = error
        stops = _stops(error)
        if stops or not is_passing(error):
            self._services.metrics.add("copy_errors", topic_id_partition.topic)
        if stops:
            _log.error("%s: nothing more is copied until this broker leads it anew: %s", topic_id_partition, error)
            partition.copying_stopped = True
            return None
        level = logging.DEBUG if is_passing(error) else logging.WARNING
        _log.log(level, "%s: the copy is tried again: %s: %s", topic_id_partition, type(error).__name__, error)
        return partition.copy_faults.note(error, self._services.config, self._services.machine.rng)

    # ---- which

    def _copy_next(self, partition: TieredPartition, log: PartitionLog) -> bool:
        """Copy the next segment; whether there was one."""
        with cancelled_by(partition.scope):
            copied = self._find_offsets(partition, log)
        closed = log.closed_segments(max(copied.offset + 1, log.log_start_offset))
        if not closed or partition.has_ended:
            return False
        segment, end_offset = closed[0]
        has_room = self._quota.wait_for_room(
            lambda: partition.has_ended or partition.copying_stopped,
            size_bytes=segment.size_bytes,
            on_wait=lambda seconds: self._services.metrics.observe("copy_throttle_seconds", seconds),
        )
        if not has_room:
            return False
        try:
            with log.lease(segment) as data:
                self._copy(partition, log, segment, end_offset, data)
        except LookupError:
            return False  # it went meanwhile, with the log's start or a truncation
        return True

    def _find_offsets(self, partition: TieredPartition, log: PartitionLog) -> CopiedOffset:
        """Find where the log starts by its tier, and what is copied: once in a term, and again if the log is another
        one, or was cut.
        """
        topic_id_partition, metadata = partition.topic_id_partition, self._services.metadata
        epochs = LeaderEpochs(log.leader_epoch_cache.epoch_with_offsets().items())
        if partition.parent_dir != log.parent_dir:
            partition.copied, partition.finds_log_start = None, True
            partition.parent_dir = log.parent_dir
        if partition.finds_log_start:
            start = find_log_start_offset(
                epochs_with_records(epochs),
                lambda epoch: metadata.list_remote_log_segments(topic_id_partition, epoch),
                local_log_start_offset=log.local_log_start_offset,
            )
            log.update_log_start_offset_from_remote_tier(start)
            partition.finds_log_start = False
        copied = partition.copied
        if copied is None or log.highest_offset_in_remote_storage < copied.offset:
            copied = partition.copied = find_copied_offset(
                epochs,
                lambda epoch: metadata.highest_offset_for_epoch(topic_id_partition, epoch),
                log_end_offset=log.log_end_offset,
            )
            log.update_highest_offset_in_remote_storage(copied.offset)
        return copied

    # ---- one segment

    def _copy(
        self,
        partition: TieredPartition,
        log: PartitionLog,
        segment: PartitionSegment,
        end_offset: int,
        data: LogSegmentData,
    ) -> None:
        services, topic = self._services, partition.topic_id_partition.topic
        begun = self._describe(partition, log, segment, end_offset)
        added = services.metadata.add_remote_log_segment_metadata(begun)
        services.metrics.add("copy_requests", topic)
        with partition.copying(begun.remote_log_segment_id):
            self._deletions.await_stored(added, begun.remote_log_segment_id)
            custom = self._store(partition, begun, data)
            if partition.has_ended or partition.copying_stopped:
                self._undo(begun, custom)
                return
            partition.copied = None  # if the next call fails, it may be stored all the same
            update = RemoteLogSegmentMetadataUpdate(
                begun.remote_log_segment_id,
                event_timestamp_ms=services.machine.clock.time_ms(),
                custom_metadata=custom,
                state=_STATE.COPY_SEGMENT_FINISHED,
                broker_id=services.broker_id,
            )
            finished = services.metadata.update_remote_log_segment_metadata(update)
            self._deletions.await_stored(finished, begun.remote_log_segment_id)
        partition.copied = CopiedOffset(begun.end_offset, max(begun.segment_leader_epochs))
        if not partition.has_ended:
            log.update_highest_offset_in_remote_storage(begun.end_offset)
        services.metrics.add("copy_bytes", topic, begun.segment_size_in_bytes)

    def _describe(
        self, partition: TieredPartition, log: PartitionLog, segment: PartitionSegment, end_offset: int
    ) -> RemoteLogSegmentMetadata:
        """Return the metadata of a copy that begins."""
        base_offset = segment.base_offset
        aborted, _ = segment.collect_aborted(fetch_offset=base_offset, upper_bound_offset=end_offset)
        entries = log.leader_epoch_cache.epoch_entries_in_range(base_offset, end_offset)
        return RemoteLogSegmentMetadata(
            remote_log_segment_id=RemoteLogSegmentId.generate_new(
                partition.topic_id_partition, rng=self._services.machine.rng
            ),
            start_offset=base_offset,
            end_offset=end_offset - 1,
            max_timestamp_ms=segment.largest_timestamp_ms,
            broker_id=self._services.broker_id,
            event_timestamp_ms=self._services.machine.clock.time_ms(),
            segment_size_in_bytes=segment.size_bytes,
            segment_leader_epochs={entry.epoch: entry.start_offset for entry in entries},
            txn_idx_empty=not aborted,
        )

    def _store(
        self, partition: TieredPartition, begun: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> CustomMetadata | None:
        try:
            custom = self._services.storage.copy_log_segment_data(begun, data)
        except Exception as error:
            if partition.has_ended or not is_passing(error):
                self._undo(begun, None)
            raise
        limit = self._services.config.custom_metadata_bytes_max
        if custom is not None and len(custom) > limit:
            self._undo(begun, custom)
            raise CopyContractError(
                f"{begun.remote_log_segment_id}: {len(custom)} bytes of custom metadata, and {limit} are allowed"
            )
        return custom

    def _undo(self, begun: RemoteLogSegmentMetadata, custom: CustomMetadata | None) -> None:
        """Remove what was stored of a copy, and its metadata; what stays is removed by the expiration task."""
        try:
            going = self._deletions.begin(dataclasses.replace(begun, custom_metadata=custom))
            if going is not None:
                self._deletions.finish(going)
        except Exception as error:  # noqa: BLE001 - the copy's own error is raised
            _log.info("%s: the copy is not undone yet: %s", begun.remote_log_segment_id, error)


def _stops(error: Exception) -> bool:
    """Whether an error stops a partition's copying until its next term."""
    if isinstance(error, SegmentFileError):
        return not error.retriable
    return isinstance(error, CopyContractError | CorruptDataError | ObjectNotFoundError)
