"""One run in this process, and what came of it, as JSON both ways."""

from __future__ import annotations

import dataclasses
import gc
import json
import logging
import time
import traceback
from dataclasses import dataclass, field
from typing import Any, Self

from tests.simulation.facts import Violation
from tests.simulation.settings import Settings
from tests.simulation.trace import Trace


@dataclass(slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        settings: As JSON.
        hash: Of the trace.
        seconds: Of the processor.
        counters, marks: Of the trace; of the judge, names that begin with "judge:".
        invariant: Of the violation; 0 = none, -1 = another error: of the engine, or of the simulation.
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
    def without_answer(cls, settings: Settings, text: str) -> Self:
        """Of a run whose process ended, or was ended, without a word."""
        return cls(settings.seed, settings.to_json(), invariant=-1, text=text)


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
        outcome.invariant, outcome.text = -1, _words(error)
    outcome.seconds = time.process_time() - began
    outcome.hash, outcome.events = trace.hash, trace.events
    outcome.counters, outcome.marks = dict(sorted(trace.counters.items())), dict(sorted(trace.marks.items()))
    if not outcome.is_good:
        outcome.last_events = trace.last_events()
    return outcome


def _words(error: Exception) -> str:
    return f"{error}\n{''.join(traceback.format_exception(error))}"
