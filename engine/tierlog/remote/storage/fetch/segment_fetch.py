"""Fetching segments: streams of their logs, and their indexes, by metadata alone.

The caches, the lookup of objects, and the threads of all that are made here, once for a storage manager.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tierlog._native.files import ReadyFile
from tierlog.errors import ConfigError, CorruptDataError, StoreError, TierlogError
from tierlog.remote.api import IndexType, InvalidRangeError, RemoteLogSegmentMetadata
from tierlog.remote.config import StorageConfig
from tierlog.remote.storage.cache.chunk_cache import ChunkCache, MemoryChunkCache
from tierlog.remote.storage.cache.disk_chunk_cache import DiskChunkCache
from tierlog.remote.storage.cache.index_cache import IndexCache
from tierlog.remote.storage.cache.manifest_cache import ManifestCache
from tierlog.remote.storage.fetch.chunk_loads import ChunkFetcher
from tierlog.remote.storage.fetch.prefetch import AheadLoads, Prefetcher
from tierlog.remote.storage.fetch.range_reader import BatchCheck, RangeReader, StreamLimits
from tierlog.remote.storage.fetch.segment_stream import Translate, ViewStream, bytes_stream, forget_frames, same_error
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.remote.storage.store_requests import BLOCKING_THREADS, StoreRequests
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.remote.tier.chunks.stored_segment import SegmentLog, StoredSegment, open_log
from tierlog.remote.tier.layouts.segment_lookup import SegmentLookup, make_lookup
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.rate_limiter import RateLimiter
from tierlog.runtime.waiting.turns import MemoryBudget
from tierlog.runtime.waiting.waits import WaitingThreads, Waits
from tierlog.runtime.weighted_cache import CacheFigures

#: What the metadata of a partition says of the segment behind one: None if there is none, or nobody knows.
NextSegment = Callable[[RemoteLogSegmentMetadata], RemoteLogSegmentMetadata | None]
#: The same for who has the segments of a listing, so that nothing need be looked up; it may open keys.
NextLog = Callable[[RemoteLogSegmentMetadata], SegmentLog | None]


class SegmentFetcher:
    """Reads segments of one store.

    Args:
        store: Where their objects are.
        config: Its caches, limits, prefix and layout.
        key_ring: Opens those that are encrypted.
        limiter: Of downloads; None for no limit.
        layout: In place of the configured one ("local-tiered" can be read, not written).
        lookup: In place of the layout's: NoLookup for who has all segments from a listing.
        machine: Its clock, threads and files.
        metrics: Where it counts.
        translate: Errors of streams as their reader is to see them.

    Attributes:
        next_segment: Set by who knows the metadata of partitions, so that prefetch crosses the border of a segment.
        next_log: Set, in its place, by who has the segments of a listing; called in a thread of its own.

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
        lookup: SegmentLookup | None = None,
        machine: Machine | None = None,
        metrics: StorageMetrics | None = None,
        translate: Translate = same_error,
    ) -> None:
        machine = machine or Machine()
        self.next_segment: NextSegment = lambda _: None
        self.next_log: NextLog | None = None
        self._machine = machine
        self._threads = WaitingThreads(machine)
        self._config = config
        self._translate = translate
        self._metrics = metrics = metrics or StorageMetrics()
        lookup = lookup or make_lookup(
            layout or config.layout, key_prefix=config.key_prefix, mask=config.key_prefix_mask
        )
        self._key_ring = key_ring
        self._cache = make_chunk_cache(
            config,
            machine,
            self._count_evictions,
            lambda: metrics.add("cache_damaged_total", label="chunks_disk"),
        )
        requests = StoreRequests(
            store,
            limiter,
            metrics,
            machine,
            blocking_threads=config.fetch_chunk_cache_thread_pool_size or BLOCKING_THREADS,
        )
        self._budget = MemoryBudget(config.fetch_memory_max_bytes, machine)
        self._chunks = ChunkFetcher(
            requests,
            cache=self._cache,
            budget=self._budget,
            machine=machine,
            request_bytes_max=config.fetch_request_max_bytes,
        )
        self._manifests = ManifestCache(
            lookup,
            requests,
            key_ring,
            self._chunks.open_pool,
            entries_max=config.fetch_manifest_cache_size,
            size_bytes_max=config.fetch_manifest_cache_max_bytes,
            retention_ms=config.fetch_manifest_cache_retention_ms,
            timeout_seconds=config.fetch_manifest_cache_get_timeout_ms / 1000,
            machine=machine,
            on_evict=lambda count: self._count_evictions("manifests", count),
        )
        self._indexes = IndexCache(
            requests,
            key_ring,
            self._chunks.open_pool,
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
        self._prefetcher = Prefetcher(
            AheadLoads(self._chunks, self._budget, machine),
            open_next=self._open_next,
            ahead_bytes_max=config.prefetch_max_bytes,
            crosses_segments=config.fetch_prefetch_next_segment_enabled,
            machine=machine,
        )
        self._count_fetch = metrics.counting("fetches_total")
        self._count_requested = metrics.counting("fetch_requested_bytes_total")
        self._count_returned = metrics.counting("fetch_returned_bytes_total")
        self._ask_for_figures()

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> ViewStream:
        """Read a byte range of a segment, undoing encryption and compression.

        Asks for the segment's description, unless it is cached, and for nothing else: the log is asked for when the
        stream is read.

        Args:
            metadata: A whole segment, with its custom metadata.
            start_position: First byte, in the original log.
            end_position: Last byte, **inclusive**; None or past the end is the end of the log.

        Raises (and the stream, when it is read):
            InvalidRangeError: a negative start, an end before it, or a start behind the end of the log.
            ObjectNotFoundError: the segment's objects are gone.
            StoreUnavailableError: the store failed, or did not answer in time; what is under way lands in the cache.
            CorruptObjectError: a description, a chunk or a batch is wrong. EncryptionKeyError: no key opens it.

        Cost: one request for the description unless it is cached, then one for each run of chunks that are not.
        """
        began, end = self._asked(metadata, start_position, end_position)
        opened = self._manifests.find(metadata)
        if opened is None:
            opened = self._threads.run(self._manifests.fetch(metadata))
        return self._stream(
            metadata, opened.log, start_position, end, is_whole_wanted=end_position is not None, began_seconds=began
        )

    def fetch_log_segment_waits(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> Waits[ViewStream]:
        """As ``fetch_log_segment``, for callers who drive the waits by other means than a thread that waits."""
        began, end = self._asked(metadata, start_position, end_position)
        opened = self._manifests.find(metadata)
        if opened is None:
            opened = yield from self._manifests.fetch(metadata)
        return self._stream(
            metadata, opened.log, start_position, end, is_whole_wanted=end_position is not None, began_seconds=began
        )

    def _asked(self, metadata: RemoteLogSegmentMetadata, start: int, end_position: int | None) -> tuple[float, int]:
        """Count a fetch. Returns when it began and where its range ends; raises as ``fetch_log_segment``."""
        began = self._machine.clock.monotonic_seconds()
        end = _end_of(metadata, start, end_position)
        self._count_fetch()
        self._count_requested(end - start)
        self._metrics.add_of(metadata.topic_id_partition, "fetches_total")
        self._metrics.add_of(metadata.topic_id_partition, "fetch_requested_bytes_total", end - start)
        return began, end

    def _stream(
        self,
        metadata: RemoteLogSegmentMetadata,
        log: SegmentLog,
        start: int,
        end: int,
        *,
        is_whole_wanted: bool,
        began_seconds: float,
    ) -> ViewStream:
        is_checked = self._config.fetch_check_batches_enabled
        check = BatchCheck(metadata, position=start, name=log.name) if is_checked else None
        reader, closed = self._reader(
            metadata, log, start, end, is_whole_wanted=is_whole_wanted, began_seconds=began_seconds, check=check
        )

        def failed(error: BaseException) -> BaseException:
            if isinstance(error, Exception):
                self._count_error(metadata)
            return self._translate(error)

        return ViewStream(reader, translate=failed, on_close=closed, on_drop=partial(self._budget.drop, reader.close))

    def _count_error(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._metrics.add_of(metadata.topic_id_partition, "errors_total", label="fetch_segment")

    def _reader(
        self,
        metadata: RemoteLogSegmentMetadata,
        log: SegmentLog,
        start: int,
        end: int,
        *,
        is_whole_wanted: bool,
        began_seconds: float,
        check: BatchCheck | None = None,
    ) -> tuple[RangeReader, Callable[[int], None]]:
        """A reader of a range, and what is called with the bytes that were handed out when it is closed."""
        seen, again = (None, False) if self._prefetcher.is_off else self._prefetcher.begin(metadata, log, start)
        progress = None if seen is None else partial(self._prefetcher.advance, seen)
        reader = RangeReader(
            log,
            self._chunks,
            start,
            end,
            turn=metadata.topic_id_partition,
            is_whole_wanted=is_whole_wanted,
            limits=self._limits,
            budget=self._budget,
            on_progress=progress,
            on_first=lambda: self._metrics.observe(
                "fetch_first_byte_seconds", self._machine.clock.monotonic_seconds() - began_seconds
            ),
            again=again,
            check=check,
            threads=self._threads,
        )

        def closed(size_bytes: int) -> None:
            self._count_returned(size_bytes)
            if progress is not None:
                progress(start + size_bytes, reader.requested)

        return reader, closed

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> ViewStream:
        """The exact bytes of a part beside the log.

        Raises:
            ObjectNotFoundError: the segment has none (known from its description, without a request), or its objects
                are gone. Else as ``fetch_log_segment``.
        """
        return self._threads.run(self.fetch_index_waits(metadata, index_type))

    def fetch_index_waits(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> Waits[ViewStream]:
        """As ``fetch_index``, for callers who drive the waits by other means than a thread that waits."""
        opened = self._manifests.find(metadata)
        if opened is None:
            opened = yield from self._manifests.fetch(metadata)
        data = self._indexes.find(opened.segment, index_type)
        if data is None:
            data = yield from self._indexes.fetch(opened.segment, index_type)
        return bytes_stream(data, translate=self._translate)

    # --- segments that the caller has from a listing ---

    def open_log(self, segment: StoredSegment) -> SegmentLog:
        """The log of a segment, for the calls below. Opens its key: work for a thread where it is encrypted.

        Raises:
            EncryptionKeyError: no key of the ring opens it.
        """
        return open_log(self._key_ring, segment)

    def find_range(self, log: SegmentLog, start: int, end_exclusive: int, *, again: bool) -> list[memoryview] | None:
        """The bytes of a range whose chunks are all in the cache in memory; None if one is not. Waits for nothing.

        The views are the chunks' own memory, which stays as it is when the cache drops them.

        Args:
            log: Of ``open_log``.
            start: First byte, in the original log; 0 <= start < end_exclusive <= ``log.size_bytes``.
            end_exclusive: Behind the last byte.
            again: The same reader asked for the first chunk just before.

        Raises:
            CorruptObjectError: the log's description says that a chunk is larger than one can be.
        """
        cache = self._cache
        if cache is None or cache.is_slow:
            return None
        views = log.views(start, end_exclusive)
        if log.key(views[-1]) not in cache:  # what a reader who reads on lacks first
            return None
        found: list[memoryview] = []
        for view in views:
            data = cache.find(log.key(view), again=again and not found)
            if data is None:
                return None
            found.append(data[view.start : view.end])
        self._count_fetch()
        self._count_requested(end_exclusive - start)
        self._count_returned(end_exclusive - start)
        if not self._prefetcher.is_off:
            seen, _ = self._prefetcher.begin(log.segment.metadata, log, start)
            self._prefetcher.advance(seen, end_exclusive, end_exclusive)
        return found

    def reads_directly(self, log: SegmentLog) -> bool:
        """Whether ``read_directly`` may be called: files of this machine that are stored as they are."""
        return not log.segment.transformed and self._chunks.is_local and self._chunks.requests.reads_directly

    def read_directly(self, log: SegmentLog, start: int, end_exclusive: int) -> memoryview:
        """The bytes of a range in memory of their own, read in this thread past the caches.

        Raises:
            CorruptObjectError: the file ends before. ObjectNotFoundError. StoreError and its kinds.
        """
        self._count_fetch()
        self._count_requested(end_exclusive - start)
        out = new_buffer(end_exclusive - start)
        self._chunks.read_into(log, start, out)
        self._count_returned(end_exclusive - start)
        return out.toreadonly()

    def open_ready(self, log: SegmentLog) -> ReadyFile | None:
        """The file that has the log from ``log.segment.log.position`` on, for event loops, which read past the caches
        and call ``note_ready``; None where there is none. Waits for nothing. Only where ``reads_directly``.
        """
        return self._chunks.requests.open_ready(log.segment.log.key)

    def note_ready(self, size_bytes: int) -> None:
        """Count a fetch of so many bytes of a file of ``open_ready``."""
        self._count_fetch()
        self._count_requested(size_bytes)
        self._count_returned(size_bytes)
        self._metrics.count_fetched(size_bytes)

    def read_range_waits(
        self, log: SegmentLog, start: int, end_exclusive: int, *, least_bytes: int
    ) -> Waits[list[memoryview]]:
        """The bytes of a range, as the views of its chunks: from the cache, or from loads that all who ask share.

        Batches are not checked. Fewer bytes come where what follows is not there, or not sound, and so many are:
        the next read from there on is told why.

        Args:
            log: Of ``open_log``.
            start: First byte, in the original log; 0 <= start < end_exclusive <= ``log.size_bytes``.
            end_exclusive: Behind the last byte.
            least_bytes: Without which the caller cannot go on; > 0.

        Raises: as a stream of ``fetch_log_segment``, when it is read.
        """
        metadata = log.segment.metadata
        began, end = self._asked(metadata, start, end_exclusive - 1)
        found: list[memoryview] = []
        reader, closed = self._reader(metadata, log, start, end, is_whole_wanted=True, began_seconds=began)
        try:
            while left := reader.left_bytes:
                found.append((yield from reader.take_waits(left)))
        except TierlogError as error:
            self._count_error(metadata)
            is_enough = reader.position - start >= min(least_bytes, end_exclusive - start)
            if not (is_enough and isinstance(error, StoreError | CorruptDataError)):
                forget_frames(error)
                raise
        finally:
            reader.close()
            closed(reader.position - start)
        return found

    def find_index(self, segment: StoredSegment, index_type: IndexType) -> bytes | None:
        """A part of a segment beside its log if it is at hand, else None; b"" for an empty one. Waits for nothing.

        Raises:
            ObjectNotFoundError: the segment has none.
        """
        return self._indexes.find(segment, index_type)

    def read_index_waits(self, segment: StoredSegment, index_type: IndexType) -> Waits[bytes]:
        """A part of a segment beside its log, which ``find_index`` did not have.

        Raises:
            ObjectNotFoundError: its object is gone. Else as ``fetch_index``.
        """
        return self._indexes.fetch(segment, index_type)

    def forget_indexes(self, segment: StoredSegment) -> None:
        """Drop the indexes of a segment that has grown."""
        self._indexes.forget(segment.log.key)

    # --- the end of segments, and of this ---

    def forget(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Drop a deleted segment from all caches."""
        known = self._manifests.peek(metadata)
        self._manifests.forget(metadata)
        if known is not None:
            key = known.segment.log.key
            self._indexes.forget(key)
            self._prefetcher.forget(key)
            if self._cache is not None:
                self._cache.forget(key)

    def close(self) -> None:
        """End readers and requests with an error, let go of the disk cache; idempotent."""
        self._chunks.close()
        self._prefetcher.close()
        if self._cache is not None:
            self._cache.close()

    def _open_next(self, metadata: RemoteLogSegmentMetadata, opened: Callable[[SegmentLog], None]) -> None:
        """Find the next segment and begin to describe it, in a thread that waits for the metadata alone."""
        if self.next_log is not None:
            log = self.next_log(metadata)
            if log is not None:
                opened(log)
            return
        following = self.next_segment(metadata)
        if following is None:
            return
        load = self._manifests.begin(following)

        def landed() -> None:
            self._manifests.leave(load)
            try:
                opened(load.result().log)
            except TierlogError:
                return  # its reader's to see, when she comes

        load.add_done_callback(landed)
        load.run()

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
    """Where the range ends, exclusive."""
    size = metadata.segment_size_in_bytes
    if start < 0 or (end_position is not None and end_position < start):
        asked = f"positions {start} … {end_position} are no range of a segment"
        raise InvalidRangeError(f"{metadata.remote_log_segment_id}: {asked}")
    if start >= size:
        raise InvalidRangeError(
            f"{metadata.remote_log_segment_id}: start position {start} lies behind its {size} bytes"
        )
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
