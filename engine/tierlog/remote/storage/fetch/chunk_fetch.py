"""Chunks for readers: from the cache, from a load that is under way, or by one request for neighbouring ones.

Every chunk that is fetched is fetched once, however many ask. Who leaves does not end a download: it lands in the
cache; where there is none, the last who leaves ends it. Requests hold no threads; what came is opened by the reader who
waits for it or by a thread a core, each chunk into memory of its own.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Final

from tierlog.remote.storage.cache.chunk_cache import ChunkCache
from tierlog.remote.storage.chunks.segment_log import ChunkKey, ChunkView, SegmentLog
from tierlog.remote.storage.fetch.chunk_landing import ChunkLanding
from tierlog.remote.storage.fetch.chunk_runs import ChunkFlight, ChunkRun, MissingChunk, neighbours
from tierlog.remote.storage.fetch.memory_budget import MemoryBudget
from tierlog.remote.storage.requests.single_flight import Flights, refusal
from tierlog.remote.storage.requests.store_requests import Lane, ReadRequest, StoreRequests
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import NotSubmitted

#: Chunks fetched ahead that nobody asked for yet, remembered for the metrics.
_AWAITED_MAX: Final = 65536
#: Closing waits so long for chunks that are being opened.
_CLOSE_SECONDS: Final = 1.0

ChunkSource = memoryview | ChunkFlight


class ChunkFetcher:
    """See the module.

    Args:
        requests: Of the objects.
        cache: Of chunks; None keeps nothing.
        budget: Of the memory that requests under way take.
        machine: Its threads.
        request_bytes_max: Original bytes of one request.

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
        scheduler = machine.scheduler
        self._requests = requests
        self._metrics = requests.metrics
        self._cache = cache
        self._budget = budget
        self._request_bytes_max = request_bytes_max
        self.is_local = requests.store.is_local
        self._flights: Flights[ChunkKey, memoryview] = Flights(machine)
        self._landing = ChunkLanding(self._flights, cache, requests, machine)
        self.open_pool = self._landing.pool
        self.ahead_pool = scheduler.pool(max(1, scheduler.cores // 2), name="tierlog-ahead")
        self._lock = scheduler.lock()
        self._ahead: dict[ChunkFlight, ChunkRun] = {}  # of readers to come, not sent
        self._awaited: collections.OrderedDict[ChunkKey, int] = collections.OrderedDict()

    @property
    def cache(self) -> ChunkCache | None:
        return self._cache

    @property
    def requests(self) -> StoreRequests:
        return self._requests

    # --- for readers ---

    def memory_of(self, log: SegmentLog, views: Sequence[ChunkView]) -> int:
        """What fetching neighbouring chunks takes of the budget: their original bytes, and stored ones until these are
        opened, or taken apart.
        """
        return sum(view.original_size for view in views) + self._stored_memory_of(log, views)

    def _stored_memory_of(self, log: SegmentLog, views: Sequence[ChunkView]) -> int:
        """Of what one request brings beside the chunks. One chunk that is stored as it is becomes the chunk itself."""
        is_kept = not log.segment.transformed and (self._cache is None or self.is_local or len(views) == 1)
        return 0 if is_kept else sum(view.stored_size for view in views)

    def request(
        self, log: SegmentLog, views: Sequence[ChunkView], *, turn: Hashable, again: bool, soon: bool
    ) -> tuple[list[ChunkSource], int]:
        """Each chunk, or the flight of it, which is then waited for or left; this waits for nothing.

        Of the last one only what the range needs, where no cache wants all of it: who reads a mebibyte pays for
        decompressing that, and not for four.

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
        cache = self._cache
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
            flight, is_new = self._flights.join(key)
            found.append(flight)
            if is_new:
                missing.append(MissingChunk(view, flight))
            elif self._ahead and (run := self._ahead.get(flight)) is not None and (request := run.request) is not None:
                self._requests.promote(request)
        if cache is not None:
            if not cache.is_slow:
                self._count_lookups(cache.label, hits, hit_bytes, len(views) - hits)
            self._note_taken(log, views)
        return found, self._begin(log, missing, turn, soon=soon) if missing else 0

    def request_plain(self, log: SegmentLog, start: int, end_exclusive: int, turn: Hashable) -> ChunkFlight:
        """A range of a log that is stored as it is, past the cache: exactly these bytes, for one reader."""
        key = log.segment.log.key
        first, end = log.segment.log.position + start, log.segment.log.position + end_exclusive
        flight = self._flights.alone(ChunkKey(key, -1))
        if self.is_local:

            def read() -> None:
                try:
                    flight.end(self._requests.read_here(key, first, end, log.name).toreadonly(), None)
                except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
                    flight.end(None, error)

            flight.offer(read)
            return flight

        def told(answer: memoryview | BaseException) -> None:
            if isinstance(answer, BaseException):
                flight.end(None, answer)
            else:
                flight.end(answer.toreadonly(), None)

        request = ReadRequest(
            key,
            first,
            end,
            name=log.name,
            lane=Lane.READERS,
            turn=turn,
            on_answer=told,
            before=lambda _: self._requests.note_sent(flight),
        )
        flight.on_unwanted = partial(self._requests.cancel, request)
        self._requests.start(request)
        return flight

    @property
    def reads_directly(self) -> bool:
        """Whether ``read_into`` may be called."""
        return self.is_local and self._cache is None and self._requests.reads_directly

    def read_into(self, log: SegmentLog, start: int, out: memoryview) -> None:
        """A range of a log that is stored as it is, past the cache, into memory of the reader's, in this thread."""
        self._requests.read_into(log.segment.log.key, log.segment.log.position + start, out, log.name)

    def leave(self, flights: Iterable[ChunkFlight]) -> None:
        """A reader waits for these no more. Without a cache, a download that nobody waits for ends with this call."""
        for flight in flights:
            self._flights.leave(flight)
            if flight.has_work:  # another reader waits for what this one was to do
                self._landing.run_soon(flight, always=False)

    def _shortened(self, log: SegmentLog, view: ChunkView) -> ChunkView:
        """Without what lies behind the range, unless somebody decompresses all of it already."""
        is_whole = view.end == view.original_size or log.key(view) in self._flights
        return view if is_whole else view._replace(until=view.end)

    def _count_lookups(self, label: str, hits: int, hit_bytes: int, misses: int) -> None:
        if hits:
            self._metrics.add("cache_hits_total", hits, label=label)
            self._metrics.add("cache_hit_bytes_total", hit_bytes, label=label)
        if misses:
            self._metrics.add("cache_misses_total", misses, label=label)

    def _note_taken(self, log: SegmentLog, views: Sequence[ChunkView]) -> None:
        if self._awaited:
            with self._lock:
                for view in views:
                    self._awaited.pop(log.key(view), None)

    # --- loads ---

    def _begin(self, log: SegmentLog, missing: list[MissingChunk], turn: Hashable, *, soon: bool) -> int:
        """Begin to load new flights; how much of the budget their stored bytes hold."""
        far: list[MissingChunk] = []
        held = 0
        for number, chunk in enumerate(missing):
            if not (self.is_local or self._is_on_disk(log, chunk.view)):
                far.append(chunk)
                continue
            held += self._offer(log, chunk, turn)
            self._submit_if(chunk.flight, soon=soon and number == 0)
        for part in neighbours(far, size_bytes_max=self._request_bytes_max):
            run = ChunkRun(log, part, turn, None, self._stored_memory_of(log, [c.view for c in part]))
            held += run.held_bytes
            for flight in run.flights:
                flight.on_unwanted = partial(self._end_unwanted, run)
            self._start(run, Lane.READERS)
        return held

    def _submit_if(self, flight: ChunkFlight, *, soon: bool) -> None:
        """Who waits for it next does the work herself."""
        if not soon:
            self._landing.run_soon(flight, always=False)

    def _is_on_disk(self, log: SegmentLog, view: ChunkView) -> bool:
        return self._cache is not None and self._cache.is_slow and self._cache.holds(log.key(view))

    def _offer(self, log: SegmentLog, chunk: MissingChunk, turn: Hashable) -> int:
        """A load that is work for whoever comes first: of a local store, or from the disk's cache."""
        view, flight = chunk.view, chunk.flight
        held = self._stored_memory_of(log, [view])
        ended = partial(self._budget.give_back, held)
        is_cached = self._is_on_disk(log, view)

        def work() -> None:
            cache = self._cache
            try:
                if is_cached and self._landing.take_cached(log, view, flight):
                    ended()
                    return
            except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
                ended()
                self._flights.fail(flight, error)
                return
            if self.is_local:
                if cache is not None and not is_cached and cache.is_slow:
                    self._metrics.add("cache_misses_total", label=cache.label)
                self._landing.read_and_land(log, view, flight, ended)
            else:
                self._start(ChunkRun(log, [chunk], turn, None, held), Lane.READERS, is_counted=True)

        def unwanted() -> None:
            if self._flights.abandon([flight]) and flight.withdraw():
                ended()

        flight.on_unwanted = unwanted
        flight.offer(work)
        return held

    def _end_unwanted(self, run: ChunkRun) -> None:
        """The last reader left: what no cache would keep ends now."""
        request = run.request  # an answer that comes now takes it away
        if self._cache is None and request is not None and self._flights.abandon(run.flights):
            self._requests.cancel(request)

    def _start(self, run: ChunkRun, lane: Lane, *, is_counted: bool = False) -> None:
        """Ask for a run; ``is_counted``: its misses are."""
        part = run.log.segment.log
        run.request = ReadRequest(
            part.key,
            run.start,
            run.end_exclusive,
            name=run.log.name,
            lane=lane,
            turn=run.turn,
            on_answer=lambda answer: self._came(run, answer, is_counted=is_counted),
            before=lambda request: self._before(run, request),
        )
        self._requests.start(run.request)

    def _before(self, run: ChunkRun, request: ReadRequest) -> bool:
        """Its turn has come: leave out what landed in the cache meanwhile, and what nobody wants any more."""
        left, cache = run.left, self._cache
        if run.is_wanted is not None:
            with self._lock:
                for flight in run.flights:
                    self._ahead.pop(flight, None)
            if not run.is_wanted():
                while left and self._flights.abandon([left[0].flight]):
                    left.pop(0)
        while left and cache is not None and not cache.is_slow:
            data = cache.find(run.log.key(left[0].view), again=True)
            if data is None:
                break
            self._flights.land(left.pop(0).flight, data)
        if not left:
            run.request = None
            self._let_go(run)
            return False
        request.start = run.start
        for chunk in left:
            self._requests.note_sent(chunk.flight)
        return True

    def _came(self, run: ChunkRun, answer: memoryview | BaseException, *, is_counted: bool) -> None:
        """In the store's thread, which opens nothing."""
        log, cache = run.log, self._cache
        run.request = None  # it knows the run: with the chunks' bytes the two would wait for the collector
        if isinstance(answer, BaseException):
            self._let_go(run)
            for chunk in run.left:
                self._flights.fail(chunk.flight, answer)
            return
        if run.is_wanted is not None:
            self._note_ahead(log, [chunk.view for chunk in run.left])
        if cache is not None and cache.is_slow and not is_counted:
            self._metrics.add("cache_misses_total", len(run.left), label=cache.label)
        first, chunks = run.start, run.left
        run.opening = len(chunks)
        run.left = []
        for chunk in chunks:
            view = chunk.view
            stored = answer[view.position - first : view.position - first + view.stored_size]
            chunk.flight.offer(
                partial(self._landing.open_and_land, log, view, chunk.flight, stored, partial(self._opened, run))
            )
            if log.segment.transformed or cache is not None:
                self._landing.run_soon(chunk.flight, always=True)
            else:
                chunk.flight.run()

    def _opened(self, run: ChunkRun) -> None:
        with self._lock:
            run.opening -= 1
            is_last = run.opening == 0
        if is_last:
            self._let_go(run)

    def _let_go(self, run: ChunkRun) -> None:
        held, run.held_bytes = run.held_bytes, 0
        self._budget.give_back(held)

    # --- ahead of readers ---

    def request_ahead(
        self, log: SegmentLog, views: Sequence[ChunkView], *, turn: Hashable, is_wanted: Callable[[], bool]
    ) -> None:
        """Bring chunks into the cache that no reader asked for yet; those that are there or under way are left out.

        Only what the memory budget has to spare is asked for.

        Args:
            log: Of the chunks.
            views: Neighbouring ones, ascending.
            turn: Whose turns go round.
            is_wanted: Asked once more before a download begins; it must not wait.
        """
        if self._cache is None:
            return
        missing = []
        held = 0
        for view in views:
            key = log.key(view)
            if self._cache.holds(key) or key in self._flights:
                continue
            memory = self._memory_ahead_of(log, view)
            if not self._budget.try_take(memory, leaving_bytes=self._budget.total_bytes // 2):
                break
            flight = self._flights.begin(key)
            if flight is None:
                self._budget.give_back(memory)
                continue
            held += memory
            missing.append(MissingChunk(view, flight))
        for part in neighbours(missing, size_bytes_max=self._request_bytes_max):
            run = ChunkRun(log, part, turn, is_wanted, sum(self._memory_ahead_of(log, c.view) for c in part))
            if self.is_local:
                self._load_ahead(run)
                continue
            with self._lock:
                self._ahead.update((flight, run) for flight in run.flights)
            self._start(run, Lane.AHEAD)

    def _memory_ahead_of(self, log: SegmentLog, view: ChunkView) -> int:
        """What comes counts until it is in the cache: no reader took memory for it."""
        return self._stored_memory_of(log, [view]) if self.is_local else view.stored_size

    def _load_ahead(self, run: ChunkRun) -> None:
        """Of a local store: work for the pool of what nobody waits for, or for a reader who comes before it."""
        self._note_ahead(run.log, [chunk.view for chunk in run.left])
        for chunk in run.left:
            self._offer(run.log, chunk, run.turn)

            def work(flight: ChunkFlight = chunk.flight) -> None:
                if run.is_wanted is None or run.is_wanted() or flight.readers:
                    flight.run()
                elif flight.on_unwanted is not None:
                    flight.on_unwanted()

            try:
                self.ahead_pool.submit(work)
            except NotSubmitted as error:
                self._flights.fail(chunk.flight, refusal(error))

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
        """Whoever waits gets an error; idempotent."""
        self._requests.close()
        self.ahead_pool.close(wait_seconds=_CLOSE_SECONDS)
        self.open_pool.close(wait_seconds=_CLOSE_SECONDS)
