"""Descriptions of segments, parsed: one request a segment, however many ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.remote.storage.downloads import Downloads
from tierlog.remote.storage.segment import StoredSegment
from tierlog.remote.storage.segment_lookup import SegmentLookup
from tierlog.remote.storage.single_flight import SingleFlight
from tierlog.remote.storage.weighted_cache import CacheFigures, WeightedCache
from tierlog.runtime.machine import Machine
from tierlog.runtime.scheduling import Pool

#: What a parsed description takes beside its chunk sizes: objects of Python, keys, names.
_OVERHEAD_BYTES: Final = 4096
#: One chunk of a variable index: its size, and where it begins.
_CHUNK_BYTES: Final = 12


class ManifestCache:
    """See the module; bounded by bytes, and by entries as the plugin's is.

    Args:
        lookup: Fetches one.
        pool: Where that runs.
        entries_max, size_bytes_max: -1 for no limit.
        retention_ms: After the last use; -1 for ever.
        timeout_seconds: How long one caller waits.
        machine: Its clock and locks.
        downloads: Counts them, by the limit.
        on_evict: Told how many had to make room.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        lookup: SegmentLookup,
        pool: Pool,
        *,
        entries_max: int,
        size_bytes_max: int,
        retention_ms: int,
        timeout_seconds: float,
        machine: Machine,
        downloads: Downloads,
        on_evict: Callable[[int], None] | None = None,
    ) -> None:
        self._lookup = lookup
        self._timeout_seconds = timeout_seconds
        self._downloads = downloads
        self._metrics = downloads.metrics
        self._cache: WeightedCache[str, StoredSegment] = WeightedCache(
            size_bytes_max, machine=machine, retention_ms=retention_ms, entries_max=entries_max, on_evict=on_evict
        )
        self._flights: SingleFlight[str, StoredSegment] = SingleFlight(pool, machine)

    @property
    def figures(self) -> CacheFigures:
        return self._cache.figures

    def fetch(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment:
        """The segment's description.

        Raises:
            As SegmentLookup.find; StoreUnavailableError if it is not there in time.
        """
        key = self._lookup.cache_key(metadata)
        found = self._cache.find(key)
        if found is not None:
            self._metrics.add("cache_hits_total", label="manifests")
            return found
        self._metrics.add("cache_misses_total", label="manifests")
        return self._flights.fetch(
            key,
            lambda: self._load(key, metadata),
            timeout_seconds=self._timeout_seconds,
            what=f"the manifest of {metadata.remote_log_segment_id}",
        )

    def find(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment | None:
        """What is known of it without a request."""
        return self._cache.find(self._lookup.cache_key(metadata))

    def load(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment:
        """The same in this thread: for one that waits for nobody."""
        key = self._lookup.cache_key(metadata)
        return self._cache.find(key) or self._load(key, metadata)

    def _load(self, key: str, metadata: RemoteLogSegmentMetadata) -> StoredSegment:
        with self._downloads.reading():
            found = self._lookup.find(metadata)
        self._downloads.charge(found.description_bytes)
        self._cache.put(key, found.segment, _size_of(found.segment, found.description_bytes))
        return found.segment

    def forget(self, metadata: RemoteLogSegmentMetadata) -> None:
        """The segment is gone, whatever its custom metadata said."""
        prefix = self._lookup.cache_key(metadata).partition("\0")[0]
        self._cache.remove_where(lambda key: key.partition("\0")[0] == prefix)


def _size_of(segment: StoredSegment, description_bytes: int) -> int:
    chunks = segment.chunk_index.chunk_count if segment.chunk_index is not None and segment.compression else 0
    return _OVERHEAD_BYTES + min(description_bytes, _OVERHEAD_BYTES) + chunks * _CHUNK_BYTES
