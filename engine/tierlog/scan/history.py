"""The history of the partitions of a tier: lineage, with the facts that it needs from the tier.

One listing, then one small part (the leader-epoch checkpoint of the newest segment) a partition. Nothing of other
topics is fetched, and no log bytes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tierlog.errors import (
    CorruptDataError,
    EncryptionKeyError,
    ObjectNotFoundError,
    TierlogError,
)
from tierlog.log.formats.leader_epochs import LeaderEpochs, parse_leader_epochs
from tierlog.remote.api import IndexType, TopicIdPartition, Uuid
from tierlog.remote.metadata.lineage import Gap, Lineage, Span, newest_segment, resolve_lineage, resolve_single_log
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.waiting.threads import run_all
from tierlog.scan.named_topics import NamedTopics, refuse_ambiguous
from tierlog.scan.spans import Spans, as_spans

Value = TypeVar("Value")

#: Checkpoints that are fetched at once.
CONCURRENCY = 16
#: Layouts that hold one broker's log, which has no branches.
SINGLE_LOG_LAYOUTS = frozenset({"log-dir", "file"})


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """The segments and offsets of one partition that count.

    Attributes:
        topic_id_partition: Of which partition.
        lineage: Spans of segments; see Lineage.
        log_start_offset: What lies below is deleted; 0 where none was given.
        warnings: Facts that are not certain, with the objects that leave them open.
    """

    topic_id_partition: TopicIdPartition
    lineage: Lineage
    log_start_offset: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def topic(self) -> str:
        return self.topic_id_partition.topic

    @property
    def partition(self) -> int:
        return self.topic_id_partition.partition

    @property
    def all_spans(self) -> Spans:
        """The lineage's spans, those below the log start offset too."""
        return as_spans(self.lineage.spans)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The spans that count, ascending and disjoint, without offsets below the log start offset."""
        return tuple(self.spans_between(self.log_start_offset, self.end_offset_exclusive))

    @property
    def gaps(self) -> tuple[Gap, ...]:
        return tuple(gap for gap in self.lineage.gaps if gap.end_offset_exclusive > self.log_start_offset)

    @property
    def unreferenced(self) -> tuple[StoredSegment, ...]:
        return self.lineage.unreferenced

    @property
    def earliest_offset(self) -> int:
        """First offset that the tier holds and that is not deleted; the end offset if there is none."""
        ends = self.all_spans.ends
        first = self.lineage.earliest_offset if ends is None else ends[0]
        return min(max(first, self.log_start_offset), self.end_offset_exclusive)

    @property
    def end_offset_exclusive(self) -> int:
        ends = self.all_spans.ends
        return self.lineage.end_offset_exclusive if ends is None else ends[1]

    @property
    def size_bytes(self) -> int:
        """Bytes of the logs of the segments that count."""
        return self.all_spans.size_bytes

    def spans_between(self, first_offset: int, end_offset_exclusive: int) -> list[Span]:
        """Return the spans that hold any of [first, end), cut to it."""
        return list(self.iter_spans_between(first_offset, end_offset_exclusive))

    def iter_spans_between(self, first_offset: int, end_offset_exclusive: int) -> Iterator[Span]:
        """Yield the spans of ``spans_between``, one by one."""
        return self.all_spans.iter_between(first_offset, end_offset_exclusive)


class TierHistory:
    """The partitions of a tier, with the segments that count. Each call lists the tier; reuse the result for one view.

    Args:
        tier: Stays the caller's.
        log_start_offsets: Topic -> partition -> offset below which records are deleted.
        faults: Where errors of single segments go: unreadable manifests, whose segments are then left out, and newest
            checkpoints that no key opens; None raises.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        tier: Tier,
        *,
        log_start_offsets: Mapping[str, Mapping[int, int]] | None = None,
        faults: list[TierlogError] | None = None,
    ) -> None:
        self._tier = tier
        self._log_start_offsets = log_start_offsets or {}
        self._faults = faults

    def partitions(
        self,
        names: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        assigned: Mapping[str, Collection[int]] | None = None,
    ) -> list[PartitionHistory]:
        """Return the partitions of some topics, by topic name and partition; of all topics if nothing is given.

        Args:
            names: Topics; ``<topic id>:<topic>`` picks one of two topics of the same name.
            pattern: A regular expression that the whole name must match; nothing matching is an empty result.
            assigned: Topic to partitions, topics named as above.

        Raises:
            UnknownTopicError: a topic or partition that was named is not there.
            ConfigError: one name stands for several topic ids; not where all topics are wanted.
            CorruptObjectError, StoreError and its kinds: as ``Tier.iter_segments``.
        """
        wanted = None if names is None and assigned is None else NamedTopics(names or (), assigned or {})
        found = self._grouped(wanted.pattern if wanted else pattern)
        found = self.chosen(found, wanted, wanted is not None or pattern is not None)
        ordered = sorted(found.items(), key=by_name)
        with self._tier.machine.scheduler.pool(CONCURRENCY, name="tierlog-history") as pool:
            return list(run_all(pool, lambda item: self.history_of(*item), ordered))

    def chosen(
        self, found: dict[TopicIdPartition, Value], wanted: NamedTopics | None, is_chosen: bool
    ) -> dict[TopicIdPartition, Value]:
        """Return the partitions that are wanted. Raises as ``partitions``."""
        if wanted:
            found = wanted.chosen(found, self._tier)
        if is_chosen:  # a listing of everything shows both
            refuse_ambiguous(found)
        return found

    def _grouped(self, pattern: str | re.Pattern[str] | None) -> dict[TopicIdPartition, list[StoredSegment]]:
        found: dict[TopicIdPartition, list[StoredSegment]] = {}
        for segment in self._tier.iter_segments(topic_pattern=pattern, faults=self._faults):
            found.setdefault(segment.topic_id_partition, []).append(segment)
        return dict(sorted(found.items(), key=lambda item: (item[0].topic, item[0].partition)))

    def history_of(self, partition: TopicIdPartition, segments: Sequence[StoredSegment]) -> PartitionHistory:
        """Return the history of one partition, by its segments: at least one, in any order.

        Raises:
            EncryptionKeyError: no key opens the newest checkpoint, and there is no list of faults. StoreError and its
                kinds.

        Cost: one small request.
        """
        log_start = self.log_start_of(partition)
        if segments[0].layout in SINGLE_LOG_LAYOUTS:
            epochs, warnings = self.checkpoint_of(max(segments, key=lambda s: s.end_offset))
            return PartitionHistory(
                partition, resolve_single_log(segments, epochs or LeaderEpochs()), log_start, warnings
            )
        newest = newest_segment(segments)
        epochs, warnings = self.checkpoint_of(newest)
        try:
            lineage = resolve_lineage(segments, epochs)
        except CorruptDataError as error:
            lineage = resolve_lineage(segments, None)
            warnings = (_without_checkpoint(newest, error.text),)
        return PartitionHistory(partition, lineage, log_start, warnings)

    def log_start_of(self, partition: TopicIdPartition) -> int:
        """Return the offset below which records of a partition are deleted; 0 where none was given."""
        return self._log_start_offsets.get(partition.topic, {}).get(partition.partition, 0)

    def checkpoint_of(self, segment: StoredSegment) -> tuple[LeaderEpochs | None, tuple[str, ...]]:
        """Return (leader epochs, warnings) of a segment's checkpoint; no epochs if it is missing or damaged.

        Raises:
            As ``history_of``.
        """
        try:
            data = self._tier.fetch_index(segment, IndexType.LEADER_EPOCH)
            if data is not None:
                return parse_leader_epochs(data), ()
            reason = "there is none"
        except (CorruptDataError, ObjectNotFoundError) as error:
            reason = str(error)
        except EncryptionKeyError as error:
            if self._faults is None:
                raise
            self._faults.append(error)
            reason = str(error)
        if segment.layout in SINGLE_LOG_LAYOUTS:
            return None, ()
        return None, (_without_checkpoint(segment, reason),)


def by_name(item: tuple[TopicIdPartition, object]) -> tuple[str, int, Uuid]:
    """Return the place of a partition in the order of histories."""
    partition = item[0]
    return partition.topic, partition.partition, partition.topic_id


def _without_checkpoint(segment: StoredSegment, reason: str) -> str:
    return (
        f"{segment.name}: the leader-epoch checkpoint of the newest segment cannot be used ({reason}); "
        "the segments' own epochs stand in, which may let records of an abandoned branch through"
    )
