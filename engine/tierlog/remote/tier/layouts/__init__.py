"""How each kind of tier names and describes its segments: one module a layout.

What belongs here: turning a listing into candidates (from keys alone) and a candidate into a ``StoredSegment`` (by
fetching what describes it). Why: the rest of the room does not know who wrote a bucket. What does not: log bytes, but
those that it takes to know where a segment ends.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from tierlog.errors import ConfigError
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.tier.chunks.segment import StoredSegment
from tierlog.runtime.stores.protocol.object_store import ObjectInfo


@dataclass(frozen=True, slots=True)
class SegmentFilter:
    """Which segments are wanted; all if empty."""

    topic: str | None = None
    topic_pattern: re.Pattern[str] | None = None
    partitions: frozenset[int] | None = None

    @classmethod
    def of(
        cls, topic: str | None, topic_pattern: str | re.Pattern[str] | None, partitions: Collection[int] | None
    ) -> SegmentFilter:
        """From what a caller gave. Raises ConfigError for both a topic and a pattern, or a pattern that is none."""
        if topic is not None and topic_pattern is not None:
            raise ConfigError("give a topic or a topic pattern, not both")
        try:
            pattern = re.compile(topic_pattern) if topic_pattern is not None else None
        except re.error as cause:
            raise ConfigError(f"topic pattern {topic_pattern!r}: {cause}") from cause
        return cls(topic, pattern, None if partitions is None else frozenset(partitions))

    def accepts_topic(self, name: str) -> bool:
        if self.topic is not None:
            return name == self.topic
        return self.topic_pattern is None or self.topic_pattern.fullmatch(name) is not None

    def accepts(self, partition: TopicIdPartition) -> bool:
        if self.partitions is not None and partition.partition not in self.partitions:
            return False
        return self.accepts_topic(partition.topic)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A segment as the keys show it: its objects by suffix.

    Args:
        next_start_offset: Of the next segment in the same folder, where a layout goes by that; else None.
    """

    topic_id_partition: TopicIdPartition
    start_offset: int
    segment_path: str
    objects: dict[str, ObjectInfo]
    next_start_offset: int | None = None


class Layout(Protocol):
    """Thread safety: ``load`` from any number of threads."""

    @property
    def name(self) -> str: ...
    @property
    def foreign_objects(self) -> int: ...
    def find_candidates(
        self, wanted: SegmentFilter, objects: Iterable[ObjectInfo] | None = None
    ) -> Iterator[Candidate]:
        """From a listing alone, ordered by topic, partition, start offset, path. Incomplete uploads are left out.

        Args:
            wanted: Which segments.
            objects: What somebody else listed, in place of a listing of the store; ``foreign_objects`` stays as it is.
        """

    def load(self, candidate: Candidate) -> StoredSegment | None:
        """Fetch what describes it. None if there is nothing to read in it (an empty active segment)."""
