"""Spark's own Kafka source as a process that is asked for topics: ``spark_kafka_reads``."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterator

from tests.support.line_process import LineProcess
from tests.support.peers import install
from tests.support.replica_readers import ReadRow, rows_of_lines

QUERY_SECONDS = 240.0


class SparkReader:
    """Spark, which reads one topic after the other."""

    def __init__(self, process: LineProcess, out: pathlib.Path) -> None:
        self._process, self._out = process, out

    def read(
        self, bootstrap: str, topic: str, isolation: str, *, records_per_batch: int = 0
    ) -> tuple[list[ReadRow], int]:
        """All records of a topic, and in how many micro-batches they came: 0 for a batch read."""
        asked = {"bootstrap": bootstrap, "topic": topic, "isolation": isolation, "out": str(self._out)}
        question = json.dumps(asked | {"records_per_batch": records_per_batch})
        batches = int(self._process.ask(question, seconds=QUERY_SECONDS))
        return rows_of_lines(self._out.read_text()), batches


@contextlib.contextmanager
def spark_reading(folder: pathlib.Path) -> Iterator[SparkReader]:
    """Run Spark until the block ends."""
    command = [str(install.python()), "-m", "tests.support.spark_kafka_reads", install.class_path("spark-kafka")]
    with LineProcess(command, folder / "spark.err", environment=install.environment()) as process:
        yield SparkReader(process, folder / "rows.jsonl")
