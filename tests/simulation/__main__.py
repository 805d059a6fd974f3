"""The command: ``python -m tests.simulation`` runs seeds until told to stop; see ``--help``."""

from __future__ import annotations

import argparse
import itertools
import pathlib
import signal
import sys
import time
from collections.abc import Iterator

from tests.simulation.campaign import Campaign
from tests.simulation.outcome import Outcome
from tests.simulation.settings import Settings
from tests.simulation.shrinking import shrink

#: The fault of Kafka's that its semantics have, and the engine's key for them leaves out: it deletes too much.
KAFKAS_FAULT = "kafka-20732"
#: One of so many seeds runs twice: both traces have to be the same.
_TWICE_EVERY = 25
#: Where failing runs are written.
FOLDER = pathlib.Path("build/simulation")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulate clusters from seeds.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seed", type=int, help="replay one")
    what.add_argument("--seeds", metavar="A..B", help="run these, B too")
    what.add_argument("--replay", type=pathlib.Path, metavar="FILE", help="replay settings that a failure left")
    parser.add_argument("--for", type=float, dest="seconds", metavar="SECONDS", help="end after so long")
    parser.add_argument("--events", type=int, default=10_000, help="of a run, until its faults stop (10000)")
    parser.add_argument("--hasten", type=int, default=1, metavar="TIMES", help="faults so many times as often")
    parser.add_argument("--also", default="", metavar="KINDS", help="faults that all have: a,b")
    parser.add_argument("--jobs", type=int, default=1, help="processes beside each other (1)")
    parser.add_argument("--mutant", help="run an engine that has this planted fault")
    parser.add_argument("--kafka-semantics", action="store_true", help="run with Kafka's faults: it fails")
    parser.add_argument("--goes-on", action="store_true", help="go on behind a violation; each is written")
    parser.add_argument("--no-shrink", action="store_true", help="show a violation as it was found")
    return parser.parse_args()


def _runs(arguments: argparse.Namespace) -> Iterator[Settings]:
    if arguments.replay is not None:
        yield Settings.from_json(arguments.replay.read_text())
        return
    if arguments.seed is not None:
        seeds: Iterator[int] = iter((arguments.seed,))
    elif arguments.seeds is not None:
        first, _, last = arguments.seeds.partition("..")
        seeds = iter(range(int(first), int(last) + 1))
    else:
        seeds = itertools.count(int(time.time()) * 1000)
    also = tuple(arguments.also.split(",")) if arguments.also else ()
    for seed in seeds:
        settings = Settings.draw(seed, events=arguments.events, also=also).hastened(arguments.hasten)
        for _ in range(2 if arguments.seed is None and seed % _TWICE_EVERY == 0 else 1):
            yield settings.replace(kafka_semantics=arguments.kafka_semantics)


def _shrunk(failed: Outcome, mutant: str | None) -> Outcome:
    def run(settings: Settings) -> Outcome:
        (outcome,) = Campaign(1, mutant=mutant, is_quiet=True).run(iter((settings,)))
        return outcome

    print(f"seed {failed.seed} fails: {failed.text.splitlines()[0]}\nit is made smaller …", flush=True)
    return shrink(failed, run)


def _show(failed: Outcome, *, mutant: str | None, is_replay: bool) -> None:
    """Print the last events, what is wrong, and the command to replay it."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"{'' if mutant is None else mutant + '-'}seed-{failed.seed}.json"
    if not is_replay:
        file.write_text(failed.settings)
    print("\n".join(failed.last_events))
    print(failed.text)
    more = "" if mutant is None else f" --mutant {mutant}"
    print(f"seed {failed.seed}, {failed.events} events, hash {failed.hash}")
    if not is_replay:
        print(f"replay it: python -m tests.simulation --replay {file}{more}", flush=True)


def _end(_signal: int, _frame: object) -> None:
    """A campaign that is ended from outside tells what it came by, too."""
    raise KeyboardInterrupt


def main() -> int:
    """Run the command; 1 = something failed."""
    arguments = _arguments()
    if arguments.kafka_semantics:
        arguments.mutant = arguments.mutant or KAFKAS_FAULT
    signal.signal(signal.SIGTERM, _end)

    def show(failed: Outcome) -> None:
        _show(failed, mutant=arguments.mutant, is_replay=arguments.replay is not None)

    campaign = Campaign(
        arguments.jobs,
        mutant=arguments.mutant,
        stops=not arguments.goes_on,
        on_failed=show if arguments.goes_on else None,
    )
    is_single = arguments.seed is not None or arguments.replay is not None
    try:
        outcomes = campaign.run(_runs(arguments), seconds=arguments.seconds)
    except KeyboardInterrupt:
        outcomes = []
        print("ended", flush=True)
    shrinks = not (is_single or arguments.no_shrink)
    for failed in [] if arguments.goes_on else campaign.failures:
        show(_shrunk(failed, arguments.mutant) if shrinks else failed)
    if is_single and outcomes:
        print(f"seed {outcomes[0].seed}: hash {outcomes[0].hash}")
    print("\n".join(campaign.coverage.lines()))
    faults = list(campaign.coverage.faults())
    print("\n".join(faults))
    return 1 if campaign.failures or faults else 0


if __name__ == "__main__":
    sys.exit(main())
