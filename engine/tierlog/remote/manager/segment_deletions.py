"""The deletion of one segment of the tier: its new state, its objects, its last state.

The state comes first: from then on no reader finds the segment, a late copy of it is refused, and a deletion that ends
half-way goes on later, by this broker or another one.

Source: Kafka RemoteLogManager#deleteRemoteLogSegment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Final

from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    TopicIdPartition,
)
from tierlog.remote.manager.task_faults import is_passing
from tierlog.remote.manager.tier_services import TierServices
from tierlog.runtime.machine.scheduling import Future

_STATE = RemoteLogSegmentState
#: State changes that are stored side by side.
CHANGES_MAX: Final = 100
#: Of delete_all: the second one finds copies that began late.
_PASSES: Final = 5


class SegmentDeletions:
    """Deletes segments, each step of them by itself.

    Thread safety: any number of threads.
    """

    def __init__(self, services: TierServices) -> None:
        self._services = services

    def await_stored(self, future: Future[None], what: object) -> None:
        """Wait until the metadata manager has stored a change of ``what``.

        Raises:
            RemoteStorageException: it did not within ``metadata.timeout.ms``; else what the future raises.
        """
        self._await(future, f"{what}: the metadata manager has not stored a change")

    def await_caught_up(self, topic_id_partition: TopicIdPartition) -> None:
        """Wait until the metadata manager answers by all that any broker has stored of a partition, if it can say so.
        Raises as ``await_stored``.
        """
        future = self._services.metadata.when_caught_up(topic_id_partition)
        if future is not None:
            self._await(future, f"{topic_id_partition}: the metadata manager has not caught up with its topic")

    def _await(self, future: Future[None], fault: str) -> None:
        timeout_ms = self._services.config.metadata_timeout_ms
        try:
            future.result(timeout_ms / 1000)
        except TimeoutError as error:
            raise RemoteStorageException(f"{fault} within {timeout_ms} ms") from error

    def change(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        """Store a new state of a segment, and wait until it is stored. Raises as ``await_stored``."""
        stored = self._services.metadata.update_remote_log_segment_metadata(update)
        self.await_stored(stored, update.remote_log_segment_id)

    def update_of(
        self, segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState
    ) -> RemoteLogSegmentMetadataUpdate:
        """Return the event by which this broker changes a segment's state now."""
        return RemoteLogSegmentMetadataUpdate(
            segment.remote_log_segment_id,
            event_timestamp_ms=self._services.machine.clock.time_ms(),
            custom_metadata=segment.custom_metadata,
            state=state,
            broker_id=self._services.broker_id,
        )

    def begin(self, segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata | None:
        """Bring a segment to DELETE_SEGMENT_STARTED; return it as it is then, None: it is gone already.

        Raises:
            RemoteStorageException and what else the metadata manager raises.
        """
        if segment.state is _STATE.DELETE_SEGMENT_STARTED:
            return segment
        update = self.update_of(segment, _STATE.DELETE_SEGMENT_STARTED)
        try:
            self.change(update)
        except RemoteResourceNotFoundException:
            return None
        return segment.create_with_updates(update)

    def finish(self, segment: RemoteLogSegmentMetadata) -> None:
        """Delete the objects of a segment in state DELETE_SEGMENT_STARTED, then its metadata. It can be repeated, and
        what is gone already is no error.

        Raises:
            RemoteStorageException and what else the managers raise.
        """
        services = self._services
        services.metrics.add("delete_requests", segment.topic_id_partition.topic)
        with contextlib.suppress(RemoteResourceNotFoundException):
            services.storage.delete_log_segment_data(segment)
        update = self.update_of(segment, _STATE.DELETE_SEGMENT_FINISHED)
        with contextlib.suppress(RemoteResourceNotFoundException):
            self.change(update)

    def begin_all(self, segments: Sequence[RemoteLogSegmentMetadata]) -> list[RemoteLogSegmentMetadata]:
        """``begin`` for many segments, of which some hundred changes are stored side by side; return those that are not
        gone.

        Raises: as ``begin``.
        """
        begun: list[RemoteLogSegmentMetadata] = []
        for at in range(0, len(segments), CHANGES_MAX):
            begun += self._begin_some(segments[at : at + CHANGES_MAX])
        return begun

    def _begin_some(self, segments: Iterable[RemoteLogSegmentMetadata]) -> list[RemoteLogSegmentMetadata]:
        metadata = self._services.metadata
        begun: list[RemoteLogSegmentMetadata] = []
        changes: list[tuple[RemoteLogSegmentMetadata, Future[None]]] = []
        for segment in segments:
            if segment.state is _STATE.DELETE_SEGMENT_STARTED:
                begun.append(segment)
            else:
                update = self.update_of(segment, _STATE.DELETE_SEGMENT_STARTED)
                stored = metadata.update_remote_log_segment_metadata(update)
                changes.append((segment.create_with_updates(update), stored))
        for changed, stored in changes:
            with contextlib.suppress(RemoteResourceNotFoundException):
                self.await_stored(stored, changed.remote_log_segment_id)
                begun.append(changed)
        return begun

    def finish_counted(self, segment: RemoteLogSegmentMetadata) -> None:
        """``finish``; an error that may not go away by itself counts as one of a deletion. Raises as ``finish``."""
        try:
            self.finish(segment)
        except Exception as error:
            if not is_passing(error):
                self._services.metrics.add("delete_errors", segment.topic_id_partition.topic)
            raise

    def delete_all(
        self, topic_id_partition: TopicIdPartition, only: frozenset[RemoteLogSegmentId] | None = None
    ) -> None:
        """Delete all segments of a partition, in every state: none is found any more before the first object goes. The
        partition can have segments again.

        Args:
            topic_id_partition: The partition.
            only: Those that were known before, and what this broker has copied; other brokers' copies are of a later
                time, since when the topic is tiered again. None: all.

        Raises:
            RemoteStorageException and what else the managers raise; later segments are in DELETE_SEGMENT_STARTED then,
            and the call can be repeated.
        """
        broker_id = self._services.broker_id
        for _ in range(_PASSES):
            segments = [
                each
                for each in self._services.metadata.list_remote_log_segments(topic_id_partition)
                if only is None or each.remote_log_segment_id in only or each.broker_id == broker_id
            ]
            if not segments:
                return
            for segment in self.begin_all(segments):
                self.finish_counted(segment)
        raise RemoteStorageException(f"{topic_id_partition}: segments come while all of them are deleted")
