"""The awaited metadata manager as a blocking one, for the suite of those: each call runs on a loop of its own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from typing import Any

from tests.support.loops import run_on
from tierlog.aio import AsyncLogMetadataManager
from tierlog.remote.api import (
    RemoteLogMetadataManager,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    RemoteStorageException,
    TopicIdPartition,
)


class LoopMetadataManager(RemoteLogMetadataManager):
    def __init__(self, manager: RemoteLogMetadataManager, loop: str) -> None:
        self._loop = loop
        self._manager = AsyncLogMetadataManager(manager)

    def configure(self, configs: Mapping[str, object]) -> None:
        run_on(self._loop, lambda: self._manager.configure(configs))

    def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> Future[None]:
        return self._written(lambda: self._manager.add_remote_log_segment_metadata(metadata))

    def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> Future[None]:
        return self._written(lambda: self._manager.update_remote_log_segment_metadata(update))

    def put_remote_partition_delete_metadata(self, metadata: RemotePartitionDeleteMetadata) -> Future[None]:
        return self._written(lambda: self._manager.put_remote_partition_delete_metadata(metadata))

    def remote_log_segment_metadata(
        self, topic_id_partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        return run_on(self._loop, lambda: self._manager.remote_log_segment_metadata(topic_id_partition, epoch, offset))

    def next_segment_with_txn_index(
        self, topic_id_partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        return run_on(self._loop, lambda: self._manager.next_segment_with_txn_index(topic_id_partition, epoch, offset))

    def highest_offset_for_epoch(self, topic_id_partition: TopicIdPartition, epoch: int) -> int | None:
        return run_on(self._loop, lambda: self._manager.highest_offset_for_epoch(topic_id_partition, epoch))

    def list_remote_log_segments(
        self, topic_id_partition: TopicIdPartition, epoch: int | None = None
    ) -> Iterator[RemoteLogSegmentMetadata]:
        return iter(run_on(self._loop, lambda: self._manager.list_remote_log_segments(topic_id_partition, epoch)))

    def remote_log_size(self, topic_id_partition: TopicIdPartition, epoch: int) -> int:
        return run_on(self._loop, lambda: self._manager.remote_log_size(topic_id_partition, epoch))

    def on_partition_leadership_changes(
        self, leader_partitions: AbstractSet[TopicIdPartition], follower_partitions: AbstractSet[TopicIdPartition]
    ) -> None:
        self._manager.on_partition_leadership_changes(leader_partitions, follower_partitions)

    def on_stop_partitions(self, partitions: AbstractSet[TopicIdPartition]) -> None:
        self._manager.on_stop_partitions(partitions)

    def is_ready(self, topic_id_partition: TopicIdPartition) -> bool:
        return self._manager.is_ready(topic_id_partition)

    def when_ready(self, topic_id_partition: TopicIdPartition) -> Future[None] | None:
        waited: Future[None] = Future()
        try:
            if not run_on(self._loop, lambda: self._manager.when_ready(topic_id_partition)):
                return None
            waited.set_result(None)
        except RemoteStorageException as error:
            waited.set_exception(error)
        return waited

    def segments_version(self, topic_id_partition: TopicIdPartition) -> int | None:
        return run_on(self._loop, lambda: self._manager.segments_version(topic_id_partition))

    def list_segments_from_time(
        self, topic_id_partition: TopicIdPartition, timestamp_ms: int, *, start_offset: int, end_offset_exclusive: int
    ) -> Iterator[RemoteLogSegmentMetadata] | None:
        listed = run_on(
            self._loop,
            lambda: self._manager.list_segments_from_time(
                topic_id_partition, timestamp_ms, start_offset=start_offset, end_offset_exclusive=end_offset_exclusive
            ),
        )
        return None if listed is None else iter(listed)

    def pending_removals(
        self, metadata_partitions: AbstractSet[int] | None = None
    ) -> list[RemotePartitionDeleteMetadata] | None:
        return run_on(self._loop, lambda: self._manager.pending_removals(metadata_partitions))

    def close(self) -> None:
        run_on(self._loop, self._manager.aclose)

    def _written(self, write: Callable[[], Coroutine[Any, Any, None]]) -> Future[None]:
        """A future of a write that was awaited to its end."""
        written: Future[None] = Future()
        try:
            written.set_result(run_on(self._loop, write))
        except (TypeError, ValueError):  # faults of the caller's are raised by the call
            raise
        except Exception as error:  # noqa: BLE001 - it is the future's
            written.set_exception(error)
        return written
