"""Chunks for readers: from the cache, from a download that is under way, or by one request for neighbouring ones.

Every chunk that is fetched is fetched once, however many ask. Who leaves does not end a download: it lands in the
cache; where there is none, the last who leaves ends it. Downloads run in threads of their own, those ahead of readers
in fewer; chunks of one download are opened side by side, each into memory of its own.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from tierlog.errors import CorruptObjectError
from tierlog.remote.storage.chunk_cache import ChunkCache
from tierlog.remote.storage.chunk_runs import ChunkFlight, ChunkRun, MissingChunk, neighbours
from tierlog.remote.storage.downloads import Downloads
from tierlog.remote.storage.segment_log import ChunkKey, ChunkView, SegmentLog
from tierlog.remote.storage.single_flight import Flights, closed_error
from tierlog.runtime.buffers import new_buffer
from tierlog.runtime.cancelling import CancelScope, cancelled_by
from tierlog.runtime.machine import Machine
from tierlog.runtime.scheduling import Future, Pool

#: A local store has no round trips to save: small requests keep more threads at work.
LOCAL_REQUEST_BYTES: Final = 1 << 20
#: Chunks fetched ahead that nobody asked for yet, remembered for the metrics.
_AWAITED_MAX: Final = 65536

ChunkSource = memoryview | ChunkFlight


class ChunkFetcher:
    """See the module.

    Args:
        downloads: Of the objects.
        cache: Of chunks; None keeps nothing.
        machine: Its threads.
        threads: Downloads under way at once, for readers; as many again ahead of them, halved.
        request_bytes_max: Original bytes of one request.

    Thread safety: any number of threads; no lock is held across a store call.
    """

    def __init__(
        self,
        downloads: Downloads,
        *,
        cache: ChunkCache | None,
        machine: Machine,
        threads: int,
        request_bytes_max: int,
    ) -> None:
        scheduler = self._scheduler = machine.scheduler
        self._downloads = downloads
        self._metrics = downloads.metrics
        self._cache = cache
        self._request_bytes_max = LOCAL_REQUEST_BYTES if self.is_local else request_bytes_max
        self._flights: Flights[ChunkKey, memoryview] = Flights(machine)
        self._pool = scheduler.pool(threads, name="tierlog-fetch")
        self._ahead_pool = scheduler.pool(max(1, threads // 2) if threads else 0, name="tierlog-ahead")
        self._open_pool = scheduler.pool(scheduler.cores if threads else 0, name="tierlog-open")
        self._lock = scheduler.lock()
        self._waiting: dict[ChunkFlight, ChunkRun] = {}  # ahead of readers, not begun
        self._awaited: collections.OrderedDict[ChunkKey, int] = collections.OrderedDict()

    @property
    def is_local(self) -> bool:
        """Whether a request is a read of a disk."""
        return self._downloads.store.is_local

    @property
    def cache(self) -> ChunkCache | None:
        return self._cache

    @property
    def downloads(self) -> Downloads:
        return self._downloads

    @property
    def pool(self) -> Pool:
        """For loads that a reader waits for."""
        return self._pool

    @property
    def ahead_pool(self) -> Pool:
        """For what nobody waits for yet."""
        return self._ahead_pool

    def request(
        self,
        log: SegmentLog,
        views: Sequence[ChunkView],
        *,
        is_wanted: Callable[[], bool],
        again: bool = False,
    ) -> list[ChunkSource]:
        """Each chunk, or the flight of it, which is then waited for or left; this waits for nothing.

        Of the last one only what the range needs, where no cache wants all of it: who reads a mebibyte pays for
        decompressing that, and not for four.

        Args:
            log: Of the chunks.
            views: Neighbouring ones, ascending.
            is_wanted: Asked before a download begins that no cache would keep; it must not wait. Of one that is not
                wanted any more the futures are never done.
            again: The first one was asked for by the same reader just before.
        """
        if self._cache is None and log.segment.compression:
            views = [*views[:-1], self._shortened(log, views[-1])]
        found: list[ChunkSource] = []
        missing: list[MissingChunk] = []
        promoted: dict[int, ChunkRun] = {}
        hits = hit_bytes = 0
        for position, view in enumerate(views):
            key = log.key(view)
            data = self._find(key, again=again and position == 0)
            if data is not None:
                found.append(data)
                hits, hit_bytes = hits + 1, hit_bytes + len(data)
                continue
            flight, is_new = self._flights.join(key)
            found.append(flight)
            if is_new:
                missing.append(MissingChunk(view, flight, self._is_on_disk(key)))
            elif (run := self._waiting.get(flight)) is not None:
                promoted[id(run)] = run
        self._count_lookups(hits, hit_bytes, len(views) - hits)
        self._note_taken(log, views)
        for run in promoted.values():
            self._submit(run, self._pool)
        for run in self._runs(log, missing, is_wanted, ahead=False):
            self._submit(run, self._pool)
        return found

    def leave(self, flights: Iterable[ChunkFlight]) -> None:
        """A reader waits for these no more. Without a cache, a download that nobody waits for ends with this call."""
        if self._cache is None:
            for flight in flights:
                self._flights.leave(flight)

    def _end_unwanted(self, run: ChunkRun) -> None:
        if self._flights.abandon(run.flights):
            run.scope.cancel()

    def request_ahead(self, log: SegmentLog, views: Sequence[ChunkView], is_wanted: Callable[[], bool]) -> int:
        """Bring chunks into the cache that no reader asked for yet; those that are there or under way are left out.

        Args:
            log: Of the chunks.
            views: Neighbouring ones, ascending.
            is_wanted: Asked once more before a download begins; it must not wait.

        Returns:
            Original bytes that are fetched.
        """
        if self._cache is None:
            return 0
        missing = []
        for view in views:
            key = log.key(view)
            if not self._cache.holds(key) and (flight := self._flights.begin(key)) is not None:
                missing.append(MissingChunk(view, flight))
        runs = self._runs(log, missing, is_wanted, ahead=True)
        with self._lock:
            self._waiting.update((flight, run) for run in runs for flight in run.flights)
        for run in runs:
            self._submit(run, self._ahead_pool)
        return sum(chunk.view.original_size for chunk in missing)

    def fetch_plain(self, log: SegmentLog, start: int, end_exclusive: int) -> memoryview:
        """A range of a log that is stored as it is, in this thread, past the cache."""
        position = log.segment.log.position
        return self._get(log, position + start, position + end_exclusive)

    def start_plain(self, log: SegmentLog, start: int, end_exclusive: int, scope: CancelScope) -> Future[memoryview]:
        """The same, in a thread of the pool, until the scope is cancelled. Raises StoreUnavailableError after close."""

        def work() -> memoryview:
            with cancelled_by(scope):
                return self.fetch_plain(log, start, end_exclusive)

        try:
            return self._pool.submit(work)
        except RuntimeError:
            raise closed_error() from None

    def _shortened(self, log: SegmentLog, view: ChunkView) -> ChunkView:
        """Without what lies behind the range, unless somebody decompresses all of it already."""
        is_whole = view.end == view.original_size or log.key(view) in self._flights
        return view if is_whole else view._replace(until=view.end)

    def _find(self, key: ChunkKey, *, again: bool) -> memoryview | None:
        """Of a cache that answers at once."""
        if self._cache is None or self._cache.is_slow:
            return None
        return self._cache.find(key, again=again)

    def _is_on_disk(self, key: ChunkKey) -> bool:
        return self._cache is not None and self._cache.is_slow and self._cache.holds(key)

    def _count_lookups(self, hits: int, hit_bytes: int, misses: int) -> None:
        if self._cache is None or self._cache.is_slow:
            return
        label = self._cache.label
        self._metrics.add("cache_hits_total", hits, label=label)
        self._metrics.add("cache_hit_bytes_total", hit_bytes, label=label)
        self._metrics.add("cache_misses_total", misses, label=label)

    def _note_taken(self, log: SegmentLog, views: Sequence[ChunkView]) -> None:
        if self._awaited:
            with self._lock:
                for view in views:
                    self._awaited.pop(log.key(view), None)

    def _runs(
        self, log: SegmentLog, missing: Sequence[MissingChunk], is_wanted: Callable[[], bool], *, ahead: bool
    ) -> list[ChunkRun]:
        made = [
            ChunkRun(log, part, ahead, is_wanted, CancelScope(self._scheduler))
            for part in neighbours(missing, size_bytes_max=self._request_bytes_max)
        ]
        if self._cache is None:
            for run in made:
                for flight in run.flights:
                    flight.on_unwanted = partial(self._end_unwanted, run)
        return made

    def _submit(self, run: ChunkRun, pool: Pool) -> None:
        try:
            future = pool.submit(lambda: self._download(run))
        except RuntimeError:
            self._give_up(run)
            return
        future.add_done_callback(lambda done: self._give_up(run) if done.cancelled() else None)

    def _give_up(self, run: ChunkRun) -> None:
        """Closed before it began."""
        if self._begin(run):
            for flight in run.flights:
                self._flights.fail(flight, closed_error())

    def _begin(self, run: ChunkRun) -> bool:
        """Whether this thread is the one that does it: a run may be in both pools."""
        with self._lock:
            if run.is_begun:
                return False
            run.is_begun = True
            if run.ahead:
                for flight in run.flights:
                    self._waiting.pop(flight, None)
            return True

    def _download(self, run: ChunkRun) -> None:
        if not self._begin(run):
            return
        left = collections.deque(run.chunks)
        try:
            if (run.ahead or self._cache is None) and not run.is_wanted():
                self._abandon(left)
            if run.cached and self._land_cached(run.log, run.chunks[0]):
                return
            if not run.cached:
                self._land_late(run, left)
            if left:
                self._land_fetched(run, left)
        except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
            for chunk in left:
                self._flights.fail(chunk.flight, error)

    def _abandon(self, left: collections.deque[MissingChunk]) -> None:
        """Nobody reads there any more: drop the chunks up to the first that a reader waits for after all."""
        while left and self._flights.abandon([left[0].flight]):
            left.popleft()

    def _land_late(self, run: ChunkRun, left: collections.deque[MissingChunk]) -> None:
        """The first ones may have landed between a reader's look into the cache and her joining a new flight."""
        while left and (data := self._find(run.log.key(left[0].view), again=True)) is not None:
            self._flights.land(left.popleft().flight, data)

    def _land_cached(self, log: SegmentLog, chunk: MissingChunk) -> bool:
        """From the disk; False if it is damaged or gone, or does not open: a cache is never the reason of an error."""
        assert self._cache is not None
        view, label = chunk.view, self._cache.label
        key = log.key(view)
        data = kept = self._cache.find(key)
        if kept is not None and self._cache.keeps_stored and log.segment.transformed:
            try:
                data = log.open_chunk(kept, view)
            except CorruptObjectError:
                data = None
        if data is None or len(data) != view.original_size:
            if kept is not None:
                self._cache.drop(key)
            self._metrics.add("cache_misses_total", label=label)
            return False
        self._metrics.add("cache_hits_total", label=label)
        self._metrics.add("cache_hit_bytes_total", len(data), label=label)
        self._flights.land(chunk.flight, data)
        return True

    def _land_fetched(self, run: ChunkRun, left: collections.deque[MissingChunk]) -> None:
        first, last = left[0].view.position, left[-1].view.position + left[-1].view.stored_size
        with cancelled_by(run.scope):
            stored = self._get(run.log, first, last)
        if run.ahead:
            self._note_ahead(run.log, [chunk.view for chunk in left])
        if self._cache is not None and self._cache.is_slow and not run.cached:
            self._metrics.add("cache_misses_total", len(left), label=self._cache.label)
        side_by_side = run.log.segment.transformed and len(left) > 1
        while left:
            view = left[0].view
            part = stored[view.position - first : view.position - first + view.stored_size]
            if side_by_side and len(left) > 1:
                self._open_beside(run.log, left[0], part)
                left.popleft()
                continue
            self._land_opened(run.log, part, left)

    def _open_beside(self, log: SegmentLog, chunk: MissingChunk, stored: memoryview) -> None:
        """Open a chunk in the pool for that; what fails there is told to those who wait for it."""

        def work() -> None:
            left = collections.deque((chunk,))
            try:
                self._land_opened(log, stored, left)
            except BaseException as error:  # noqa: BLE001 - as in _download
                if left:
                    self._flights.fail(chunk.flight, error)

        self._open_pool.submit(work).add_done_callback(
            lambda done: self._flights.fail(chunk.flight, closed_error()) if done.cancelled() else None
        )

    def _land_opened(self, log: SegmentLog, stored: memoryview, left: collections.deque[MissingChunk]) -> None:
        """Open, keep and land the first chunk. A slow cache gets it after the reader did."""
        view, cache = left[0].view, self._cache
        key = log.key(view)
        if log.segment.transformed:
            data = log.open_chunk(stored, view)
        elif cache is None or cache.is_slow:
            data = stored.toreadonly()
        else:
            data = _copied(stored)
        if cache is not None and not cache.is_slow:
            cache.put(key, data)
        self._flights.land(left.popleft().flight, data)
        if cache is not None and cache.is_slow:
            cache.put(key, stored if cache.keeps_stored else data)

    def _get(self, log: SegmentLog, start: int, end_exclusive: int) -> memoryview:
        """Bytes of the log's object."""
        return self._downloads.fetch(log.segment.log, log.name, start, end_exclusive)

    def _note_ahead(self, log: SegmentLog, views: Sequence[ChunkView]) -> None:
        self._metrics.add("prefetched_bytes_total", sum(view.original_size for view in views))
        unused = 0
        with self._lock:
            for view in views:
                self._awaited[log.key(view)] = view.original_size
            while len(self._awaited) > _AWAITED_MAX:
                unused += self._awaited.popitem(last=False)[1]
        if unused:
            self._metrics.add("prefetch_unused_bytes_total", unused)

    def close(self) -> None:
        """Whoever waits gets an error; what runs ends first; idempotent."""
        self._downloads.close()
        self._pool.close()
        self._ahead_pool.close()
        self._open_pool.close()


def _copied(stored: memoryview) -> memoryview:
    """Memory of its own: a view would hold the whole download for as long as the cache holds one chunk of it."""
    made = new_buffer(len(stored))
    made[:] = stored
    return made.toreadonly()
