"""The command: ``python -m tests.simulation.mutants`` shows that planted faults, or automatic mutants, are caught."""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.simulation.campaign import Campaign
from tests.simulation.mutants.automatic import Mutation, draw
from tests.simulation.mutants.planted import PLANTED
from tests.simulation.mutants.planting import VARIABLE, find_changes, source_of
from tests.simulation.settings import Settings
from tests.support.checkout import ROOT

#: Within so many seeds a planted fault is caught.
PLANTED_SEEDS = 200
AUTOMATIC_SEEDS = 20
ROOM_SECONDS_MAX = 600


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants")
    parser.add_argument("names", nargs="*", help="planted faults (all)")
    parser.add_argument("--automatic", type=int, metavar="COUNT", help="draw so many instead")
    parser.add_argument("--first", type=int, default=0, metavar="NUMBER", help="begin with that one of them")
    parser.add_argument("--seed", type=int, default=29, help="of the drawing (29)")
    parser.add_argument("--seeds", metavar="A..B", help="that are run (1..200, or 1..20 for automatic ones)")
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--hasten", type=int, default=1, metavar="TIMES", help="faults so many times as often")
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


def _settings(arguments: argparse.Namespace, most: int) -> Iterator[Settings]:
    first, _, last = (arguments.seeds or f"1..{most}").partition("..")
    for seed in range(int(first), int(last) + 1):
        yield Settings.draw(seed, events=arguments.events).hastened(arguments.hasten)


def _caught_by_seeds(name: str, arguments: argparse.Namespace, most: int) -> str | None:
    """The violation by which a mutant is caught; None: it survives."""
    for module, change in find_changes(name).items():
        change(source_of(module))  # an edit whose place has gone is no catch
    campaign = Campaign(arguments.jobs, mutant=name, is_quiet=True)
    campaign.run(_settings(arguments, most))
    if not campaign.failures:
        return None
    found = campaign.failures[0]
    return f"seed {found.seed}, run {campaign.coverage.runs}: {found.text.splitlines()[0][:160]}"


def _caught_by_tests(name: str, mutation: Mutation) -> bool:
    """Whether the room's own tests fail, or do not end."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", "-p", "tests.simulation.mutants.planted_run"]
    try:
        done = subprocess.run(
            [*command, mutation.tests],
            cwd=ROOT,
            capture_output=True,
            env=os.environ | {VARIABLE: name},
            timeout=ROOM_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def _planted(arguments: argparse.Namespace) -> list[str]:
    survivors = []
    for name in arguments.names or PLANTED:
        began = time.monotonic()
        caught = _caught_by_seeds(name, arguments, PLANTED_SEEDS)
        survivors += [name] if caught is None else []
        print(f"{name}: {caught or 'SURVIVES'} ({time.monotonic() - began:.0f} s)", flush=True)
    return survivors


def _automatic(arguments: argparse.Namespace) -> list[str]:
    survivors = []
    drawn = enumerate(draw(arguments.seed, arguments.first + arguments.automatic))
    for number, mutation in itertools.islice(drawn, arguments.first, None):
        name = f"auto:{arguments.seed}:{number}"
        caught = "the room's tests" if _caught_by_tests(name, mutation) else None
        caught = caught or _caught_by_seeds(name, arguments, AUTOMATIC_SEEDS)
        where = f"{name} {mutation.module} {mutation.text}"
        survivors += [where] if caught is None else []
        print(f"{where}: {caught or 'SURVIVES'}", flush=True)
    return survivors


def main() -> int:
    """Run the command; 1 = something survived."""
    arguments = _arguments()
    survivors = _planted(arguments) if arguments.automatic is None else _automatic(arguments)
    print(f"{len(survivors)} survive", *survivors, sep="\n  ")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
