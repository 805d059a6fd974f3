"""One group of the classic protocol: its members, its state, and which changes of state there are.

Kafka's ClassicGroup is the source of every rule here. Nothing here waits, sets a timer or stores anything: that is
``rebalances``.
"""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from kio.schema.errors import ErrorCode

from tierlog.broker.groups.group_config import GroupsMemory
from tierlog.broker.groups.members import CONSUMER, JoinAnswer, Member, SyncAnswer, Timeout, subscribed_topics
from tierlog.broker.groups.stored_state import Protocols, StoredGroup
from tierlog.runtime.machine.clock import Timers

_OVERHEAD_BYTES: Final = 3000
_PENDING_BYTES: Final = 1000
_GENERATION_MAX: Final = (1 << 31) - 1


class GroupState(enum.Enum):
    """The states of a group; the values are Kafka's names, as clients see them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_BEFORE: Final = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY},
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState),
}


class Group:
    """A group. Used on the event loop alone.

    Attributes:
        members: By member id, in the order in which they joined.
        static_members: Member ids by group instance id.
        pending_members: Timeouts by the ids that clients were sent to join again with.
        pending_sync: Ids of the members that have not yet asked for their assignment of this generation.
        subscribed: The topics that the members read; None where unknown.
        was_joined_late: A member came in during the first rebalance, which is put off for it.
        is_stored: The store has a row of the group.
    """

    def __init__(self, group_id: str, timers: Timers, budget: GroupsMemory, *, time_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = time_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, Timeout] = {}
        self.pending_sync: set[str] = set()
        self.subscribed: frozenset[str] | None = None
        self.was_joined_late = False
        self.is_stored = False
        self.join_timeout = Timeout(timers)
        self.sync_timeout = Timeout(timers)
        self._budget = budget
        self._supported: collections.Counter[str] = collections.Counter()
        self._joined = 0
        self._memory_bytes = 0
        self._take(_OVERHEAD_BYTES + 4 * len(group_id))

    def _take(self, more_bytes: int) -> None:
        self._memory_bytes += more_bytes
        self._budget.take(more_bytes)

    @property
    def joined(self) -> int:
        """The number of members that wait for the next generation."""
        return self._joined

    @property
    def is_consumers(self) -> bool:
        """Whether the members are consumers, whose subscriptions can be read."""
        return self.protocol_type == CONSUMER

    @property
    def have_all_joined(self) -> bool:
        """Whether every member waits for the next generation, and none is still to come."""
        return len(self.members) == self._joined and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The time for which members are waited for: the longest that one of them asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def is_subscribed(self, topic: str) -> bool:
        """Whether the members read a topic; consumers whose subscriptions cannot be read may read any."""
        return topic in self.subscribed if self.subscribed is not None else self.is_consumers

    def fault_of(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return the error of a member's name: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, or none."""
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is not None and known != member_id:
                return ErrorCode.fenced_instance_id
            if known is None:
                return ErrorCode.unknown_member_id
        return ErrorCode.none if member_id in self.members else ErrorCode.unknown_member_id

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols fits to the others."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(self._supported[name] == count for name, _ in protocols)

    def transition_to(self, state: GroupState, *, time_ms: int) -> None:
        """Change the state. An illegal change is a bug of ours."""
        assert self.state in _BEFORE[state], f"group {self.group_id!r}: {self.state} to {state}"
        self.previous_state, self.state, self.state_timestamp_ms = self.state, state, time_ms

    def can_rebalance(self) -> bool:
        return self.state in _BEFORE[GroupState.PREPARING_REBALANCE]

    # ------------------------------------------------------------ members

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first one decides on the group's protocol type, and leads until another member does."""
        assert member.member_id not in self.members
        assert member.group_instance_id not in self.static_members
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._enter(member)
        self.remove_pending(member.member_id)

    def _enter(self, member: Member) -> None:
        self.members[member.member_id] = member
        self._joined += member.join is not None
        self._count(member)

    def _count(self, member: Member) -> None:
        self._supported.update(name for name, _ in member.protocols)
        self._take(member.memory_bytes)

    def _uncount(self, member: Member) -> None:
        for name, _ in member.protocols:
            self._supported[name] -= 1
            if not self._supported[name]:
                del self._supported[name]
        self._take(-member.memory_bytes)

    def remove(self, member_id: str) -> None:
        """Remove a member. Its parked requests have to be answered before."""
        member = self.members.get(member_id)
        if member is None:
            return
        assert member.join is None, f"{member_id!r} still waits for an answer"
        member.session.cancel()
        del self.members[member_id]
        self._uncount(member)
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_sync.discard(member_id)

    def add_pending(self, member_id: str, timeout: Timeout) -> None:
        """Remember an id that was given to a client that is to join with it."""
        self.pending_members[member_id] = timeout
        self._take(_PENDING_BYTES + 4 * len(member_id))

    def remove_pending(self, member_id: str) -> bool:
        """Forget an id that was given away; whether it was one."""
        timeout = self.pending_members.pop(member_id, None)
        if timeout is None:
            return False
        timeout.cancel()
        self._take(-_PENDING_BYTES - 4 * len(member_id))
        return True

    def update(
        self, member: Member, protocols: Protocols, *, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        """Take over a member's new values as it joins again."""
        self._uncount(member)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self._count(member)

    def assign(self, member: Member, assignment: bytes) -> None:
        """Give a member its assignment."""
        self._take(len(assignment) - len(member.assignment))
        member.assignment = assignment

    def rename_static(self, group_instance_id: str, member_id: str) -> Member:
        """Give a static member another id; its place and its assignment stay.

        Requests parked under the old id are answered FENCED_INSTANCE_ID: there are two clients with one name.
        """
        old_id = self.static_members[group_instance_id]
        member = self.members[old_id]
        self.answer_join(member, JoinAnswer(ErrorCode.fenced_instance_id, old_id))
        self.answer_sync(member, SyncAnswer(ErrorCode.fenced_instance_id))
        self._take(4 * (len(member_id) - len(old_id)))
        member.member_id, member.is_new = member_id, False
        self.members = {each.member_id: each for each in self.members.values()}
        self.static_members[group_instance_id] = member_id
        if self.leader_id == old_id:
            self.leader_id = member_id
        self.pending_sync.discard(old_id)
        return member

    # ------------------------------------------------------------ requests that are parked

    def park_join(self, member: Member, answer: Callable[[JoinAnswer], None]) -> None:
        """Let a member wait for the next generation; a request parked before under its id is answered to join again."""
        self.answer_join(member, JoinAnswer(ErrorCode.rebalance_in_progress, member.member_id))
        self._joined += 1
        member.join = answer

    def answer_join(self, member: Member, answer: JoinAnswer) -> bool:
        """Answer the request that a member has parked; whether there was one."""
        if member.join is None:
            return False
        parked, member.join = member.join, None
        self._joined -= member.member_id in self.members
        parked(answer)
        return True

    def answer_sync(self, member: Member, answer: SyncAnswer) -> bool:
        """Answer the request for an assignment that a member has parked; whether there was one."""
        if member.sync is None:
            return False
        parked, member.sync = member.sync, None
        parked(answer)
        return True

    # ------------------------------------------------------------ generations

    def elect_leader(self) -> bool:
        """Make sure that the leader is a joined member; return whether there is one."""
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is None or leader.join is None:
            joined = next((member for member in self.members.values() if member.join is not None), None)
            if joined is None:
                return False
            self.leader_id = joined.member_id
        return True

    def select_protocol(self) -> str:
        """Select the protocol that all support and most prefer; of several the first one voted for."""
        count = len(self.members)
        candidates = {name for name, supporters in self._supported.items() if supporters == count}
        votes = collections.Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def begin_generation(self, *, time_ms: int) -> None:
        """Begin the next generation, of the members that are there; an empty one if there are none."""
        self.generation_id = 1 if self.generation_id == _GENERATION_MAX else self.generation_id + 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.find_subscribed()
        following = GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY
        self.transition_to(following, time_ms=time_ms)
        self.pending_sync.clear()

    def find_subscribed(self) -> None:
        """Read the subscriptions anew."""
        if not self.is_consumers:
            self.subscribed = None
        else:
            self.subscribed = subscribed_topics(
                member.metadata(self.protocol_name)
                for member in self.members.values()
                if self.protocol_name is not None
            )

    def answer_of(
        self, member: Member, *, skip_assignment: bool = False, with_members: bool | None = None
    ) -> JoinAnswer:
        """Make a member's answer about the generation; the leader's has all members."""
        if with_members is None:
            with_members = self.is_leader(member.member_id)
        return JoinAnswer(
            ErrorCode.none,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.leader_id or "",
            skip_assignment,
            tuple(self._described()) if with_members else (),
        )

    def _described(self) -> Iterator[tuple[str, str | None, bytes]]:
        for member in self.members.values():
            yield member.member_id, member.group_instance_id, member.metadata(self.protocol_name)

    def stored(self, assignments: Mapping[str, bytes] | None = None) -> StoredGroup:
        """Return the group as a store has it, with the given assignments, or the members' current ones."""
        members = [member.stored() for member in self.members.values()]
        if assignments is not None:
            members = [replace(member, assignment=assignments.get(member.member_id, b"")) for member in members]
        return StoredGroup(
            self.group_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.leader_id,
            self.state_timestamp_ms,
            tuple(members),
        )

    def restore(self, stored: StoredGroup) -> None:
        """Enter the stored generation; its members were added before."""
        assert len(self.members) == len(stored.members)
        self.generation_id = stored.generation_id
        self.protocol_type = stored.protocol_type
        self.protocol_name = stored.protocol_name
        self.leader_id = stored.leader_id
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.state_timestamp_ms = stored.state_timestamp_ms
        self.is_stored = True
        self.find_subscribed()

    def give_up(self) -> None:
        """Release the memory: the group is gone."""
        self.join_timeout.cancel()
        self.sync_timeout.cancel()
        for member_id in list(self.pending_members):
            self.remove_pending(member_id)
        for member in self.members.values():
            member.session.cancel()
        self._take(-self._memory_bytes)
