"""Chunks that are brought into the cache before a reader asks for them, for readers that read on.

A broker's consumer comes back for every mebibyte with a new call, so that one stream says little: a call that begins
where an earlier one ended shows a sequential reader. For it the distance doubles with every step, up to the declared
bound, and goes on into the next segment; a call that begins elsewhere is a new reader, for which nothing is fetched
ahead. A load that has not begun when its reader did not come back for some seconds is dropped.

Such a load waits behind all that readers wait for, takes only memory that is spare, and is dropped when its turn comes
and no reader reads there any more. A reader that comes before its turn moves it in front (``AheadLoads``).
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tierlog.remote.api import RemoteLogSegmentMetadata, TopicIdPartition
from tierlog.remote.storage.fetch.chunk_loads import ChunkFetcher, ChunkLoad, ChunkRun, MissingChunk
from tierlog.remote.storage.store_requests import Lane
from tierlog.remote.tier.chunks.stored_segment import ChunkKey, ChunkView, SegmentLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import NotSubmitted
from tierlog.runtime.waiting.turns import MemoryBudget

#: Chunks fetched ahead that no reader asked for yet, remembered for the metrics.
_AWAITED_MAX: Final = 65536
#: Seconds that a close waits for the pool's calls.
_CLOSE_SECONDS: Final = 1.0


class AheadLoads:
    """Loads for readers to come, with counts of those that no reader used.

    Args:
        chunks: Does the loading, into its cache: without one nothing is fetched ahead.
        budget: Of the memory that requests under way take.
        machine: Its threads: half the cores.

    Attributes:
        pool: For work that no reader waits for.

    Thread safety: any number of threads; no lock is held across a store call.
    """

    def __init__(self, chunks: ChunkFetcher, budget: MemoryBudget, machine: Machine) -> None:
        scheduler = machine.scheduler
        self._chunks = chunks
        self._under_way = chunks.under_way
        self._requests = chunks.requests
        self._metrics = chunks.requests.metrics
        self._cache = chunks.cache
        self._budget = budget
        self._is_local = chunks.is_local
        self.pool = scheduler.pool(max(1, scheduler.cores // 2), name="tierlog-ahead")
        self._lock = scheduler.lock()
        self._in_line: dict[ChunkLoad, ChunkRun] = {}  # not sent
        self._awaited: collections.OrderedDict[ChunkKey, int] = collections.OrderedDict()
        chunks.on_joined, chunks.on_asked = self.hurry, self.note_taken

    @property
    def is_possible(self) -> bool:
        """Whether there is a cache to fill."""
        return self._cache is not None

    def request(
        self, log: SegmentLog, views: Sequence[ChunkView], *, turn: Hashable, is_wanted: Callable[[], bool]
    ) -> None:
        """Bring chunks into the cache that no reader asked for yet; cached and pending ones are left out.

        Only spare memory of the budget is used.

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
            if key in self._cache or key in self._under_way:
                continue
            memory = self._memory_of(log, view)
            if not self._budget.try_take(memory, leaving_bytes=self._budget.total_bytes // 2):
                break
            load = self._under_way.begin(key)
            if load is None:
                self._budget.give_back(memory)
                continue
            missing.append(MissingChunk(view, load))
        for part in self._chunks.in_requests(missing):
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
                self._in_line.update((load, run) for load in run.under_way)
            self._chunks.start(run, Lane.AHEAD)

    def _memory_of(self, log: SegmentLog, view: ChunkView) -> int:
        """Return the bytes that count until the chunk is in the cache: no reader took memory for it."""
        return self._chunks.stored_memory_of(log, [view]) if self._is_local else view.stored_size

    def _load_here(
        self, log: SegmentLog, chunks: Sequence[MissingChunk], turn: Hashable, is_wanted: Callable[[], bool]
    ) -> None:
        """Load from a local store, in the pool's thread or in that of a reader that comes before it."""
        self._note_loaded(log, chunks)
        for chunk in chunks:
            self._chunks.offer(log, chunk, turn)

            def work(load: ChunkLoad = chunk.load) -> None:
                if is_wanted() or load.readers:
                    load.run()
                elif load.on_unwanted is not None:
                    load.on_unwanted()

            try:
                self.pool.submit(work)
            except NotSubmitted:  # a reader that waits for it does the work itself
                if chunk.load.on_unwanted is not None:
                    chunk.load.on_unwanted()
                chunk.load.call_for_help()

    def _leave_out_unwanted(self, is_wanted: Callable[[], bool], run: ChunkRun) -> None:
        """Remove, at a run's turn, its first chunks without a waiter, where no reader reads any more."""
        with self._lock:
            for load in run.under_way:
                self._in_line.pop(load, None)
        if not is_wanted():
            left = run.left
            while left and self._under_way.abandon([left[0].load]):
                left.pop(0)

    # --- readers that come ---

    def hurry(self, load: ChunkLoad) -> None:
        """Move a chunk's queued request to the front, since a reader waits for it."""
        if self._in_line and (run := self._in_line.get(load)) is not None and (request := run.request) is not None:
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


#: Seconds without a read after which a reader counts as gone.
IDLE_SECONDS: Final = 20.0
#: Readers that are remembered: of one partition, and in all.
_PARTITION_READERS_MAX: Final = 8
_READERS_MAX: Final = 4096
#: A call begins at a batch border of the offset index, up to a large batch before the byte that is wanted.
_BACK_BYTES: Final = 1 << 20
_FORTH_BYTES: Final = 64 << 10
#: First distance, where chunks are smaller.
_FIRST_BYTES: Final = 1 << 20
#: Steps (calls, or mebibytes of one stream) before anything is fetched ahead.
_STEPS_MIN: Final = 2

#: Begins to describe the segment behind one, and calls the function with its log once that is there; called in a thread
#: of its own, it may look up the metadata of partitions.
OpenNext = Callable[[RemoteLogSegmentMetadata, Callable[[SegmentLog], None]], None]


@dataclass(slots=True, eq=False)
class Reader:
    """A reader of one partition, known by the positions of its calls."""

    partition: TopicIdPartition
    metadata: RemoteLogSegmentMetadata
    log: SegmentLog
    position: int
    seen_at_seconds: float
    steps: int = 0
    ahead_position: int = 0
    has_entered_next: bool = False

    @property
    def last_chunk(self) -> int:
        """The chunk that it read last."""
        return max(0, self.position - 1) // self.log.chunk_size


class Prefetcher:
    """The prefetch ahead of sequential readers, into the cache.

    Args:
        ahead: Fetches, into the cache; without a cache there is nothing to fill.
        open_next: Describes the next segment, where it is known.
        ahead_bytes_max: Of one reader, original bytes; 0 is never.
        crosses_segments: Go on into the next segment.
        machine: Its clock and locks.

    Attributes:
        is_off: Whether it does nothing: calls are not needed.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        ahead: AheadLoads,
        *,
        open_next: OpenNext,
        ahead_bytes_max: int,
        crosses_segments: bool,
        machine: Machine,
    ) -> None:
        self._ahead = ahead
        self._open_next = open_next
        self._ahead_bytes_max = ahead_bytes_max if ahead.is_possible else 0
        self.is_off = self._ahead_bytes_max <= 0
        self._crosses_segments = crosses_segments
        self._clock = machine.clock
        self._lock = machine.scheduler.lock()
        self._readers: collections.OrderedDict[int, Reader] = collections.OrderedDict()
        self._partitions: dict[TopicIdPartition, list[Reader]] = {}

    def begin(self, metadata: RemoteLogSegmentMetadata, log: SegmentLog, position: int) -> tuple[Reader, bool]:
        """Return the reader whose call begins, known or new, and whether it begins in the chunk that the reader read
        last.
        """
        now = self._clock.monotonic_seconds()
        with self._lock:
            known = self._partitions.setdefault(metadata.topic_id_partition, [])
            for reader in reversed(known):
                if self._continues(reader, metadata, log, position):
                    return reader, self._go_on(reader, metadata, log, position)
            reader = Reader(metadata.topic_id_partition, metadata, log, position, now)
            known.append(reader)
            self._readers[id(reader)] = reader
            if len(known) > _PARTITION_READERS_MAX:
                self._forget(known[0])
            elif len(self._readers) > _READERS_MAX:
                self._forget(next(iter(self._readers.values())))
            return reader, False

    def _go_on(self, reader: Reader, metadata: RemoteLogSegmentMetadata, log: SegmentLog, position: int) -> bool:
        is_same = reader.log.segment.log.key == log.segment.log.key
        again = is_same and reader.last_chunk == position // log.chunk_size
        if not is_same:
            reader.ahead_position = 0
            reader.has_entered_next = False
        reader.metadata, reader.log, reader.position = metadata, log, position
        reader.seen_at_seconds = self._clock.monotonic_seconds()
        reader.steps += 1
        self._readers.move_to_end(id(reader))
        return again

    def _continues(self, reader: Reader, metadata: RemoteLogSegmentMetadata, log: SegmentLog, position: int) -> bool:
        if reader.log.segment.log.key == log.segment.log.key:
            return -_BACK_BYTES <= position - reader.position <= _FORTH_BYTES and reader.position > 0
        at_end = reader.position >= reader.log.size_bytes - _BACK_BYTES
        return at_end and position <= _FORTH_BYTES and metadata.start_offset == reader.metadata.end_offset + 1

    def _forget(self, reader: Reader) -> None:
        self._readers.pop(id(reader), None)
        known = self._partitions[reader.partition]
        known.remove(reader)
        if not known:
            del self._partitions[reader.partition]

    def advance(self, reader: Reader, position: int, requested: int) -> None:
        """Note that a reader has got bytes, and fetch ahead of it.

        Args:
            reader: Of ``begin``.
            position: Behind the last byte that it got.
            requested: Position up to which its own stream has asked for chunks.
        """
        with self._lock:
            reader.steps += max(0, position - reader.position) // _FIRST_BYTES
            reader.position = max(reader.position, position)
            reader.seen_at_seconds = self._clock.monotonic_seconds()
            if reader.steps < _STEPS_MIN:
                return
            unit = max(reader.log.chunk_size, _FIRST_BYTES)
            distance = min(self._ahead_bytes_max, unit << min(reader.steps - _STEPS_MIN, 20))
            start = max(requested, reader.ahead_position)
            until = position + distance
            # In steps of half the distance, or each chunk would be a request of its own.
            if until - start < min(distance, reader.log.size_bytes) // 2:
                return
            end = min(until, reader.log.size_bytes)
            reader.ahead_position = max(start, end)
            enters_next = self._crosses_segments and until > reader.log.size_bytes and not reader.has_entered_next
            reader.has_entered_next |= enters_next
        if end > start:
            self._fetch(reader, reader.log, start, end)
        if enters_next:
            self._enter_next(reader, until - reader.log.size_bytes)

    def _fetch(self, reader: Reader, log: SegmentLog, start: int, end: int) -> None:
        self._ahead.request(
            log, log.views(start, end), turn=reader.partition, is_wanted=lambda: self._is_wanted(reader)
        )

    def _enter_next(self, reader: Reader, distance: int) -> None:
        """Fetch the next segment's description and first chunks; a fault of these is raised for its reader later."""
        metadata = reader.metadata

        def opened(log: SegmentLog) -> None:
            if log.size_bytes:
                self._fetch(reader, log, 0, min(max(distance, _FIRST_BYTES), log.size_bytes))

        def work() -> None:
            if self._is_wanted(reader):
                self._open_next(metadata, opened)

        try:
            self._ahead.pool.submit(work)
        except NotSubmitted:
            return  # no reader waits for it

    def _is_wanted(self, reader: Reader) -> bool:
        is_known = self._readers.get(id(reader)) is reader
        return is_known and self._clock.monotonic_seconds() - reader.seen_at_seconds < IDLE_SECONDS

    def forget(self, log_key: str) -> None:
        """Forget the readers of a log that is gone."""
        with self._lock:
            gone = [reader for reader in self._readers.values() if reader.log.segment.log.key == log_key]
            for reader in gone:
                self._forget(reader)

    def close(self) -> None:
        """Begin no more loads; idempotent."""
        self._ahead.pool.close(wait_seconds=_CLOSE_SECONDS)
