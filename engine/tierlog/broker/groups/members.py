"""A member of a group, and what it is told."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode

from tierlog.broker.groups.stored_state import Protocols, StoredMember
from tierlog.broker.groups.timeouts import Timeout

#: Of a client that has no member id yet.
UNKNOWN_MEMBER_ID: Final = ""
#: Of a client that does not take part in a group's generations.
UNKNOWN_GENERATION_ID: Final = -1
#: What a member costs in memory beside its texts and bytes, rounded up.
_OVERHEAD_BYTES: Final = 2000
_PROTOCOL_OVERHEAD_BYTES: Final = 200


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """What a client asks to join with.

    Args:
        protocols: No name twice.
        reason: Of the client, for the log; "" if it gave none.
        client_id, client_host: As DescribeGroups tells them.
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
    """What a member is told of the generation that it joined; ``members``: (member id, instance id, metadata) of all
    for the leader, none for others.
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
    """What a member asks for its assignment with; a leader gives those of all, by member id."""

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
        is_new: It has not been told of a generation yet: its session runs out even while it waits for one.
        join, sync: What the request that is parked is answered by; None while there is none.
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
        """About what the member costs in memory."""
        texts = len(self.member_id) + len(self.group_instance_id or "") + len(self.client_id) + len(self.client_host)
        return _OVERHEAD_BYTES + 4 * texts + len(self.assignment) + protocols_bytes(self.protocols)

    def metadata(self, protocol_name: str | None) -> bytes:
        """The member's metadata for a protocol; empty where it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate that the member likes best; it supports one of them."""
        return next(name for name, _ in self.protocols if name in candidates)

    def stored(self) -> StoredMember:
        """The member as a store keeps it."""
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
    """About what the protocols of a member cost in memory."""
    return sum(_PROTOCOL_OVERHEAD_BYTES + 4 * len(name) + len(metadata) for name, metadata in protocols)
