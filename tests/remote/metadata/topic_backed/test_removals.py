"""The removal of partitions, as the metadata topic has it."""

from __future__ import annotations

import pytest

from tests.contract.metadata_manager_suite import (
    DELETING,
    FINISHED,
    OTHER,
    PARTITION,
    REMOVAL,
    bring,
    found,
    listed,
    put,
    removal,
    segment,
    to,
)
from tests.support.metadata_rig import metric, rig, shares, store
from tierlog.remote.api import (
    RemoteResourceNotFoundException,
    RemoteStorageException,
)


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
            assert first.metadata == removal(REMOVAL.DELETE_PARTITION_STARTED)
            assert (first.metadata_partition, first.offset) == (made.number(), offset)
            assert (second.metadata_partition, second.offset) == (made.number(OTHER), marked)
            put(manager, REMOVAL.DELETE_PARTITION_FINISHED)
            assert [each.metadata.topic_id_partition for each in manager.pending_removals()] == [OTHER]
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
            assert [each.metadata.state for each in manager.pending_removals()] == [REMOVAL.DELETE_PARTITION_STARTED]
            assert metric(manager, "events_refused_total") == 0

    def test_an_own_event_behind_the_removal(self) -> None:
        """Whoever waits for it hears that the partition is gone, and not that all is well."""
        with rig() as made:
            manager = made.leader()
            made.topic.unavailable = True
            made.machine.clock.sleep(2)
            store(made, *(removal(state) for state in REMOVAL))
            made.topic.unavailable = False
            future = manager.add_remote_log_segment_metadata(segment(1, 0, 9))
            with pytest.raises(RemoteStorageException, match="was removed"):
                future.result(30)
            assert listed(manager) == []
