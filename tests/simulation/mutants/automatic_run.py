"""A run of automatic mutants: first the tests of the room that come by the mutant, then the seeds that do.

What does not come by a mutant's statement runs as it does without the mutant, and is not run again.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Final

from tests.simulation.campaign import Campaign
from tests.simulation.mutants.automatic import Mutation, draw
from tests.simulation.mutants.reach import FOLDER, PYTEST, Passed, environment, passed_by_seed, passed_by_tests
from tests.simulation.mutants.verdicts import Verdict, Verdicts, source_digest
from tests.simulation.settings import Settings
from tests.support.checkout import ROOT

#: Tests with a mutant may take so many times as long as without, and a start.
_TIMES_MAX: Final = 5
_START_SECONDS: Final = 60
#: Tests that go beyond this together come behind short seeds.
_QUICK_SECONDS_MAX: Final = 10.0
#: Runs of seeds: events, and how many times as often faults come. Short ones first.
_SEED_RUNS: Final = ((2_500, 6), (10_000, 1))
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)


class AutomaticRun:
    """Finds out which automatic mutants are caught: by quick tests, short seeds, slow tests, long seeds, in this order.

    Args:
        seed: Of the drawing.
        seeds: Of the simulation, that are run.
        jobs: Processes at once, of the seeds.
        is_quick: Whether quick tests alone are run.
    """

    def __init__(self, seed: int, seeds: range, jobs: int, *, is_quick: bool) -> None:
        self._seed, self._seeds, self._jobs, self._is_quick = seed, seeds, jobs, is_quick
        self._verdicts = Verdicts(FOLDER / f"automatic-{seed}.jsonl")

    def verdicts(self, first: int, count: int, *, is_again: bool) -> Iterator[Verdict]:
        """Judge mutants; verdicts of a run before on the same source stand.

        Args:
            first: Number of the first one in the drawing.
            count: How many.
            is_again: Whether those that survived before are run again.
        """
        for number, mutation in enumerate(draw(self._seed, first + count)[first:], first):
            known = self._verdicts.find(mutation)
            if known is None or (is_again and known.caught is None):
                known = self._judge(f"auto:{self._seed}:{number}", mutation)
                self._verdicts.add(known)
            yield known

    def _judge(self, name: str, mutation: Mutation) -> Verdict:
        began = time.monotonic()
        found = [each for folder in mutation.tests for each in passed_by_tests(folder).items()]
        tests = {node: passed for node, passed in found if passed.reaches(mutation)}
        quick, slow = _parted(mutation, tests)
        caught = _caught_by_tests(name, mutation, quick)
        seeds: set[int] = set()
        if not self._is_quick:
            short, long = [[each for each, passed in runs if passed.reaches(mutation)] for runs in self._runs]
            seeds = {each.seed for each in (*short, *long)}
            caught = caught or self._caught_by_seeds(name, short)
            caught = caught or _caught_by_tests(name, mutation, slow)
            caught = caught or self._caught_by_seeds(name, long)
        return Verdict(
            *(name, mutation.module, mutation.line, mutation.text, source_digest(mutation.module)),
            *(len(tests), len(seeds), caught, time.monotonic() - began),
        )

    @cached_property
    def _runs(self) -> list[list[tuple[Settings, Passed]]]:
        """The short and the long runs of the seeds, with what they come by."""
        drawn = [
            [Settings.draw(each, events=events).hastened(times) for each in self._seeds] for events, times in _SEED_RUNS
        ]
        return [[(each, passed) for each in run if (passed := passed_by_seed(each)) is not None] for run in drawn]

    def _caught_by_seeds(self, name: str, runs: list[Settings]) -> str | None:
        if not runs:
            return None
        campaign = Campaign(self._jobs, mutant=name, is_quiet=True)
        campaign.run(iter(runs))
        if not campaign.failures:
            return None
        found = campaign.failures[0]
        return f"seed {found.seed} of {runs[0].events} events: {found.text.splitlines()[0][:160]}"


def _parted(mutation: Mutation, tests: dict[str, Passed]) -> tuple[dict[str, Passed], dict[str, Passed]]:
    """Part tests into the quick ones and the rest: those of the module's own file come first, then the quickest."""
    own = f"/test_{mutation.module.rpartition('.')[2]}.py::"
    quick: dict[str, Passed] = {}
    slow: dict[str, Passed] = {}
    seconds = 0.0
    for node in sorted(tests, key=lambda node: (own not in node, tests[node].seconds)):
        seconds += tests[node].seconds
        (quick if seconds <= _QUICK_SECONDS_MAX else slow)[node] = tests[node]
    return quick, slow


def _caught_by_tests(name: str, mutation: Mutation, tests: dict[str, Passed]) -> str | None:
    """The test that fails over a mutant, or that they do not end; None: there is none."""
    if not tests:
        return None
    seconds_max = _START_SECONDS + _TIMES_MAX * sum(each.seconds for each in tests.values())
    code, output = _run_tests(name, list(tests), seconds_max)
    if code not in (0, 1, 2, None):  # some tests are not there, or have other names: the mutant runs when they are made
        code, output = _run_tests(name, list(mutation.tests), seconds_max=2 * seconds_max + 600)
    if code is None:
        return f"tests that do not end within {seconds_max:.0f} s"
    failed = _FAILED.search(output)
    return None if code == 0 else failed[1] if failed else output[-200:]


def _run_tests(name: str, nodes: list[str], seconds_max: float) -> tuple[int | None, str]:
    """Run tests over a mutant until the first fails; return pytest's exit code, None: they do not end; the output."""
    listed = FOLDER / f"tests-of-{os.getpid()}.txt"
    listed.write_text("\n".join(nodes))
    tests = subprocess.Popen(
        [*PYTEST, "-x", "--tb=no", f"@{listed}"],
        cwd=ROOT,
        env=environment(name),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = tests.communicate(timeout=seconds_max)
        return tests.returncode, output
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(tests.pid, signal.SIGKILL)  # with the processes that it has started
        tests.communicate()
        listed.unlink()
