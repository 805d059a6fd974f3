"""Spark where users are: a topic whose closed segments lie in the tier alone, by Kafka's source, by ours, as Parquet.

    TIERLOG_PLUGIN_JARS=FOLDER python -m bench.spark_tier [--scale 0.01] [--runs 5] [--forms plain,zstd+AES]
                                                          [--queries noop,length] [--cache none] [--work FOLDER]

A real broker (KRaft, one process on loopback) copies 2 GB to its tier, which is a folder, and deletes them locally; one
record a partition stays and is left out by everyone's ``endingOffsets``. The tier is the plugin's where
TIERLOG_PLUGIN_JARS names its jars, else Kafka's LocalTieredStorage of its test jars, which knows plain objects alone.
Kafka's source reads through that broker, with its default options and tuned; ours reads the tier's folder by both its
engines; the Parquet copies are written by Spark from the same rows. All in one application, in turn, from the page
cache. Count, sum of lengths and hash of all columns are equal before a time counts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence

from bench import spark
from bench.machine import facts
from bench.report import table
from bench.side_by_side import ROUNDS, Comparison, save
from bench.storage_segment import folder_keys, form_keys
from tests.support.peers import broker, install, plugin

FORMS = ("plain", "zstd + AES")
PARQUET = {f"parquet-{codec}": f"Parquet, {codec}" for codec in ("none", "snappy", "zstd")}
PEERS = {**spark.KAFKA, **PARQUET}
CHECKS = ("count", "length", "hash")
SEGMENT_BYTES = 64 << 20
PATIENCE_SECONDS = 600.0
MONTH_MS = 30 * 24 * 3600 * 1000
#: Form to what the columnar reader's speed by Kafka's source, default and tuned, has to be.
KAFKA_BARS = {"plain": 10.0, "zstd + AES": 7.0}
PARQUET_BAR = 1.0
CACHE_BYTES, HEAP = 512 << 20, "2g"
"""Of the broker: the plugin's cache lies on its heap."""


def plugin_keys(form: str, root: pathlib.Path, folder: pathlib.Path) -> dict[str, str]:
    """The plugin's keys, without their prefix; key files are copied into the folder."""
    return plugin.with_pem_keys(form_keys(form) | folder_keys(root) | {"key.prefix": "tier/"}, folder)


def broker_settings(
    form: str, root: pathlib.Path, folder: pathlib.Path, cache: str, cache_bytes: int
) -> dict[str, str]:
    """Settings of a broker that tiers at once and keeps no closed segment."""
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "1000",
        "log.retention.check.interval.ms": "1000",
    }
    if plugin.jars():
        keys = plugin_keys(form, root, folder)
        if cache == "memory":
            keys["fetch.chunk.cache.class"] = "io.aiven.kafka.tieredstorage.fetch.cache.MemoryChunkCache"
            keys["fetch.chunk.cache.size"] = str(cache_bytes)
            keys["fetch.chunk.cache.prefetch.max.size"] = str(16 << 20)
        manager, jars = plugin.MANAGER, ":".join(map(str, plugin.jars()))
    else:
        keys = {"dir": str(root)}
        manager = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
        jars = install.class_path("kafka-tier")
    settings |= {"remote.log.storage.manager.class.name": manager, "remote.log.storage.manager.class.path": jars}
    return settings | {f"rsm.config.{name}": value for name, value in keys.items()}


def our_options(form: str, root: pathlib.Path, folder: pathlib.Path) -> dict[str, str]:
    """The options with which our source reads that tier."""
    if not plugin.jars():
        return {}
    return {f"rsm.config.{name}": value for name, value in plugin_keys(form, root, folder).items() if "encrypt" in name}


def left_locally(log_dir: pathlib.Path, topic: str) -> dict[str, list[int]]:
    """Partition to the base offsets of its local segments, ones that wait for their deletion among them."""
    return {
        str(number): sorted(int(path.name.split(".")[0]) for path in (log_dir / f"{topic}-{number}").glob("*.log*"))
        for number in range(spark.PARTITIONS)
    }


def tiered(running: broker.Broker, topic: str) -> dict[str, int]:
    """Wait until only the last segment of each partition is left; partition to the first offset that is not tiered."""
    rolling = ["roll", running.bootstrap, topic, str(spark.PARTITIONS)]
    command = [str(install.python()), "-m", "bench.peers.produce", *rolling]
    subprocess.run(command, check=True, env=install.environment(), cwd=install.ROOT)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        left = left_locally(running.log_dir, topic)
        if all(len(segments) == 1 and segments[0] > 0 for segments in left.values()):
            return {partition: segments[0] for partition, segments in left.items()}
        if time.monotonic() > deadline:
            raise SystemExit(f"{topic}: closed segments are still on the broker's disk: {left}")
        time.sleep(1)


def log_bytes(root: pathlib.Path) -> int:
    """Size of the logs as the tier stores them."""
    return sum(path.stat().st_size for path in root.rglob("*.log"))


