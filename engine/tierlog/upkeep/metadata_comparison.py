"""The segments that metadata knows against those that a bucket holds: in both, only in the one, only in the other.

The bucket is listed first; then the metadata is read. A segment that is copied meanwhile is in the metadata alone, and
is not finished in it if its copy has not ended.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tierlog.errors import ConfigError, CorruptDataError
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.metadata_view import MetadataView
from tierlog.remote.tier.layouts.segment_lookup import make_lookup
from tierlog.remote.tier.objects.object_keys import LOG
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.stores.reading.folder_listing import iter_by_folder
from tierlog.upkeep.object_groups import DESCRIPTIONS, ObjectGroup, Wholeness, listed_key


class Whereabouts(enum.StrEnum):
    """The places that know a segment."""

    BOTH = "both"
    METADATA = "metadata"
    """Only there: the bucket has no object of it."""
    BUCKET = "bucket"
    """Only there: the metadata does not know the id."""


@dataclass(frozen=True, slots=True)
class ComparedSegment:
    """One segment of the metadata, the bucket, or both.

    Attributes:
        key: What its objects' keys begin with, for messages; where it should be if there are none.
        metadata: As the source has it; None if it does not know the segment.
        state: The last state that the source has for the id; None if it has none.
        objects, size_bytes: Of the bucket.
        whole: Whether all objects are there that the segment needs.
    """

    partition: TopicIdPartition
    segment_id: Uuid
    start_offset: int
    key: str
    metadata: RemoteLogSegmentMetadata | None
    state: RemoteLogSegmentState | None
    objects: int
    size_bytes: int
    whole: bool

    @property
    def whereabouts(self) -> Whereabouts:
        if self.metadata is None:
            return Whereabouts.BUCKET
        return Whereabouts.BOTH if self.objects else Whereabouts.METADATA

    @property
    def is_lost(self) -> bool:
        """Whether the metadata says that it can be read, and objects of it are missing."""
        finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        return self.metadata is not None and self.metadata.state is finished and not self.whole


def compare_with_metadata(
    tier: Tier, read_metadata: Callable[[], MetadataView], accepts: Callable[[TopicIdPartition], bool]
) -> Iterator[ComparedSegment]:
    """Compare a bucket with metadata, by topic, partition, start offset and key.

    Args:
        tier: The bucket; the caller closes it.
        read_metadata: Reads the metadata, once the bucket is listed. The caller closes the view that it returns.
        accepts: Which partitions are wanted.

    Raises:
        ConfigError: not a bucket. CorruptDataError: the metadata is damaged. StoreError and its kinds.
    """
    if tier.layout not in DESCRIPTIONS:
        raise ConfigError(f"{tier.describe()}: metadata is compared with a bucket")
    groups = _list(tier, accepts)
    view = read_metadata()
    wholeness = Wholeness(tier)
    wholeness.look(groups.values())
    found = list(_of_metadata(tier, view, groups, wholeness, accepts))
    for base, group in groups.items():  # those of which the metadata has no segment
        segment_id = group.segment_id
        assert segment_id is not None
        found.append(_compared(tier, segment_id, base, group, wholeness, None, view.last_state(segment_id)))
    yield from sorted(
        found,
        key=lambda each: (
            (each.partition.topic, each.partition.partition, each.partition.topic_id),
            each.start_offset,
            each.key,
        ),
    )


def _list(tier: Tier, accepts: Callable[[TopicIdPartition], bool]) -> dict[str, ObjectGroup]:
    """List the objects of segments by what their keys begin with."""
    prefix = tier.scope.key_prefix
    groups: dict[str, ObjectGroup] = {}
    for info in iter_by_folder(tier.store, [tier.scope.folder or prefix], tier.machine):
        key = listed_key(tier, info.key)
        if key is not None and key.segment_id is not None:
            base = prefix + key.segment_path
            group = groups.setdefault(base, ObjectGroup(key, base))
            group.objects[key.suffix] = info
            if key.suffix == LOG:  # in some layouts only the log's key has the start offset
                group.key = key
    return {base: group for base, group in groups.items() if accepts(group.key.topic_id_partition)}


def _of_metadata(
    tier: Tier,
    view: MetadataView,
    groups: dict[str, ObjectGroup],
    wholeness: Wholeness,
    accepts: Callable[[TopicIdPartition], bool],
) -> Iterator[ComparedSegment]:
    """The segments of the metadata. Takes their objects out of ``groups``."""
    scope = tier.scope
    lookup = make_lookup(tier.layout, key_prefix=scope.key_prefix, mask=scope.mask)
    by_id = {group.key.segment_id: base for base, group in groups.items()}
    for partition in filter(accepts, view.partitions()):
        for segment in view.table.list(partition):
            segment_id = segment.remote_log_segment_id.id
            try:
                bases = lookup.bases(segment)
            except CorruptDataError:
                bases = []
            if bases and scope.folder and not any(base.startswith(scope.folder) for base in bases):
                continue  # PATH is a part of the bucket
            # By its id too: keys can have a prefix that is not configured and that their metadata does not name.
            base = next((base for base in bases if base in groups), by_id.get(segment_id, ""))
            group = groups.pop(base, None)
            key = base or (bases[0] if bases else str(segment_id))
            yield _compared(tier, segment.remote_log_segment_id, key, group, wholeness, segment, segment.state)


def _compared(
    tier: Tier,
    segment_id: RemoteLogSegmentId,
    key: str,
    group: ObjectGroup | None,
    wholeness: Wholeness,
    metadata: RemoteLogSegmentMetadata | None,
    state: RemoteLogSegmentState | None,
) -> ComparedSegment:
    objects = [] if group is None else list(group.objects.values())
    start_offset = -1 if group is None else group.key.start_offset
    return ComparedSegment(
        partition=segment_id.topic_id_partition,
        segment_id=segment_id.id,
        start_offset=start_offset if metadata is None else metadata.start_offset,
        key=tier.scope.name(key, tier.scope.key_prefix),
        metadata=metadata,
        state=state,
        objects=len(objects),
        size_bytes=sum(info.size_bytes for info in objects),
        whole=group is not None and wholeness.is_whole(group),
    )
