"""What the controller tells the rest of the simulation: by a wrong answer a run would seem stuck."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.simulation.controller import Controller, _Partition
from tests.simulation.messages import Partition
from tests.simulation.settling import Settling


@pytest.mark.parametrize(
    ("well", "lost", "may"),
    [
        ({1, 2}, set(), True),
        ({1, 2}, {2}, False),  # only broker 3 is in sync in its next life, and nobody lets that run
        ({2, 3}, {2}, True),
        ({2}, set(), False),
        ({1, 2}, {2, 3}, True),  # nobody is left in sync: the last leader is elected
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


def test_sound_replicas_lead_while_clients_end_what_they_have_begun() -> None:
    """If this fails, a leader whose segments have rotted is alone in sync by the time an administrator looks."""
    asked: list[str] = []
    idle = SimpleNamespace(is_idle=True)
    world = SimpleNamespace(lead_by_sound=lambda: asked.append("sound"), clients=idle, coordinator=idle)
    assert Settling(world)._is_idle()  # type: ignore[arg-type]
    assert asked == ["sound"]
