"""Fetching segments: streams of their logs, and their indexes, by metadata alone.

The caches, the lookup of objects, and the threads of all that are made here, once for a storage manager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tierlog.errors import ConfigError, StoreError
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata
from tierlog.remote.storage.batch_check import BatchCheck
from tierlog.remote.storage.chunk_cache import ChunkCache, MemoryChunkCache
from tierlog.remote.storage.chunk_fetch import ChunkFetcher
from tierlog.remote.storage.config import StorageConfig
from tierlog.remote.storage.disk_chunk_cache import DiskChunkCache
from tierlog.remote.storage.downloads import Downloads
from tierlog.remote.storage.index_cache import IndexCache
from tierlog.remote.storage.key_ring import KeyRing
from tierlog.remote.storage.manifest_cache import ManifestCache
from tierlog.remote.storage.metrics import StorageMetrics
from tierlog.remote.storage.prefetch import ByteBudget, Prefetcher
from tierlog.remote.storage.range_reader import RangeReader, StreamLimits
from tierlog.remote.storage.rate_limiter import RateLimiter
from tierlog.remote.storage.segment_log import SegmentLog, open_log
from tierlog.remote.storage.segment_lookup import make_lookup
from tierlog.remote.storage.segment_stream import Translate, ViewStream, bytes_stream, same_error
from tierlog.remote.storage.weighted_cache import CacheFigures
from tierlog.runtime.machine import Machine
from tierlog.runtime.object_store import ObjectStore

#: Downloads that readers wait for, at once, where ``fetch.chunk.cache.thread.pool.size`` leaves it to us.
THREADS: Final = 16

#: What the metadata of a partition says of the segment behind one: None if there is none, or nobody knows.
NextSegment = Callable[[RemoteLogSegmentMetadata], RemoteLogSegmentMetadata | None]


class SegmentFetcher:
    """Reads segments of one store.

    Args:
        store: Where their objects are.
        config: Its caches, limits, prefix and layout.
        key_ring: Opens those that are encrypted.
        limiter: Of downloads; None for no limit.
        layout: In place of the configured one ("local-tiered" can be read, not written).
        machine: Its clock, threads and files.
        metrics: Where it counts.
        translate: Errors of streams as their reader is to see them.

    Attributes:
        next_segment: Set by who knows the metadata of partitions, so that prefetch crosses the border of a segment.

    Raises:
        ConfigError: the disk cache's directory cannot be used, or the layout is not fetched by ids.

    Thread safety: any number of threads; no lock is held across a call of the store.
    """

    def __init__(
        self,
        store: ObjectStore,
        config: StorageConfig,
        key_ring: KeyRing,
        *,
        limiter: RateLimiter | None = None,
        layout: str | None = None,
        machine: Machine | None = None,
        metrics: StorageMetrics | None = None,
        translate: Translate = same_error,
    ) -> None:
        machine = machine or Machine()
        self.next_segment: NextSegment = lambda _: None
        self._machine = machine
        self._config = config
        self._key_ring = key_ring
        self._translate = translate
        self._metrics = metrics or StorageMetrics()
        lookup = make_lookup(layout or config.layout, store, key_prefix=config.key_prefix, mask=config.key_prefix_mask)
        self._cache = make_chunk_cache(
            config,
            machine,
            self._count_evictions,
            lambda: self._metrics.add("cache_damaged_total", label="chunks_disk"),
        )
        self._chunks = ChunkFetcher(
            Downloads(store, limiter, self._metrics, machine),
            cache=self._cache,
            machine=machine,
            threads=config.fetch_chunk_cache_thread_pool_size or THREADS,
            request_bytes_max=config.fetch_request_max_bytes,
        )
        self._manifests = ManifestCache(
            lookup,
            self._chunks.pool,
            entries_max=config.fetch_manifest_cache_size,
            size_bytes_max=config.fetch_manifest_cache_max_bytes,
            retention_ms=config.fetch_manifest_cache_retention_ms,
            timeout_seconds=config.fetch_manifest_cache_get_timeout_ms / 1000,
            machine=machine,
            downloads=self._chunks.downloads,
            on_evict=lambda count: self._count_evictions("manifests", count),
        )
        self._indexes = IndexCache(
            self._chunks.downloads,
            key_ring,
            self._chunks.pool,
            size_bytes_max=config.fetch_indexes_cache_size,
            retention_ms=config.fetch_indexes_cache_retention_ms,
            timeout_seconds=config.fetch_indexes_cache_get_timeout_ms / 1000,
            machine=machine,
            on_evict=lambda count: self._count_evictions("indexes", count),
        )
        self._limits = StreamLimits(
            request_bytes_max=config.fetch_request_max_bytes,
            timeout_seconds=config.fetch_chunk_cache_get_timeout_ms / 1000,
        )
        self._budget = ByteBudget(config.fetch_prefetch_total_bytes, machine)
        self._prefetcher = Prefetcher(
            self._chunks,
            open_next=self._open_next,
            ahead_bytes_max=config.prefetch_max_bytes,
            crosses_segments=config.fetch_prefetch_next_segment_enabled,
            budget=self._budget,
            machine=machine,
        )
        self._ask_for_figures()

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> ViewStream:
        """Read a byte range of a segment, undoing encryption and compression.

        The first bytes are there when this returns, so that a missing object is an error of this call. The rest comes
        as it is read.

        Args:
            metadata: A whole segment, with its custom metadata.
            start_position: First byte, in the original log.
            end_position: Last byte, **inclusive**; None or past the end is the end of the log.

        Raises:
            ValueError: a negative start, or an end before it.
            StoreError: the start lies behind the end of the log.
            ObjectNotFoundError: the segment's objects are gone.
            StoreUnavailableError: the store failed, or did not answer in time; what is under way lands in the cache.
            CorruptObjectError: a description, a chunk or a batch is wrong. EncryptionKeyError: no key opens it.

        Cost: one request for the description unless it is cached, then one for each run of chunks that are not.
        """
        began = self._machine.clock.monotonic_seconds()
        end = _end_of(metadata, start_position, end_position)
        self._metrics.add("fetches_total")
        self._metrics.add("fetch_requested_bytes_total", end - start_position)
        self._metrics.add_of(metadata.topic_id_partition, "fetches_total")
        self._metrics.add_of(metadata.topic_id_partition, "fetch_requested_bytes_total", end - start_position)
        log = open_log(self._key_ring, self._manifests.fetch(metadata))
        seen, again = self._prefetcher.begin(metadata, log, start_position)

        def progress(position: int, requested: int) -> None:
            self._prefetcher.advance(seen, position, requested)

        reader = RangeReader(
            log,
            self._chunks,
            start_position,
            end,
            is_whole_wanted=end_position is not None,
            limits=self._limits,
            budget=self._budget,
            on_progress=progress,
            again=again,
            check=self._check(metadata, log, start_position),
            machine=self._machine,
        )
        try:
            first: list[memoryview | None] = [reader.next_view()]
        except BaseException:
            reader.close()
            raise
        self._metrics.observe("fetch_first_byte_seconds", self._machine.clock.monotonic_seconds() - began)
        size = end - start_position

        def closed() -> None:
            reader.close()
            self._metrics.add("fetch_returned_bytes_total", size - stream.left_bytes)
            progress(end - stream.left_bytes, reader.requested)

        def failed(error: BaseException) -> BaseException:
            if isinstance(error, Exception):
                self._metrics.add_of(metadata.topic_id_partition, "errors_total", label="fetch_segment")
            return self._translate(error)

        stream = ViewStream(
            lambda: first.pop() if first else reader.next_view(), size, translate=failed, on_close=closed
        )
        return stream

    def _check(self, metadata: RemoteLogSegmentMetadata, log: SegmentLog, start: int) -> BatchCheck | None:
        if not self._config.fetch_check_batches_enabled:
            return None
        return BatchCheck(metadata, position=start, name=log.name)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> ViewStream:
        """The exact bytes of a part beside the log.

        Raises:
            ObjectNotFoundError: the segment has none (known from its description, without a request), or its objects
                are gone. Else as ``fetch_log_segment``.
        """
        data = self._indexes.fetch(self._manifests.fetch(metadata), index_type)
        return bytes_stream(data, translate=self._translate)

    def forget(self, metadata: RemoteLogSegmentMetadata) -> None:
        """The segment is deleted: nothing of it is served from a cache any more."""
        known = self._manifests.find(metadata)
        self._manifests.forget(metadata)
        if known is not None:
            self._indexes.forget(known.log.key)
            self._prefetcher.forget(known.log.key)
            if self._cache is not None:
                self._cache.forget(known.log.key)

    def close(self) -> None:
        """End readers and requests with an error, let go of the disk cache; idempotent."""
        self._chunks.close()
        if self._cache is not None:
            self._cache.close()

    def _open_next(self, metadata: RemoteLogSegmentMetadata) -> tuple[RemoteLogSegmentMetadata, SegmentLog] | None:
        """Called in a thread of the prefetch's, which must not wait for another one of the same pool."""
        following = self.next_segment(metadata)
        if following is None:
            return None
        return following, open_log(self._key_ring, self._manifests.load(following))

    def _count_evictions(self, label: str, count: int) -> None:
        self._metrics.add("cache_evictions_total", count, label=label)

    def _ask_for_figures(self) -> None:
        figures: dict[str, Callable[[], CacheFigures]] = {
            "indexes": lambda: self._indexes.figures,
            "manifests": lambda: self._manifests.figures,
        }
        cache = self._cache
        if cache is not None:
            figures[cache.label] = lambda: cache.figures
        for label, ask in figures.items():
            self._metrics.ask("cache_bytes", _size_of(ask), label=label)


