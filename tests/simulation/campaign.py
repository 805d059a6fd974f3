"""Many seeds beside each other: progress, the first violation, what was covered."""

from __future__ import annotations

import select
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.simulation.outcome import Outcome
from tests.simulation.settings import LEAST_EVENTS, LEAST_NUMBERS, Settings
from tests.simulation.trace import engine_marks
from tests.simulation.worker import RUNS_MAX, Worker

#: A campaign of so many runs has to come by every mark of the engine.
MARKED_RUNS = 1_000
#: The part of the runs that may lose acknowledged records, which no replica had synced.
EXEMPT_RATE = 0.01


@dataclass
class Coverage:
    """What the runs of a campaign came by, together.

    Attributes:
        poor: Seeds with faults that did not reach the least numbers, with what they had.
        exempt: Seeds in which acknowledged records were lost, as those may whose every holder lost them unsynced.
        hashes: Of the trace of each run, by seed and settings: one that comes again is compared, and not counted.
        unlike: Seeds that gave two traces: nobody could replay what they find.
    """

    runs: int = 0
    events: int = 0
    seconds: float = 0.0
    counters: Counter[str] = field(default_factory=Counter)
    marks: Counter[str] = field(default_factory=Counter)
    poor: dict[int, str] = field(default_factory=dict)
    exempt: set[int] = field(default_factory=set)
    hashes: dict[tuple[int, str], str] = field(default_factory=dict)
    unlike: set[int] = field(default_factory=set)

    def add(self, outcome: Outcome) -> None:
        """Take a run's counters."""
        run = outcome.seed, outcome.settings
        if run in self.hashes:
            if outcome.hash != self.hashes[run]:
                self.unlike.add(outcome.seed)
            return
        self.hashes[run] = outcome.hash
        self.runs += 1
        self.events += outcome.events
        self.seconds += outcome.seconds
        self.counters.update(outcome.counters)
        self.marks.update(outcome.marks)
        if outcome.counters.get("exempt records"):
            self.exempt.add(outcome.seed)
        settings = Settings.from_json(outcome.settings)
        if settings.faults and settings.events >= LEAST_EVENTS and outcome.is_good:
            missed = [
                f"{outcome.counters.get(name, 0)} {name}"
                for name, least in LEAST_NUMBERS.items()
                if outcome.counters.get(name, 0) < least
            ]
            if missed:
                self.poor[outcome.seed] = ", ".join(missed)

    def never_hit(self) -> list[str]:
        """The engine's marks that no run came by, with their places."""
        return [f"{name} ({place})" for name, place in engine_marks().items() if not self.marks[name]]

    def faults(self) -> Iterator[str]:
        """Why the campaign proves less than it claims to, although no run failed."""
        missed = self.never_hit()
        if self.runs >= MARKED_RUNS and missed:
            yield f"{len(missed)} marks of the engine were never hit: it has not tried what it claims to try"
        if self.unlike:
            yield f"seeds that gave two traces: {sorted(self.unlike)}"
        if self.poor:
            yield f"{len(self.poor)} seeds with faults did too little"
        if len(self.exempt) > max(1, EXEMPT_RATE * self.runs):
            yield f"{len(self.exempt)} of {self.runs} seeds lost records that nobody had synced: {sorted(self.exempt)}"

    def lines(self) -> Iterator[str]:
        """The report."""
        speed = self.events / self.seconds if self.seconds else 0
        yield f"{self.runs} runs, {self.events} events, {self.seconds:.0f} s of processor, {speed:.0f} events/s"
        for name, count in sorted(self.counters.items()):
            yield f"  {name}: {count}"
        yield f"marks hit: {sum(1 for each in self.marks.values() if each)}"
        yield from (f"  never hit: {each}" for each in self.never_hit())
        if self.runs:
            share = f"{len(self.exempt) / self.runs:.2%}, {EXEMPT_RATE:.0%} may"
            yield f"seeds that lost records which nobody had synced: {len(self.exempt)} ({share}) {sorted(self.exempt)}"
        yield from (f"  seed {seed} has only {text}" for seed, text in sorted(self.poor.items()))


class Campaign:
    """Runs of seeds, ``jobs`` beside each other.

    Args:
        jobs: Processes.
        mutant: Name of a mutant that their engines have; None: the engine as it is.
        stops: Whether the first violation ends the campaign.
        is_quiet: Whether it writes no progress.
        on_failed: Called with each run that failed, at once.
    """

    def __init__(
        self,
        jobs: int,
        *,
        mutant: str | None = None,
        stops: bool = True,
        is_quiet: bool = False,
        on_failed: Callable[[Outcome], None] | None = None,
    ) -> None:
        self.coverage = Coverage()
        self.failures: list[Outcome] = []
        self._jobs, self._mutant, self._stops, self._is_quiet = jobs, mutant, stops, is_quiet
        self._on_failed = on_failed
        self._hash_seed = 0
        self._told = time.monotonic()

    def run(self, runs: Iterator[Settings], *, seconds: float | None = None) -> list[Outcome]:
        """Run until there are no more, the time is over, or one fails; return the outcomes, as they came."""
        deadline = None if seconds is None else time.monotonic() + seconds
        outcomes: list[Outcome] = []
        workers: list[Worker] = []
        try:
            while True:
                self._begin(workers, runs, deadline)
                busy = [each for each in workers if each.settings is not None]
                if not busy:
                    return outcomes
                outcomes += self._ended(busy)
                if self.failures and self._stops:
                    return outcomes
                self._tell()
        finally:
            for worker in workers:
                worker.close()

    def _begin(self, workers: list[Worker], runs: Iterator[Settings], deadline: float | None) -> None:
        """Have all workers busy while there are runs."""
        for worker in [each for each in workers if each.settings is None and each.runs >= RUNS_MAX]:
            worker.close()
            workers.remove(worker)
        while deadline is None or time.monotonic() < deadline:
            idle = next((each for each in workers if each.settings is None), None)
            if idle is None and len(workers) == self._jobs:
                return
            settings = next(runs, None)
            if settings is None:
                return
            if idle is None:
                self._hash_seed += 1
                idle = Worker(self._hash_seed * 7919 % 4_000_000_000, self._mutant)
                workers.append(idle)
            idle.begin(settings)

    def _ended(self, busy: list[Worker]) -> Iterator[Outcome]:
        ready, _, _ = select.select([each.answers for each in busy], [], [], 5)
        for worker in [each for each in busy if each.answers in ready]:
            settings, line = worker.settings, worker.answers.readline()
            assert settings is not None
            worker.settings = None
            if line:
                outcome = Outcome.from_json(line)
            else:
                outcome = Outcome.ended(settings, "the worker's process ended")
                worker.runs = RUNS_MAX
            self.coverage.add(outcome)
            if not outcome.is_good:
                self.failures.append(outcome)
                if not self._is_quiet:
                    print(f"seed {outcome.seed} fails: {outcome.text.splitlines()[0]}", flush=True)
                if self._on_failed is not None:
                    self._on_failed(outcome)
            yield outcome

    def _tell(self) -> None:
        now = time.monotonic()
        if self._is_quiet or now - self._told < 10:
            return
        self._told = now
        done = self.coverage
        print(f"{done.runs} runs, {done.events} events, {len(self.failures)} violations", flush=True)
