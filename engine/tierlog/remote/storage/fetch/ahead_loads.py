"""Chunks that are brought into the cache before a reader asks for them.

Such a load waits behind all that readers wait for, takes only memory that nobody else needs, and is dropped when its
turn comes and nobody reads there any more. A reader who comes before its turn moves it in front.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final

from tierlog.remote.storage.cache.chunk_cache import ChunkCache
from tierlog.remote.storage.fetch.chunk_loads import ChunkLoads
from tierlog.remote.storage.fetch.chunk_runs import ChunkFlight, ChunkRun, MissingChunk
from tierlog.remote.storage.store_requests import Lane, StoreRequests
from tierlog.remote.tier.chunks.segment_log import ChunkKey, ChunkView, SegmentLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import NotSubmitted
from tierlog.runtime.waiting.memory_budget import MemoryBudget
from tierlog.runtime.waiting.single_flight import Flights, refusal

#: Chunks fetched ahead that nobody asked for yet, remembered for the metrics.
_AWAITED_MAX: Final = 65536


class AheadLoads:
    """Begins loads for readers to come, and counts what nobody came for.

    Args:
        flights: Of chunks.
        loads: Does the loading.
        requests: Of the objects: a reader who comes moves one in front.
        cache: Keeps what comes; without one nothing is fetched ahead.
        budget: Of the memory that requests under way take.
        machine: Its threads: half the cores.

    Attributes:
        pool: For work that no reader waits for.

    Thread safety: any number of threads; no lock is held across a store call.
    """

    def __init__(
        self,
        flights: Flights[ChunkKey, memoryview],
        loads: ChunkLoads,
        requests: StoreRequests,
        *,
        cache: ChunkCache | None,
        budget: MemoryBudget,
        machine: Machine,
    ) -> None:
        scheduler = machine.scheduler
        self._flights = flights
        self._loads = loads
        self._requests = requests
        self._metrics = requests.metrics
        self._cache = cache
        self._budget = budget
        self._is_local = requests.store.is_local
        self.pool = scheduler.pool(max(1, scheduler.cores // 2), name="tierlog-ahead")
        self._lock = scheduler.lock()
        self._in_line: dict[ChunkFlight, ChunkRun] = {}  # not sent
        self._awaited: collections.OrderedDict[ChunkKey, int] = collections.OrderedDict()

    @property
    def is_possible(self) -> bool:
        """Whether there is a cache to fill."""
        return self._cache is not None

    def request(
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
        for view in views:
            key = log.key(view)
            if self._cache.holds(key) or key in self._flights:
                continue
            memory = self._memory_of(log, view)
            if not self._budget.try_take(memory, leaving_bytes=self._budget.total_bytes // 2):
                break
            flight = self._flights.begin(key)
            if flight is None:
                self._budget.give_back(memory)
                continue
            missing.append(MissingChunk(view, flight))
        for part in self._loads.in_requests(missing):
            if self._is_local:
                self._load_here(log, part, turn, is_wanted)
                continue
            run = ChunkRun(
                log,
                part,
                turn,
                sum(self._memory_of(log, chunk.view) for chunk in part),
                on_turn=partial(self._leave_out_unwanted, is_wanted),
                on_bytes=lambda run: self._note_loaded(run.log, run.left),
            )
            with self._lock:
                self._in_line.update((flight, run) for flight in run.flights)
            self._loads.start(run, Lane.AHEAD)

    def _memory_of(self, log: SegmentLog, view: ChunkView) -> int:
        """What comes counts until it is in the cache: no reader took memory for it."""
        return self._loads.stored_memory_of(log, [view]) if self._is_local else view.stored_size

    def _load_here(
        self, log: SegmentLog, chunks: Sequence[MissingChunk], turn: Hashable, is_wanted: Callable[[], bool]
    ) -> None:
        """Of a local store: work for the pool of what nobody waits for, or for a reader who comes before it."""
        self._note_loaded(log, chunks)
        for chunk in chunks:
            self._loads.offer(log, chunk, turn)

            def work(flight: ChunkFlight = chunk.flight) -> None:
                if is_wanted() or flight.readers:
                    flight.run()
                elif flight.on_unwanted is not None:
                    flight.on_unwanted()

            try:
                self.pool.submit(work)
            except NotSubmitted as error:
                self._flights.fail(chunk.flight, refusal(error))

    def _leave_out_unwanted(self, is_wanted: Callable[[], bool], run: ChunkRun) -> None:
        """A run's turn has come: take the first chunks out that nobody waits for, where nobody reads any more."""
        with self._lock:
            for flight in run.flights:
                self._in_line.pop(flight, None)
        if not is_wanted():
            left = run.left
            while left and self._flights.abandon([left[0].flight]):
                left.pop(0)

    # --- readers who come ---

    def hurry(self, flight: ChunkFlight) -> None:
        """A reader waits for a chunk that may be in line here: its request goes in front."""
        if self._in_line and (run := self._in_line.get(flight)) is not None and (request := run.request) is not None:
            self._requests.promote(request)

    def note_taken(self, log: SegmentLog, views: Sequence[ChunkView]) -> None:
        """A reader asked for these: they were not fetched in vain."""
        if self._awaited:
            with self._lock:
                for view in views:
                    self._awaited.pop(log.key(view), None)

    def _note_loaded(self, log: SegmentLog, chunks: Sequence[MissingChunk]) -> None:
        self._metrics.add("prefetched_bytes_total", sum(chunk.view.original_size for chunk in chunks))
        unused = 0
        with self._lock:
            for chunk in chunks:
                self._awaited[log.key(chunk.view)] = chunk.view.original_size
            while len(self._awaited) > _AWAITED_MAX:
                unused += self._awaited.popitem(last=False)[1]
        if unused:
            self._metrics.add("prefetch_unused_bytes_total", unused)

    def close(self, *, wait_seconds: float) -> None:
        """End the pool; idempotent."""
        self.pool.close(wait_seconds=wait_seconds)
