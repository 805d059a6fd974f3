"""The command: ``python -m tests.simulation.mutants`` shows that planted faults, or automatic mutants, are caught."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

from tests.simulation.campaign import Campaign
from tests.simulation.mutants.automatic_run import AutomaticRun
from tests.simulation.mutants.planted import PLANTED
from tests.simulation.mutants.planting import find_changes, source_of
from tests.simulation.outcome import FAILED, Outcome
from tests.simulation.settings import Settings

#: Within so many seeds a planted fault is caught.
PLANTED_SEEDS = 200
AUTOMATIC_SEEDS = 20


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants")
    parser.add_argument("names", nargs="*", help="planted faults (all)")
    parser.add_argument("--automatic", type=int, metavar="COUNT", help="draw so many instead")
    parser.add_argument("--first", type=int, default=0, metavar="NUMBER", help="begin with that one of them")
    parser.add_argument("--again", action="store_true", help="run those again that survived before")
    parser.add_argument("--quick", action="store_true", help="run quick tests alone, no seeds")
    parser.add_argument("--seed", type=int, default=29, help="of the drawing (29)")
    parser.add_argument("--seeds", metavar="A..B", help="that are run (1..200, or 1..20 for automatic ones)")
    parser.add_argument("--events", type=int, default=6_000, help="of a run, with planted faults (6000)")
    parser.add_argument("--hasten", type=int, default=2, metavar="TIMES", help="faults so many times as often (2)")
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


def _seeds(arguments: argparse.Namespace, most: int) -> range:
    first, _, last = (arguments.seeds or f"1..{most}").partition("..")
    return range(int(first), int(last) + 1)


def _settings(arguments: argparse.Namespace, also: Sequence[str]) -> Iterator[Settings]:
    for seed in _seeds(arguments, PLANTED_SEEDS):
        yield Settings.draw(seed, events=arguments.events, also=also).hastened(arguments.hasten)


def _caught_by_seeds(name: str, arguments: argparse.Namespace) -> str | None:
    """The violation by which a mutant is caught; None: it survives. A run counts if the engine as it is passes it."""
    for module, change in find_changes(name).items():
        change(source_of(module))  # an edit whose place has gone is no catch
    settings, runs = _settings(arguments, PLANTED[name].also), 0
    while True:
        campaign = Campaign(arguments.jobs, mutant=name, is_quiet=True)
        campaign.run(settings)
        runs += campaign.coverage.runs
        if not campaign.failures:
            return None
        found = campaign.failures[0]
        if found.invariant == FAILED:
            raise AssertionError(f"{name}: seed {found.seed}: {found.text}")
        without = _run_without(found)
        if without.is_good:
            return f"seed {found.seed}, run {runs}: {_headline(found)}"
        print(f"{name}: seed {found.seed} fails without it too: {_headline(without)}", flush=True)


def _run_without(found: Outcome) -> Outcome:
    """Make a run again, with the engine as it is."""
    (outcome,) = Campaign(1, is_quiet=True).run(iter((Settings.from_json(found.settings),)))
    return outcome


def _headline(outcome: Outcome) -> str:
    return outcome.text.splitlines()[0][:160]


def _planted(arguments: argparse.Namespace) -> list[str]:
    survivors = []
    for name in arguments.names or PLANTED:
        began = time.monotonic()
        caught = _caught_by_seeds(name, arguments)
        survivors += [name] if caught is None else []
        print(f"{name}: {caught or 'SURVIVES'} ({time.monotonic() - began:.0f} s)", flush=True)
    return survivors


def _automatic(arguments: argparse.Namespace) -> list[str]:
    run = AutomaticRun(arguments.seed, _seeds(arguments, AUTOMATIC_SEEDS), arguments.jobs, is_quick=arguments.quick)
    survivors = []
    for verdict in run.verdicts(arguments.first, arguments.automatic, is_again=arguments.again):
        survivors += [str(verdict)] if verdict.caught is None else []
        print(verdict, flush=True)
    return survivors


def main() -> int:
    """Run the command; 1 = something survived."""
    arguments = _arguments()
    survivors = _planted(arguments) if arguments.automatic is None else _automatic(arguments)
    print(f"{len(survivors)} survive", *survivors, sep="\n  ")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
