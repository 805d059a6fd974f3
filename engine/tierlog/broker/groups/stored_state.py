"""The durable state of a group coordinator: groups as of their last stored generation, and committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from tierlog.remote.api import ZERO_UUID, Uuid

#: Name and metadata of the protocols that a member supports, the preferred one first; no name twice.
Protocols = tuple[tuple[str, bytes], ...]

#: Memory of an entry beside its texts and bytes: measured on CPython 3.11, rounded up.
OFFSET_OVERHEAD_BYTES: Final = 400


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member of a stored generation.

    Args:
        member_id: Given by the coordinator.
        group_instance_id: Of a static member; None of a dynamic one.
        client_id, client_host: Of the client that joined, as DescribeGroups shows them.
        protocols: Those that the member supports.
        assignment: The leader's assignment, in the bytes of its protocol.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group as it was when a generation became stable, or empty.

    Args:
        generation_id: Of the generation, 0 or more.
        protocol_type: "consumer", or what else the members say; None of a group that never had members.
        protocol_name: The protocol that the generation uses; None without members.
        leader_id: The member id of the leader; None without members.
        state_timestamp_ms: When the group came into this state, in ms since 1970 UTC.
        members: In the order in which they joined.
    """

    group_id: str
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader_id: str | None
    state_timestamp_ms: int
    members: tuple[StoredMember, ...] = ()


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The committed offset of one partition (Kafka's OffsetAndMetadata).

    Args:
        committed_offset: As the client gave it: the next that it would read.
        leader_epoch: Of the last record that was read; -1 unknown.
        metadata: The client's own text.
        commit_timestamp_ms: When it was committed, in ms since 1970 UTC.
        expire_timestamp_ms: When it goes, where the client asked for a time of its own (up to version 4); else None.
        topic_id: Of the topic that it was committed for; ZERO_UUID where unknown.
    """

    committed_offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None
    topic_id: Uuid = ZERO_UUID

    @property
    def memory_bytes(self) -> int:
        """The approximate memory of an offset, in bytes."""
        return OFFSET_OVERHEAD_BYTES + 4 * len(self.metadata)


@dataclass(frozen=True, slots=True)
class SaveGroup:
    """A change: a group is in a new generation, or empty, which replaces its stored state."""

    group: StoredGroup


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """A group is gone, with its offsets."""

    group_id: str


@dataclass(frozen=True, slots=True)
class SaveOffsets:
    """Offsets of a group are committed: (topic, partition, offset) each."""

    group_id: str
    offsets: Sequence[tuple[str, int, CommittedOffset]]


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """Offsets of a group are gone: (topic, partition) each."""

    group_id: str
    partitions: Sequence[tuple[str, int]]


Change = SaveGroup | DeleteGroup | SaveOffsets | DeleteOffsets


@dataclass(frozen=True, slots=True)
class StoredState:
    """All that a store holds.

    Args:
        groups: By group id. A group that only ever committed offsets is not among them.
        offsets: By group id, then by (topic, partition).
    """

    groups: Mapping[str, StoredGroup] = field(default_factory=dict)
    offsets: Mapping[str, Mapping[tuple[str, int], CommittedOffset]] = field(default_factory=dict)


class GroupStore(Protocol):
    """The durable store of the groups' state."""

    def load(self) -> StoredState:
        """Load all that is stored. Called once, before the first write; blocks.

        Raises:
            CorruptDataError, StoreError and its kinds.
        """

    def write(self, changes: Sequence[Change], done: Callable[[Exception | None], None]) -> None:
        """Make changes durable, all of them or none, behind those of all calls before. Blocks for nothing.

        Args:
            changes: May be none: then ``done`` is called when all calls before are done.
            done: Called once, in the order of the calls, in any thread: with None when the changes are durable, else
                with what went wrong, and nothing has happened. It must neither raise nor block.
        """

    def close(self) -> None:
        """Wait for the writes under way, and close; idempotent. Blocks. Later writes fail."""


class MemoryStore:
    """The store of a coordinator that forgets everything when it ends."""

    def load(self) -> StoredState:
        """Nothing is stored."""
        return StoredState()

    def write(self, changes: Sequence[Change], done: Callable[[Exception | None], None]) -> None:  # noqa: ARG002
        """Durable at once, as far as memory is."""
        done(None)

    def close(self) -> None:
        """Nothing is open."""
