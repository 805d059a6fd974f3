"""How far a second executor helps: two Spark executors of one core over one, beside two bare processes of the core.

    python -m bench.spark_executors [none] [lz4] [zstd] [snappy] [gzip] [--scale 0.05] [--rounds 5]

A bucket a codec: 48 partitions of one plain segment, 128 MiB of records each, in batches of 256 KiB. Spark reads
all columns into its noop sink by the jar, in sessions of ``local-cluster`` that are up; a bare process reads them into
Arrow batches by one thread (``tierlog.read``) and drops them, each of two processes half of the partitions. The four in
turn, from the page cache; the number of records and the sum of their values' sizes are equal in the warm-up.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from bench.data import bench_log
from bench.harness import Side, Suite, arguments, equal, in_turn, quotient, spread, started, work_folder
from bench.storage import folder_keys, form_keys, manager_over
from pyspark_tierlog import jar_path
from tests.support.peers import install
from tests.support.segments import make_segment

CODECS: Final = ("none", "lz4", "zstd", "snappy", "gzip")
TOPIC: Final = "orders"
PARTITIONS: Final = 48
#: Of records, in a partition.
SEGMENT_BYTES: Final = 128 << 20
#: Of the scaling of bare processes.
BAR: Final = 0.9


def fill(root: pathlib.Path, folder: pathlib.Path, codec: str, scale: float) -> int:
    """Store the partitions, and return the bytes of their logs."""
    total = max(4 << 20, int(SEGMENT_BYTES * scale))
    log = bench_log(codec, batch_bytes=256 << 10, mean_size=1000, total_bytes=total).data
    with manager_over(dict(form_keys("plain")) | folder_keys(root)) as (manager, _):
        for partition in range(PARTITIONS):
            source = make_segment(log, topic=TOPIC, partition=partition, lineage={0: 0})
            closed = source.closed_in(folder / f"log-{partition}").with_id(1 + partition)
            manager.copy_log_segment_data(closed.metadata, closed.data)
            shutil.rmtree(folder / f"log-{partition}")
    return len(log) * PARTITIONS


class Sides:
    """Sessions of one and two executors, and two bare processes, which stay up for all codecs."""

    def __init__(self, opened: contextlib.ExitStack) -> None:
        self._pool = opened.enter_context(ThreadPoolExecutor(2))
        command = [str(install.python()), "-m", "bench.executors_application", str(jar_path())]
        environment = install.environment()
        self.sessions = {
            count: opened.enter_context(
                started(f"{count} executors", [*command, str(count)], environment=environment, in_json=True)
            )
            for count in (1, 2)
        }
        bare = [sys.executable, "-m", "bench.executors_application"]
        self.processes = [opened.enter_context(started(f"bare {each}", bare, in_json=True)) for each in range(2)]

    def session(self, count: int, root: pathlib.Path, *, op: str = "read") -> dict[str, Any]:
        return self.sessions[count](op, path=str(root))

    def bare(self, count: int, root: pathlib.Path) -> dict[str, Any]:
        """All partitions by so many processes at once; seconds of the slowest."""

        def read(number: int, side: Side) -> dict[str, Any]:
            return side("read", path=str(root), partitions=[*range(number, PARTITIONS, count)])

        told = list(self._pool.map(read, range(count), self.processes[:count]))
        return {
            "wall": max(each["wall"] for each in told),
            "answer": [sum(each["answer"][at] for each in told) for at in range(2)],
        }


def measure(suite: Suite, sides: Sides, folder: pathlib.Path, codec: str, chosen: Any) -> None:
    root = folder / "bucket"
    size = fill(root, folder, codec, chosen.scale)
    answers = {f"{count} executors": sides.session(count, root, op="check")["answer"] for count in (1, 2)}
    equal(codec, answers | {f"{count} processes": sides.bare(count, root)["answer"] for count in (1, 2)})
    found = in_turn(
        {
            "one executor": lambda: sides.session(1, root),
            "two executors": lambda: sides.session(2, root),
            "one process": lambda: sides.bare(1, root),
            "two processes": lambda: sides.bare(2, root),
        },
        chosen.rounds,
    )
    walls = {name: [each.wall for each in rounds] for name, rounds in found.items()}
    by_spark = quotient(walls["one executor"], walls["two executors"])
    bare = quotient(walls["one process"], walls["two processes"])
    told = ", ".join(f"{name} {spread(values, '.2f')} s" for name, values in walls.items())
    told += f"; × one: executors {by_spark:.2f}, processes {bare:.2f}"
    what = f"{size / 1e9:.1f} GB of log, batches {codec}: two executors over one, × two bare processes over one"
    suite.add(what, told, by_spark / bare, BAR)
    shutil.rmtree(root)


def main() -> None:
    chosen = arguments(__doc__, CODECS)
    suite = Suite("spark_executors", install.versions())
    with contextlib.ExitStack() as opened:
        folder = opened.enter_context(work_folder())
        sides = Sides(opened)
        for codec in chosen.parts:
            measure(suite, sides, folder, codec, chosen)
            print(json.dumps({"codec": codec, "done": True}), file=sys.stderr)
    suite.save()


if __name__ == "__main__":
    main()
