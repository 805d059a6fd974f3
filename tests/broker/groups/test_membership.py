"""Joining, syncing, heartbeats and leaving, on a clock that is moved by hand."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from tests.support.group_rig import SUBSCRIPTION, Rig
from tierlog.broker.groups.group_config import GroupConfig

NONE = ErrorCode.none


def test_two_members_share_a_generation() -> None:
    """Otherwise two consumers of a group both read everything, or nothing."""
    rig = Rig()
    first_id, first = rig.new_member()
    rig.advance(1)
    _, second = rig.new_member()
    assert not first
    rig.advance(6)
    leader, follower = first.only, second.only
    assert leader.leader == follower.leader == first_id
    assert leader.generation_id == follower.generation_id == 1
    assert [member_id for member_id, _, _ in leader.members] == [first_id, follower.member_id]
    assert leader.members[0][2] == SUBSCRIPTION
    assert follower.members == ()
    waiting = rig.sync(follower)
    assert not waiting
    assert rig.sync(leader, {first_id: b"0", follower.member_id: b"1"}).only.assignment == b"0"
    assert (waiting.only.assignment, waiting.only.protocol_name) == (b"1", "range")
    assert rig.heartbeat(leader) is rig.heartbeat(follower) is NONE
    assert rig.sync(follower).only.assignment == b"1", "asked again, told again"


def test_the_first_members_wait_for_others_no_longer_than_they_may() -> None:
    """Otherwise a group whose members start one after the other rebalances for each, or waits for ever."""
    rig = Rig()
    joins = [rig.new_member(rebalance_timeout_ms=8_000)[1]]
    for _ in range(3):
        rig.advance(2)
        joins.append(rig.new_member(rebalance_timeout_ms=8_000)[1])
    rig.advance(1.9)
    assert not any(joins), "each that comes prolongs the wait"
    rig.advance(0.2)
    assert {answers.only.generation_id for answers in joins} == {1}, "up to what they asked for"


def test_a_member_that_falls_silent_is_removed() -> None:
    """Otherwise the partitions of a consumer that died are read by nobody."""
    rig = Rig()
    leader, follower = rig.stable(2)
    for _ in range(3):
        rig.advance(4)
        assert rig.heartbeat(leader) in (NONE, ErrorCode.rebalance_in_progress)
    assert rig.heartbeat(leader) is ErrorCode.rebalance_in_progress
    assert rig.heartbeat(follower) is ErrorCode.unknown_member_id
    again = rig.join(leader.member_id).only
    assert (again.error, again.generation_id) == (NONE, 2)
    assert [member_id for member_id, _, _ in again.members] == [leader.member_id]


def test_a_commit_is_a_sign_of_life() -> None:
    """Otherwise a consumer that is busy with long batches is thrown out though it commits."""
    rig = Rig()
    [only] = rig.stable(1)
    for offset in range(4):
        rig.advance(8)
        assert rig.commit(offset, only).only is NONE
    assert rig.heartbeat(only) is NONE


def test_a_rebalance_waits_for_members_no_longer_than_they_asked_for() -> None:
    """Otherwise one consumer that hangs in its own code stops all others."""
    rig = Rig()
    leader, silent = rig.stable(2, session_timeout_ms=1_800_000, rebalance_timeout_ms=30_000)
    again = rig.join(leader.member_id, rebalance_timeout_ms=30_000)
    rig.advance(29)
    assert rig.state() == "PreparingRebalance"
    assert not again
    rig.advance(1.1)
    assert again.only.generation_id == 2
    assert rig.heartbeat(silent) is ErrorCode.unknown_member_id


def test_members_that_never_ask_for_their_assignment_are_removed() -> None:
    """Otherwise a client that dies between join and sync keeps the whole group from ever being stable."""
    rig = Rig()
    joins = [rig.new_member(session_timeout_ms=1_800_000)[1] for _ in range(2)]
    rig.advance(6)
    follower = next(answers.only for answers in joins if answers.only.member_id != answers.only.leader)
    waiting = rig.sync(follower)
    rig.advance(60)
    assert waiting.only.error is ErrorCode.rebalance_in_progress
    again = rig.join(follower.member_id).only
    assert again.leader == follower.member_id
    assert len(again.members) == 1


def test_a_follower_that_lost_the_answer_is_told_again() -> None:
    """Otherwise every lost answer costs the group a rebalance."""
    rig = Rig()
    leader, follower = rig.stable(2)
    again = rig.join(follower.member_id).only
    assert (again.generation_id, again.leader, again.members) == (1, leader.member_id, ())
    assert rig.state() == "Stable"
    assert not rig.join(follower.member_id, protocols=(("range", b"other"),)), "what it reads has changed"
    assert rig.state() == "PreparingRebalance"


def test_a_leader_that_joins_again_has_all_join_again() -> None:
    """Otherwise new partitions of a topic are read by nobody: the leader joins again when it sees them."""
    rig = Rig()
    leader, follower = rig.stable(2)
    joins = [rig.join(leader.member_id)]
    assert rig.heartbeat(follower) is ErrorCode.rebalance_in_progress
    joins.append(rig.join(follower.member_id))
    assert {answer.generation_id for answer in rig.give(joins)} == {2}


def test_the_protocol_is_the_one_that_most_like_best() -> None:
    """Otherwise members with different assignors cannot be upgraded one after the other."""
    rig = Rig()
    both = (("sticky", b"s"), ("range", b"r"))
    answers = [
        rig.new_member(protocols=protocols)[1]
        for protocols in (both, both, (("range", b"R"), ("sticky", b"S"), ("own", b"O")))
    ]
    rig.advance(12)
    assert {answer.only.protocol_name for answer in answers} == {"sticky"}
    leader = next(answer.only for answer in answers if answer.only.members)
    assert sorted(metadata for *_, metadata in leader.members) == [b"S", b"s", b"s"]
    assert rig.join(protocols=(("own", b""),)).only.error is ErrorCode.inconsistent_group_protocol
    assert rig.join(protocol_type="connect").only.error is ErrorCode.inconsistent_group_protocol
    assert rig.join(group_id="empty", protocols=()).only.error is ErrorCode.inconsistent_group_protocol
    assert rig.join(group_id="empty", protocol_type="").only.error is ErrorCode.inconsistent_group_protocol
    assert rig.state("empty") is None, "a group that nobody joined is not kept"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"session_timeout_ms": 5_999}, ErrorCode.invalid_session_timeout),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.invalid_session_timeout),
        ({"member_id": "nobody"}, ErrorCode.unknown_member_id),
        ({"member_id": "nobody", "group_instance_id": "i"}, ErrorCode.unknown_member_id),
        ({"protocols": (("range", bytes(5 << 20)),)}, ErrorCode.unknown_server_error),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(changes: dict[str, object], error: ErrorCode) -> None:
    """Otherwise a client waits for a generation that never comes, or takes all memory."""
    rig = Rig()
    answer = rig.join(**changes).only
    assert answer.error is error
    assert answer.member_id == changes.get("member_id", "")
    assert list(rig.coordinator.groups()) == []
    assert rig.coordinator.memory_bytes == 0


def test_what_does_not_fit_to_the_generation_is_refused() -> None:
    """Otherwise a member of an older generation overwrites the work of those who came after it."""
    rig = Rig()
    leader, follower = rig.stable(2)
    assert rig.sync(leader, generation_id=0).only.error is ErrorCode.illegal_generation
    assert rig.sync(leader, member_id="nobody").only.error is ErrorCode.unknown_member_id
    assert rig.sync(leader, group_id="nowhere").only.error is ErrorCode.unknown_member_id
    assert rig.sync(leader, group_id="").only.error is ErrorCode.invalid_group_id
    assert rig.sync(leader, protocol_name="sticky").only.error is ErrorCode.inconsistent_group_protocol
    assert rig.sync(leader, protocol_type="connect").only.error is ErrorCode.inconsistent_group_protocol
    assert rig.sync(leader, protocol_type=None, protocol_name=None).only.error is NONE
    assert rig.coordinator.heartbeat("readers", leader.member_id, None, 0) is ErrorCode.illegal_generation
    assert rig.coordinator.heartbeat("", leader.member_id, None, 1) is ErrorCode.invalid_group_id
    assert rig.coordinator.heartbeat("nowhere", leader.member_id, None, 1) is ErrorCode.unknown_member_id
    rig.join(leader.member_id)
    assert rig.sync(follower).only.error is ErrorCode.rebalance_in_progress


def test_a_group_takes_no_more_members_than_it_may() -> None:
    """Otherwise group.max.size protects nobody."""
    rig = Rig(GroupConfig(max_size=2, initial_rebalance_delay_ms=100))
    leader, follower = rig.stable(2)
    assert rig.join().only.error is ErrorCode.group_max_size_reached
    again = [rig.join(leader.member_id), rig.join(follower.member_id)]
    assert {answers.only.error for answers in again} == {NONE}, "members that are there stay"
    assert rig.join(must_know_member_id=False).only.error is ErrorCode.group_max_size_reached


def test_a_client_that_knows_no_member_ids_joins_at_once() -> None:
    """Otherwise clients of the protocol's first versions cannot join."""
    rig = Rig()
    answers = rig.join(must_know_member_id=False, client_id="old")
    rig.advance(3)
    assert answers.only.member_id.startswith("old-")
    assert len(answers.only.member_id) == len("old-") + 36


