"""Members joining, asking for assignments, showing that they are alive, and leaving.

The rules, and the order of errors, are those of Kafka's GroupMetadataManager for classic groups.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from tierlog.broker.groups.group import Group, GroupState
from tierlog.broker.groups.group_config import GroupConfig, GroupsMemory
from tierlog.broker.groups.members import UNKNOWN_MEMBER_ID, JoinAnswer, JoinRequest, Member, SyncAnswer, SyncRequest
from tierlog.broker.groups.rebalances import Rebalances
from tierlog.broker.groups.stored_state import StoredGroup
from tierlog.runtime.machine.randomness import Rng

_log: Final = logging.getLogger(__name__)

_PREFIX_MAX: Final = 255

AnswerJoin = Callable[[JoinAnswer], None]
AnswerSync = Callable[[SyncAnswer], None]
#: Stores a group, then calls with whether it is stored.
Save = Callable[[Group, StoredGroup, Callable[[bool], None]], None]


class Membership:
    """The calls of members of an existing group. Used on the event loop alone."""

    def __init__(self, config: GroupConfig, rebalances: Rebalances, budget: GroupsMemory, rng: Rng, save: Save) -> None:
        self._config = config
        self._rebalances = rebalances
        self._budget = budget
        self._rng = rng
        self._save = save

    # ------------------------------------------------------------ joining

    def join(self, group: Group, request: JoinRequest, answer: AnswerJoin) -> None:
        """Take a member in, or again; ``answer`` is called once, when there is a generation or an error."""
        is_new = request.member_id == UNKNOWN_MEMBER_ID
        if not self._accepts(group, request.member_id):
            member = group.members.get(request.member_id)
            if member is not None:
                self._rebalances.remove(group, member)
            group.remove_pending(request.member_id)
            answer(JoinAnswer(ErrorCode.group_max_size_reached))
        elif not group.supports(request.protocol_type, request.protocols):
            answer(JoinAnswer(ErrorCode.inconsistent_group_protocol, request.member_id))
        elif is_new:
            self._join_anew(group, request, answer)
        elif request.member_id in group.pending_members:
            if request.group_instance_id is not None:  # ids are given to dynamic members alone
                answer(JoinAnswer(ErrorCode.unknown_server_error, request.member_id))
            else:
                self._add(group, request, request.member_id, answer)
        elif (fault := group.fault_of(request.member_id, request.group_instance_id)) is not ErrorCode.none:
            answer(JoinAnswer(fault, request.member_id))
        else:
            self._join_again(group, group.members[request.member_id], request, answer)

    def _accepts(self, group: Group, member_id: str) -> bool:
        """Whether the group has room. While it rebalances, joined members count: the last ones to come must go."""
        member = group.members.get(member_id)
        if group.state is GroupState.EMPTY:
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            return (member is not None and member.join is not None) or group.joined < self._config.max_size
        return member is not None or len(group.members) < self._config.max_size

    def _new_id(self, prefix: str) -> str:
        # Of a client's name of 32 KiB no id could be made that fits into an answer.
        return f"{prefix[:_PREFIX_MAX]}-{uuid.UUID(bytes=self._rng.secret_bytes(16), version=4)}"

    def _join_anew(self, group: Group, request: JoinRequest, answer: AnswerJoin) -> None:
        instance_id = request.group_instance_id
        if instance_id is not None:
            member_id = self._new_id(instance_id)
            if instance_id in group.static_members:
                self._replace_static(group, request, instance_id, member_id, answer)
            else:
                self._add(group, request, member_id, answer)
            return
        member_id = self._new_id(request.client_id)
        if request.must_know_member_id:
            self._rebalances.await_pending(group, member_id, request.session_timeout_ms)
            answer(JoinAnswer(ErrorCode.member_id_required, member_id))
        else:
            self._add(group, request, member_id, answer)

    def _add(self, group: Group, request: JoinRequest, member_id: str, answer: AnswerJoin) -> None:
        member = Member(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            self._rebalances.new_session(),
            is_new=True,
        )
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.was_joined_late = True
        group.add(member, request.protocol_type)
        group.park_join(member, answer)
        # It knows no id that it could send heartbeats with. Were it gone, it would be waited for without end.
        self._rebalances.keep_alive(group, member, self._config.new_member_join_timeout_ms)
        self._rebalances.prepare_or_complete(group, f"new member {member_id!r} ({request.reason or 'no reason given'})")

    def _join_again(self, group: Group, member: Member, request: JoinRequest, answer: AnswerJoin) -> None:
        is_same = member.protocols == request.protocols
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                self._update(group, member, request, answer)
            case GroupState.COMPLETING_REBALANCE if is_same:  # it has lost the answer
                answer(group.answer_of(member))
            case GroupState.STABLE if is_same and not group.is_leader(member.member_id):
                answer(group.answer_of(member))
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:  # a leader may have seen other partitions
                self._update(group, member, request, answer)
            case _:
                answer(JoinAnswer(ErrorCode.unknown_member_id, member.member_id))

    def _update(self, group: Group, member: Member, request: JoinRequest, answer: AnswerJoin) -> None:
        self._take_over(group, member, request)
        group.park_join(member, answer)
        reason = f"member {member.member_id!r} joins again ({request.reason or 'no reason given'})"
        self._rebalances.prepare_or_complete(group, reason)

    @staticmethod
    def _take_over(group: Group, member: Member, request: JoinRequest) -> None:
        group.update(
            member,
            request.protocols,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
        )

    def _replace_static(
        self, group: Group, request: JoinRequest, instance_id: str, member_id: str, answer: AnswerJoin
    ) -> None:
        """Let a static member come back without its id: it takes the place that it had, without a rebalance
        if it can.
        """
        old_leader, old_id = group.leader_id or "", group.static_members[instance_id]
        member = group.rename_static(instance_id, member_id)
        _log.info("group %r: static member %r is %r now, not %r", group.group_id, instance_id, member_id, old_id)
        self._rebalances.keep_alive(group, member)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        self._take_over(group, member, request)
        group.park_join(member, answer)
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._rebalances.prepare(group, f"static member {instance_id!r} has a new id")
        elif group.state is not GroupState.STABLE:
            self._rebalances.complete_if_joined(group)
        elif group.select_protocol() != group.protocol_name:
            self._rebalances.prepare(group, f"static member {instance_id!r} changes the protocol")
        else:
            generation_id = group.generation_id

            def stored(is_stored: bool) -> None:
                if group.members.get(member_id) is not member or member.join is None:
                    return
                if not is_stored:
                    group.answer_join(member, JoinAnswer(ErrorCode.coordinator_not_available))
                    group.rename_static(instance_id, old_id)
                    group.update(member, before[0], rebalance_timeout_ms=before[1], session_timeout_ms=before[2])
                    self._rebalances.keep_alive(group, member)
                elif group.state is GroupState.STABLE and group.generation_id == generation_id:
                    # Its session may have run out while it waited, and was not heeded.
                    self._rebalances.keep_alive(group, member)
                    group.answer_join(member, self._answer_back(group, member, request, old_leader))
                # Else a rebalance has begun meanwhile, and answers.

            self._save(group, group.stored(), stored)

    @staticmethod
    def _answer_back(group: Group, member: Member, request: JoinRequest, old_leader: str) -> JoinAnswer:
        """Make the answer for a static member that came back. A leader must not assign anew: a client that does not
        know ``skip_assignment`` gets its old id as the leader's, which is another.
        """
        if request.can_skip_assignment:
            return group.answer_of(member, skip_assignment=group.is_leader(member.member_id))
        told = group.answer_of(member, with_members=False)
        return JoinAnswer(
            told.error, told.member_id, told.generation_id, told.protocol_type, told.protocol_name, old_leader
        )

    # ------------------------------------------------------------ assignments

    def sync(self, group: Group, request: SyncRequest, answer: AnswerSync) -> None:
        """Answer a member its assignment, once the leader's assignments are stored."""
        error = group.fault_of(request.member_id, request.group_instance_id)
        if error is ErrorCode.none and request.generation_id != group.generation_id:
            error = ErrorCode.illegal_generation
        elif error is ErrorCode.none and not self._is_consistent(group, request):
            error = ErrorCode.inconsistent_group_protocol
        elif error is ErrorCode.none and group.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.rebalance_in_progress
        if error is not ErrorCode.none:
            answer(SyncAnswer(error))
            return
        member = group.members[request.member_id]
        self._rebalances.synced(group, member)
        if group.state is GroupState.STABLE:
            answer(SyncAnswer(ErrorCode.none, group.protocol_type, group.protocol_name, member.assignment))
            return
        group.answer_sync(member, SyncAnswer(ErrorCode.rebalance_in_progress))  # it has asked twice
        member.sync = answer
        if group.is_leader(member.member_id):
            self._assign(group, request)

    @staticmethod
    def _is_consistent(group: Group, request: SyncRequest) -> bool:
        pairs = ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol_name))
        return all(asked is None or known is None or asked == known for asked, known in pairs)

    def _assign(self, group: Group, request: SyncRequest) -> None:
        """Store the leader's assignments, then answer the members."""
        assignments = {member_id: given for member_id, given in request.assignments if member_id in group.members}
        if not self._budget.has_room(sum(map(len, assignments.values()))):
            _log.warning("group %r: no memory for its assignments", group.group_id)
            self._failed(group)
            return

        def stored(is_stored: bool) -> None:
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation_id != request.generation_id:
                return  # members came or went meanwhile
            if is_stored:
                group.transition_to(GroupState.STABLE, time_ms=group.state_timestamp_ms)
                self._rebalances.give_assignments(group, assignments)
            else:
                self._failed(group)

        self._save(group, group.stored(assignments), stored)

    def _failed(self, group: Group) -> None:
        self._rebalances.give_assignments(group, {}, ErrorCode.coordinator_not_available)
        self._rebalances.prepare(group, "the assignments could not be stored")

    # ------------------------------------------------------------ heartbeats

    def heartbeat(self, group: Group, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """Handle a heartbeat; the error says whether the member has to join again."""
        error = group.fault_of(member_id, group_instance_id)
        if error is not ErrorCode.none:
            return error
        if generation_id != group.generation_id:
            return ErrorCode.illegal_generation
        self._rebalances.keep_alive(group, group.members[member_id])
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def committed(self, group: Group, member_id: str) -> None:
        """Note a commit of a member, which is a sign of life, too."""
        member = group.members.get(member_id)
        if member is not None:
            self._rebalances.keep_alive(group, member)

    # ------------------------------------------------------------ leaving

    def leave(self, group: Group, members: Sequence[tuple[str, str | None, str]]) -> list[ErrorCode]:
        """Remove members: (member id, instance id, reason) each. A static member goes by its instance id alone too.

        Returns:
            An error or none for each, in order.
        """
        errors = [self._leave(group, *member) for member in members]
        if ErrorCode.none in errors:
            self._rebalances.go_on_without(group, "members left")
        return errors

    def _leave(self, group: Group, member_id: str, instance_id: str | None, reason: str) -> ErrorCode:
        if member_id == UNKNOWN_MEMBER_ID:
            found = group.static_members.get(instance_id) if instance_id is not None else None
            if found is None:
                return ErrorCode.unknown_member_id
            member_id = found
        elif group.remove_pending(member_id):
            return ErrorCode.none
        elif (fault := group.fault_of(member_id, instance_id)) is not ErrorCode.none:
            return fault
        _log.info("group %r: member %r leaves (%s)", group.group_id, member_id, reason or "no reason given")
        self._rebalances.remove(group, group.members[member_id])
        return ErrorCode.none
