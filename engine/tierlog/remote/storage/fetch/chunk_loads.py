"""Chunks for readers: from the cache, from a pending load, or by one request for neighbouring ones.

Every chunk is fetched once, however many readers ask. A reader that leaves does not end a download: it lands in the
cache; where there is none, the last reader to leave ends it. Chunks of a bucket come in requests for neighbouring ones,
which hold no thread. Of a local store, or out of the cache on a disk, a chunk is work for the first thread that needs
it. Fetched chunks are opened by the waiting reader or by a thread a core, each chunk into memory of its own, and put
into the cache (``ChunkLanding``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tierlog._native.buffers import copy_into
from tierlog.errors import CorruptObjectError
from tierlog.remote.storage.cache.chunk_cache import ChunkCache, MemoryChunkCache
from tierlog.remote.storage.store_requests import Lane, ReadRequest, StoreRequests
from tierlog.remote.tier.chunks.stored_segment import CHUNKS_TOGETHER_MAX, ChunkKey, ChunkView, SegmentLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.machine.scheduling import NotSubmitted
from tierlog.runtime.waiting.turns import MemoryBudget
from tierlog.runtime.waiting.waits import SharedLoad, SharedLoads

#: Closing waits so long for chunks that are being opened.
_CLOSE_SECONDS: Final = 1.0

ChunkLoad = SharedLoad[ChunkKey, memoryview]
ChunkSource = memoryview | ChunkLoad


@dataclass(frozen=True, slots=True)
class MissingChunk:
    """A chunk to get, and the load of it."""

    view: ChunkView
    load: ChunkLoad


@dataclass(slots=True, eq=False)
class ChunkRun:
    """Neighbouring chunks that come in one request.

    Attributes:
        left: Those that have not landed, ascending.
        turn: Whose turns go round.
        held_bytes: Of the memory budget, for the stored bytes; released with the last chunk.
        on_turn: Called before the request is sent; it may take chunks out of ``left``.
        on_bytes: Called when the chunks' stored bytes have come.
        request: Sent, or queued.
        opening: Chunks whose stored bytes are not released yet.
    """

    log: SegmentLog
    left: list[MissingChunk]
    turn: Hashable
    held_bytes: int
    on_turn: Callable[[ChunkRun], None] | None = None
    on_bytes: Callable[[ChunkRun], None] | None = None
    request: ReadRequest | None = None
    opening: int = 0

    @property
    def under_way(self) -> list[ChunkLoad]:
        return [chunk.load for chunk in self.left]

    @property
    def start(self) -> int:
        """Position of the first byte in the object."""
        return self.left[0].view.position

    @property
    def end_exclusive(self) -> int:
        last = self.left[-1].view
        return last.position + last.stored_size


def neighbours(missing: Sequence[MissingChunk], *, size_bytes_max: int) -> list[list[MissingChunk]]:
    """Return ascending chunks grouped by request: neighbours, of at most so many original bytes together."""
    runs: list[list[MissingChunk]] = []
    size = 0
    for chunk in missing:
        last = runs[-1][-1].view.number if runs else None
        size += chunk.view.original_size
        if (
            last is None
            or size > size_bytes_max
            or len(runs[-1]) >= CHUNKS_TOGETHER_MAX
            or (last + 1 != chunk.view.number)
        ):
            runs.append([])
            size = chunk.view.original_size
        runs[-1].append(chunk)
    return runs


class ChunkFetcher:
    """The fetcher of readers' chunks: it finds them in the cache, joins pending loads, and begins the others.

    Args:
        requests: Of the objects.
        cache: Of chunks; None caches nothing.
        opened: Of chunks as readers got them last, in front of a slow cache; None: none.
        budget: Of the memory that requests under way take.
        machine: Its threads and locks.
        request_bytes_max: Original bytes of one request.

    Attributes:
        requests, cache: The same.
        in_memory: The cache that answers at once: the cache itself, or what is in front of it; None: neither does.
        under_way: The loads of chunks.
        open_pool: Threads that open chunks, one a core.
        is_local: Whether the store is a disk of this machine.
        on_joined: Called with a load under way that a reader has joined.
        on_asked: Called with the chunks that a reader has asked for, where there is a cache.

    Thread safety: any number of threads; no lock is held across a store call.
    """

    def __init__(
        self,
        requests: StoreRequests,
        *,
        cache: ChunkCache | None,
        opened: MemoryChunkCache | None = None,
        budget: MemoryBudget,
        machine: Machine,
        request_bytes_max: int,
    ) -> None:
        self.requests = requests
        self._metrics = requests.metrics
        self.cache = cache
        self.in_memory = opened if cache is None or cache.is_slow else cache
        self._budget = budget
        self._request_bytes_max = request_bytes_max
        self.is_local = requests.store.is_local
        self.under_way: SharedLoads[ChunkKey, memoryview] = SharedLoads(machine)
        self._landing = ChunkLanding(self.under_way, cache, self.in_memory, requests, machine)
        self.open_pool = self._landing.pool
        self._lock = machine.scheduler.lock()
        self.on_joined: Callable[[ChunkLoad], None] = lambda _: None
        self.on_asked: Callable[[SegmentLog, Sequence[ChunkView]], None] = lambda *_: None

    def memory_of(self, log: SegmentLog, views: Sequence[ChunkView]) -> int:
        """Return the bytes of the budget that a fetch of neighbouring chunks takes: their original bytes, and stored
        ones until these are opened, or split.
        """
        return sum(view.original_size for view in views) + self.stored_memory_of(log, views)

    def request(
        self, log: SegmentLog, views: Sequence[ChunkView], *, turn: Hashable, again: bool, soon: bool
    ) -> tuple[list[ChunkSource], int]:
        """Request neighbouring chunks: return of each its bytes, or a load to wait for or leave. Does not wait.

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
        cache, in_memory = self.cache, self.in_memory
        if cache is None and log.segment.compression:
            views = [*views[:-1], self._shortened(log, views[-1])]
        found: list[ChunkSource] = []
        missing: list[MissingChunk] = []
        hits = hit_bytes = 0
        for position, view in enumerate(views):
            key = log.key(view)
            if in_memory is not None:
                data = in_memory.find(key, again=again and position == 0)
                if data is not None:
                    found.append(data)
                    hits, hit_bytes = hits + 1, hit_bytes + len(data)
                    continue
            load, is_new = self.under_way.join(key)
            found.append(load)
            if is_new:
                missing.append(MissingChunk(view, load))
            else:
                self.on_joined(load)
        if in_memory is not None:  # what it lacks, a slow cache counts
            self._count_lookups(in_memory.label, hits, hit_bytes, len(views) - hits if in_memory is cache else 0)
        if cache is not None:
            self.on_asked(log, views)
        return found, self._begin(log, missing, turn, soon=soon) if missing else 0

    def request_plain(self, log: SegmentLog, start: int, end_exclusive: int, turn: Hashable) -> ChunkLoad:
        """Request exactly these bytes of a log that is stored as it is, past the cache, for one reader."""
        key = log.segment.log.key
        first, end = log.segment.log.position + start, log.segment.log.position + end_exclusive
        load = self.under_way.alone(ChunkKey(key, -1))
        if self.is_local:

            def read() -> None:
                try:
                    load.end(self.requests.read_here(key, first, end, log.name).toreadonly(), None)
                except BaseException as error:  # noqa: BLE001 - the waiters must get it, whatever it is
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
            before=lambda _: self.requests.note_sent(load),
        )
        load.on_unwanted = partial(self.requests.cancel, request)
        self.requests.start(request)
        return load

    @property
    def reads_directly(self) -> bool:
        """Whether ``read_into`` may be called."""
        return self.is_local and self.cache is None and self.requests.reads_directly

    def read_into(self, log: SegmentLog, start: int, out: memoryview) -> None:
        """Read a range of a log that is stored as it is into the reader's memory, past the cache, in this thread."""
        self.requests.read_into(log.segment.log.key, log.segment.log.position + start, out, log.name)

    def leave(self, under_way: Iterable[ChunkLoad]) -> None:
        """Leave loads that a reader waits for no more. Without a cache, a download without a waiter ends now."""
        for load in under_way:
            self.under_way.leave(load)
            if load.has_work:  # another reader waits for this one's work
                self._landing.run_soon(load, always=False)

    def _shortened(self, log: SegmentLog, view: ChunkView) -> ChunkView:
        """Cut the chunk to the range's part, unless all of it is being decompressed already."""
        is_whole = view.end == view.original_size or log.key(view) in self.under_way
        return view if is_whole else view._replace(until=view.end)

    def _count_lookups(self, label: str, hits: int, hit_bytes: int, misses: int) -> None:
        if hits:
            self._metrics.add("cache_hits_total", hits, label=label)
            self._metrics.add("cache_hit_bytes_total", hit_bytes, label=label)
        if misses:
            self._metrics.add("cache_misses_total", misses, label=label)

    def stored_memory_of(self, log: SegmentLog, views: Sequence[ChunkView]) -> int:
        """Return bytes that one request for neighbouring chunks brings beside the chunks themselves.

        One chunk that is stored as it is becomes the chunk itself.
        """
        is_kept = not log.segment.transformed and (self.cache is None or self.is_local or len(views) == 1)
        return 0 if is_kept else sum(view.stored_size for view in views)

    def in_requests(self, missing: Sequence[MissingChunk]) -> list[list[MissingChunk]]:
        """Return ascending chunks, cut into those that one request gets."""
        return neighbours(missing, size_bytes_max=self._request_bytes_max)

    def _begin(self, log: SegmentLog, missing: list[MissingChunk], turn: Hashable, *, soon: bool) -> int:
        """Begin loads that a reader waits for; ``soon``: the reader waits for the first one next.

        Returns:
            How much of the budget their stored bytes hold until they end.
        """
        far: list[MissingChunk] = []
        held = 0
        for number, chunk in enumerate(missing):
            if not (self.is_local or self._is_on_disk(log, chunk.view)):
                far.append(chunk)
                continue
            held += self.offer(log, chunk, turn)
            if not (soon and number == 0):  # the reader that waits for it next does the work itself
                self._landing.run_soon(chunk.load, always=False)
        for part in self.in_requests(far):
            run = ChunkRun(log, part, turn, self.stored_memory_of(log, [c.view for c in part]))
            held += run.held_bytes
            for load in run.under_way:
                load.on_unwanted = partial(self._end_unwanted, run)
            self.start(run, Lane.READERS)
        return held

    def _is_on_disk(self, log: SegmentLog, view: ChunkView) -> bool:
        return self.cache is not None and self.cache.is_slow and log.key(view) in self.cache

    def offer(self, log: SegmentLog, chunk: MissingChunk, turn: Hashable) -> int:
        """Make a load the work of the first thread that needs it: of a local store, or from the disk's cache.

        Returns:
            How much of the budget its stored bytes hold until it ends.
        """
        view, load = chunk.view, chunk.load
        held = self.stored_memory_of(log, [view])
        ended = partial(self._budget.give_back, held)
        is_cached = self._is_on_disk(log, view)

        def work() -> None:
            cache = self.cache
            try:
                if is_cached and self._landing.take_cached(log, view, load):
                    ended()
                    return
            except BaseException as error:  # noqa: BLE001 - the waiters must get it, whatever it is
                ended()
                self.under_way.fail(load, error)
                return
            if self.is_local:
                if cache is not None and not is_cached and cache.is_slow:
                    self._metrics.add("cache_misses_total", label=cache.label)
                self._landing.read_and_land(log, view, load, ended)
            else:
                self.start(ChunkRun(log, [chunk], turn, held), Lane.READERS, is_counted=True)

        def unwanted() -> None:
            if self.under_way.abandon([load]) and load.withdraw():
                ended()

        load.on_unwanted = unwanted
        load.offer(work)
        return held

    def _end_unwanted(self, run: ChunkRun) -> None:
        """End a run that the last reader left, if no cache would store it."""
        request = run.request  # an answer that comes now takes it away
        if self.cache is None and request is not None and self.under_way.abandon(run.under_way):
            self.requests.cancel(request)

    def start(self, run: ChunkRun, lane: Lane, *, is_counted: bool = False) -> None:
        """Ask for a run of chunks; ``is_counted``: the metrics have its misses already."""
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
        self.requests.start(run.request)

    def _before(self, run: ChunkRun, request: ReadRequest) -> bool:
        """Prepare a run whose turn has come: leave out chunks that landed in the cache meanwhile, and unwanted ones."""
        left, cache = run.left, self.cache
        if run.on_turn is not None:
            run.on_turn(run)
        while left and cache is not None and not cache.is_slow:
            data = cache.find(run.log.key(left[0].view), again=True)
            if data is None:
                break
            self.under_way.land(left.pop(0).load, data)
        if not left:
            run.request = None
            self._let_go(run)
            return False
        request.start = run.start
        for chunk in left:
            self.requests.note_sent(chunk.load)
        return True

    def _came(self, run: ChunkRun, answer: memoryview | BaseException, *, is_counted: bool) -> None:
        """A request's answer, in the store's thread, which opens nothing."""
        log, cache = run.log, self.cache
        run.request = None  # it knows the run: with the chunks' bytes the two would wait for the collector
        if isinstance(answer, BaseException):
            self._let_go(run)
            for chunk in run.left:
                self.under_way.fail(chunk.load, answer)
            return
        if run.on_bytes is not None:
            run.on_bytes(run)
        if cache is not None and cache.is_slow and not is_counted:
            self._metrics.add("cache_misses_total", len(run.left), label=cache.label)
        first, chunks = run.start, run.left
        run.opening = len(chunks)
        run.left = []
        for chunk in chunks:
            view = chunk.view
            stored = answer[view.position - first : view.position - first + view.stored_size]
            chunk.load.offer(
                partial(self._landing.open_and_land, log, view, chunk.load, stored, partial(self._opened, run))
            )
            if log.segment.transformed or cache is not None:
                self._landing.run_soon(chunk.load, always=True)
            else:
                chunk.load.run()

    def _opened(self, run: ChunkRun) -> None:
        with self._lock:
            run.opening -= 1
            is_last = run.opening == 0
        if is_last:
            self._let_go(run)

    def _let_go(self, run: ChunkRun) -> None:
        held, run.held_bytes = run.held_bytes, 0
        self._budget.give_back(held)

    def close(self) -> None:
        """End all requests; readers that wait get an error. Idempotent."""
        self.requests.close()
        self.open_pool.close(wait_seconds=_CLOSE_SECONDS)


