"""Descriptions of segments, parsed and opened: one request a segment, however many ask."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, TypeVar

from tierlog.remote.api import RemoteLogSegmentId, RemoteLogSegmentMetadata
from tierlog.remote.storage.store_requests import Lane, ReadRequest, StoreRequests
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.remote.tier.chunks.stored_segment import SegmentLog, StoredSegment, open_log
from tierlog.remote.tier.layouts.segment_lookup import (
    DescriptionRead,
    FoundSegment,
    LookupSteps,
    SegmentLookup,
    run_lookup,
)
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Pool
from tierlog.runtime.waiting.waits import SharedLoad, SharedLoads, Waits
from tierlog.runtime.weighted_cache import UNBOUNDED, CacheFigures, WeightedCache

#: Bytes of a parsed description beside its chunk sizes: objects of Python, keys, names.
_OVERHEAD_BYTES: Final = 4096
#: One chunk of a variable index: its size, and where it begins.
_CHUNK_BYTES: Final = 12

#: The same segment may be described otherwise by other custom metadata.
_Key = tuple[RemoteLogSegmentId, int, bytes | None]


class OpenedSegment:
    """A segment's description, and its log once it is read. Any number of threads."""

    __slots__ = ("_key_ring", "_log", "segment")

    def __init__(self, segment: StoredSegment, key_ring: KeyRing) -> None:
        self.segment = segment
        self._key_ring = key_ring
        self._log: SegmentLog | None = None

    @property
    def log(self) -> SegmentLog:
        """The log, opened with its first use. Raises EncryptionKeyError: no key of the ring opens it."""
        if self._log is None:
            self._log = open_log(self._key_ring, self.segment)
        return self._log


