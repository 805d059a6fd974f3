"""Spark's Kafka source and Tierlog's over the same records, in one Spark application, run in turn.

Run by the peers' interpreter (see ``bench/peers/install.py``); prints one JSON object a line: the variant, the query,
wall seconds, CPU seconds of the whole process tree (JVM, Python workers, broker), and the answer. The answers must be
equal before a time counts.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import time

from pyspark.sql import DataFrame, SparkSession

TUNED = {
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.max.poll.records": "5000",
}
HASH = ("count(*) AS n", "bit_xor(xxhash64(key, value, topic, partition, offset, timestamp, timestampType)) AS h")


def session(jars: str, heap: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("tierlog-bench")
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", heap)
    builder = builder.config("spark.driver.extraClassPath", jars).config("spark.sql.session.timeZone", "UTC")
    for pair in os.environ.get("TIERLOG_BENCH_SPARK_CONF", "").split(","):
        if pair:
            builder = builder.config(*pair.split("=", 1))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def variants(bootstrap: str, path: str, topic: str, spark: SparkSession) -> dict[str, object]:
    def kafka(extra: dict[str, str]) -> DataFrame:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
        return reader.options(**extra).load()

    def tierlog() -> DataFrame:
        return spark.read.format("tierlog").option("path", path).option("subscribe", topic).load()

    made: dict[str, object] = {}
    if bootstrap:
        made = {"kafka-default": lambda: kafka({}), "kafka-tuned": lambda: kafka(TUNED)}
    return made | {"tierlog": tierlog}


def cpu_seconds(roots: list[int]) -> float:
    """User and system seconds of the processes and all their descendants, ended ones included where waited for."""
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
    total, todo = 0.0, list(roots)
    while todo:
        pid = todo.pop()
        total += used.get(pid, 0.0)
        todo.extend(children.get(pid, []))
    return total


def run(query: str, frame: DataFrame) -> object:
    if query == "noop":
        frame.write.format("noop").mode("overwrite").save()
        return None
    return list(frame.selectExpr(*HASH).collect()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="")
    parser.add_argument("--broker-pid", type=int, default=0)
    parser.add_argument("--path", required=True)
    parser.add_argument("--topics", nargs="+", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--jars", default="")
    parser.add_argument("--heap", default="4g")
    arguments = parser.parse_args()
    spark = session(arguments.jars, arguments.heap)
    roots = [os.getpid()] + ([arguments.broker_pid] if arguments.broker_pid else [])
    for topic in arguments.topics:
        sources = variants(arguments.bootstrap, arguments.path, topic, spark)
        for number in range(arguments.runs + 1):
            for query in ("hash", "noop"):
                for name, load in sources.items():
                    cpu, start = cpu_seconds(roots), time.perf_counter()
                    answer = run(query, load())
                    wall = time.perf_counter() - start
                    row = {
                        "topic": topic,
                        "variant": name,
                        "query": query,
                        "run": number,
                        "wall": round(wall, 3),
                        "cpu": round(cpu_seconds(roots) - cpu, 2),
                        "answer": answer,
                    }
                    print(json.dumps(row), flush=True)
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
