"""Planted faults and automatic mutants: their places are in the sources, and an engine with one can be run."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pytest

from tests.simulation.mutants.automatic import ROOMS, draw
from tests.simulation.mutants.planted import PLANTED
from tests.simulation.mutants.planting import VARIABLE, MutantError, find_changes, source_of
from tests.support.checkout import ROOT, needs_checkout

pytestmark = needs_checkout


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_has_its_place(name: str) -> None:
    """Otherwise the code has moved on, and nobody notices that the fault is planted no more."""
    for module, change in find_changes(name).items():
        before = source_of(module)
        after = change(before)
        assert ast.dump(ast.parse(before)) != ast.dump(ast.parse(after)), module


def test_there_are_enough() -> None:
    """Twenty-five, of all rooms; three at least are Kafka's own."""
    assert len(PLANTED) >= 25
    assert sum(each.is_kafkas for each in PLANTED.values()) >= 3
    modules = {edit.module for each in PLANTED.values() for edit in each.edits}
    for room in ("remote.manager", "replication", "log.local", "compaction", "remote.metadata", "remote.storage"):
        assert [each for each in modules if room in each], room


def test_automatic_mutants_are_drawn_by_a_seed() -> None:
    """Otherwise a survivor cannot be looked at again."""
    drawn = draw(7, 200)
    assert drawn == draw(7, 200)
    assert len(set(drawn)) == 200
    for each in drawn[:40]:
        before = source_of(each.module)
        assert ast.unparse(ast.parse(before)) != ast.unparse(ast.parse(each.apply(before))), each.text
        assert (ROOT / each.tests).is_dir(), each.tests
    assert {room for room in ROOMS if any(each.module.startswith(room) for each in drawn)} >= {"tierlog.replication"}


def test_a_process_runs_the_changed_source() -> None:
    """Otherwise a mutant is caught, or survives, that was never there."""
    code = """
from tests.simulation.mutants.planting import plant
plant("lineage-off-by-one")
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.remote.manager.tiered_lineage import find_copied_offset
print(find_copied_offset(LeaderEpochs([(0, 0)]), lambda epoch: 9, log_end_offset=5).offset)
"""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "engine")])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": paths}
    )
    assert done.stdout == "5\n"


def test_tests_run_over_a_mutant() -> None:
    """Otherwise the rooms' own tests, which come first, pass over the engine as it is."""
    node = "tests/remote/manager/test_tiered_lineage.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.simulation.mutants.planted_run", "-n", "0", node],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {VARIABLE: "lineage-off-by-one"},
    )
    assert done.returncode == 1, done.stdout + done.stderr


def test_an_unknown_mutant_is_refused() -> None:
    """Otherwise a typing error runs the engine as it is, and finds it sound."""
    with pytest.raises(MutantError):
        find_changes("no-such-fault")
