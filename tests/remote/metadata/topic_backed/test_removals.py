"""The removal of partitions, as the metadata topic has it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.contract.metadata_events import (
    DELETING,
    FINISHED,
    OTHER,
    PARTITION,
    REMOVAL,
    STARTED,
    bring,
    found,
    listed,
    put,
    removal,
    segment,
    to,
)
from tests.support.metadata_rig import COUNT, LOG_DIR, Rig, metric, rig, shares, store
from tierlog.remote.api import (
    RemotePartitionDeleteMetadata,
    RemoteResourceNotFoundException,
    RemoteStorageNotReadyException,
)
from tierlog.remote.metadata.topic_backed.own_events import Event, OwnEvent
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager


class TestRemovals:
    """The metadata's half of removing a partition."""

    def test_pending_removals(self) -> None:
        """The remover goes on where another broker stopped."""
        with rig() as made:
            manager = made.leader("/data", PARTITION, OTHER)
            assert manager.pending_removals() == ()
            store(made, removal(REMOVAL.DELETE_PARTITION_MARKED))
            offset = store(made, removal(REMOVAL.DELETE_PARTITION_STARTED))
            marked = store(made, removal(REMOVAL.DELETE_PARTITION_MARKED, OTHER), partition=OTHER)
            made.until(lambda: len(manager.pending_removals()) == 2)
            first, second = manager.pending_removals()
            assert first == removal(REMOVAL.DELETE_PARTITION_STARTED)
            assert second == removal(REMOVAL.DELETE_PARTITION_MARKED, OTHER)
            known = [(each.metadata_partition, each.offset) for each in manager._removals.all()]
            assert known == [(made.number(), offset), (made.number(OTHER), marked)]
            put(manager, REMOVAL.DELETE_PARTITION_FINISHED)
            assert [each.topic_id_partition for each in manager.pending_removals()] == [OTHER]
            manager.on_stop_partitions(frozenset({OTHER}))
            assert manager.pending_removals() == ()

    def test_after_a_removal_nothing_comes_back(self) -> None:
        """A zombie's late events are no partition."""
        with rig() as made:
            manager = made.leader()
            of = segment(1, 0, 9)
            bring(manager, of, FINISHED)
            for state in REMOVAL:
                put(manager, state)
            end = made.topic.bounds(made.number()).end_offset
            late = (
                manager.add_remote_log_segment_metadata(segment(2, 0, 9)),
                manager.update_remote_log_segment_metadata(to(of, DELETING)),
            )
            for future in late:
                with pytest.raises(RemoteResourceNotFoundException, match="was removed"):
                    future.result(10)
            assert made.topic.bounds(made.number()).end_offset == end
            store(made, segment(3, 0, 9), to(segment(3, 0, 9), FINISHED))
            made.machine.clock.sleep(5)
            assert (listed(manager), found(manager, 0, 0)) == ([], None)
            made.lead(manager, OTHER)
            made.lead(manager, shares(PARTITION, same=True))
            assert listed(manager) == []
            manager.on_stop_partitions(frozenset({PARTITION}))
            made.lead(manager, PARTITION)
            assert listed(manager) == []

    def test_a_partition_that_is_stopped_and_led_again(self) -> None:
        """Its removal is read again, from its first state on."""
        with rig() as made:
            manager = made.leader()
            put(manager, REMOVAL.DELETE_PARTITION_MARKED)
            put(manager, REMOVAL.DELETE_PARTITION_STARTED)
            manager.on_stop_partitions(frozenset({PARTITION}))
            made.machine.clock.sleep(3)
            made.lead(manager, PARTITION)
            assert [each.state for each in manager.pending_removals()] == [REMOVAL.DELETE_PARTITION_STARTED]
            assert metric(manager, "events_refused_total") == 0

    def test_an_own_event_behind_the_removal(self) -> None:
        """Whoever waits for it hears that the partition is gone: a copy that came late removes its objects then, and an
        error that leaves open whether it counts would leave them for good (simulation, seed 120383).
        """
        with rig() as made:
            manager = made.leader()
            made.topic.unavailable = True
            made.machine.clock.sleep(2)
            store(made, *(removal(state) for state in REMOVAL))
            made.topic.unavailable = False
            future = manager.add_remote_log_segment_metadata(segment(1, 0, 9))
            with pytest.raises(RemoteResourceNotFoundException, match="was removed"):
                future.result(30)
            assert listed(manager) == []

    @pytest.mark.parametrize("how", ["removed", "stopped"])
    def test_a_thread_that_stands_still_before_its_event_begins(
        self, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        """If this fails, what a copy stored counts as finished though its partition is gone, and nobody removes it."""
        neighbour = shares(PARTITION, same=True)
        with rig() as made:
            manager = made.leader("/data", PARTITION, neighbour)
            of = segment(1, 0, 9)
            bring(manager, of, STARTED)
            begin = manager._own_events.begin

            def late(event: Event, number: int) -> OwnEvent:
                if how == "removed":
                    store(made, *(removal(state) for state in REMOVAL))
                else:
                    manager.on_stop_partitions(frozenset({PARTITION}))
                made.machine.clock.sleep(2)
                return begin(event, number)

            monkeypatch.setattr(manager._own_events, "begin", late)
            end = made.topic.bounds(made.number()).end_offset + len(REMOVAL) * (how == "removed")
            with pytest.raises(RemoteResourceNotFoundException):
                manager.update_remote_log_segment_metadata(to(of, FINISHED)).result(30)
            assert made.topic.bounds(made.number()).end_offset == end


class TestWatched:
    """Removals of partitions that nobody assigned: the leader of their metadata partition removes them."""

    @staticmethod
    def pending(made: Rig, manager: TopicBasedRemoteLogMetadataManager, *numbers: int) -> list[tuple[int, str]]:
        """(partition, state) of the removals in some metadata partitions, once they are loaded."""
        known: list[Sequence[RemotePartitionDeleteMetadata]] = []

        def ask() -> bool:
            try:
                known.append(manager.pending_removals(frozenset(numbers)))
            except RemoteStorageNotReadyException:
                return False
            return True

        made.until(ask)
        return [(each.topic_id_partition.partition, each.state.name) for each in known[-1]]

    @pytest.mark.parametrize("as_batches", [False, True])
    @pytest.mark.parametrize("seed", range(3))
    def test_partitions_of_others(self, seed: int, as_batches: bool) -> None:
        with rig(seed, as_batches=as_batches) as made:
            far = shares(PARTITION, same=False)
            store(made, segment(1, 0, 9), removal(REMOVAL.DELETE_PARTITION_MARKED))
            store(made, removal(REMOVAL.DELETE_PARTITION_MARKED, far), partition=far)
            manager = made.start()
            with pytest.raises(RemoteStorageNotReadyException, match="still loaded"):
                manager.pending_removals(frozenset({made.number()}))
            assert self.pending(made, manager, made.number()) == [(0, "DELETE_PARTITION_MARKED")]
            assert manager.pending_removals() == ()
            both = [(0, "DELETE_PARTITION_MARKED"), (far.partition, "DELETE_PARTITION_MARKED")]
            assert self.pending(made, manager, made.number(), made.number(far)) == both
            store(made, removal(REMOVAL.DELETE_PARTITION_STARTED))
            made.machine.clock.sleep(2)
            assert self.pending(made, manager, made.number()) == [(0, "DELETE_PARTITION_STARTED")]
            assert self.pending(made, manager) == []
            assert self.pending(made, manager, made.number(far)) == [(far.partition, "DELETE_PARTITION_MARKED")]
            assert metric(manager, "events_refused_total") == 0

    def test_partitions_that_are_followed_again(self) -> None:
        """If this fails, a broker that is made leader of a metadata partition again hears that nothing is pending."""
        with rig() as made:
            store(made, removal(REMOVAL.DELETE_PARTITION_MARKED))
            manager, number = made.start(), frozenset({made.number()})
            assert self.pending(made, manager, made.number()) == [(0, "DELETE_PARTITION_MARKED")]
            for pause in (0.0, 0.01, 0.1, 1.0):
                assert manager.pending_removals(frozenset()) == ()
                made.machine.clock.sleep(pause)
                with pytest.raises(RemoteStorageNotReadyException, match="still loaded"):
                    manager.pending_removals(number)
                assert self.pending(made, manager, made.number()) == [(0, "DELETE_PARTITION_MARKED")]

    def test_one_that_is_assigned_for_its_removal(self) -> None:
        """Its metadata partition is read again: nothing is refused, and it is forgotten once it is removed."""
        with rig() as made:
            store(made, removal(REMOVAL.DELETE_PARTITION_MARKED), removal(REMOVAL.DELETE_PARTITION_STARTED))
            of = segment(1, 0, 9)
            store(made, of, to(of, FINISHED))
            manager = made.start()
            assert self.pending(made, manager, made.number()) == [(0, "DELETE_PARTITION_STARTED")]
            made.lead(manager, PARTITION)
            assert listed(manager) == [1]
            manager.on_stop_partitions(frozenset({PARTITION}))
            made.machine.clock.sleep(3)
            assert self.pending(made, manager, made.number()) == [(0, "DELETE_PARTITION_STARTED")]
            made.lead(manager, PARTITION)
            put(manager, REMOVAL.DELETE_PARTITION_FINISHED)
            assert self.pending(made, manager, made.number()) == []
            manager.on_stop_partitions(frozenset({PARTITION}))
            made.lead(manager, shares(PARTITION, same=True))
            assert self.pending(made, manager, made.number()) == []
            assert metric(manager, "events_refused_total") == 0

    def test_a_restart_and_another_leader(self) -> None:
        with rig() as made:
            first = made.leader(LOG_DIR, OTHER)
            store(made, removal(REMOVAL.DELETE_PARTITION_MARKED))
            assert self.pending(made, first, made.number()) == [(0, "DELETE_PARTITION_MARKED")]
            first.close()
            store(made, removal(REMOVAL.DELETE_PARTITION_STARTED))
            first = made.leader(LOG_DIR, OTHER)
            assert self.pending(made, first, made.number()) == [(0, "DELETE_PARTITION_STARTED")]
            second = made.start("/second")
            assert self.pending(made, second, made.number()) == [(0, "DELETE_PARTITION_STARTED")]

    def test_a_topic_that_is_made_anew(self) -> None:
        with rig() as made:
            manager = made.start()
            store(made, removal(REMOVAL.DELETE_PARTITION_MARKED))
            assert self.pending(made, manager, made.number()) == [(0, "DELETE_PARTITION_MARKED")]
            made.topic.recreate()
            made.machine.clock.sleep(10)
            assert self.pending(made, manager, made.number()) == []
            store(made, removal(REMOVAL.DELETE_PARTITION_MARKED))
            made.machine.clock.sleep(3)
            assert self.pending(made, manager, made.number()) == [(0, "DELETE_PARTITION_MARKED")]

    def test_wrong_arguments(self) -> None:
        with rig() as made:
            manager = made.start()
            for wrong in (-1, COUNT):
                with pytest.raises(ValueError, match="metadata partitions"):
                    manager.pending_removals(frozenset({wrong}))
            with pytest.raises(TypeError):
                manager.pending_removals(frozenset({"1"}))  # type: ignore[arg-type]
