"""Metadata managers on one topic in memory, in one thread and from a seed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from tests.contract.metadata_events import PARTITION
from tierlog.remote.api import RemoteLogSegmentMetadata, TopicIdPartition
from tierlog.remote.metadata.metadata_log import MetadataLogs, metadata_partition
from tierlog.remote.metadata.record_serde import encode_record
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.runtime.machine.files import Files
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic

COUNT = 3
LOG_DIR = "/data"


class Rig:
    """A machine of a seed, a topic, and the managers that were started."""

    def __init__(self, seed: int = 1, *, as_batches: bool = False, files: Files | None = None) -> None:
        self.machine, self.scheduler = ManualScheduler.machine(seed, files)
        self.topic = MemoryMetadataTopic(COUNT, machine=self.machine, as_batches=as_batches)
        self.logs: MetadataLogs = self.topic
        self.managers: list[TopicBasedRemoteLogMetadataManager] = []

    def start(self, log_dir: str = LOG_DIR, /, **keys: object) -> TopicBasedRemoteLogMetadataManager:
        """A manager that is configured, and nothing else. Keys are below ``remote.log.metadata``, "_" for each "."."""
        self.machine.files.make_directories(log_dir)
        manager = TopicBasedRemoteLogMetadataManager(
            machine=self.machine, open_logs=lambda config, *, machine: self.logs
        )
        self.managers.append(manager)
        given = {f"remote.log.metadata.{name.replace('_', '.')}": value for name, value in keys.items()}
        manager.configure({"log.dir": log_dir, "remote.log.metadata.topic.num.partitions": COUNT} | given)
        return manager

    def leader(
        self, log_dir: str = LOG_DIR, /, *partitions: TopicIdPartition, **keys: object
    ) -> TopicBasedRemoteLogMetadataManager:
        """A manager that can be asked for its partitions, by default PARTITION."""
        manager = self.start(log_dir, **keys)
        self.lead(manager, *partitions or (PARTITION,))
        return manager

    def lead(self, manager: TopicBasedRemoteLogMetadataManager, *partitions: TopicIdPartition) -> None:
        manager.on_partition_leadership_changes(frozenset(partitions), frozenset())
        self.until(lambda: all(manager.is_ready(partition) for partition in partitions))

    def until(self, holds: Callable[[], bool], *, within_seconds: float = 60.0) -> None:
        """Let time pass until something holds."""
        until = self.machine.clock.monotonic_seconds() + within_seconds
        while not holds():
            assert self.machine.clock.monotonic_seconds() < until, "it never does"
            self.machine.clock.sleep(0.01)

    def number(self, partition: TopicIdPartition = PARTITION) -> int:
        return metadata_partition(partition, COUNT)


@contextlib.contextmanager
def rig(seed: int = 1, *, as_batches: bool = False, files: Files | None = None) -> Iterator[Rig]:
    """A Rig; at its end all managers are closed and no task of theirs is left."""
    made = Rig(seed, as_batches=as_batches, files=files)
    with made.scheduler:
        yield made
        for manager in made.managers:
            manager.close()
        assert made.scheduler.unfinished == []


def metric(manager: TopicBasedRemoteLogMetadataManager, name: str) -> float:
    return manager.metrics.value(f"metadata_{name}")


def shares(partition: TopicIdPartition, *, same: bool) -> TopicIdPartition:
    """Another partition, of the same metadata partition or of another."""
    made = Rig()
    with made.scheduler:
        for number in range(1, 100):
            other = TopicIdPartition(partition.topic_id, partition.topic, number)
            if (made.number(other) == made.number(partition)) is same:
                return other
    raise AssertionError


def store(made: Rig, *events: RemoteLogSegmentMetadata | object, partition: TopicIdPartition = PARTITION) -> int:
    """Events of other brokers, straight into the topic; the offset of the last."""
    offset = -1
    for event in events:
        offset = made.topic.append(made.number(partition), encode_record(event))  # type: ignore[arg-type]
    return offset
