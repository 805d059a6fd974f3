"""The topics of a bucket as a server serves them: told by keys alone, resolved when somebody asks, followed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from tierlog.broker.partitions import OffsetSnapshot, Partition, Topic
from tierlog.broker.replica.catalog.bucket_histories import BucketHistories
from tierlog.broker.replica.catalog.catalog_settings import CatalogSettings
from tierlog.broker.replica.catalog.following import Following
from tierlog.broker.replica.catalog.kept_histories import KeptHistories
from tierlog.broker.replica.catalog.known_partitions import KnownPartitions, ReadsMetadata
from tierlog.broker.replica.catalog.resolution import BucketListing, Listed, ListingSource, Resolver
from tierlog.broker.replica.catalog.resolution_line import ResolutionLine
from tierlog.broker.replica.catalog.saved_listing import ListingSaver, SavedListing
from tierlog.broker.replica.catalog.served_topics import ServedTopics
from tierlog.broker.replica.catalog.tier_listing import TierKeys, TierListing
from tierlog.broker.replica.partition_histories import PartitionHistories
from tierlog.errors import TierlogError
from tierlog.remote.api import ZERO_UUID, TopicIdPartition, Uuid
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.loops import Alarm, LoopCalls, TaskCancelledError, Worker

_log = logging.getLogger(__name__)

#: Changes within this time are one change for who waits.
_RISE_SECONDS: Final = 0.02
#: How long a saved listing is served before the bucket is listed: a server that starts has its first readers to answer,
#: and a listing of ten thousand segments takes half a second of the same interpreter.
_SAVED_SECONDS: Final = 1.0
#: A server is ready while the last listing is younger than so many pauses between listings, and than this at least.
_READY_REFRESHES: Final = 3.0
_READY_SECONDS_MIN: Final = 30.0
#: What a close waits for the thread that follows.
_CLOSE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Look:
    """One listing of the bucket, and the topics of it that are served."""

    listing: BucketListing
    topics: Mapping[str, Topic]
    by_id: Mapping[Uuid, Topic]


class BucketCatalog:
    """See Catalog. What is served is a bucket, which nobody but others writes.

    The version rises when topics or partitions come or go, and when a history that a reader knows is another one now;
    also once when all partitions have been resolved that are resolved before anybody asks. It does not rise when a
    partition is resolved for the first time: nobody has known anything of it that could have changed.

    Args:
        tier: What is served; stays the caller's.
        make_partition: Makes what serves a partition of its histories; called on the event loop, once for each
            partition that is asked for.
        settings: How.
        metadata: Which segments count, read at each refresh; the tier was opened with it. None: the tier's keys say.
        machine: Its clock, chance, threads.

    Attributes:
        kept: The histories that are at hand.

    Made and used on one event loop; ``start`` before anything else, ``close`` at the end.
    """

    def __init__(
        self,
        tier: Tier,
        make_partition: Callable[[PartitionHistories], Partition],
        settings: CatalogSettings | None = None,
        *,
        metadata: ReadsMetadata | None = None,
        machine: Machine | None = None,
    ) -> None:
        self._settings = settings or CatalogSettings()
        self._tier = tier
        self._make_partition = make_partition
        self._machine = machine or Machine()
        self.kept = KeptHistories(self._settings.histories_bytes_max)
        self._served = ServedTopics(self._settings.topics)
        self._following: Following[_Look] = Following(
            tier.describe(),
            self._look,
            self._found,
            lambda error: self._loop.submit(partial(self._miss, error)),
            seconds=self._settings.refresh_seconds,
            deadline_seconds=self._settings.refresh_deadline_seconds,
            machine=self._machine,
        )
        self._source: ListingSource = TierKeys(tier)
        if metadata is not None:
            self._source = KnownPartitions(tier, metadata, self.refresh_soon)
        self._saver = None
        if self._settings.state_file is not None and metadata is None:
            self._saver = ListingSaver(SavedListing(self._settings.state_file, tier, self._machine), self._machine)
        self._loop = LoopCalls()
        self._line = ResolutionLine(
            Resolver(tier, self._source, self._settings.log_start_offsets),
            note_change=self._renew,
            ahead_done=self._rise,
            machine=self._machine,
        )
        self._changes = Alarm(self._machine.timers)
        self._version = 1
        self._topics: Mapping[str, Topic] = {}
        self._by_id: Mapping[Uuid, Topic] = {}
        self._listed: Mapping[TopicIdPartition, Listed] = {}
        self._histories: dict[TopicIdPartition, BucketHistories] = {}
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._refreshed_at: float | None = None
        self._refresh_error: TierlogError | None = None
        self._listings = 0
        self._is_rising = False
        self._is_closed = False
        self._has_ended_waits = False

    async def start(self) -> None:
        """List the bucket and begin to follow it. With a saved listing begin with that, and list a moment later.

        Raises:
            StoreError and its kinds: it cannot be listed, and no listing was saved.
        """
        pool = self._machine.scheduler.pool(1, name="tierlog-replica-start")
        worker, saver = Worker(pool, self._machine), self._saver
        try:
            saved = None if saver is None else await worker.run(saver.load)
            if saved is not None:
                look = await worker.run(lambda: self._looked(saved))
                self._serve(look)
            else:
                look = await worker.run(lambda: self._following.look(None))
                self._take(look)
                await worker.run(lambda: self._save(look))
        finally:
            pool.close(wait_seconds=0)
        self._following.start(look, first_seconds=None if saved is None else _SAVED_SECONDS)

    async def close(self) -> None:
        """Stop following; what is under way is cancelled. Partitions that were handed out know nothing new any more."""
        self._is_closed = True
        await self._line.stop()
        await self._loop.cancel()
        pool = self._machine.scheduler.pool(1, name="tierlog-replica-close")
        try:
            await Worker(pool, self._machine).run(self._close_threads)
        finally:
            pool.close(wait_seconds=0)

    def _close_threads(self) -> None:
        thread = self._following.close()
        self._line.close()
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
        """See Catalog."""
        return self._version

    def refresh_soon(self) -> None:
        """Have the bucket listed now, and not only after the pause."""
        self._following.hurry()

    @property
    def listings(self) -> int:
        """How many listings came to an end, those that failed included."""
        return self._listings

    @property
    def refresh_age_seconds(self) -> float | None:
        """How long ago the newest listing came to an end; None before the first of this process."""
        return None if self._refreshed_at is None else self._machine.clock.monotonic_seconds() - self._refreshed_at

    @property
    def refresh_error(self) -> TierlogError | None:
        """Why the newest listing failed; None if it did not."""
        return self._refresh_error

    @property
    def unready_reason(self) -> str:
        """Why what is served may not be what the bucket holds: the last listing is older than three pauses between
        listings, and than 30 s, or is a saved one. "" if it is none of these.
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
        """When the newest segment of the bucket was written, ms since 1970; -1 without any. Any thread."""
        return max((listed.newest_ms for listed in self._listed.values()), default=-1)

    def topics(self) -> Collection[Topic]:
        """See Catalog."""
        return self._topics.values()

    def find(self, name: str) -> Topic | None:
        """See Catalog."""
        return self._topics.get(name)

    def find_by_id(self, topic_id: Uuid) -> Topic | None:
        """See Catalog."""
        return self._by_id.get(topic_id)

    def partition(self, name: str, partition: int) -> Partition | None:
        """See Catalog."""
        known = self._partitions.get((name, partition))
        if known is not None:
            return known
        topic = self._topics.get(name)
        if topic is None or partition < 0:
            return None
        found = TopicIdPartition(topic.topic_id, name, partition)
        if found not in self._listed:
            return None
        made = self._partitions[name, partition] = self._make_partition(self._histories_of(found))
        return made

    def offsets_at_hand(self, name: str, partition: int) -> OffsetSnapshot | None:
        """The offsets of a partition as clients are told them; None until somebody has asked. Any thread."""
        known = self._partitions.get((name, partition))
        return None if known is None else known.offsets

    async def wait(self, version: int, seconds: float) -> bool:
        """See Catalog."""
        now = self._machine.timers.monotonic_seconds
        until = now() + seconds
        while self._version == version and not self._has_ended_waits and (left := until - now()) > 0:
            await self._changes.wait(left)
        return self._version != version

    def end_waits(self) -> None:
        """Have all who wait for a change go on without one, now and from now on: the server stops. Idempotent."""
        self._has_ended_waits = True
        self._changes.ring()

    def _histories_of(self, partition: TopicIdPartition) -> BucketHistories:
        known = self._histories.get(partition)
        if known is None:
            known = BucketHistories(self._listed[partition], self._line, self.kept, self._machine)
            self._histories[partition] = known
        return known

    def _found(self, look: _Look) -> None:
        """Have a listing served, and saved. In the thread that follows."""
        self._loop.submit(partial(self._take, look))
        self._save(look)

    def _save(self, look: _Look) -> None:
        if self._saver is not None and isinstance(look.listing, TierListing):
            self._saver.note(look.listing)

    def _look(self, before: _Look | None) -> _Look:
        listing = self._source.list_partitions(before.listing if before else None)
        if before is not None and before.listing.partitions == listing.partitions:
            return _Look(listing, before.topics, before.by_id)
        return self._looked(listing)

    def _looked(self, listing: BucketListing) -> _Look:
        newest_ms = {partition: listed.newest_ms for partition, listed in listing.partitions.items()}
        topics = self._served.choose(newest_ms)
        return _Look(listing, topics, {each.topic_id: each for each in topics.values() if each.topic_id != ZERO_UUID})

    def _take(self, look: _Look) -> None:
        """Serve what a listing found, now."""
        if not self._is_closed:
            self._listings += 1
            self._refreshed_at, self._refresh_error = self._machine.clock.monotonic_seconds(), None
            self._serve(look)

    def _serve(self, look: _Look) -> None:
        before, self._topics = self._topics, look.topics
        self._by_id = look.by_id
        self._listed = look.listing.partitions
        for partition, histories in list(self._histories.items()):
            topic = look.topics.get(partition.topic)
            listed = self._listed.get(partition)
            if listed is not None and topic is not None and topic.topic_id == partition.topic_id:
                histories.take_listing(listed)
            else:
                del self._histories[partition]
                self._partitions.pop((partition.topic, partition.partition), None)
                histories.vanish()
        if before is not look.topics and before != look.topics:
            self._rise()
        self._line.resolve_ahead(self._iter_ahead())

    def _iter_ahead(self) -> Iterator[_Served]:
        """Partitions to resolve before anybody asks: as many as may be."""
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
                    yield _Served(self._histories_of(partition), served)

    def _miss(self, error: TierlogError) -> None:
        self._listings += 1
        self._refresh_error = error

    def _renew(self, partition: TopicIdPartition) -> None:
        """Tell of a history that is another one, once its offsets are at hand again: who wakes finds them."""
        served = self._partitions.get((partition.topic, partition.partition))
        if served is None:
            self._rise_soon()
        else:
            self._loop.start(self._load_and_rise(served))

    async def _load_and_rise(self, served: Partition) -> None:
        try:
            await served.load()
        except TaskCancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - who reads the partition is told
            _log.debug("%s is not loaded again: %s", served.topic_id_partition, error)
        self._rise_soon()

    def _rise_soon(self) -> None:
        """Rise once for all that changes within a moment: each rise wakes everybody."""
        if not self._is_rising:
            self._is_rising = True
            self._machine.timers.call_later(_RISE_SECONDS, self._rise)

    def _rise(self) -> None:
        self._is_rising = False
        self._version += 1
        self._changes.ring()


@dataclass(frozen=True, slots=True)
class _Served:
    """See AheadPartition."""

    histories: BucketHistories
    partition: Partition

    def is_loaded(self) -> bool:
        return self.partition.offsets is not None

    async def load(self) -> object:
        return await self.partition.load()
