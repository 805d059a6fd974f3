"""A bucket's partitions as metadata knows them: which segments count is what brokers say, and nothing is listed.

Metadata is read again and again: files when they have changed, a running Kafka as often as that is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import xxhash

from tierlog.errors import CorruptObjectError, TierlogError
from tierlog.remote.api import RemoteLogSegmentState, TopicIdPartition
from tierlog.remote.metadata.listed_spans import UNLISTED_FOOTER, SegmentOrigin
from tierlog.remote.metadata.metadata_log import METADATA_TOPIC
from tierlog.remote.metadata.metadata_source import FollowedCluster, find_bootstrap, open_metadata
from tierlog.remote.metadata.metadata_view import MetadataView
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.layouts.listing import Candidate
from tierlog.remote.tier.layouts.segment_lookup import KnownCandidate, KnownLayout
from tierlog.remote.tier.tier import Tier
from tierlog.remote.tier.tier_paths import open_tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.store_urls import local_path
from tierlog.scan.following.tier_listing import ListedPartition, TierKeys, TierListing

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
#: A running Kafka is asked no more often than after so many times the duration of a read.
_PAUSES: Final = 10.0


class KnownPartitions(TierKeys):
    """Lists partitions by metadata. Raises (all methods) also CorruptDataError, ConfigError and the KIP's errors.

    Args:
        tier: Opened with metadata; stays the caller's.
        read_metadata: The metadata as it is now; the same object as long as that is the same.
        refresh_soon: Called when objects are missing that the metadata has: it may be older than a deletion.
    """

    def __init__(self, tier: Tier, read_metadata: Callable[[], MetadataView], refresh_soon: Callable[[], None]) -> None:
        super().__init__(tier)
        self._read_metadata = read_metadata
        self._refresh_soon = refresh_soon
        self._view: MetadataView | None = None
        self._layout: KnownLayout | None = None

    def list_partitions(self, before: TierListing | None) -> TierListing:
        """List like TierKeys, without a request. Raises: as ``open_metadata``."""
        view = self._read_metadata()
        if before is not None and self._view is view:
            return before
        known = before.partitions if before is not None else {}
        listing = self.tier.listing
        asks_footers = isinstance(listing, KnownLayout) and listing.has_footers
        layout = KnownLayout(self.tier.store, self.tier.layout, self.tier.scope, view, unlisted_footers=asks_footers)
        found: dict[TopicIdPartition, ListedPartition] = {}
        for partition in view.partitions():
            each = self._described(partition, view, layout)
            if each is not None:
                same = known.get(partition)
                found[partition] = same if same is not None and same == each else each
        self._view, self._layout = view, layout
        return TierListing(found, {})

    def _described(
        self, partition: TopicIdPartition, view: MetadataView, layout: KnownLayout
    ) -> ListedPartition | None:
        if self.tier.scope.folder and not layout.candidates_of(partition):
            return None  # it lies elsewhere
        rows = view.table.columns(partition)
        rows = rows[rows["state"] == _FINISHED.value]
        if not len(rows):
            return None
        digest = xxhash.xxh3_128_digest(b"".join(sorted(each.tobytes() for each in rows["segment_id"])))
        return ListedPartition(partition, (), int(rows["event_timestamp_ms"].max()), len(rows), digest)

    def find_candidates(self, listed: ListedPartition) -> list[Candidate]:
        """Find candidates like TierKeys, without a request, by the metadata that was read last."""
        assert self._layout is not None
        return list(self._layout.candidates_of(listed.topic_id_partition))

    def looks(self, candidates: Sequence[Candidate]) -> list[StoredSegment | TierlogError | None]:
        """Return the segments as the metadata has them, without a request."""
        assert self._layout is not None
        scope, layout = self._layout.scope, self._layout
        found: list[StoredSegment | TierlogError | None] = []
        for each in candidates:
            assert isinstance(each, KnownCandidate)
            assert each.metadata is not None
            origin = SegmentOrigin(each.topic_id_partition, layout.name, scope.key_prefix, scope.mask)
            footer_size = UNLISTED_FOOTER if layout.has_footers else None
            modified_ms = each.metadata.event_timestamp_ms
            try:
                found.append(origin.segment(each.metadata, last_modified_ms=modified_ms, footer_size=footer_size))
            except ValueError as error:  # the topic's name is none
                found.append(CorruptObjectError(f"{each.metadata.remote_log_segment_id}: {error}", fault="BAD_ENTRY"))
        return found

    @property
    def has_late_segments(self) -> bool:
        """False: brokers write metadata of segments in order."""
        return False

    def relist(self, listed: ListedPartition) -> ListedPartition:
        """``listed``: nothing is known that is newer than the metadata, which is to be read again soon."""
        self._refresh_soon()
        return listed


class FollowedMetadata:
    """A source of metadata, read when it is asked for and may have changed.

    Views that were handed out are never closed here: each goes with its last user.

    Args:
        sources: As ``open_metadata`` takes them.
        client_keys: As ``open_metadata``.
        machine: Its files, clock and threads.

    Raises:
        ConfigError: a running Kafka, and other sources.

    Thread safety: one thread at a time.
    """

    def __init__(
        self, sources: Sequence[str], *, client_keys: Mapping[str, str] | None = None, machine: Machine | None = None
    ) -> None:
        self._sources = tuple(sources)
        self._client_keys = client_keys
        self._machine = machine or Machine()
        self._view: MetadataView | None = None
        bootstrap = find_bootstrap(sources, machine=self._machine)
        self._cluster = (
            None if bootstrap is None else FollowedCluster(bootstrap, client_keys=client_keys, machine=self._machine)
        )
        self._fingerprint: object = None
        self._due = 0.0

    def read(self) -> MetadataView:
        """Read the source; return the same object if it has not changed. Raises: as ``open_metadata``.

        Cost: of files a look at their sizes and times, and all of them where any has changed. Of a running Kafka the
        records that have come since, at most a tenth of the time: in between the last view is given.
        """
        clock = self._machine.clock
        if self._cluster is not None:
            if self._view is not None and clock.monotonic_seconds() < self._due:
                return self._view
            began = clock.monotonic_seconds()
            self._view = self._cluster.read()
            ended = clock.monotonic_seconds()
            self._due = ended + (ended - began) * _PAUSES
            return self._view
        found = [self._look(source) for source in self._sources]
        if self._view is None or found != self._fingerprint:
            self._view, self._fingerprint = self._open(), found
        return self._view

    def _open(self) -> MetadataView:
        return open_metadata(self._sources, machine=self._machine, client_keys=self._client_keys)

    def _look(self, source: str) -> object:
        """Return a value that changes with a source: of a file its size and time, of a folder those of the topic's
        files in it.
        """
        path = local_path(source)
        found = None if path is None else self._machine.files.find(path)
        if found is not None and not found.is_directory:
            return found.identity, found.size_bytes, found.modified_ms
        with open_tier(source, layout="log-dir", machine=self._machine) as tier:
            return sorted(
                (info.key, info.size_bytes, info.last_modified_ms)
                for info in tier.store.iter_objects(tier.scope.folder)
                if METADATA_TOPIC in info.key
            )
