"""What became of automatic mutants: lines of JSON below ``build/mutants``, with which an interrupted run goes on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from dataclasses import dataclass

from tests.simulation.mutants.automatic import Mutation
from tests.simulation.mutants.planting import source_of


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant.

    Attributes:
        name: Under which it can be planted.
        source: Digest of its module's source, without the mutant.
        tests, seeds: How many come by its statement.
        caught: The test or the seed that caught it, and how; None: it survives.
    """

    name: str
    module: str
    line: int
    text: str
    source: str
    tests: int
    seeds: int
    caught: str | None
    seconds: float

    def __str__(self) -> str:
        reach = f"{self.tests} tests and {self.seeds} seeds come by"
        fate = f"caught by {self.caught}" if self.caught else "SURVIVES"
        return f"{self.name} {self.module} line {self.line}, {self.text}: {fate} ({reach}, {self.seconds:.0f} s)"


class Verdicts:
    """The verdicts of a drawing, on disk.

    Args:
        path: Of the file; it need not be there.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        found = [Verdict(**json.loads(line)) for line in lines]
        self._found = {(each.module, each.text): each for each in found}  # the last one counts

    def find(self, mutation: Mutation) -> Verdict | None:
        """The verdict on a mutation of the source as it is now."""
        verdict = self._found.get((mutation.module, mutation.text))
        return verdict if verdict is not None and verdict.source == source_digest(mutation.module) else None

    def add(self, verdict: Verdict) -> None:
        """Write a verdict."""
        self._found[verdict.module, verdict.text] = verdict
        with self._path.open("a") as file:
            file.write(json.dumps(dataclasses.asdict(verdict)) + "\n")


def source_digest(module: str) -> str:
    """Return the digest of a module's source."""
    return hashlib.sha256(source_of(module).encode()).hexdigest()[:12]
