"""A member of a group: its requests, its answers, and the timeout of its session."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode

from tierlog.broker.groups.stored_state import Protocols, StoredMember
from tierlog.runtime.machine.clock import Timer, Timers


class Timeout:
    """One call that is made unless it is put off or cancelled in time.

    Putting it off costs two attributes, not a timer: the running timer checks the deadline when it rings. A heartbeat
    does that.
    """

    __slots__ = ("_call", "_deadline", "_handle", "_rings_at", "_timers")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._deadline: float | None = None
        self._rings_at = 0.0
        self._handle: Timer | None = None
        self._call: Callable[[], None] | None = None

    @property
    def is_set(self) -> bool:
        return self._deadline is not None

    def set(self, wait_ms: int, call: Callable[[], None]) -> None:
        """Make a call after a time, in ms, in place of an earlier one."""
        self._call = call
        self._deadline = deadline = self._timers.monotonic_seconds() + wait_ms / 1000
        if self._handle is not None:
            if self._rings_at <= deadline:
                return
            self._handle.cancel()
        self._arm(wait_ms / 1000)

    def cancel(self) -> None:
        """Cancel the call; idempotent."""
        self._deadline = self._call = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self, seconds: float) -> None:
        self._rings_at = self._timers.monotonic_seconds() + seconds
        self._handle = self._timers.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._handle = None
        if self._deadline is None or self._call is None:
            return
        left = self._deadline - self._timers.monotonic_seconds()
        if left > 0:
            self._arm(left)
            return
        call = self._call
        self._deadline = self._call = None
        call()


CONSUMER: Final = "consumer"
_COUNT: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all subscriptions; None if one cannot be read: then the group's topics are unknown."""
    topics: set[str] = set()
    try:
        for metadata in subscriptions:
            topics.update(_topics(memoryview(metadata)))
    except (struct.error, UnicodeDecodeError, ValueError):
        return None
    return frozenset(topics)


def _topics(metadata: memoryview) -> list[str]:
    version, count = _COUNT.unpack_from(metadata)
    position = _COUNT.size
    if version < 0 or not 0 <= count <= (len(metadata) - position) // _LENGTH.size:
        raise ValueError("not a subscription")
    topics = []
    for _ in range(count):
        [length] = _LENGTH.unpack_from(metadata, position)
        position += _LENGTH.size
        if not 0 <= length <= len(metadata) - position:
            raise ValueError("not a subscription")
        topics.append(str(metadata[position : position + length], "utf-8"))
        position += length
    return topics


#: Of a client that has no member id yet.
UNKNOWN_MEMBER_ID: Final = ""
#: Of a client that does not take part in a group's generations.
UNKNOWN_GENERATION_ID: Final = -1
#: Memory of a member beside its texts and bytes, rounded up.
_OVERHEAD_BYTES: Final = 2000
_PROTOCOL_OVERHEAD_BYTES: Final = 200


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A client's request to join.

    Args:
        protocols: No name twice.
        reason: Of the client, for the log; "" if it gave none.
        client_id, client_host: As DescribeGroups shows them.
        must_know_member_id: The client joins again with the id that it is given (version 4 and later).
        can_skip_assignment: The client knows ``skip_assignment`` (version 9 and later).
    """

    group_id: str
    member_id: str
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    group_instance_id: str | None = None
    reason: str = ""
    client_id: str = ""
    client_host: str = ""
    must_know_member_id: bool = True
    can_skip_assignment: bool = True


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """The answer to a member that joined a generation; ``members``: (member id, instance id, metadata) of all for the
    leader, none for others.
    """

    error: ErrorCode = ErrorCode.none
    member_id: str = UNKNOWN_MEMBER_ID
    generation_id: int = UNKNOWN_GENERATION_ID
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A member's request for its assignment; a leader sends those of all, by member id."""

    group_id: str
    member_id: str
    generation_id: int
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """A member's assignment."""

    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(slots=True)
class Member:
    """A member of a group (Kafka's ClassicGroupMember).

    Attributes:
        is_new: Whether it has had no generation yet: its session runs out even while it waits for one.
        join, sync: The callbacks of its parked requests; None while there is none.
        session: Runs out when nothing is heard of the member.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    session: Timeout
    assignment: bytes = b""
    is_new: bool = False
    join: Callable[[JoinAnswer], None] | None = field(default=None, repr=False)
    sync: Callable[[SyncAnswer], None] | None = field(default=None, repr=False)

    @property
    def is_waiting(self) -> bool:
        """Whether silence is no sign of death: a request of the member is parked, so it sends no heartbeats."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    @property
    def memory_bytes(self) -> int:
        """The approximate memory of the member, in bytes."""
        texts = len(self.member_id) + len(self.group_instance_id or "") + len(self.client_id) + len(self.client_host)
        return _OVERHEAD_BYTES + 4 * texts + len(self.assignment) + protocols_bytes(self.protocols)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty where it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: Collection[str]) -> str:
        """Return the candidate that the member likes best; it supports one of them."""
        return next(name for name, _ in self.protocols if name in candidates)

    def stored(self) -> StoredMember:
        """Return the member as a store has it."""
        return StoredMember(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols,
            self.assignment,
        )


def protocols_bytes(protocols: Protocols) -> int:
    """Return the approximate memory of a member's protocols, in bytes."""
    return sum(_PROTOCOL_OVERHEAD_BYTES + 4 * len(name) + len(metadata) for name, metadata in protocols)
