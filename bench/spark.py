"""Spark where users are: a topic whose closed segments lie in the tier alone, by Kafka's source, by ours, as Parquet.

    TIERLOG_PLUGIN_JARS=FOLDER python -m bench.spark [--scale 0.02] [--rounds 5] [--forms plain,zstd+AES] [--codec none]
                                                     [--queries noop,length,hash,count,latest] [--cache none]

A real broker (KRaft, one process on loopback) copies 2 GB in four partitions, batches of up to 1 MB of ``--codec``,
segments of 64 MiB, to its tier, which is a folder, and deletes them locally; one record a partition stays and is left
out by everyone's ``endingOffsets``. The tier is the plugin's where TIERLOG_PLUGIN_JARS names its jars, with a chunk
cache of 512 MiB in memory and prefetch of 16 MiB (``--cache none``: without), else Kafka's LocalTieredStorage, plain
alone. Kafka's source reads through that broker, with its default options and tuned (``max.partition.fetch.bytes`` 16
MiB, ``fetch.max.bytes`` 64 MiB, ``max.poll.records`` 5000); ours reads the tier's folder by both its engines, and
counts by headers alone too (``headerAnswers``), and of the plugin's tier by footers that ``tierlog index`` wrote to
another folder; the Parquet copies are written by Spark from the same rows. All in one application, ``local[2]``, in
turn, from the page cache. Count, sum of lengths and hash of all columns are equal in the warm-up. CPU seconds are of
the whole process tree, the broker among it.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from bench.harness import Round, Rounds, Suite, arguments, equal, spread, work_folder
from bench.topics import GIGABYTES, broker_settings, fill_tier, log_bytes, our_options
from pyspark_tierlog import jar_path
from tests.support.peers import broker, install, plugin
from tierlog import upkeep

OURS = {"tierlog-python": "Python path", "tierlog-jar": "columnar reader"}
HEADERS = {"tierlog-jar-headers": "columnar reader, headerAnswers=true"}
FOOTERS = {"tierlog-jar-footers": "columnar reader, footers"}
KAFKA = {"kafka-default": "Kafka source, default options", "kafka-tuned": "Kafka source, tuned"}
PARQUET = {f"parquet-{codec}": f"Parquet, {codec}" for codec in ("none", "snappy", "zstd")}
PEERS = {**KAFKA, **PARQUET}
QUERIES = {
    "noop": "noop sink",
    "length": "sum(length(value))",
    "hash": "bit_xor(xxhash64(all columns))",
    "count": "count(*)",
    "latest": "max(timestamp)",
}
AGGREGATES = ("count", "latest")
CHECKS = ("count", "length", "hash")
#: Of the columnar reader and the noop sink, by form: against Kafka's source, default and tuned; against Parquet.
KAFKA_BARS, PARQUET_BAR = {"plain": 10.0, "zstd + AES": 7.0}, 1.0
#: Of aggregates by footers, × the speed of Parquet's own footers.
FOOTERS_BAR = 1 / 1.5
#: Of the broker: the plugin's cache lies on its heap.
CACHE_BYTES, HEAP = 512 << 20, "2g"


def run_application(
    running: broker.Broker, topic: str, *words: str, rounds: int, module: str = "bench.spark_application"
) -> list[dict[str, Any]]:
    """The rows of one Spark application over a topic, those of the warm-up (run 0) too."""
    jars = f"{install.class_path('spark-kafka')}:{jar_path()}"
    command = [str(install.python()), "-m", module, "--topic", topic, "--runs", str(rounds)]
    command += ["--bootstrap", running.bootstrap, "--broker-pid", str(running.process.pid), "--jars", jars, *words]
    rows: list[dict[str, Any]] = []
    environment, pipe = install.environment(), subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, text=True, env=environment, cwd=install.ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                rows.append(json.loads(line))
                print(line, end="", file=sys.stderr)
    if process.returncode:
        raise SystemExit(f"the Spark application ended with {process.returncode}")
    return rows


def measure(suite: Suite, folder: pathlib.Path, form: str, chosen: Any) -> None:
    """A broker, a tier, the copies and the rounds of one form, all of which is removed at the end."""
    root = folder / "bucket"
    root.mkdir(parents=True)
    cache = max(64 << 20, int(CACHE_BYTES * chosen.scale)) if chosen.cache == "memory" else 0  # never the whole topic
    topic, queries = f"bench-{form.replace(' + ', '-')}", chosen.queries.split(",")
    aggregates = not set(AGGREGATES).isdisjoint(queries)
    footers = aggregates and bool(plugin.jars())  # Kafka's own test storage has none
    sources = [*OURS, *(HEADERS if aggregates else ()), *(FOOTERS if footers else ()), *PEERS]
    with broker.running(folder / "broker", heap=HEAP, extra=broker_settings(form, root, folder, cache)) as running:
        ends = fill_tier(running, topic, chosen.codec, chosen.scale)
        words = ["--path", str(root), "--options", json.dumps(our_options(form, root, folder))]
        words += ["--until", json.dumps({topic: ends}), "--parquet", str(folder / "parquet"), "--sources", *sources]
        if footers:
            upkeep.index(root, config=our_options(form, root, folder), to=folder / "footers")
            words += ["--footers", str(folder / "footers")]
        words += ["--queries", *queries, "--checks", *(query for query in CHECKS if query not in queries)]
        rows = run_application(running, topic, *words, rounds=chosen.rounds)
    for query in dict.fromkeys(row["query"] for row in rows):
        asked = [row for row in rows if row["query"] == query]
        for number in range(chosen.rounds + 1):
            equal(f"{form}, {query}", {row["source"]: row["answer"] for row in asked if row["run"] == number})
    name = f"{chosen.codec} batches, {form}" if chosen.codec != "none" else form
    for query in queries:
        _tell(suite, f"{name}, {QUERIES[query]}", form, query, [row for row in rows if row["query"] == query])
    tier = f"the plugin's tier, chunk cache {chosen.cache}" if plugin.jars() else "LocalTieredStorage"
    told = f"{tier}; {sum(ends.values())} records, {GIGABYTES * 1e3 * chosen.scale:.0f} MB; Parquet"
    for copy in sorted((folder / "parquet" / topic).iterdir()):
        told += f" {copy.name} {sum(file.stat().st_size for file in copy.iterdir()) / 1e6:.0f}"
    suite.add(f"{name}, stored MB", told + " MB", log_bytes(root) / 1e6)
    planning = [row["planning"] for row in rows if row["source"] == "tierlog-jar"]
    suite.add(f"{name}, planning alone, columnar reader, s", spread(planning, ".2f"), statistics.median(planning))
    shutil.rmtree(folder)


def _tell(suite: Suite, name: str, form: str, query: str, rows: Sequence[dict[str, Any]]) -> None:
    """Ours against all peers, over the rounds behind the warm-up."""
    found: Rounds = {}
    for row in rows:
        if row["run"] > 0:
            found.setdefault(row["source"], []).append(Round(row["wall"], row["cpu"]))
    for ours, told in (OURS | HEADERS | FOOTERS).items():
        for peer, peer_name in PEERS.items() if ours in OURS or (query in AGGREGATES and ours in found) else ():
            barred = ours == "tierlog-jar" and query == "noop"
            bar = (KAFKA_BARS[form] if peer in KAFKA else PARQUET_BAR) if barred else None
            if ours in FOOTERS and peer in PARQUET:
                bar = FOOTERS_BAR
            suite.seconds(f"{name}, {told}", found, peer, ours=ours, name=peer_name, bar=bar)


def main() -> None:
    forms = "plain,zstd+AES" if plugin.jars() else "plain"
    chosen = arguments(__doc__, forms=forms, codec="none", queries="noop,length", cache="memory", work="")
    suite = Suite("spark", install.versions())
    with work_folder(chosen.work) as folder:
        for form in chosen.forms.split(","):
            form = form.replace("zstd+AES", "zstd + AES")
            measure(suite, folder / form.replace(" + ", "-"), form, chosen)
    suite.save()


if __name__ == "__main__":
    main()
