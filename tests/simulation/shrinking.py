"""A failing run made smaller: fewer faults, fewer clients, fewer topics, shorter, as long as it fails alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from tests.simulation.outcome import Outcome
from tests.simulation.settings import Settings

#: Clients that a run may do without, and at least how many of each it has.
_LEAST_CLIENTS = {"idempotent_producers": 0, "consumers": 0}


def shrink(failed: Outcome, run: Callable[[Settings], Outcome], *, runs_max: int = 60) -> Outcome:
    """Return the smallest failing run that was found.

    Args:
        failed: The run that failed.
        run: Runs settings, in a process of its own.
        runs_max: How many runs it may take.
    """
    smallest, left = failed, runs_max
    progress = True
    while progress and left > 0:
        progress = False
        for candidate in candidates(Settings.from_json(smallest.settings), smallest):
            if left <= 0:
                break
            left -= 1
            outcome = run(candidate)
            if outcome.invariant == failed.invariant:
                smallest, progress = outcome, True
                break
    return smallest


def candidates(settings: Settings, outcome: Outcome) -> Iterator[Settings]:
    """Smaller settings, those that take away most first.

    Args:
        settings: Of a run that failed.
        outcome: Of that run.
    """
    if 0 < outcome.events < settings.events:
        yield settings.replace(events=outcome.events)  # up to there the same
    faults = settings.faults
    for size in sorted({len(faults) // 2, len(faults) // 4, 1} - {0}, reverse=True):
        for at in range(0, len(faults), size):
            yield settings.replace(faults=faults[:at] + faults[at + size :])
    if len(settings.topics) > 1:
        for at in range(len(settings.topics)):
            yield settings.replace(topics=settings.topics[:at] + settings.topics[at + 1 :])
    for field in dataclasses.fields(settings.clients):
        count = getattr(settings.clients, field.name)
        if count > _LEAST_CLIENTS.get(field.name, 0):
            yield settings.replace(clients=dataclasses.replace(settings.clients, **{field.name: count - 1}))
    for part in (0.5, 0.8, 0.95):
        events = int(settings.events * part)
        if 0 < events < settings.events:
            yield settings.replace(events=events)
