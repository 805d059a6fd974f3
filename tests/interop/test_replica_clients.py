"""Kafka clients that were not written here read every golden bucket through ``tierlog replica``."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.support.golden import Case, answers, config_of, tiered_offsets, tiered_topics
from tests.support.replica_readers import READERS, ReadRow
from tests.support.replica_server import replica

pytestmark = pytest.mark.interop

ISOLATIONS = ("read_uncommitted", "read_committed")


def cases_by_run(fixtures: pathlib.Path) -> Iterator[tuple[pathlib.Path, list[Case]]]:
    found: dict[pathlib.Path, list[Case]] = {}
    for case in tiered_topics(fixtures):
        found.setdefault(case.run, []).append(case)
    yield from found.items()


def expected_rows(case: Case, isolation: str, *, with_headers: bool) -> list[ReadRow] | None:
    rows = answers(case, isolation)
    if rows is None:
        return None
    return sorted(
        (
            partition,
            offset,
            timestamp_ms,
            key,
            value,
            tuple((name.encode(), content) for name, content in headers) if with_headers else (),
        )
        for partition, offset, timestamp_ms, _, _, key, value, headers in rows
    )


def within(case: Case, rows: list[ReadRow], expected: list[ReadRow]) -> list[ReadRow]:
    """Of the rows read those of offsets that the golden answers cover: see ``answers``."""
    ends: dict[int, int] = {}
    for partition, (_, last) in tiered_offsets(case).items():
        known = [row[1] for row in expected if row[0] == partition]
        ends[partition] = max(known, default=-1) if known else last
    return [row for row in rows if row[1] <= ends.get(row[0], -1)]


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
                    assert within(case, found, expected) == expected, f"{case} {isolation}"
                    compared += 1
    assert compared > 20
