"""The steps from one generation of a group to the next: its waits for members, their time, and their answers.

The rules are those of Kafka's GroupMetadataManager for classic groups. A group changes here and in ``membership``
alone.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode

from tierlog.broker.groups.group import Group, GroupState
from tierlog.broker.groups.group_config import GroupConfig
from tierlog.broker.groups.members import JoinAnswer, Member, SyncAnswer, Timeout
from tierlog.runtime.machine.clock import Clock, Timers
from tierlog.serving.metrics import SecondsHistogram


@dataclass(slots=True)
class GroupCounts:
    """Events of one coordinator since its start. Counted on the loop's thread; any thread may read.

    Attributes:
        rebalances: Rebalances that began.
        members_lost: Members that were removed, as their session ran out.
        commit_seconds: Durations from a commit's request to its answer, of commits that are durable.
        commits_refused: Commits that were answered with an error, by the error's name.
    """

    rebalances: int = 0
    members_lost: int = 0
    commit_seconds: SecondsHistogram = field(default_factory=SecondsHistogram)
    commits_refused: collections.Counter[str] = field(default_factory=collections.Counter)

    def count_commit(self, error: ErrorCode, seconds: float) -> None:
        """Count a commit that is answered."""
        if error is ErrorCode.none:
            self.commit_seconds.observe(seconds)
        else:
            self.commits_refused[error.name.upper()] += 1


_log: Final = logging.getLogger(__name__)


class Rebalances:
    """The state transitions of groups. Used on the event loop alone.

    Args:
        counts: Of the coordinator.
        save_empty: Stores a group that has become empty, without a waiter.
        pending_gone: Called when a group has lost an id that was given away and may be of no use any more.
    """

    def __init__(
        self,
        config: GroupConfig,
        timers: Timers,
        clock: Clock,
        counts: GroupCounts,
        *,
        save_empty: Callable[[Group], None],
        pending_gone: Callable[[Group], None],
    ) -> None:
        self._config = config
        self._timers = timers
        self._clock = clock
        self._counts = counts
        self._save_empty = save_empty
        self._pending_gone = pending_gone

    # ------------------------------------------------------------ sessions

    def new_session(self) -> Timeout:
        """Make a timeout that is not set yet."""
        return Timeout(self._timers)

    def keep_alive(self, group: Group, member: Member, wait_ms: int | None = None) -> None:
        """Note that a member is alive: its session begins anew, with its own timeout or another."""
        member.session.set(
            member.session_timeout_ms if wait_ms is None else wait_ms, lambda: self._session_ran_out(group, member)
        )

    def await_pending(self, group: Group, member_id: str, wait_ms: int) -> None:
        """Give a client an id to join with, and some time."""
        timeout = Timeout(self._timers)
        group.add_pending(member_id, timeout)
        timeout.set(wait_ms, lambda: self._pending_ran_out(group, member_id))

    def _pending_ran_out(self, group: Group, member_id: str) -> None:
        if group.remove_pending(member_id):
            _log.info("group %r: %r did not join in time with the id that it was given", group.group_id, member_id)
            self.complete_if_joined(group)
            self._pending_gone(group)

    def _session_ran_out(self, group: Group, member: Member) -> None:
        if group.members.get(member.member_id) is member and not member.is_waiting:
            self._counts.members_lost += 1
            _log.info("group %r: nothing was heard of member %r, it is removed", group.group_id, member.member_id)
            self.remove(group, member)
            self.go_on_without(group, f"member {member.member_id!r} is gone")

    # ------------------------------------------------------------ members that go

    def remove(self, group: Group, member: Member) -> None:
        """Remove a member; its parked requests are answered UNKNOWN_MEMBER_ID."""
        group.answer_join(member, JoinAnswer(ErrorCode.unknown_member_id))
        group.answer_sync(member, SyncAnswer(ErrorCode.unknown_member_id))
        group.remove(member.member_id)

    def go_on_without(self, group: Group, reason: str) -> None:
        """Members were removed: the others need another generation, or have waited for these alone."""
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare(group, reason)
        else:
            self.complete_if_joined(group)

    # ------------------------------------------------------------ the join phase

    def prepare_or_complete(self, group: Group, reason: str) -> None:
        """Prepare another generation after a member joined, or complete this one if the member was the last to wait
        for.
        """
        if group.can_rebalance():
            self.prepare(group, reason)
        else:
            self.complete_if_joined(group)

    def prepare(self, group: Group, reason: str) -> None:
        """Make all members join again. The first members of an empty group wait for others for a while."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.give_assignments(group, {}, ErrorCode.rebalance_in_progress)
        group.pending_sync.clear()
        group.sync_timeout.cancel()
        was_empty = group.state is GroupState.EMPTY
        group.transition_to(GroupState.PREPARING_REBALANCE, time_ms=self._clock.time_ms())
        self._counts.rebalances += 1
        _log.info("group %r: rebalance after generation %d: %s", group.group_id, group.generation_id, reason)
        if was_empty:
            delay_ms = self._config.initial_rebalance_delay_ms
            left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            group.join_timeout.set(delay_ms, lambda: self._initial_delay_over(group, delay_ms, left_ms))
        elif group.have_all_joined:
            self.complete(group)
        else:
            group.join_timeout.set(group.rebalance_timeout_ms, lambda: self.complete(group))

    def _initial_delay_over(self, group: Group, delay_ms: int, left_ms: int) -> None:
        if not (group.was_joined_late and left_ms):
            self.complete(group)
            return
        group.was_joined_late = False
        next_ms = min(self._config.initial_rebalance_delay_ms, left_ms)
        then_left_ms = max(left_ms - delay_ms, 0)
        group.join_timeout.set(next_ms, lambda: self._initial_delay_over(group, next_ms, then_left_ms))

    def complete_if_joined(self, group: Group) -> None:
        """Begin the generation if all have joined. A first one begins when its delay is over, not before."""
        is_first = group.previous_state is GroupState.EMPTY
        if group.state is GroupState.PREPARING_REBALANCE and not is_first and group.have_all_joined:
            self.complete(group)

    def complete(self, group: Group) -> None:
        """Begin the next generation of the joined members; static members stay even if they have not joined."""
        group.join_timeout.cancel()
        late = [member for member in group.members.values() if member.join is None and member.group_instance_id is None]
        for member in late:
            self.remove(group, member)
        if late:
            _log.info("group %r: %d members did not join again in time", group.group_id, len(late))
        if not group.elect_leader() and group.members:
            # Static members alone, none of which is there: their sessions decide.
            group.join_timeout.set(group.rebalance_timeout_ms, lambda: self.complete(group))
            return
        group.begin_generation(time_ms=self._clock.time_ms())
        if group.state is GroupState.EMPTY:
            _log.info("group %r: empty with generation %d", group.group_id, group.generation_id)
            self._save_empty(group)
            return
        _log.info("group %r: generation %d of %d members", group.group_id, group.generation_id, len(group.members))
        for member in list(group.members.values()):
            member.is_new = False
            group.pending_sync.add(member.member_id)
            self.keep_alive(group, member)
            group.answer_join(member, group.answer_of(member))
        generation_id = group.generation_id
        group.sync_timeout.set(group.rebalance_timeout_ms, lambda: self._sync_ran_out(group, generation_id))

    # ------------------------------------------------------------ the sync phase

    def synced(self, group: Group, member: Member) -> None:
        """Note that a member has asked for its assignment."""
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            group.sync_timeout.cancel()

    def _sync_ran_out(self, group: Group, generation_id: int) -> None:
        is_due = group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        if not is_due or group.generation_id != generation_id or not group.pending_sync:
            return
        _log.info("group %r: %d members did not ask for assignments", group.group_id, len(group.pending_sync))
        for member_id in list(group.pending_sync):
            self.remove(group, group.members[member_id])
        self.prepare(group, "members did not ask for their assignments in time")

    def give_assignments(
        self, group: Group, assignments: Mapping[str, bytes], error: ErrorCode = ErrorCode.none
    ) -> None:
        """Answer all waiting members their assignments, or the error."""
        is_fine = error is ErrorCode.none
        protocol_type, protocol_name = (group.protocol_type, group.protocol_name) if is_fine else (None, None)
        for member in list(group.members.values()):
            group.assign(member, assignments.get(member.member_id, b""))
            if group.answer_sync(member, SyncAnswer(error, protocol_type, protocol_name, member.assignment)):
                # Its session may have run out while it waited, and was not heeded.
                self.keep_alive(group, member)
