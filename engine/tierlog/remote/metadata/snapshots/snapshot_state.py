"""What a snapshot says beside its segments, and whether it belongs to the metadata topic that is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tierlog.errors import TierlogError
from tierlog.remote.api import RemotePartitionDeleteMetadata


class SnapshotMismatchError(TierlogError, ValueError):
    """The snapshot is sound, but not of this metadata topic as it is now: read the topic from its beginning."""


class Bounds(Protocol):
    """The bounds of a metadata partition, as LogBounds has them."""

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


@dataclass(frozen=True, slots=True)
class SavedRemoval:
    """The newest state of a partition's removal.

    Attributes:
        metadata_partition: Where its event stands; -1 if that is not known.
        offset: Of the event in the metadata partition; -1 if it is not known.
    """

    metadata: RemotePartitionDeleteMetadata
    metadata_partition: int = -1
    offset: int = -1


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """How far the segments of a snapshot reach.

    Attributes:
        identity: That of the metadata topic (``MetadataLog.identity``); "" for segments that come from elsewhere.
        partition_count: Of the metadata topic; 0 for segments that come from elsewhere.
        positions: Metadata partition → the first offset whose event is not in the snapshot.
        removals: Of partitions, FINISHED ones too.
    """

    identity: str = ""
    partition_count: int = 0
    positions: Mapping[int, int] = field(default_factory=dict)
    removals: tuple[SavedRemoval, ...] = ()


def check_snapshot_fits(
    state: SnapshotState, identity: str, partition_count: int, bounds: Mapping[int, Bounds]
) -> None:
    """Whether events may be read from the snapshot's positions on.

    Args:
        state: The snapshot's.
        identity: That of the topic.
        partition_count: Of the topic.
        bounds: Of the topic's partitions, now; those that the snapshot has positions of, at least.

    Raises:
        SnapshotMismatchError: it is of another topic, of another number of partitions, newer than the topic (which was
            truncated, or made anew), or older than its oldest events.
    """
    if state.identity != identity:
        raise SnapshotMismatchError(f"the snapshot is of the topic {state.identity!r}, not of {identity!r}")
    if state.partition_count != partition_count:
        text = f"the snapshot is of a topic of {state.partition_count} partitions, the topic has {partition_count}"
        raise SnapshotMismatchError(text)
    for partition, position in sorted(state.positions.items()):
        found = bounds.get(partition)
        if found is None:
            raise SnapshotMismatchError(
                f"the snapshot reads metadata partition {partition}, whose bounds are not known"
            )
        if position > found.end_offset:
            raise SnapshotMismatchError(
                f"the snapshot is newer than the topic: it goes on at offset {position} of metadata partition "
                f"{partition}, which ends at {found.end_offset}"
            )
        if position < found.start_offset:
            raise SnapshotMismatchError(
                f"the snapshot is too old: it goes on at offset {position} of metadata partition {partition}, which "
                f"begins at {found.start_offset}: the events between are gone"
            )
