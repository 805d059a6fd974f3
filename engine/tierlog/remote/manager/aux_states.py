"""Logs that begin anew behind what only the tier has: BuildingRemoteLogAux of the KIP, off every fetcher's thread.

The segment of the tier that holds the last offset which the leader does not have here is looked up by the epoch of that
offset; its leader epochs and its producers there are fetched; then ``start_from_tier`` of the log makes one durable
switch. Until then the log is as it was, whatever fails or is killed; afterwards it is whole. A log that lacks only its
lineage, and has records, keeps them: its lineage is completed. Where the tier has nothing in front of a leader's any
more, its log starts with them.

Source: Kafka TierStateMachine, which does all of it in a fetcher's thread, over a log that it has emptied before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import cast

from tierlog.errors import CorruptDataError
from tierlog.log.local.log_reads import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
)
from tierlog.log.partition_log import PartitionLog
from tierlog.marks import mark
from tierlog.remote.api import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
    TopicIdPartition,
)
from tierlog.remote.manager.leader_endpoint import LeaderEndpoint
from tierlog.remote.manager.remote_source import RemoteSource
from tierlog.remote.manager.task_faults import is_passing
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.manager.tiered_lineage import epochs_with_records
from tierlog.remote.manager.tiered_partition import Role, TieredPartition
from tierlog.remote.manager.tiered_producers import TieredProducers
from tierlog.remote.manager.timed_calls import TimedCall, TimedCalls
from tierlog.replication.aux_target import AuxSteps, AuxTarget, BeginAnew, StartLater, aux_target
from tierlog.replication.messages import (
    NO_EPOCH,
    AskEpochEnd,
    AskOffset,
    AuxStateBuilt,
    BuildAuxState,
    EpochEnd,
    FollowerRequest,
    OffsetAndEpoch,
    ReplicationError,
)
from tierlog.runtime.machine.cancelling import CancelledReadError, cancelled_by
from tierlog.runtime.machine.process import Closeable

_log = logging.getLogger(__name__)

Build = TimedCall[AuxStateBuilt]


class AuxStates(Closeable):
    """Builds the aux state of partitions, by a few threads of its own. A context manager.

    A build is a future. Its caller cancels it before it does anything else with the log, such as to let it lead: after
    ``cancel`` has answered True the log is as it was, and stays so; after False the switch is being made, or has been,
    and its result is there in a moment. A build that fails is tried again by its caller, after a pause: most often the
    metadata of this broker lack the last copies of the leader yet.

    Args:
        services: What the manager works with.

    Thread safety: any number of threads; at most one build of a partition at a time.
    """

    def __init__(self, services: TierServices) -> None:
        self._services = services
        self._producers = TieredProducers(services.metadata, RemoteSource(services.storage))
        self._pool = services.machine.scheduler.pool(
            services.config.aux_state_thread_pool_size, name="tierlog-rlm-aux-state"
        )
        self._calls = TimedCalls(services.machine, self._pool.submit, name="tierlog-rlm-aux-deadlines")

    def execute(self, partition: TieredPartition, build: BuildAuxState) -> Build:
        """Do what a follower's, or a leader's, machine asks for.

        Returns:
            The future. It raises ReplicationError: there is no log of the partition here;
            RemoteResourceNotFoundException: no segment of the tier holds the offset in the epoch, or the metadata
            manager does not know the partition; RetriableRemoteStorageException: its time is up; CancelledError,
            CancelledReadError: cancelled, or the term has ended; else what the managers and the log raise. The log has
            not changed then, but that its start may have risen to the leader's.
        """
        return self._start(partition, lambda call: self._build(call, partition, build))

    def build(self, partition: TieredPartition, leader: LeaderEndpoint, *, leader_epoch: int) -> Build:
        """Do the same for a broker whose follower is none of ``tierlog.replication``: the leader is asked for where the
        log has to begin first.

        Returns:
            The future. It also raises what the leader raises, and ReplicationError with OFFSET_NOT_AVAILABLE: the
            leader does not know yet what is in the tier, or nothing has to come from there.
        """
        return self._start(partition, lambda call: self._ask_and_build(call, partition, leader, leader_epoch))

    def _start(self, partition: TieredPartition, call: Callable[[Build], AuxStateBuilt]) -> Build:
        services, topic_id_partition = self._services, partition.topic_id_partition
        seconds = services.config.aux_state_timeout_ms / 1000
        services.metrics.add("build_aux_state_requests", topic_id_partition.topic)
        made = self._calls.start(
            call,
            seconds=seconds,
            late=lambda: RetriableRemoteStorageException(f"{topic_id_partition}: not built within {seconds:g} s"),
            term=partition.scope,
            after=services.when_ready(topic_id_partition),
        )
        made.add_done_callback(lambda done: self._note(topic_id_partition, cast("Build", done)))
        return made

    def _note(self, topic_id_partition: TopicIdPartition, done: Build) -> None:
        """Count and log how a build ended."""
        error = None if done.cancelled() else done.exception()
        if error is None or isinstance(error, CancelledReadError):
            return
        is_later = isinstance(error, ReplicationError) or is_passing(error)
        if not is_later:
            self._services.metrics.add("build_aux_state_errors", topic_id_partition.topic)
        _log.log(
            logging.DEBUG if is_later else logging.WARNING,
            "%s: the log was not begun from the tier: %s",
            topic_id_partition,
            error,
        )

    # ---- in a thread of the pool

    def _ask_and_build(
        self, call: Build, partition: TieredPartition, leader: LeaderEndpoint, leader_epoch: int
    ) -> AuxStateBuilt:
        topic_id_partition = partition.topic_id_partition
        log = self._services.require_log(topic_id_partition)
        steps = aux_target(
            log, leader_epoch, fetch_last_tiered_offset=self._services.config.follower_fetch_last_tiered_offset_enable
        )
        target = _target(leader, topic_id_partition, steps)
        if isinstance(target, BuildAuxState):
            return self._build(call, partition, target)
        return _apply(call, log, target)

    def _build(self, call: Build, partition: TieredPartition, build: BuildAuxState) -> AuxStateBuilt:
        topic_id_partition = partition.topic_id_partition
        log = self._services.require_log(topic_id_partition)
        is_leader = partition.role is Role.LEADER
        with cancelled_by(partition.scope):
            segment = self._find_segment(topic_id_partition, build, log)
            if segment is None and is_leader and not self._has(topic_id_partition, build.offset):
                return _begin_here(call, log)  # a kill took the log start back to an older checkpoint
            if segment is None:
                mark("aux: no segment holds the offset")
                raise RemoteResourceNotFoundException(
                    f"{topic_id_partition}: no segment of the tier holds offset {build.offset} of epoch {build.epoch}"
                )
            next_offset = segment.end_offset + 1
            if build.end_offset_max is not None and build.end_offset_max < next_offset:
                mark("aux: a segment goes on in another branch")
                next_offset = build.end_offset_max
            epochs = self._producers.epochs_of(segment).truncate_from_end(next_offset)
            keeps = build.keeps_records
            snapshot = b"" if keeps else self._producers.snapshot_at(segment, next_offset)
        call.begin_change()
        try:
            if keeps:
                log.maybe_increment_log_start_offset(build.log_start_offset, "the leader's log start rose")
                mark("aux: a lineage is completed")
                log.complete_lineage(epochs)
                return AuxStateBuilt(log.log_end_offset)
            mark("aux: a log begins from the tier")
            start = build.log_start_offset
            log.start_from_tier(next_offset, log_start_offset=start, epochs=epochs, producer_snapshot=snapshot)
            log.update_highest_offset_in_remote_storage(next_offset - 1)
        except (ValueError, CorruptDataError) as cause:
            text = f"{segment.remote_log_segment_id}: the log of {topic_id_partition} cannot begin behind it: {cause}"
            raise RemoteStorageException(text) from cause
        return AuxStateBuilt(next_offset)

    def _find_segment(
        self, topic_id_partition: TopicIdPartition, build: BuildAuxState, log: PartitionLog
    ) -> RemoteLogSegmentMetadata | None:
        metadata = self._services.metadata
        if build.epoch != NO_EPOCH:
            return metadata.remote_log_segment_metadata(topic_id_partition, build.epoch, build.offset)
        first = log.leader_epoch_cache.earliest_entry
        return _latest_with(
            metadata.list_remote_log_segments(topic_id_partition),
            build.offset,
            epoch_max=None if first is None else first.epoch,
        )

    def _has(self, topic_id_partition: TopicIdPartition, offset: int) -> bool:
        """Whether any copied segment has an offset, in whatever epoch."""
        segments = self._services.metadata.list_remote_log_segments(topic_id_partition)
        return _latest_with(segments, offset, epoch_max=None) is not None

    def close(self) -> None:
        """Cancel the builds that have not begun to change their logs, and wait for the others; idempotent."""
        self._calls.close()
        self._pool.close(cancel=True, wait_seconds=10.0)


def _begin_here(call: Build, log: PartitionLog) -> AuxStateBuilt:
    """Let a leader's log start with what is here: all in front of it has expired."""
    offset = log.local_log_start_offset
    return _apply(call, log, StartLater(offset) if log.log_end_offset > offset else BeginAnew(offset))


