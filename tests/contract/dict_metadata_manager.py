"""A RemoteLogMetadataManager of a third party's, in the fewest lines: dicts in memory, gone with the process.

The managers of a cluster's brokers share their tables, as they would share a database. It names no class of ours but
the interface, its values and its errors, and passes the contract.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from dataclasses import dataclass, field

from tierlog.remote import (
    InvalidTransitionError,
    RemoteLogMetadataManager,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    TopicIdPartition,
)

STATE = RemoteLogSegmentState
NEXT = {
    STATE.COPY_SEGMENT_STARTED: set(STATE) - {STATE.DELETE_SEGMENT_FINISHED},
    STATE.COPY_SEGMENT_FINISHED: {STATE.COPY_SEGMENT_FINISHED, STATE.DELETE_SEGMENT_STARTED},
    STATE.DELETE_SEGMENT_STARTED: {STATE.DELETE_SEGMENT_STARTED, STATE.DELETE_SEGMENT_FINISHED},
}


@dataclass
class Tables:
    """The metadata of all partitions, and their lock."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    segments: dict[RemoteLogSegmentId, RemoteLogSegmentMetadata] = field(default_factory=dict)
    highest: dict[tuple[TopicIdPartition, int], int] = field(default_factory=dict)
    removals: dict[TopicIdPartition, RemotePartitionDeleteState] = field(default_factory=dict)


class DictMetadataManager(RemoteLogMetadataManager):
    """Keeps everything in dicts, those of other brokers' if they are given. Thread safety: any number of threads."""

    def __init__(self, tables: Tables | None = None) -> None:
        self._tables = tables or Tables()
        self._lock = self._tables.lock
        self._assigned: set[TopicIdPartition] = set()
        self._closed = False

    def configure(self, configs: Mapping[str, object]) -> None: ...

    def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> Future[None]:
        if metadata.state is not STATE.COPY_SEGMENT_STARTED:
            raise ValueError("a segment is added in state COPY_SEGMENT_STARTED")
        with self._lock:
            self._check(metadata.topic_id_partition)
            found = self._tables.segments.get(metadata.remote_log_segment_id, metadata)
            if found.state is not STATE.COPY_SEGMENT_STARTED:
                raise InvalidTransitionError(f"{metadata.remote_log_segment_id} is there in state {found.state.name}")
            return self._store(metadata)

    def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> Future[None]:
        if update.state is STATE.COPY_SEGMENT_STARTED:
            raise ValueError("a segment is not updated to COPY_SEGMENT_STARTED")
        with self._lock:
            self._check(update.remote_log_segment_id.topic_id_partition)
            found = self._tables.segments.get(update.remote_log_segment_id)
            if found is None:
                raise RemoteResourceNotFoundException(f"there is no {update.remote_log_segment_id}")
            if update.state not in NEXT[found.state]:
                raise InvalidTransitionError(f"{found.state.name} to {update.state.name}")
            return self._store(found.create_with_updates(update))

    def _store(self, segment: RemoteLogSegmentMetadata) -> Future[None]:
        self._tables.segments[segment.remote_log_segment_id] = segment
        if segment.state is STATE.DELETE_SEGMENT_FINISHED:
            del self._tables.segments[segment.remote_log_segment_id]
        if segment.state is STATE.COPY_SEGMENT_FINISHED:
            for epoch, (_, end) in _parts(segment).items():
                key = (segment.topic_id_partition, epoch)
                self._tables.highest[key] = max(end, self._tables.highest.get(key, -1))
        return _done()

    def remote_log_segment_metadata(
        self, topic_id_partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        found = None
        for segment in self.list_remote_log_segments(topic_id_partition, epoch):
            start, end = _parts(segment)[epoch]
            if segment.state is STATE.COPY_SEGMENT_FINISHED and start <= offset <= end:
                found = segment
        return found

    def next_segment_with_txn_index(
        self, topic_id_partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        found = self.remote_log_segment_metadata(topic_id_partition, epoch, offset)
        while found is not None and found.txn_idx_empty:
            found = self.remote_log_segment_metadata(topic_id_partition, epoch, found.end_offset + 1)
        return found

    def highest_offset_for_epoch(self, topic_id_partition: TopicIdPartition, epoch: int) -> int | None:
        with self._lock:
            self._check(topic_id_partition)
            return self._tables.highest.get((topic_id_partition, epoch))

    def put_remote_partition_delete_metadata(self, metadata: RemotePartitionDeleteMetadata) -> Future[None]:
        with self._lock:
            partition = metadata.topic_id_partition
            self._check(partition)
            newest = self._tables.removals.get(partition)
            if metadata.state not in ({0} if newest is None else {newest, newest + 1}):
                raise InvalidTransitionError(f"{partition} cannot go to {metadata.state.name}")
            self._tables.removals[partition] = metadata.state
            if metadata.state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
                for each in [i for i in self._tables.segments if i.topic_id_partition == partition]:
                    del self._tables.segments[each]
            return _done()

    def list_remote_log_segments(
        self, topic_id_partition: TopicIdPartition, epoch: int | None = None
    ) -> Iterator[RemoteLogSegmentMetadata]:
        with self._lock:
            self._check(topic_id_partition)
            found = [each for each in self._tables.segments.values() if each.topic_id_partition == topic_id_partition]
        found = [each for each in found if epoch is None or epoch in each.segment_leader_epochs]
        return iter(sorted(found, key=lambda each: each.start_offset))

    def remote_log_size(self, topic_id_partition: TopicIdPartition, epoch: int) -> int:
        return sum(each.segment_size_in_bytes for each in self.list_remote_log_segments(topic_id_partition, epoch))

    def on_partition_leadership_changes(
        self, leader_partitions: AbstractSet[TopicIdPartition], follower_partitions: AbstractSet[TopicIdPartition]
    ) -> None:
        with self._lock:
            self._assigned |= leader_partitions | follower_partitions

    def on_stop_partitions(self, partitions: AbstractSet[TopicIdPartition]) -> None:
        with self._lock:
            self._assigned -= partitions

    def is_ready(self, topic_id_partition: TopicIdPartition) -> bool:
        return topic_id_partition in self._assigned

    def close(self) -> None:
        self._closed = True

    def _check(self, partition: TopicIdPartition) -> None:
        if self._closed:
            raise RemoteStorageException("closed")
        if partition not in self._assigned:
            raise RemoteResourceNotFoundException(f"{partition} is not assigned")


def _parts(segment: RemoteLogSegmentMetadata) -> dict[int, tuple[int, int]]:
    """First and last offset of each epoch in a segment."""
    epochs = list(segment.segment_leader_epochs)
    starts = [*segment.segment_leader_epochs.values(), segment.end_offset + 1]
    return {epoch: (starts[at], starts[at + 1] - 1) for at, epoch in enumerate(epochs)}


def _done() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future
