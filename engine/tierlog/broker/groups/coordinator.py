"""The group coordinator of one node: all groups, their stored state, and their offsets.

Nothing here waits: later answers are callbacks on the loop. An answer that promises durability is given when the store
confirms; until then others see the previous durable state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from kio.schema.errors import ErrorCode

from tierlog.broker.groups.committed_offsets import CommitRequest, CommittedOffsets, commit_fault
from tierlog.broker.groups.group import Group, GroupState
from tierlog.broker.groups.group_config import GroupConfig, GroupsMemory
from tierlog.broker.groups.members import (
    UNKNOWN_MEMBER_ID,
    JoinAnswer,
    JoinRequest,
    Member,
    SyncAnswer,
    SyncRequest,
    Timeout,
    protocols_bytes,
)
from tierlog.broker.groups.membership import AnswerJoin, AnswerSync, Membership
from tierlog.broker.groups.rebalances import GroupCounts, Rebalances
from tierlog.broker.groups.stored_state import Change, DeleteGroup, GroupStore, SaveGroup, StoredGroup, StoredState
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import Timers

_log: Final = logging.getLogger(__name__)
#: How soon a group that became empty is stored again after that failed.
_SAVE_AGAIN_MS: Final = 5_000
#: Clients that are refused ask again at once: that there is no room is logged at this interval.
_WARNING_SECONDS: Final = 60.0


class GroupCoordinator:
    """All groups of a node. Used on the event loop alone.

    Args:
        machine: Its clock gives times of day, its chance member ids.
        store: Stores the durable state; it is not closed here.
        state: The state that the store had loaded.
        on_loop: Has a call made on the loop, soon, in the order of the calls; any thread may use it.

    Attributes:
        counts: What came to pass since the start.
    """

    def __init__(
        self,
        config: GroupConfig,
        machine: Machine,
        timers: Timers,
        store: GroupStore,
        state: StoredState,
        *,
        on_loop: Callable[[Callable[[], object]], None],
    ) -> None:
        self._config = config
        self._clock = machine.clock
        self._timers = timers
        self._store = store
        self._on_loop = on_loop
        self._budget = GroupsMemory(config.memory_max)
        self.counts = GroupCounts()
        self._rebalances = Rebalances(
            config,
            timers,
            machine.clock,
            self.counts,
            save_empty=self._save_empty,
            pending_gone=self._drop_if_unused,
        )
        self._membership = Membership(config, self._rebalances, self._budget, machine.rng, self._save)
        self._groups: dict[str, Group] = {}
        self._not_saved: set[str] = set()
        self._save_again = Timeout(timers)
        self._check_retention = Timeout(timers)
        self._is_open = True
        self._refused_at_seconds = -_WARNING_SECONDS
        self.offsets = CommittedOffsets(config, machine.clock, self._budget, write=self.write)
        self._load(state)
        self._plan_retention()

    # ------------------------------------------------------------ groups

    @property
    def memory_bytes(self) -> int:
        """The approximate memory of all groups and offsets, in bytes."""
        return self._budget.used_bytes

    def find(self, group_id: str) -> Group | None:
        """Return a group by its id."""
        return self._groups.get(group_id)

    def groups(self) -> Collection[Group]:
        """Return all groups, in the order in which they came to be."""
        return self._groups.values()

    def _make(self, group_id: str) -> Group:
        group = Group(group_id, self._timers, self._budget, time_ms=self._clock.time_ms())
        self._groups[group_id] = group
        return group

    def make_room(self, group_id: str, more_bytes: int) -> bool:
        """Whether a client may have a group, and that much more memory for it. It is logged if not, once a minute."""
        has_place = group_id in self._groups or len(self._groups) < self._config.groups_max
        if has_place and self._budget.has_room(more_bytes):
            return True
        now = self._clock.monotonic_seconds()
        if now - self._refused_at_seconds < _WARNING_SECONDS:
            return False
        self._refused_at_seconds = now
        _log.warning(
            "group %.100r is refused: %d groups use about %d MiB; at most %d groups and %d MiB are allowed",
            group_id,
            len(self._groups),
            self._budget.used_bytes >> 20,
            self._config.groups_max,
            self._budget.limit_bytes >> 20,
        )
        return False

    def _load(self, state: StoredState) -> None:
        """Load the state of the coordinator before this one: sessions begin anew, generations go on."""
        self.offsets.load(state.offsets)
        for stored in state.groups.values():
            group = self._make(stored.group_id)
            self._restore(group, stored)
            if len(group.members) > self._config.max_size:
                self._rebalances.prepare(group, "the group is larger than group.max.size")
        for group_id in state.offsets:
            if group_id not in self._groups:
                self._make(group_id)

    def _restore(self, group: Group, stored: StoredGroup) -> None:
        group.protocol_type = stored.protocol_type
        group.leader_id = stored.leader_id
        for kept in stored.members:
            member = Member(
                kept.member_id,
                kept.group_instance_id,
                kept.client_id,
                kept.client_host,
                kept.rebalance_timeout_ms,
                kept.session_timeout_ms,
                kept.protocols,
                self._rebalances.new_session(),
                kept.assignment,
            )
            group.add(member, stored.protocol_type or "")
            self._rebalances.keep_alive(group, member)
        group.restore(stored)

    def _drop_if_unused(self, group: Group) -> None:
        """Forget a group that is indistinguishable from one that never was."""
        is_known = group.generation_id or group.pending_members or group.is_stored or self.offsets.has(group.group_id)
        if group.state is GroupState.EMPTY and not is_known:
            self._forget(group)

    def _forget(self, group: Group) -> None:
        self._groups.pop(group.group_id, None)
        self._not_saved.discard(group.group_id)
        group.give_up()

    def close(self) -> None:
        """Answer all waiters, and refuse later requests. The members find their generation when there is a coordinator
        again; idempotent.
        """
        self._is_open = False
        self._save_again.cancel()
        self._check_retention.cancel()
        for group in self._groups.values():
            for member in group.members.values():
                group.answer_join(member, JoinAnswer(ErrorCode.not_coordinator, member.member_id))
                group.answer_sync(member, SyncAnswer(ErrorCode.not_coordinator))
            group.give_up()

    # ------------------------------------------------------------ storing

    def write(self, changes: Sequence[Change], done: Callable[[Exception | None], None]) -> None:
        """Store changes; ``done`` is called on the loop, in the order of the writes."""
        self._store.write(changes, lambda error: self._on_loop(partial(done, error)))

    def _save(self, group: Group, stored: StoredGroup, then: Callable[[bool], None]) -> None:
        def done(error: Exception | None) -> None:
            if error is None:
                group.is_stored = True
                self._not_saved.discard(group.group_id)
            if self._is_open:
                then(error is None)

        self.write([SaveGroup(stored)], done)

    def _save_empty(self, group: Group) -> None:
        """Store that a group is empty, again and again if need be: no client waits for it that could ask again."""
        self._not_saved.add(group.group_id)

        def stored(is_stored: bool) -> None:
            if not is_stored and not self._save_again.is_set:
                self._save_again.set(_SAVE_AGAIN_MS, self._save_all_empty)

        self._save(group, group.stored(), stored)

    def _save_all_empty(self) -> None:
        for group_id in list(self._not_saved):
            group = self._groups.get(group_id)
            if group is not None and group.state is GroupState.EMPTY:
                self._save_empty(group)
            else:  # it has members again, and is stored with their assignments
                self._not_saved.discard(group_id)

    # ------------------------------------------------------------ what members ask for

    def _fault(self, group_id: str) -> ErrorCode | None:
        """Return the error for all requests about a group of this id; None if a group may have it."""
        if not self._is_open:
            return ErrorCode.coordinator_not_available
        return None if group_id else ErrorCode.invalid_group_id

    def join(self, request: JoinRequest, answer: AnswerJoin) -> None:
        """Take a member in; ``answer`` is called once."""
        error = self._join_fault(request)
        if error is not ErrorCode.none:
            answer(JoinAnswer(error, request.member_id))
            return
        group = self.find(request.group_id) or self._make(request.group_id)
        self._membership.join(group, request, answer)
        self._drop_if_unused(group)

    def _join_fault(self, request: JoinRequest) -> ErrorCode:
        config = self._config
        if error := self._fault(request.group_id):
            return error
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            return ErrorCode.invalid_session_timeout
        if request.member_id != UNKNOWN_MEMBER_ID and self.find(request.group_id) is None:
            return ErrorCode.unknown_member_id
        size = protocols_bytes(request.protocols) + 4 * (len(request.client_id) + len(request.group_instance_id or ""))
        if size > config.member_size_max:
            return ErrorCode.unknown_server_error  # as Kafka says of members that do not fit into a record
        return ErrorCode.none if self.make_room(request.group_id, size) else ErrorCode.coordinator_not_available

    def sync(self, request: SyncRequest, answer: AnswerSync) -> None:
        """Answer a member its assignment; ``answer`` is called once."""
        if error := self._fault(request.group_id):
            answer(SyncAnswer(error))
        elif (group := self.find(request.group_id)) is None or group.state is GroupState.EMPTY:
            answer(SyncAnswer(ErrorCode.unknown_member_id))
        else:
            self._membership.sync(group, request, answer)

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """A member shows that it is alive."""
        if error := self._fault(group_id):
            return error
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.unknown_member_id
        return self._membership.heartbeat(group, member_id, group_instance_id, generation_id)

    def leave(
        self,
        group_id: str,
        members: Sequence[tuple[str, str | None, str]],
        answer: Callable[[ErrorCode, list[ErrorCode]], None],
    ) -> None:
        """Remove members: (member id, instance id, reason) each; ``answer`` gets an error for all, and one for each."""
        if error := self._fault(group_id):
            answer(error, [])
        elif (group := self.find(group_id)) is None:
            answer(ErrorCode.none, [ErrorCode.unknown_member_id] * len(members))
        else:
            errors = self._membership.leave(group, members)
            if group.group_id in self._not_saved:  # the group is empty now: that it is has to be durable, too
                self.write([], lambda _: answer(ErrorCode.none, errors))
            else:
                answer(ErrorCode.none, errors)
            self._drop_if_unused(group)

    def commit(self, request: CommitRequest, answer: Callable[[ErrorCode], None]) -> None:
        """Store offsets for a group; ``answer`` is called once they are durable, or are not."""
        began = self._clock.monotonic_seconds()

        def told(error: ErrorCode) -> None:
            self.counts.count_commit(error, self._clock.monotonic_seconds() - began)
            answer(error)

        group = self.find(request.group_id)
        error = ErrorCode.none if self._is_open else ErrorCode.coordinator_not_available
        if error is ErrorCode.none:
            error = commit_fault(group, request)
        if error is ErrorCode.none:
            growth = self.offsets.growth_bytes(request.group_id, request.offsets)
            if not self.make_room(request.group_id, growth):
                error = ErrorCode.coordinator_not_available
        if error is not ErrorCode.none or not request.offsets:
            told(error)
            return
        if group is None:
            group = self._make(request.group_id)
        self._membership.committed(group, request.member_id)
        made = group

        def done(error: ErrorCode) -> None:
            told(error)
            if error is not ErrorCode.none:
                self._drop_if_unused(made)

        self.offsets.commit(request.group_id, request.offsets, done)

    # ------------------------------------------------------------ what administrators ask for

    def delete_offsets_fault(self, group_id: str) -> ErrorCode:
        """Whether offsets of a group may be deleted: those that its members do not read."""
        if error := self._fault(group_id):
            return error
        group = self.find(group_id)
        if group is None:
            return ErrorCode.group_id_not_found
        is_free = group.state is GroupState.EMPTY or group.is_consumers
        return ErrorCode.none if is_free else ErrorCode.non_empty_group

    def delete_groups(self, group_ids: Collection[str], answer: Callable[[dict[str, ErrorCode]], None]) -> None:
        """Delete groups without members, with their offsets; ``answer`` gets an error or none for each."""
        errors = {group_id: self._delete_fault(group_id) for group_id in group_ids}
        fine = [group_id for group_id, error in errors.items() if error is ErrorCode.none]

        def done(error: Exception | None) -> None:
            for group_id in fine:
                if error is None:
                    self._deleted(group_id)
                else:
                    errors[group_id] = ErrorCode.coordinator_not_available
            answer(errors)

        if fine:
            self.write([DeleteGroup(group_id) for group_id in fine], done)
        else:
            answer(errors)

    def _delete_fault(self, group_id: str) -> ErrorCode:
        if not self._is_open:
            return ErrorCode.coordinator_not_available
        group = self.find(group_id)
        if group is None:
            return ErrorCode.group_id_not_found
        return ErrorCode.none if group.state is GroupState.EMPTY else ErrorCode.non_empty_group

    def _deleted(self, group_id: str) -> None:
        """Note that a group is deleted from the store; a group that a member has joined meanwhile goes on, without
        offsets.
        """
        self.offsets.forget(group_id)
        group = self._groups.get(group_id)
        if group is None:
            return
        group.is_stored = False
        if group.state is GroupState.EMPTY and not (group.pending_members or self.offsets.has(group_id)):
            self._forget(group)

    # ------------------------------------------------------------ retention

    def _plan_retention(self) -> None:
        self._check_retention.set(self._config.offsets_retention_check_interval_ms, self.expire)

    def expire(self) -> None:
        """Delete offsets whose time is over, and groups that are left with nothing (Kafka's cleanupGroupMetadata)."""
        if self._is_open:
            self._plan_retention()
        for group in list(self.groups()):
            if self.offsets.expire(group) or group.pending_members:
                continue
            if group.is_stored or self.offsets.has(group.group_id):
                self.delete_groups([group.group_id], lambda _: None)
            else:
                self._forget(group)
