"""Fetch sessions: partitions that a client named once and need not name again (KIP-227), private to the client.

A request as one form of all its versions; the session that it continues, or none; and which of the answers for its
partitions are sent (Kafka's FetchManager, FetchContext and FetchSession).
"""

from __future__ import annotations

import bisect
import collections
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from tierlog.broker.partition_watches import PartitionKey, PartitionWatch
from tierlog.broker.partitions import UNKNOWN
from tierlog.broker.protocol.fetch_response import NO_REPLICA, FetchablePartition
from tierlog.config_keys import Int32
from tierlog.config_keys import key as config_key
from tierlog.runtime.machine import Machine

#: From these versions on a request has the epoch of the leader that the client knows; the epoch of the last record that
#: it has; ids in place of topic names; the asking replica in a structure of its own.
_LEADER_EPOCH: Final = 9
_FETCHED_EPOCH: Final = 12
TOPIC_IDS: Final = 13
_REPLICA_STATE: Final = 15

#: Of a request that belongs to no session; of the first request of a session; of a request that ends a session or wants
#: none.
NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1

_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
NO_ERROR: Final = 0
_NO_ID: Final = bytes(16)
_INT32_MAX: Final = 2**31 - 1


class FetchPartition:
    """A client's wish for a partition, and its last answer about it (Kafka's ``CachedPartition``).

    Attributes:
        key: Of the partition in its request.
        topic: Its topic's name; None until the topic's id is known to the server.
        topic_id: 16 bytes; zeros below version 13.
        partition: Its number.
        fetch_offset: The first offset that is wanted.
        max_bytes: The most of this partition; the client's number, which may be anything.
        current_leader_epoch: The leader's epoch as the client knows it; UNKNOWN for no check.
        last_fetched_epoch: The epoch of the record before ``fetch_offset``; UNKNOWN for no check.
        high_watermark, log_start_offset: As last sent to the client in a session; UNKNOWN if never, or after an error.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        key: PartitionKey,
        topic: str | None,
        topic_id: bytes,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = UNKNOWN,
        last_fetched_epoch: int = UNKNOWN,
    ) -> None:
        self.key = key
        self.topic = topic
        self.topic_id = topic_id
        self.partition = key[1]
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.high_watermark = UNKNOWN
        self.log_start_offset = UNKNOWN

    def ask_as(self, other: FetchPartition) -> None:
        """Take over a newer request's wish for the same partition."""
        self.fetch_offset = other.fetch_offset
        self.max_bytes = other.max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch


@dataclass(slots=True)
class FetchRequest:
    """A Fetch request.

    Attributes:
        max_wait_seconds: How long the answer may wait for ``min_bytes``; 0 or less for not at all.
        min_bytes: Records that make an answer worth sending.
        max_bytes: The most of the answer but for a first batch that is larger.
        is_read_committed: Whether records of open and aborted transactions are hidden; None for an unknown isolation
            level.
        session_id, session_epoch: Of the session that it continues; NO_SESSION and FINAL_EPOCH for none.
        replica_id: Of the broker that asks; negative for a consumer.
        uses_topic_ids: Whether topics are named by their ids.
        partitions: The wanted ones, in order; a partition that is named twice has its first place and its last values.
        forgotten: Partitions that leave the session.
        rack_id: Where the client is; "" if it does not say.
    """

    max_wait_seconds: float
    min_bytes: int
    max_bytes: int
    is_read_committed: bool | None
    session_id: int
    session_epoch: int
    replica_id: int
    uses_topic_ids: bool
    partitions: dict[PartitionKey, FetchPartition]
    forgotten: list[PartitionKey]
    rack_id: str = ""


def read_fetch_request(request: Any, api_version: int) -> FetchRequest:
    """Read the request from kio's entity, at any version from 4 on."""
    if api_version >= _REPLICA_STATE:
        replica_id = request.replica_state.replica_id
    else:
        replica_id = request.replica_id
    isolation = {_READ_UNCOMMITTED: False, _READ_COMMITTED: True}.get(request.isolation_level)
    return FetchRequest(
        request.max_wait.total_seconds(),
        request.min_bytes,
        request.max_bytes,
        isolation,
        getattr(request, "session_id", NO_SESSION),
        getattr(request, "session_epoch", FINAL_EPOCH),
        replica_id,
        api_version >= TOPIC_IDS,
        _partitions(request.topics, api_version) if request.topics else {},
        _forgotten(getattr(request, "forgotten_topics_data", ()), api_version),
        getattr(request, "rack_id", ""),
    )


