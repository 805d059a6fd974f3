"""A bucket's partitions as metadata knows them: which segments count is what brokers say, and nothing is listed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import xxhash

from tierlog.broker.replica.catalog.resolution import BucketListing, Listed
from tierlog.remote.api import RemoteLogSegmentState, TopicIdPartition
from tierlog.remote.tier.layouts.listing import Candidate
from tierlog.remote.tier.layouts.segment_lookup import KnownLayout
from tierlog.remote.tier.tier import Tier

if TYPE_CHECKING:
    from tierlog.remote.metadata.metadata_view import MetadataView

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class ReadsMetadata(Protocol):
    """Where metadata comes from, again and again."""

    def read(self) -> MetadataView:
        """What is known now; the same object as long as that is the same. Any thread, one at a time."""


@dataclass(frozen=True, slots=True)
class KnownPartition:
    """A partition with segments that can be read, as metadata has it; equal where those are the same.

    Args:
        digest: Of the ids of its segments.
        newest_ms: When the last of them was written.
        segments: How many there are.
    """

    topic_id_partition: TopicIdPartition
    digest: bytes
    newest_ms: int
    segments: int


@dataclass(frozen=True, slots=True)
class KnownListing:
    """See BucketListing."""

    view: MetadataView
    partitions: Mapping[TopicIdPartition, KnownPartition]


class KnownPartitions:
    """See ListingSource.

    Args:
        tier: Opened with metadata; stays the caller's.
        metadata: Read at each listing.
        ask_again: Called when objects are missing that the metadata says are there: it may be older than a deletion.
    """

    def __init__(self, tier: Tier, metadata: ReadsMetadata, ask_again: Callable[[], None]) -> None:
        self._tier = tier
        self._metadata = metadata
        self._ask_again = ask_again
        self._layout: KnownLayout | None = None

    def list_partitions(self, before: BucketListing | None) -> BucketListing:
        """See ListingSource. Raises: as ``open_metadata``."""
        view = self._metadata.read()
        if isinstance(before, KnownListing) and before.view is view:
            return before
        known = before.partitions if before is not None else {}
        layout = KnownLayout(self._tier.store, self._tier.layout, self._tier.scope, view)
        found: dict[TopicIdPartition, KnownPartition] = {}
        for partition in view.partitions():
            each = self._described(partition, view, layout)
            if each is None:
                continue
            same = known.get(partition)
            found[partition] = same if isinstance(same, KnownPartition) and same == each else each
        self._layout = layout
        return KnownListing(view, found)

    def _described(self, partition: TopicIdPartition, view: MetadataView, layout: KnownLayout) -> KnownPartition | None:
        if self._tier.scope.folder and not layout.candidates_of(partition):
            return None  # it lies elsewhere
        rows = view.table.columns(partition).rows
        rows = rows[rows["state"] == _FINISHED.value]
        if not len(rows):
            return None
        digest = xxhash.xxh3_128_digest(b"".join(sorted(each.tobytes() for each in rows["segment_id"])))
        return KnownPartition(partition, digest, int(rows["event_timestamp_ms"].max()), len(rows))

    def find_candidates(self, listed: Listed) -> list[Candidate]:
        """See ListingSource; without a request, by the metadata that was read last."""
        assert self._layout is not None
        return list(self._layout.candidates_of(listed.topic_id_partition))

    @property
    def has_late_segments(self) -> bool:
        """See ListingSource: brokers tell of segments in order."""
        return False

    def relist(self, listed: Listed) -> Listed:
        """See ListingSource: nothing is known that is newer than the metadata, which is to be read again soon."""
        self._ask_again()
        return listed
