"""Spark's Kafka source against Tierlog's over 2 GB a codec: sets everything up, runs it, and saves the numbers.

    python -m bench.spark [--scale 0.01] [--runs 5] [--topics none,lz4,zstd] [--socket-setting]

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
from collections.abc import Sequence
from typing import Any

from bench.machine import facts
from bench.peers import broker, install
from bench.side_by_side import ROUNDS, Comparison, save

GIGABYTES = 2
VALUE_BYTES = 1000
PARTITIONS = 4
BATCH_BYTES = 1_000_000
DEFAULT, TUNED = "Kafka source, default options", "Kafka source, tuned"
PEERS = {"kafka-default": DEFAULT, "kafka-tuned": TUNED}
BARS = {DEFAULT: 2.0, TUNED: 1.3}
QUERIES = {"hash": "bit_xor(xxhash64(all columns))", "noop": "noop sink"}
SOCKET = "spark.python.unix.domain.socket.enabled"

Row = dict[str, Any]


def topic_name(codec: str, scale: float) -> str:
    return f"bench-{codec}" if scale == 1 else f"bench-{codec}-{scale:g}"


def ensure_topic(running: broker.Broker, codec: str, scale: float) -> str:
    """The topic, filled; one that a broken run left half full is refused, as its answers would still be equal."""
    topic = topic_name(codec, scale)
    marker = running.log_dir.parent / f"{topic}.complete"
    if (running.log_dir / f"{topic}-0").exists():
        if not marker.exists():
            raise SystemExit(f"{topic} was not filled to its end: remove {running.log_dir.parent} and start again")
        return topic
    size = str(int(GIGABYTES * 1e9 * scale))
    print(f"producing {topic}: {size} bytes", file=sys.stderr)
    filling = [running.bootstrap, topic, codec, size, str(VALUE_BYTES), str(PARTITIONS), str(BATCH_BYTES)]
    command = [str(install.python()), "-m", "bench.peers.produce", *filling]
    subprocess.run(command, check=True, env=install.environment(), cwd=install.ROOT, stdout=sys.stderr)
    marker.touch()
    return topic


def run_application(
    running: broker.Broker, topics: Sequence[str], runs: int, *, alone: bool = False, settings: str = ""
) -> list[Row]:
    """One Spark application over all topics, all sources in turn; its rows without those of the warm-up.

    Args:
        running: The broker; it goes on while ours reads.
        topics: One after the other.
        runs: Rounds that count.
        alone: Without the Kafka source.
        settings: ``key=value,…`` of Spark.
    """
    bootstrap = "" if alone else running.bootstrap
    command = [str(install.python()), "-m", "bench.spark_source", "--bootstrap", bootstrap]
    command += ["--broker-pid", str(running.process.pid), "--path", str(running.log_dir), "--topics", *topics]
    command += ["--runs", str(runs), "--jars", install.class_path("spark-kafka")]
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
    return [row for row in rows if row["run"] > 0]


def check_answers(rows: Sequence[Row]) -> dict[str, int]:
    """Topic to its records; every source has to come to the same count and hash in every timed run."""
    records: dict[str, int] = {}
    for topic in {row["topic"] for row in rows}:
        answers = {tuple(row["answer"]) for row in rows if row["topic"] == topic and row["query"] == "hash"}
        if len(answers) != 1:
            raise SystemExit(f"{topic}: the sources' answers differ: {sorted(answers)}")
        records[topic] = answers.pop()[0]
    return records


def comparisons(rows: Sequence[Row], records: dict[str, int], sizes: dict[str, int]) -> list[Comparison]:
    made = []
    for topic, query in sorted({(row["topic"], row["query"]) for row in rows}):
        chosen = [row for row in rows if (row["topic"], row["query"]) == (topic, query)]

        def column(variant: str, name: str, chosen: list[Row] = chosen) -> list[float]:
            return [row[name] for row in chosen if row["variant"] == variant]

        seconds = {variant: round(median(column(variant, "cpu")), 1) for variant in ("tierlog", *PEERS)}
        made.append(
            Comparison(
                f"spark[{topic.removeprefix('bench-')}] {QUERIES[query]}",
                column("tierlog", "wall"),
                {PEERS[variant]: column(variant, "wall") for variant in PEERS},
                BARS,
                sizes[topic],
                records[topic],
                {
                    "CPU s, ours": seconds["tierlog"],
                    "CPU s, default": seconds["kafka-default"],
                    "CPU s, tuned": seconds["kafka-tuned"],
                },
            )
        )
    return made


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def log_bytes(log_dir: pathlib.Path, topic: str) -> int:
    """Of the log files, as they lie on the broker's disk."""
    return sum(path.stat().st_size for path in log_dir.glob(f"{topic}-*/*.log") if path.parent.name[:-2] == topic)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=float(os.environ.get("TIERLOG_BENCH_SCALE", "1")))
    parser.add_argument("--runs", type=int, default=ROUNDS)
    parser.add_argument("--topics", default="none,lz4,zstd")
    parser.add_argument("--socket-setting", action="store_true", help=f"instead: {SOCKET}, first topic")
    arguments = parser.parse_args()
    with broker.running(install.home() / "data") as running:
        topics = [ensure_topic(running, codec, arguments.scale) for codec in arguments.topics.split(",")]
        sizes = {topic: log_bytes(running.log_dir, topic) for topic in topics}
        told = {**facts(), "versions": {**facts()["versions"], **install.versions()}}
        if arguments.socket_setting:
            made = socket_setting(running, topics[0], sizes[topics[0]], arguments.runs)
            print(save("spark_socket", made, facts=told), file=sys.stderr)
        else:
            rows = run_application(running, topics, arguments.runs)
            made = comparisons(rows, check_answers(rows), sizes)
            print(save("spark", made, facts=told), file=sys.stderr)


def socket_setting(running: broker.Broker, topic: str, size_bytes: int, runs: int) -> list[Comparison]:
    """Ours alone, Python workers behind a Unix socket against the default TCP one. Two applications, so not in turn."""
    by_setting: dict[str, list[Row]] = {}
    for value in ("false", "true"):
        by_setting[value] = run_application(running, [topic], runs, alone=True, settings=f"{SOCKET}={value}")
    records = check_answers(by_setting["true"] + by_setting["false"])[topic]
    made = []
    for query, told in QUERIES.items():
        walls = {v: [row["wall"] for row in rows if row["query"] == query] for v, rows in by_setting.items()}
        cpu = {
            v: round(median([row["cpu"] for row in rows if row["query"] == query]), 1) for v, rows in by_setting.items()
        }
        notes = {"CPU s, on": cpu["true"], "CPU s, off": cpu["false"]}
        name = f"spark[{topic.removeprefix('bench-')}] {told}, {SOCKET} on"
        made.append(
            Comparison(name, walls["true"], {"ours with it off": walls["false"]}, {}, size_bytes, records, notes)
        )
    return made


if __name__ == "__main__":
    main()
