"""What every part of a RemoteLogManager works with."""

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

#: Finds the log of a partition here; None: there is none now. It returns at once.
FindLog = Callable[[TopicIdPartition], PartitionLog | None]


def _pass_over(_partition: TopicIdPartition, _log_start_offset: int) -> None:
    """The broker does not want to know."""


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
        on_log_start_offset: Called with (partition, new start) when the tier's expiry has raised a log's start.
    """

    config: RemoteLogManagerConfig
    storage: RemoteStorageManager
    metadata: RemoteLogMetadataManager
    find_log: FindLog
    broker_id: int
    machine: Machine
    metrics: ManagerMetrics
    on_log_start_offset: Callable[[TopicIdPartition, int], None] = field(default=_pass_over)

    def require_log(self, topic_id_partition: TopicIdPartition) -> PartitionLog:
        """Find a partition's log. Raises ReplicationError: there is none here."""
        log = self.find_log(topic_id_partition)
        if log is None:
            text = f"{topic_id_partition}: there is no log of it here"
            raise ReplicationError(text, KafkaError.NOT_LEADER_OR_FOLLOWER)
        return log
