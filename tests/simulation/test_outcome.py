"""How a run ends that no invariant of the judge ended: each kind has its number, or nobody counts it as found."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.simulation.facts import ENDLESS, ENGINE_ERROR, JudgeError
from tests.simulation.nemesis import Nemesis
from tests.simulation.outcome import FAILED, Outcome, violation_of
from tests.simulation.settings import Settings
from tests.simulation.world import _Told
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler


def test_an_error_out_of_the_engine_is_a_violation() -> None:
    with pytest.raises(ValueError, match="must rise") as raised:
        LeaderEpochs([(1, 0), (0, 0)])
    found = violation_of(raised.value)
    assert found is not None
    assert found.invariant == ENGINE_ERROR
    assert "ValueError in log/formats/leader_epochs.py" in str(found)


def test_an_error_of_the_simulation_is_none() -> None:
    with pytest.raises(AttributeError) as raised:
        Nemesis._begin(None, "no such kind")  # type: ignore[arg-type]
    assert violation_of(raised.value) is None


def test_an_error_of_the_judge_is_none_of_the_engine() -> None:
    """The scheduler hands it on: by its last frames it would be the engine's."""
    scheduler = ManualScheduler(1)

    class Failing:
        def settled(self, now_ms: int) -> None:
            raise IndexError(f"at {now_ms}")

    def tell() -> None:
        _Told(Failing(), scheduler).settled(7)  # type: ignore[arg-type]

    scheduler.spawn(tell, name="task")
    with pytest.raises(JudgeError) as raised:
        scheduler.clock.sleep(1.0)
    assert violation_of(raised.value) is None
    assert str(raised.value.__cause__) == "at 7"


def test_a_broker_that_is_spared_is_not_crashed_later() -> None:
    """Behind the end of the faults nobody would start it again, and the run would seem stuck."""
    nemesis = Nemesis.__new__(Nemesis)
    spared: list[int] = []
    nemesis._world = SimpleNamespace(running=lambda: (1,), spare=spared.append)  # type: ignore[assignment]
    nemesis.is_spared = lambda _: True  # type: ignore[method-assign]
    nemesis.doomed, nemesis.busy = {1}, {1}
    nemesis.crash(1)
    assert spared == [1]
    assert not nemesis.doomed | nemesis.busy


def test_runs_without_an_answer_have_numbers() -> None:
    settings = Settings.draw(3)
    endless, ended = Outcome.endless(settings, 300), Outcome.ended(settings, "its process ended with status 11")
    assert (endless.invariant, ended.invariant) == (ENDLESS, ENGINE_ERROR)
    assert "invariant 10, endless run: not over within 300 s" in endless.text
    assert not endless.is_good
    assert not ended.is_good
    assert FAILED not in (endless.invariant, ended.invariant)
