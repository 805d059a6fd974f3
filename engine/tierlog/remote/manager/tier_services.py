"""The managers, logs and machine that every part of a RemoteLogManager works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tierlog.log.local.log_errors import KafkaError
from tierlog.log.partition_log import PartitionLog
from tierlog.remote.api import RemoteLogMetadataManager, RemoteStorageManager, TopicIdPartition
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.manager_metrics import ManagerMetrics
from tierlog.replication.messages import ReplicationError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Future

#: Finds the log of a partition here; None: there is none now. It returns at once.
FindLog = Callable[[TopicIdPartition], PartitionLog | None]


def _pass_over(_partition: TopicIdPartition, _log_start_offset: int) -> None:
    """The broker does not want to know."""


def _always(_partition: TopicIdPartition) -> bool:
    return True


def _at_once(_partition: TopicIdPartition) -> None:
    """Nothing is waited for."""


@dataclass(slots=True)
class TierServices:
    """The managers, the logs and the machine of a RemoteLogManager. Its parts get this one object.

    Attributes:
        config: The present configuration; ``update_config`` replaces it, so that it is read where it is needed.
        storage: The storage manager, configured.
        metadata: The metadata manager, configured.
        find_log: Finds a partition's log.
        broker_id: This broker.
        machine: Clock, chance, threads.
        metrics: All series.
        has_told: Whether the metadata manager has heard of this broker's role for a partition.
        when_told: Gives a future of that, and of the metadata being loaded.
        on_log_start_offset: Called with (partition, new start) when a log's start was raised by its tier.
    """

    config: RemoteLogManagerConfig
    storage: RemoteStorageManager
    metadata: RemoteLogMetadataManager
    find_log: FindLog
    broker_id: int
    machine: Machine
    metrics: ManagerMetrics
    on_log_start_offset: Callable[[TopicIdPartition, int], None] = field(default=_pass_over)
    has_told: Callable[[TopicIdPartition], bool] = field(default=_always)
    when_told: Callable[[TopicIdPartition], Future[None] | None] = field(default=_at_once)

    def is_ready(self, topic_id_partition: TopicIdPartition) -> bool:
        """Whether the metadata manager can be asked about a partition: it has heard of it, and has loaded it."""
        return self.has_told(topic_id_partition) and self.metadata.is_ready(topic_id_partition)

    def when_ready(self, topic_id_partition: TopicIdPartition) -> Future[None] | None:
        """Return a future of that, as RemoteLogMetadataManager's; None: the manager cannot say."""
        if self.has_told(topic_id_partition):
            return self.metadata.when_ready(topic_id_partition)
        return self.when_told(topic_id_partition)

    def require_log(self, topic_id_partition: TopicIdPartition) -> PartitionLog:
        """Find a partition's log. Raises ReplicationError: there is none here."""
        log = self.find_log(topic_id_partition)
        if log is None:
            text = f"{topic_id_partition}: there is no log of it here"
            raise ReplicationError(text, KafkaError.NOT_LEADER_OR_FOLLOWER)
        return log
