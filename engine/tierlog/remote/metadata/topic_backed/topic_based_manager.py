"""The RemoteLogMetadataManager over a metadata topic: Kafka's own, or one in any log.

Invariant: whatever goes wrong, a caller sees one of the KIP's errors, and no future stays open beyond its deadline.
Kafka's manager ends the broker's process where the topic cannot be opened; this one is a library, and raises.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final, TypeVar

from tierlog._native.segments import may_become
from tierlog.arguments import require_int, require_int64, require_type
from tierlog.errors import ConfigError, ForkedProcessError
from tierlog.remote.api import (
    InvalidTransitionError,
    RemoteLogMetadataManager,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RemoteStorageNotReadyException,
    RetriableRemoteStorageException,
    TopicIdPartition,
)
from tierlog.remote.metadata.metadata_log import OffsetsLostError, metadata_partition
from tierlog.remote.metadata.record_serde import encode_record
from tierlog.remote.metadata.segment_table import require_room
from tierlog.remote.metadata.topic_backed.assignment import FINISHED, Assigned, Assignment, Removals
from tierlog.remote.metadata.topic_backed.consumer_task import ConsumerTask, MetadataMetrics
from tierlog.remote.metadata.topic_backed.own_events import Event, OwnEvents
from tierlog.remote.metadata.topic_backed.saved_state import SavedState
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Origin
from tierlog.runtime.machine.scheduling import Future, PendingFuture

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tierlog.remote.metadata.metadata_log import MetadataLogs
    from tierlog.remote.metadata.segment_table import SegmentTable
    from tierlog.remote.metadata.topic_backed.topic_based_config import TopicBasedConfig

Answer = TypeVar("Answer")

_log = logging.getLogger(__name__)
_WHAT: Final = "the metadata manager"
_EPOCH_MAX: Final = 2**31 - 1


def kafka_logs(config: TopicBasedConfig, *, machine: Machine) -> MetadataLogs:
    """Make the opener of a running Kafka's topic, by its client. Raises ConfigError: the extra ``kafka`` is not
    installed, or a key is missing.
    """
    from tierlog.remote.metadata.topic_backed.kafka_metadata_log import KafkaMetadataLogs

    return KafkaMetadataLogs(config, machine=machine)


def configured_logs(config: TopicBasedConfig, *, machine: Machine) -> MetadataLogs:
    """Make the opener of the topic that the configuration names: of a directory of this process's own, or of a running
    Kafka. Raises ConfigError as ``kafka_logs``.
    """
    if config.topic_local_dir is None:
        return kafka_logs(config, machine=machine)
    from tierlog.remote.metadata.topic_backed.local_metadata_log import LocalMetadataLogs

    return LocalMetadataLogs(
        config.topic_local_dir,
        partition_count=config.topic_num_partitions,
        retention_ms=config.topic_retention_ms,
        machine=machine,
    )


class TopicBasedRemoteLogMetadataManager(RemoteLogMetadataManager):
    """The RemoteLogMetadataManager of the KIP over a metadata topic.

    Args:
        machine: The machine that the manager runs on; this machine by default.
        registry: Where metrics are collected; None makes a registry (``metrics.registry``).
        open_logs: Called as ``open_logs(config, machine=machine)``: gives what opens the metadata topic, and does not
            connect. By default the topic is where the configuration says: a running Kafka, or
            ``remote.log.metadata.topic.local.dir``.

    Attributes:
        metrics: All series; they exist from the start.

    Thread safety: any number of threads, after ``configure``. Futures are completed in the manager's thread: callbacks
    must neither raise nor wait.
    """

    def __init__(
        self,
        *,
        machine: Machine | None = None,
        registry: CollectorRegistry | None = None,
        open_logs: Callable[..., MetadataLogs] = configured_logs,
    ) -> None:
        self._machine = machine or Machine()
        self._open_logs = open_logs
        self.metrics = MetadataMetrics(registry)
        self._origin = Origin()
        self._lock = self._machine.scheduler.lock()
        self._closed = False
        self._config: TopicBasedConfig | None = None
        self._assignment = Assignment(self._machine, self._number)
        self.metrics.ask("metadata_partitions_ready", lambda: self._assignment.ready_count)
        self._task: ConsumerTask | None = None
        self._thread: Future[None] | None = None

    def configure(self, configs: Mapping[str, object]) -> None:
        """Take the configuration and begin to open the topic, which is not waited for: a topic that cannot be opened
        within ``remote.log.metadata.initialization.retry.max.timeout.ms`` is the error of every later call.

        Args:
            configs: Kafka's ``rlmm.config.*`` keys, with or without that prefix, ours, ``broker.id``, ``log.dir`` and
                ``cluster.id``.

        Raises:
            ConfigError: as RemoteLogMetadataManager says; and: this is a second call. NoThreadError. After an error the
                manager is as it was, and can be configured anew.
        """
        from tierlog.remote.metadata.topic_backed.topic_based_config import read_topic_based_config

        config = read_topic_based_config(configs)
        self._origin.require(_WHAT)
        with self._lock:
            if self._task is not None or self._closed:
                raise ConfigError("configure is called once, before anything else")
            own_events = OwnEvents(self._machine, config.consume_wait_ms / 1000)
            removals = Removals(self._machine, any_order=config.kafka_semantics)
            task = ConsumerTask(
                config,
                machine=self._machine,
                logs=self._open_logs(config, machine=self._machine),
                assignment=self._assignment,
                own_events=own_events,
                removals=removals,
                saved_state=SavedState(config, machine=self._machine),
                metrics=self.metrics,
            )
            self._config, self._own_events, self._removals = config, own_events, removals
            # The thread is the last that can fail: after an error here the manager is as it was.
            self._thread = self._machine.scheduler.start(task.run, name="tierlog-metadata-consumer")
            self._task = task

    # ---- writes

    def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> Future[None]:
        """Store a new segment, as RemoteLogMetadataManager demands."""
        require_type("metadata", metadata, RemoteLogSegmentMetadata, "a RemoteLogSegmentMetadata")
        if metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            raise ValueError(f"a segment is added in state COPY_SEGMENT_STARTED, not {metadata.state.name}")
        require_room(metadata)
        return self._publish(metadata, metadata.topic_id_partition)

    def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> Future[None]:
        """Store a new state of a segment, as RemoteLogMetadataManager demands.

        An update that this instance knows to be invalid is refused without being written.
        """
        require_type("update", update, RemoteLogSegmentMetadataUpdate, "a RemoteLogSegmentMetadataUpdate")
        if update.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            raise ValueError("a segment is not updated to state COPY_SEGMENT_STARTED; it is added in it")
        require_room(update)
        return self._publish(update, update.remote_log_segment_id.topic_id_partition)

    def put_remote_partition_delete_metadata(self, metadata: RemotePartitionDeleteMetadata) -> Future[None]:
        """Store a state of a partition's removal, as RemoteLogMetadataManager demands. DELETE_PARTITION_FINISHED
        forgets the partition's segments, and whatever comes for it afterwards is refused.
        """
        require_type("metadata", metadata, RemotePartitionDeleteMetadata, "a RemotePartitionDeleteMetadata")
        return self._publish(metadata, metadata.topic_id_partition)

    def pending_removals(
        self, metadata_partitions: AbstractSet[int] | None = None
    ) -> tuple[RemotePartitionDeleteMetadata, ...]:
        """Return the removals of partitions that have begun and not finished, as RemoteLogMetadataManager says.

        Raises:
            RemoteStorageException: the manager is closed, not configured, or has failed for good. ValueError: the
                topic has no such partition.
        """
        self._require_here()
        task = self._configured()
        self._assignment.check_open()
        if metadata_partitions is not None:
            self._watch(frozenset(metadata_partitions), task)
        return tuple(
            removal.metadata
            for removal in self._removals.all()
            if removal.metadata.state is not FINISHED
            and (
                self._assignment.find(removal.metadata.topic_id_partition) is not None
                if metadata_partitions is None
                else removal.metadata_partition in metadata_partitions
            )
        )

    def _watch(self, numbers: frozenset[int], task: ConsumerTask) -> None:
        assert self._config is not None
        for number in numbers:
            if not 0 <= require_int("each of metadata_partitions", number) < self._config.topic_num_partitions:
                raise ValueError(f"{number} is none of the {self._config.topic_num_partitions} metadata partitions")
        self._assignment.watch(numbers)
        if task.log is not None:
            task.log.wake()
        self._assignment.require_watched(numbers)

    def _publish(self, event: Event, partition: TopicIdPartition) -> Future[None]:
        """Produce an event; the future is done when it is consumed, or refused."""
        value = encode_record(event)
        own = None
        try:
            self._require_here()
            task = self._configured()
            kept = self._assignment.await_ready(partition)
            self._check_transition(event, partition)
            log = task.log
            if log is None:
                raise RemoteStorageNotReadyException("the metadata topic is being opened again")
            own = self._own_events.begin(event, kept.metadata_partition)
            self._require_still(kept, event)  # what ends a partition's events may have come before this one began
            answer = log.append(kept.metadata_partition, value)
        except RemoteStorageException as error:
            if own is None:
                return self._failed(error)
            self._own_events.fail(own, _for_the_producer(error))
        else:
            answer.add_done_callback(lambda done: self._own_events.produced(own, done))
        return own.future

    def _require_still(self, kept: Assigned, event: Event) -> None:
        """Raise what stands against an event of a partition that was stopped, or removed, since it was asked for."""
        if not self._assignment.still(kept):
            self._assignment.require(kept.partition)
            raise RemoteStorageNotReadyException(f"the metadata of {kept.partition} is loaded anew")
        if not isinstance(event, RemotePartitionDeleteMetadata):
            self._require_not_removed(kept.partition)

    def _require_not_removed(self, partition: TopicIdPartition) -> None:
        removal = self._removals.find(partition)
        if removal is not None and removal.metadata.state is FINISHED:
            raise RemoteResourceNotFoundException(f"{partition} was removed")

    def _failed(self, error: RemoteStorageException) -> Future[None]:
        future: PendingFuture[None] = self._machine.scheduler.future()
        future.set_exception(error)
        return future

    def _check_transition(self, event: Event, partition: TopicIdPartition) -> None:
        """Refuse what cannot be: unless events of the same subject are under way, this instance knows."""
        if isinstance(event, RemotePartitionDeleteMetadata):
            removal = self._removals.find(partition)
            if not self._own_events.concerns(partition) and not self._removals.allows(partition, event.state):
                found = "none" if removal is None else removal.metadata.state.name
                raise InvalidTransitionError(
                    f"{partition}: the removal is in state {found}, and cannot go to {event.state.name}"
                )
            return
        self._require_not_removed(partition)
        if self._own_events.concerns(event.remote_log_segment_id):
            return
        found_segment = self._configured().table.get(event.remote_log_segment_id)
        found_state = None if found_segment is None else found_segment.state
        if may_become(-1 if found_state is None else found_state, event.state):
            return
        if found_state is None:
            raise RemoteResourceNotFoundException(
                f"{event.remote_log_segment_id}: there is no such segment, or its deletion has finished"
            )
        raise InvalidTransitionError(
            f"{event.remote_log_segment_id}: a segment in state {found_state.name} cannot go to {event.state.name}"
        )

    # ---- queries

    def remote_log_segment_metadata(
        self, topic_id_partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """Return the finished segment with an offset of a leader epoch, as RemoteLogMetadataManager says."""
        if not _may_exist(epoch, offset):
            return self._ask(topic_id_partition, lambda _: None)
        return self._ask(topic_id_partition, lambda table: table.find(topic_id_partition, epoch, offset))

    def next_segment_with_txn_index(
        self, topic_id_partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """Return the next segment that may have a transaction index, as RemoteLogMetadataManager says."""
        if not _may_exist(epoch, offset):
            return self._ask(topic_id_partition, lambda _: None)
        return self._ask(topic_id_partition, lambda table: table.next_with_txn_index(topic_id_partition, epoch, offset))

    def highest_offset_for_epoch(self, topic_id_partition: TopicIdPartition, epoch: int) -> int | None:
        """Return the largest offset that a finished segment of an epoch ever had, as RemoteLogMetadataManager says."""
        if not _may_exist(epoch):
            return self._ask(topic_id_partition, lambda _: None)
        return self._ask(topic_id_partition, lambda table: table.highest_offset(topic_id_partition, epoch))

    def list_remote_log_segments(
        self, topic_id_partition: TopicIdPartition, epoch: int | None = None
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """List the segments of a partition, as RemoteLogMetadataManager says; found while it goes on, so that a long
        list takes no memory. If the partition is stopped meanwhile, the iterator raises
        RemoteResourceNotFoundException.
        """
        known = epoch is None or _may_exist(epoch)
        kept = self._ready(topic_id_partition)
        table = self._configured().table
        return self._listed(kept, table.list(topic_id_partition, epoch) if known else iter(()))

    def _listed(
        self, kept: Assigned, segments: Iterator[RemoteLogSegmentMetadata]
    ) -> Iterator[RemoteLogSegmentMetadata]:
        yield from segments
        if not self._assignment.still(kept):
            self._assignment.require(kept.partition)
            raise RemoteStorageNotReadyException(
                f"the metadata of {kept.partition} was loaded anew while it was listed"
            )

    def remote_log_size(self, topic_id_partition: TopicIdPartition, epoch: int) -> int:
        """Return the bytes of an epoch's segments, as RemoteLogMetadataManager says."""
        if not _may_exist(epoch):
            return self._ask(topic_id_partition, lambda _: 0)
        return self._ask(topic_id_partition, lambda table: table.size_in_bytes(topic_id_partition, epoch))

    def is_ready(self, topic_id_partition: TopicIdPartition) -> bool:
        """Whether the partition was consumed up to the end that its metadata partition had at the assignment."""
        require_type("topic_id_partition", topic_id_partition, TopicIdPartition, "a TopicIdPartition")
        return self._origin.is_here and self._assignment.find(topic_id_partition) is not None

    def when_ready(self, topic_id_partition: TopicIdPartition) -> Future[None]:
        """Return a future that completes once the partition is ready, as RemoteLogMetadataManager says."""
        require_type("topic_id_partition", topic_id_partition, TopicIdPartition, "a TopicIdPartition")
        try:
            self._require_here()
            self._configured()
            return self._assignment.when_ready(topic_id_partition)
        except RemoteStorageException as error:
            return self._failed(error)

    def when_caught_up(self, topic_id_partition: TopicIdPartition) -> Future[None]:
        """Return a future that completes once the table has all earlier events, as RemoteLogMetadataManager says."""
        require_type("topic_id_partition", topic_id_partition, TopicIdPartition, "a TopicIdPartition")
        try:
            self._require_here()
            task = self._configured()
            assert self._config is not None
            future = self._assignment.when_caught_up(topic_id_partition, self._config.consume_wait_ms / 1000)
        except RemoteStorageException as error:
            return self._failed(error)
        if task.log is not None:
            task.log.wake()
        return future

    def segments_version(self, topic_id_partition: TopicIdPartition) -> int:
        """Return the number of the partition's last change, as RemoteLogMetadataManager says."""
        return self._ask(topic_id_partition, lambda table: table.version(topic_id_partition))

    def list_segments_from_time(
        self, topic_id_partition: TopicIdPartition, timestamp_ms: int, *, start_offset: int, end_offset_exclusive: int
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """List the segments that may have a record from a time on, as RemoteLogMetadataManager says; found while it
        goes on, like ``list_remote_log_segments``.
        """
        require_int64("timestamp_ms", timestamp_ms)
        require_int64("start_offset", start_offset)
        require_int64("end_offset_exclusive", end_offset_exclusive)
        kept = self._ready(topic_id_partition)
        listed = self._configured().table.list_from_time(
            topic_id_partition, timestamp_ms, start_offset=start_offset, end_offset_exclusive=end_offset_exclusive
        )
        return self._listed(kept, listed)

    def _ask(self, partition: TopicIdPartition, question: Callable[[SegmentTable], Answer]) -> Answer:
        """Return the answer of the table, as of a moment at which the partition was ready."""
        while True:
            kept = self._ready(partition)
            answer = question(self._configured().table)
            if self._assignment.still(kept):
                return answer

    def _ready(self, partition: TopicIdPartition) -> Assigned:
        self._require_here()
        require_type("topic_id_partition", partition, TopicIdPartition, "a TopicIdPartition")
        kept = self._assignment.find(partition)
        if kept is not None:
            return kept
        self._configured()
        return self._assignment.await_ready(partition)

    # ---- assignment and life

    def on_partition_leadership_changes(
        self, leader_partitions: AbstractSet[TopicIdPartition], follower_partitions: AbstractSet[TopicIdPartition]
    ) -> None:
        """Follow the metadata of these partitions too; leading and following are the same here. Returns at once."""
        led = _partitions("leader_partitions", leader_partitions)
        self._tell(led + _partitions("follower_partitions", follower_partitions), self._assignment.add)

    def on_stop_partitions(self, partitions: AbstractSet[TopicIdPartition]) -> None:
        """Forget these partitions. Returns at once."""
        self._tell(_partitions("partitions", partitions), self._assignment.remove)

    def _tell(self, partitions: list[TopicIdPartition], change: Callable[[list[TopicIdPartition]], None]) -> None:
        self._require_here()
        task = self._configured()
        self._assignment.check_open()
        change(partitions)
        if task.log is not None:
            task.log.wake()

    def close(self) -> None:
        """Write a last snapshot and release all resources; waits ``remote.log.metadata.close.wait.ms`` at most. Futures
        that are not complete end with an error. Idempotent.
        """
        if not self._origin.is_here:
            return  # the thread and the topic are the parent's
        with self._lock:
            self._closed = True
            task, thread, config = self._task, self._thread, self._config
        self._assignment.close()
        if task is None or thread is None or config is None:
            return
        log = task.log
        if log is not None:
            log.wake()
        try:
            thread.exception(config.close_wait_ms / 1000)
        except TimeoutError:
            _log.warning("the metadata manager's thread has not ended in time: the next start may read more")
        self._own_events.end("the metadata manager is closed")

    def _configured(self) -> ConsumerTask:
        task = self._task
        if task is None:
            text = "the metadata manager is closed" if self._closed else "configure has not been called"
            raise RemoteStorageException(text)
        return task

    def _require_here(self) -> None:
        if not self._origin.is_here:
            try:
                self._origin.require(_WHAT)
            except ForkedProcessError as cause:
                raise RemoteStorageException(str(cause)) from cause

    def _number(self, partition: TopicIdPartition) -> int:
        assert self._config is not None
        return metadata_partition(partition, self._config.topic_num_partitions)


def _partitions(name: str, given: object) -> list[TopicIdPartition]:
    """Return the members of an argument that is a set of partitions. Raises TypeError."""
    found = list(require_type(name, given, Collection, "a set of TopicIdPartition"))
    for each in found:
        require_type(f"each of {name}", each, TopicIdPartition, "a TopicIdPartition")
    return found


def _may_exist(epoch: int, offset: int = 0) -> bool:
    """Whether a segment can have an offset in an epoch. Raises TypeError, or ValueError: no number of 64 bits."""
    return 0 <= require_int("epoch", epoch) <= _EPOCH_MAX and require_int64("offset", offset) >= 0


def _for_the_producer(error: RemoteStorageException) -> RemoteStorageException:
    """Return the error of an append that the log refused at once: a topic that is opened again can be tried again."""
    if not isinstance(error, OffsetsLostError):
        return error
    made = RetriableRemoteStorageException(f"the metadata topic is opened again: {error}")
    made.__cause__ = error
    return made