def test_ids_that_nobody_joins_with_are_forgotten() -> None:
    """Otherwise clients that ask for ids and go fill the memory, and hold up every rebalance."""
    rig = Rig()
    first = rig.join().only.member_id
    assert rig.coordinator.memory_bytes > 0
    rig.advance(10)
    assert rig.join(first).only.error is ErrorCode.unknown_member_id
    assert list(rig.coordinator.groups()) == []
    assert rig.coordinator.memory_bytes == 0
    assert rig.join(rig.join().only.member_id, group_instance_id="static").only.error is ErrorCode.unknown_server_error


def test_a_rebalance_waits_for_who_has_asked_for_an_id() -> None:
    """Otherwise each consumer that starts costs two rebalances."""
    rig = Rig()
    [only] = rig.stable(1)
    member_id = rig.join().only.member_id
    again = rig.join(only.member_id)
    assert not again
    new = rig.join(member_id)
    assert {answer.generation_id for answer in rig.give([again, new])} == {2}


def test_leaving_gives_partitions_away_at_once() -> None:
    """Otherwise each consumer that is stopped costs a session timeout during which nobody reads for it."""
    rig = Rig()
    leader, follower = rig.stable(2)
    pending = rig.join().only.member_id
    told = rig.leave((leader.member_id, None, "stopped"), ("nobody", None, ""), (pending, None, ""), ("", None, ""))
    unknown = ErrorCode.unknown_member_id
    assert told == (NONE, [NONE, unknown, NONE, unknown])
    again = rig.join(follower.member_id).only
    assert (again.leader, again.generation_id) == (follower.member_id, 2)
    assert rig.leave((follower.member_id, None, ""))[1] == [NONE]
    assert rig.state() == "Empty"
    assert rig.store.groups["readers"].members == ()
    assert rig.leave((follower.member_id, None, ""), group_id="nowhere") == (NONE, [unknown])
    assert rig.leave(group_id="") == (ErrorCode.invalid_group_id, [])