def _size_of(ask: Callable[[], CacheFigures]) -> Callable[[], float]:
    return lambda: ask().size_bytes


def _end_of(metadata: RemoteLogSegmentMetadata, start: int, end_position: int | None) -> int:
    """Behind the last byte of the range."""
    size = metadata.segment_size_in_bytes
    if start < 0 or (end_position is not None and end_position < start):
        raise ValueError(f"positions {start} … {end_position} are no range of a segment")
    if start >= size:
        raise StoreError(f"{metadata.remote_log_segment_id}: start position {start} lies behind its {size} bytes")
    return size if end_position is None else min(end_position + 1, size)


def make_chunk_cache(
    config: StorageConfig,
    machine: Machine,
    count_evictions: Callable[[str, int], None],
    on_damage: Callable[[], None],
) -> ChunkCache | None:
    """The configured cache; None for none. Raises ConfigError."""
    kind, size = config.fetch_chunk_cache_class, config.fetch_chunk_cache_size
    if kind is None or size is None:
        return None
    retention_ms = config.fetch_chunk_cache_retention_ms
    if kind == "memory":
        return MemoryChunkCache(
            size,
            machine=machine,
            retention_ms=retention_ms,
            on_evict=lambda count: count_evictions("chunks_memory", count),
        )
    if kind != "disk" or config.fetch_chunk_cache_path is None:
        raise ConfigError(f"fetch.chunk.cache.class: {kind!r} is neither memory nor disk")
    return DiskChunkCache(
        config.fetch_chunk_cache_path,
        size,
        machine=machine,
        retention_ms=retention_ms,
        encrypted=config.fetch_chunk_cache_encryption_enabled,
        on_evict=lambda count: count_evictions("chunks_disk", count),
        on_damage=on_damage,
    )
