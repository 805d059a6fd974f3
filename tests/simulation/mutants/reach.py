"""Which tests and seeds come by the statements that have mutants: recorded once, and cached below ``build/mutants``."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final, Self

from tests.simulation.mutants.automatic import Mutation
from tests.simulation.mutants.planting import ENGINE, VARIABLE
from tests.simulation.mutants.probes import PROBES
from tests.simulation.settings import Settings
from tests.support.checkout import ROOT

FOLDER: Final = ROOT / "build/mutants"
#: Environment variable of the file that a recording run of tests writes.
RECORD_VARIABLE: Final = "TIERLOG_MUTANTS_REACH"
_RECORDING_SECONDS_MAX: Final = 1800

Places = Iterable[tuple[str, int]]


class Passed:
    """The statements that one test, or one seed, comes by.

    Attributes:
        seconds: That it takes.
    """

    def __init__(self, places: Places, seconds: float) -> None:
        self._lines: dict[str, set[int]] = defaultdict(set)
        for module, line in places:
            self._lines[module].add(line)
        self.seconds = seconds

    def reaches(self, mutation: Mutation) -> bool:
        return mutation.line in self._lines.get(mutation.module, ())

    def to_json(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "lines": {module: sorted(lines) for module, lines in self._lines.items()}}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        places = [(module, line) for module, lines in value["lines"].items() for line in lines]
        return cls(places, value["seconds"])


@cache
def passed_by_tests(folder: str) -> dict[str, Passed]:
    """What each test below a folder comes by, by its node id. Tests that fail without a mutant are left out."""
    path = FOLDER / f"tests-{folder.replace('/', '-')}-{_digest(ROOT / folder)}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"recording what tests below {folder} come by", flush=True)
        subprocess.run(
            [*PYTEST, folder],
            cwd=ROOT,
            env=environment(PROBES) | {RECORD_VARIABLE: str(path)},
            stdout=subprocess.DEVNULL,
            timeout=_RECORDING_SECONDS_MAX,
            check=False,
        )
    return {node: Passed.from_json(value) for node, value in json.loads(path.read_text()).items()}


def passed_by_seed(settings: Settings) -> Passed | None:
    """Return the statements that a seed comes by; None: the seed fails without a mutant."""
    wanted = hashlib.sha256(settings.to_json().encode()).hexdigest()[:12]
    path = FOLDER / f"seed-{settings.seed}-{settings.events}-{wanted}-{_digest(ROOT / 'tests/simulation')}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation.mutants.reach", str(path)],
            cwd=ROOT,
            env=environment(PROBES),
            input=settings.to_json(),
            text=True,
            timeout=_RECORDING_SECONDS_MAX,
            check=False,
        )
        if done.returncode != 0:
            path.write_text("null")
            print(
                f"seed {settings.seed} of {settings.events} events fails without a mutant, and is left out", flush=True
            )
    found = json.loads(path.read_text())
    return None if found is None else Passed.from_json(found)


#: Runs tests over the mutant that the environment names, in one process.
PYTEST: Final = (
    *(sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:benchmark", "-p", "no:cacheprovider"),
    *("-p", "tests.simulation.mutants.planted_run"),
)


def environment(mutant: str) -> dict[str, str]:
    """The environment of a run over a mutant: with "CI" Hypothesis draws the same cases each time."""
    return os.environ | {VARIABLE: mutant, "CI": "1", "OPENBLAS_NUM_THREADS": "1"}


@cache
def _digest(folder: pathlib.Path) -> str:
    """Of the sources that decide what is come by: the engine and a folder of tests."""
    found = hashlib.sha256()
    for path in _sources(ENGINE / "tierlog", folder):
        found.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def _sources(*folders: pathlib.Path) -> Iterator[pathlib.Path]:
    for folder in folders:
        yield from sorted(folder.rglob("*.py")) if folder.is_dir() else (folder,)


def main() -> None:
    """Run the settings that the standard input has, and write what they come by. Exit code 1: the run fails."""
    from tests.simulation.mutants.planting import plant

    plant(PROBES)  # before anything of the engine is imported
    from tests.simulation.mutants.probes import passed
    from tests.simulation.outcome import run

    outcome = run(Settings.from_json(sys.stdin.read()))
    if outcome.is_good:
        pathlib.Path(sys.argv[1]).write_text(json.dumps(Passed(passed, outcome.seconds).to_json()))
    sys.stdout.flush()
    os._exit(0 if outcome.is_good else 1)  # no finalizer of what the run abandoned


if __name__ == "__main__":
    main()
