"""A RemoteLogMetadataManager whose calls are awaited."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, Self, TypeVar

from tierlog.aio.manager_calls import ManagerWorker
from tierlog.remote.api import (
    RemoteLogMetadataManager,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Future

Result = TypeVar("Result")

#: For what blocks: a write that waits for its place in the producer's queue, and a third party's questions.
_THREADS: Final = 16


class AsyncLogMetadataManager:
    """The calls of RemoteLogMetadataManager for an event loop. An async context manager.

    It starts no loop and belongs to none: each call uses the running loop. Arguments and errors are those of the
    blocking calls. A write is awaited until it is stored and later answers have it; cancelling ends the waiting, and
    the write goes on. TopicBasedRemoteLogMetadataManager answers questions about a partition that is ready out of
    memory, in the calling task; other questions are asked in a thread.

    Args:
        manager: The blocking manager, configured or not; a third party's too. None makes a
            TopicBasedRemoteLogMetadataManager.
        machine: Where its threads come from; by default this machine.

    Attributes:
        manager: The blocking manager.

    Thread safety: any number of tasks, of loops in any number of threads.
    """

    def __init__(self, manager: RemoteLogMetadataManager | None = None, *, machine: Machine | None = None) -> None:
        self._machine = machine or Machine()
        self._scheduler = self._machine.scheduler
        self.manager = manager or TopicBasedRemoteLogMetadataManager(machine=machine)
        self._answers_at_once = isinstance(self.manager, TopicBasedRemoteLogMetadataManager)
        self._worker = ManagerWorker(self._scheduler.pool(_THREADS, name="tierlog-aio-metadata"), self._machine)

    async def configure(self, configs: Mapping[str, object]) -> None:
        """Configure the manager, in a thread."""
        await self._worker.run(lambda: self.manager.configure(configs))

    async def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Store a new segment."""
        await self._stored(lambda: self.manager.add_remote_log_segment_metadata(metadata))

    async def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        """Store a new state of a segment."""
        await self._stored(lambda: self.manager.update_remote_log_segment_metadata(update))

    async def put_remote_partition_delete_metadata(self, metadata: RemotePartitionDeleteMetadata) -> None:
        """Store a state of a partition's removal."""
        await self._stored(lambda: self.manager.put_remote_partition_delete_metadata(metadata))

    async def remote_log_segment_metadata(
        self, topic_id_partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """Return the finished segment whose part of a leader epoch holds an offset, or None."""
        return await self._asked(
            topic_id_partition, lambda: self.manager.remote_log_segment_metadata(topic_id_partition, epoch, offset)
        )

    async def next_segment_with_txn_index(
        self, topic_id_partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """Return the first segment from the one with the offset on that may have a transaction index, or None."""
        return await self._asked(
            topic_id_partition, lambda: self.manager.next_segment_with_txn_index(topic_id_partition, epoch, offset)
        )

    async def highest_offset_for_epoch(self, topic_id_partition: TopicIdPartition, epoch: int) -> int | None:
        """Return the largest offset of an epoch that any finished segment ever had, or None."""
        return await self._asked(
            topic_id_partition, lambda: self.manager.highest_offset_for_epoch(topic_id_partition, epoch)
        )

    async def list_remote_log_segments(
        self, topic_id_partition: TopicIdPartition, epoch: int | None = None
    ) -> list[RemoteLogSegmentMetadata]:
        """List the segments of a partition in every state but DELETE_SEGMENT_FINISHED, all of one moment."""
        return await self._asked(
            topic_id_partition, lambda: list(self.manager.list_remote_log_segments(topic_id_partition, epoch))
        )

    async def remote_log_size(self, topic_id_partition: TopicIdPartition, epoch: int) -> int:
        """Return the sum of the sizes of all segments in the list of an epoch, in bytes."""
        return await self._asked(topic_id_partition, lambda: self.manager.remote_log_size(topic_id_partition, epoch))

    def on_partition_leadership_changes(
        self, leader_partitions: AbstractSet[TopicIdPartition], follower_partitions: AbstractSet[TopicIdPartition]
    ) -> None:
        """Report the partitions that this broker begins to lead or to follow. Returns at once, as the blocking call."""
        self.manager.on_partition_leadership_changes(leader_partitions, follower_partitions)

    def on_stop_partitions(self, partitions: AbstractSet[TopicIdPartition]) -> None:
        """Report the partitions that this broker neither leads nor follows any more. Returns at once."""
        self.manager.on_stop_partitions(partitions)

    def is_ready(self, topic_id_partition: TopicIdPartition) -> bool:
        """Whether the partition's metadata is loaded."""
        return self.manager.is_ready(topic_id_partition)

    async def when_ready(self, topic_id_partition: TopicIdPartition) -> bool:
        """Wait until the partition's metadata is loaded. False: the manager cannot say when that is.

        Raises:
            RemoteStorageException: as the future of ``RemoteLogMetadataManager.when_ready``.
        """
        return await self._awaited(lambda: self.manager.when_ready(topic_id_partition))

    async def when_caught_up(self, topic_id_partition: TopicIdPartition) -> bool:
        """Wait until all events are applied that were stored before the call. False: the manager cannot say.

        Raises:
            RemoteStorageException: as the future of ``RemoteLogMetadataManager.when_caught_up``.
        """
        return await self._awaited(lambda: self.manager.when_caught_up(topic_id_partition))

    async def _awaited(self, call: Callable[[], Future[None] | None]) -> bool:
        """Wait for the future of an optional call. False: the manager has no such call."""
        future = await self._worker.run(call)
        if future is None:
            return False
        await self._worker.result(future)
        return True

    async def segments_version(self, topic_id_partition: TopicIdPartition) -> int | None:
        """Return a number that changes with the partition's segments, or None."""
        return await self._asked(topic_id_partition, lambda: self.manager.segments_version(topic_id_partition))

    async def list_segments_from_time(
        self, topic_id_partition: TopicIdPartition, timestamp_ms: int, *, start_offset: int, end_offset_exclusive: int
    ) -> list[RemoteLogSegmentMetadata] | None:
        """List the finished segments that may have a record from a time on in a range of offsets, or None: the manager
        cannot.
        """

        def question() -> list[RemoteLogSegmentMetadata] | None:
            listed = self.manager.list_segments_from_time(
                topic_id_partition, timestamp_ms, start_offset=start_offset, end_offset_exclusive=end_offset_exclusive
            )
            return None if listed is None else list(listed)

        return await self._asked(topic_id_partition, question)

    async def pending_removals(
        self, metadata_partitions: AbstractSet[int] | None = None
    ) -> list[RemotePartitionDeleteMetadata] | None:
        """Return the newest states of the removals that have begun and not finished, or None: the manager cannot say.

        Args:
            metadata_partitions: As of ``RemoteLogMetadataManager.pending_removals``.
        """
        pending = await self._worker.run(lambda: self.manager.pending_removals(metadata_partitions))
        return None if pending is None else list(pending)

    async def aclose(self) -> None:
        """Close the manager; writes that are not stored end with an error. Repeatable."""

        def close() -> None:
            self.manager.close()
            self._worker.close()

        await self._worker.result(self._scheduler.start(close, name="tierlog-aio-metadata-close"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _stored(self, write: Callable[[], Future[None]]) -> None:
        await self._worker.result(await self._worker.run(write))

    async def _asked(self, partition: TopicIdPartition, question: Callable[[], Result]) -> Result:
        if self._answers_at_once and self.manager.is_ready(partition):  # others wait a moment
            return question()
        return await self._worker.run(question)
