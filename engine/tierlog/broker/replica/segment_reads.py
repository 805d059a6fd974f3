"""Bytes and indexes of a tier's segments for all partitions of a server: one fetcher, one set of caches and threads."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from tierlog._native.files import ReadyFile
from tierlog.errors import CorruptObjectError
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata, TopicIdPartition
from tierlog.remote.config import StorageConfig, read_storage_config
from tierlog.remote.storage.fetch.segment_reader import SegmentReader
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.remote.tier.chunks.stored_segment import PIECE_BYTES, SegmentLog, StoredSegment
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.rate_limiter import RateLimiter
from tierlog.runtime.waiting.loops import SingleCalls, Worker
from tierlog.runtime.waiting.waits import WaitingThreads
from tierlog.runtime.weighted_cache import UNBOUNDED, WeightedCache
from tierlog.serving.response_writer import FilePart

#: What a server has where the configuration does not say it: 256 MiB of chunks in memory (``fetch.chunk.cache.class``
#: and ``.size``; a size of 0 caches nothing), and 64 MiB of indexes (``fetch.indexes.cache.size``), since every read
#: that does not go on behind the last one needs one.
CHUNK_CACHE_BYTES: Final = 256 << 20
INDEX_CACHE_BYTES: Final = 64 << 20
#: Threads that read a disk and open chunks, and those of searches, which may wait for a store.
_READ_THREADS: Final = 16
_LOOKUP_THREADS: Final = 16
#: Logs that were opened: each knows where its chunks lie, and a key.
_LOGS_MAX: Final = 4096
#: Chunks of one read: a hostile description may say that a chunk is one byte, and a million of them take a second.
_CHUNKS_MAX: Final = 512
#: So much is copied out of the page cache on the event loop: some 0.1 ms a mebibyte.
_READY_BYTES_MAX: Final = 2 << 20
#: Files that answers on their way to clients hold open at once; parts of one segment share one.
_OPEN_FILES_MAX: Final = 256
#: Pieces of local logs that are remembered where the cache has no bound.
_RECENT_MAX: Final = 65536
#: What a search reads of a log at once.
_WINDOW_BYTES: Final = 1 << 20
#: Key, size and time of change of a log.
LogVersion = tuple[str, int, int]
#: Which segment follows another one.
NextStoredSegment = Callable[[RemoteLogSegmentMetadata], StoredSegment | None]
Result = TypeVar("Result")


def log_version(segment: StoredSegment) -> LogVersion:
    """Key, size and time of change of a segment's log: a broker's log grows, or is cut and written anew."""
    return segment.log.key, segment.size_bytes, segment.last_modified_ms


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


def _cached_pieces_max(config: StorageConfig) -> int:
    """How many pieces of plain logs the cache in memory has room for."""
    size = config.fetch_chunk_cache_size
    if config.fetch_chunk_cache_class != "memory" or size is None:
        return 0
    return _RECENT_MAX if size < 0 else min(size // PIECE_BYTES, _RECENT_MAX)


class RecentPieces:
    """The pieces at which reads began last. Used on one thread.

    Args:
        pieces_max: So many, as the cache has room for: a reader of more than that, over and over, is always new.
    """

    def __init__(self, pieces_max: int) -> None:
        self._pieces_max = pieces_max
        self._pieces: dict[Hashable, None] = {}

    def note(self, piece: Hashable) -> bool:
        """Note that a read begins in a piece. Whether it is new: no read began there while it was remembered."""
        pieces = self._pieces
        if piece in pieces:
            del pieces[piece]  # the newest is last
            pieces[piece] = None
            return False
        pieces[piece] = None
        if len(pieces) > self._pieces_max:
            del pieces[next(iter(pieces))]
        return True


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
        checks_batches: Whether batches are checked before they are sent: ``fetch.check.batches.enabled``.

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
        self._recent = RecentPieces(_cached_pieces_max(config))
        self._files: weakref.WeakValueDictionary[LogVersion, ReadyFile] = weakref.WeakValueDictionary()
        self.worker = Worker(machine.scheduler.pool(_READ_THREADS, name="tierlog-replica-read"), machine)
        self.checks_batches = config.fetch_check_batches_enabled
        self._lookups = Worker(machine.scheduler.pool(_LOOKUP_THREADS, name="tierlog-replica-lookup"), machine)
        self._logs: WeightedCache[LogVersion, SegmentLog] = WeightedCache(
            UNBOUNDED, machine=machine, entries_max=_LOGS_MAX
        )

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
        return None if segment is None else self._opened(segment)

    def deadline(self) -> float:
        """When a read that begins now is late, by the machine's monotonic clock, seconds: a client waits no longer."""
        return self._machine.clock.monotonic_seconds() + self._timeout_seconds

    async def log(self, segment: StoredSegment) -> SegmentLog:
        """The log of a segment, opened once.

        Raises:
            EncryptionKeyError: no key of the ring opens it.
        """
        found = self._logs.find(log_version(segment))
        if found is None:
            # A key is opened, and all places of chunks are looked at: milliseconds of a large segment.
            is_work = segment.transformed
            found = await self.worker.run(partial(self._opened, segment)) if is_work else self._opened(segment)
        return found

    def _opened(self, segment: StoredSegment) -> SegmentLog:
        key = log_version(segment)
        found = self._logs.find(key)
        if found is None:
            found = self._fetcher.open_log(segment)
            self._logs.put(key, found, 0)
        return found

    async def read(
        self, log: SegmentLog, start: int, end_exclusive: int, *, least_bytes: int, again: bool, until_seconds: float
    ) -> list[memoryview]:
        """The bytes of a range of a log, as views that stay as they are for as long as they are referenced.

        A plain file of this machine is read past the cache, here if the system has all of the bytes in memory, else by
        a thread; unless the same piece of it was read shortly before: then it is cached for others.

        Args:
            log: Of ``log``.
            start: First byte, in the original log; 0 <= start < end_exclusive <= ``log.size_bytes``.
            end_exclusive: Behind the last byte.
            least_bytes: Fewer bytes than the range has may come, where what follows is not there; so many at least.
            again: The same reader asked for the first chunk just before.
            until_seconds: Of ``deadline``.

        Raises:
            StoreUnavailableError: not there in time; what is under way lands in the cache. Else as
                ``SegmentReader.read_range_waits``.
        """
        end = min(end_exclusive, start + _CHUNKS_MAX * log.chunk_size)
        # The nearest piece: a reader that reads on by mebibytes begins a little before the border of each.
        piece = (log.segment.log.key, (start + log.chunk_size // 2) // log.chunk_size)
        if self._fetcher.reads_directly(log) and self._recent.note(piece):
            if end - start <= _READY_BYTES_MAX:
                file = self.ready_file(log)
                ready = None if file is None else self.copy_ready(log, file, start, end)
                if ready is not None:
                    return [ready]
            left = until_seconds - self._machine.clock.monotonic_seconds()
            read = partial(self._fetcher.read_directly, log, start, end)
            with suppress(CorruptObjectError):  # the file ends before: piece by piece all comes that it has
                return [await self.worker.run(read, seconds=max(left, 0.0))]
        found = self._fetcher.find_range(log, start, end, again=again)
        if found is None:
            waits = self._fetcher.read_range_waits(log, start, end, least_bytes=min(least_bytes, end - start))
            found = await self.worker.drive(waits, until_seconds=until_seconds)
        return found

    def ready_file(self, log: SegmentLog) -> ReadyFile | None:
        """The file of a log that is a plain file of this machine, open; None where there is none to be had at once."""
        if not self._fetcher.reads_directly(log):
            return None
        version = log_version(log.segment)
        file = self._files.get(version)
        if file is None and len(self._files) < _OPEN_FILES_MAX:
            file = self._fetcher.open_ready(log)
            if file is not None:
                self._files[version] = file
        return file

    def copy_ready(self, log: SegmentLog, file: ReadyFile, start: int, end_exclusive: int) -> memoryview | None:
        """The bytes of a range, as of ``read``, in memory of their own, if the system has all of them in memory.

        ``file`` is that of ``ready_file``.
        """
        out = new_buffer(end_exclusive - start)
        if file.read_ready_into(out, log.segment.log.position + start) < len(out):
            return None
        self._fetcher.note_ready(len(out))
        return out.toreadonly()

    def part_of(self, log: SegmentLog, file: ReadyFile, start: int, end_exclusive: int) -> FilePart:
        """A range, as of ``read``, as a part of the file of ``ready_file``."""
        self._fetcher.note_ready(end_exclusive - start)
        position = log.segment.log.position + start
        return FilePart(file, position=position, size_bytes=end_exclusive - start, worker=self.worker)

    async def index(self, segment: StoredSegment, index_type: IndexType, *, until_seconds: float) -> bytes | None:
        """A part of a segment beside its log; None if it has none.

        Raises:
            StoreUnavailableError: not there in time. ObjectNotFoundError, CorruptObjectError, EncryptionKeyError,
                StoreError and its kinds.
        """
        if segment.part(index_type) is None:
            return None
        found = self._fetcher.find_index(segment, index_type)
        if found is None:
            waits = self._fetcher.read_index_waits(segment, index_type)
            found = await self.worker.drive(waits, until_seconds=until_seconds)
        return found

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
