"""Closed segments are copied to the tier: the copy task of the partitions that this broker leads.

A run copies one segment, or a few while no other task waits for its thread: a partition with many of them delays no
other. The next copy is announced while the end of the last one is confirmed, and begins once that is.

A segment counts as copied once its metadata say so, in state COPY_SEGMENT_FINISHED; then, and not before, the log gets
its copied offset, by which local retention may delete the segment.

What may go wrong, and what becomes of it:

- The copy failed: its objects and its metadata are removed before the next attempt, which has another id.
- The metadata manager refuses the last state: another leader has begun to remove what seemed to be given up. The
  objects, which came late, are removed again.
- It is not known whether the last state was stored: nothing is removed, since followers may go by it already. The next
  run looks; a segment that is in the tier twice does no harm.
- The local segment is damaged, or the storage manager gives more custom metadata than the broker may store: the term
  copies no more, and nothing local is deleted. That is for an operator.

Source: Kafka RemoteLogManager.RLMCopyTask.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from tierlog.errors import CorruptDataError, ObjectNotFoundError
from tierlog.log.formats.segment_files import LogSegmentData
from tierlog.log.partition_log import PartitionLog
from tierlog.marks import mark
from tierlog.remote.api import (
    CustomMetadata,
    InvalidTransitionError,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
    SegmentFileError,
    TopicIdPartition,
)
from tierlog.remote.manager.copy_candidates import CopyCandidate, find_copy_candidate
from tierlog.remote.manager.segment_deletions import SegmentDeletions
from tierlog.remote.manager.task_faults import is_passing
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.manager.tiered_lineage import CopiedOffset
from tierlog.remote.manager.tiered_partition import TieredPartition
from tierlog.runtime.machine.cancelling import cancelled_by, uncancelled
from tierlog.runtime.machine.scheduling import Future
from tierlog.runtime.waiting.byte_quota import ByteQuota

_log = logging.getLogger(__name__)

_STATE = RemoteLogSegmentState
#: The longest pause for the quota, after which it is looked at again; and the one for a segment that has gone.
_PAUSE_SECONDS: Final = 1.0
#: A run that has lasted so long begins no further copy.
_RUN_SECONDS: Final = 5.0


class CustomMetadataSizeLimitError(RemoteStorageException):
    """The storage manager gave more custom metadata for a segment than the broker stores."""


class _BegunCopy(NamedTuple):
    """A copy that is announced.

    Attributes:
        files: Of the segment.
        added: Whether its metadata is stored.
        copied: Of the log, once the copy has been made.
        leased: Closed when the copy ends: the lease of the files, and that the segment is being copied.
    """

    metadata: RemoteLogSegmentMetadata
    files: LogSegmentData
    added: Future[None]
    copied: CopiedOffset
    leased: contextlib.ExitStack


class SegmentCopies:
    """The task of the partitions that this broker leads.

    Args:
        services: What the manager works with.
        quota: Of all copies.
        others_wait: Whether other tasks wait for a thread: then a run copies one segment.

    Thread safety: any number of threads, for one partition one at a time.
    """

    def __init__(
        self, services: TierServices, quota: ByteQuota, others_wait: Callable[[], bool] = lambda: False
    ) -> None:
        self._services = services
        self._quota = quota
        self._others_wait = others_wait
        self._deletions = SegmentDeletions(services)

    def run(self, partition: TieredPartition) -> float | None:
        """Copy the next segment; seconds until the next run, None: the term copies no more."""
        pause = self._services.config.task_interval_ms / 1000
        if not _is_over(partition):
            log = self._services.find_log(partition.topic_id_partition)
            if log is not None and log.remote_log_enabled():
                pause = self._guarded_step(partition, log, pause)
        return None if _is_over(partition) else pause

    def _guarded_step(self, partition: TieredPartition, log: PartitionLog, interval: float) -> float:
        pause: float | None = None
        try:
            if not _has_all(partition, log):
                with cancelled_by(partition.scope):
                    pause = self._step(partition, log)
        except Exception as error:  # noqa: BLE001 - whatever it is, the schedule goes on
            return self._failed(partition, error, interval)
        partition.copy_faults.clear()
        return interval if pause is None else pause

    def _failed(self, partition: TieredPartition, error: Exception, interval: float) -> float:
        """Count and show an error of a run; return the pause until the next one."""
        topic_id_partition = partition.topic_id_partition
        if partition.has_ended or (partition.copying_stopped and partition.failure is None):
            _log.debug("%s: the copy was called off: %s", topic_id_partition, error)
            return interval
        if not is_passing(error):
            self._services.metrics.add("copy_errors", topic_id_partition.topic)
        if isinstance(error, SegmentFileError | CustomMetadataSizeLimitError) and not error.retriable:
            partition.copying_stopped = True
            mark("copies: stopped until an operator acts")
            _log.error("%s: nothing more is copied until an operator acts: %s", topic_id_partition, error)
        else:
            level = logging.DEBUG if is_passing(error) else logging.WARNING
            _log.log(level, "%s: copy: %s: %s", topic_id_partition, type(error).__name__, error)
        return partition.copy_faults.note(error, self._services.config, self._services.machine.rng)

    def _step(self, partition: TieredPartition, log: PartitionLog) -> float | None:
        """Copy the next segment, or a few. Seconds until the next step; None: there is none to copy."""
        if partition.unfinished is not None:
            self._remove_unfinished(partition)
        if not _may_copy(partition, log):
            return None
        until = self._services.machine.clock.monotonic_seconds() + _RUN_SECONDS
        copied = partition.offsets.require(self._services, log)
        begun = self._begin(partition, log, copied.offset)
        while isinstance(begun, _BegunCopy):
            begun = self._copy(partition, log, begun, until)
        return begun

    # ---- one copy

    def _begin(self, partition: TieredPartition, log: PartitionLog, copied_offset: int) -> _BegunCopy | float | None:
        """Lease the next segment and announce its copy. Else seconds until the next step; None: there is none."""
        now_ms = self._services.machine.clock.time_ms()
        candidate = find_copy_candidate(log, copied_offset=copied_offset, now_ms=now_ms)
        if candidate is None or partition.has_ended:
            return None
        throttle_ms = self._quota.admit(candidate.segment.size_bytes)
        if throttle_ms:
            self._services.metrics.observe("copy_throttle_seconds", throttle_ms / 1000)
            return min(throttle_ms / 1000, _PAUSE_SECONDS)
        with contextlib.ExitStack() as leased:
            try:
                files = leased.enter_context(log.lease(candidate.segment))
            except ObjectNotFoundError as error:
                text = f"{log.folder}: the segment of base offset {candidate.segment.base_offset}: {error}"
                raise SegmentFileError(text) from error
            except LookupError as error:  # retention, or a cut, was faster
                mark("copies: the segment had gone")
                _log.debug("%s: %s", partition.topic_id_partition, error)
                return _PAUSE_SECONDS
            metadata, copied = self._described(log, partition.topic_id_partition, candidate)
            self._services.metrics.add("copy_requests", partition.topic_id_partition.topic)
            leased.enter_context(partition.copying(metadata.remote_log_segment_id))
            added = self._services.metadata.add_remote_log_segment_metadata(metadata)
            return _BegunCopy(metadata, files, added, copied, leased.pop_all())

    def _described(
        self, log: PartitionLog, topic_id_partition: TopicIdPartition, candidate: CopyCandidate
    ) -> tuple[RemoteLogSegmentMetadata, CopiedOffset]:
        """Return the metadata of a new copy, and the log's copied offset once it has been made."""
        segment, machine = candidate.segment, self._services.machine
        epochs = log.leader_epoch_cache.epoch_entries_in_range(segment.base_offset, candidate.end_offset)
        if epochs.latest is None:  # the log was cut just now, or its lineage begins behind the segment
            text = f"{log.folder}: no leader epoch is known of offsets {segment.base_offset} to {candidate.end_offset}"
            raise RetriableRemoteStorageException(text)
        try:
            has_aborted = bool(segment.collect_aborted(fetch_offset=0, upper_bound_offset=candidate.end_offset)[0])
        except CorruptDataError as error:
            text = f"{log.folder}: the segment of base offset {segment.base_offset}: {error}"
            raise SegmentFileError(text) from error
        metadata = RemoteLogSegmentMetadata(
            RemoteLogSegmentId.generate_new(topic_id_partition, rng=machine.rng),
            start_offset=segment.base_offset,
            end_offset=candidate.end_offset - 1,
            max_timestamp_ms=segment.largest_timestamp_ms,
            broker_id=self._services.broker_id,
            event_timestamp_ms=machine.clock.time_ms(),
            segment_size_in_bytes=segment.size_bytes,
            segment_leader_epochs={entry.epoch: entry.start_offset for entry in epochs},
            txn_idx_empty=not has_aborted,
        )
        return metadata, CopiedOffset(metadata.end_offset, epochs.latest.epoch)

    def _copy(
        self, partition: TieredPartition, log: PartitionLog, begun: _BegunCopy, until_seconds: float
    ) -> _BegunCopy | float | None:
        """Make a copy that has begun. Return the one that has begun behind it, else seconds until the next step."""
        metadata, following = begun.metadata, None
        with begun.leased:
            self._deletions.await_stored(begun.added, metadata.remote_log_segment_id)
            custom = self._store(partition, metadata, begun.files)
            update = self._finished(metadata, custom)
            partition.unfinished = None  # it may be finished from here on
            try:
                stored = self._services.metadata.update_remote_log_segment_metadata(update)
                following = self._begin_following(partition, log, metadata, until_seconds)
                self._deletions.await_stored(stored, metadata.remote_log_segment_id)
            except BaseException as error:
                self._give_up(partition, following)
                if isinstance(error, Exception):
                    self._finish_failed(partition, metadata.create_with_updates(update), error)
                raise
        self._services.metrics.add("copy_bytes", metadata.topic_id_partition.topic, metadata.segment_size_in_bytes)
        partition.offsets.set_copied(log, begun.copied)
        if following is not None and not _may_copy(partition, log):
            self._give_up(partition, following)
            following = None
        return 0.0 if following is None else following

    def _begin_following(
        self, partition: TieredPartition, log: PartitionLog, last: RemoteLogSegmentMetadata, until_seconds: float
    ) -> _BegunCopy | None:
        """Begin the copy behind one whose end is not confirmed yet, if no other task waits for this thread; not behind
        a hole of the tier, which may have what follows. Nothing of it is stored before that is, and its objects and
        metadata are removed if it never is.
        """
        if partition.offsets.has_hole or self._others_wait():
            return None
        if self._services.machine.clock.monotonic_seconds() >= until_seconds:
            return None
        try:
            begun = self._begin(partition, log, last.end_offset) if _may_copy(partition, log) else None
        except Exception as error:  # noqa: BLE001 - the next step meets it again, and shows it
            _log.debug("%s: the next copy has not begun: %s", partition.topic_id_partition, error)
            return None
        return begun if isinstance(begun, _BegunCopy) else None

    def _give_up(self, partition: TieredPartition, begun: _BegunCopy | None) -> None:
        """Give up a copy of which nothing is stored but its metadata: the next step removes them. At the end of a term
        they are the next leader's, who removes them as those of an unfinished copy.
        """
        if begun is None:
            return
        mark("copies: one that had begun is given up")
        begun.leased.close()
        if not partition.has_ended:
            partition.unfinished = begun.metadata

    def _store(
        self, partition: TieredPartition, metadata: RemoteLogSegmentMetadata, files: LogSegmentData
    ) -> CustomMetadata | None:
        """Have the storage manager store a segment. Whatever it raises, the copy's rests are to be removed."""
        limit = self._services.config.custom_metadata_bytes_max
        partition.unfinished = metadata
        try:
            if partition.has_ended:
                raise RemoteStorageException(f"{metadata.remote_log_segment_id}: its term has ended")
            custom = self._services.storage.copy_log_segment_data(metadata, files)
            if custom is not None and len(custom) > limit:
                update = self._finished(metadata, custom)
                partition.unfinished = metadata.create_with_updates(update)
                text = f"{len(custom)} bytes of custom metadata, at most {limit} expected"
                raise CustomMetadataSizeLimitError(f"{metadata.remote_log_segment_id}: {text}")
            if partition.has_ended:
                raise RemoteStorageException(f"{metadata.remote_log_segment_id}: its term ended during the copy")
        except Exception as error:
            self._clean_up(partition, error)
            raise
        return custom

    def _finish_failed(self, partition: TieredPartition, finished: RemoteLogSegmentMetadata, error: Exception) -> None:
        """Handle that the last state of a copy was not stored, or perhaps not.

        Raises:
            RemoteStorageException: it was refused.
        """
        partition.offsets.forget_copied()  # it may have been stored: the next run looks
        if not isinstance(error, InvalidTransitionError | RemoteResourceNotFoundException):
            mark("copies: nobody knows whether it is finished")
            return
        mark("copies: finished too late")
        # It never counts. Another leader has removed what it took for given up, and this came late.
        self._delete_late(finished)
        raise RemoteStorageException(f"{finished.remote_log_segment_id}: the copy came late: {error}") from error

    def _finished(
        self, metadata: RemoteLogSegmentMetadata, custom: CustomMetadata | None
    ) -> RemoteLogSegmentMetadataUpdate:
        return RemoteLogSegmentMetadataUpdate(
            metadata.remote_log_segment_id,
            event_timestamp_ms=self._services.machine.clock.time_ms(),
            custom_metadata=custom,
            state=_STATE.COPY_SEGMENT_FINISHED,
            broker_id=self._services.broker_id,
        )

    # ---- removing what failed

    def _clean_up(self, partition: TieredPartition, error: Exception) -> None:
        """Remove a failed copy's rests now, if that may work; else the next run does, before its copy."""
        unfinished = partition.unfinished
        if unfinished is None:
            return
        if partition.has_ended:  # its metadata is the next leader's, who removes it as an unfinished copy
            mark("copies: failed, and the term had ended")
            partition.unfinished = None
            self._delete_late(unfinished)
        elif self._services.config.kafka_semantics and is_passing(error):
            partition.unfinished = None  # it goes by retention
        elif partition.copying_stopped or not is_passing(error):
            try:
                self._remove_unfinished(partition)
            except Exception as later:  # noqa: BLE001 - the copy's own error is the one to show
                _log.debug("%s: not removed yet: %s", unfinished.remote_log_segment_id, later)
                if self._services.config.kafka_semantics:
                    partition.unfinished = None

    def _remove_unfinished(self, partition: TieredPartition) -> None:
        """Remove the last failed copy. Raises what the managers raise: it is tried again."""
        unfinished = partition.unfinished
        assert unfinished is not None
        begun = self._deletions.begin(unfinished)
        if begun is None:  # another leader removed its metadata
            mark("copies: another leader removed the failed one")
            with contextlib.suppress(RemoteResourceNotFoundException):
                self._services.storage.delete_log_segment_data(unfinished)
        else:
            mark("copies: a failed one is removed")
            partition.unfinished = begun
            self._deletions.finish(begun)
        partition.unfinished = None

    def _delete_late(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete the objects of a copy whose metadata is another leader's by now, also when the term has ended."""
        try:
            with uncancelled():
                self._services.storage.delete_log_segment_data(metadata)
        except RemoteResourceNotFoundException:
            pass  # there are none
        except Exception as error:  # noqa: BLE001 - nobody knows of them but the store
            _log.warning("%s: its objects are left: %s", metadata.remote_log_segment_id, error)


def _has_all(partition: TieredPartition, log: PartitionLog) -> bool:
    """Whether the tier has every closed segment, by what the term knows already, and nothing is left of a failed copy:
    so most runs end.
    """
    copied = partition.offsets.known(log)
    return copied is not None and partition.unfinished is None and log.active_segment.base_offset <= copied.offset + 1


def _may_copy(partition: TieredPartition, log: PartitionLog) -> bool:
    return not (partition.copying_stopped or log.must_be_rebuilt or log.config.remote_log_copy_disable)


def _is_over(partition: TieredPartition) -> bool:
    """Whether a term copies no more, and has nothing to remove of a copy that failed."""
    return partition.has_ended or (partition.copying_stopped and partition.unfinished is None)
