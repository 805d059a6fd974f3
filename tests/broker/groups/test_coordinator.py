"""What a coordinator keeps: through a restart, through a store that fails, and within its bounds."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from tests.support.group_rig import Rig
from tierlog.broker.groups.group_config import GroupConfig
from tierlog.errors import StoreError

NONE = ErrorCode.none
MINUTE = 60


def test_a_group_goes_on_after_a_restart() -> None:
    """Otherwise each restart of the server stops all consumers for a rebalance."""
    rig = Rig()
    leader, follower = rig.stable(2)
    assert rig.commit(5, follower).only is NONE
    rig.restart()
    assert rig.state() == "Stable"
    assert rig.heartbeat(leader) is rig.heartbeat(follower) is NONE
    assert rig.sync(follower).only.assignment == follower.member_id.encode()
    assert rig.committed() == 5
    assert rig.commit(6, follower).only is NONE
    assert rig.join(follower.member_id).only.generation_id == 1, "the same metadata: no rebalance"
    rig.advance(9)
    assert rig.heartbeat(leader) is NONE
    rig.advance(9)
    assert rig.heartbeat(leader) is ErrorCode.rebalance_in_progress, "the follower fell silent after the restart"


def test_a_generation_that_was_not_stored_is_joined_again() -> None:
    """Otherwise members go on in a generation that the coordinator does not know."""
    rig = Rig()
    leader, follower = rig.stable(2)
    joins = [rig.join(leader.member_id), rig.join(follower.member_id)]
    assert joins[0].only.generation_id == 2
    rig.restart()
    assert rig.heartbeat(joins[0].only) is ErrorCode.illegal_generation
    assert rig.commit(1, joins[0].only).only is ErrorCode.illegal_generation
    joins = [rig.join(leader.member_id), rig.join(follower.member_id)]
    assert {answer.generation_id for answer in rig.give(joins)} == {2}


def test_assignments_are_told_when_they_are_stored() -> None:
    """Otherwise two generations of a group read at once after a crash."""
    rig = Rig(is_prompt=False)
    joins = [rig.new_member()[1] for _ in range(2)]
    rig.advance(6)
    leader = next(answers.only for answers in joins if answers.only.members)
    follower = next(answers.only for answers in joins if not answers.only.members)
    told = [rig.sync(follower), rig.sync(leader, {follower.member_id: b"f"})]
    assert not any(told)
    assert rig.state() == "CompletingRebalance"
    assert rig.commit(1, leader).only is ErrorCode.rebalance_in_progress
    rig.store.flush()
    assert [answers.only.assignment for answers in told] == [b"f", b""]


def test_assignments_that_cannot_be_stored_are_not_told() -> None:
    """Otherwise a full disk makes the group's members and its coordinator disagree."""
    rig = Rig()
    joins = [rig.new_member()[1] for _ in range(2)]
    rig.advance(6)
    leader = next(answers.only for answers in joins if answers.only.members)
    rig.store.fault = StoreError("disk full")
    assert rig.sync(leader, {leader.member_id: b"l"}).only.error is ErrorCode.coordinator_not_available
    assert rig.state() == "PreparingRebalance"
    rig.store.fault = None
    joins = [rig.join(answers.only.member_id) for answers in joins]
    assert {answer.generation_id for answer in rig.give(joins)} == {2}


def test_a_late_store_does_not_assign_for_an_older_generation() -> None:
    """Otherwise the members of a new generation get the partitions of the one before."""
    rig = Rig(is_prompt=False)
    member_id, joining = rig.new_member()
    rig.advance(3)
    told = rig.sync(joining.only, {member_id: b"old"})
    other = rig.join(must_know_member_id=False)
    assert told.only.error is ErrorCode.rebalance_in_progress
    again = rig.join(member_id)
    rig.store.flush()
    assert rig.state() == "CompletingRebalance"
    assert again.only.generation_id == other.only.generation_id == 2
    assert rig.coordinator.find("readers").members[member_id].assignment == b""


def test_a_commit_shows_when_it_is_durable() -> None:
    """Otherwise a consumer starts behind records that nobody has read after a crash."""
    rig = Rig(is_prompt=False)
    answers = rig.commit(5)
    assert not answers
    assert rig.committed() is None
    settled: list[int | None] = []
    rig.coordinator.offsets.settle("readers", lambda: settled.append(rig.committed()))
    assert settled == []
    rig.store.flush(1)
    assert answers.only is NONE
    assert rig.committed() == 5
    rig.store.flush()
    assert settled == [5]
    rig.commit(6)
    rig.restart()
    assert rig.committed() == 5


