"""Static members: those that keep their place through a restart."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from tests.support.group_rig import Answers, Rig
from tierlog.broker.groups.members import JoinAnswer
from tierlog.errors import StoreError

NONE = ErrorCode.none


def stable(rig: Rig) -> tuple[JoinAnswer, JoinAnswer]:
    """A group of two static members, "a" and "b"; the leader is the first one."""
    joins: list[Answers[JoinAnswer]] = [rig.join(group_instance_id=name) for name in "ab"]
    rig.advance(9)
    leader, follower = rig.give(joins)
    assert leader.member_id.startswith("a-")
    return leader, follower


@pytest.mark.parametrize("can_skip", [True, False])
def test_a_restart_costs_no_rebalance(can_skip: bool) -> None:
    """Otherwise group.instance.id is of no use: each restart of a consumer stops all others."""
    rig = Rig()
    leader, follower = stable(rig)
    back = rig.join(group_instance_id="b", can_skip_assignment=can_skip).only
    assert (back.error, back.generation_id, back.leader) == (NONE, 1, leader.member_id)
    assert back.member_id not in (leader.member_id, follower.member_id)
    assert rig.state() == "Stable"
    assert rig.sync(back, group_instance_id="b").only.assignment == follower.member_id.encode()
    assert rig.heartbeat(follower, instance_id="b") is ErrorCode.fenced_instance_id
    assert rig.heartbeat(back, instance_id="b") is NONE
    rig.restart()
    assert rig.heartbeat(back, instance_id="b") is NONE, "the new id was stored before it was told"
    assert rig.heartbeat(follower, instance_id="b") is ErrorCode.fenced_instance_id


def test_a_member_that_came_back_over_a_slow_disk_and_died_is_missed() -> None:
    """Its partitions would be read by nobody, for ever."""
    rig = Rig()
    leader, _ = stable(rig)
    rig.is_prompt = False
    back = rig.join(group_instance_id="b")
    for _ in range(6):  # longer than the session; the leader lives
        rig.advance(5)
        assert rig.heartbeat(leader, instance_id="a") is NONE
    rig.is_prompt = True
    rig.settle()
    assert back.only.error is NONE
    rig.advance(5)
    assert rig.heartbeat(leader, instance_id="a") is NONE
    rig.advance(6)
    assert rig.heartbeat(leader, instance_id="a") is ErrorCode.rebalance_in_progress


def test_a_leader_that_restarts_does_not_assign_anew() -> None:
    """Otherwise a leader's restart moves partitions, or a generation has two assignments."""
    rig = Rig()
    leader, _ = stable(rig)
    back = rig.join(group_instance_id="a").only
    assert back.skip_assignment
    assert back.leader == back.member_id
    assert len(back.members) == 2
    old = rig.join(group_instance_id="a", can_skip_assignment=False).only
    assert not old.skip_assignment
    assert old.leader == back.member_id != old.member_id, "it must not take itself for the leader"
    assert old.members == ()
    assert rig.heartbeat(leader, instance_id="a") is ErrorCode.fenced_instance_id


def test_a_leader_of_a_generation_that_was_lost_assigns_nothing() -> None:
    """After a full disk and a crash the same generation begins anew, with another leader: were the first one heeded,
    it would have two assignments.
    """
    rig = Rig()
    changes = {"session_timeout_ms": 600_000, "rebalance_timeout_ms": 20_000}
    joins = [rig.join(group_instance_id=name, **changes) for name in "ab"]
    rig.advance(9)
    leader, follower = rig.give(joins)
    rig.store.fault = StoreError("disk full")
    rejoined = [
        rig.join(each.member_id, group_instance_id=name, **changes) for each, name in ((leader, "a"), (follower, "b"))
    ]
    lost = rejoined[0].only
    assert (lost.generation_id, lost.leader) == (2, leader.member_id)
    own = {member_id: b"lost" for member_id, _, _ in lost.members}
    assert rig.sync(lost, own, group_instance_id="a").only.error is ErrorCode.coordinator_not_available
    rig.restart()
    rig.store.fault = None
    other, joining = rig.new_member(**changes)
    rig.advance(20)
    begun = joining.only
    assert (begun.generation_id, begun.leader) == (2, other), "the static members are away, and stay members"
    waiting = rig.sync(lost, own, group_instance_id="a")
    assert not waiting
    assert rig.sync(begun, {leader.member_id: b"found"}).only.error is NONE
    assert waiting.only.assignment == b"found"


