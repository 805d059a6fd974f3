"""Chunks for readers: from the cache, from a load that is under way, or by one request for neighbouring ones.

Every chunk that is fetched is fetched once, however many ask. Who leaves does not end a download: it lands in the
cache; where there is none, the last who leaves ends it. Requests hold no threads; what came is opened by the reader who
waits for it or by a thread a core, each chunk into memory of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from typing import Final

from tierlog.remote.storage.cache.chunk_cache import ChunkCache
from tierlog.remote.storage.fetch.chunk_loads import ChunkLanding, ChunkLoad, ChunkLoads, MissingChunk
from tierlog.remote.storage.fetch.prefetch import AheadLoads
from tierlog.remote.storage.store_requests import Lane, ReadRequest, StoreRequests
from tierlog.remote.tier.chunks.segment_log import ChunkKey, ChunkView, SegmentLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.shared_loads import SharedLoads
from tierlog.runtime.waiting.turns import MemoryBudget

#: Closing waits so long for chunks that are being opened.
_CLOSE_SECONDS: Final = 1.0

ChunkSource = memoryview | ChunkLoad


class ChunkFetcher:
    """What readers ask for chunks: it finds them in the cache, joins loads that are under way, and begins the others.

    Args:
        requests: Of the objects.
        cache: Of chunks; None keeps nothing.
        budget: Of the memory that requests under way take.
        machine: Its threads.
        request_bytes_max: Original bytes of one request.

    Attributes:
        ahead: Loads that no reader asked for yet.
        open_pool: Threads that open chunks, one a core.
        is_local: Whether the store is a disk of this machine.

    Thread safety: any number of threads; no lock is held across a store call.
    """

    def __init__(
        self,
        requests: StoreRequests,
        *,
        cache: ChunkCache | None,
        budget: MemoryBudget,
        machine: Machine,
        request_bytes_max: int,
    ) -> None:
        self._requests = requests
        self._metrics = requests.metrics
        self._cache = cache
        self.is_local = requests.store.is_local
        self._under_way: SharedLoads[ChunkKey, memoryview] = SharedLoads(machine)
        self._landing = ChunkLanding(self._under_way, cache, requests, machine)
        self.open_pool = self._landing.pool
        self._loads = ChunkLoads(
            self._under_way,
            self._landing,
            requests,
            cache=cache,
            budget=budget,
            machine=machine,
            request_bytes_max=request_bytes_max,
        )
        self.ahead = AheadLoads(self._under_way, self._loads, requests, cache=cache, budget=budget, machine=machine)

    @property
    def cache(self) -> ChunkCache | None:
        return self._cache

    @property
    def requests(self) -> StoreRequests:
        return self._requests

    def memory_of(self, log: SegmentLog, views: Sequence[ChunkView]) -> int:
        """What fetching neighbouring chunks takes of the budget: their original bytes, and stored ones until these are
        opened, or taken apart.
        """
        return sum(view.original_size for view in views) + self._loads.stored_memory_of(log, views)

    def request(
        self, log: SegmentLog, views: Sequence[ChunkView], *, turn: Hashable, again: bool, soon: bool
    ) -> tuple[list[ChunkSource], int]:
        """Get neighbouring chunks: of each its bytes, or a load to wait for or leave. Waits for nothing.

        Where no cache wants all of the last chunk it is decompressed no further than the range needs: a reader of a
        mebibyte does not pay for four.

        Args:
            log: Of the chunks.
            views: Neighbouring ones, ascending.
            turn: Whose turns go round: the partition.
            again: The first one was asked for by the same reader just before.
            soon: The reader waits for the first one next.

        Returns:
            The sources, and how much of the budget that the caller took for stored bytes is held for requests: it comes
            back when these end.
        """
        cache, ahead = self._cache, self.ahead
        if cache is None and log.segment.compression:
            views = [*views[:-1], self._shortened(log, views[-1])]
        found: list[ChunkSource] = []
        missing: list[MissingChunk] = []
        hits = hit_bytes = 0
        for position, view in enumerate(views):
            key = log.key(view)
            if cache is not None and not cache.is_slow:
                data = cache.find(key, again=again and position == 0)
                if data is not None:
                    found.append(data)
                    hits, hit_bytes = hits + 1, hit_bytes + len(data)
                    continue
            load, is_new = self._under_way.join(key)
            found.append(load)
            if is_new:
                missing.append(MissingChunk(view, load))
            else:
                ahead.hurry(load)
        if cache is not None:
            if not cache.is_slow:
                self._count_lookups(cache.label, hits, hit_bytes, len(views) - hits)
            ahead.note_taken(log, views)
        return found, self._loads.begin(log, missing, turn, soon=soon) if missing else 0

    def request_plain(self, log: SegmentLog, start: int, end_exclusive: int, turn: Hashable) -> ChunkLoad:
        """Request exactly these bytes of a log that is stored as it is, past the cache, for one reader."""
        key = log.segment.log.key
        first, end = log.segment.log.position + start, log.segment.log.position + end_exclusive
        load = self._under_way.alone(ChunkKey(key, -1))
        if self.is_local:

            def read() -> None:
                try:
                    load.end(self._requests.read_here(key, first, end, log.name).toreadonly(), None)
                except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
                    load.end(None, error)

            load.offer(read)
            return load

        def told(answer: memoryview | BaseException) -> None:
            if isinstance(answer, BaseException):
                load.end(None, answer)
            else:
                load.end(answer.toreadonly(), None)

        request = ReadRequest(
            key,
            first,
            end,
            name=log.name,
            lane=Lane.READERS,
            turn=turn,
            on_answer=told,
            before=lambda _: self._requests.note_sent(load),
        )
        load.on_unwanted = partial(self._requests.cancel, request)
        self._requests.start(request)
        return load

    @property
    def reads_directly(self) -> bool:
        """Whether ``read_into`` may be called."""
        return self.is_local and self._cache is None and self._requests.reads_directly

    def read_into(self, log: SegmentLog, start: int, out: memoryview) -> None:
        """Read a range of a log that is stored as it is into the reader's memory, past the cache, in this thread."""
        self._requests.read_into(log.segment.log.key, log.segment.log.position + start, out, log.name)

    def leave(self, under_way: Iterable[ChunkLoad]) -> None:
        """Leave loads that a reader waits for no more. Without a cache, a download that nobody waits for ends now."""
        for load in under_way:
            self._under_way.leave(load)
            if load.has_work:  # another reader waits for what this one was to do
                self._landing.run_soon(load, always=False)

    def _shortened(self, log: SegmentLog, view: ChunkView) -> ChunkView:
        """The chunk cut to what the range needs, unless somebody decompresses all of it already."""
        is_whole = view.end == view.original_size or log.key(view) in self._under_way
        return view if is_whole else view._replace(until=view.end)

    def _count_lookups(self, label: str, hits: int, hit_bytes: int, misses: int) -> None:
        if hits:
            self._metrics.add("cache_hits_total", hits, label=label)
            self._metrics.add("cache_hit_bytes_total", hit_bytes, label=label)
        if misses:
            self._metrics.add("cache_misses_total", misses, label=label)

    def close(self) -> None:
        """End all requests; readers who wait get an error. Idempotent."""
        self._requests.close()
        self.ahead.close(wait_seconds=_CLOSE_SECONDS)
        self.open_pool.close(wait_seconds=_CLOSE_SECONDS)
