"""Every golden bucket behind `tierlog replica`, one after the other, with the topics that it holds."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator, Mapping

from tests.support.golden import ISOLATIONS, Case, config_of, tiered_topics
from tests.support.replica_readers import ReadRow, expected_rows
from tests.support.replica_server import RunningReplica, replica


def golden_replicas(
    fixtures: pathlib.Path, folder: pathlib.Path, config: Mapping[str, str] | None = None
) -> Iterator[tuple[RunningReplica, list[Case]]]:
    """A replica, and the topics of its bucket; the next one is asked for when it is done with.

    Args:
        fixtures: The golden data.
        folder: For configurations and logs.
        config: Lines of ``--config`` beside those that the bucket needs.
    """
    found: dict[pathlib.Path, list[Case]] = {}
    for case in tiered_topics(fixtures):
        found.setdefault(case.run, []).append(case)
    for run, cases in found.items():
        own = folder / run.name
        own.mkdir()
        with replica(run / "objects", own, config=config_of(run) | dict(config or {})) as server:
            yield server, cases


def expected_reads(cases: Iterable[Case]) -> Iterator[tuple[Case, str, list[ReadRow]]]:
    """(topic, isolation level, what a real consumer read), where there are any records."""
    for case in cases:
        for isolation in ISOLATIONS:
            expected = expected_rows(case, isolation)
            if expected:
                yield case, isolation, expected
