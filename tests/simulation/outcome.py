"""One run in this process, and what came of it, as JSON both ways."""

from __future__ import annotations

import dataclasses
import gc
import json
import logging
import pathlib
import time
import traceback
from dataclasses import dataclass, field
from typing import Any, Final, Self

from tests.simulation.facts import ENDLESS, ENGINE_ERROR, JudgeError, Violation
from tests.simulation.settings import Settings
from tests.simulation.trace import ENGINE, Trace

#: Of a run that failed by an error of the simulation itself.
FAILED: Final = -1


@dataclass(slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        settings: As JSON.
        hash: Of the trace.
        seconds: Of the processor.
        counters, marks: Of the trace; of the judge, names that begin with "judge:".
        invariant: Of the violation; 0 = none, FAILED = an error of the simulation itself.
        text: Of the violation or error; empty: none.
        last_events: Of the trace; empty where nothing is wrong.
    """

    seed: int
    settings: str
    hash: str = ""
    events: int = 0
    seconds: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)
    invariant: int = 0
    text: str = ""
    last_events: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return self.invariant == 0

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``to_json`` wrote."""
        values: dict[str, Any] = json.loads(text)
        return cls(**values)

    @classmethod
    def endless(cls, settings: Settings, seconds: int) -> Self:
        """Of a run whose process was ended, since it did not end by itself."""
        return cls._without_answer(settings, Violation(ENDLESS, "endless run", f"not over within {seconds} s"))

    @classmethod
    def ended(cls, settings: Settings, text: str) -> Self:
        """Of a run whose process ended without a word: native code has failed."""
        return cls._without_answer(settings, Violation(ENGINE_ERROR, "engine error", text))

    @classmethod
    def _without_answer(cls, settings: Settings, violation: Violation) -> Self:
        return cls(settings.seed, settings.to_json(), invariant=violation.invariant, text=str(violation))


def run(settings: Settings) -> Outcome:
    """Run a cluster to its end, or to its first violation. One run a process: marks and abandoned tasks stay in it."""
    from tests.simulation.judge import ClusterJudge
    from tests.simulation.world import World

    outcome = Outcome(settings.seed, settings.to_json())
    trace = Trace()
    trace.count_marks()
    judge = ClusterJudge(trace)
    logging.getLogger("tierlog").setLevel(logging.CRITICAL + 1)  # its warnings are what the faults are there for
    gc.disable()
    began = time.process_time()
    try:
        World(settings, judge, trace).run()
    except Violation as violation:
        outcome.invariant, outcome.text = violation.invariant, _words(violation)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the run's outcome
        found = violation_of(error)
        outcome.invariant = FAILED if found is None else found.invariant
        outcome.text = _words(error) if found is None else f"{found}\n{_words(error)}"
    outcome.seconds = time.process_time() - began
    outcome.hash, outcome.events = trace.hash, trace.events
    outcome.counters, outcome.marks = dict(sorted(trace.counters.items())), dict(sorted(trace.marks.items()))
    if not outcome.is_good:
        outcome.last_events = trace.last_events()
    return outcome


def violation_of(error: Exception) -> Violation | None:
    """The violation that an error is which ended a run; None: it is one of the simulation itself."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, JudgeError) or not frames or not pathlib.Path(frames[-1].filename).is_relative_to(ENGINE):
        return None
    place = pathlib.Path(frames[-1].filename).relative_to(ENGINE)
    return Violation(ENGINE_ERROR, "engine error", f"{type(error).__name__} in {place}: {error}")


def _words(error: Exception) -> str:
    return f"{error}\n{''.join(traceback.format_exception(error))}"
