"""A broker with a RemoteLogManager, of logs, a store and a metadata topic in memory, from a seed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from tests.support.living_logs import batch_of
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.remote.api import RemoteLogMetadataManager, RemoteStorageManager, TopicIdPartition, Uuid
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.remote_log_manager import RemoteLogManager
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic
from tierlog.testing.memory_storage_manager import MemoryStorageManager

LOGS = "/logs"
TOPIC_ID = Uuid(bytes(15) + b"\1")
TIERED = LogConfig(
    remote_storage_enable=True,
    remote_log_delete_on_disable=True,
    index_interval_bytes=1,
    retention_ms=-1,
    local_retention_ms=-2,
    local_retention_bytes=0,
    file_delete_delay_ms=0,
)
NONE: frozenset[TopicIdPartition] = frozenset()


class ManagedBroker:
    """The broker: one topic's partitions, all of which it may lead or follow."""

    def __init__(
        self,
        machine: Machine,
        *,
        topic: MemoryMetadataTopic,
        storage: RemoteStorageManager,
        metadata: RemoteLogMetadataManager | None = None,
        config: RemoteLogManagerConfig | None = None,
    ) -> None:
        self.machine = machine
        machine.files.make_directories(LOGS)
        self.storage = storage
        self.directory = LogDirectory.open(
            LOGS, machine=machine, config=TIERED, remote_log_enabled=True, is_sole_replica=True, runs_tasks=False
        )
        if metadata is None:
            metadata = TopicBasedRemoteLogMetadataManager(machine=machine, open_logs=lambda _config, **_: topic)
            metadata.configure({"log.dir": LOGS, "remote.log.metadata.topic.num.partitions": 3, "broker.id": 1})
        self.metadata = metadata
        self.logs: dict[TopicIdPartition, UnifiedLog] = {}
        self.starts: list[tuple[TopicIdPartition, int]] = []
        self.manager = RemoteLogManager(
            config or RemoteLogManagerConfig(task_interval_ms=1000),
            broker_id=1,
            storage=storage,
            metadata=metadata,
            find_log=self.logs.get,
            on_log_start_offset=lambda partition, offset: self.starts.append((partition, offset)),
            machine=machine,
        )

    def partition(self, number: int = 0, *, config: LogConfig = TIERED, topic_id: Uuid = TOPIC_ID) -> TopicIdPartition:
        """A partition with a log."""
        partition = TopicIdPartition(topic_id, "orders", number)
        log = self.logs[partition] = self.directory.log("orders", number, topic_id=topic_id, config=config)
        if log.leader_epoch_cache.latest_entry is None:
            log.assign_epoch_start_offset(0, log.log_end_offset)
        return partition

    def produce(self, partition: TopicIdPartition, segments: int, *, records: int = 10) -> None:
        """Closed segments, and an active one."""
        log = self.logs[partition]
        for _ in range(segments):
            offset = log.log_end_offset
            values = [b"%d" % number for number in range(offset, offset + records)]
            log.append_as_leader(batch_of(*values, timestamp_ms=self.machine.clock.time_ms()), leader_epoch=0)
            log.roll()
        log.append_as_leader(batch_of(b"last", timestamp_ms=self.machine.clock.time_ms()), leader_epoch=0)

    def alter(self, partition: TopicIdPartition, **keys: object) -> None:
        """Change the configuration of a partition's log."""
        log = self.logs[partition]
        log.update_config(replace(log.config, **keys))  # type: ignore[arg-type]

    def close(self) -> None:
        self.manager.close()
        self.directory.close()


@contextlib.contextmanager
def managed_broker(seed: int = 1, *, config: RemoteLogManagerConfig | None = None) -> Iterator[ManagedBroker]:
    """A broker; at its end no task of it is left."""
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler:
        storage = MemoryStorageManager(machine=machine)
        storage.configure({})
        broker = ManagedBroker(machine, topic=MemoryMetadataTopic(3, machine=machine), storage=storage, config=config)
        yield broker
        broker.close()
        machine.clock.sleep(100)
        assert scheduler.unfinished == []
