"""Reading stored segments: ranges of their logs and their indexes, through the caches of one store.

The caches, the memory and the threads of all that are made here, once for a storage manager or a server.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from tierlog._native.files import ReadyFile
from tierlog.errors import ConfigError, CorruptDataError, CorruptObjectError, StoreError, TierlogError
from tierlog.remote.api import IndexType, InvalidRangeError, RemoteLogSegmentMetadata
from tierlog.remote.config import StorageConfig
from tierlog.remote.storage.cache.chunk_cache import ChunkCache, MemoryChunkCache
from tierlog.remote.storage.cache.disk_chunk_cache import DiskChunkCache
from tierlog.remote.storage.cache.index_cache import IndexCache
from tierlog.remote.storage.fetch.chunk_loads import ChunkFetcher
from tierlog.remote.storage.fetch.prefetch import AheadLoads, Prefetcher
from tierlog.remote.storage.fetch.range_reader import BatchCheck, RangeReader, StreamLimits
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.remote.storage.store_requests import BLOCKING_THREADS, StoreRequests
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.remote.tier.chunks.stored_segment import PIECE_BYTES, LogVersion, SegmentLog, StoredSegment, open_log
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.machine.cancelling import ended_by_scopes, require_wanted
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.rate_limiter import RateLimiter
from tierlog.runtime.waiting.turns import MemoryBudget
from tierlog.runtime.waiting.waits import Interrupt, SharedLoad, WaitingThreads, Waits, forget_frames
from tierlog.runtime.weighted_cache import UNBOUNDED, CacheFigures, WeightedCache

#: Logs that were opened.
_LOGS_MAX: Final = 4096
#: Chunks of one read: a hostile description may say that a chunk is one byte, and a million of them take a second.
_CHUNKS_MAX: Final = 512
#: So much is copied out of the page cache by the thread that reads, an event loop's too: some 0.1 ms a mebibyte.
_READY_BYTES_MAX: Final = 2 << 20
#: Files that answers on their way to clients hold open at once; parts of one segment share one.
_OPEN_FILES_MAX: Final = 256
#: Pieces of local logs that are remembered where the cache has no bound.
_RECENT_MAX: Final = 65536
Result = TypeVar("Result")
#: A function from a segment to the one behind it: None if there is none, or it is unknown. It may open keys.
NextLog = Callable[[RemoteLogSegmentMetadata], SegmentLog | None]


def _cached_pieces_max(config: StorageConfig) -> int:
    """Return the number of pieces of plain logs for which the cache in memory has room."""
    size = config.fetch_chunk_cache_size
    if config.fetch_chunk_cache_class != "memory" or size is None:
        return 0
    return _RECENT_MAX if size < 0 else min(size // PIECE_BYTES, _RECENT_MAX)


class RecentPieces:
    """The pieces at which reads began last. Any number of threads.

    Args:
        pieces_max: So many, as the cache has room for: a reader of more than that, over and over, is always new.
        machine: Its locks.
    """

    def __init__(self, pieces_max: int, machine: Machine) -> None:
        self._lock = machine.scheduler.lock()
        self._pieces_max = pieces_max
        self._pieces: dict[Hashable, bool | None] = {}

    def note(self, piece: Hashable) -> bool:
        """Note that a read begins in a piece. Whether it is new: no read began there while it was remembered."""
        pieces = self._pieces
        with self._lock:
            is_new = pieces.pop(piece, True) is not None
            pieces[piece] = None  # the newest is last
            if len(pieces) > self._pieces_max:
                del pieces[next(iter(pieces))]
        return is_new


class SegmentReader:
    """The reader of one store's segments: (segment, position) to bytes.

    Args:
        store: Where their objects are.
        config: Its caches and limits.
        key_ring: Opens those that are encrypted.
        limiter: Of downloads; None for no limit.
        machine: Its clock, threads and files.
        metrics: Where it counts.

    Attributes:
        next_log: Set by an owner that knows the order of segments, so that prefetch crosses the border; called in a
            thread of its own.

    Raises:
        ConfigError: the disk cache's directory cannot be used.

    Thread safety: any number of threads; no lock is held across a call of the store.
    """

    def __init__(
        self,
        store: ObjectStore,
        config: StorageConfig,
        key_ring: KeyRing,
        *,
        limiter: RateLimiter | None = None,
        machine: Machine | None = None,
        metrics: StorageMetrics | None = None,
    ) -> None:
        machine = machine or Machine()
        self.next_log: NextLog = lambda _: None
        self._machine = machine
        self._threads = WaitingThreads(machine)
        self._config = config
        self._metrics = metrics = metrics or StorageMetrics()
        self._key_ring = key_ring
        self._cache = make_chunk_cache(
            config,
            machine,
            self._count_evictions,
            lambda: metrics.add("cache_damaged_total", label="chunks_disk"),
        )
        self._opened = make_opened_cache(config, machine, self._count_evictions)
        self._requests = requests = StoreRequests(
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
            opened=self._opened,
            budget=self._budget,
            machine=machine,
            request_bytes_max=config.fetch_request_max_bytes,
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
        self._count_hits = metrics.counting("cache_hits_total", "chunks_memory")
        self._count_hit_bytes = metrics.counting("cache_hit_bytes_total", "chunks_memory")
        #: Each knows where its chunks lie, and a key.
        self._logs: WeightedCache[LogVersion, SegmentLog] = WeightedCache(
            UNBOUNDED, machine=machine, entries_max=_LOGS_MAX
        )
        self._recent = RecentPieces(_cached_pieces_max(config), machine)
        self._files: weakref.WeakValueDictionary[LogVersion, ReadyFile] = weakref.WeakValueDictionary()
        self._ask_for_size("indexes", lambda: self._indexes.figures)
        for cache in (self._cache, self._opened):
            if cache is not None:
                self._ask_for_size(cache.label, partial(_figures_of, cache))

    def open_log(self, segment: StoredSegment) -> SegmentLog:
        """Return the log of a segment, for the calls below. Opens its key: work for a thread where it is encrypted.

        Raises:
            EncryptionKeyError: no key of the ring opens it.
        """
        return open_log(self._key_ring, segment)

    @property
    def has_memory_cache(self) -> bool:
        """Whether chunks are cached in memory, so that ``find_range`` may find them."""
        return self._chunks.in_memory is not None

    def find_range(self, log: SegmentLog, start: int, end_exclusive: int, *, again: bool) -> list[memoryview] | None:
        """Return the bytes of a range whose chunks are all in the cache in memory; None if one is not. Does not wait.
        The views are the chunks' own memory, which stays as it is when the cache drops them.

        Args:
            log: Of ``open_log``.
            start: First byte, in the original log; 0 <= start < end_exclusive <= ``log.size_bytes``.
            end_exclusive: Behind the last byte.
            again: The same reader asked for the first chunk just before.

        Raises:
            CorruptObjectError: the log's description says that a chunk is larger than one can be.
        """
        cache = self._chunks.in_memory
        if cache is None:
            return None
        views = log.views(start, end_exclusive)
        if log.key(views[-1]) not in cache:  # the first chunk that a sequential reader lacks
            return None
        found: list[memoryview] = []
        hit_bytes = 0
        for view in views:
            data = cache.find(log.key(view), again=again and not found)
            if data is None:
                return None
            found.append(data[view.start : view.end])
            hit_bytes += len(data)
        self._count_hits(len(found))
        self._count_hit_bytes(hit_bytes)
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
        """Return the bytes of a range in memory of their own, read in this thread past the caches.

        Raises:
            CorruptObjectError: the file ends before. ObjectNotFoundError. StoreError and its kinds.
        """
        self._count_fetch()
        self._count_requested(end_exclusive - start)
        out = new_buffer(end_exclusive - start)
        self._chunks.read_into(log, start, out)
        self._count_returned(end_exclusive - start)
        return out.toreadonly()

    def note_ready(self, size_bytes: int) -> None:
        """Count a fetch of so many bytes of a file of ``ready_file``, read past the caches."""
        self._count_fetch()
        self._count_requested(size_bytes)
        self._count_returned(size_bytes)
        self._metrics.count_fetched(size_bytes)

    def read_range_waits(
        self, log: SegmentLog, start: int, end_exclusive: int, *, least_bytes: int, closing: Interrupt | None = None
    ) -> Waits[list[memoryview]]:
        """Read the bytes of a range, as the views of its chunks: from the cache, or from loads that all readers share.

        Batches are not checked. Fewer bytes, ``least_bytes`` at least, come where the following ones are missing or
        damaged: the next read from there on raises the error.

        Args:
            log: Of ``open_log``.
            start: First byte, in the original log; 0 <= start < end_exclusive <= ``log.size_bytes``.
            end_exclusive: Behind the last byte.
            least_bytes: Without which the caller cannot go on; > 0.
            closing: Of the driver; set when the read is cancelled.

        Raises: as a stream of ``fetch_log_segment``, when it is read; CancelledReadError: a block of the thread was
            cancelled.
        """
        metadata = log.segment.metadata
        began, end = self._asked(metadata, start, end_exclusive - 1)
        found: list[memoryview] = []
        reader, closed = self._reader(
            metadata, log, start, end, is_whole_wanted=True, began_seconds=began, closing=closing
        )
        try:
            with ended_by_scopes(reader.close):
                while left := reader.left_bytes:
                    found.append((yield from reader.take_waits(left)))
        except ValueError:  # it was closed
            require_wanted()
            raise
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
        """Return a part of a segment beside its log if it is cached, else None; b"" for an empty one. Does not wait.

        Raises:
            ObjectNotFoundError: the segment has none.
        """
        return self._indexes.find(segment, index_type)

    def read_index_waits(self, segment: StoredSegment, index_type: IndexType) -> Waits[bytes]:
        """Return a part of a segment beside its log, which ``find_index`` did not have.

        Raises:
            ObjectNotFoundError: its object is gone. Else as ``fetch_index``.
        """
        return self._indexes.fetch(segment, index_type)

    def resize_index_cache(self, size_bytes_max: int) -> None:
        """Change the number of bytes of indexes that are cached at most; -1 for no limit."""
        self._indexes.resize(size_bytes_max)

    def forget_indexes(self, segment: StoredSegment) -> None:
        """Drop the indexes of a segment that has grown."""
        self._indexes.forget(segment.log.key)

    # --- for servers: as code that yields its waits ---

    def in_a_thread(self, what: str, call: Callable[[], Result]) -> Waits[Result]:
        """Return the result of a blocking call, or raise its error.

        Args:
            what: The name of the call, for an error's message.
            call: Made once, by the thread that waits or, for an event loop, by one of its Worker.
        """
        load: SharedLoad[str, Result] = SharedLoad(what, self._machine.scheduler.lock(), readers=1)

        def work() -> None:
            try:
                load.end(call(), None)
            except BaseException as error:  # noqa: BLE001 - raised by ``result``
                load.end(None, error)

        load.offer(work)
        yield self._requests.wait_of(load, what, self._limits.timeout_seconds)
        return load.result()

    def log_waits(self, segment: StoredSegment) -> Waits[SegmentLog]:
        """Return the log of a segment, opened once.

        Raises:
            EncryptionKeyError: no key of the ring opens it.
        """
        found = self._logs.find(segment.log_version)
        if found is None:
            # A key is opened, and all places of chunks are looked at: milliseconds of a large segment.
            opened = partial(self.opened, segment)
            found = (yield from self.in_a_thread(segment.name, opened)) if segment.transformed else opened()
        return found

    def opened(self, segment: StoredSegment) -> SegmentLog:
        """Open a log like ``log_waits``, in the calling thread."""
        found = self._logs.find(segment.log_version)
        if found is None:
            found = self.open_log(segment)
            self._logs.put(segment.log_version, found, 0)
        return found

    def read_waits(
        self, log: SegmentLog, start: int, end_exclusive: int, *, least_bytes: int, again: bool
    ) -> Waits[list[memoryview]]:
        """Read the bytes of a range of a log, as views that stay as they are for as long as they are referenced.

        A plain file of this machine is read past the cache, at once if the system has all of the bytes in memory, else
        by a thread; unless the same piece of it was read shortly before: then it is cached for others.

        Args:
            log: Of ``log_waits``.
            start: First byte, in the original log; 0 <= start < end_exclusive <= ``log.size_bytes``.
            end_exclusive: Behind the last byte.
            least_bytes: Fewer bytes than the range has may come, where what follows is not there; so many at least.
            again: The same reader asked for the first chunk just before.

        Raises:
            StoreUnavailableError: not there in time; pending loads land in the cache. Else as ``read_range_waits``.
        """
        end = min(end_exclusive, start + _CHUNKS_MAX * log.chunk_size)
        # The nearest piece: a reader that reads on by mebibytes begins a little before the border of each.
        piece = (log.segment.log.key, (start + log.chunk_size // 2) // log.chunk_size)
        if self.reads_directly(log) and self._recent.note(piece):
            if end - start <= _READY_BYTES_MAX:
                file = self._open_ready(log)
                ready = None if file is None else self.copy_ready(log, file, start, end)
                if ready is not None:
                    return [ready]
            with suppress(CorruptObjectError):  # the file ends before: piece by piece all comes that it has
                read = partial(self.read_directly, log, start, end)
                return [(yield from self.in_a_thread(log.name, read))]
        found = self.find_range(log, start, end, again=again)
        if found is None:
            found = yield from self.read_range_waits(log, start, end, least_bytes=min(least_bytes, end - start))
        return found

    def ready_file(self, log: SegmentLog) -> ReadyFile | None:
        """Return the file of a log that is a plain file of this machine and is not written to, open; its bytes begin at
        ``log.file_position``. None where there is none to be had at once.
        """
        return self._open_ready(log) if log.segment.closed else None

    def _open_ready(self, log: SegmentLog) -> ReadyFile | None:
        if not self.reads_directly(log):
            return None
        version = log.segment.log_version
        file = self._files.get(version)
        if file is None and len(self._files) < _OPEN_FILES_MAX:
            file = self._requests.open_ready(log.segment.log.key)
            if file is not None:
                self._files[version] = file
        return file

    def copy_ready(self, log: SegmentLog, file: ReadyFile, start: int, end_exclusive: int) -> memoryview | None:
        """Return the bytes of a range, as of ``read_waits``, in memory of their own, if the system has all of them in
        memory.

        ``file`` is that of ``ready_file``.
        """
        out = new_buffer(end_exclusive - start)
        if file.read_ready_into(out, log.file_position + start) < len(out):
            return None
        self.note_ready(len(out))
        return out.toreadonly()

    def offset_index_waits(self, log: SegmentLog) -> Waits[bytes | memoryview | None]:
        """Return a segment's offset index; raises as ``index_waits``."""
        return (yield from self.index_waits(log.segment, IndexType.OFFSET))

    def index_waits(self, segment: StoredSegment, index_type: IndexType) -> Waits[bytes | None]:
        """Return a part of a segment beside its log; None if it has none.

        Raises:
            StoreUnavailableError: not there in time. ObjectNotFoundError, CorruptObjectError, EncryptionKeyError,
                StoreError and its kinds.
        """
        if segment.part(index_type) is None:
            return None
        found = self.find_index(segment, index_type)
        return (yield from self.read_index_waits(segment, index_type)) if found is None else found

    def _asked(self, metadata: RemoteLogSegmentMetadata, start: int, end_position: int | None) -> tuple[float, int]:
        """Count a fetch. Returns when it began and where its range ends; raises as ``fetch_log_segment``."""
        began = self._machine.clock.monotonic_seconds()
        end = _end_of(metadata, start, end_position)
        self._count_fetch()
        self._count_requested(end - start)
        self._metrics.add_of(metadata.topic_id_partition, "fetches_total")
        self._metrics.add_of(metadata.topic_id_partition, "fetch_requested_bytes_total", end - start)
        return began, end

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
        closing: Interrupt | None = None,
    ) -> tuple[RangeReader, Callable[[int], None]]:
        """Make a reader of a range, and the function that its close calls with the bytes read."""
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
            closing=closing,
        )

        def closed(size_bytes: int) -> None:
            self._count_returned(size_bytes)
            if progress is not None:
                progress(start + size_bytes, reader.requested)

        return reader, closed

    def close(self) -> None:
        """End readers and requests with an error, release the disk cache; idempotent."""
        self._chunks.close()
        self._prefetcher.close()
        for cache in (self._cache, self._opened):
            if cache is not None:
                cache.close()

    def _open_next(self, metadata: RemoteLogSegmentMetadata, opened: Callable[[SegmentLog], None]) -> None:
        """Find the next segment, in a thread of its own, and hand its log on."""
        log = self.next_log(metadata)
        if log is not None:
            opened(log)

    def _count_evictions(self, label: str, count: int) -> None:
        self._metrics.add("cache_evictions_total", count, label=label)

    def _ask_for_size(self, label: str, ask: Callable[[], CacheFigures]) -> None:
        self._metrics.ask("cache_bytes", lambda: ask().size_bytes, label=label)