#: Bytes of chunks that a slow cache has not written yet, in all; chunks beyond that are not cached.
KEPT_LATER_BYTES_MAX: Final = 64 << 20


class ChunkLanding:
    """The landing of chunks: it opens and caches them and lands their loads, in the calling thread or in one of its
    pool.

    Args:
        under_way: Of chunks.
        cache: Of chunks; None caches nothing.
        in_memory: The cache that answers at once, or what is in front of it; None: neither does.
        requests: Reads a local store in the thread that needs it.
        machine: Its threads: one a core opens chunks.

    Thread safety: any number of threads; no lock is held while a chunk is read or opened.
    """

    def __init__(
        self,
        under_way: SharedLoads[ChunkKey, memoryview],
        cache: ChunkCache | None,
        in_memory: ChunkCache | None,
        requests: StoreRequests,
        machine: Machine,
    ) -> None:
        self._under_way = under_way
        self._cache = cache
        self._in_memory = in_memory
        self._requests = requests
        self._metrics = requests.metrics
        self._cores = machine.scheduler.cores
        self.pool = machine.scheduler.pool(self._cores, name="tierlog-open")
        self._lock = machine.scheduler.lock()
        self._queued = 0
        self._kept_later_bytes = 0

    def run_soon(self, load: ChunkLoad, *, always: bool) -> None:
        """Let a thread of the pool do a load's work if no thread has by then; not ``always`` where these are busy.

        The waiter does the work itself in that case: every reader runs the loads that it waits for.
        """
        with self._lock:
            is_taken = always or self._queued < 2 * self._cores
            self._queued += is_taken
        if is_taken:
            try:
                self.pool.submit(partial(self._run, load))
            except NotSubmitted:
                is_taken = False
                with self._lock:
                    self._queued -= 1
        if not is_taken:
            load.call_for_help()

    def _run(self, load: ChunkLoad) -> None:
        with self._lock:
            self._queued -= 1
        load.run()

    def read_and_land(self, log: SegmentLog, view: ChunkView, load: ChunkLoad, ended: Callable[[], None]) -> None:
        """Read a chunk of a local store, open it and land it; ``ended`` is called when its stored bytes are
        released.
        """
        try:
            end = view.position + view.stored_size
            stored = self._requests.read_here(log.segment.log.key, view.position, end, log.name)
        except BaseException as error:  # noqa: BLE001 - the waiters must get it, whatever it is
            ended()
            self._under_way.fail(load, error)
            return
        self.open_and_land(log, view, load, stored, ended)

    def open_and_land(
        self, log: SegmentLog, view: ChunkView, load: ChunkLoad, stored: memoryview, ended: Callable[[], None]
    ) -> None:
        """Open, cache and land a stored chunk. A slow cache gets it after the reader did."""
        cache = self._cache
        try:
            if log.segment.transformed:
                data = log.open_chunk(stored, view)
            elif cache is None or len(stored) == view.stored_size == memoryview(stored.obj).nbytes:
                data = stored.toreadonly()
            else:
                data = _copied(stored)
            if self._in_memory is not None:
                self._in_memory.put(log.key(view), data, len(data))
        except BaseException as error:  # noqa: BLE001 - as above
            ended()
            self._under_way.fail(load, error)
            return
        kept = stored if cache is not None and cache.keeps_stored else data
        del stored
        ended()
        self._under_way.land(load, data)
        if cache is not None and cache.is_slow and not view.until:
            self._keep_later(cache, log.key(view), kept)

    def _keep_later(self, cache: ChunkCache, key: ChunkKey, kept: memoryview) -> None:
        """Write a chunk to a slow cache in a thread of the pool; a disk that is too slow gets fewer."""
        with self._lock:
            if self._kept_later_bytes + len(kept) > KEPT_LATER_BYTES_MAX:
                return
            self._kept_later_bytes += len(kept)

        def work() -> None:
            try:
                cache.put(key, kept, len(kept))
            finally:
                with self._lock:
                    self._kept_later_bytes -= len(kept)

        try:
            self.pool.submit(work)
        except NotSubmitted:  # not cached then
            with self._lock:
                self._kept_later_bytes -= len(kept)

    def take_cached(self, log: SegmentLog, view: ChunkView, load: ChunkLoad) -> bool:
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
        if self._in_memory is not None:
            self._in_memory.put(key, data, len(data))
        self._under_way.land(load, data)
        return True


def _copied(stored: memoryview) -> memoryview:
    """A copy: a view would hold the whole download for as long as the cache holds one chunk of it."""
    made = new_buffer(len(stored))
    copy_into(made, stored)
    return made.toreadonly()