def test_who_asks_twice_is_answered_twice() -> None:
    """Otherwise a request that a client sent again leaves a task waiting for ever."""
    rig = Rig()
    member_id, first = rig.new_member()
    second = rig.join(member_id)
    assert first.only.error is ErrorCode.rebalance_in_progress
    rig.advance(3)
    joined = second.only
    other = rig.new_member()[1]
    third = rig.join(member_id)
    rig.advance(5)
    assert third.only.error is NONE
    assert other.only.generation_id == third.only.generation_id > joined.generation_id
    syncs = [rig.sync(other.only), rig.sync(other.only)]
    assert syncs[0].only.error is ErrorCode.rebalance_in_progress
    rig.sync(third.only, {other.only.member_id: b"x"})
    assert syncs[1].only.assignment == b"x"


def test_closing_answers_whoever_waits() -> None:
    """Otherwise a server that is stopped leaves its clients waiting until their own timeouts."""
    rig = Rig()
    _, waiting = rig.new_member()
    rig.coordinator.close()
    assert waiting.only.error is ErrorCode.not_coordinator
    assert rig.join().only.error is ErrorCode.coordinator_not_available
    assert rig.heartbeat(waiting.only) is ErrorCode.coordinator_not_available
    assert rig.leave(("a", None, ""))[0] is ErrorCode.coordinator_not_available
    assert rig.commit(1).only is ErrorCode.coordinator_not_available
    assert rig.delete_group().only == {"readers": ErrorCode.coordinator_not_available}
    assert rig.sync(waiting.only).only.error is ErrorCode.coordinator_not_available
    assert rig.timers.pending == 0, "a timer of a closed coordinator still rings"
    rig.coordinator.close()
