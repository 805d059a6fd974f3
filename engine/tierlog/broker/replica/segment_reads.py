"""Bytes and indexes of a tier's segments for all partitions of a server: one fetcher, one set of caches and threads."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from tierlog.log.fetch_data import FetchDataInfo
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata, TopicIdPartition
from tierlog.remote.config import StorageConfig, read_storage_config
from tierlog.remote.manager.batch_reads import BatchReads, WantedBatches
from tierlog.remote.storage.fetch.segment_reader import SegmentReader
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.remote.tier.chunks.stored_segment import SegmentLog, StoredSegment
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.rate_limiter import RateLimiter
from tierlog.runtime.waiting.file_part import FilePart
from tierlog.runtime.waiting.loops import SingleCalls, Worker
from tierlog.runtime.waiting.waits import WaitingThreads

#: What a server has where the configuration does not say it: 256 MiB of chunks in memory (``fetch.chunk.cache.class``
#: and ``.size``; a size of 0 caches nothing), and 64 MiB of indexes (``fetch.indexes.cache.size``), since every read
#: that does not go on behind the last one needs one.
CHUNK_CACHE_BYTES: Final = 256 << 20
INDEX_CACHE_BYTES: Final = 64 << 20
#: Threads that read a disk and open chunks, and those of searches, which may wait for a store.
_READ_THREADS: Final = 16
_LOOKUP_THREADS: Final = 16
#: What a search reads of a log at once.
_WINDOW_BYTES: Final = 1 << 20
#: Which segment follows another one.
NextStoredSegment = Callable[[RemoteLogSegmentMetadata], StoredSegment | None]
Result = TypeVar("Result")


def server_config(given: Mapping[str, object] | None, *, machine: Machine | None = None) -> StorageConfig:
    """The configuration of a server's reads: the storage manager's keys, and a server's caches where it names none.

    Raises: as ``read_storage_config``.
    """
    config = read_storage_config(given, machine=machine)
    defaults: dict[str, Any] = {}
    if config.fetch_chunk_cache_class is None:
        size = config.fetch_chunk_cache_size
        defaults["fetch_chunk_cache_class"] = "memory"
        defaults["fetch_chunk_cache_size"] = CHUNK_CACHE_BYTES if size is None else size
    if "fetch.indexes.cache.size" not in config.given:
        defaults["fetch_indexes_cache_size"] = INDEX_CACHE_BYTES
    return replace(config, **defaults)


class CachedTier(Tier):
    """The segments of a tier through a SegmentReader: what is cached is asked for once, and every wait has a limit.

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
        log = self._fetcher.opened(segment)
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


class SegmentReads:
    """Reads segments that a listing gave, for tasks of one event loop.

    Args:
        tier: Whose segments they are; stays the caller's.
        config: Of ``server_config``: caches, limits, prefetch.
        machine: Its clock, threads and files; by default the tier's.
        metrics: Where it counts.

    Attributes:
        tier: The same tier through the caches, for calls of ``look_up``.
        worker: Threads that read and check.
        batches: Of the segments.

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
        limit = config.download_rate_limit_bytes_per_second
        self._fetcher = SegmentReader(
            tier.store,
            config,
            tier.key_ring,
            limiter=None if limit is None else RateLimiter(limit, machine=machine),
            machine=machine,
            metrics=metrics,
        )
        self._fetcher.next_log = self._next_log
        self._timeout_seconds = config.fetch_chunk_cache_get_timeout_ms / 1000
        self._next_segments: dict[TopicIdPartition, weakref.WeakMethod[NextStoredSegment]] = {}
        self.tier = CachedTier(tier, self._fetcher, machine)
        self.worker = Worker(machine.scheduler.pool(_READ_THREADS, name="tierlog-replica-read"), machine)
        self.batches = BatchReads(
            self._fetcher, machine, checks_batches=config.fetch_check_batches_enabled, worker=self.worker
        )
        self._lookups = Worker(machine.scheduler.pool(_LOOKUP_THREADS, name="tierlog-replica-lookup"), machine)

    def add(self, partition: TopicIdPartition, next_segment: NextStoredSegment) -> None:
        """Note a partition, so that prefetch goes on in its next segment.

        Args:
            partition: Of which one.
            next_segment: A method that says which segment follows another one, as far as that is known now. Called in
                any thread, for as long as its object lives.
        """

        def forget(gone: object) -> None:
            if self._next_segments.get(partition) is gone:
                del self._next_segments[partition]

        self._next_segments[partition] = weakref.WeakMethod(next_segment, forget)

    def _next_log(self, metadata: RemoteLogSegmentMetadata) -> SegmentLog | None:
        known = self._next_segments.get(metadata.topic_id_partition)
        next_segment = None if known is None else known()
        segment = None if next_segment is None else next_segment(metadata)
        return None if segment is None else self._fetcher.opened(segment)

    def deadline(self) -> float:
        """When a read that begins now is late, by the machine's monotonic clock, seconds: a client waits no longer."""
        return self._machine.clock.monotonic_seconds() + self._timeout_seconds

    async def read(
        self, segment: StoredSegment, wanted: WantedBatches, *, until_seconds: float
    ) -> FetchDataInfo[memoryview | FilePart] | None:
        """Read batches, as ``BatchReads.read_waits`` says. StoreUnavailableError: not there in time."""
        return await self.worker.drive(self.batches.read_waits(segment, wanted), until_seconds=until_seconds)

    async def index(self, segment: StoredSegment, index_type: IndexType, *, until_seconds: float) -> bytes | None:
        """A part of a segment beside its log; None if it has none.

        Raises:
            StoreUnavailableError: not there in time. ObjectNotFoundError, CorruptObjectError, EncryptionKeyError,
                StoreError and its kinds.
        """
        return await self.worker.drive(self._fetcher.index_waits(segment, index_type), until_seconds=until_seconds)

    def forget_indexes(self, segment: StoredSegment) -> None:
        """Drop what is cached of the indexes of a segment that has grown."""
        self._fetcher.forget_indexes(segment)

    @property
    def timeout_seconds(self) -> float:
        """How long one read may take: ``fetch.chunk.cache.get.timeout.ms``."""
        return self._timeout_seconds

    async def look_up(self, search: Callable[[], Result]) -> Result:
        """The result of a search over ``tier``, in a thread of its own kind, however long it takes."""
        return await self._lookups.run(search)

    def lookup_turns(self) -> SingleCalls:
        """Threads for searches over ``tier``, one after another, of one partition."""
        return self._lookups.one_at_a_time()

    def close(self) -> None:
        """End the reads under way with an error, and free caches and threads; not to be called on the event loop."""
        self._fetcher.close()
        self.worker.close()
        self._lookups.close()
