"""The columnar reader's costs beside time: memory, growth, bytes behind a filter, and the distance to the limit.

    python -m bench.spark_limits [--scale 0.01] [--runs 5]

Same data and broker as ``bench.spark``. Peak memory is of one application a source, so each has a fresh JVM.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench import spark
from bench.bare import bare_codec
from bench.machine import facts
from bench.side_by_side import ROUNDS, results_folder
from pyspark_tierlog import jar_path
from tests.support.peers import broker, install
from tierlog.records import scan

PARTS = (1, 2, 4, 8)
HEAP = "1g"
GROWTH_BAR, FILTER_BAR, SEGMENTS_MIN = 1.15, 0.15, 100

Finding = dict[str, Any]


def application(module: str, *arguments: str) -> list[dict[str, Any]]:
    """The JSON lines of a Spark application of the peers' interpreter."""
    command = [str(install.python()), "-m", module, *arguments]
    told = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=install.environment(), cwd=install.ROOT
    ).stdout
    return [json.loads(line) for line in told.splitlines() if line.startswith("{")]


def peak_memory(running: broker.Broker, topic: str) -> list[Finding]:
    """VmHWM of the tree (JVM, Python) after one noop and one hash, each source in an application of its own.

    The heap is at most Spark's default: of more, G1 takes what the rate of garbage asks for, which grows with speed.
    """
    peaks, native = {}, 0
    for source in ("kafka-default", "kafka-tuned", "tierlog-jar", "tierlog-python"):
        rows = spark.run_application(running, [topic], 1, sources=(source,), queries=("noop", "hash"), heap=HEAP)
        peaks[source] = max(row["peak"] for row in rows)
        native = max(native, *(row["native"] for row in rows))
    ratio = peaks["tierlog-jar"] / peaks["kafka-default"]
    told = ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in peaks.items())
    told += f", native memory of the columnar reader {native / 2**20:.0f} MiB"
    return [finding(f"peak memory of the process tree, -Xmx{HEAP}, {topic}", told, ratio, 1.0)]


def growth(running: broker.Broker, topic: str, runs: int) -> list[Finding]:
    """Whether twice the bytes cost twice the CPU seconds."""
    counts = {}
    for number in range(spark.PARTITIONS):
        files = sorted((running.log_dir / f"{topic}-{number}").glob("*.log"))
        counts[number] = int(scan(files[-1].read_bytes()).last_offset[-1]) + 1
    ends = {str(part): {str(p): n * part // PARTS[-1] for p, n in counts.items()} for part in PARTS}
    arguments = ["--path", str(running.log_dir), "--topic", topic, "--ends", json.dumps(ends), "--runs", str(runs)]
    rows = application("bench.spark_growth", *arguments, "--jars", str(jar_path()))
    cpu = {
        part: statistics.median(row["cpu"] for row in rows if row["part"] == str(part) and row["run"] > 0)
        for part in PARTS
    }
    ratio = (cpu[8] - cpu[4]) / (4 * (cpu[2] - cpu[1]))
    told = ", ".join(f"{part} GB {seconds:.2f} CPU s" for part, seconds in cpu.items())
    return [finding("growth: (t8 − t4) / (4 (t2 − t1))", told, ratio, GROWTH_BAR)]


def behind_a_filter(running: broker.Broker, topic: str) -> list[Finding]:
    """Bytes fetched for a tenth of the time range against a full scan."""
    arguments = ["--path", str(running.log_dir), "--topic", topic, "--jars", str(jar_path())]
    (told,) = application("bench.spark_growth", *arguments)
    if told["segments"] < SEGMENTS_MIN:
        raise SystemExit(f"{topic} has {told['segments']} segments, at least {SEGMENTS_MIN} are wanted")
    text = f"{told['tenth'] / 1e6:.0f} of {told['full'] / 1e6:.0f} MB fetched, {told['segments']} segments"
    ratio = told["tenth"] / told["full"]
    return [finding("10 % of the time range, LogAppendTime", text, ratio, FILTER_BAR)]


def limits(running: broker.Broker, topics: Sequence[str], runs: int) -> list[Finding]:
    """Seconds of reading the files on two cores, with the bare codec where there is one, beside our noop query."""
    found = []
    for topic in topics:
        codec = topic.removeprefix("bench-").partition("-")[0]
        files = sorted(
            path for p in range(spark.PARTITIONS) for path in (running.log_dir / f"{topic}-{p}").glob("*.log")
        )
        logs = [path.read_bytes() for path in files]
        tables = [scan(log) for log in logs]
        bare = [
            None if codec == "none" else bare_codec(codec, log, table, largest_batch_bytes=8 << 20)
            for log, table in zip(logs, tables, strict=True)
        ]

        def one(number: int, files: Sequence[Any] = files, bare: Sequence[Any] = bare) -> None:
            subprocess.run(["cat", str(files[number])], check=True, stdout=subprocess.DEVNULL)
            if bare[number] is not None:
                bare[number].decompress()

        seconds = []
        with ThreadPoolExecutor(2) as pool:
            for _ in range(runs):
                start = time.perf_counter()
                list(pool.map(one, range(len(files))))
                seconds.append(time.perf_counter() - start)
        rows = spark.run_application(running, [topic], runs, sources=("tierlog-jar",), queries=("noop",))
        ours = statistics.median(row["wall"] for row in rows if row["run"] > 0)
        limit = statistics.median(seconds)
        text = f"{ours:.2f} s, the limit {limit:.2f} s"
        found.append(finding(f"noop, {codec}, against cat and the bare codec on two cores", text, limit / ours, None))
    return found


def finding(what: str, told: str, value: float, bar: float | None) -> Finding:
    """One row of the table: ``value`` has to be at most ``bar``."""
    return {"what": what, "told": told, "value": round(value, 3), "bar": bar}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=float(os.environ.get("TIERLOG_BENCH_SCALE", "1")))
    parser.add_argument("--runs", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    scale = arguments.scale
    with broker.running(install.home() / "data") as running:
        topics = [spark.ensure_topic(running, codec, scale) for codec in ("none", "lz4", "zstd")]
        large = spark.ensure_topic(running, "none", 4 * scale)
        size_bytes = max(1 << 20, int(spark.GIGABYTES * 1e9 * scale / (1.25 * SEGMENTS_MIN)))
        timed = spark.ensure_topic(
            running,
            "none",
            scale,
            name=f"{spark.topic_name('append-time', scale)}",
            settings=(f"segment.bytes={size_bytes}", "message.timestamp.type=LogAppendTime"),
        )
        rows = [
            *peak_memory(running, topics[0]),
            *growth(running, large, arguments.runs),
            *behind_a_filter(running, timed),
            *limits(running, topics, arguments.runs),
        ]
    told = {**facts(), "versions": {**facts()["versions"], **install.versions()}}
    path = results_folder() / "spark_limits.json"
    path.write_text(json.dumps({"facts": told, "findings": rows}, indent=1) + "\n")
    print(json.dumps(rows, indent=1), file=sys.stderr)


if __name__ == "__main__":
    main()
