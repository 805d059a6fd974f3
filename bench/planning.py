"""Plans over very many segments: by the planner of the jar, by the Python path, by Spark with a bounded heap.

    python -m bench.planning [--scale 0.01] [planner python spark] [--heap 640m] [--work FOLDER] [--bucket FOLDER]

10^6 segments in 1,000 partitions of the plugin's layout lie in a folder (``bench.many_segments``), and a snapshot of
their metadata beside it; at another scale so many of both, and for the growth a hundredth and a tenth of the segments
too. Each answer comes from a process of its own, which has just begun: *cold* lists the folder and reads each manifest,
*snapshot* has the segments from the snapshot (option ``metadata``) and reads the manifests of what it plans. Listing
is what ``load()`` does, and a plan what each query does. Plans are of all segments, and of the last hundredth by time.
Files are in the page cache. Tasks are of 8 segments. Memory is the most that was resident.
"""

from __future__ import annotations

import json
import pathlib
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from bench.harness import ROOT, Suite, arguments, cpu_seconds, memory, serve, started, work_folder
from bench.many_segments import FIRST_MS, SEGMENT_MS, write_bucket, write_metadata
from pyspark_tierlog import jar_path
from tests.support.peers import install
from tests.support.planner import PlannerChild

SEGMENTS, PARTITIONS = 1_000_000, 1_000
SEGMENTS_EACH_TASK = 8
MIB = 1 << 20
COLD_SECONDS, SNAPSHOT_SECONDS, MEMORY_BYTES, TASK_BYTES = 60.0, 3.0, 1 << 30, 8192
#: Seconds of a hundred times as many segments, by those of one.
GROWTH = 130.0
HOW = ("cold", "snapshot")
PLANS = {"all": "all", "late": "the last hundredth by time"}