def _partitions(topics: Any, api_version: int) -> dict[PartitionKey, FetchPartition]:
    found: dict[PartitionKey, FetchPartition] = {}
    for topic in topics:
        if api_version >= TOPIC_IDS:
            name, topic_id = None, _id_bytes(topic.topic_id)
        else:
            name, topic_id = topic.topic, _NO_ID
        named = topic_id if name is None else name
        for one in topic.partitions:
            key = (named, one.partition)
            found[key] = FetchPartition(
                key,
                name,
                topic_id,
                one.fetch_offset,
                one.partition_max_bytes,
                one.current_leader_epoch if api_version >= _LEADER_EPOCH else UNKNOWN,
                one.last_fetched_epoch if api_version >= _FETCHED_EPOCH else UNKNOWN,
            )
    return found


def _forgotten(topics: Any, api_version: int) -> list[PartitionKey]:
    return [
        (_id_bytes(topic.topic_id) if api_version >= TOPIC_IDS else topic.topic, partition)
        for topic in topics
        for partition in topic.partitions
    ]


def _id_bytes(topic_id: UUID | None) -> bytes:
    return _NO_ID if topic_id is None else topic_id.bytes


def next_epoch(epoch: int) -> int:
    """Return the epoch of the request that follows one with ``epoch`` >= 0; it begins again at 1."""
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
        is_removed: Whether no request goes on with it any more: it owns no watch, which nothing would close.
    """

    __slots__ = (
        "created_at_seconds",
        "epoch",
        "evictable_as",
        "is_removed",
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
        self.is_removed = False
        # Notes of the cache: the number of partitions, times of its clock, the entry among those to evict.
        self.size = 0
        self.created_at_seconds = 0.0
        self.used_at_seconds = 0.0
        self.evictable_as: tuple[int, int] | None = None

    def update(self, wanted: dict[PartitionKey, FetchPartition], forgotten: Iterable[PartitionKey]) -> None:
        """Add partitions, change those that are there, and drop some."""
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
        """Own a watch: no partition has a new answer until it rings, at an isolation level; None: unknown."""
        if self.quiet is not None and (quiet is None or self.quiet[0] is not quiet[0]):
            self.quiet[0].close()
        self.quiet = quiet

    def move_to_end(self, key: PartitionKey) -> None:
        """Let a partition that gave records come last next time, so that none starves the others."""
        self.partitions[key] = self.partitions.pop(key)


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The limits of sessions.

    Args:
        partitions_max: Partitions of all of them: a few hundred bytes each.

    The other fields are keys of a broker's file.
    """

    slots_max: Int32 = config_key(
        "Sessions; 0 for none at all.", default=1000, name="max.incremental.fetch.session.cache.slots", minimum=0
    )
    partitions_max: int = 500_000
    eviction_ms: Int32 = config_key(
        "A session that was not used for so long gives way to any other, an older one to one with more partitions.",
        default=120_000,
        under="min.incremental.fetch.session.",
        minimum=1,
    )

    @property
    def eviction_seconds(self) -> float:
        return self.eviction_ms / 1000


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

    def context_of(self, request: FetchRequest, principal: str) -> FetchContext:
        """Return the context of a request, with its changes to a session made.

        Args:
            request: The request.
            principal: The client's: the sessions of others do not exist.
        """
        session = None
        if request.session_id != NO_SESSION:
            session = self.find(request.session_id, principal)
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                self.remove(session)
            if request.session_epoch == FINAL_EPOCH:
                return FetchContext(request.partitions)
            return FullContext(request.partitions, self, principal, request.uses_topic_ids)
        if session is None:
            return FetchContext({}, ErrorCode.fetch_session_id_not_found.value)
        if session.epoch != request.session_epoch:
            return FetchContext({}, ErrorCode.invalid_fetch_session_epoch.value)
        if session.uses_topic_ids != request.uses_topic_ids:
            return FetchContext({}, ErrorCode.fetch_session_topic_id_error.value)
        session.update(request.partitions, request.forgotten)
        if not session.partitions:
            self.remove(session)
            return FetchContext(request.partitions)
        if not self.note_use(session):
            return FetchContext({}, ErrorCode.fetch_session_id_not_found.value)
        session.epoch = next_epoch(session.epoch)
        return IncrementalContext(session)

    def find(self, session_id: int, principal: str) -> FetchSession | None:
        """Find a client's session; None if there is none of that id, or it is another principal's."""
        session = self._sessions.get(session_id)
        return session if session is not None and session.principal == principal else None

    def create(
        self, principal: str, uses_topic_ids: bool, partitions: dict[PartitionKey, FetchPartition]
    ) -> FetchSession | None:
        """Make a session; None if all slots have sessions that are worth as much."""
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
            session.is_removed = True

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
        """Remove a session that is worth less than a new one of ``size`` partitions: a session that was not used for
        long, else the smallest of those that are not new, if it is smaller.
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


#: A partition of a request, and its answer.
PartitionAnswer = tuple[FetchPartition, FetchablePartition]


class ContextAnswer(NamedTuple):
    """The parts of a response: an error of the whole answer, the session's id, and partitions in order."""

    error_code: int
    session_id: int
    partitions: Sequence[PartitionAnswer]


