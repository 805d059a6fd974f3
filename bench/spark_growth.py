"""One query over growing parts of one topic, and one with a filter by time, through Tierlog's columnar reader alone.

Run by the peers' interpreter, as ``bench/spark_source.py``; prints one JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.spark_source import QUERIES, cpu_seconds, session


def load(spark: SparkSession, path: str, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("tierlog").option("path", path).option("engine", "jar").option("subscribe", topic)
    return reader.options(**options).load()


def fetched_bytes(frame: DataFrame) -> int:
    """What the scan of this query fetched, by its own metric; runs the query."""
    execution = frame._jdf.queryExecution()
    execution.toRdd().count()
    leaves = execution.executedPlan().collectLeaves()
    return sum(int(leaves.apply(i).metrics().apply("tierlogBytesFetched").value()) for i in range(leaves.size()))


def growth(spark: SparkSession, path: str, topic: str, ends: dict[str, dict[str, int]], runs: int) -> None:
    """CPU seconds of the noop query up to each of the offsets, in turn."""
    for number in range(runs + 1):
        for name, offsets in ends.items():
            frame = load(spark, path, topic, endingOffsets=json.dumps({topic: offsets}))
            cpu, start = cpu_seconds([os.getpid()]), time.perf_counter()
            QUERIES["noop"](frame)
            wall = round(time.perf_counter() - start, 3)
            told: dict[str, Any] = {"part": name, "run": number, "wall": wall}
            print(json.dumps({**told, "cpu": round(cpu_seconds([os.getpid()]) - cpu, 2)}), flush=True)


def filtered(spark: SparkSession, path: str, topic: str) -> None:
    """Bytes fetched by a full scan, and of the middle tenth by time; the records of the second are counted twice."""
    whole = load(spark, path, topic)
    low, high = whole.selectExpr("min(timestamp)", "max(timestamp)").collect()[0]
    first, last = low + (high - low) * 0.45, low + (high - low) * 0.55
    tenth = whole.where((whole.timestamp >= first) & (whole.timestamp < last))
    found = tenth.selectExpr("count(*)", "count_if(value is null)").collect()[0][0]
    slow = whole.selectExpr(f"count_if(timestamp >= '{first}' and timestamp < '{last}')").collect()[0][0]
    if found != slow:
        raise SystemExit(f"the filter gives {found} records, counting all gives {slow}")
    segments = spark.read.format("tierlog").option("path", path).option("subscribe", topic).option("table", "segments")
    told = {"full": fetched_bytes(whole), "tenth": fetched_bytes(tenth), "segments": segments.load().count()}
    print(json.dumps({**told, "records": found}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--ends", default="", help="JSON: part to partition to end offset; without: the filter")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--jars", required=True)
    arguments = parser.parse_args()
    spark = session(arguments.jars, "4g")
    if arguments.ends:
        growth(spark, arguments.path, arguments.topic, json.loads(arguments.ends), arguments.runs)
    else:
        filtered(spark, arguments.path, arguments.topic)
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
