"""Reads a small tiered bucket through Spark and plots it: what ``make demo`` runs.

The bucket lies in ``tests/data``: objects that Kafka 4.3.1 and the Aiven plugin wrote, compressed and encrypted. No
broker runs. The plot and the storage configuration go to ``out/demo``. With the jar of ``make jar`` the executors' JVM
reads; Python workers then read the same, and both times are printed.
"""

from __future__ import annotations

import pathlib
import time

from matplotlib.figure import Figure
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_tierlog import jar_path
from tierlog.errors import ConfigError

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
DATA = CHECKOUT / "tests" / "data"
BUCKET = DATA / "zstd-aes" / "objects"
KEYS = DATA / "keys" / "k1"
OUT = CHECKOUT / "out" / "demo"
TOPICS = "fx-zstd-a-.*"
BIN_SECONDS = 10


def write_storage_config() -> pathlib.Path:
    """Write the broker's own ``rsm.config.*`` settings to a file: keys in options would reach Spark's event log."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / "broker.properties"
    path.write_text(
        "rsm.config.chunk.size=16384\n"
        "rsm.config.compression.enabled=true\n"
        "rsm.config.encryption.enabled=true\n"
        "rsm.config.encryption.key.pair.id=k1\n"
        "rsm.config.encryption.key.pairs=k1\n"
        f"rsm.config.encryption.key.pairs.k1.public.key.file={KEYS / 'public.der'}\n"
        f"rsm.config.encryption.key.pairs.k1.private.key.file={KEYS / 'private.der'}\n"
    )
    return path


def read(spark: SparkSession, *, engine: str = "auto") -> DataFrame:
    return (
        spark.read.format("tierlog")
        .option("engine", engine)
        .option("path", str(BUCKET))
        .option("subscribePattern", TOPICS)
        .option("kafka.isolation.level", "read_committed")
        .option("includeHeaders", "true")
        .option("rsm.config.file", str(write_storage_config()))
        .load()
    )


def show(records: DataFrame) -> None:
    print(f"\nThe schema, that of Spark's Kafka source ({BUCKET.relative_to(CHECKOUT)}, no broker):\n")
    records.printSchema()
    print("The first rows:\n")
    text = [f.substring(f.col(name).cast("string"), 1, 28).alias(name) for name in ("key", "value")]
    (
        records.orderBy("topic", "partition", "offset")
        .select("topic", "partition", "offset", "timestamp", *text, f.size("headers").alias("headers"))
        .show(8, truncate=False)
    )
    print("Records by partition:\n")
    (
        records.groupBy("topic", "partition")
        .agg(f.count("*").alias("records"), f.min("offset").alias("first"), f.max("offset").alias("last"))
        .orderBy("topic", "partition")
        .show(truncate=False)
    )


def compare_engines(spark: SparkSession) -> None:
    """Wall seconds of hashing all columns with each engine, in its second run: the first one warms up."""
    print("\nThe hash of all records through both engines (the second run of each):\n")
    for engine in ("jar", "python"):
        for _ in range(2):
            start = time.perf_counter()
            columns = read(spark, engine=engine).drop("headers")
            answer = columns.selectExpr("count(*)", "bit_xor(xxhash64(*))").collect()[0]
            seconds = time.perf_counter() - start
        print(f"  engine={engine}: {seconds:.2f} s, {answer[0]} records, hash {answer[1]}")


def find_jar() -> str | None:
    try:
        return jar_path()
    except ConfigError as error:
        print(f"Without the fast path: {error}")
        return None


def plot(records: DataFrame) -> pathlib.Path:
    """Plot records over time, one line for each partition."""
    second = f.unix_timestamp("timestamp")
    bins = (
        records.groupBy("topic", "partition", (second - second % BIN_SECONDS).alias("second"))
        .count()
        .orderBy("topic", "partition", "second")
        .collect()
    )
    start = min(row["second"] for row in bins)
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots()
    for topic, partition in sorted({(row["topic"], row["partition"]) for row in bins}):
        counts = {row["second"]: row["count"] for row in bins if (row["topic"], row["partition"]) == (topic, partition)}
        seconds = range(min(counts), max(counts) + BIN_SECONDS, BIN_SECONDS)
        axes.plot([s - start for s in seconds], [counts.get(s, 0) for s in seconds], label=f"{topic}-{partition}")
    axes.set_xlabel("seconds since the first record")
    axes.set_ylabel(f"records in {BIN_SECONDS} s")
    axes.set_title("Records over time, read from the bucket")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    path = OUT / "records-over-time.png"
    figure.savefig(path, dpi=120)
    return path


def main() -> None:
    jar = find_jar()
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("tierlog demo")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.jars", jar or "")
        .getOrCreate()
    )
    try:
        records = read(spark)
        show(records)
        if jar:
            compare_engines(spark)
        print(f"\nThe plot of records over time: {plot(records)}")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
