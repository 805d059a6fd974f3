"""Streams of all that is there now, by Spark's Kafka source and by ours, in one Spark application, in turn.

Run by the peers' interpreter (``tests/support/peers/install.py``); prints one JSON object a line: the source, wall
seconds from ``load()`` to the end of the query, CPU seconds of Spark's process tree and of the broker, rows, and
micro-batches.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time

from pyspark.sql import DataFrame, SparkSession

from bench.spark_application import TUNED, process_tree, session

SOURCES = ("kafka-default", "kafka-tuned", "tierlog-jar", "tierlog-python", "tierlog-preferred")


def load(spark: SparkSession, source: str, arguments: argparse.Namespace) -> DataFrame:
    ours = source.startswith("tierlog")
    reader = spark.readStream.format("tierlog" if ours else "kafka").option("subscribe", arguments.topic)
    reader = reader.option("startingOffsets", "earliest")
    if source == "kafka-tuned":
        reader = reader.options(**TUNED)
    if ours:
        engine = "python" if source == "tierlog-python" else "jar"
        reader = reader.options(**json.loads(arguments.options), path=arguments.path, engine=engine)
    if source == "tierlog-preferred":
        reader = reader.option("mode", "remote-preferred").options(**TUNED)
    if not ours or source == "tierlog-preferred":
        reader = reader.option("kafka.bootstrap.servers", arguments.bootstrap)
    return reader.load()


def run(spark: SparkSession, source: str, arguments: argparse.Namespace) -> tuple[int, int]:
    """Rows and micro-batches of a query without a sink."""
    with tempfile.TemporaryDirectory() as folder:
        writer = load(spark, source, arguments).writeStream.format("noop").option("checkpointLocation", folder)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        counts = [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]
    return sum(counts), len(counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--broker-pid", type=int, required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--sources", nargs="+", choices=SOURCES, required=True)
    parser.add_argument("--options", default="{}", help="more options of Tierlog's sources, JSON")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--jars", required=True)
    parser.add_argument("--heap", default="4g")
    arguments = parser.parse_args()
    spark = session(arguments.jars, arguments.heap)
    ours, brokers = [os.getpid()], [arguments.broker_pid]
    for number in range(arguments.runs + 1):
        for source in arguments.sources:
            before = [sum(process_tree(roots).values()) for roots in (ours, brokers)]
            start = time.perf_counter()
            rows, batches = run(spark, source, arguments)
            wall = time.perf_counter() - start
            after = [sum(process_tree(roots).values()) for roots in (ours, brokers)]
            cpu, broker_cpu = (round(late - early, 2) for early, late in zip(before, after, strict=True))
            row = {"source": source, "run": number, "wall": round(wall, 3), "rows": rows, "batches": batches}
            print(json.dumps(row | {"cpu": cpu, "broker_cpu": broker_cpu}), flush=True)
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