class Bucket:
    """A made bucket.

    Args:
        folder: Its place, made at the first use.
        segments: How many.
        partitions: How many of them have segments.
    """

    def __init__(self, folder: pathlib.Path, segments: int, partitions: int) -> None:
        self.segments, self.partitions = segments, partitions
        self._folder = folder
        each = segments // partitions
        told = folder / "size"
        if not told.exists():
            size = write_bucket(folder / "bucket", folder / "sources", partitions=partitions, segments=each)
            write_metadata(folder / "snapshot", partitions=partitions, segments=each, size_bytes=size)
            told.write_text(str(size))
        self._task_bytes = SEGMENTS_EACH_TASK * int(told.read_text())
        #: The last hundredth.
        self.late_ms = FIRST_MS + (each - max(1, each // 100)) * SEGMENT_MS

    def options(self, how: str) -> dict[str, str]:
        found = {"path": str(self._folder / "bucket"), "subscribePattern": ".*"}
        found |= {"maxBytesPerPartition": str(self._task_bytes), "maxPartitions": "2000000"}
        return found | ({"metadata": str(self._folder / "snapshot")} if how == "snapshot" else {})


# ---- sides


def planner_seconds(bucket: Bucket, how: str) -> dict[str, Any]:
    """The jar's planner: seconds, bytes and ranges of a listing and of both plans."""
    options = bucket.options(how)
    with PlannerChild() as child:
        told: dict[str, Any] = {}
        start = time.perf_counter()
        listing = child.list(options)
        told["list"] = time.perf_counter() - start
        told["listing_bytes"] = sum(map(len, listing))
        told["listed"] = memory(child.process.pid)["VmHWM"]
        for name, filters in (("late", [["timestamp", ">=", 1000 * bucket.late_ms]]), ("all", [])):
            request = {"op": "plan", "options": options, "columns": [], "filters": filters}
            start, segments, size = time.perf_counter(), 0, 0
            for kind, body in child.iter_answer(request, listing):
                segments += kind == "S"
                size += len(body)
            told |= {name: time.perf_counter() - start, f"{name}_segments": segments, f"{name}_bytes": size}
            told[f"{name}_memory"] = memory(child.process.pid)["VmHWM"]
        told["cpu"] = cpu_seconds(child.process.pid)
        return told


def python_seconds(options: dict[str, str], late_ms: int) -> dict[str, Any]:
    """The Python path, in this process. It has all tasks of a plan in memory, as Spark has: of a part there are few."""
    from pyspark_tierlog.listing import list_tiers
    from pyspark_tierlog.options.source_options import parse_options
    from pyspark_tierlog.planning import plan_tasks
    from pyspark_tierlog.request import scan_requests, tier_config
    from tierlog.opening import TierLocation
    from tierlog.scan.scan_request import RecordFilter

    told: dict[str, Any] = {}
    checked, _ = parse_options(options)
    start = time.perf_counter()
    (tier,) = list_tiers(checked).checked()
    told["list"] = time.perf_counter() - start
    location = TierLocation(tier.path, tier.layout, tier_config(checked))
    start = time.perf_counter()
    (request,) = scan_requests(checked, [tier.size_bytes], RecordFilter(first_timestamp_ms=late_ms))
    tasks, _ = plan_tasks(checked, location, 0, tier.histories, request)
    told["late"] = time.perf_counter() - start
    told["late_segments"] = sum(len(task.ranges) for task in tasks)  # type: ignore[attr-defined]
    told |= {"late_memory": memory()["VmHWM"], "task_bytes": max(len(pickle.dumps(task)) for task in tasks)}
    return told | {"cpu": time.process_time()}


def spark_seconds(options: Mapping[str, str], late_ms: int, heap: str) -> dict[str, Any]:
    """A Spark session with the jar and a bounded heap: what it takes to have the tasks of a query."""
    words = json.dumps({"options": options, "late_ms": late_ms, "jar": jar_path(), "heap": heap})
    command = [str(install.python()), "-m", "bench.planning_application", words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=install.environment(), cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"the Spark application ended with {done.returncode}")
    found: dict[str, Any] = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
    return found


# ---- rows


def _mib(size_bytes: float) -> str:
    return f"{size_bytes / MIB:.0f} MiB"


def _tell(suite: Suite, who: str, how: str, bucket: Bucket, told: Mapping[str, Any]) -> None:
    """Rows of the largest bucket, which have bars."""
    what = f"{who}, {bucket.segments:,} segments, {how}"
    bars = {"all": COLD_SECONDS if how == "cold" else None, "late": SNAPSHOT_SECONDS if how == "snapshot" else None}
    for name, which in PLANS.items():
        if name in told:
            said = f"list {told['list']:.2f}, plan of {told[f'{name}_segments']:,} segments {told[name]:.2f}"
            said += f"; CPU s of all {told['cpu']:.2f}"
            suite.add(f"{what}: list, and plan {which}, s", said, told["list"] + told[name], bars[name], least=False)
    most = max(told[f"{name}_memory"] for name in PLANS if name in told)
    said = f"behind the listing {_mib(told['listed'])}" if "listed" in told else ""
    suite.add(f"{what}: most memory, MiB", said, most / MIB)
    if "task_bytes" in told:
        suite.add(f"{what}: largest task, pickled, bytes", "", told["task_bytes"], TASK_BYTES, least=False)


def _grown(suite: Suite, who: str, how: str, found: Mapping[int, Mapping[str, Any]]) -> None:
    """How the seconds of a listing with the largest plan grow."""
    seconds = {segments: told["list"] + told.get("all", told["late"]) for segments, told in found.items()}
    said = ", ".join(f"{segments:,}: {value:.2f} s" for segments, value in seconds.items())
    small, large = min(seconds), max(seconds)
    bar = GROWTH / 100 if large // small == 100 else None
    value = seconds[large] / seconds[small] * small / large
    suite.add(f"{who}, {how}: time by segments, × that of a hundredth", said, value, bar, least=False)


def _spark(suite: Suite, bucket: Bucket, how: str, heap: str) -> None:
    told = spark_seconds(bucket.options(how), bucket.late_ms, heap)
    what = f"Spark, -Xmx{heap}, {bucket.segments:,} segments, {how}"
    for name, which in PLANS.items():
        said = f"load {told['load']:.2f}, {told[f'{name}_tasks']:,} tasks {told[name]:.2f}"
        suite.add(f"{what}: load, and tasks of {which}, s", said, told["load"] + told[name])
    size = told["heap_bytes"] + told["planner_bytes"]
    said = f"heap {_mib(told['heap_bytes'])}, planner {_mib(told['planner_bytes'])}"
    said += f"; JVM resident {_mib(told['jvm_bytes'])}"
    suite.add(f"{what}: heap and planner, MiB", said, size / MIB, MEMORY_BYTES / MIB, least=False)


def main() -> None:
    if sys.argv[1:] == ["side"]:
        serve(lambda asked: python_seconds(asked["options"], asked["late_ms"]))
        return
    chosen = arguments(__doc__, ("planner", "python", "spark"), heap="640m", work="", bucket="")
    suite = Suite("planning", {"pyspark": install.version_here("pyspark")})
    sides: dict[str, Callable[[Bucket, str], dict[str, Any]]] = {"planner": planner_seconds, "python": _python_side}
    with work_folder(chosen.work) as made:
        folder = pathlib.Path(chosen.bucket) if chosen.bucket else made
        buckets = []
        for part in (0.01, 0.1, 1.0):
            segments = int(SEGMENTS * chosen.scale * part)
            partitions = max(1, min(PARTITIONS, segments // 100))
            buckets.append(Bucket(folder / str(segments), segments // partitions * partitions, partitions))
        for who in ("planner", "python"):
            for how in HOW if who in chosen.parts else ():
                found = {bucket.segments: sides[who](bucket, how) for bucket in buckets}
                _tell(suite, who, how, buckets[-1], found[buckets[-1].segments])
                _grown(suite, who, how, found)
        for how in HOW if "spark" in chosen.parts else ():
            _spark(suite, buckets[-1], how, chosen.heap)
    suite.save()


def _python_side(bucket: Bucket, how: str) -> dict[str, Any]:
    with started("python", [sys.executable, "-m", "bench.planning", "side"], in_json=True) as side:
        return side("plan", options=bucket.options(how), late_ms=bucket.late_ms)


if __name__ == "__main__":
    main()
