"""Spark's Kafka source against Tierlog's two engines over 2 GB a codec: sets all up, runs it, and saves the numbers.

    python -m bench.spark [--scale 0.01] [--runs 5] [--topics none,lz4,zstd] [--socket-setting | --counts]

The broker's own log directory is what Tierlog reads, so both sides read the very same batches, and the page cache is as
warm for both. The broker runs while Tierlog reads: its idle CPU seconds count against us too.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bench.machine import facts
from bench.report import table
from bench.side_by_side import ROUNDS, Comparison, save
from pyspark_tierlog import jar_path
from tests.support.peers import broker, install

GIGABYTES = 2
VALUE_BYTES = 1000
PARTITIONS = 4
BATCH_BYTES = 1_000_000
KAFKA = {"kafka-default": "Kafka source, default options", "kafka-tuned": "Kafka source, tuned"}
OURS = {"tierlog-python": "Python path", "tierlog-jar": "columnar reader"}
COUNTING = {"tierlog-jar": "columnar reader", "tierlog-jar-headers": "columnar reader, headerAnswers=true"}
QUERIES = {
    "hash": "bit_xor(xxhash64(all columns))",
    "noop": "noop sink",
    "length": "sum(length(value))",
    "count": "count(*)",
}
PYTHON_BARS = {"kafka-default": 2.0, "kafka-tuned": 1.3}
BARS: dict[tuple[str, str, str], dict[str, float]] = {
    **{
        ("tierlog-python", query, codec): PYTHON_BARS for query in ("hash", "noop") for codec in ("none", "lz4", "zstd")
    },
    ("tierlog-jar", "noop", "none"): {"kafka-default": 7.0, "kafka-tuned": 4.5},
    ("tierlog-jar", "noop", "zstd"): {"kafka-default": 3.5},
    ("tierlog-jar", "length", "none"): {"kafka-default": 6.5},
    ("tierlog-jar", "count", "none"): {"kafka-default": 12.0},
    ("tierlog-jar-headers", "count", "none"): {"kafka-default": 30.0},
}
"""(ours, query, codec) to peer to the least ratio."""

SOCKET = "spark.python.unix.domain.socket.enabled"

Row = dict[str, Any]
Settings = Sequence[str]


def topic_name(codec: str, scale: float) -> str:
    return f"bench-{codec}" if scale == 1 else f"bench-{codec}-{scale:g}"


def ensure_topic(running: broker.Broker, codec: str, scale: float, *, name: str = "", settings: Settings = ()) -> str:
    """The topic, filled; one that a broken run left half full is refused, as its answers would still be equal.

    Args:
        running: The broker.
        codec: Of the producer.
        scale: Of GIGABYTES.
        name: Instead of ``topic_name``.
        settings: ``key=value`` of the topic.
    """
    topic = name or topic_name(codec, scale)
    marker = running.log_dir.parent / f"{topic}.complete"
    if (running.log_dir / f"{topic}-0").exists():
        if not marker.exists():
            raise SystemExit(f"{topic} was not filled to its end: remove {running.log_dir.parent} and start again")
        return topic
    size = str(int(GIGABYTES * 1e9 * scale))
    print(f"producing {topic}: {size} bytes", file=sys.stderr)
    filling = [running.bootstrap, topic, codec, size, str(VALUE_BYTES), str(PARTITIONS), str(BATCH_BYTES), *settings]
    command = [str(install.python()), "-m", "bench.peers.produce", *filling]
    subprocess.run(command, check=True, env=install.environment(), cwd=install.ROOT, stdout=sys.stderr)
    marker.touch()
    return topic


def run_application(
    running: broker.Broker,
    topics: Sequence[str],
    runs: int,
    *,
    sources: Sequence[str] = (*KAFKA, *OURS),
    queries: Sequence[str] = ("hash", "noop"),
    settings: str = "",
    until: str = "",
    heap: str = "4g",
    path: str = "",
    options: Mapping[str, str] | None = None,
    parquet: str = "",
    checks: Sequence[str] = (),
) -> list[Row]:
    """One Spark application over all topics, all sources in turn; its rows, those of the warm-up (run 0) too.

    Args:
        running: The broker; it goes on while ours reads.
        topics: One after the other.
        runs: Rounds behind the warm-up.
        sources: Of ``spark_source.loaders``.
        queries: Of QUERIES.
        settings: ``key=value,…`` of Spark.
        until: ``endingOffsets`` of all.
        heap: The most that the JVM's may be.
        path: Of ours; the broker's log directory by default.
        options: More of ours.
        parquet: A folder for copies of the same rows.
        checks: Queries that are asked in the warm-up alone, for their answers.
    """
    jars = f"{install.class_path('spark-kafka')}:{jar_path()}"
    command = [str(install.python()), "-m", "bench.spark_source", "--bootstrap", running.bootstrap]
    command += ["--broker-pid", str(running.process.pid), "--path", path or str(running.log_dir), "--topics", *topics]
    command += ["--sources", *sources, "--queries", *queries, "--until", until]
    command += ["--runs", str(runs), "--jars", jars, "--heap", heap, "--parquet", parquet, "--checks", *checks]
    command += ["--options", json.dumps(dict(options or {}))]
    environment = install.environment() | {"TIERLOG_BENCH_SPARK_CONF": settings}
    rows: list[Row] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=install.ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                rows.append(json.loads(line))
                print(line, end="", file=sys.stderr)
    if process.returncode:
        raise SystemExit(f"the Spark application ended with {process.returncode}")
    return rows


def check_answers(rows: Sequence[Row]) -> None:
    """Every source has to come to the same answer in every run, the warm-up's too."""
    for topic, query in {(row["topic"], row["query"]) for row in rows}:
        answers = {json.dumps(row["answer"]) for row in rows if (row["topic"], row["query"]) == (topic, query)}
        if len(answers) != 1:
            raise SystemExit(f"{topic}, {query}: the sources' answers differ: {sorted(answers)}")