def test_a_commit_that_cannot_be_stored_is_refused() -> None:
    """Otherwise a client believes that its offset is safe, and reads everything twice."""
    rig = Rig()
    rig.store.fault = StoreError("disk full")
    assert rig.commit(5).only is ErrorCode.coordinator_not_available
    assert rig.committed() is None
    assert rig.state() is None, "the group was made for this commit alone"
    rig.store.fault = None
    assert rig.commit(5).only is NONE
    assert rig.state() == "Empty"


def test_only_members_commit_while_there_are_any() -> None:
    """Otherwise a consumer that was thrown out overwrites the offsets of the one that reads now."""
    rig = Rig()
    assert rig.commit(1, generation_id=3, api_version=8).only is ErrorCode.illegal_generation
    assert rig.commit(1, generation_id=3, api_version=9).only is ErrorCode.group_id_not_found
    assert rig.commit(1).only is NONE
    leader, _ = rig.stable(2)
    assert rig.commit(2).only is ErrorCode.unknown_member_id
    assert rig.commit(2, leader, generation_id=0).only is ErrorCode.illegal_generation
    assert rig.commit(2, leader, member_id="nobody").only is ErrorCode.unknown_member_id
    assert rig.commit(2, leader, group_instance_id="x").only is ErrorCode.unknown_member_id
    assert rig.commit(2, leader).only is NONE
    rig.join(leader.member_id)
    assert rig.commit(3, leader).only is NONE, "while the others join, what was read is committed"
    assert rig.committed() == 3


def test_an_empty_group_is_stored_even_if_that_fails_at_first() -> None:
    """Otherwise members that left long ago are back after a restart, and are waited for."""
    rig = Rig()
    [only] = rig.stable(1)
    rig.store.fault = StoreError("disk full")
    rig.leave((only.member_id, None, ""))
    assert rig.state() == "Empty"
    rig.advance(6)
    rig.store.fault = None
    rig.advance(6)
    assert rig.store.groups["readers"].members == ()
    assert rig.store.groups["readers"].generation_id == 2
    rig.restart()
    assert rig.state() == "Empty"
    joined = rig.new_member()[1]
    rig.advance(3)
    assert joined.only.generation_id == 3, "generations never go back"


def test_groups_without_members_are_deleted() -> None:
    """Otherwise offsets that an administrator deleted come back."""
    rig = Rig()
    [only] = rig.stable(1)
    rig.commit(5, only)
    assert rig.delete_group().only == {"readers": ErrorCode.non_empty_group}
    rig.leave((only.member_id, None, ""))
    assert rig.delete_group().only == {"readers": NONE}
    assert rig.state() is None
    assert rig.coordinator.memory_bytes == 0
    assert rig.delete_group().only == {"readers": ErrorCode.group_id_not_found}
    rig.restart()
    assert rig.state() is None
    assert rig.committed() is None


def test_a_deletion_does_not_take_what_came_after_it() -> None:
    """Otherwise a commit that was answered is gone."""
    rig = Rig(is_prompt=False)
    rig.commit(5)
    rig.store.flush()
    deleted, committed = rig.delete_group(), rig.commit(6)
    waiting = rig.join(must_know_member_id=False)
    rig.store.flush()
    assert deleted.only == {"readers": NONE}
    assert committed.only is NONE
    assert rig.committed() == 6
    rig.advance(3)
    assert waiting.only.error is NONE, "who joined meanwhile is still there"
    rig.restart()
    assert rig.committed() == 6


def test_a_deletion_that_fails_has_deleted_nothing() -> None:
    """Otherwise an offset is gone now, and back after a restart."""
    rig = Rig()
    rig.commit(5)
    rig.store.fault = StoreError("disk full")
    assert rig.delete_group().only == {"readers": ErrorCode.coordinator_not_available}
    assert rig.committed() == 5


def test_offsets_of_an_empty_group_stay_as_long_as_they_shall() -> None:
    """Otherwise a consumer that was stopped over the weekend begins anew, or the file grows for ever."""
    rig = Rig(GroupConfig(offsets_retention_minutes=60))
    [only] = rig.stable(1, session_timeout_ms=1_800_000)
    rig.commit(5, only)
    for _ in range(8):
        rig.advance(20 * MINUTE)
        assert rig.heartbeat(only) is NONE
    assert rig.committed() == 5, "it is read: it stays"
    rig.leave((only.member_id, None, ""))
    rig.advance(55 * MINUTE)
    assert rig.committed() == 5
    rig.advance(20 * MINUTE)
    assert rig.committed() is None
    assert rig.state() is None
    assert (rig.store.groups, rig.store.offsets) == ({}, {})