def test_a_restart_with_another_protocol_rebalances() -> None:
    """Otherwise a member is given an assignment in a protocol that it does not speak."""
    rig = Rig()
    leader, follower = stable(rig)
    joins = [rig.join(group_instance_id="b", protocols=(("own", b""), ("range", b"")))]
    assert rig.state() == "Stable", "the others' protocol is still there"
    assert joins[0].only.generation_id == 1
    rig.join(leader.member_id, group_instance_id="a", protocols=(("own", b""), ("range", b"")))
    assert rig.state() == "PreparingRebalance"
    assert rig.heartbeat(follower, instance_id="b") is ErrorCode.fenced_instance_id


def test_the_older_of_two_with_one_name_is_fenced() -> None:
    """Otherwise two processes with one group.instance.id read the same partitions."""
    rig = Rig()
    first = rig.join(group_instance_id="a")
    second = rig.join(group_instance_id="a")
    assert first.only.error is ErrorCode.fenced_instance_id
    rig.advance(3)
    assert second.only.error is NONE
    waiting = rig.sync(second.only, member_id="nobody", group_instance_id="a")
    assert waiting.only.error is ErrorCode.fenced_instance_id
    assert rig.join("nobody", group_instance_id="a").only.error is ErrorCode.fenced_instance_id
    assert rig.join("nobody", group_instance_id="b").only.error is ErrorCode.unknown_member_id
    third = rig.join(group_instance_id="a")
    assert rig.state() == "CompletingRebalance", "the generation of the member alone: it is all of it"
    assert third.only.generation_id == 2


def test_a_static_member_keeps_its_place_through_a_rebalance() -> None:
    """Otherwise a consumer that restarts during somebody else's rebalance loses its place."""
    rig = Rig()
    leader, _ = stable(rig)
    again = rig.join(leader.member_id, group_instance_id="a", session_timeout_ms=90_000)
    rig.advance(9)
    assert not again
    rig.advance(2)
    assert again.only.generation_id == 2, "b's session was over"
    assert len(again.only.members) == 1


def test_static_members_that_are_all_away_are_waited_for() -> None:
    """Otherwise a rolling restart that takes longer than a rebalance ends the group."""
    rig = Rig()
    changes = {"session_timeout_ms": 600_000, "rebalance_timeout_ms": 20_000}
    joins = [rig.join(group_instance_id=name, **changes) for name in "ab"]
    rig.advance(9)
    rig.give(joins)
    other, _ = rig.new_member(**changes)
    rig.leave((other, None, ""))
    rig.advance(300)
    assert rig.state() == "PreparingRebalance"
    back = rig.join(group_instance_id="b", **changes)
    rig.advance(20)
    assert (back.only.generation_id, back.only.leader) == (2, back.only.member_id)
    assert len(back.only.members) == 2, "a keeps its place until its session ends"


def test_an_administrator_removes_static_members_by_their_names() -> None:
    """Otherwise the place of a machine that is gone stays until its session ends, half an hour later."""
    rig = Rig()
    leader, follower = stable(rig)
    told = rig.leave(("", "b", ""), ("", "nobody", ""), (leader.member_id, "b", ""))
    assert told == (NONE, [NONE, ErrorCode.unknown_member_id, ErrorCode.unknown_member_id])
    assert rig.heartbeat(follower, instance_id="b") is ErrorCode.unknown_member_id
    assert rig.heartbeat(leader, instance_id="a") is ErrorCode.rebalance_in_progress


def test_a_restart_that_cannot_be_stored_is_undone() -> None:
    """Otherwise a member holds an id that the next coordinator does not know."""
    rig = Rig()
    _, follower = stable(rig)
    rig.store.fault = StoreError("disk full")
    assert rig.join(group_instance_id="b").only.error is ErrorCode.coordinator_not_available
    assert rig.heartbeat(follower, instance_id="b") is NONE
    rig.store.fault = None
    back = rig.join(group_instance_id="b").only
    assert back.error is NONE
    assert rig.sync(back, group_instance_id="b").only.assignment == follower.member_id.encode()
