"""A tier whose segments are read through the caches of a server, for the searches of ``scan``, which block a thread."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from tierlog.remote.api import IndexType
from tierlog.remote.storage.fetch.segment_fetch import SegmentFetcher
from tierlog.remote.tier.chunks.segment import StoredSegment
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.waiting.waits import WaitingThreads

_WINDOW_BYTES: Final = 1 << 20


class CachedTier(Tier):
    """The segments of a tier through a SegmentFetcher: what is cached is asked for once, and every wait has a limit.

    Args:
        tier: Whose segments they are. It stays the caller's; this one is not closed.
        fetcher: Reads them.
        machine: Its clock and locks.

    Thread safety: any number of threads.
    """

    def __init__(self, tier: Tier, fetcher: SegmentFetcher, machine: Machine) -> None:
        super().__init__(
            tier.store, tier.listing, key_ring=tier.key_ring, machine=machine, url=tier.url, scope=tier.scope
        )
        self._fetcher = fetcher
        self._threads = WaitingThreads(machine)

    def fetch_index(self, segment: StoredSegment, index_type: IndexType) -> bytes | None:
        """As Tier says. StoreUnavailableError: not there in time."""
        if segment.part(index_type) is None:
            return None
        found = self._fetcher.find_index(segment, index_type)
        return self._threads.run(self._fetcher.read_index_waits(segment, index_type)) if found is None else found

    def iter_log_windows(
        self,
        segment: StoredSegment,
        start_position: int = 0,
        end_position_exclusive: int | None = None,
        *,
        window_bytes: int | None = None,
        prefetch: int | None = None,
        store: ObjectStore | None = None,
    ) -> Generator[tuple[int, memoryview]]:
        """As Tier says. StoreUnavailableError: not there in time."""
        del prefetch, store
        end = segment.size_bytes if end_position_exclusive is None else end_position_exclusive
        if not 0 <= start_position <= end <= segment.size_bytes:
            raise ValueError(f"range {start_position} … {end} is not within {segment.name}")
        log = self._fetcher.open_log(segment)
        size = window_bytes or _WINDOW_BYTES
        for start in range(start_position, end, size):
            stop = min(start + size, end)
            if self._fetcher.reads_directly(log):
                yield start, self._fetcher.read_directly(log, start, stop)
                continue
            at = start
            for view in self._threads.run(self._fetcher.read_range_waits(log, start, stop, least_bytes=stop - start)):
                yield at, view
                at += len(view)

    def close(self) -> None:
        """Do nothing: store and threads are others'."""
