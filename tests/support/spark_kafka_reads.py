"""Spark's own Kafka source as a process: reads topics and writes their records as lines of JSON.

    python -m tests.support.spark_kafka_reads JARS

Run by the peers' interpreter (``tests.support.peers.install``): the source has no release for the newest Spark. A line
of stdin asks, ``{"bootstrap", "topic", "isolation", "out", "records_per_batch"}``. Records go to the file ``out``
in the form of the other readers; then the answer is the number of micro-batches, 0 for a batch read, which
``records_per_batch`` 0 asks for.
"""

from __future__ import annotations

import base64
import json
import pathlib
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

COLUMNS = ("partition", "offset", "unix_millis(timestamp) AS timestamp", "key", "value", "headers")


def main() -> None:
    builder = SparkSession.builder.master("local[2]").appName("tierlog-replica").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.extraClassPath", sys.argv[1]).config("spark.sql.session.timeZone", "UTC")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    for line in sys.stdin:
        question = json.loads(line)
        frame, batches = streamed(spark, question) if question["records_per_batch"] else (batch(spark, question), 0)
        with pathlib.Path(question["out"]).open("w") as out:
            out.writelines(json.dumps(found) + "\n" for found in lines(frame.selectExpr(*COLUMNS).collect()))
        print(batches, flush=True)
    spark.stop()


def options(question: dict[str, Any]) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": question["bootstrap"],
        "kafka.isolation.level": question["isolation"],
        "subscribe": question["topic"],
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }


def batch(spark: SparkSession, question: dict[str, Any]) -> DataFrame:
    return spark.read.format("kafka").options(**options(question)).load()


def streamed(spark: SparkSession, question: dict[str, Any]) -> tuple[DataFrame, int]:
    """What a stream of all that is there now has written, and in how many micro-batches."""
    reader = spark.readStream.format("kafka").options(**options(question))
    frame = reader.option("maxOffsetsPerTrigger", question["records_per_batch"]).load()
    with tempfile.TemporaryDirectory() as folder:
        writer = frame.writeStream.format("memory").queryName("streamed").option("checkpointLocation", folder)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        batches = sum(each["numInputRows"] > 0 for each in query.recentProgress)
    return spark.table("streamed"), batches


def lines(rows: Iterable[Row]) -> Iterable[dict[str, object]]:
    for found in rows:
        headers = [[text(header["key"].encode()), text(header["value"])] for header in found["headers"] or ()]
        known = {name: found[name] for name in ("partition", "offset", "timestamp")}
        yield known | {"key": text(found["key"]), "value": text(found["value"]), "headers": headers}


def text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


if __name__ == "__main__":
    main()