_Load = SharedLoad[_Key, OpenedSegment]


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LoadingCache(Generic[Key, Value]):
    """A cache of objects read from the store, bounded by bytes; one load for all callers that want the same.

    Args:
        requests: Reads the objects.
        key_ring: Opens encrypted objects.
        pool: Parses or opens the objects.
        entries_max, size_bytes_max: -1 for no limit.
        retention_ms: After the last use; -1 for ever.
        timeout_seconds: How long one caller waits.
        machine: Its clock and locks.
        on_evict: Called with the number of evicted entries.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        requests: StoreRequests,
        key_ring: KeyRing,
        pool: Pool,
        *,
        size_bytes_max: int,
        retention_ms: int,
        timeout_seconds: float,
        machine: Machine,
        entries_max: int = UNBOUNDED,
        on_evict: Callable[[int], None] | None = None,
    ) -> None:
        self._requests = requests
        self._key_ring = key_ring
        self._pool = pool
        self._timeout_seconds = timeout_seconds
        self._metrics = requests.metrics
        self._cache: WeightedCache[Key, Value] = WeightedCache(
            size_bytes_max, machine=machine, retention_ms=retention_ms, entries_max=entries_max, on_evict=on_evict
        )
        self._under_way: SharedLoads[Key, Value] = SharedLoads(machine)

    @property
    def figures(self) -> CacheFigures:
        return self._cache.figures

    def resize(self, size_bytes_max: int) -> None:
        """Change the number of bytes that are cached at most; -1 for no limit."""
        self._cache.resize(size_bytes_max)

    def _loaded(self, load: SharedLoad[Key, Value], what: str) -> Waits[Value]:
        """The value of a load, for which the caller is counted as a reader until now."""
        try:
            yield self._requests.wait_of(load, what, self._timeout_seconds)
            return load.result()
        finally:
            self._under_way.leave(load)

    def _end(self, load: SharedLoad[Key, Value], work: Callable[[], None]) -> None:
        """Run what ends a load with its value; the waiters get an error, whatever it is."""
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - as above
            self._under_way.fail(load, error)


class ManifestCache(LoadingCache[_Key, OpenedSegment]):
    """A cache of parsed descriptions of segments, bounded by bytes and (as in the plugin) by entries.

    Args:
        lookup: Names the reads for a description.
        requests: Reads it.
        more: See LoadingCache.
    """

    def __init__(self, lookup: SegmentLookup, requests: StoreRequests, *more: Any, **limits: Any) -> None:
        super().__init__(requests, *more, **limits)
        self._lookup = lookup
        self._count_hit = requests.metrics.counting("cache_hits_total", "manifests")
        self._count_miss = requests.metrics.counting("cache_misses_total", "manifests")

    def find(self, metadata: RemoteLogSegmentMetadata) -> OpenedSegment | None:
        """Return the segment's description if it is cached; this does not wait."""
        found = self._cache.find(_key_of(metadata))
        if found is not None:
            self._count_hit()
        return found

    def peek(self, metadata: RemoteLogSegmentMetadata) -> OpenedSegment | None:
        """Find like ``find``, without counting as a use."""
        return self._cache.peek(_key_of(metadata))

    def fetch(self, metadata: RemoteLogSegmentMetadata) -> Waits[OpenedSegment]:
        """Return the segment's description, which ``find`` did not have.

        Raises:
            As SegmentLookup.steps; StoreUnavailableError if it is not there in time.
        """
        self._count_miss()
        return (yield from self._loaded(self.begin(metadata), f"the manifest of {metadata.remote_log_segment_id}"))

    def begin(self, metadata: RemoteLogSegmentMetadata) -> SharedLoad[_Key, OpenedSegment]:
        """Join the pending load, or begin one; a waiter also ``run``s and leaves it."""
        key = _key_of(metadata)
        load, is_new = self._under_way.join(key)
        if is_new:
            if (found := self._cache.peek(key)) is not None:  # it landed just now
                self._under_way.land(load, found)
            elif self._requests.store.is_local:
                load.offer(lambda: self._load_here(load, metadata))
            else:
                self._go_on(load, metadata, self._lookup.steps(metadata), None)
        return load

    def _load_here(self, load: _Load, metadata: RemoteLogSegmentMetadata) -> None:
        self._end(load, lambda: self._land(load, run_lookup(self._lookup.steps(metadata), self._read_here)))

    def _read_here(self, wanted: DescriptionRead) -> memoryview:
        return self._requests.read_here(wanted.key, 0, wanted.end_position_exclusive, wanted.name, is_exact=False)

    def _go_on(
        self,
        load: _Load,
        metadata: RemoteLogSegmentMetadata,
        steps: LookupSteps,
        answer: memoryview | BaseException | None,
    ) -> None:
        """Take the next step of a lookup, and request its object from the store."""
        try:
            if answer is None:
                wanted = next(steps)
            elif isinstance(answer, BaseException):
                wanted = steps.throw(answer)
            else:
                wanted = steps.send(answer)
        except StopIteration as end:
            self._land(load, end.value)
        except BaseException as error:  # noqa: BLE001 - as above
            self._under_way.fail(load, error)
        else:
            self._requests.start(
                ReadRequest(
                    wanted.key,
                    0,
                    wanted.end_position_exclusive,
                    name=wanted.name,
                    lane=Lane.DESCRIPTIONS,
                    turn=metadata.topic_id_partition,
                    on_answer=lambda found: self._came(load, metadata, steps, found),
                    is_exact=False,
                    before=lambda _: self._requests.note_sent(load),
                )
            )

    def _came(
        self,
        load: _Load,
        metadata: RemoteLogSegmentMetadata,
        steps: LookupSteps,
        answer: memoryview | BaseException,
    ) -> None:
        """Take an answer in the store's thread, which must not parse it."""
        if isinstance(answer, BaseException):
            self._go_on(load, metadata, steps, answer)
        else:
            self._under_way.continue_in(self._pool, load, lambda: self._go_on(load, metadata, steps, answer))

    def _land(self, load: _Load, found: FoundSegment) -> None:
        """Cache the found description, and land the load."""
        opened = OpenedSegment(found.segment, self._key_ring)
        self._cache.put(load.key, opened, _size_of(found.segment, len(found.description)))
        self._under_way.land(load, opened)

    def leave(self, load: _Load) -> None:
        """Note that a waiter has left a load."""
        self._under_way.leave(load)

    def forget(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Drop a segment that is gone, whatever its custom metadata said."""
        gone = metadata.remote_log_segment_id
        self._cache.remove_where(lambda key: key[0] == gone)


def _key_of(metadata: RemoteLogSegmentMetadata) -> _Key:
    return metadata.remote_log_segment_id, metadata.start_offset, metadata.custom_metadata


def _size_of(segment: StoredSegment, description_bytes: int) -> int:
    chunks = segment.chunk_index.chunk_count if segment.chunk_index is not None and segment.compression else 0
    return _OVERHEAD_BYTES + min(description_bytes, _OVERHEAD_BYTES) + chunks * _CHUNK_BYTES
