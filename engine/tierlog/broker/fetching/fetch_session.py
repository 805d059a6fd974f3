"""Sessions of consumers: what a client named once it need not name again (KIP-227), and nobody else may use."""

from __future__ import annotations

import bisect
import collections
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tierlog.broker.fetching.fetch_request import INITIAL_EPOCH, FetchPartition
from tierlog.broker.partition_watches import PartitionKey, PartitionWatch
from tierlog.runtime.machine import Machine

_INT32_MAX: Final = 2**31 - 1


def next_epoch(epoch: int) -> int:
    """The epoch of the request that follows one with ``epoch`` >= 0; it begins again at 1."""
    return 1 if epoch == _INT32_MAX else epoch + 1


class FetchSession:
    """The partitions of one client, in the order in which they are read next.

    Attributes:
        session_id: Positive.
        principal: Whose it is.
        uses_topic_ids: Whether its partitions are known by topic ids.
        epoch: Of the next request.
        partitions: By key.
        quiet: A watch over all partitions and the isolation with which none had anything to say to the client when it
            was opened; None if it is not known. Until the watch rings there is nothing to look for.
    """

    __slots__ = (
        "created_at_seconds",
        "epoch",
        "evictable_as",
        "partitions",
        "principal",
        "quiet",
        "session_id",
        "size",
        "used_at_seconds",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, principal: str, uses_topic_ids: bool, partitions: dict[PartitionKey, FetchPartition]
    ) -> None:
        self.session_id = session_id
        self.principal = principal
        self.uses_topic_ids = uses_topic_ids
        self.partitions = partitions
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.quiet: tuple[PartitionWatch, bool] | None = None
        # What the cache has noted: the number of partitions, times of its clock, the entry among those to evict.
        self.size = 0
        self.created_at_seconds = 0.0
        self.used_at_seconds = 0.0
        self.evictable_as: tuple[int, int] | None = None

    def update(self, wanted: dict[PartitionKey, FetchPartition], forgotten: Iterable[PartitionKey]) -> None:
        """Add partitions, change what is wanted of those that are there, and drop some."""
        if wanted or forgotten:
            self.set_quiet(None)
        for key, partition in wanted.items():
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = partition
            else:
                known.ask_as(partition)
        for key in forgotten:
            self.partitions.pop(key, None)

    def set_quiet(self, quiet: tuple[PartitionWatch, bool] | None) -> None:
        """Own a watch: no partition has anything to say until it rings, at an isolation; None: that is not known."""
        if self.quiet is not None and (quiet is None or self.quiet[0] is not quiet[0]):
            self.quiet[0].close()
        self.quiet = quiet

    def move_to_end(self, key: PartitionKey) -> None:
        """Let a partition that gave records come last next time, so that none keeps the others from being read."""
        self.partitions[key] = self.partitions.pop(key)


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How much sessions may take.

    Args:
        slots_max: Sessions (Kafka's ``max.incremental.fetch.session.cache.slots``); 0 for none at all.
        partitions_max: Partitions of all of them: a few hundred bytes each.
        eviction_seconds: A session that was not used for so long gives way to any other; one that is older than this,
            to one with more partitions (Kafka's ``min.incremental.fetch.session.eviction.ms``).
    """

    slots_max: int = 1000
    partitions_max: int = 500_000
    eviction_seconds: float = 120.0


class FetchSessionCache:
    """The sessions of a server. Used on the event loop alone."""

    def __init__(self, limits: SessionLimits, machine: Machine) -> None:
        self._limits = limits
        self._clock = machine.clock
        self._rng = machine.rng
        self._sessions: collections.OrderedDict[int, FetchSession] = collections.OrderedDict()  # last used last
        self._evictable: list[tuple[int, int]] = []  # (partitions, id), ascending, of those no longer new
        self._partitions_count = 0
        self.evictions_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions_count(self) -> int:
        """Partitions of all sessions."""
        return self._partitions_count

    def find(self, session_id: int, principal: str) -> FetchSession | None:
        """A client's session; None if there is none of that id, or it is another principal's."""
        session = self._sessions.get(session_id)
        return session if session is not None and session.principal == principal else None

    def create(
        self, principal: str, uses_topic_ids: bool, partitions: dict[PartitionKey, FetchPartition]
    ) -> FetchSession | None:
        """A new session; None if all slots are taken by sessions that are worth as much."""
        now = self._clock.monotonic_seconds()
        if not self._has_room(len(partitions)):
            return None
        if len(self._sessions) >= self._limits.slots_max and not self._evict(len(partitions), now):
            return None
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = 1 + self._rng.integer_below(_INT32_MAX)
        session = FetchSession(session_id, principal, uses_topic_ids, partitions)
        session.created_at_seconds = now
        self._sessions[session_id] = session
        self._note(session, now)
        return session

    def note_use(self, session: FetchSession) -> bool:
        """Note that a session was used, and perhaps changed. False: all sessions hold too much, and it is gone."""
        if not self._has_room(len(session.partitions) - session.size):
            self.remove(session)
            return False
        self._note(session, self._clock.monotonic_seconds())
        return True

    def remove(self, session: FetchSession) -> None:
        """Forget a session; idempotent."""
        if self._sessions.pop(session.session_id, None) is not None:
            self._partitions_count -= session.size
            self._set_evictable(session, None)
            session.set_quiet(None)

    def _has_room(self, added_count: int) -> bool:
        return added_count <= 0 or self._partitions_count + added_count <= self._limits.partitions_max

    def _note(self, session: FetchSession, now: float) -> None:
        session.used_at_seconds = now
        self._sessions.move_to_end(session.session_id)
        size = len(session.partitions)
        self._partitions_count += size - session.size
        session.size = size
        if now - session.created_at_seconds > self._limits.eviction_seconds:
            self._set_evictable(session, (size, session.session_id))

    def _set_evictable(self, session: FetchSession, entry: tuple[int, int] | None) -> None:
        if session.evictable_as == entry:
            return
        if session.evictable_as is not None:
            del self._evictable[bisect.bisect_left(self._evictable, session.evictable_as)]
        if entry is not None:
            bisect.insort(self._evictable, entry)
        session.evictable_as = entry

    def _evict(self, size: int, now: float) -> bool:
        """Remove a session that is worth less than a new one of ``size`` partitions: one that was not used for long,
        else the smallest of those that are not new, if it is smaller.
        """
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now - oldest.used_at_seconds > self._limits.eviction_seconds:
            victim = oldest
        elif self._evictable and self._evictable[0][0] < size:
            victim = self._sessions[self._evictable[0][1]]
        else:
            return False
        self.remove(victim)
        self.evictions_count += 1
        return True
