"""Spark's columnar reader over chunked objects against the bare calls over the same chunks, on as many cores.

    python -m bench.spark_objects [--segments 8] [--size 256] [--forms zstd,zstd+AES] [--runs 5]

Segments that our storage manager copied to a folder, one a partition, in chunks of 4 MiB, all in the page cache. The
bare calls (``bench/turns_bare.py``) read a file of the same chunks on a thread a core, before the application and
behind it. What Spark counts is compared with the log.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import statistics
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.bare_chunks import versions
from bench.findings import Findings, spread
from bench.logs import MIB
from bench.side_by_side import ROUNDS
from bench.spark import QUERIES
from bench.spark_limits import application
from bench.storage_segment import CHUNK, FORMS, folder_keys, form_keys, make_segment, manager_over
from bench.turns_bare import CORES, BareChunks, Rooms
from pyspark_tierlog import jar_path
from tests.support.closed_segments import ClosedSegment
from tests.support.peers import install
from tierlog.records import scan

OF_BARE_MIN = 0.85
#: Of every query the share of the limit is told; this one reads every byte and makes no rows.
BARRED = "length"


def copied(segment: ClosedSegment, form: str, root: pathlib.Path, count: int) -> None:
    """Copy the segment into as many partitions."""
    with manager_over(form_keys(form) | folder_keys(root)) as (manager, _):
        for number in range(count):
            attempt = segment.with_id(number + 1).metadata
            own = attempt.remote_log_segment_id
            partition = dataclasses.replace(own.topic_id_partition, partition=number)
            named = dataclasses.replace(own, topic_id_partition=partition)
            metadata = dataclasses.replace(attempt, remote_log_segment_id=named)
            manager.copy_log_segment_data(metadata, segment.data)


def by_spark(root: pathlib.Path, form: str, topic: str, runs: int) -> list[dict[str, Any]]:
    """Rows of the application, its warm-up included."""
    options = {f"rsm.config.{name}": value for name, value in form_keys(form).items() if "encryption" in name}
    jars = f"{install.class_path('spark-kafka')}:{jar_path()}"
    asked = ["--path", str(root), "--topics", topic, "--sources", "tierlog-jar", "--queries", "noop", "length", "count"]
    return application(
        "bench.spark_source", *asked, "--options", json.dumps(options), "--runs", str(runs), "--jars", jars
    )


def one_form(segment: ClosedSegment, form: str, folder: pathlib.Path, count: int, runs: int, found: Findings) -> None:
    root = folder / form.replace(" + ", "-")
    copied(segment, form, root, count)
    log = np.fromfile(segment.data.log_segment, np.uint8)
    compressed, encrypted = FORMS[form]
    all_of_it = np.tile(log, count)
    bare = BareChunks(folder / "bare.chunks", all_of_it, chunk_bytes=CHUNK, compressed=compressed, encrypted=encrypted)
    del all_of_it
    rooms = [Rooms(CHUNK) for _ in range(CORES)]
    stored = sum(path.stat().st_size for path in root.rglob("*.log"))
    if abs(stored / bare.stored_bytes - 1) > 0.001:
        raise SystemExit(f"{form}: our objects have {stored} bytes, the bare calls' file {bare.stored_bytes}")
    limits = [bare.whole(rooms)["wall"] for _ in range(runs + 1)][1:]
    topic = segment.metadata.topic_id_partition.topic
    rows = by_spark(root, form, topic, runs)
    limits += [bare.whole(rooms)["wall"] for _ in range(runs)]
    bare.close()
    records = count * (int(scan(log.data).last_offset[-1]) + 1)
    counted = {row["answer"] for row in rows if row["query"] == "count"}
    if counted != {records}:
        raise SystemExit(f"{form}: Spark counts {counted}, the log has {records} records")
    tell(rows, form, limits, log.nbytes * count, found)


def tell(rows: Sequence[dict[str, Any]], form: str, limits: Sequence[float], size_bytes: int, found: Findings) -> None:
    limit = statistics.median(limits)
    for query in dict.fromkeys(row["query"] for row in rows):
        seconds = [row["wall"] for row in rows if row["query"] == query and row["run"] > 0]
        cpu = [row["cpu"] for row in rows if row["query"] == query and row["run"] > 0]
        told = f"{size_bytes / 1e9:.2f} GB in {spread(seconds, '.2f')} s, CPU s {spread(cpu, '.1f')}; "
        told += f"bare {spread(limits, '.2f')} s on {CORES} threads"
        bar = OF_BARE_MIN if query == BARRED and FORMS[form][0] else None
        what = f"Spark's jar, {form}, {QUERIES[query]}, of the bare calls' speed"
        found.add(what, told, limit / statistics.median(seconds), bar, least=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segments", type=int, default=8)
    parser.add_argument("--size", type=int, default=256, help="MiB of each")
    parser.add_argument("--forms", default="zstd,zstd + AES")
    parser.add_argument("--runs", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    found = Findings()
    with tempfile.TemporaryDirectory(prefix="tierlog-bench-") as name:
        folder = pathlib.Path(name)
        segment = make_segment(folder / "source", arguments.size * MIB)
        for form in arguments.forms.split(","):
            one_form(segment, form.replace("zstd+AES", "zstd + AES"), folder, arguments.segments, arguments.runs, found)
    found.save("spark_objects", {**install.versions(), **versions()})


if __name__ == "__main__":
    main()