def comparison(rows: Sequence[Row], ours: str, topic: str, query: str, size_bytes: int, records: int) -> Comparison:
    """One of ours against the Kafka sources that were run beside it; the warm-up's wall time is told apart."""
    codec = topic.removeprefix("bench-")
    chosen = [row for row in rows if (row["topic"], row["query"]) == (topic, query)]

    def column(source: str, name: str) -> list[float]:
        return [row[name] for row in chosen if row["source"] == source and row["run"] > 0]

    def noted(name: str) -> dict[str, float]:
        return {source: round(median(column(source, name)), 2) for source in (ours, *KAFKA)}

    cpu, planning = noted("cpu"), noted("planning")
    first = next(row["wall"] for row in chosen if row["source"] == ours and row["run"] == 0)
    bars = {KAFKA[peer]: bar for peer, bar in BARS.get((ours, query, codec.partition("-")[0]), {}).items()}
    return Comparison(
        f"spark[{codec}] {QUERIES[query]}, {(OURS | COUNTING)[ours]}",
        column(ours, "wall"),
        {KAFKA[source]: column(source, "wall") for source in KAFKA},
        bars,
        size_bytes,
        records,
        {
            "CPU s, ours": cpu[ours],
            "CPU s, default": cpu["kafka-default"],
            "CPU s, tuned": cpu["kafka-tuned"],
            "planning s, ours": planning[ours],
            "default": planning["kafka-default"],
            "first run s": first,
        },
    )


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def log_bytes(log_dir: pathlib.Path, topic: str) -> int:
    """Size of the log files on the broker's disk."""
    return sum(path.stat().st_size for path in log_dir.glob(f"{topic}-*/*.log") if path.parent.name[:-2] == topic)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=float(os.environ.get("TIERLOG_BENCH_SCALE", "1")))
    parser.add_argument("--runs", type=int, default=ROUNDS)
    parser.add_argument("--topics", default="none,lz4,zstd")
    parser.add_argument("--socket-setting", action="store_true", help=f"instead: {SOCKET}, first topic")
    parser.add_argument("--counts", action="store_true", help="instead: count(*) checked and from headers, first topic")
    arguments = parser.parse_args()
    with broker.running(install.home() / "data") as running:
        topics = [ensure_topic(running, codec, arguments.scale) for codec in arguments.topics.split(",")]
        sizes = {topic: log_bytes(running.log_dir, topic) for topic in topics}
        told = {**facts(), "versions": {**facts()["versions"], **install.versions()}}
        if arguments.socket_setting:
            suite, made = "spark_socket", socket_setting(running, topics[0], sizes[topics[0]], arguments.runs)
        elif arguments.counts:
            suite, made = "spark_counts", counts(running, topics[0], sizes[topics[0]], arguments.runs)
        else:
            suite, made = "spark", all_sources(running, topics, sizes, arguments.runs)
    print(save(suite, made, facts=told), file=sys.stderr)
    print(table(suite, made))


def all_sources(running: broker.Broker, topics: Sequence[str], sizes: dict[str, int], runs: int) -> list[Comparison]:
    """Every topic by hash and noop; the first one by the queries that need less too."""
    rows = run_application(running, topics, runs)
    rows += run_application(running, topics[:1], runs, queries=("length", "count"))
    check_answers(rows)
    records = {row["topic"]: int(row["answer"][0]) for row in rows if row["query"] == "hash"}
    kinds = dict.fromkeys((row["topic"], row["query"]) for row in rows)
    return [
        comparison(rows, ours, topic, query, sizes[topic], records[topic]) for ours in OURS for topic, query in kinds
    ]


def counts(running: broker.Broker, topic: str, size_bytes: int, runs: int) -> list[Comparison]:
    """How many records there are: with every batch checked, and by what headers say."""
    rows = run_application(running, [topic], runs, sources=(*KAFKA, *COUNTING), queries=("count",))
    check_answers(rows)
    records = int(rows[0]["answer"])
    return [comparison(rows, ours, topic, "count", size_bytes, records) for ours in COUNTING]


def socket_setting(running: broker.Broker, topic: str, size_bytes: int, runs: int) -> list[Comparison]:
    """The Python path, its workers behind a Unix socket against the default TCP one: two applications, not in turn."""
    by_setting: dict[str, list[Row]] = {}
    for value in ("false", "true"):
        rows = run_application(running, [topic], runs, sources=("tierlog-python",), settings=f"{SOCKET}={value}")
        by_setting[value] = [row for row in rows if row["run"] > 0]
    check_answers(by_setting["true"] + by_setting["false"])
    made = []
    for query in ("hash", "noop"):
        chosen = {v: [row for row in rows if row["query"] == query] for v, rows in by_setting.items()}
        walls = {v: [row["wall"] for row in rows] for v, rows in chosen.items()}
        cpu = {v: round(median([row["cpu"] for row in rows]), 1) for v, rows in chosen.items()}
        notes = {"CPU s, on": cpu["true"], "CPU s, off": cpu["false"]}
        name = f"spark[{topic.removeprefix('bench-')}] {QUERIES[query]}, {SOCKET} on"
        made.append(Comparison(name, walls["true"], {"ours with it off": walls["false"]}, {}, size_bytes, 0, notes))
    return made


if __name__ == "__main__":
    main()