class FetchContext:
    """One request, seen as Kafka sees it: here without a session.

    Args:
        wanted: The partitions of the request; none if its session is unknown, or at another epoch than the client's.
        error_code: Of the whole answer.
    """

    def __init__(self, wanted: dict[PartitionKey, FetchPartition], error_code: int = NO_ERROR) -> None:
        self._wanted = wanted
        self._error_code = error_code

    def partitions(self) -> Sequence[FetchPartition]:
        """Return the partitions that the fetch reads, in the order in which they are read."""
        return list(self._wanted.values())

    def quiet_watch(self, is_read_committed: bool) -> PartitionWatch | None:
        """Return the watch of a session whose partitions have nothing to say until it rings; None if that
        is not known.
        """
        del is_read_committed
        return None

    def answer(self, answers: Sequence[PartitionAnswer]) -> ContextAnswer:
        """Choose the answers to send; a session notes its client's new knowledge. Called once."""
        return ContextAnswer(self._error_code, NO_SESSION, answers)

    def note_quiet(self, watch: PartitionWatch, is_read_committed: bool) -> bool:
        """Note that there was nothing to say when a watch over all partitions was opened. Whether a session owns the
        watch from here on.
        """
        del watch, is_read_committed
        return False


class FullContext(FetchContext):
    """A request that names all its partitions and would have a session of them."""

    def __init__(
        self,
        wanted: dict[PartitionKey, FetchPartition],
        sessions: FetchSessionCache,
        principal: str,
        uses_topic_ids: bool,
    ) -> None:
        super().__init__(wanted)
        self._sessions = sessions
        self._principal = principal
        self._uses_topic_ids = uses_topic_ids

    def answer(self, answers: Sequence[PartitionAnswer]) -> ContextAnswer:
        for wanted, told in answers:
            wanted.high_watermark = told.high_watermark
            wanted.log_start_offset = told.log_start_offset
        session = self._sessions.create(
            self._principal, self._uses_topic_ids, {wanted.key: wanted for wanted, _ in answers}
        )
        return ContextAnswer(NO_ERROR, NO_SESSION if session is None else session.session_id, answers)


class IncrementalContext(FetchContext):
    """A request that goes on with a session: only partitions with something new are answered.

    Args:
        session: After the request's changes.
    """

    def __init__(self, session: FetchSession) -> None:
        super().__init__(session.partitions)
        self._session = session
        #: From this request on; another one at the answer says that the client has asked again.
        self._epoch = session.epoch

    def quiet_watch(self, is_read_committed: bool) -> PartitionWatch | None:
        quiet = self._session.quiet
        if quiet is None or quiet[0].has_rung or quiet[1] != is_read_committed:
            return None
        return quiet[0]

    def note_quiet(self, watch: PartitionWatch, is_read_committed: bool) -> bool:
        if self._session.epoch != self._epoch or self._session.is_removed:
            return False
        self._session.set_quiet((watch, is_read_committed))
        return True

    def answer(self, answers: Sequence[PartitionAnswer]) -> ContextAnswer:
        session = self._session
        if session.epoch != self._epoch:
            return ContextAnswer(ErrorCode.invalid_fetch_session_epoch.value, session.session_id, ())
        sent: list[PartitionAnswer] = []
        for wanted, told in answers:
            known = session.partitions.get(wanted.key)
            if known is None or not _is_news(known, told):
                continue
            sent.append((wanted, told))
            if told.size_bytes:
                session.move_to_end(wanted.key)
        return ContextAnswer(NO_ERROR, session.session_id, sent)


def has_news(answers: Sequence[PartitionAnswer]) -> bool:
    """Whether a client in a session learns anything from answers for partitions of it."""
    return any(
        told.size_bytes
        or told.error_code
        or told.diverging_epoch is not None
        or told.preferred_read_replica != NO_REPLICA
        or told.high_watermark != wanted.high_watermark
        or told.log_start_offset != wanted.log_start_offset
        for wanted, told in answers
    )


def _is_news(known: FetchPartition, told: FetchablePartition) -> bool:
    """Whether an answer says more than the client knows; from here on it knows it."""
    is_news = bool(told.size_bytes) or told.diverging_epoch is not None or told.preferred_read_replica != NO_REPLICA
    if known.high_watermark != told.high_watermark:
        known.high_watermark = told.high_watermark
        is_news = True
    if known.log_start_offset != told.log_start_offset:
        known.log_start_offset = told.log_start_offset
        is_news = True
    if told.error_code:
        known.high_watermark = UNKNOWN  # so that it is sent once the error has gone
        is_news = True
    return is_news
