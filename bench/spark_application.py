"""Spark's Kafka source, Tierlog's two engines and Parquet over the same records, in one Spark application, in turn.

Run by the peers' interpreter (``tests/support/peers/install.py``); prints one JSON object a line: the source, query,
wall seconds with ``load()`` and planning, planning once more alone, CPU seconds of the whole process tree (JVM, Python
workers and planner, broker), and the answer.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

TUNED = {
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.max.poll.records": "5000",
}
QUERIES: dict[str, Callable[[DataFrame], object]] = {
    "noop": lambda frame: frame.write.format("noop").mode("overwrite").save(),
    "hash": lambda frame: list(
        frame.selectExpr(
            "count(*)", "bit_xor(xxhash64(key, value, topic, partition, offset, timestamp, timestampType))"
        ).collect()[0]
    ),
    "length": lambda frame: frame.selectExpr("sum(length(value))").collect()[0][0],
    "count": lambda frame: frame.count(),
    "latest": lambda frame: str(frame.selectExpr("max(timestamp)").collect()[0][0]),
}
"""What is asked, and its answer; all sources have to give the same."""


def session(jars: str, heap: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("tierlog-bench")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.memory", heap)
    builder = builder.config("spark.driver.extraClassPath", jars).config("spark.sql.session.timeZone", "UTC")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def loaders(spark: SparkSession, arguments: argparse.Namespace) -> dict[str, Callable[[], DataFrame]]:
    """Source to what loads the topic from it."""
    topic = arguments.topic

    def kafka(extra: dict[str, str]) -> DataFrame:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", arguments.bootstrap)
        return until(reader.option("subscribe", topic)).options(**extra).load()

    def tierlog(engine: str, **extra: str) -> DataFrame:
        reader = spark.read.format("tierlog").option("path", arguments.path).option("engine", engine)
        return until(reader.option("subscribe", topic)).options(**json.loads(arguments.options), **extra).load()

    def until(reader: DataFrameReader) -> DataFrameReader:
        return reader.option("endingOffsets", arguments.until) if arguments.until else reader

    def parquet(codec: str) -> DataFrame:
        folder = pathlib.Path(arguments.parquet) / topic / codec
        if not folder.exists():
            tierlog("jar").write.option("compression", codec).parquet(str(folder))
        return spark.read.parquet(str(folder))

    made: dict[str, Callable[[], DataFrame]] = {
        "kafka-default": lambda: kafka({}),
        "kafka-tuned": lambda: kafka(TUNED),
        "tierlog-python": lambda: tierlog("python"),
        "tierlog-jar": lambda: tierlog("jar"),
        "tierlog-jar-headers": lambda: tierlog("jar", headerAnswers="true"),
        "tierlog-jar-footers": lambda: tierlog("jar", **{"rsm.footer.path": arguments.footers}),
        "parquet-none": lambda: parquet("none"),
        "parquet-snappy": lambda: parquet("snappy"),
        "parquet-zstd": lambda: parquet("zstd"),
    }
    return {name: made[name] for name in arguments.sources}


def process_tree(roots: list[int]) -> dict[int, float]:
    """Process to CPU seconds, ended children that were waited for among them: the roots and all their descendants."""
    children: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        fields = text.rpartition(")")[2].split()
        pid = int(stat.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        used[pid] = sum(map(int, fields[11:15])) / tick
    found: dict[int, float] = {}
    todo = list(roots)
    while todo:
        pid = todo.pop()
        if pid in used:
            found[pid] = used[pid]
            todo.extend(children.get(pid, []))
    return found


def planning_seconds(frame: DataFrame) -> float:
    """Seconds of making a physical plan with its partitions, without running it."""
    start = time.perf_counter()
    frame._jdf.queryExecution().toRdd().getNumPartitions()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="")
    parser.add_argument("--broker-pid", type=int, default=0)
    parser.add_argument("--path", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--sources", nargs="+", required=True)
    parser.add_argument("--queries", nargs="+", choices=QUERIES, required=True)
    parser.add_argument("--until", default="", help="endingOffsets, of all but Parquet")
    parser.add_argument("--options", default="{}", help="more options of Tierlog's sources, JSON")
    parser.add_argument("--parquet", default="", help="a folder of copies, which are written where they are missing")
    parser.add_argument("--footers", default="", help="where the footers of the tier are")
    parser.add_argument("--checks", nargs="*", choices=QUERIES, default=(), help="queries of the warm-up alone")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--jars", default="")
    parser.add_argument("--heap", default="4g")
    arguments = parser.parse_args()
    spark = session(arguments.jars, arguments.heap)
    roots = [os.getpid()] + ([arguments.broker_pid] if arguments.broker_pid else [])
    for number in range(arguments.runs + 1):
        for query in (*arguments.queries, *(arguments.checks if number == 0 else ())):
            for source, load in loaders(spark, arguments).items():
                cpu, start = sum(process_tree(roots).values()), time.perf_counter()
                answer = QUERIES[query](load())
                row = {
                    "source": source,
                    "query": query,
                    "run": number,
                    "wall": round(time.perf_counter() - start, 3),
                    "cpu": round(sum(process_tree(roots).values()) - cpu, 2),
                    "answer": answer,
                    "planning": round(planning_seconds(load()), 3),
                }
                print(json.dumps(row), flush=True)
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
