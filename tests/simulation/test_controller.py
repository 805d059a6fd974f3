"""What the controller tells the rest of the simulation: by a wrong answer a run would seem stuck."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.simulation.cluster_messages import Heartbeat
from tests.simulation.controller import Controller, _Broker, _Partition
from tests.simulation.messages import Partition
from tests.simulation.settling import Settling
from tests.simulation.trace import Trace
from tests.simulation.world import World


@pytest.mark.parametrize(
    ("well", "lost", "may"),
    [
        ({1, 2}, set(), True),
        ({1, 2}, {2}, False),  # only broker 3 is in sync in its next life, and nobody lets that run
        ({2, 3}, {2}, True),
        ({2}, set(), False),
        ({1, 2}, {2, 3}, False),  # it stays in sync, as it does not run
        ({1, 2, 3}, {2, 3}, True),  # nobody is left in sync: the last leader is elected
    ],
)
def test_who_has_lost_power_leads_nothing(*, well: set[int], lost: set[int], may: bool) -> None:
    """If this fails, a majority is healed that can elect nobody: all that can is still paused."""
    controller = Controller.__new__(Controller)
    partition = _Partition(Partition("orders", 0), (1, 2, 3), frozenset((2, 3)))
    partition.last_leader = 2
    controller._partitions = {partition.partition: partition}
    controller._topics = {"orders": SimpleNamespace(config=SimpleNamespace(min_insync_replicas=2))}  # type: ignore[dict-item]
    assert controller.may_commit(well, lost) is may


@pytest.mark.parametrize(
    ("minimum", "leaving", "holders"),
    [
        (2, {2}, [{2, 3}]),  # it stays eligible while fewer than two are in sync
        (1, {2}, [{3}]),
        (1, {2, 3}, [{2}, {3}]),  # who leaves last stays
        (2, {2, 3}, [{2, 3}]),
        (1, {1}, [{2, 3}]),
        (1, (), [{2, 3}]),
    ],
)
def test_who_may_leave_holds_nothing_for_sure(*, minimum: int, leaving: set[int], holders: list[set[int]]) -> None:
    """If this fails, a crash takes the last copy of what is committed, since a paused broker seemed to have another."""
    assert _controller(minimum).holders(leaving) == {Partition("orders", 0): holders}


def _controller(minimum: int) -> Controller:
    """A controller of one partition, of which the brokers 2 and 3 are in sync."""
    controller = Controller.__new__(Controller)
    partition = _Partition(Partition("orders", 0), (1, 2, 3), frozenset((2, 3)))
    controller._partitions = {partition.partition: partition}
    config = SimpleNamespace(min_insync_replicas=minimum, unclean_leader_election_enable=False)
    controller._topics = {"orders": SimpleNamespace(config=config)}  # type: ignore[dict-item]
    controller._brokers = {}
    return controller


@pytest.mark.parametrize("minimum", [1, 2])
@pytest.mark.parametrize("lost", [set(), {3}])
@pytest.mark.parametrize("cut", [[], [("broker-2", "controller")], [("metadata", "broker-2"), ("broker-2", "store")]])
def test_whose_crash_or_pause_loses_what_is_committed(
    *, minimum: int, lost: set[int], cut: list[tuple[str, str]]
) -> None:
    """If this fails, seeds without unclean elections lose records, for which nobody is to blame."""
    world = World.__new__(World)
    world.controller, world.lives = _controller(minimum), {}
    world.network = SimpleNamespace(cuts=cut)  # type: ignore[assignment]
    world._lost, world._failing, world._stalled, world._rotten = set(lost), set(), set(), {}
    is_away = minimum == 1 and len(cut) == 1
    assert world.would_lose(2) == bool(lost)
    assert world.would_lose(3) == is_away
    assert world.would_lose(2, by_leaving=True) == (minimum == 1 and bool(lost))
    assert world.would_lose(1, by_leaving=True) == (bool(lost) and is_away)


def test_who_has_a_partition_in_a_failed_directory_does_not_lead_it() -> None:
    """If this fails, a directory that fails alone leaves a partition without a leader, though others have it."""
    controller = _controller(2)
    controller._settings = SimpleNamespace(metadata_partitions=1)  # type: ignore[assignment]
    controller._network = SimpleNamespace(now_ms=5)  # type: ignore[assignment]
    controller._version, controller._trace, controller.unclean = 0, Trace(), set()
    controller._judge = SimpleNamespace(elected=lambda *_: None)  # type: ignore[assignment]
    controller._brokers = {each: _Broker(each, 1, is_fenced=False) for each in (1, 2, 3)}
    partition = controller._partitions[Partition("orders", 0)]
    partition.leader, partition.last_leader = 2, 2

    def beat(broker: int, *offline: Partition) -> None:
        controller._heartbeat(Heartbeat(broker, broker, 9, offline=frozenset(offline)), lambda _: None)

    beat(2, Partition("orders", 0), Partition("orders", 7))
    assert (partition.leader, partition.in_sync, partition.eligible) == (3, {3}, {2})
    assert [controller._may_join(partition, each, each) for each in (1, 2, 3)] == [True, False, True]
    epoch = partition.leader_epoch
    beat(2, Partition("orders", 0), Partition("orders", 7))
    assert partition.leader_epoch == epoch
    beat(3, Partition("orders", 0))
    assert partition.leader is None
    controller._brokers[2] = _Broker(8, 2, is_fenced=False)  # its next life
    controller._returned(2)
    assert (partition.leader, partition.in_sync) == (2, {2})


def test_sound_replicas_lead_while_clients_end_what_they_have_begun() -> None:
    """If this fails, a leader whose segments have rotted is alone in sync by the time an administrator looks."""
    asked: list[str] = []
    idle = SimpleNamespace(is_idle=True)
    world = SimpleNamespace(lead_by_sound=lambda: asked.append("sound"), clients=idle, coordinator=idle)
    assert Settling(world)._is_idle()  # type: ignore[arg-type]
    assert asked == ["sound"]
