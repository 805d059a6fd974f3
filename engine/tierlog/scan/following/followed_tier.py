"""Some topics of a tier, looked at again and again: what counts of each partition now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tierlog.errors import TierlogError
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.metadata.listed_spans import can_list
from tierlog.remote.tier.layouts.listing import SegmentFilter
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.waiting.threads import run_all
from tierlog.scan.following.resolution import Resolution, Resolver
from tierlog.scan.following.segment_columns import in_columns
from tierlog.scan.following.tier_listing import ListedPartition, TierKeys, TierListing
from tierlog.scan.named_topics import NamedTopics, refuse_ambiguous
from tierlog.scan.pinned_history import DESCRIBED_MAX
from tierlog.scan.scan_request import TopicSelection

if TYPE_CHECKING:
    from tierlog.remote.metadata.metadata_view import MetadataView

#: Partitions that are resolved at once.
_CONCURRENCY: Final = 16


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a tier found.

    Attributes:
        partitions: Those that have something, by topic and partition: each with its history, and what is held back
            of it. An unchanged one is the same object.
        faults: Partitions of which nothing can be said for now: why.
    """

    partitions: Mapping[TopicIdPartition, Resolution]
    faults: Mapping[TopicIdPartition, TierlogError]


class FollowedTier:
    """Partitions of a tier that others write.

    Args:
        tier: Stays the caller's; with ``read_metadata`` it was opened with that.
        topics: Which ones.
        log_start_offsets: Topic -> partition -> offset below which records are deleted.
        may_lack: A topic or partition that was named may have nothing in the tier yet.
        read_metadata: Which segments count, asked at each look; nothing is listed then. None: the tier's keys say.
        described_max: Of so many segments their descriptions are in memory; of more their metadata as columns, where
            the layout allows that.

    Thread safety: one thread at a time.

    Memory: the names and sizes of the listed objects; and the descriptions of the segments, 2 to 3 kB each, or some 120
    bytes each.
    """

    def __init__(
        self,
        tier: Tier,
        topics: TopicSelection,
        *,
        log_start_offsets: Mapping[str, Mapping[int, int]] | None = None,
        may_lack: bool = False,
        read_metadata: Callable[[], MetadataView] | None = None,
        described_max: int = DESCRIBED_MAX,
    ) -> None:
        self._tier = tier
        self._described_max = described_max
        self._may_lack = may_lack
        self._named = None if topics.pattern is not None else NamedTopics(topics.names, topics.assigned)
        self._filter = SegmentFilter.of(None, topics.pattern if self._named is None else self._named.pattern, None)
        self._source = TierKeys(tier, self._filter)
        if read_metadata is not None:
            from tierlog.scan.following.known_partitions import KnownPartitions

            self._source = KnownPartitions(tier, read_metadata, _nothing)
        self._resolver = Resolver(self._source, log_start_offsets)
        self._listing: TierListing | None = None
        self._resolved: dict[TopicIdPartition, Resolution] = {}
        self._has_columns = False

    def look(self) -> Look:
        """Look at the tier.

        Raises:
            UnknownTopicError: a topic or partition that was named is not there. ConfigError: a name stands for several
                topics. StoreError and its kinds: the tier cannot be listed. With metadata also CorruptDataError and
                what ``open_metadata`` raises. The next look is as good as if this one had not been.

        Cost: a listing, most of them of new keys alone where the store can begin behind a key; and for each partition
        that changed the manifests of its new segments and one checkpoint.
        """
        listing = self._source.list_partitions(self._listing)
        chosen = self._chosen(listing.partitions)
        self._listing = listing
        self._resolved = {partition: known for partition, known in self._resolved.items() if partition in chosen}
        due = [each for each in chosen.values() if self._is_due(each)]
        segments = sum(each.segments for each in chosen.values())
        self._has_columns = can_list(self._tier.layout) and segments > self._described_max
        faults: dict[TopicIdPartition, TierlogError] = {}
        with self._tier.machine.scheduler.pool(_CONCURRENCY, name="tierlog-following") as pool:
            for listed, found in zip(due, run_all(pool, self._resolve, due), strict=True):
                if isinstance(found, TierlogError):
                    faults[listed.topic_id_partition] = found
                elif found.history is None:
                    self._resolved.pop(listed.topic_id_partition, None)
                else:
                    self._resolved[listed.topic_id_partition] = found
        ordered = sorted(self._resolved, key=lambda each: (each.topic, each.partition, each.topic_id))
        return Look({each: self._resolved[each] for each in ordered if each not in faults}, faults)

    def _chosen(self, found: Mapping[TopicIdPartition, ListedPartition]) -> dict[TopicIdPartition, ListedPartition]:
        if self._named is not None:
            chosen = self._named.chosen(found, self._tier, may_lack=self._may_lack)
        else:
            chosen = {partition: listed for partition, listed in found.items() if self._filter.accepts(partition)}
        refuse_ambiguous(chosen)
        return chosen

    def _is_due(self, listed: ListedPartition) -> bool:
        known = self._resolved.get(listed.topic_id_partition)
        if known is None or known.listed != listed:
            return True
        return known.held is not None and self._tier.machine.clock.time_ms() >= known.held.until_ms

    def _resolve(self, listed: ListedPartition) -> Resolution | TierlogError:
        known = self._resolved.get(listed.topic_id_partition)
        try:
            if not self._has_columns:
                return self._resolver.resolve_partition(listed, known)
            return in_columns(self._resolver.resolve_partition(listed, known, describes=False))
        except TierlogError as error:
            return error


def _nothing() -> None:
    """The metadata is read again at the next look."""
