"""The topics of a tier: partitions, offsets, sizes and times, without reading a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tierlog.remote.api import Uuid
from tierlog.scan.history import PartitionHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """One partition as readers see it.

    Attributes:
        partition: Its number.
        earliest_offset: First offset that can be read; ``end_offset`` if there is none.
        end_offset: Behind the last offset.
        segments: Segments in the tier, each once, those of abandoned branches among them.
        records: Offsets that can be read; markers of transactions and compaction leave some without a record.
        size_bytes: Of the logs of all segments, as the brokers wrote them.
        stored_bytes: Of the same logs as they are stored.
        max_timestamp_ms: The latest time of segments that can be read, in ms since 1970 UTC; None if none has one.
    """

    partition: int
    earliest_offset: int
    end_offset: int
    segments: int
    records: int
    size_bytes: int
    stored_bytes: int
    max_timestamp_ms: int | None

    @classmethod
    def of(cls, history: PartitionHistory) -> PartitionInfo:
        live = [span.segment for span in history.lineage.spans]
        segments = {segment.name: segment for segment in (*live, *history.unreferenced)}.values()
        latest = max((segment.metadata.max_timestamp_ms for segment in live), default=-1)
        return cls(
            partition=history.partition,
            earliest_offset=history.earliest_offset,
            end_offset=history.end_offset_exclusive,
            segments=len(segments),
            records=sum(span.end_offset_exclusive - span.first_offset for span in history.spans),
            size_bytes=sum(segment.size_bytes for segment in segments),
            stored_bytes=sum(segment.log.size_bytes for segment in segments),
            max_timestamp_ms=None if latest == -1 else latest,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """One topic: its partitions, and their sums.

    Attributes:
        name: The topic's name.
        topic_id: Its id; ``ZERO_UUID`` where the layout does not know it. A topic that was made anew is another one
            with the same name: ``<topic id>:<name>`` picks it where one topic is asked for.
        partitions: By number.
    """

    name: str
    topic_id: Uuid
    partitions: tuple[PartitionInfo, ...]

    @property
    def segments(self) -> int:
        """Segments of all partitions."""
        return sum(each.segments for each in self.partitions)

    @property
    def records(self) -> int:
        """Offsets of all partitions that can be read."""
        return sum(each.records for each in self.partitions)

    @property
    def size_bytes(self) -> int:
        """Bytes of all logs, as the brokers wrote them."""
        return sum(each.size_bytes for each in self.partitions)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all logs as they are stored."""
        return sum(each.stored_bytes for each in self.partitions)

    @property
    def max_timestamp_ms(self) -> int | None:
        """The latest time, in ms since 1970 UTC; None if no segment has one."""
        return max(
            (each.max_timestamp_ms for each in self.partitions if each.max_timestamp_ms is not None), default=None
        )


def topic_infos(histories: Sequence[PartitionHistory]) -> list[TopicInfo]:
    """Return the topics of some partitions, by name and topic id."""
    by_topic: dict[tuple[str, Uuid], list[PartitionInfo]] = {}
    for each in sorted(histories, key=lambda each: each.topic_id_partition):
        by_topic.setdefault((each.topic, each.topic_id_partition.topic_id), []).append(PartitionInfo.of(each))
    return [
        TopicInfo(name=name, topic_id=topic_id, partitions=tuple(found))
        for (name, topic_id), found in sorted(by_topic.items())
    ]
