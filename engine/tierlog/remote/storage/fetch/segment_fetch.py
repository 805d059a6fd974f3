"""Fetching segments: streams of their logs, and their indexes, by metadata alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from tierlog.errors import CorruptObjectError, TierlogError
from tierlog.remote.api import IndexType, NextSegment, RemoteLogSegmentMetadata
from tierlog.remote.config import StorageConfig
from tierlog.remote.storage.cache.manifest_cache import ManifestCache
from tierlog.remote.storage.fetch.range_reader import BatchCheck
from tierlog.remote.storage.fetch.segment_reader import SegmentReader
from tierlog.remote.storage.fetch.segment_stream import Translate, ViewStream, bytes_stream, same_error
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.remote.tier.chunks.stored_segment import SegmentLog
from tierlog.remote.tier.layouts.segment_lookup import make_lookup
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import require_wanted
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.rate_limiter import RateLimiter
from tierlog.runtime.waiting.waits import Interrupt, Waits


class SegmentFetcher(SegmentReader):
    """Reads segments of one store by their metadata: it finds their descriptions, and caches them.

    Args:
        store, key_ring, limiter, machine, metrics: As of SegmentReader.
        config: Its caches, limits, prefix and layout.
        layout: In place of the configured one ("local-tiered" can be read, not written).
        translate: Errors of streams as their reader is to see them.

    Attributes:
        next_segment: Set by an owner that knows the metadata of partitions, so that prefetch crosses the border of a
            segment.

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
        lookup = make_lookup(layout or config.layout, key_prefix=config.key_prefix, mask=config.key_prefix_mask)
        super().__init__(store, config, key_ring, limiter=limiter, machine=machine, metrics=metrics)
        self.next_segment: NextSegment = lambda _: None
        self._translate = translate
        self._manifests = ManifestCache(
            lookup,
            self._requests,
            key_ring,
            self._chunks.open_pool,
            entries_max=config.fetch_manifest_cache_size,
            size_bytes_max=config.fetch_manifest_cache_max_bytes,
            retention_ms=config.fetch_manifest_cache_retention_ms,
            timeout_seconds=config.fetch_manifest_cache_get_timeout_ms / 1000,
            machine=self._machine,
            on_evict=lambda count: self._count_evictions("manifests", count),
        )
        self._ask_for_size("manifests", lambda: self._manifests.figures)

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
            ObjectNotFoundError: the segment's objects are gone. StoreUnavailableError: the store failed, or did not
            answer in time; pending loads land in the cache. CorruptObjectError: a description, a chunk or a batch is
            wrong. EncryptionKeyError: no key opens it.

        Cost: one request for the description unless it is cached, then one for each run of chunks that are not.
        """
        began, end = self._asked(metadata, start_position, end_position)
        opened = self._manifests.find(metadata)
        if opened is None:
            opened = self._threads.run(self._manifests.fetch(metadata))
        return self._stream(
            metadata, opened.log, start_position, end, is_whole_wanted=end_position is not None, began_seconds=began
        )

    def find_cached(
        self, metadata: RemoteLogSegmentMetadata, start: int, end_exclusive: int, *, again: bool
    ) -> list[memoryview] | None:
        """Return a range as ``find_range``; None too where the segment's description is not cached. Does not wait."""
        opened = self._manifests.find(metadata)
        found = None if opened is None else self.find_range(opened.log, start, end_exclusive, again=again)
        if found is not None:
            self._count_of(metadata, end_exclusive - start)
        return found

    def fetch_range(
        self, metadata: RemoteLogSegmentMetadata, start: int, end_exclusive: int, *, least_bytes: int
    ) -> list[memoryview]:
        """Read a range as ``read_range_waits``, in this thread, whose cancelled blocks end it. A plain file of this
        machine that no cache is to have is read by one call.
        """
        require_wanted()
        opened, closing = self._manifests.find(metadata), Interrupt()
        if opened is None:
            opened = self._threads.run(self._manifests.fetch(metadata))
        log = opened.log
        if self._cache is None and end_exclusive <= log.size_bytes and self.reads_directly(log):
            with suppress(CorruptObjectError):  # the file ends before: piece by piece all comes that it has
                found = self.read_directly(log, start, end_exclusive)
                self._count_of(metadata, end_exclusive - start)
                return [found]
        read = self.read_range_waits(log, start, end_exclusive, least_bytes=least_bytes, closing=closing)
        return self._threads.run(read, closing)

    def _count_of(self, metadata: RemoteLogSegmentMetadata, size_bytes: int) -> None:
        """Count a fetch for its partition."""
        self._metrics.add_of(metadata.topic_id_partition, "fetches_total")
        self._metrics.add_of(metadata.topic_id_partition, "fetch_requested_bytes_total", size_bytes)

    def fetch_log_segment_waits(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> Waits[ViewStream]:
        """Fetch like ``fetch_log_segment``, for callers that drive the waits otherwise than in a waiting thread."""
        began, end = self._asked(metadata, start_position, end_position)
        opened = self._manifests.find(metadata)
        if opened is None:
            opened = yield from self._manifests.fetch(metadata)
        return self._stream(
            metadata, opened.log, start_position, end, is_whole_wanted=end_position is not None, began_seconds=began
        )

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

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> ViewStream:
        """Fetch the exact bytes of a part beside the log.

        Raises:
            ObjectNotFoundError: the segment has none (known from its description, without a request), or its objects
                are gone. Else as ``fetch_log_segment``.
        """
        return self._threads.run(self.fetch_index_waits(metadata, index_type))

    def fetch_index_waits(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> Waits[ViewStream]:
        """Fetch like ``fetch_index``, for callers that drive the waits otherwise than in a waiting thread."""
        opened = self._manifests.find(metadata)
        if opened is None:
            opened = yield from self._manifests.fetch(metadata)
        data = self._indexes.find(opened.segment, index_type)
        if data is None:
            data = yield from self._indexes.fetch(opened.segment, index_type)
        return bytes_stream(data, translate=self._translate)

    def find_cached_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes | None:
        """Return a part beside the log as ``find_index``; None too where the segment's description is not cached."""
        opened = self._manifests.find(metadata)
        return None if opened is None else self._indexes.find(opened.segment, index_type)

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

    def _open_next(self, metadata: RemoteLogSegmentMetadata, opened: Callable[[SegmentLog], None]) -> None:
        """Find the next segment and begin to describe it, in a thread that waits for the metadata alone."""
        following = self.next_segment(metadata)
        if following is None:
            return
        load = self._manifests.begin(following)

        def landed() -> None:
            self._manifests.leave(load)
            try:
                opened(load.result().log)
            except TierlogError:
                return  # its reader gets the error later

        load.add_done_callback(landed)
        load.run()
