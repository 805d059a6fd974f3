"""The topics of a bucket as a server serves them: listed by keys alone, resolved when a reader asks, followed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from tierlog.broker.partition_watches import PartitionKey, PartitionWatch, PartitionWatches
from tierlog.broker.partitions import OffsetSnapshot, Partition, Topic
from tierlog.broker.replica.catalog.cached_history import CachedHistory, HistoryCache
from tierlog.broker.replica.catalog.resolution_queue import ResolutionQueue
from tierlog.broker.replica.catalog.saved_listing import ListingSaver, SavedListing
from tierlog.broker.replica.catalog.served_topics import ServedTopics
from tierlog.errors import StoreError, TierlogError
from tierlog.remote.api import ZERO_UUID, TopicIdPartition, Uuid
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Future
from tierlog.runtime.waiting.loops import Alarm, LoopCalls, TaskCancelledError, Worker
from tierlog.runtime.waiting.threads import BoundedCalls
from tierlog.scan.following.resolution import Resolver
from tierlog.scan.following.tier_listing import ListedPartition, TierKeys, TierListing

if TYPE_CHECKING:
    from tierlog.remote.metadata.metadata_view import MetadataView

_log = logging.getLogger(__name__)

#: Memory of resolved histories: those of a hundred thousand segments.
HISTORIES_BYTES: Final = 256 << 20
#: Changes within this time are one change for waiters.
_RISE_SECONDS: Final = 0.02
#: How long a saved listing is served before the bucket is listed: a server that starts has its first readers to answer,
#: and a listing of ten thousand segments takes half a second of the same interpreter.
_SAVED_SECONDS: Final = 1.0
#: A server is ready while the last listing is younger than so many pauses between listings, and than this at least.
_READY_REFRESHES: Final = 3.0
_READY_SECONDS_MIN: Final = 30.0
#: Seconds that a close waits for the thread that follows.
_CLOSE_SECONDS: Final = 5.0
#: Listings under way at most, those that were given up included: behind these the next ones wait.
_LISTINGS_MAX: Final = 2
#: The pause after the first listing that failed; doubled with each further one, up to the pause between listings.
_RETRY_SECONDS_MIN: Final = 1.0
#: How much of a pause chance decides, so that many servers do not list at once.
_JITTER: Final = 0.1
#: The pause behind each partition that is resolved before a reader asks, and behind so many that are known: readers go
#: first.
_AHEAD_PAUSE_SECONDS: Final = 0.01
_KNOWN_AT_ONCE: Final = 50


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """The settings of a served bucket.

    Args:
        topics: As ServedTopics takes them.
        refresh_seconds: Pause between two listings.
        refresh_deadline_seconds: After which a listing is given up.
        log_start_offsets: Topic -> partition -> offset below which records are deleted.
        state_file: Where the last listing is saved, so that the next start need not wait for one; None for nowhere. Of
            no effect with metadata, which lists nothing.
        segments_ahead_max: Segments that are described before a reader asks for their partitions, at most.
        histories_bytes_max: Memory of the cached histories; -1 for no limit.
        request_seconds: How long one request of a resolution may take.
    """

    topics: tuple[str, ...] = ()
    refresh_seconds: float = 60.0
    refresh_deadline_seconds: float = 600.0
    log_start_offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    state_file: str | None = None
    segments_ahead_max: int = 20_000
    histories_bytes_max: int = HISTORIES_BYTES
    request_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class _Look:
    """One listing of the bucket, and the topics of it that are served."""

    listing: TierListing
    topics: Mapping[str, Topic]
    by_id: Mapping[Uuid, Topic]


class _Following:
    """Listings at intervals, in threads.

    Args:
        what: The listed object, for messages and names.
        look: Lists; its argument is the previous result, or None. Runs in a thread.
        found: Gets each result, in this object's thread.
        failed: Gets each error, in this object's thread.
        seconds: Pause between two listings.
        deadline_seconds: After which a listing is given up.
        machine: Its clock, chance and threads.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        what: str,
        look: Callable[[_Look | None], _Look],
        found: Callable[[_Look], object],
        failed: Callable[[TierlogError], object],
        *,
        seconds: float,
        deadline_seconds: float,
        machine: Machine,
    ) -> None:
        self._what = what
        self._look = look
        self._found = found
        self._failed = failed
        self._seconds = seconds
        self._deadline_seconds = deadline_seconds
        self._machine = machine
        self._calls = BoundedCalls(machine, _LISTINGS_MAX, name="tierlog-replica-listing")
        self._changed = machine.scheduler.condition()
        self._is_closed = False
        self._is_wanted = False
        self._failures = 0
        self._thread: Future[None] | None = None

    def look(self, before: _Look | None) -> _Look:
        """Look once, in the calling thread's time. Raises: what ``look`` raises, and StoreUnavailableError when the
        deadline is over.
        """
        return self._calls.run(
            f"the listing of {self._what}", lambda: self._look(before), seconds=self._deadline_seconds
        )

    def start(self, before: _Look, *, first_seconds: float | None = None) -> None:
        """Begin to follow: the first listing comes after so many seconds, by default after a pause."""
        first = self._pause() if first_seconds is None else first_seconds
        self._thread = self._machine.scheduler.start(
            lambda: self._follow(before, first), name="tierlog-replica-following"
        )

    def hurry(self) -> None:
        """List now."""
        with self._changed:
            self._is_wanted = True
            self._changed.notify_all()

    def close(self) -> Future[None] | None:
        """Cancel a running listing and end. Returns the future of the thread's end; None if it never began."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._calls.close()
        return self._thread

    def _follow(self, before: _Look, seconds: float) -> None:
        while self._wait(seconds):
            try:
                before = self.look(before)
            except TierlogError as error:
                seconds = self._fail(error)
            except Exception as error:  # noqa: BLE001 - a fault of ours must not end the following
                _log.error("the listing of %s failed", self._what, exc_info=error)
                seconds = self._fail(StoreError(f"{type(error).__name__}: {error}"))
            else:
                if self._failures:
                    _log.info("%s is listed again, after %d failures", self._what, self._failures)
                self._failures = 0
                seconds = self._pause()
                self._found(before)

    def _fail(self, error: TierlogError) -> float:
        if self._is_closed:
            return 0.0
        if not self._failures:
            _log.warning("%s cannot be listed; what was found before is served: %s", self._what, error)
        self._failures += 1
        self._failed(error)
        seconds = min(_RETRY_SECONDS_MIN * 2.0 ** min(self._failures - 1, 16), max(self._seconds, _RETRY_SECONDS_MIN))
        return self._machine.rng.uniform(seconds / 2, seconds)

    def _pause(self) -> float:
        return self._seconds * self._machine.rng.uniform(1.0 - _JITTER, 1.0 + _JITTER)

    def _wait(self, seconds: float) -> bool:
        """Wait, unless a listing is wanted; whether to go on."""
        due = self._machine.clock.monotonic_seconds() + seconds
        with self._changed:
            while not self._is_closed and not self._is_wanted:
                left = due - self._machine.clock.monotonic_seconds()
                if left <= 0:
                    break
                self._changed.wait(left)
            self._is_wanted = False
            return not self._is_closed


class BucketCatalog:
    """A Catalog of a bucket, which others write.

    The version rises when topics or partitions come or go, and when a history that a reader knows is another one now;
    also once when all partitions have been resolved that are resolved before a reader asks. It does not rise when a
    partition is resolved for the first time: no reader has known anything of it that could have changed.

    Args:
        tier: The served tier; stays the caller's.
        make_partition: Makes what serves a partition of its history; called on the event loop, once for each
            partition that is asked for.
        settings: How.
        read_metadata: Which segments count, asked at each refresh; the tier was opened with it. None: the tier's keys
            say.
        machine: Its clock, chance, threads.

    Attributes:
        history_cache: The histories in memory.

    Made and used on one event loop; ``start`` before anything else, ``close`` at the end.
    """

    def __init__(
        self,
        tier: Tier,
        make_partition: Callable[[CachedHistory], Partition],
        settings: CatalogSettings | None = None,
        *,
        read_metadata: Callable[[], MetadataView] | None = None,
        machine: Machine | None = None,
    ) -> None:
        self._settings = settings or CatalogSettings()
        self._tier = tier
        self._make_partition = make_partition
        self._machine = machine or Machine()
        self.history_cache = HistoryCache(self._settings.histories_bytes_max)
        self._served = ServedTopics(self._settings.topics)
        self._following = _Following(
            tier.describe(),
            self._look,
            self._found,
            lambda error: self._loop.submit(partial(self._miss, error)),
            seconds=self._settings.refresh_seconds,
            deadline_seconds=self._settings.refresh_deadline_seconds,
            machine=self._machine,
        )
        self._source = TierKeys(tier)
        if read_metadata is not None:
            # For servers with metadata alone: a start is counted in imports.
            from tierlog.scan.following.known_partitions import KnownPartitions

            self._source = KnownPartitions(tier, read_metadata, self.refresh_soon)
        self._saver = None
        if self._settings.state_file is not None and read_metadata is None:
            self._saver = ListingSaver(SavedListing(self._settings.state_file, tier, self._machine), self._machine)
        self._loop = LoopCalls()
        self._resolver = Resolver(self._source, self._settings.log_start_offsets)
        self._queue = ResolutionQueue(request_seconds=self._settings.request_seconds, machine=self._machine)
        self._ahead: Iterator[Partition] = iter(())
        self._is_resolving_ahead = False
        self._watches = PartitionWatches(self._machine.timers)
        self._renewed: set[TopicIdPartition] = set()
        self._version = 1
        self._topics: Mapping[str, Topic] = {}
        self._by_id: Mapping[Uuid, Topic] = {}
        self._listed: Mapping[TopicIdPartition, ListedPartition] = {}
        self._histories: dict[TopicIdPartition, CachedHistory] = {}
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._refreshed_at: float | None = None
        self._refresh_error: TierlogError | None = None
        self._listings = 0
        self._is_closed = False

    async def start(self, *, may_be_away: bool = False) -> None:
        """List the bucket and begin to follow it. With a saved listing begin with that, and list a moment later.

        Args:
            may_be_away: Begin with nothing where the bucket cannot be listed for now, and list a moment later.

        Raises:
            StoreError and its kinds: it cannot be listed, and no listing was saved.
        """
        pool = self._machine.scheduler.pool(1, name="tierlog-replica-start")
        worker, saver = Worker(pool, self._machine), self._saver
        try:
            saved = None if saver is None else await worker.run(saver.load)
            first_seconds: float | None = _SAVED_SECONDS
            if saved is not None:
                look = await worker.run(lambda: self._looked(saved))
                self._serve(look)
            else:
                try:
                    look = await worker.run(lambda: self._following.look(None))
                except StoreError as error:
                    if not (may_be_away and error.retriable):
                        raise
                    _log.warning("%s cannot be listed, and serves nothing yet: %s", self._tier.describe(), error)
                    self._refresh_error = error
                    look = self._looked(TierListing({}, {}))
                else:
                    first_seconds = None
                    self._take(look)
                    await worker.run(lambda: self._save(look))
        finally:
            pool.close(wait_seconds=0)
        self._following.start(look, first_seconds=first_seconds)

    async def close(self) -> None:
        """Stop following; pending work is cancelled. Partitions that were handed out know nothing new any more."""
        self._is_closed = True
        await self._queue.stop()
        await self._loop.cancel()
        pool = self._machine.scheduler.pool(1, name="tierlog-replica-close")
        try:
            await Worker(pool, self._machine).run(self._close_threads)
        finally:
            pool.close(wait_seconds=0)

    def _close_threads(self) -> None:
        thread = self._following.close()
        self._queue.close()
        try:
            if thread is not None:
                thread.result(timeout=_CLOSE_SECONDS)
        except TimeoutError:
            _log.warning("%s: the thread that follows it does not end", self._tier.describe())
        else:
            if self._saver is not None:
                self._saver.flush()

    @property
    def version(self) -> int:
        return self._version

    def refresh_soon(self) -> None:
        """List the bucket now, and not only after the pause."""
        self._following.hurry()

    @property
    def listings(self) -> int:
        """The number of listings that ended, failed ones included."""
        return self._listings

    @property
    def refresh_age_seconds(self) -> float | None:
        """Seconds since the newest listing ended; None before the first of this process."""
        return None if self._refreshed_at is None else self._machine.clock.monotonic_seconds() - self._refreshed_at

    @property
    def refresh_error(self) -> TierlogError | None:
        """The error of the newest listing; None if it did not fail."""
        return self._refresh_error

    @property
    def unready_reason(self) -> str:
        """The reason why the served topics may differ from the bucket's: the last listing is older than three pauses
        between listings, and than 30 s, or is a saved one. "" if it is none of these.
        """
        age_seconds = self.refresh_age_seconds
        limit_seconds = max(_READY_REFRESHES * self._settings.refresh_seconds, _READY_SECONDS_MIN)
        if age_seconds is not None and age_seconds < limit_seconds:
            return ""
        text = "the bucket has not been listed since the start"
        if age_seconds is not None:
            text = f"the last listing of the bucket is {age_seconds:.0f} s old; {limit_seconds:g} s are allowed"
        return text if self._refresh_error is None else f"{text}: {self._refresh_error}"

    @property
    def newest_segment_ms(self) -> int:
        """Time at which the newest segment of the bucket was written, ms since 1970; -1 without any. Any thread."""
        return max((listed.newest_ms for listed in self._listed.values()), default=-1)

    def topics(self) -> Collection[Topic]:
        return self._topics.values()

    def find(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def find_by_id(self, topic_id: Uuid) -> Topic | None:
        return self._by_id.get(topic_id)

    def partition(self, name: str, partition: int) -> Partition | None:
        known = self._partitions.get((name, partition))
        if known is not None:
            return known
        topic = self._topics.get(name)
        if topic is None or partition < 0:
            return None
        found = TopicIdPartition(topic.topic_id, name, partition)
        if found not in self._listed:
            return None
        made = self._partitions[name, partition] = self._make_partition(self._history_of(found))
        return made

    def known_offsets(self, name: str, partition: int) -> OffsetSnapshot | None:
        """Return the offsets of a partition as clients get them; None until a reader has asked. Any thread."""
        known = self._partitions.get((name, partition))
        return None if known is None else known.offsets

    def watch(self, partitions: Iterable[PartitionKey]) -> PartitionWatch:
        return self._watches.add(partitions)

    def end_waits(self) -> None:
        """End each wait for a change, now and from now on: the server stops. Idempotent."""
        self._watches.end()

    def _history_of(self, partition: TopicIdPartition) -> CachedHistory:
        known = self._histories.get(partition)
        if known is None:
            known = self._histories[partition] = CachedHistory(
                self._listed[partition],
                self._resolver,
                self._queue,
                self.history_cache,
                note_change=self._renew,
                machine=self._machine,
            )
        return known

    def _found(self, look: _Look) -> None:
        """Serve and save a listing. In the thread that lists."""
        self._loop.submit(partial(self._take, look))
        self._save(look)

    def _save(self, look: _Look) -> None:
        if self._saver is not None:
            self._saver.note(look.listing)

    def _look(self, before: _Look | None) -> _Look:
        listing = self._source.list_partitions(before.listing if before else None)
        if before is not None and before.listing.partitions == listing.partitions:
            return _Look(listing, before.topics, before.by_id)
        return self._looked(listing)

    def _looked(self, listing: TierListing) -> _Look:
        newest_ms = {partition: listed.newest_ms for partition, listed in listing.partitions.items()}
        topics = self._served.choose(newest_ms)
        return _Look(listing, topics, {each.topic_id: each for each in topics.values() if each.topic_id != ZERO_UUID})

    def _take(self, look: _Look) -> None:
        """Serve a listing's result, now."""
        if not self._is_closed:
            self._listings += 1
            self._refreshed_at, self._refresh_error = self._machine.clock.monotonic_seconds(), None
            self._serve(look)

    def _serve(self, look: _Look) -> None:
        before, self._topics = self._topics, look.topics
        self._by_id = look.by_id
        self._listed = look.listing.partitions
        for partition, history in list(self._histories.items()):
            topic = look.topics.get(partition.topic)
            listed = self._listed.get(partition)
            if listed is not None and topic is not None and topic.topic_id == partition.topic_id:
                history.take_listing(listed)
            else:
                del self._histories[partition]
                self._partitions.pop((partition.topic, partition.partition), None)
                history.vanish()
        if before is not look.topics and before != look.topics:
            self._rise()
        self._ahead = self._iter_ahead()
        if not self._is_resolving_ahead and not self._is_closed:
            self._is_resolving_ahead = True
            self._loop.start(self._resolve_ahead())

    def _iter_ahead(self) -> Iterator[Partition]:
        """Iterate the partitions to resolve before a reader asks: as many as may be."""
        left = self._settings.segments_ahead_max
        listed, topics = self._listed, self._topics
        for topic in topics.values():
            for number in topic.partitions:
                partition = TopicIdPartition(topic.topic_id, topic.name, number)
                left -= listed[partition].segments
                if left < 0 or self._listed is not listed:
                    return
                served = self.partition(topic.name, number)
                if served is not None:
                    yield served

    async def _resolve_ahead(self) -> None:
        """Load partitions for which no reader has asked, one by one."""
        pause, has_news, known = Alarm(self._machine.timers), False, 0
        try:
            while not self._is_closed and (partition := next(self._ahead, None)) is not None:
                if partition.offsets is None:
                    has_news |= await self._load(partition)
                    await pause.wait(_AHEAD_PAUSE_SECONDS)
                elif (known := known + 1) % _KNOWN_AT_ONCE == 0:
                    await pause.wait(_AHEAD_PAUSE_SECONDS)
        finally:
            self._is_resolving_ahead = False
        if has_news and not self._is_closed:
            self._rise()

    async def _load(self, partition: Partition) -> bool:
        """Load the offsets of a partition, though no reader waits for them; return whether they are known."""
        try:
            await partition.load()
        except TaskCancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - raised again in readers of the partition
            _log.debug("%s is not loaded: %s", partition.topic_id_partition, error)
            return False
        return True

    def _miss(self, error: TierlogError) -> None:
        self._listings += 1
        self._refresh_error = error

    def _renew(self, partition: TopicIdPartition) -> None:
        """Raise the version for a changed history, once its offsets are known again: a poll that wakes finds them."""
        served = self._partitions.get((partition.topic, partition.partition))
        if served is None:
            self._rise_soon(partition)
        else:
            self._loop.start(self._load_and_rise(served))

    async def _load_and_rise(self, served: Partition) -> None:
        await self._load(served)
        self._rise_soon(served.topic_id_partition)

    def _rise_soon(self, partition: TopicIdPartition) -> None:
        """Raise the version once for all partitions that change within a moment."""
        if not self._renewed:
            self._machine.timers.call_later(_RISE_SECONDS, self._rise_renewed)
        self._renewed.add(partition)

    def _rise_renewed(self) -> None:
        renewed, self._renewed = self._renewed, set()
        self._version += 1
        self._watches.ring(renewed)

    def _rise(self) -> None:
        self._version += 1
        self._watches.ring_all()
