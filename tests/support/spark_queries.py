"""A Spark session as a process, which runs queries of Spark's Kafka source and of ours over the same topic.

    python -m tests.support.spark_queries SETTINGS

``SETTINGS`` are the session's, in JSON; with ``connect``, a port, its queries go through a Spark Connect server. A line
of stdin asks: ``{"format", "options", "out", "checkpoint"}``; with a ``checkpoint`` the query is a stream of all that
is there now, which adds to ``out``, else a batch read, of what passes ``where`` if there is one. Records go to ``out``
as Parquet. In the place of ``out`` a stream may have ``lines`` of Python, which start a ``query`` over the stream
``orders``. A line ``{"sql"}`` is a statement of Spark's. The answer is a line of JSON: ``{"error"}``, null if there was
none, ``{"tasks"}``, the partitions of a batch read, and ``{"batches"}``, those of a stream that had rows; Connect tells
neither.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession

COLUMNS = ("partition", "offset", "unix_millis(timestamp) AS timestamp", "timestampType", "key", "value", "headers")


def main() -> None:
    builder = SparkSession.builder.master("local[2]").appName("tierlog-seam").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.sql.python.filterPushdown.enabled", "true")
    settings = json.loads(sys.argv[1])
    port = settings.pop("connect", None)
    if port is not None:
        settings["spark.plugins"] = "org.apache.spark.sql.connect.SparkConnectPlugin"
        settings["spark.connect.grpc.binding.port"] = port
    for name, value in settings.items():
        builder = builder.config(name, value)
    server = builder.getOrCreate()
    server.sparkContext.setLogLevel("OFF")
    spark = server if port is None else connected(port)
    for line in sys.stdin:
        print(json.dumps(answer(spark, json.loads(line))), flush=True)
    if port is not None:
        os._exit(0)  # the server would wait for its sessions
    spark.stop()


def connected(port: str) -> Any:
    from pyspark.sql.connect.session import SparkSession as Remote

    return Remote.builder.remote(f"sc://127.0.0.1:{port}").create()


def answer(spark: SparkSession, question: dict[str, Any]) -> dict[str, object]:
    try:
        if "sql" in question:
            spark.sql(question["sql"])
            return {"error": None, "tasks": 0, "batches": 0}
        return streamed(spark, question) if "checkpoint" in question else batch(spark, question)
    except Exception as error:  # noqa: BLE001 - the test wants its text
        return {"error": str(error), "tasks": 0, "batches": 0}


def batch(spark: SparkSession, question: dict[str, Any]) -> dict[str, object]:
    frame = spark.read.format(question["format"]).options(**question["options"]).load()
    if "where" in question:
        frame = frame.where(question["where"])
    frame = frame.selectExpr(*question.get("columns", COLUMNS))
    tasks = frame.rdd.getNumPartitions() if isinstance(spark, SparkSession) else 0
    frame.write.mode("overwrite").parquet(question["out"])
    return {"error": None, "tasks": tasks, "batches": 0}


def streamed(spark: SparkSession, question: dict[str, Any]) -> dict[str, object]:
    reader = spark.readStream.format(question["format"]).options(**question["options"]).load()
    if "lines" in question:
        names = {"spark": spark, "orders": reader, "checkpoint": question["checkpoint"]}
        exec(question["lines"], names)  # a page's own
        query: Any = names["query"]
        query.processAllAvailable()
        query.stop()
    else:
        writer = reader.selectExpr(*question.get("columns", COLUMNS)).writeStream.format("parquet")
        writer = writer.option("path", question["out"]).option("checkpointLocation", question["checkpoint"])
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    batches = sum(bool(each["numInputRows"]) for each in query.recentProgress)
    return {"error": None, "tasks": 0, "batches": batches}


if __name__ == "__main__":
    main()
