"""Topic ids of a lost cluster and what they became in the one that replaces it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from tierlog.errors import ConfigError
from tierlog.remote.api import ZERO_UUID, TopicIdPartition, Uuid


class TopicMap:
    """Old topic ids by new ones, and the other way round. Immutable.

    Args:
        pairs: Old id → new id; no id twice on one side, none on both.

    Raises:
        ConfigError: the pairs contradict each other, or an id is all zero.
    """

    def __init__(self, pairs: Mapping[Uuid, Uuid] | None = None) -> None:
        self.new_ids = MappingProxyType(dict(pairs or {}))
        self.old_ids = MappingProxyType({new: old for old, new in self.new_ids.items()})
        if len(self.old_ids) != len(self.new_ids):
            raise ConfigError("two topics cannot become one: each new topic id may be given once")
        both = self.new_ids.keys() & self.old_ids.keys()
        if both or ZERO_UUID in self.new_ids or ZERO_UUID in self.old_ids:
            shown = ", ".join(sorted(map(str, both))) or str(ZERO_UUID)
            raise ConfigError(f"topic id {shown} cannot be mapped: an old id is not a new one, and none is all zero")

    @classmethod
    def parse(cls, texts: Iterable[str]) -> TopicMap:
        """From ``OLD=NEW`` texts. Raises ConfigError."""
        pairs: dict[Uuid, Uuid] = {}
        for text in texts:
            old, equals, new = text.partition("=")
            try:
                key, value = Uuid.from_text(old), Uuid.from_text(new)
            except ValueError as error:
                raise ConfigError(f"{text!r:.80}: OLD=NEW expected, two topic ids: {error}") from None
            if not equals or key in pairs:
                raise ConfigError(f"{text!r:.80}: the old id is given twice")
            pairs[key] = value
        return cls(pairs)

    def __bool__(self) -> bool:
        return bool(self.new_ids)

    def new(self, partition: TopicIdPartition) -> TopicIdPartition:
        """The partition in the new cluster: itself, unless its topic id is mapped."""
        topic_id = self.new_ids.get(partition.topic_id)
        return partition if topic_id is None else TopicIdPartition(topic_id, partition.topic, partition.partition)
