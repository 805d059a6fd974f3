"""The KIP's RemoteLogMetadataManager: which segments a tier has, in which state, and for which leader epochs.

A third party's manager implements this class and is named by its dotted path (``my_package.SqlMetadataManager``);
``tests/contract`` is the suite that it must pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from tierlog.remote.api.values import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.machine.scheduling import Future


class RemoteLogMetadataManager(Closeable, ABC):
    """The store of the metadata of the segments in a tier, with strong consistency for the writer: all later answers of
    this instance contain the writes of completed futures. Other brokers' instances follow.

    Answers are those of one moment between call and return. They cover the partitions that this broker leads or
    follows, as of the last ``on_partition_leadership_changes``.

    Raises (all methods but ``close`` and the two notices): ``RemoteResourceNotFoundException`` for a partition that
    this broker neither leads nor follows; ``RemoteStorageNotReadyException``, which is retriable, for one whose
    metadata is still loaded; ``RemoteStorageException`` once the manager is closed or has failed for good. And all
    methods ``TypeError`` for an argument of another type, ``ValueError`` for an offset that does not fit into 64 bits.

    Thread safety: any number of threads, but for ``configure``, which is called once and first.
    Source: KIP-405 RemoteLogMetadataManager; Kafka 4.3 storage-api.
    """

    @abstractmethod
    def configure(self, configs: Mapping[str, object]) -> None:
        """Take the configuration: keys without the broker's prefix, and ``broker.id``, ``log.dir`` and ``cluster.id``.

        Raises:
            ConfigError: a malformed value, values that contradict each other, or a required key that is missing.
        """

    @abstractmethod
    def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> Future[None]:
        """Store a new segment. The future completes when it is stored and later answers of this instance have it.

        Args:
            metadata: In state COPY_SEGMENT_STARTED, under an id that no other segment has.

        Raises:
            ValueError: the state is another one. The future raises RemoteStorageException and its kinds.
        """

    @abstractmethod
    def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> Future[None]:
        """Store a new state of a segment, with the time, broker and custom metadata that now count: an update without
        custom metadata takes it away. The same state may be stored again.

        Raises:
            ValueError: the state is COPY_SEGMENT_STARTED. The future raises InvalidTransitionError if the segment's
                state does not allow the new one, RemoteResourceNotFoundException if there is no such segment, else
                RemoteStorageException and its kinds.
        """

    @abstractmethod
    def remote_log_segment_metadata(
        self, topic_id_partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """Return the segment in state COPY_SEGMENT_FINISHED whose part of a leader epoch holds an offset, or None."""

    @abstractmethod
    def next_segment_with_txn_index(
        self, topic_id_partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """Return the first segment from the one with the offset on, of this epoch and without a gap before it, that may
        have a transaction index; None if there is none.
        """

    @abstractmethod
    def highest_offset_for_epoch(self, topic_id_partition: TopicIdPartition, epoch: int) -> int | None:
        """Return the largest offset of an epoch that any segment in state COPY_SEGMENT_FINISHED ever had; None if none
        had one. It does not go back when segments are deleted.
        """

    @abstractmethod
    def put_remote_partition_delete_metadata(self, metadata: RemotePartitionDeleteMetadata) -> Future[None]:
        """Store a state of a partition's removal: DELETE_PARTITION_MARKED, then _STARTED, then _FINISHED. The future
        raises InvalidTransitionError for another order, else as ``add_remote_log_segment_metadata``.
        """

    @abstractmethod
    def list_remote_log_segments(
        self, topic_id_partition: TopicIdPartition, epoch: int | None = None
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """List the segments of a partition in every state but DELETE_SEGMENT_FINISHED.

        Args:
            topic_id_partition: The partition.
            epoch: Only those with offsets of this leader epoch, ascending by start offset. None: all, in any order.
        """

    @abstractmethod
    def remote_log_size(self, topic_id_partition: TopicIdPartition, epoch: int) -> int:
        """Return the sum of ``segment_size_in_bytes`` of all segments in the list of an epoch."""

    @abstractmethod
    def on_partition_leadership_changes(
        self, leader_partitions: AbstractSet[TopicIdPartition], follower_partitions: AbstractSet[TopicIdPartition]
    ) -> None:
        """Report the partitions that this broker begins to lead or to follow. Returns at once; ``is_ready`` says when
        their metadata is loaded.
        """

    @abstractmethod
    def on_stop_partitions(self, partitions: AbstractSet[TopicIdPartition]) -> None:
        """Report the partitions that this broker neither leads nor follows any more; their metadata may be dropped."""

    def is_ready(self, topic_id_partition: TopicIdPartition) -> bool:  # noqa: ARG002 - a plugin that loads nothing is ready
        """Whether the partition's metadata is loaded, so that it can be asked for."""
        return True

    def when_ready(self, topic_id_partition: TopicIdPartition) -> Future[None] | None:  # noqa: ARG002 - optional
        """Return a future that completes once the partition's metadata is loaded, so that nobody polls ``is_ready``.

        The future raises RemoteResourceNotFoundException if this broker neither leads nor follows the partition, or
        stops to, and RemoteStorageException once the manager is closed or has failed for good. Its callbacks must
        neither raise nor wait. Optional: by default None, for a manager that cannot say; its caller then goes by
        RemoteStorageNotReadyException.
        """
        return None

    def when_caught_up(self, topic_id_partition: TopicIdPartition) -> Future[None] | None:  # noqa: ARG002 - optional
        """Return a future that completes once this manager answers by all events of the partition that any broker
        stored before the call: a process that stood still, or was cut off, answers by older ones for a while.

        The future raises as that of ``when_ready``, and RemoteStorageNotReadyException if the partition is loaded
        anew. Its callbacks must neither raise nor wait. Optional: by default None, for a manager that cannot say.
        """
        return None

    def segments_version(self, topic_id_partition: TopicIdPartition) -> int | None:  # noqa: ARG002 - optional
        """Return a number that differs from an earlier one whenever the partition's segments, or their states, may: a
        caller with the same number need not list them again. Optional: by default None, for a manager that cannot say.
        """
        return None

    def list_segments_from_time(
        self,
        topic_id_partition: TopicIdPartition,  # noqa: ARG002 - optional
        timestamp_ms: int,  # noqa: ARG002
        *,
        start_offset: int,  # noqa: ARG002
        end_offset_exclusive: int,  # noqa: ARG002
    ) -> Iterator[RemoteLogSegmentMetadata] | None:
        """List the segments in state COPY_SEGMENT_FINISHED that may have a record from a time on in a range of offsets,
        of all leader epochs, ascending by start offset.

        Args:
            topic_id_partition: The partition.
            timestamp_ms: Segments whose newest record is older are left out, ms since 1970 UTC.
            start_offset: Segments that end before it are left out.
            end_offset_exclusive: Segments that start at it or behind are left out.

        Optional: by default None, for a manager that would look at each of its segments; its caller then lists them by
        leader epoch.
        """
        return None

    def pending_removals(
        self,
        metadata_partitions: AbstractSet[int] | None = None,  # noqa: ARG002 - optional
    ) -> Sequence[RemotePartitionDeleteMetadata] | None:
        """Return the newest states of the removals of partitions that have begun and not finished, by partition.

        Args:
            metadata_partitions: Partitions of the metadata topic that this broker leads: removals whose events are in
                these, whether their partitions are assigned or not. From the call on the manager follows these, and no
                others. None: the removals of partitions that are assigned and ready.

        Raises:
            RemoteStorageNotReadyException: these are still loaded.

        Optional: by default None, for a manager that cannot say: the broker that has a partition marked removes it
        then, and nobody after a crash.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Release all resources; futures that are not complete end with an error. Idempotent."""
