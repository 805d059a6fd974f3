"""A run without faults gives the same over real files: the same events, answers and log bytes."""

from __future__ import annotations

import gc
import pathlib
from collections.abc import Iterator

import pytest

from tests.simulation.judge import ClusterJudge
from tests.simulation.messages import Partition
from tests.simulation.settings import Settings
from tests.simulation.trace import Trace
from tests.simulation.world import World


class LookingJudge(ClusterJudge):
    """A judge that notes the logs of the settled cluster."""

    def settled(self, now_ms: int) -> None:
        """Note the logs."""
        super().settled(now_ms)
        self.logs: dict[tuple[int, Partition], bytes] = {
            (each.broker, each.partition): self._view.log_bytes(each.broker, each.partition)
            for each in self._view.replicas()
        }


@pytest.fixture(autouse=True)
def _no_garbage_is_collected() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def _run(seed: int, events: int, root: str | None) -> tuple[str, int, dict[tuple[int, Partition], bytes]]:
    trace = Trace()
    judge = LookingJudge(trace)
    World(Settings.draw(seed, events=events), judge, trace, root=root).run()
    return trace.hash, trace.events, judge.logs


def _compare(seed: int, events: int, folder: pathlib.Path) -> dict[tuple[int, Partition], bytes]:
    """Fail unless both runs are equal; return the logs, which are empty where all of them is in the tier."""
    in_memory = _run(seed, events, None)
    on_disk = _run(seed, events, str(folder))
    assert in_memory[1] > events
    assert on_disk == in_memory
    return in_memory[2]


def test_the_files_in_memory_are_as_real_ones(tmp_path: pathlib.Path) -> None:
    """If this fails, a simulation says nothing of what a broker does on its disk."""
    assert any(_compare(10, 300, tmp_path).values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 120, 10))
def test_the_files_in_memory_are_as_real_ones_in_more_seeds(tmp_path: pathlib.Path, seed: int) -> None:
    _compare(seed, 5000, tmp_path)
