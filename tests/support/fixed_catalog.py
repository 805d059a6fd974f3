"""A catalog whose topics a test names; its partitions serve nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tierlog.broker.partition_watches import PartitionKey, PartitionWatch
from tierlog.broker.partitions import Partition, Topic
from tierlog.remote.api import ZERO_UUID, Uuid


class FixedCatalog:
    """Topics that are there until a test replaces them."""

    version = 1

    def __init__(self, *topics: Topic) -> None:
        self.served = {topic.name: topic for topic in topics}

    def topics(self) -> Collection[Topic]:
        return self.served.values()

    def find(self, name: str) -> Topic | None:
        return self.served.get(name)

    def find_by_id(self, topic_id: Uuid) -> Topic | None:
        found = (topic for topic in self.served.values() if topic.topic_id == topic_id != ZERO_UUID)
        return next(found, None)

    def partition(self, name: str, partition: int) -> Partition | None:
        raise NotImplementedError("no partition is read here")

    def watch(self, partitions: Iterable[PartitionKey]) -> PartitionWatch:
        raise NotImplementedError("nothing changes here")
