"""What becomes of a chunk that came: opened, kept in the cache, and given to all who wait for it.

Opening is work that whoever needs the chunk first does: a reader in her own thread, or a pool's thread before she comes
to it. So a reader who waits for nobody else never changes threads, and one who reads on finds the next chunks open.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tierlog._native.buffers import copy_into
from tierlog.errors import CorruptObjectError
from tierlog.remote.storage.cache.chunk_cache import ChunkCache
from tierlog.remote.storage.fetch.chunk_runs import ChunkFlight
from tierlog.remote.storage.store_requests import StoreRequests
from tierlog.remote.tier.chunks.segment_log import ChunkKey, ChunkView, SegmentLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.machine.scheduling import NotSubmitted
from tierlog.runtime.waiting.single_flight import Flights

#: Chunks that a slow cache has not taken yet, in all; what comes beyond that it does without.
KEPT_LATER_BYTES_MAX: Final = 64 << 20


class ChunkLanding:
    """Opens chunks, lands their flights and keeps them, in the thread that calls or in one of its pool.

    Args:
        flights: Of chunks.
        cache: Keeps them; None keeps nothing.
        requests: Reads a local store in the thread that needs it.
        machine: Its threads: one a core opens chunks.

    Thread safety: any number of threads; no lock is held while a chunk is read or opened.
    """

    def __init__(
        self,
        flights: Flights[ChunkKey, memoryview],
        cache: ChunkCache | None,
        requests: StoreRequests,
        machine: Machine,
    ) -> None:
        self._flights = flights
        self._cache = cache
        self._requests = requests
        self._metrics = requests.metrics
        self._cores = machine.scheduler.cores
        self.pool = machine.scheduler.pool(self._cores, name="tierlog-open")
        self._lock = machine.scheduler.lock()
        self._queued = 0
        self._kept_later_bytes = 0

    def run_soon(self, flight: ChunkFlight, *, always: bool) -> None:
        """Let a thread of the pool do a flight's work if nobody has by then; not ``always`` where these are busy.

        Who waits for the flight does the work herself in that case: every reader runs what she waits for.
        """
        with self._lock:
            is_taken = always or self._queued < 2 * self._cores
            self._queued += is_taken
        if is_taken:
            try:
                self.pool.submit(partial(self._run, flight))
            except NotSubmitted:
                is_taken = False
                with self._lock:
                    self._queued -= 1
        if not is_taken:
            flight.call_for_help()

    def _run(self, flight: ChunkFlight) -> None:
        with self._lock:
            self._queued -= 1
        flight.run()

    def read_and_land(self, log: SegmentLog, view: ChunkView, flight: ChunkFlight, ended: Callable[[], None]) -> None:
        """Read a chunk of a local store, open it and land it; ``ended`` is called when its stored bytes are let go."""
        try:
            end = view.position + view.stored_size
            stored = self._requests.read_here(log.segment.log.key, view.position, end, log.name)
        except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
            ended()
            self._flights.fail(flight, error)
            return
        self.open_and_land(log, view, flight, stored, ended)

    def open_and_land(
        self, log: SegmentLog, view: ChunkView, flight: ChunkFlight, stored: memoryview, ended: Callable[[], None]
    ) -> None:
        """Open, keep and land a stored chunk. A slow cache gets it after the reader did."""
        cache = self._cache
        try:
            if log.segment.transformed:
                data = log.open_chunk(stored, view)
            elif cache is None or len(stored) == view.stored_size == memoryview(stored.obj).nbytes:
                data = stored.toreadonly()
            else:
                data = _copied(stored)
            if cache is not None and not cache.is_slow:
                cache.put(log.key(view), data)
        except BaseException as error:  # noqa: BLE001 - as above
            ended()
            self._flights.fail(flight, error)
            return
        kept = stored if cache is not None and cache.keeps_stored else data
        del stored
        ended()
        self._flights.land(flight, data)
        if cache is not None and cache.is_slow and not view.until:
            self._keep_later(cache, log.key(view), kept)

    def _keep_later(self, cache: ChunkCache, key: ChunkKey, kept: memoryview) -> None:
        """Write a chunk to a slow cache in a thread of the pool; a disk that does not keep up gets fewer."""
        with self._lock:
            if self._kept_later_bytes + len(kept) > KEPT_LATER_BYTES_MAX:
                return
            self._kept_later_bytes += len(kept)

        def work() -> None:
            try:
                cache.put(key, kept)
            finally:
                with self._lock:
                    self._kept_later_bytes -= len(kept)

        try:
            self.pool.submit(work)
        except NotSubmitted:  # not kept then
            with self._lock:
                self._kept_later_bytes -= len(kept)

    def take_cached(self, log: SegmentLog, view: ChunkView, flight: ChunkFlight) -> bool:
        """Land a chunk that a slow cache has; False if it is damaged, gone, or does not open.

        A cache is never the reason of an error.
        """
        cache = self._cache
        assert cache is not None
        key = log.key(view)
        data = kept = cache.find(key)
        if kept is not None and cache.keeps_stored and log.segment.transformed:
            try:
                data = log.open_chunk(kept, view)
            except CorruptObjectError:
                data = None
        if data is None or len(data) != view.original_size:
            if kept is not None:
                cache.drop(key)
            self._metrics.add("cache_misses_total", label=cache.label)
            return False
        self._metrics.add("cache_hits_total", label=cache.label)
        self._metrics.add("cache_hit_bytes_total", len(data), label=cache.label)
        self._flights.land(flight, data)
        return True


def _copied(stored: memoryview) -> memoryview:
    """A copy: a view would hold the whole download for as long as the cache holds one chunk of it."""
    made = new_buffer(len(stored))
    copy_into(made, stored)
    return made.toreadonly()
