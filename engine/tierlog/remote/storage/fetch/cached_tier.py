"""A tier whose segments are read through the caches of one store."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from tierlog.remote.api import IndexType
from tierlog.remote.storage.fetch.segment_reader import SegmentReader
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.waiting.waits import WaitingThreads

#: Bytes that a search reads of a log at once.
_WINDOW_BYTES: Final = 1 << 20


class CachedTier(Tier):
    """The segments of a tier through a SegmentReader: cached data is fetched once, and every wait has a limit.

    Args:
        tier: Whose segments they are. It stays the caller's; this one is not closed.
        fetcher: Reads them.
        machine: Its clock and locks.

    Thread safety: any number of threads.
    """

    def __init__(self, tier: Tier, fetcher: SegmentReader, machine: Machine) -> None:
        super().__init__(
            tier.store, tier.listing, key_ring=tier.key_ring, machine=machine, url=tier.url, scope=tier.scope
        )
        self._fetcher = fetcher
        self._threads = WaitingThreads(machine)

    def fetch_index(self, segment: StoredSegment, index_type: IndexType) -> bytes | None:
        """Fetch an index through the caches. StoreUnavailableError: not there in time."""
        if segment.part(index_type) is None:
            return None
        found = self._fetcher.find_index(segment, index_type)
        return self._threads.run(self._fetcher.read_index_waits(segment, index_type)) if found is None else found

    def _windows(
        self,
        segment: StoredSegment,
        start_position: int,
        end_position_exclusive: int,
        window_bytes: int | None,
        prefetch: int | None,
        store: ObjectStore | None,
    ) -> Generator[tuple[int, memoryview]]:
        """Iterate windows through the caches. StoreUnavailableError: not there in time."""
        del prefetch, store
        log = self._fetcher.opened(segment)
        size = window_bytes or _WINDOW_BYTES
        for start in range(start_position, end_position_exclusive, size):
            stop = min(start + size, end_position_exclusive)
            if self._fetcher.reads_directly(log):
                yield start, self._fetcher.read_directly(log, start, stop)
                continue
            at = start
            for view in self._threads.run(self._fetcher.read_range_waits(log, start, stop, least_bytes=stop - start)):
                yield at, view
                at += len(view)

    def close(self) -> None:
        """Do nothing: store and threads are others'."""
