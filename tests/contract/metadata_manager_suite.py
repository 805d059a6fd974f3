"""What every RemoteLogMetadataManager owes to a broker: inherit ``MetadataManagerContract`` and give it a manager.

    class TestMine(MetadataManagerContract):
        @pytest.fixture
        def manager(self): ...

Nothing of a manager but the KIP's methods is used. An error may come from the call or from its future. Kafka's test
classes that a part stands for are named with it (docs/formats/metadata-records.md has its rules).
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.contract.metadata_events import (
    DELETED,
    DELETING,
    FINISHED,
    OTHER,
    PARTITION,
    REMOVAL,
    STARTED,
    STATE,
    TIME,
    VALID,
    WAIT_SECONDS,
    add,
    bring,
    finish,
    found,
    ids,
    lead,
    listed,
    put,
    removal,
    segment,
    to,
    update,
)
from tierlog.remote.api import (
    InvalidTransitionError,
    RemoteLogMetadataManager,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    TopicIdPartition,
)

#: Every question, about one partition.
QUESTIONS: dict[str, Callable[[RemoteLogMetadataManager, TopicIdPartition], object]] = {
    "find": lambda manager, of: manager.remote_log_segment_metadata(of, 0, 0),
    "next": lambda manager, of: manager.next_segment_with_txn_index(of, 0, 0),
    "highest": lambda manager, of: manager.highest_offset_for_epoch(of, 0),
    "list": lambda manager, of: list(manager.list_remote_log_segments(of)),
    "list-epoch": lambda manager, of: list(manager.list_remote_log_segments(of, 0)),
    "size": lambda manager, of: manager.remote_log_size(of, 0),
}
STORES: dict[str, Callable[[RemoteLogMetadataManager, TopicIdPartition], object]] = {
    "add": lambda manager, of: manager.add_remote_log_segment_metadata(segment(99, 0, 9, partition=of)).result(
        WAIT_SECONDS
    ),
    "update": lambda manager, of: manager.update_remote_log_segment_metadata(
        to(segment(99, 0, 9, partition=of), FINISHED)
    ).result(WAIT_SECONDS),
    "put": lambda manager, of: manager.put_remote_partition_delete_metadata(
        removal(REMOVAL.DELETE_PARTITION_MARKED, of)
    ).result(WAIT_SECONDS),
}
CALLS = QUESTIONS | STORES

Lookups = dict[tuple[int, int], set[int] | int | None]
#: The KIP's scenarios as (segments, what a lookup gives, what it gives in Kafka where that differs).
SCRIPTS: dict[str, tuple[list[RemoteLogSegmentMetadata], Lookups, Lookups]] = {
    "1": (
        [segment(1, 0, 2, {0: 0}), segment(2, 3, 5, {1: 3, 2: 5})],
        {(0, 2): 1, (0, 3): None, (1, 3): 2, (1, 4): 2, (1, 5): None, (2, 5): 2, (2, 4): None},
        {},
    ),
    "2": (
        [segment(1, 0, 2, {0: 0}), segment(2, 3, 5, {1: 3, 2: 5}), segment(3, 6, 8, {2: 6, 3: 7})],
        {(3, 8): 3, (2, 6): 3, (2, 5): 2, (2, 7): None},
        {},
    ),
    "3": (
        [segment(1, 0, 1, {0: 0}), segment(2, 1, 1, {1: 1})],
        {(0, 0): 1, (1, 1): 2, (1, 2): None, (0, 1): 1},
        {},
    ),
    "4": (
        [segment(1, 0, 2, {0: 0}), segment(2, 0, 1, {0: 0, 1: 1})],
        {(0, 0): {1, 2}, (0, 1): 1, (0, 2): 1, (1, 1): 2, (1, 2): None},
        {(0, 0): 2, (0, 1): None, (0, 2): None},
    ),
    "5": (
        [segment(1, 0, 3, {0: 0}), segment(2, 0, 3, {0: 0, 1: 2}), segment(3, 4, 5, {0: 4, 2: 5})],
        {(0, 0): {1, 2}, (0, 1): {1, 2}, (0, 2): 1, (0, 3): 1, (0, 4): 3, (2, 5): 3, (1, 2): 2, (1, 3): 2},
        {(0, 0): 2, (0, 1): 2, (0, 2): None, (0, 3): None},
    ),
    "F": (
        [segment(1, 0, 2, {0: 0}), segment(2, 3, 4, {1: 3}), segment(3, 4, 6, {1: 4, 2: 6})],
        {(1, 3): 2, (1, 4): 3, (1, 5): 3, (2, 6): 3, (2, 5): None},
        {},
    ),
}


class MetadataManagerContract:
    """What KIP-405 demands of a RemoteLogMetadataManager, and Kafka's own tests of it."""

    #: Whether overlapping segments and removals behave as Kafka's do.
    as_kafka = False

    @pytest.fixture
    def manager(self) -> RemoteLogMetadataManager:
        """A configured manager over an empty place, to which nothing is assigned; closed by the fixture."""
        raise NotImplementedError

    @pytest.fixture
    def leader(self, manager: RemoteLogMetadataManager) -> RemoteLogMetadataManager:
        """The same, of a broker that leads PARTITION."""
        lead(manager, PARTITION)
        return manager

    # ---- assignment

    @pytest.mark.parametrize("call", CALLS)
    def test_a_partition_that_is_not_assigned(self, manager: RemoteLogMetadataManager, call: str) -> None:
        """An empty answer would be taken for an empty tier: segments are copied again, and none is deleted.
        TopicBasedRemoteLogMetadataManagerTest, unknown partition.
        """
        lead(manager, OTHER)
        assert not manager.is_ready(PARTITION)
        with pytest.raises(RemoteResourceNotFoundException):
            CALLS[call](manager, PARTITION)

    def test_a_new_partition_is_empty(self, leader: RemoteLogMetadataManager) -> None:
        """ConsumerTaskTest, empty topic: it is ready, though nothing will ever come."""
        assert found(leader, 0, 0) is None
        assert leader.next_segment_with_txn_index(PARTITION, 0, 0) is None
        assert leader.highest_offset_for_epoch(PARTITION, 0) is None
        assert listed(leader) == listed(leader, 0) == []
        assert leader.remote_log_size(PARTITION, 0) == 0

    def test_followers_are_told_too(self, manager: RemoteLogMetadataManager) -> None:
        """A follower builds its state from the leader's metadata, and may lead the next minute."""
        lead(manager, PARTITION, follow=True)
        finish(manager, segment(1, 0, 9))
        lead(manager, PARTITION)
        assert found(manager, 0, 5) == 1
        manager.on_partition_leadership_changes(frozenset(), frozenset({PARTITION}))
        assert found(manager, 0, 5) == 1

    def test_a_stopped_partition_is_gone_and_comes_back(self, leader: RemoteLogMetadataManager) -> None:
        """Reassignments move partitions away and back; a stale answer is worse than none."""
        finish(leader, segment(1, 0, 9))
        leader.on_stop_partitions(frozenset({PARTITION, OTHER}))
        assert not leader.is_ready(PARTITION)
        for call in CALLS.values():
            with pytest.raises(RemoteResourceNotFoundException):
                call(leader, PARTITION)
        lead(leader, PARTITION)
        assert found(leader, 0, 9) == 1
        assert leader.highest_offset_for_epoch(PARTITION, 0) == 9

    def test_later_assignments_leave_earlier_ones_alone(self, leader: RemoteLogMetadataManager) -> None:
        """TopicBasedRemoteLogMetadataManagerMultipleSubscriptionsTest: what is read again must not count twice."""
        finish(leader, segment(1, 0, 9))
        bring(leader, segment(2, 10, 19), DELETED)
        for number in range(1, 8):
            new = replace(OTHER, partition=number)
            lead(leader, new)
            finish(leader, segment(number, 0, number, partition=new))
            answer = leader.remote_log_segment_metadata(new, 0, number)
            assert answer is not None
            assert answer.topic_id_partition == new
            assert leader.highest_offset_for_epoch(new, 0) == number
        assert listed(leader) == [1]
        assert leader.highest_offset_for_epoch(PARTITION, 0) == 19

    def test_when_ready(self, manager: RemoteLogMetadataManager) -> None:
        """Ten thousand partitions that are asked for again and again whether they are loaded take a core."""
        manager.on_partition_leadership_changes(frozenset({PARTITION}), frozenset())
        ready = manager.when_ready(PARTITION)
        if ready is None:
            return  # it cannot say, which is its right
        ready.result(WAIT_SECONDS)
        assert manager.is_ready(PARTITION)
        again, unknown = manager.when_ready(PARTITION), manager.when_ready(OTHER)
        assert again is not None
        assert unknown is not None
        again.result(WAIT_SECONDS)
        with pytest.raises(RemoteResourceNotFoundException):
            unknown.result(WAIT_SECONDS)
        manager.close()
        closed = manager.when_ready(PARTITION)
        assert closed is not None
        with pytest.raises(RemoteStorageException):
            closed.result(WAIT_SECONDS)

    def test_when_caught_up(self, leader: RemoteLogMetadataManager) -> None:
        """A broker that resumes deletes, by what it knew before, copies that others have finished meanwhile."""
        caught_up = leader.when_caught_up(PARTITION)
        if caught_up is None:
            return  # it cannot say, which is its right
        caught_up.result(WAIT_SECONDS)
        unknown = leader.when_caught_up(OTHER)
        assert unknown is not None
        with pytest.raises(RemoteResourceNotFoundException):
            unknown.result(WAIT_SECONDS)
        leader.close()
        closed = leader.when_caught_up(PARTITION)
        assert closed is not None
        with pytest.raises(RemoteStorageException):
            closed.result(WAIT_SECONDS)

    def test_the_version_of_the_segments(self, leader: RemoteLogMetadataManager) -> None:
        """A version that stays while a segment came leaves that segment for ever; a change that is none costs a list
        of the partition.
        """
        of, versions = segment(1, 0, 9), [leader.segments_version(PARTITION)]
        if versions == [None]:
            return  # it cannot say, which is its right
        add(leader, of)
        versions.append(leader.segments_version(PARTITION))
        for state in (FINISHED, DELETING, DELETED):
            update(leader, of, state, b"custom")
            versions.append(leader.segments_version(PARTITION))
        add(leader, segment(2, 10, 19))
        versions.append(leader.segments_version(PARTITION))
        assert len(set(versions)) == len(versions), versions
        listed(leader)
        found(leader, 0, 0)
        assert leader.segments_version(PARTITION) == versions[-1]
        leader.on_stop_partitions(frozenset({PARTITION}))
        with pytest.raises(RemoteResourceNotFoundException):
            leader.segments_version(PARTITION)

    def test_segments_from_a_time(self, leader: RemoteLogMetadataManager) -> None:
        """A segment that is left out hides its records from every search by time; each that is given too many is looked
        into.
        """

        def from_time(time: int, start: int = 0, end: int = 1000) -> list[tuple[int, int]] | None:
            listed = leader.list_segments_from_time(
                PARTITION, TIME + time, start_offset=start, end_offset_exclusive=end
            )
            return None if listed is None else [(each.start_offset, each.end_offset) for each in listed]

        if from_time(0) is None:
            return  # it cannot, which is its right
        assert from_time(0) == []
        finish(leader, segment(3, 20, 29, {0: 20, 2: 25}))
        finish(leader, segment(1, 0, 9))
        finish(leader, segment(2, 10, 19, {1: 10}))
        add(leader, segment(4, 30, 39))
        bring(leader, segment(5, 5, 19), DELETING)
        bring(leader, segment(6, 0, 25), DELETED)
        first, second, third = (0, 9), (10, 19), (20, 29)
        assert from_time(-1) == from_time(9) == [first, second, third]  # newest records: times 9, 19 and 29
        assert from_time(10) == [second, third]
        assert from_time(29) == [third]
        assert from_time(30) == []
        assert from_time(0, 9, 10) == [first]
        assert from_time(0, 10, 20) == [second]
        assert from_time(0, 9, 21) == [first, second, third]
        assert from_time(0, 30, 1000) == from_time(0, 40, 50) == []
        update(leader, segment(2, 10, 19), DELETING)
        assert from_time(0) == [first, third]
        finish(leader, segment(7, 10, 19))
        assert from_time(0) == [first, second, third]
        with pytest.raises(RemoteResourceNotFoundException):
            list(leader.list_segments_from_time(OTHER, TIME, start_offset=0, end_offset_exclusive=9) or ())

    # ---- life cycle: RemoteLogSegmentLifecycleTest, RemoteLogMetadataCacheTest

    def test_pending_removals(self, leader: RemoteLogMetadataManager) -> None:
        """Optional: a manager that can say tells the remover where another broker stopped."""
        known = leader.pending_removals()
        if known is None:
            pytest.skip("the manager cannot say")
        assert list(known) == []
        put(leader, REMOVAL.DELETE_PARTITION_MARKED)
        put(leader, REMOVAL.DELETE_PARTITION_STARTED)
        (pending,) = leader.pending_removals() or ()
        assert pending == removal(REMOVAL.DELETE_PARTITION_STARTED)
        put(leader, REMOVAL.DELETE_PARTITION_FINISHED)
        assert list(leader.pending_removals() or ()) == []

    def test_the_life_of_a_segment(self, leader: RemoteLogMetadataManager) -> None:
        """Readers must see a segment exactly while its bytes are there; retention must see it as long as any are."""
        of = segment(1, 0, 100, {0: 0, 1: 20, 2: 80})
        add(leader, of)
        assert (found(leader, 0, 0), listed(leader), listed(leader, 1)) == (None, [1], [1])
        assert leader.highest_offset_for_epoch(PARTITION, 0) is None
        update(leader, of, FINISHED, b"\xca\xfe")
        assert [found(leader, *at) for at in ((0, 0), (0, 19), (1, 20), (1, 79), (2, 80), (2, 100))] == [1] * 6
        assert [found(leader, *at) for at in ((0, 20), (1, 19), (1, 80), (2, 79), (2, 101), (3, 100))] == [None] * 6
        assert [leader.highest_offset_for_epoch(PARTITION, epoch) for epoch in range(4)] == [19, 79, 100, None]
        answer = leader.remote_log_segment_metadata(PARTITION, 1, 50)
        assert answer == of.create_with_updates(to(of, FINISHED, b"\xca\xfe"))
        update(leader, of, DELETING, b"\xca\xfe")
        assert (found(leader, 0, 0), listed(leader), listed(leader, 2)) == (None, [1], [1])
        assert [each.state for each in leader.list_remote_log_segments(PARTITION, 0)] == [DELETING]
        update(leader, of, DELETED)
        assert (found(leader, 0, 0), listed(leader), listed(leader, 0)) == (None, [], [])
        assert [leader.highest_offset_for_epoch(PARTITION, epoch) for epoch in range(4)] == [19, 79, 100, None]
        assert leader.remote_log_size(PARTITION, 0) == 0

    @pytest.mark.parametrize("target", [FINISHED, DELETING, DELETED])
    @pytest.mark.parametrize("source", [None, *STATE])
    def test_transitions(
        self,
        leader: RemoteLogMetadataManager,
        source: RemoteLogSegmentState | None,
        target: RemoteLogSegmentState,
    ) -> None:
        """An invalid one that passes loses a segment, or brings one back whose bytes are gone."""
        of = segment(1, 0, 9)
        bring(leader, of, source)
        before = list(leader.list_remote_log_segments(PARTITION))
        if (source, target) in VALID:
            update(leader, of, target)
            assert [each.state for each in leader.list_remote_log_segments(PARTITION)] == (
                [] if target is DELETED else [target]
            )
            return
        unknown = source is None or source is DELETED
        with pytest.raises(RemoteResourceNotFoundException if unknown else InvalidTransitionError):
            update(leader, of, target)
        assert list(leader.list_remote_log_segments(PARTITION)) == before

    @pytest.mark.parametrize("source", [FINISHED, DELETING])
    def test_an_id_is_added_once(self, leader: RemoteLogMetadataManager, source: RemoteLogSegmentState) -> None:
        """Every copy attempt has its own id; while it is being copied the add may be repeated."""
        of = segment(1, 0, 9)
        add(leader, of, of)
        update(leader, of, FINISHED)
        if source is DELETING:
            update(leader, of, DELETING)
        with pytest.raises(InvalidTransitionError):
            add(leader, of)
        assert [each.state for each in leader.list_remote_log_segments(PARTITION)] == [source]

    def test_wrong_states_for_the_call(self, leader: RemoteLogMetadataManager) -> None:
        """RemoteLogMetadataCacheTest: they are faults of the caller's program."""
        for state in (FINISHED, DELETING, DELETED):
            with pytest.raises(ValueError):
                leader.add_remote_log_segment_metadata(replace(segment(1, 0, 9), state=state))
        with pytest.raises(ValueError):
            leader.update_remote_log_segment_metadata(to(segment(1, 0, 9), STARTED))
        assert listed(leader) == []

    def test_custom_metadata_is_that_of_the_newest_update(self, leader: RemoteLogMetadataManager) -> None:
        """The storage finds a segment by it; None takes it away, as in Kafka."""
        of = segment(1, 0, 9)
        add(leader, replace(of, custom_metadata=b"first"))
        for custom in (b"second", b"", None, bytes(range(128))):
            update(leader, of, FINISHED, custom)
            (answer,) = leader.list_remote_log_segments(PARTITION)
            assert answer.custom_metadata == custom
        assert (answer.broker_id, answer.event_timestamp_ms) == (2, 1_700_000_000_001)

    def test_what_is_stored_is_what_is_given_back(self, leader: RemoteLogMetadataManager) -> None:
        """The extremes of every field."""
        epochs = {2 * epoch: 7 * epoch + 2**62 for epoch in range(40)}
        of = replace(
            segment(1, 2**62, 2**62 + 999, epochs, size=2**31 - 1, txn_idx_empty=True),
            end_offset=2**63 - 2,
            max_timestamp_ms=-1,
            event_timestamp_ms=2**63 - 1,
            broker_id=-1,
        )
        add(leader, of)
        assert list(leader.list_remote_log_segments(PARTITION)) == [of]
        assert leader.remote_log_size(PARTITION, 78) == 2**31 - 1

    # ---- several segments: RemoteLogLeaderEpochStateTest, RemoteLogMetadataManagerTest

    def test_borders_between_segments(self, leader: RemoteLogMetadataManager) -> None:
        """RemoteLogMetadataManagerTest.testFetchSegments."""
        finish(
            leader, segment(1, 0, 100), segment(2, 101, 200, {0: 101, 1: 151}), segment(3, 201, 300, {1: 201, 2: 251})
        )
        add(leader, segment(4, 301, 400, {2: 301}))
        table = {
            (0, 0): 1,
            (0, 100): 1,
            (0, 101): 2,
            (0, 150): 2,
            (0, 151): None,
            (1, 150): None,
            (1, 151): 2,
            (1, 200): 2,
            (1, 201): 3,
            (1, 250): 3,
            (1, 251): None,
            (2, 300): 3,
            (2, 301): None,
            (3, 0): None,
            (0, 2**63 - 1): None,
            (2**31 - 1, 0): None,
        }
        assert {at: found(leader, *at) for at in table} == table
        assert [listed(leader, epoch) for epoch in range(4)] == [[1, 2], [2, 3], [3, 4], []]
        assert [leader.highest_offset_for_epoch(PARTITION, epoch) for epoch in range(4)] == [150, 250, 300, None]

    def test_sizes_count_every_state(self, leader: RemoteLogMetadataManager) -> None:
        """TopicBasedRemoteLogMetadataManagerTest, size per epoch: retention by size goes by it."""
        finish(leader, segment(1, 0, 9, {0: 0}, size=1), segment(2, 10, 19, {0: 10, 1: 15}, size=20))
        add(leader, segment(3, 20, 29, {1: 20}, size=300))
        bring(leader, segment(4, 30, 39, {1: 30}, size=4000), DELETING)
        bring(leader, segment(5, 40, 49, {1: 40}, size=50000), DELETED)
        assert [leader.remote_log_size(PARTITION, epoch) for epoch in range(3)] == [21, 4320, 0]

    def test_a_longer_copy_displaces_shorter_ones(self, leader: RemoteLogMetadataManager) -> None:
        """Duplicate copies after a change of leaders: RemoteLogLeaderEpochStateTest, overlap."""
        finish(leader, segment(1, 10, 90), segment(2, 5, 100), segment(3, 101, 200))
        assert [found(leader, 0, offset) for offset in (95, 7, 5, 101)] == [2, 2, 2, 3]
        assert found(leader, 0, 4) is None
        assert found(leader, 0, 50) in ({2} if self.as_kafka else {1, 2})
        assert listed(leader, 0) == [2, 1, 3]
        assert leader.highest_offset_for_epoch(PARTITION, 0) == 200

    def test_an_epochs_list_ascends_by_the_segments_start(self, leader: RemoteLogMetadataManager) -> None:
        """Retention deletes the list's beginning, and stops at the first segment that is to stay."""
        finish(leader, segment(1, 0, 100, {0: 0, 1: 50}), segment(2, 20, 90, {0: 20, 1: 30}))
        assert (listed(leader, 0), listed(leader, 1)) == ([1, 2], [1, 2])

    def test_the_same_range_twice(self, leader: RemoteLogMetadataManager) -> None:
        """The one that is not read must stay listed, or its objects are never deleted."""
        finish(leader, segment(1, 0, 9), segment(2, 0, 9))
        assert found(leader, 0, 0) in {1, 2}
        assert sorted(listed(leader, 0)) == [1, 2]
        update(leader, segment(1, 0, 9), DELETING)
        update(leader, segment(1, 0, 9), DELETED)
        assert found(leader, 0, 0) == 2
        assert listed(leader, 0) == listed(leader) == [2]

    @pytest.mark.parametrize("script", SCRIPTS)
    def test_the_kips_scenarios(self, leader: RemoteLogMetadataManager, script: str) -> None:
        """What is asked after changes of leaders: Kafka loses offsets in 4 and 5, the KIP does not."""
        segments, lookups, kafkas = SCRIPTS[script]
        finish(leader, *segments)
        expected = lookups | kafkas if self.as_kafka else lookups
        for at, wanted in expected.items():
            answer = found(leader, *at)
            assert answer in wanted if isinstance(wanted, set) else answer == wanted, at
        assert listed(leader) == ids(segments)
        if script == "F":
            assert listed(leader, 1) == [2, 3]

    def test_the_next_transaction_index(self, leader: RemoteLogMetadataManager) -> None:
        """TransactionsWithTieredStoreTest: a reader passes over segments that have none, not over gaps."""
        finish(
            leader,
            segment(1, 0, 9, txn_idx_empty=True),
            segment(2, 10, 19, txn_idx_empty=True),
            segment(3, 20, 29),
            segment(4, 30, 39, {0: 30, 1: 35}, txn_idx_empty=True),
            segment(5, 40, 49, {1: 40}),
            segment(6, 60, 69, {1: 60}),
        )
        table = {(0, 0): 3, (0, 15): 3, (0, 29): 3, (0, 30): None, (1, 35): 5, (1, 50): None, (1, 60): 6, (2, 0): None}
        for at, wanted in table.items():
            answer = leader.next_segment_with_txn_index(PARTITION, *at)
            assert (None if answer is None else ids([answer])[0]) == wanted, at

    def test_ids_are_their_partitions_own(self, manager: RemoteLogMetadataManager) -> None:
        """Two partitions may draw one id: an update of the one must not reach the other."""
        lead(manager, PARTITION, OTHER)
        here, there = segment(1, 0, 9), segment(1, 0, 9, partition=OTHER)
        finish(manager, here)
        add(manager, there)
        update(manager, here, DELETING)
        assert [each.state for each in manager.list_remote_log_segments(OTHER)] == [STARTED]

    # ---- removal of partitions: RemoteLogMetadataManagerTest.testRemotePartitionDeletion

    def test_a_partition_is_removed(self, leader: RemoteLogMetadataManager) -> None:
        """Afterwards nothing of it may be found, and no late event may bring a piece of it back."""
        of = segment(1, 0, 9)
        bring(leader, of, FINISHED)
        put(leader, REMOVAL.DELETE_PARTITION_MARKED)
        put(leader, REMOVAL.DELETE_PARTITION_MARKED)
        assert found(leader, 0, 0) == 1
        put(leader, REMOVAL.DELETE_PARTITION_STARTED)
        update(leader, of, DELETING)
        assert listed(leader) == [1]
        update(leader, of, DELETED)
        put(leader, REMOVAL.DELETE_PARTITION_FINISHED)
        assert (found(leader, 0, 0), listed(leader), listed(leader, 0)) == (None, [], [])

    def test_removals_go_one_way(self, leader: RemoteLogMetadataManager) -> None:
        """A removal that finishes before it began leaves its objects to nobody. Kafka checks none of this."""
        if self.as_kafka:
            put(leader, REMOVAL.DELETE_PARTITION_STARTED)
            put(leader, REMOVAL.DELETE_PARTITION_MARKED)
            return
        for state in (REMOVAL.DELETE_PARTITION_STARTED, REMOVAL.DELETE_PARTITION_FINISHED):
            with pytest.raises(InvalidTransitionError):
                put(leader, state)
        put(leader, REMOVAL.DELETE_PARTITION_MARKED)
        with pytest.raises(InvalidTransitionError):
            put(leader, REMOVAL.DELETE_PARTITION_FINISHED)
        put(leader, REMOVAL.DELETE_PARTITION_STARTED)
        with pytest.raises(InvalidTransitionError):
            put(leader, REMOVAL.DELETE_PARTITION_MARKED)

    # ---- use

    def test_many_threads_see_what_they_stored(self, leader: RemoteLogMetadataManager) -> None:
        """A copy task asks right after its future is done, and copies again what it does not find."""

        def copies(worker: int) -> None:
            for turn in range(8):
                number = 1 + worker * 8 + turn
                finish(leader, segment(number, 10 * number, 10 * number + 9))
                assert found(leader, 0, 10 * number + 5) == number

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            for future in [pool.submit(copies, worker) for worker in range(6)]:
                future.result()
        assert listed(leader, 0) == list(range(1, 49))

    def test_calls_need_not_wait_for_each_other(self, leader: RemoteLogMetadataManager) -> None:
        """A thousand segments that wait for one answer each take a thousand round trips."""
        futures = []
        for number in range(1, 101):
            of = segment(number, 10 * number, 10 * number + 9)
            futures.append(leader.add_remote_log_segment_metadata(of))
            futures.append(leader.update_remote_log_segment_metadata(to(of, FINISHED)))
        for future in futures:
            future.result(WAIT_SECONDS)
        assert listed(leader, 0) == list(range(1, 101))
        assert leader.highest_offset_for_epoch(PARTITION, 0) == 1009

    @pytest.mark.parametrize("call", CALLS)
    def test_after_its_close(self, leader: RemoteLogMetadataManager, call: str) -> None:
        """A broker that shuts down gets an error at once, not a wait and not an empty answer."""
        finish(leader, segment(1, 0, 9))
        leader.close()
        leader.close()
        with pytest.raises(RemoteStorageException):
            CALLS[call](leader, PARTITION)
