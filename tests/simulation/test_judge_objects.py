"""The judge of what paused brokers leave in the store, by histories made by hand."""

from __future__ import annotations

import pytest

from tests.simulation.made_cluster import SEGMENT, MadeCluster, breaks


@pytest.fixture
def made() -> MadeCluster:
    """A cluster whose broker 1 copied a segment that was deleted since."""
    made = MadeCluster()
    made.write(b"a", b"b", b"c", at=0)
    made.copy(0, 1, {0: 0}, 0, 1, 2, 3)
    return made


@pytest.mark.parametrize("is_removed", [True, False])
def test_late_objects_of_a_paused_broker_go_once_it_runs(made: MadeCluster, *, is_removed: bool) -> None:
    """It stands amid the removal of a copy that came late while the others settle, and has to end that later."""
    made.stored.clear()
    key = made.put(SEGMENT, 0, "indexes")
    made.judge.fault_began("pause", "1", made.now_ms)
    assert not made.judge.has_late_objects()
    made.judge.settled(made.now_ms)
    made.judge.fault_ended("pause", "1", made.now_ms)
    assert made.judge.has_late_objects()
    if is_removed:
        del made.stored[key]
        made.judge.object_deleted(key, "broker-1", made.now_ms)
        assert not made.judge.has_late_objects()
        made.judge.store_settled(made.now_ms)
        return
    with breaks(5, "orphaned object"):
        made.judge.store_settled(made.now_ms)


def test_a_pause_forgives_no_object_that_was_left_before(made: MadeCluster) -> None:
    """Who deleted the segment has to take all of it; and who crashes in a pause begins anew as one that runs."""
    made.judge.fault_began("pause", "1", made.now_ms)
    with breaks(5, "orphaned object"):
        made.judge.settled(made.now_ms)
    made.judge.broker_stopped(1, 0, False, made.now_ms)
    made.judge.broker_started(1, 1, made.now_ms)
    made.stored.clear()
    made.put(SEGMENT, 0, "log", life=1)
    with breaks(5, "orphaned object"):
        made.judge.settled(made.now_ms)
