"""The judge's knowledge of the topics: their configurations, lately and now, their partitions, which replicas rot."""

from __future__ import annotations

from collections import deque
from collections.abc import ItemsView, Iterator
from typing import Final

from tests.simulation.facts import TopicFacts
from tests.simulation.judge.compaction import TombstoneTimes
from tests.simulation.judge.contents import Contents, Sent
from tests.simulation.judge.judged_partition import JudgedPartition
from tests.simulation.messages import Partition

#: How long brokers may still go by a topic's earlier configuration.
CHANGE_MS: Final = 15_000


class JudgedTopics:
    """The topics that there are.

    Args:
        sent: What producers sent.

    Attributes:
        partitions: Theirs.
        untiered: Ids of topics that have left the tier, and not come back.
    """

    def __init__(self, sent: Sent) -> None:
        self._sent = sent
        self.partitions: dict[Partition, JudgedPartition] = {}
        self.untiered: set[bytes] = set()
        self._facts: dict[tuple[str, int], deque[tuple[int, TopicFacts]]] = {}
        self._tombstones: dict[tuple[str, int], TombstoneTimes] = {}
        self._rotten: list[str] = []

    def __iter__(self) -> Iterator[JudgedPartition]:
        return iter(self.partitions.values())

    def items(self) -> ItemsView[Partition, JudgedPartition]:
        """Each partition, and what is known of it."""
        return self.partitions.items()

    def find(self, partition: Partition) -> JudgedPartition | None:
        """What is known of a partition; None: its topic is none, or none any more."""
        return self.partitions.get(partition)

    def find_partition(self, partition: tuple[bytes, int]) -> Partition | None:
        """The partition of a topic id and a number, if there is one."""
        for (topic, generation), known in self._facts.items():
            if known[-1][1].topic_id == partition[0]:
                return Partition(topic, partition[1], generation)
        return None

    # ---- configurations

    def changed(self, topic: str, generation: int, facts: TopicFacts | None, now_ms: int) -> None:
        """A topic was made, changed, or deleted."""
        key = (topic, generation)
        if facts is None:
            self._facts.pop(key, None)
            self._tombstones.pop(key, None)
            for partition in [each for each in self.partitions if (each.topic, each.generation) == key]:
                del self.partitions[partition]
            return
        before = self._facts.setdefault(key, deque())
        before.append((now_ms, facts))
        self.untiered.discard(facts.topic_id)
        if not facts.is_tiered:
            self.untiered.add(facts.topic_id)
        self._tombstones.setdefault(key, TombstoneTimes()).configured(facts.delete_retention_ms, now_ms)
        for number in range(facts.partitions):
            partition = Partition(topic, number, generation)
            known = self.partitions.get(partition)
            if known is None:
                known = self.partitions[partition] = JudgedPartition(Contents(partition, self._sent))
            known.contents.is_compacted |= facts.is_compacted

    def facts(self, partition: Partition) -> TopicFacts:
        """A topic's facts as they are."""
        return self._facts[partition.topic, partition.generation][-1][1]

    def late_facts(self, partition: Partition, now_ms: int) -> list[TopicFacts]:
        """A topic's facts as they are and as they lately were."""
        known = self._facts[partition.topic, partition.generation]
        while len(known) > 1 and known[1][0] < now_ms - CHANGE_MS:
            known.popleft()
        return [facts for _, facts in known]

    def tombstones(self, partition: Partition) -> TombstoneTimes:
        """How long a topic's tombstones stay."""
        return self._tombstones[partition.topic, partition.generation]

    # ---- replicas

    def replicas_of(self, broker: int) -> Iterator[Partition]:
        """The partitions of which a broker has a replica."""
        return (each for each in self.partitions if broker in self.facts(each).replicas[each.number])

    def rotted(self, text: str) -> None:
        """Bits of a broker's file have rotted: "broker path"."""
        self._rotten.append(text)

    def is_rotten(self, broker: int, partition: Partition) -> bool:
        """Whether bits of a replica's log rotted: what it stores is not judged any more, what it serves is."""
        folder = f"/{partition.topic}-{partition.number}/"
        return any(text.startswith(f"{broker} ") and folder in text for text in self._rotten)

    def has_rotted(self, partition: Partition) -> bool:
        """Whether bits of any replica's log rotted."""
        return any(self.is_rotten(each, partition) for each in self.facts(partition).replicas[partition.number])