def test_offsets_of_topics_that_nobody_reads_any_more_expire() -> None:
    """Otherwise lag is reported for ever of a topic that the group has left."""
    rig = Rig(GroupConfig(offsets_retention_minutes=60))
    [only] = rig.stable(1, session_timeout_ms=1_800_000)
    rig.commit(5, only, place=("left", 0))
    rig.commit(6, only)
    for _ in range(5):
        rig.advance(20 * MINUTE)
        rig.heartbeat(only)
    assert rig.committed(place=("left", 0)) is None
    assert rig.committed() == 6


def test_offsets_without_a_group_expire_by_their_commit() -> None:
    """Otherwise clients that only store offsets lose them, or leave them for ever."""
    rig = Rig(GroupConfig(offsets_retention_minutes=60))
    rig.commit(5)
    rig.advance(50 * MINUTE)
    rig.commit(6, place=("orders", 1))
    rig.advance(20 * MINUTE)
    assert rig.committed() is None
    assert rig.committed(place=("orders", 1)) == 6
    rig.advance(60 * MINUTE)
    assert rig.state() is None
    assert rig.store.offsets == {}


def test_a_group_that_is_larger_than_it_may_be_now_rebalances_after_a_restart() -> None:
    """Otherwise a smaller group.max.size has no effect on groups that are there."""
    rig = Rig()
    leader, follower = rig.stable(2)
    rig.config = GroupConfig(max_size=1)
    rig.restart()
    assert rig.heartbeat(leader) is ErrorCode.rebalance_in_progress
    first = rig.join(follower.member_id)
    assert rig.join(leader.member_id).only.error is ErrorCode.group_max_size_reached
    rig.advance(61)
    assert first.only.error is NONE


def test_a_flood_of_groups_does_not_grow_the_memory(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise one client with random group ids takes the server down, or fills the disk with the log."""
    rig = Rig(GroupConfig(groups_max=50))
    for number in range(200):
        rig.join(group_id=f"group-{number}" * 100)
    assert len(rig.coordinator.groups()) == 50
    assert rig.join(group_id="one more").only.error is ErrorCode.coordinator_not_available
    assert rig.commit(1, group_id="one more").only is ErrorCode.coordinator_not_available
    assert sum("is refused" in record.message for record in caplog.records) == 1
    rig.advance(10)
    assert len(rig.coordinator.groups()) == 0, "nobody joined with the ids"
    assert rig.coordinator.memory_bytes == 0
    assert rig.join(group_id="one more").only.error is ErrorCode.member_id_required
    assert rig.store.groups == {}


def test_members_and_offsets_take_no_more_memory_than_they_may() -> None:
    """Otherwise one group with large subscriptions takes the server down."""
    rig = Rig(GroupConfig(memory_max=1 << 20))
    answers = [rig.join(must_know_member_id=False, protocols=(("range", bytes(200_000)),)) for _ in range(9)]
    refused = [each for each in answers if each and each.only.error is ErrorCode.coordinator_not_available]
    assert len(refused) == 4
    assert rig.coordinator.memory_bytes < 1 << 20
    rig.advance(7)
    leader = next(each.only for each in answers if each and each.only.members)
    told = rig.sync(leader, {member_id: bytes(200_000) for member_id, _, _ in leader.members}).only
    assert told.error is ErrorCode.coordinator_not_available
    assert rig.coordinator.memory_bytes < 1 << 20
    rig.commit(1, group_id="other")
    places = [rig.commit(1, group_id="other", place=("orders", number)).only for number in range(2000)]
    assert places[-1] is ErrorCode.coordinator_not_available
    assert rig.commit(2, group_id="other").only is NONE, "what takes no more memory than before is taken"
    assert rig.coordinator.memory_bytes < 1 << 20


@pytest.mark.parametrize("group_id", ["x" * 32_767, "\x00", "ünï", "'; DROP TABLE groups; --", "\U0001f98e" * 1000])
def test_any_name_is_a_group(group_id: str) -> None:
    """Otherwise an odd name breaks the store, or reads another group's offsets."""
    rig = Rig()
    assert rig.commit(5, group_id=group_id).only is NONE
    assert rig.committed(group_id) == 5
    assert rig.join(group_id=group_id).only.error is ErrorCode.member_id_required
