"""Kafka clients that were not written here read every golden bucket through ``tierlog replica``."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.golden import ISOLATIONS, tiered_offsets
from tests.support.golden_replicas import golden_replicas
from tests.support.replica_readers import READERS, by_kafka_go, expected_rows, within

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("client", READERS)
def test_a_client_reads_what_a_real_consumer_read(client: str, fixtures: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Otherwise history differs by the language that reads it."""
    compared = 0
    for server, cases in golden_replicas(fixtures, tmp_path):
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
    assert compared > 60
