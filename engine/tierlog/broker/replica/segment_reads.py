"""Bytes and indexes of a tier's segments for all partitions of a server: one fetcher, one set of caches and threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from tierlog.aio.loop_reads import drive
from tierlog.aio.waiting import Worker
from tierlog.broker.replica.cached_tier import CachedTier
from tierlog.broker.replica.position_hints import PositionHints
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata
from tierlog.remote.storage.cache.weighted_cache import UNBOUNDED, WeightedCache
from tierlog.remote.storage.chunks.segment import StoredSegment
from tierlog.remote.storage.chunks.segment_log import SegmentLog
from tierlog.remote.storage.config import StorageConfig, read_storage_config
from tierlog.remote.storage.fetch.segment_fetch import SegmentFetcher
from tierlog.remote.storage.layouts.segment_lookup import NoLookup
from tierlog.remote.storage.metrics.storage_metrics import StorageMetrics
from tierlog.remote.storage.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.wrappers.rate_limiter import RateLimiter

#: What a server has where the configuration does not say it: 256 MiB of chunks in memory (``fetch.chunk.cache.class``
#: and ``.size``; a size of 0 keeps nothing), and 64 MiB of indexes (``fetch.indexes.cache.size``), since every reader
#: who does not read on asks for one.
CHUNK_CACHE_BYTES: Final = 256 << 20
INDEX_CACHE_BYTES: Final = 64 << 20
#: Threads that read a disk and open chunks, and those of searches, which may wait for a store.
_READ_THREADS: Final = 16
_LOOKUP_THREADS: Final = 8
#: Logs that were opened: each knows where its chunks lie, and a key.
_LOGS_MAX: Final = 4096
Result = TypeVar("Result")


def server_config(given: Mapping[str, object] | None, *, machine: Machine | None = None) -> StorageConfig:
    """The configuration of a server's reads: the storage manager's keys, and a server's caches where it names none.

    Raises: as ``read_storage_config``.
    """
    config = read_storage_config(given, machine=machine)
    defaults: dict[str, object] = {}
    if config.fetch_chunk_cache_class is None:
        size = config.fetch_chunk_cache_size
        defaults["fetch_chunk_cache_class"] = "memory"
        defaults["fetch_chunk_cache_size"] = CHUNK_CACHE_BYTES if size is None else size
    if "fetch_indexes_cache_size" not in config.model_fields_set:
        defaults["fetch_indexes_cache_size"] = INDEX_CACHE_BYTES
    return config.model_copy(update=defaults)


class SegmentReads:
    """Reads segments that a listing gave, for tasks of one event loop.

    Args:
        tier: Whose segments they are; stays the caller's.
        config: Of ``server_config``: caches, limits, prefetch.
        machine: Its clock, threads and files; by default the tier's.
        metrics: Where it counts.

    Attributes:
        tier: The same tier through the caches, for calls of ``look_up``.
        hints: Where sequential readers go on.

    Raises:
        ConfigError: the disk cache's directory cannot be used.
    """

    def __init__(
        self,
        tier: Tier,
        config: StorageConfig,
        *,
        machine: Machine | None = None,
        metrics: StorageMetrics | None = None,
    ) -> None:
        machine = machine or tier.machine
        self._machine = machine
        self._fetcher = SegmentFetcher(
            tier.store,
            config,
            tier.key_ring,
            limiter=RateLimiter(config.download_rate_limit_bytes_per_second, machine=machine),
            lookup=NoLookup(),
            machine=machine,
            metrics=metrics,
        )
        self.tier = CachedTier(tier, self._fetcher, machine)
        self.hints = PositionHints()
        self._worker = Worker(machine.scheduler.pool(_READ_THREADS, name="tierlog-replica-read"))
        self._lookups = Worker(machine.scheduler.pool(_LOOKUP_THREADS, name="tierlog-replica-lookup"))
        self._logs: WeightedCache[tuple[str, int, int], SegmentLog] = WeightedCache(
            UNBOUNDED, machine=machine, entries_max=_LOGS_MAX
        )

    def set_next_segment(self, next_segment: Callable[[RemoteLogSegmentMetadata], StoredSegment | None]) -> None:
        """Set what names the segment behind one, so that prefetch goes on there; it is called in other threads."""

        def next_log(metadata: RemoteLogSegmentMetadata) -> SegmentLog | None:
            segment = next_segment(metadata)
            return None if segment is None else self._opened(segment)

        self._fetcher.next_log = next_log

    async def log(self, segment: StoredSegment) -> SegmentLog:
        """The log of a segment, opened once. Raises EncryptionKeyError."""
        found = self._logs.find(_key_of(segment))
        if found is None:
            is_encrypted = segment.encryption is not None
            found = await self._worker.run(partial(self._opened, segment)) if is_encrypted else self._opened(segment)
        return found

    def _opened(self, segment: StoredSegment) -> SegmentLog:
        key = _key_of(segment)
        found = self._logs.find(key)
        if found is None:
            found = self._fetcher.open_log(segment)
            self._logs.put(key, found, 0)
        return found

    async def read(self, log: SegmentLog, start: int, end_exclusive: int, *, again: bool) -> list[memoryview]:
        """The bytes of a range of a log, as views that stay as they are for as long as somebody holds them.

        Args: as ``SegmentFetcher.find_range``.

        Raises: as ``SegmentFetcher.read_range_waits``.
        """
        if self._fetcher.reads_directly(log):
            return [await self._worker.run(partial(self._fetcher.read_directly, log, start, end_exclusive))]
        found = self._fetcher.find_range(log, start, end_exclusive, again=again)
        if found is None:
            waits = self._fetcher.read_range_waits(log, start, end_exclusive)
            found = await drive(waits, self._machine, self._worker)
        return found

    async def index(self, segment: StoredSegment, index_type: IndexType) -> bytes | None:
        """A part of a segment beside its log; None if it has none.

        Raises:
            ObjectNotFoundError, CorruptObjectError, EncryptionKeyError, StoreError and its kinds.
        """
        if segment.part(index_type) is None:
            return None
        found = self._fetcher.find_index(segment, index_type)
        if found is None:
            found = await drive(self._fetcher.read_index_waits(segment, index_type), self._machine, self._worker)
        return found

    def forget_indexes(self, segment: StoredSegment) -> None:
        """Drop what is cached of the indexes of a segment that has grown."""
        self._fetcher.forget_indexes(segment)

    async def look_up(self, search: Callable[[], Result]) -> Result:
        """The result of a search over ``tier``, in a thread of its own kind."""
        return await self._lookups.run(search)

    def close(self) -> None:
        """End what is under way with an error, and let go of caches and threads; not to be called on the event loop."""
        self._fetcher.close()
        self._worker.close()
        self._lookups.close()


def _key_of(segment: StoredSegment) -> tuple[str, int, int]:
    return segment.log.key, segment.size_bytes, segment.last_modified_ms
