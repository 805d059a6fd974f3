"""Kafka clients that were not written here read every golden bucket through ``tierlog replica``."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.support.golden import Case, config_of, tiered_offsets, tiered_topics
from tests.support.replica_readers import READERS, by_kafka_go, expected_rows, within
from tests.support.replica_server import replica

pytestmark = pytest.mark.interop

ISOLATIONS = ("read_uncommitted", "read_committed")


def cases_by_run(fixtures: pathlib.Path) -> Iterator[tuple[pathlib.Path, list[Case]]]:
    found: dict[pathlib.Path, list[Case]] = {}
    for case in tiered_topics(fixtures):
        found.setdefault(case.run, []).append(case)
    yield from found.items()


@pytest.mark.parametrize("client", READERS)
def test_a_client_reads_what_a_real_consumer_read(client: str, fixtures: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Otherwise history differs by the language that reads it."""
    compared = 0
    for run, cases in cases_by_run(fixtures):
        folder = tmp_path / run.name
        folder.mkdir()
        with replica(run / "objects", folder, config=config_of(run)) as server:
            for case in cases:
                partitions = sorted(tiered_offsets(case))
                for isolation in ISOLATIONS:
                    expected = expected_rows(case, isolation, with_headers=client != "kcat")
                    if expected is None or not partitions:
                        continue
                    found = READERS[client](server.bootstrap, case.topic, isolation, partitions)
                    if client == "kafka-go":
                        found, expected = (by_kafka_go(rows, case, isolation) for rows in (found, expected))
                    assert within(case, found, expected) == expected, f"{case} {isolation}"
                    compared += 1
    assert compared > 20
