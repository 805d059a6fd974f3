"""A topic as a user names it: by its name, or as ``ID:TOPIC`` where a bucket has two topics of that name."""

from __future__ import annotations

import re
from typing import NamedTuple

from tierlog.remote.api import TopicIdPartition

_WITH_ID = re.compile(r"([A-Za-z0-9_-]{22}):(.+)")


class TopicName(NamedTuple):
    """A name, and the topic id that was given with it; None for any."""

    topic_id: str | None
    name: str

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Any text is a name; one that begins with 22 characters of an id and a colon has that id."""
        found = _WITH_ID.fullmatch(text)
        return cls(found[1], found[2]) if found else cls(None, text)

    def accepts(self, partition: TopicIdPartition) -> bool:
        """Whether a partition is of this topic."""
        return partition.topic == self.name and self.topic_id in (None, str(partition.topic_id))

    def __str__(self) -> str:
        return self.name if self.topic_id is None else f"{self.topic_id}:{self.name}"