def _end_of(metadata: RemoteLogSegmentMetadata, start: int, end_position: int | None) -> int:
    """Return the end of the range, exclusive."""
    size = metadata.segment_size_in_bytes
    if start < 0 or (end_position is not None and end_position < start):
        asked = f"positions {start} … {end_position} are no range of a segment"
        raise InvalidRangeError(f"{metadata.remote_log_segment_id}: {asked}")
    if start >= size:
        raise InvalidRangeError(
            f"{metadata.remote_log_segment_id}: start position {start} lies behind its {size} bytes"
        )
    return size if end_position is None else min(end_position + 1, size)


def _figures_of(cache: ChunkCache) -> CacheFigures:
    return cache.figures


def make_opened_cache(
    config: StorageConfig, machine: Machine, count_evictions: Callable[[str, int], None]
) -> MemoryChunkCache | None:
    """Return the cache of opened chunks in front of one on a disk; None where there is no such cache."""
    size = config.fetch_chunk_cache_memory_size
    if config.fetch_chunk_cache_class != "disk" or not size:
        return None
    return MemoryChunkCache(
        size,
        machine=machine,
        retention_ms=config.fetch_chunk_cache_retention_ms,
        on_evict=lambda count: count_evictions("chunks_memory", count),
    )


def make_chunk_cache(
    config: StorageConfig,
    machine: Machine,
    count_evictions: Callable[[str, int], None],
    on_damage: Callable[[], None],
) -> ChunkCache | None:
    """Return the configured cache; None for none. Raises ConfigError."""
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
