"""Brokers that remove partitions, over one metadata topic and one store, from a seed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, cast

from tests.contract.metadata_events import DELETING, FINISHED, PARTITION, STARTED, bring, segment
from tests.support.metadata_rig import Rig, rig
from tests.support.tier_tasks import Hooked
from tierlog.remote.api import (
    RemoteLogMetadataManager,
    RemoteLogSegmentMetadata,
    RemoteStorageManager,
    TopicIdPartition,
)
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.manager_metrics import ManagerMetrics
from tierlog.remote.manager.partition_removals import PartitionRemovals
from tierlog.remote.manager.tier_services import TierServices
from tierlog.testing.memory_storage_manager import MemoryStorageManager

KEYS = {"remote.partition.remover.task.interval.ms": "60000"}


class Broker:
    """One broker's removals over the shared topic and store."""

    def __init__(self, cluster: Cluster, number: int, metadata: object | None = None) -> None:
        self.cluster, self.number = cluster, number
        self.calls: list[tuple[str, Any]] = []
        self.inner: Any = metadata or cluster.rig.start(f"/broker-{number}")
        self.metadata = Hooked(self.inner, self.calls)
        self.storage = Hooked(cluster.store, self.calls)
        self.here: set[TopicIdPartition] = set()
        self.start()

    def start(self) -> PartitionRemovals:
        """Begin the removals anew, as after a restart."""
        machine = self.cluster.rig.machine
        self.services = TierServices(
            config=RemoteLogManagerConfig.read(KEYS),
            storage=cast("RemoteStorageManager", self.storage),
            metadata=cast("RemoteLogMetadataManager", self.metadata),
            find_log=lambda _: None,
            broker_id=self.number,
            machine=machine,
            metrics=ManagerMetrics(machine),
        )
        self.removals = PartitionRemovals(self.services, is_here=self.here.__contains__)
        return self.removals

    def host(self, *partitions: TopicIdPartition) -> None:
        """Lead partitions here."""
        self.here |= set(partitions)
        self.cluster.rig.lead(self.inner, *partitions)

    def run(self) -> float:
        pause = self.removals.run()
        assert pause is not None
        return pause


class Cluster:
    """Brokers on one metadata topic and one store."""

    def __init__(self, made: Rig) -> None:
        self.rig = made
        self.store = MemoryStorageManager(machine=made.machine)
        self.store.configure({})

    def fill(
        self, broker: Broker, count: int, partition: TopicIdPartition = PARTITION
    ) -> list[RemoteLogSegmentMetadata]:
        """Segments of a partition that a broker leads: finished ones, one that is copied, one that is deleted."""
        made = []
        for number in range(count):
            of = segment(partition.partition * 1000 + number + 1, number * 10, number * 10 + 9, partition=partition)
            state = STARTED if number == 1 else DELETING if number == 2 else FINISHED
            bring(broker.inner, of, state)
            self.store.segments[of.remote_log_segment_id] = {None: b"log"}
            made.append(of)
        return made

    def hosted(self, count: int) -> tuple[Broker, Broker]:
        """The broker that leads PARTITION with so many segments, and the one that leads its metadata partition."""
        host, broker = Broker(self, 1), Broker(self, 2)
        host.host(PARTITION)
        self.fill(host, count)
        broker.removals.lead({self.rig.number()})
        return host, broker

    def removing(self, count: int) -> Broker:
        """A broker that leads both, and has begun to remove PARTITION with so many segments."""
        broker = Broker(self, 1)
        broker.host(PARTITION)
        self.fill(broker, count)
        broker.removals.lead({self.rig.number()})
        broker.removals.delete_partition(PARTITION)
        return broker

    def drive(self, *brokers: Broker, until: Callable[[], bool], seconds: float = 400.0) -> None:
        """Run the brokers' tasks at their times."""
        clock = self.rig.machine.clock
        end = clock.monotonic_seconds() + seconds
        due = dict.fromkeys(brokers, 0.0)
        while not until():
            assert clock.monotonic_seconds() < end, "it takes too long"
            for broker in brokers:
                if due[broker] <= clock.monotonic_seconds():
                    due[broker] = clock.monotonic_seconds() + broker.run()
            clock.sleep(0.05)

    def drive_to_end(self, broker: Broker, host: Broker | None = None) -> None:
        """Run a broker's task until nothing is left to remove, as far as the partition's host knows, too."""

        def is_done() -> bool:
            return not (self.stored or broker.removals.waiting or (host and host.inner.pending_removals()))

        self.drive(broker, until=is_done)

    @property
    def stored(self) -> set[TopicIdPartition]:
        return {each.topic_id_partition for each in self.store.segment_ids}


@contextlib.contextmanager
def cluster(seed: int = 1) -> Iterator[Cluster]:
    with rig(seed) as made:
        yield Cluster(made)
