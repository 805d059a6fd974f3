"""The history of one partition of a bucket: made when a reader asks, renewed when its listing changes, let go of when
others need the memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from kio.schema.errors import ErrorCode

from tierlog.broker.protocol.api_errors import ApiError
from tierlog.broker.replica.catalog.kept_histories import KeptHistories
from tierlog.broker.replica.catalog.resolution import Listed, Resolution
from tierlog.remote.api import TopicIdPartition
from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.loops import Alarm
from tierlog.scan.history import PartitionHistory

_log = logging.getLogger(__name__)

#: What is waited after a resolution that failed: doubled from failure to failure, with jitter.
RETRY_SECONDS_MIN: Final = 1.0
RETRY_SECONDS_MAX: Final = 60.0
#: A partition whose objects are missed is listed again no sooner than this after its last resolution began.
RELIST_SECONDS_MIN: Final = 1.0
#: What is held back is looked at so long behind the time when it counts.
HELD_SECONDS: Final = 1.0


class ResolutionLine(Protocol):
    """Where resolutions are asked for. On the event loop."""

    def begin(self, histories: BucketHistories, *, relist: bool) -> None:
        """Begin a resolution in a thread; ``settle`` or ``fail`` of the histories is called on the event loop, once."""

    def begin_later(self, histories: BucketHistories, seconds: float) -> None:
        """Call ``look_again`` of the histories after a time."""

    def note_change(self, partition: TopicIdPartition) -> None:
        """Take note that a history that was known is another one now."""


class BucketHistories:
    """See PartitionHistories. What was told of a partition stays until something newer is known, also where a newer
    listing cannot be resolved.

    Args:
        listed: The partition as it was listed.
        line: Where it is resolved.
        kept: The histories of all partitions that are at hand.
        machine: Its clock and chance.
    """

    def __init__(self, listed: Listed, line: ResolutionLine, kept: KeptHistories, machine: Machine) -> None:
        self._partition = listed.topic_id_partition
        self._listed: Listed | None = listed
        self._line = line
        self._kept = kept
        self._machine = machine
        self._resolution: Resolution | None = None
        self._resolved: Listed | None = None
        self._left_digest, self._left_end_offset = b"", 0
        self._version = 0
        self._waiting = 0
        self._when_left: Callable[[], None] | None = None
        self._error: Exception | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._began_at = -RELIST_SECONDS_MIN
        self._is_under_way = False
        self._is_hastened = False
        self._is_missed = False
        self._held_until: float | None = None
        self._begun: Listed | None = None
        self._settled: Alarm | None = None

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self._partition

    @property
    def listed(self) -> Listed | None:
        """The partition as it was listed last; None if it is gone."""
        return self._listed

    @property
    def resolution(self) -> Resolution | None:
        """The last one that came to an end; None once it was let go of."""
        return self._resolution

    @property
    def served_end_offset(self) -> int:
        """Up to where a history was served that was let go of; 0 if none was."""
        return self._left_end_offset if self._resolution is None else 0

    @property
    def current(self) -> PartitionHistory | None:
        """See PartitionHistories."""
        return self._resolution.history if self._resolution is not None and self._listed is not None else None

    @property
    def version(self) -> int:
        """See PartitionHistories."""
        return self._version

    def use(self) -> PartitionHistory | None:
        """See PartitionHistories."""
        self._kept.use(self)
        return self.current

    def when_left(self, call: Callable[[], None]) -> None:
        """See PartitionHistories."""
        self._when_left = call

    @property
    def is_attended(self) -> bool:
        """Whether the history was resolved, is being resolved, or could not be."""
        return self._resolved is not None or self._is_under_way or self._error is not None

    @property
    def is_wanted(self) -> bool:
        """See KeptHistories."""
        return self._waiting > 0

    def let_go(self) -> None:
        """See KeptHistories."""
        if self._resolution is not None:
            history = self._resolution.history
            self._left_digest = self._resolution.digest
            self._left_end_offset = 0 if history is None else history.end_offset_exclusive
            self._resolution = None
        if self._when_left is not None:
            self._when_left()

    @property
    def is_hastened(self) -> bool:
        """Whether somebody waits for a resolution that was begun ahead. From any thread."""
        return self._is_hastened

    async def end_of_resolution(self) -> None:
        """Wait for the resolution under way, without hastening it."""
        while self._is_under_way and self._listed is not None:
            await self._wait()

    def begin_ahead(self) -> None:
        """Note that a resolution begins that nobody asked for; ``settle`` or ``fail`` is called, or it begins anew."""
        self._is_under_way = True
        self._began_at = self._now()
        self._begun = self._listed

    async def resolve(self) -> PartitionHistory:
        """See PartitionHistories. After a failure the same error is raised again for a while, without a request."""
        self._waiting += 1
        try:
            while True:
                if self._listed is None:
                    raise ApiError(ErrorCode.unknown_topic_or_partition)
                if (known := self.use()) is not None:
                    return known
                if self._is_under_way:
                    self._is_hastened = True
                else:
                    if self._error is not None and self._now() < self._retry_at:
                        raise self._error.with_traceback(None)
                    self._begin()
                await self._wait()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._kept.make_room()

    def report_missing(self, error: Exception) -> None:
        """See PartitionHistories. Any number of readers may say so at once: it is listed once."""
        if self._is_missed or self._listed is None:
            return
        _log.info("%s is listed again: %s", self._partition, error)
        self._is_missed = True
        self.look_again()

    def look_again(self) -> None:
        """Resolve what is to be resolved: now, or when it may be tried again."""
        if self._listed is None or self._is_under_way or not self._is_behind:
            return
        due = max(self._retry_at, self._began_at + RELIST_SECONDS_MIN if self._is_missed else 0.0)
        if (seconds := due - self._now()) > 0:
            self._line.begin_later(self, seconds)
        else:
            self._begin()

    def take_listing(self, listed: Listed) -> None:
        """The partition as it is listed now. It is resolved anew if that differs and somebody has asked for it."""
        if self._listed is listed:
            return
        if self._listed != listed:
            self._error, self._failures, self._retry_at = None, 0, 0.0
        self._listed = listed
        if self._resolved is not None:
            self.look_again()

    def vanish(self) -> None:
        """The partition is gone."""
        self._listed = self._resolution = self._resolved = None
        self._left_end_offset = 0
        self._version += 1
        self._kept.forget(self)
        self._ring()

    def settle(self, resolution: Resolution) -> None:
        """What the resolution under way gave."""
        self._is_under_way = self._is_hastened = False
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
            self._kept.keep(self, resolution.size_bytes)
            self._note_held(resolution)
        if was_known and self._version != version:
            self._line.note_change(self._partition)
        self._ring()
        self.look_again()

    def fail(self, error: Exception) -> None:
        """Why the resolution under way gave nothing."""
        self._is_under_way = self._is_hastened = False
        if self._listed is None:
            return
        if self._error is None or str(self._error) != str(error):
            kept = "" if self._resolved is None else "; what was known before is served"
            _log.warning("%s cannot be resolved: %s%s", self._partition, error, kept)
        self._error = error
        self._failures += 1
        seconds = min(RETRY_SECONDS_MIN * 2.0 ** min(self._failures - 1, 16), RETRY_SECONDS_MAX)
        self._retry_at = self._now() + self._machine.rng.uniform(seconds / 2, seconds)
        self._ring()
        if self._resolved is not None:
            self.look_again()

    def _note_held(self, resolution: Resolution) -> None:
        """See to it that what is held back is looked at again when it counts, though nothing new be listed."""
        self._held_until = None
        if resolution.held is not None:
            seconds = max(0.0, (resolution.held.until_ms - self._machine.clock.time_ms()) / 1000)
            self._held_until = self._now() + seconds
            self._line.begin_later(self, seconds + HELD_SECONDS)

    @property
    def _is_due(self) -> bool:
        """Whether what was held back counts by now."""
        return self._held_until is not None and self._now() >= self._held_until

    @property
    def _is_behind(self) -> bool:
        return self._is_missed or self._is_due or self._resolved != self._listed

    def _is_known(self, resolution: Resolution) -> bool:
        """Whether a resolution gave the history that was told last, be it let go of."""
        if self._resolved is None:
            return False
        if self._resolution is not None:
            return resolution.history is self._resolution.history
        return resolution.digest == self._left_digest

    def _begin(self) -> None:
        relist = self._is_missed or self._is_due
        self._is_missed, self._held_until = False, None
        self._is_under_way = True
        self._began_at = self._now()
        self._begun = self._listed
        self._is_hastened = True
        self._line.begin(self, relist=relist)

    def _is_relisted(self, resolution: Resolution) -> bool:
        """Whether the resolution saw a newer listing than the one at hand: none has come since it began."""
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
