"""Partitions that this broker stops to lead or follow: their terms end, their tier goes if it is to, and the metadata
manager hears of it last.

Source: Kafka RemoteLogManager#stopPartitions, which deletes in the thread of its caller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from tierlog.remote.api import RemoteLogSegmentId, RemoteStorageException, TopicIdPartition
from tierlog.remote.manager.metadata_notices import MetadataNotices
from tierlog.remote.manager.partition_terms import PartitionTerms
from tierlog.remote.manager.segment_deletions import SegmentDeletions
from tierlog.remote.manager.task_schedule import TaskSchedule
from tierlog.remote.manager.tier_services import TierServices
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.machine.scheduling import Future, PendingFuture

_log = logging.getLogger(__name__)

#: How long the runs of an ended term are waited for: a store that hangs keeps no partition from its deletion.
_RUNS_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class StopPartition:
    """A partition that stops, as a broker's controller says it.

    Attributes:
        topic_id_partition: Which.
        delete_local_log: Whether the broker deletes the local log: the partition leaves this broker.
        delete_remote_log: Whether all of the partition's segments in the tier are deleted: its topic is deleted, or
            leaves the tier. For a partition that this broker led.
        stop_metadata: Whether the metadata manager forgets the partition, though the local log stays.
    """

    topic_id_partition: TopicIdPartition
    delete_local_log: bool = False
    delete_remote_log: bool = False
    stop_metadata: bool = False


class _Stopping:
    """The outcome of one call: errors by partition, once all partitions have stopped."""

    def __init__(self, count: int, answer: PendingFuture[Mapping[TopicIdPartition, Exception]]) -> None:
        self.left = count
        self.errors: dict[TopicIdPartition, Exception] = {}
        self.answer = answer


@dataclass(slots=True)
class _Stop:
    """One partition of a call.

    Attributes:
        waits_for: What it goes on behind: the marking of its segments, and runs of its term.
        is_deleted: Done when its tier has been deleted, or cannot be.
        is_marked: Whether it has been tried to mark its segments, or is not to be.
        known: Of its segments, those that it left in the tier; None: they could not be listed, or stay.
    """

    request: StopPartition
    stopping: _Stopping
    waits_for: int
    is_deleted: PendingFuture[None]
    is_marked: bool
    known: frozenset[RemoteLogSegmentId] | None = None


class PartitionStops(Closeable):
    """The stops of one manager. A context manager.

    Args:
        services: What the manager works with.
        terms: Of the partitions.
        notices: Takes the stops to the metadata manager.
        deletions: Deletes a partition's segments.

    Thread safety: any number of threads.
    """

    def __init__(
        self, services: TierServices, terms: PartitionTerms, notices: MetadataNotices, deletions: SegmentDeletions
    ) -> None:
        self._services = services
        self._terms = terms
        self._notices = notices
        self._deletions = deletions

        def schedule() -> TaskSchedule:
            return TaskSchedule(
                services.machine, name="tierlog-rlm-stop", workers=services.config.follower_thread_pool_size
            )

        self._marking, self._schedule = schedule(), schedule()  # no deletion delays the marking of other partitions
        self._lock = services.machine.scheduler.lock()
        self._stopping: dict[_Stopping, None] = {}
        self._closed = False

    def stop(self, stopped: Iterable[StopPartition]) -> Future[Mapping[TopicIdPartition, Exception]]:
        """Stop partitions, each by itself. Terms have ended on return.

        Returns:
            A future of the errors, which is empty if there were none; it raises RemoteStorageException if the manager
            is closed before.
        """
        partitions = list(stopped)
        stopping = _Stopping(len(partitions), self._services.machine.scheduler.future())
        with self._lock:
            is_open = not self._closed
            if is_open and partitions:
                self._stopping[stopping] = None
        if not is_open:
            stopping.answer.set_exception(RemoteStorageException("the remote log manager is closed"))
        elif not partitions:
            stopping.answer.set_result({})
        for each in partitions:
            self._begin(each, stopping)
        return stopping.answer

    def _begin(self, request: StopPartition, stopping: _Stopping) -> None:
        """End a partition's term, and go on when its runs have ended, or have had their time. A later term of it waits
        for the deletion of its tier.
        """
        partition = request.topic_id_partition
        term = self._terms.end(partition)
        if term is None:
            _log.warning("%s: it stops, and was neither led nor followed here", partition)
        runs = [] if term is None else self._terms.runs_of(term)
        deletes = request.delete_remote_log
        waits_for = len(runs) + int(deletes)
        stop = _Stop(request, stopping, waits_for, self._services.machine.scheduler.future(), is_marked=not deletes)
        task = self._schedule.add(partial(self._step, stop), delay_seconds=_RUNS_SECONDS if waits_for else 0.0)

        def ended(_: object = None) -> None:
            with self._lock:
                stop.waits_for -= 1
                is_last = stop.waits_for == 0
            if is_last:
                task.wake()

        if deletes:
            self._terms.hold(partition, stop.is_deleted)
            self._marking.add(partial(self._mark, stop, ended))
        for run in runs:
            run.add_done_callback(ended)

    def _mark(self, stop: _Stop, ended: Callable[[], None]) -> None:
        """Begin to delete what the partition leaves in the tier: nobody takes it for a copy of a later time."""
        partition = stop.request.topic_id_partition
        try:
            segments = list(self._services.metadata.list_remote_log_segments(partition))
            stop.known = frozenset(segment.remote_log_segment_id for segment in segments)
            self._deletions.begin_all(segments)
        except Exception as error:  # noqa: BLE001 - the deletion meets it again, and the caller hears of it
            _log.debug("%s: its deletion has not begun: %s", partition, error)
        stop.is_marked = True
        ended()

    def _step(self, stop: _Stop) -> float | None:
        """Go on behind the term's runs, or when they have had their time; in no case before the marking."""
        if not stop.is_marked:
            return _RUNS_SECONDS
        self._go_on(stop)
        return None

    def _go_on(self, stop: _Stop) -> None:
        request, stopping = stop.request, stop.stopping
        partition = request.topic_id_partition
        failure = None
        if request.delete_remote_log:
            try:
                known = stop.known
                if known is None and not request.delete_local_log:
                    segments = self._services.metadata.list_remote_log_segments(partition)
                    known = frozenset(segment.remote_log_segment_id for segment in segments)
                # A topic that is deleted has no later copies; one that is tiered again may have another leader's.
                self._deletions.delete_all(partition, None if request.delete_local_log else known)
            except Exception as error:  # noqa: BLE001 - one partition's must not stop the others; the caller gets it
                _log.warning("%s: its segments in the tier are not all deleted: %s", partition, error)
                failure = error
            finally:
                stop.is_deleted.set_result(None)
        if request.delete_local_log or request.stop_metadata:
            self._notices.stop(
                partition,
                lambda error: self._ended(partition, stopping, failure or error),
                is_here=lambda: self._terms.find(partition) is not None,
            )
        else:
            self._ended(partition, stopping, failure)

    def _ended(self, partition: TopicIdPartition, stopping: _Stopping, failure: Exception | None) -> None:
        if not self._terms.has_topic(partition.topic):
            self._services.metrics.drop_topic(partition.topic)
        with self._lock:
            if failure is not None:
                stopping.errors[partition] = failure
            stopping.left -= 1
            is_last = not stopping.left and stopping in self._stopping
            if is_last:
                del self._stopping[stopping]
        if is_last:
            stopping.answer.set_result(stopping.errors)

    def close(self) -> None:
        """Delete nothing any more, and wait for the present deletions, at most ten seconds; idempotent."""
        with self._lock:
            self._closed = True
            stopping, self._stopping = self._stopping, {}
        for each in stopping:
            each.answer.set_exception(RemoteStorageException("the remote log manager is closed"))
        for schedule in (self._marking, self._schedule):
            schedule.close(wait_seconds=_CLOSE_SECONDS / 2)