def _apply(call: Build, log: PartitionLog, target: BeginAnew | StartLater) -> AuxStateBuilt:
    """Let the log begin or start at an offset, without the tier."""
    call.begin_change()
    target.apply(log)
    return AuxStateBuilt(log.log_end_offset)


def _target(leader: LeaderEndpoint, topic_id_partition: TopicIdPartition, steps: AuxSteps) -> AuxTarget:
    """Ask the leader all that the rule asks; return its outcome."""
    try:
        request = next(steps)
        while True:
            request = steps.send(_ask(leader, topic_id_partition, request))
    except StopIteration as ended:
        return cast("AuxTarget", ended.value)


def _ask(
    leader: LeaderEndpoint, topic_id_partition: TopicIdPartition, request: FollowerRequest
) -> OffsetAndEpoch | EpochEnd:
    """Ask the leader what a step of the rule asks."""
    if isinstance(request, AskEpochEnd):
        return leader.fetch_epoch_end_offsets({topic_id_partition: request})[topic_id_partition]
    assert isinstance(request, AskOffset)
    fetch = {
        LATEST_TIMESTAMP: leader.fetch_latest_offset,
        EARLIEST_TIMESTAMP: leader.fetch_earliest_offset,
        EARLIEST_LOCAL_TIMESTAMP: leader.fetch_earliest_local_offset,
        EARLIEST_PENDING_UPLOAD_TIMESTAMP: leader.fetch_earliest_pending_upload_offset,
    }[request.timestamp]
    return fetch(topic_id_partition, request.leader_epoch)


def _latest_with(
    segments: Iterable[RemoteLogSegmentMetadata], offset: int, *, epoch_max: int | None
) -> RemoteLogSegmentMetadata | None:
    """Find the segment that has an offset in the latest epoch, at most an epoch: of a log that does not know which."""
    found: tuple[int, int, RemoteLogSegmentMetadata] | None = None
    for each in segments:
        if each.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED or offset > each.end_offset:
            continue
        epoch = epochs_with_records(sorted(each.segment_leader_epochs.items())).epoch_for_offset(offset)
        if epoch is None or (epoch_max is not None and epoch > epoch_max):
            continue
        if found is None or (epoch, each.end_offset) > found[:2]:
            found = epoch, each.end_offset, each
    return None if found is None else found[2]
