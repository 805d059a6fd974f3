"""The tasks of queries over very many segments, in a Spark session with the jar and a bounded heap.

Run by the peers' interpreter (``tests/support/peers/install.py``) with one argument of JSON: options, the heap, the
jar, and from which time on the small query is. Prints one JSON object: seconds of ``load()`` and of making the tasks of
both queries, how many there are, and the memory of the JVM and of its planner.
"""

from __future__ import annotations

import datetime
import json
import pathlib
import sys
import time
from typing import Any

from bench.harness import memory
from bench.spark_application import session


def _children(pid: int) -> list[int]:
    """The processes that a process has started; without those that have ended and not been waited for."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    found = [int(each) for task in tasks for each in (task / "children").read_text().split()]
    return [each for each in found if "VmHWM" in pathlib.Path(f"/proc/{each}/status").read_text()]


def main() -> None:
    asked: dict[str, Any] = json.loads(sys.argv[1])
    spark = session(asked["jar"], asked["heap"])
    runtime = spark.sparkContext._jvm.java.lang
    jvm = int(runtime.ProcessHandle.current().pid())
    told: dict[str, Any] = {}
    start = time.perf_counter()
    frame = spark.read.format("tierlog").options(**asked["options"], engine="jar").load()
    told["load"] = time.perf_counter() - start
    late = datetime.datetime.fromtimestamp(asked["late_ms"] / 1000, datetime.timezone.utc)  # noqa: UP017 - any Python
    for name, chosen in (("late", frame.where(frame.timestamp >= late)), ("all", frame)):
        start = time.perf_counter()
        told[f"{name}_tasks"] = chosen.select("offset")._jdf.queryExecution().toRdd().getNumPartitions()
        told[name] = time.perf_counter() - start
    told["heap_bytes"] = int(runtime.Runtime.getRuntime().maxMemory())
    told["planner_bytes"] = sum(memory(child)["VmHWM"] for child in _children(jvm))
    told["jvm_bytes"] = memory(jvm)["VmHWM"]
    print(json.dumps(told), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
