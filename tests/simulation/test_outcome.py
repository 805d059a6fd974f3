"""How a run ends that no invariant of the judge ended: each kind has its number, or nobody counts it as found."""

from __future__ import annotations

import pytest

from tests.simulation.facts import ENDLESS, ENGINE_ERROR
from tests.simulation.nemesis import Nemesis
from tests.simulation.outcome import FAILED, Outcome, violation_of
from tests.simulation.settings import Settings
from tierlog.log.formats.leader_epochs import LeaderEpochs


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


def test_runs_without_an_answer_have_numbers() -> None:
    settings = Settings.draw(3)
    endless, ended = Outcome.endless(settings, 300), Outcome.ended(settings, "its process ended with status 11")
    assert (endless.invariant, ended.invariant) == (ENDLESS, ENGINE_ERROR)
    assert "invariant 10, endless run: not over within 300 s" in endless.text
    assert not endless.is_good
    assert not ended.is_good
    assert FAILED not in (endless.invariant, ended.invariant)