def comparisons(rows: Sequence[spark.Row], form: str, query: str, notes: Mapping[str, object]) -> list[Comparison]:
    """Both of our engines against all peers, over the rounds behind the warm-up."""
    walls: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    for row in rows:
        if row["query"] == query and row["run"] > 0:
            walls.setdefault(row["source"], []).append(row["wall"])
            cpu.setdefault(row["source"], []).append(row["cpu"])
    made = []
    for source, told in spark.OURS.items():
        bars = {}
        if source == "tierlog-jar" and query == "noop":
            bars = dict.fromkeys(spark.KAFKA.values(), KAFKA_BARS[form]) | dict.fromkeys(PARQUET.values(), PARQUET_BAR)
        seconds = {name: round(statistics.median(each), 2) for name, each in cpu.items() if name in (source, *PEERS)}
        name = f"spark_tier[{form}] {spark.QUERIES[query]}, {told}"
        against = {PEERS[peer]: walls[peer] for peer in PEERS}
        size, records = int(str(notes["log bytes"])), int(str(notes["records"]))
        told_notes = dict(notes) if source == "tierlog-jar" else {}
        made.append(
            Comparison(
                name,
                walls[source],
                against,
                bars,
                size,
                records,
                {**told_notes, "CPU s": ", ".join(f"{peer} {value}" for peer, value in seconds.items())},
            )
        )
    return made


@contextlib.contextmanager
def work_folder(chosen: str) -> Iterator[pathlib.Path]:
    """A folder of one's own that stays, or one that is removed."""
    if chosen:
        yield pathlib.Path(chosen)
        return
    with tempfile.TemporaryDirectory(prefix="tierlog-bench-") as name:
        yield pathlib.Path(name)


def one_form(form: str, folder: pathlib.Path, arguments: argparse.Namespace) -> list[Comparison]:
    """A broker, a tier, the copies and the rounds of one form, all of which is removed at the end."""
    root = folder / "bucket"
    root.mkdir(parents=True, exist_ok=True)
    cache_bytes = max(64 << 20, int(CACHE_BYTES * arguments.scale))  # never the whole topic
    settings = broker_settings(form, root, folder, arguments.cache, cache_bytes)
    topic = spark.topic_name(form.replace(" + ", "-"), arguments.scale)
    rolled = (
        "remote.storage.enable=true",
        "local.retention.bytes=1",
        f"segment.ms={MONTH_MS}",
        f"segment.bytes={max(1 << 20, int(SEGMENT_BYTES * min(1, arguments.scale)))}",
        "file.delete.delay.ms=500",
    )
    with broker.running(folder / "broker", heap=HEAP, extra=settings) as running:
        spark.ensure_topic(running, "none", arguments.scale, name=topic, settings=rolled)
        ends = tiered(running, topic)
        print(f"{topic}: {log_bytes(root)} bytes of log in the tier, none left on the broker's disk", file=sys.stderr)
        rows = spark.run_application(
            running,
            [topic],
            arguments.runs,
            sources=(*spark.OURS, *PEERS),
            queries=arguments.queries.split(","),
            until=json.dumps({topic: ends}),
            path=str(root),
            options=our_options(form, root, folder),
            parquet=str(folder / "parquet"),
            checks=[query for query in CHECKS if query not in arguments.queries.split(",")],
        )
    spark.check_answers(rows)
    cached = f"the plugin, its chunk cache {arguments.cache}"
    notes: dict[str, object] = {"tier": cached if plugin.jars() else "LocalTieredStorage"}
    notes |= {"log bytes": int(arguments.scale * spark.GIGABYTES * 1e9), "stored bytes": log_bytes(root)}
    notes |= {"records": sum(ends.values())}
    copies = {
        path.name: sum(file.stat().st_size for file in path.iterdir())
        for path in (folder / "parquet" / topic).iterdir()
    }
    notes |= {f"Parquet bytes, {name}": size for name, size in sorted(copies.items())}
    shutil.rmtree(folder)
    return [made for query in arguments.queries.split(",") for made in comparisons(rows, form, query, notes)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="of 2 GB")
    parser.add_argument("--runs", type=int, default=ROUNDS)
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--queries", default="noop,length", help="timed ones, of " + ",".join(spark.QUERIES))
    parser.add_argument("--cache", choices=("memory", "none"), default="memory", help="the plugin's chunk cache")
    parser.add_argument("--work", default="", help="a folder with 10 GB to spare; a temporary one by default")
    arguments = parser.parse_args()
    forms = [form.replace("zstd+AES", "zstd + AES") for form in arguments.forms.split(",")]
    if not plugin.jars():
        print(plugin.HOW + "; the tier is Kafka's LocalTieredStorage, plain alone", file=sys.stderr)
        forms = ["plain"]
    made = []
    with work_folder(arguments.work) as folder:
        for form in forms:
            made += one_form(form, folder / form.replace(" + ", "-"), arguments)
    told = {**facts(), "versions": {**facts()["versions"], **install.versions()}}
    print(save("spark_tier", made, facts=told), file=sys.stderr)
    print(table("spark_tier", made))


if __name__ == "__main__":
    main()
