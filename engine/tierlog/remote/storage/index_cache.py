"""The parts of segments beside their logs: a broker asks for three of them in a row, so they come in one request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tierlog.errors import CorruptObjectError, ObjectNotFoundError
from tierlog.remote.api import IndexType
from tierlog.remote.storage.chunk_reading import open_part, part_name
from tierlog.remote.storage.downloads import Downloads
from tierlog.remote.storage.key_ring import KeyRing
from tierlog.remote.storage.segment import StoredPart, StoredSegment
from tierlog.remote.storage.segment_lookup import UNKNOWN_SIZE
from tierlog.remote.storage.single_flight import SingleFlight
from tierlog.remote.storage.weighted_cache import CacheFigures, WeightedCache
from tierlog.runtime.machine import Machine
from tierlog.runtime.scheduling import Pool

#: Parts that lie side by side are fetched together up to this size.
TOGETHER_BYTES_MAX: Final = 2 << 20

_Key = tuple[str, IndexType]


class IndexCache:
    """See the module; bounded exactly by bytes.

    Args:
        downloads: Of the objects.
        key_ring: Opens encrypted parts.
        pool: Where requests run.
        size_bytes_max: Of all parts together; -1 for no limit.
        retention_ms: After the last use; -1 for ever.
        timeout_seconds: How long one caller waits.
        machine: Its clock and locks.
        on_evict: Told how many had to make room.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        downloads: Downloads,
        key_ring: KeyRing,
        pool: Pool,
        *,
        size_bytes_max: int,
        retention_ms: int,
        timeout_seconds: float,
        machine: Machine,
        on_evict: Callable[[int], None] | None = None,
    ) -> None:
        self._downloads = downloads
        self._key_ring = key_ring
        self._timeout_seconds = timeout_seconds
        self._metrics = downloads.metrics
        self._cache: WeightedCache[_Key, bytes] = WeightedCache(
            size_bytes_max, machine=machine, retention_ms=retention_ms, on_evict=on_evict
        )
        self._flights: SingleFlight[_Key, bytes] = SingleFlight(pool, machine)

    @property
    def figures(self) -> CacheFigures:
        return self._cache.figures

    def fetch(self, segment: StoredSegment, index_type: IndexType) -> bytes:
        """A part's bytes as the broker had them; b"" for an empty one, without a request.

        Raises:
            ObjectNotFoundError: there is no such part (known without a request), or its object is gone.
            CorruptObjectError: shorter than described, or not authentic. EncryptionKeyError. StoreError and its kinds.
        """
        part = segment.part(index_type)
        if part is None:
            raise ObjectNotFoundError(f"{segment.name}: the segment has no {index_type.value} index")
        if part.size_bytes == 0:
            return b""
        key = (segment.log.key, index_type)
        found = self._cache.find(key)
        if found is not None:
            self._metrics.add("cache_hits_total", label="indexes")
            self._metrics.add("cache_hit_bytes_total", len(found), label="indexes")
            return found
        self._metrics.add("cache_misses_total", label="indexes")
        return self._flights.fetch(
            key,
            lambda: self._load(segment, index_type, part),
            timeout_seconds=self._timeout_seconds,
            what=f"the {index_type.value} index of {segment.name}",
        )

    def _load(self, segment: StoredSegment, index_type: IndexType, part: StoredPart) -> bytes:
        known = self._cache.find((segment.log.key, index_type), again=True)
        if known is not None:
            return known  # it came with another one meanwhile
        if part.size_bytes == UNKNOWN_SIZE:
            data = bytes(self._downloads.fetch_whole(part))
            self._keep(segment, index_type, data)
            return data
        start, end = _run_around(segment, part)
        stored = self._downloads.fetch(part, part_name(segment, part), start, end)
        data = self._open(segment, part, stored, start)
        for kind, other in segment.parts:
            if other is not part and _lies_within(other, part, start, end):
                try:
                    self._keep(segment, kind, self._open(segment, other, stored, start))
                except CorruptObjectError:
                    continue  # told to who asks for that one
        self._keep(segment, index_type, data)
        return data

    def _open(self, segment: StoredSegment, part: StoredPart, stored: memoryview, start: int) -> bytes:
        own = stored[part.position - start : part.position - start + part.size_bytes]
        return bytes(open_part(self._key_ring, segment, part, own))

    def _keep(self, segment: StoredSegment, index_type: IndexType, data: bytes) -> None:
        self._cache.put((segment.log.key, index_type), data, len(data))

    def forget(self, log_key: str) -> None:
        """The segment is gone."""
        self._cache.remove_where(lambda key: key[0] == log_key)


def _run_around(segment: StoredSegment, part: StoredPart) -> tuple[int, int]:
    """[start, end) in the part's object: of all parts in it, if these are small."""
    own = [other for _, other in segment.parts if other.key == part.key and other.size_bytes > 0]
    start = min(other.position for other in own)
    end = max(other.position + other.size_bytes for other in own)
    if end - start > TOGETHER_BYTES_MAX:
        return part.position, part.position + part.size_bytes
    return start, end


def _lies_within(other: StoredPart, part: StoredPart, start: int, end: int) -> bool:
    return (
        other.key == part.key
        and other.size_bytes > 0
        and start <= other.position
        and other.position + other.size_bytes <= end
    )
