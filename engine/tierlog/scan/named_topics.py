"""Topics that are asked for by name, among those that a tier has."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from tierlog.errors import ConfigError, UnknownTopicError, first_of
from tierlog.remote.api import TopicIdPartition, Uuid
from tierlog.remote.tier.objects.object_keys import key_prefix_hint
from tierlog.remote.tier.tier import Tier
from tierlog.scan.scan_request import TopicName

Value = TypeVar("Value")


class NamedTopics:
    """Topics and partitions that were asked for by name.

    Args:
        names: Topics; ``<topic id>:<topic>`` picks one of two topics of the same name.
        assigned: Topic to partitions, topics named as above.
    """

    def __init__(self, names: Iterable[str], assigned: Mapping[str, Collection[int]]) -> None:
        self._partitions: dict[TopicName, frozenset[int] | None] = {}
        for text in names:
            self._partitions[TopicName.parse(text)] = None
        for text, partitions in assigned.items():
            self._partitions[TopicName.parse(text)] = frozenset(partitions)

    @property
    def pattern(self) -> str:
        """A regular expression that the names match, and no others."""
        return "|".join(sorted({re.escape(topic.name) for topic in self._partitions}))

    def accepts(self, partition: TopicIdPartition) -> bool:
        """Whether a partition of a tier was asked for."""
        return any(
            topic.accepts(partition) and (partitions is None or partition.partition in partitions)
            for topic, partitions in self._partitions.items()
        )

    def chosen(
        self, found: Mapping[TopicIdPartition, Value], tier: Tier, *, may_lack: bool = False
    ) -> dict[TopicIdPartition, Value]:
        """Return what was asked for of the partitions of a tier.

        Args:
            found: The partitions.
            tier: Theirs.
            may_lack: Leave out what is not there.

        Raises:
            UnknownTopicError: one of them is not there.
        """
        chosen: dict[TopicIdPartition, Value] = {}
        for topic, partitions in self._partitions.items():
            matching = {partition: value for partition, value in found.items() if topic.accepts(partition)}
            if not matching and not may_lack:
                raise UnknownTopicError(_unknown(str(topic), tier))
            missing = sorted((partitions or frozenset()) - {partition.partition for partition in matching})
            if missing and not may_lack:
                raise UnknownTopicError(
                    f"{tier.describe()}: topic {topic.name} has no segments of partitions {missing}"
                )
            chosen |= {p: v for p, v in matching.items() if partitions is None or p.partition in partitions}
        return chosen


def _unknown(topic: str, tier: Tier) -> str:
    names = sorted({known.name for known in tier.topics()})
    listed = first_of(names, 20)
    hint = next(filter(None, (key_prefix_hint(name, topic) for name in names)), "")
    return f"{tier.describe()}: no topic {topic}; there are: {listed or 'none'}{hint}"


def refuse_ambiguous(found: Iterable[TopicIdPartition]) -> None:
    """Check that each name stands for one topic. Raises ConfigError."""
    ids: dict[str, set[Uuid]] = {}
    for partition in found:
        ids.setdefault(partition.topic, set()).add(partition.topic_id)
    for topic, several in ids.items():
        if len(several) > 1:
            choices = " or ".join(f"{topic_id}:{topic}" for topic_id in sorted(several))
            raise ConfigError(f"topic {topic} has {len(several)} topic ids here (it was recreated): ask for {choices}")
