"""The history of one partition of a bucket: made when a reader asks, renewed when its listing changes; and the cache of
histories: those that were used last, up to a number of bytes.

A described segment takes 2 KB: of a million segments that is more than all caches have. A history that is evicted is
made again when a reader asks for its partition; the partition's known offsets stay.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final

from kio.schema.errors import ErrorCode

from tierlog.broker.protocol.api_errors import ApiError
from tierlog.broker.replica.catalog.resolution_queue import ResolutionQueue
from tierlog.remote.api import TopicIdPartition
from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.loops import Alarm
from tierlog.runtime.weighted_cache import UNBOUNDED
from tierlog.scan.following.resolution import Resolution, Resolver
from tierlog.scan.following.tier_listing import ListedPartition
from tierlog.scan.history import PartitionHistory

_log = logging.getLogger(__name__)

#: The pause after a resolution that failed: doubled from failure to failure, with jitter.
RETRY_SECONDS_MIN: Final = 1.0
RETRY_SECONDS_MAX: Final = 60.0
#: A partition whose objects are missing is listed again no sooner than this after its last resolution began.
RELIST_SECONDS_MIN: Final = 1.0
#: Delay after which held-back segments are looked at, once they count.
HELD_SECONDS: Final = 1.0


class HistoryCache:
    """The histories in memory. Used on the event loop alone.

    Args:
        size_bytes_max: Of all together; UNBOUNDED for no limit. The history that was used last stays in any case, and
            so do those that a task waits for.
    """

    def __init__(self, size_bytes_max: int) -> None:
        self._limit = size_bytes_max
        self._sizes: OrderedDict[CachedHistory, int] = OrderedDict()
        self._size_bytes = 0
        self._evictions = 0

    @property
    def size_bytes(self) -> int:
        """Memory of the cached histories, bytes, as their resolutions measured it. Any thread."""
        return self._size_bytes

    @property
    def evictions(self) -> int:
        """The number of histories that had to make room, ever. Any thread."""
        return self._evictions

    def put(self, history: CachedHistory, size_bytes: int) -> None:
        """Note that a history is cached now; those that were used longest ago make room for it."""
        self.remove(history)
        self._sizes[history] = size_bytes
        self._size_bytes += size_bytes
        self.make_room()

    def use(self, history: CachedHistory) -> None:
        """Note that a history is used."""
        if history in self._sizes:
            self._sizes.move_to_end(history)

    def remove(self, history: CachedHistory) -> None:
        """Note that a history is not cached any more."""
        self._size_bytes -= self._sizes.pop(history, 0)

    def make_room(self) -> None:
        """Evict histories above the limit: to be called, too, when the last task that waited for a history has it."""
        over = self._size_bytes - self._limit
        if over <= 0 or self._limit == UNBOUNDED:
            return
        newest = next(reversed(self._sizes))
        evicted = []
        for each, size_bytes in self._sizes.items():
            if over <= 0:
                break
            if each is not newest and not each.is_awaited:
                evicted.append(each)
                over -= size_bytes
        for each in evicted:
            self.remove(each)
            each.evict()
        self._evictions += len(evicted)


class CachedHistory:
    """The history of one partition, which changes as its bucket is listed again. On the event loop alone.

    A resolved history stays until a newer one is known, also where a newer listing cannot be resolved.

    Args:
        listed: The partition as it was listed.
        resolver: Resolves it, in a thread.
        queue: Where resolutions wait for one.
        cache: Of the histories of all partitions.
        note_change: Called with the partition when a history that was known is another one now.
        machine: Its clock and chance.
    """

    def __init__(
        self,
        listed: ListedPartition,
        resolver: Resolver,
        queue: ResolutionQueue,
        cache: HistoryCache,
        *,
        note_change: Callable[[TopicIdPartition], None],
        machine: Machine,
    ) -> None:
        self._partition = listed.topic_id_partition
        self._listed: ListedPartition | None = listed
        self._resolver = resolver
        self._queue = queue
        self._cache = cache
        self._note_change = note_change
        self._machine = machine
        self._resolution: Resolution | None = None
        self._resolved: ListedPartition | None = None
        self._evicted_digest, self._evicted_end_offset = b"", 0
        self._version = 0
        self._waiting = 0
        self._when_evicted: Callable[[], None] | None = None
        self._error: Exception | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._began_at = -RELIST_SECONDS_MIN
        self._is_pending = False
        self._is_missed = False
        self._held_until: float | None = None
        self._begun: ListedPartition | None = None
        self._settled: Alarm | None = None

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self._partition

    @property
    def current(self) -> PartitionHistory | None:
        """The newest history that is cached: another object whenever it has changed; None until ``resolve`` has made
        one, and once it was evicted. Does not wait.
        """
        return self._resolution.history if self._resolution is not None and self._listed is not None else None

    @property
    def version(self) -> int:
        """Another number whenever the history is another one, or the partition is gone. Facts found in a history hold
        while this stays, also where the history itself was evicted.
        """
        return self._version

    def use(self) -> PartitionHistory | None:
        """Return ``current``, for a reader: a used history stays cached longer than an unused one."""
        self._cache.use(self)
        return self.current

    def on_evicted(self, call: Callable[[], None]) -> None:
        """Call a function whenever the history is evicted: holders of the history drop it then."""
        self._when_evicted = call

    @property
    def is_awaited(self) -> bool:
        """Whether a task waits for the history at this moment."""
        return self._waiting > 0

    def evict(self) -> None:
        """Drop the history, and remember its digest, by which the next one is compared. Called by the cache."""
        if self._resolution is not None:
            history = self._resolution.history
            self._evicted_digest = self._resolution.digest
            self._evicted_end_offset = 0 if history is None else history.end_offset_exclusive
            self._resolution = None
        if self._when_evicted is not None:
            self._when_evicted()

    async def resolve(self) -> PartitionHistory:
        """Return the history, made now if there is none. All readers that ask at once wait for one resolution. After a
        failure the same error is raised again for a while, without a request.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION: the partition is gone. StoreError, CorruptDataError and their kinds,
                EncryptionKeyError: nothing can be said of this partition for now; a later call tries again.
        """
        self._waiting += 1
        try:
            while True:
                if self._listed is None:
                    raise ApiError(ErrorCode.unknown_topic_or_partition)
                if (known := self.use()) is not None:
                    return known
                if not self._is_pending:
                    if self._error is not None and self._now() < self._retry_at:
                        raise self._error.with_traceback(None)
                    self._begin()
                await self._wait()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._cache.make_room()

    def report_missing(self, error: Exception) -> None:
        """Report a missing object of the history: the partition is listed again soon, once for any number of reports.
        Does not wait.
        """
        if self._is_missed or self._listed is None:
            return
        _log.info("%s is listed again: %s", self._partition, error)
        self._is_missed = True
        self.look_again()

    def look_again(self) -> None:
        """Resolve the listed segments, if that is due: now, or when it may be tried again."""
        if self._listed is None or self._is_pending or not self._is_behind:
            return
        due = max(self._retry_at, self._began_at + RELIST_SECONDS_MIN if self._is_missed else 0.0)
        if (seconds := due - self._now()) > 0:
            self._queue.call_later(seconds, self.look_again)
        else:
            self._begin()

    def take_listing(self, listed: ListedPartition) -> None:
        """Take the partition as it is listed now. It is resolved anew if that differs and a reader has asked for it."""
        if self._listed is listed:
            return
        if self._listed != listed:
            self._error, self._failures, self._retry_at = None, 0, 0.0
        self._listed = listed
        if self._resolved is not None:
            self.look_again()

    def vanish(self) -> None:
        """Note that the partition is gone."""
        self._listed = self._resolution = self._resolved = None
        self._evicted_end_offset = 0
        self._version += 1
        self._cache.remove(self)
        self._ring()

    def settle(self, resolution: Resolution) -> None:
        """Take the result of the pending resolution."""
        self._is_pending = False
        if self._listed is None:
            return
        was_known, version = self._resolved is not None, self._version
        self._error, self._failures, self._retry_at = None, 0, 0.0
        if resolution.listed is None or resolution.history is None:
            self.vanish()  # until a listing finds it again
        else:
            if self._is_relisted(resolution):
                self._listed = resolution.listed
            if not self._is_known(resolution):
                self._version += 1
            self._resolution, self._resolved = resolution, resolution.listed
            self._cache.put(self, resolution.size_bytes)
            self._note_held(resolution)
        if was_known and self._version != version:
            self._note_change(self._partition)
        self._ring()
        self.look_again()

    def fail(self, error: Exception) -> None:
        """Note why the pending resolution gave nothing."""
        self._is_pending = False
        if self._listed is None:
            return
        if self._error is None or str(self._error) != str(error):
            what = "" if self._resolved is None else "; what was known before is served"
            _log.warning("%s cannot be resolved: %s%s", self._partition, error, what)
        self._error = error
        self._failures += 1
        seconds = min(RETRY_SECONDS_MIN * 2.0 ** min(self._failures - 1, 16), RETRY_SECONDS_MAX)
        self._retry_at = self._now() + self._machine.rng.uniform(seconds / 2, seconds)
        self._ring()
        if self._resolved is not None:
            self.look_again()

    def _note_held(self, resolution: Resolution) -> None:
        """Note the time at which held-back segments count, to look at them again though nothing new is listed."""
        self._held_until = None
        if resolution.held is not None:
            seconds = max(0.0, (resolution.held.until_ms - self._machine.clock.time_ms()) / 1000)
            self._held_until = self._now() + seconds
            self._queue.call_later(seconds + HELD_SECONDS, self.look_again)

    @property
    def _is_due(self) -> bool:
        """Whether held-back segments count by now."""
        return self._held_until is not None and self._now() >= self._held_until

    @property
    def _is_behind(self) -> bool:
        return self._is_missed or self._is_due or self._resolved != self._listed

    def _is_known(self, resolution: Resolution) -> bool:
        """Whether a resolution gave the history that was known before, evicted or not."""
        if self._resolved is None:
            return False
        if self._resolution is not None:
            return resolution.history is self._resolution.history
        return resolution.digest == self._evicted_digest

    def _begin(self) -> None:
        assert self._listed is not None
        relist = self._is_missed or self._is_due
        self._is_missed, self._held_until = False, None
        self._is_pending = True
        self._began_at = self._now()
        self._begun = self._listed
        resolve = partial(
            self._resolver.resolve_partition,
            self._listed,
            self._resolution,
            relist=relist,
            served_end_offset=self._evicted_end_offset if self._resolution is None else 0,
        )
        self._queue.submit(self._partition, resolve, self.settle, self.fail)

    def _is_relisted(self, resolution: Resolution) -> bool:
        """Whether the resolution saw a newer listing than the known one: none has come since it began."""
        return self._listed is self._begun and resolution.listed is not self._begun

    def _now(self) -> float:
        return self._machine.clock.monotonic_seconds()

    async def _wait(self) -> None:
        if self._settled is None:
            self._settled = Alarm(self._machine.timers)
        await self._settled.wait()

    def _ring(self) -> None:
        if self._settled is not None:
            self._settled.ring()
