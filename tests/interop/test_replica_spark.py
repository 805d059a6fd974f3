"""Spark's own Kafka source reads every golden bucket through ``tierlog replica``."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.support.golden import ISOLATIONS, tiered_offsets
from tests.support.golden_replicas import golden_replicas
from tests.support.metadata_cluster import needs_a_broker
from tests.support.replica_readers import expected_rows
from tests.support.spark_reader import SparkReader, spark_reading

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def spark_reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkReader]:
    needs_a_broker()
    with spark_reading(tmp_path_factory.mktemp("spark")) as reader:
        yield reader


def test_a_batch_read_is_what_a_real_consumer_read(
    spark_reader: SparkReader, fixtures: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A job that reads history through Spark's own source would compute on other records than the broker had."""
    compared = 0
    for server, cases in golden_replicas(fixtures, tmp_path):
        for case in cases:
            for isolation in ISOLATIONS:
                expected = expected_rows(case, isolation)
                if expected is None or not tiered_offsets(case):
                    continue
                found, _ = spark_reader.read(server.bootstrap, case.topic, isolation)
                assert found == expected, f"{case} {isolation}"
                compared += 1
    assert compared > 60


def test_a_stream_of_what_is_there_now_ends_with_all_of_it(
    spark_reader: SparkReader, fixtures: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Trigger.AvailableNow over a replica would skip, repeat, or never end: transactions and markers leave gaps."""
    streamed = 0
    for server, cases in golden_replicas(fixtures, tmp_path):
        for case in cases:
            if not case.topic.endswith(("-txn", "-json")):
                continue
            expected = expected_rows(case, "read_committed")
            assert expected
            found, batches = spark_reader.read(
                server.bootstrap, case.topic, "read_committed", records_per_batch=len(expected) // 3
            )
            assert found == expected, case
            assert batches > 2, case
            streamed += 1
            break
    assert streamed > 5
