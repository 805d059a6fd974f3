"""Planted faults and automatic mutants: their places are in the sources, and an engine with one can be run."""

from __future__ import annotations

import ast
import dataclasses
import os
import pathlib
import subprocess
import sys

import pytest

from tests.simulation.mutants.automatic import ROOMS, Changes, draw
from tests.simulation.mutants.planted import PLANTED
from tests.simulation.mutants.planting import VARIABLE, MutantError, find_changes, source_of
from tests.simulation.mutants.verdicts import Verdict, Verdicts, source_digest
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
    assert drawn[:50] == draw(7, 50)
    assert drawn[:50] != draw(8, 50)
    assert len({(each.module, each.text) for each in drawn}) == 200
    for each in drawn[:40]:
        before = source_of(each.module)
        assert ast.unparse(ast.parse(before)) != ast.unparse(ast.parse(each.apply(before))), each.text
        assert all((ROOT / folder).exists() for folder in each.tests), each.tests
    assert {room for room in ROOMS if any(each.module.startswith(room) for each in drawn)} >= {"tierlog.replication"}


def test_what_only_tells_is_not_changed() -> None:
    """Otherwise the survivors are full of changes that nobody can see."""
    text = """
class Of:
    def run(self, count: int = 1) -> int:
        assert count > 0, "count"
        _log.warning("less than %d", count + 1)
        self._services.metrics.add("errors", count - 1)
        if count > 2:
            raise ValueError(f"{count + 1} is too many")
        self.high_watermark.move(count)
        return count

    def __repr__(self) -> str:
        return "a" if self.count == 1 else "b"
"""
    change = Changes(-1)
    change.visit(ast.parse(text))
    assert [each for _, each in change.found] == [
        "Of.run: count > 2: negated if",
        "Of.run: 2: is 3",
        "Of.run: count > 2: Gt is GtE",
        "Of.run: raise ValueError(f'{count + 1} is too many'): dropped",
        "Of.run: self.high_watermark.move(count): dropped",
    ]


def test_a_process_runs_the_changed_source() -> None:
    """Otherwise a mutant is caught, or survives, that was never there."""
    code = """
from tests.simulation.mutants.planting import plant
plant("lineage-off-by-one")
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.remote.manager.tiered_lineage import find_copied_offset
print(find_copied_offset(LeaderEpochs([(0, 0)]), lambda epoch: 9, log_end_offset=5).offset)
"""
    assert _run(code) == "5\n"


def test_probes_tell_what_is_come_by() -> None:
    """Otherwise a mutant is taken for a survivor that no test comes by, and tests run in vain."""
    code = """
from tests.simulation.mutants.planting import plant
plant("probes")
from tests.simulation.mutants.automatic import changes
from tests.simulation.mutants.probes import passed
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.remote.manager.tiered_lineage import find_copied_offset
passed.clear()
epochs = LeaderEpochs([(0, 0)])
print(find_copied_offset(epochs, lambda epoch: 9, log_end_offset=5).offset)
module = "tierlog.remote.manager.tiered_lineage"
come_by = {each.text.split(":")[0] for each in changes(module) if (module, each.line) in passed}
print("find_copied_offset" in come_by, "is_within" in come_by)
"""
    assert _run(code) == "4\nTrue False\n"


def _run(code: str) -> str:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "engine")])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": paths}
    )
    return done.stdout


def test_verdicts_stay_until_the_source_changes(tmp_path: pathlib.Path) -> None:
    """Otherwise an interrupted run begins anew, or tells what became of another mutant."""
    first, second = draw(7, 2)
    path = tmp_path / "verdicts.jsonl"
    verdict = Verdict(
        "auto:7:0", *(first.module, first.line, first.text), source_digest(first.module), 3, 20, None, 1.5
    )
    verdicts = Verdicts(path)
    verdicts.add(verdict)
    verdicts.add(dataclasses.replace(verdict, module=second.module, text=second.text, source="of before"))
    for each in (verdicts, Verdicts(path)):
        assert each.find(first) == verdict
        assert each.find(second) is None
    Verdicts(path).add(dataclasses.replace(verdict, caught="a test"))
    found = Verdicts(path).find(first)
    assert found is not None
    assert found.caught == "a test"


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
