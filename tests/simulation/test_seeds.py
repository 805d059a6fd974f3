"""Seeds of the simulation that every run of the tests has: thirty short ones, and the same one in two processes."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.simulation.campaign import MARKED_RUNS, Campaign, Coverage
from tests.simulation.outcome import Outcome
from tests.simulation.settings import FAULTS, LEAST_NUMBERS, Settings
from tests.simulation.shrinking import candidates, shrink
from tests.support.checkout import ROOT, needs_checkout

pytestmark = needs_checkout

#: Fixed, so that a failure is a change's.
SHORT_SEEDS = range(2, 32)
SHORT_EVENTS = 1_000


def _short(seed: int) -> Settings:
    """A short run, whose faults come as much sooner; the first one when the cluster has something to lose."""
    return Settings.draw(seed, events=SHORT_EVENTS).hastened(10)


def test_thirty_short_seeds_hold() -> None:
    """Otherwise a change lost a record, a transaction or a segment in a way that no other test has thought of.

    They are exempt from the least numbers, which a run of full length has to reach.
    """
    campaign = Campaign(2, stops=False, is_quiet=True)
    outcomes = campaign.run(_short(seed) for seed in SHORT_SEEDS)
    assert [each.seed for each in campaign.failures] == [], "\n".join(each.text for each in campaign.failures)
    assert {each.seed for each in outcomes} == set(SHORT_SEEDS)
    assert campaign.coverage.counters["tiered segments"] > 0
    assert campaign.coverage.counters["crashes"] > 0


def _hash(seed: int, hash_seed: int) -> str:
    code = f"""
import json
from tests.simulation.outcome import run
from tests.simulation.settings import Settings
outcome = run(Settings.draw({seed}, events={SHORT_EVENTS}))
print(json.dumps([outcome.hash, outcome.events, outcome.text, outcome.counters]))
"""
    environment = os.environ | {
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "engine")]),
    }
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, check=True)
    return done.stdout.splitlines()[-1].decode()


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [7, 16])
def test_a_seed_is_the_same_run_in_every_process(seed: int) -> None:
    """Otherwise a violation that a campaign found cannot be replayed, and stays unexplained."""
    first, second = _hash(seed, 1), _hash(seed, 4242)
    assert first == second
    assert json.loads(first)[1] >= SHORT_EVENTS


def test_settings_go_through_json() -> None:
    """Otherwise a shrunk failure is replayed as another one."""
    for seed in range(1, 20):
        settings = Settings.draw(seed)
        assert Settings.from_json(settings.to_json()) == settings


def test_a_failing_seed_is_made_smaller() -> None:
    """Otherwise a violation is told with thirty faults and a dozen clients, of which two matter."""
    settings = next(each for each in map(Settings.draw, range(1, 100)) if {"wipe", "pause"} <= set(each.faults))

    def run(tried: Settings) -> Outcome:
        fails = {"wipe", "pause"} <= set(tried.faults) and tried.events >= 3_000 and tried.clients.consumers
        return Outcome(tried.seed, tried.to_json(), events=tried.events, invariant=3 if fails else 0)

    failed = run(settings)
    smallest = Settings.from_json(shrink(failed, run, runs_max=300).settings)
    assert set(smallest.faults) == {"wipe", "pause"}
    assert 3_000 <= smallest.events < 4_000
    assert smallest.clients.consumers == 1
    assert len(smallest.topics) == 1


def test_a_smaller_run_ends_where_it_failed() -> None:
    """Otherwise shrinking begins with runs that are as long as before."""
    settings = Settings.draw(3)
    outcome = Outcome(3, settings.to_json(), events=777, invariant=1)
    assert next(candidates(settings, outcome)).events == 777


def test_a_poor_seed_is_named() -> None:
    """Otherwise a campaign of seeds in which nothing happened counts as proof."""
    settings = next(each for each in map(Settings.draw, range(1, 100)) if each.faults)
    rich = dict(LEAST_NUMBERS.items())
    coverage = Coverage()
    coverage.add(Outcome(settings.seed, settings.to_json(), events=10_000, counters=rich))
    assert not coverage.poor
    coverage = Coverage()
    coverage.add(Outcome(settings.seed, settings.to_json(), events=10_000, counters=rich | {"crashes": 2}))
    assert coverage.poor == {settings.seed: "2 crashes"}
    assert list(coverage.faults()) == ["1 seeds with faults did too little"]


def test_a_seed_of_two_traces_is_named() -> None:
    """Otherwise what a campaign finds cannot be replayed (seed 100322)."""
    settings, coverage = Settings.draw(7, events=10).to_json(), Coverage()
    for trace in ("a", "a"):
        coverage.add(Outcome(7, settings, hash=trace, events=10))
    assert (coverage.runs, coverage.events, list(coverage.faults())) == (1, 10, [])
    coverage.add(Outcome(7, settings, hash="b", events=10))
    assert list(coverage.faults()) == ["seeds that gave two traces: [7]"]


def test_a_campaign_says_what_it_did_not_try() -> None:
    """Otherwise thousands of seeds pass that all lost records, or never came by what is hard to reach."""
    coverage = Coverage(runs=MARKED_RUNS - 1)
    assert not list(coverage.faults())
    settings = Settings.draw(10).to_json()
    for seed in range(11):
        coverage.add(Outcome(seed, settings, events=10_000, counters={"exempt records": int(seed > 0)}))
    assert [each.split()[0] for each in coverage.faults()] == [str(len(coverage.never_hit()))]
    coverage.add(Outcome(11, settings, events=10_000, counters={"exempt records": 1}))
    assert "11 of 1011 seeds lost records" in list(coverage.faults())[1]
    named = f"11 (1.09%, 1% may) {list(range(1, 12))}"
    assert f"seeds that lost records which nobody had synced: {named}" in list(coverage.lines())


def test_the_command_says_how_to_replay(tmp_path: pathlib.Path) -> None:
    """Otherwise whoever sees a violation cannot see it again."""
    settings = Settings.draw(next(seed for seed in range(1, 100) if Settings.draw(seed).faults), events=200)
    file = tmp_path / "settings.json"
    file.write_text(settings.replace(faults=(), topics=settings.topics[:1]).to_json())
    command = [sys.executable, "-m", "tests.simulation", "--replay", str(file)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "engine")])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert f"seed {settings.seed}: hash " in done.stdout
    assert len(set(FAULTS)) == len(FAULTS)
