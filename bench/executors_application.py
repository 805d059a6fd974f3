"""A side of ``bench.spark_executors``: with a jar and a number, a Spark session of so many executors; else one process.

A question names a ``path``, and a process its ``partitions``; ``op`` is "read" or, of a session, "check".
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.harness import serve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOPIC = "orders"
_MEMORY_MIB = 1600


def session(jar: str, executors: int) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local-cluster[{executors},1,{_MEMORY_MIB}]").appName("tierlog-bench")
    keys = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.memory": f"{_MEMORY_MIB}m",
        "spark.driver.extraClassPath": jar,
        "spark.executor.extraClassPath": jar,
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in keys.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def by_spark(spark: SparkSession, question: Mapping[str, Any]) -> dict[str, Any]:
    start = time.perf_counter()
    frame = spark.read.format("tierlog").options(path=question["path"], subscribe=_TOPIC, engine="jar").load()
    if question["op"] == "check":
        row = frame.selectExpr("count(*)", "sum(length(value))").collect()[0]
        return {"answer": [int(each) for each in row]}
    frame.write.format("noop").mode("overwrite").save()
    return {"wall": time.perf_counter() - start}


def by_arrow(question: Mapping[str, Any]) -> dict[str, Any]:
    import pyarrow.compute as pc

    import tierlog

    start, rows, size = time.perf_counter(), 0, 0
    with tierlog.read(question["path"], _TOPIC, partitions=question["partitions"], threads=1) as reader:
        for batch in reader:
            rows += batch.num_rows
            size += pc.sum(pc.binary_length(batch["value"])).as_py() or 0
    return {"wall": time.perf_counter() - start, "answer": [rows, size]}


def main() -> None:
    if len(sys.argv) == 1:
        serve(by_arrow)
        return
    spark = session(sys.argv[1], int(sys.argv[2]))
    serve(lambda question: by_spark(spark, question))
    spark.stop()


if __name__ == "__main__":
    main()
