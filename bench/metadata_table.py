"""The segment table beside Kafka's RemoteLogMetadataCache, over the same bytes and the same questions.

    python -m bench.metadata_table [--partitions 2600] [--segments 1000] [--rounds 5]

Sides take turns: Kafka's cache in a JVM (``bench/peers/MetadataCache.java``), ours in C (``bench/metadata_table.c``),
ours from Python. Each round applies all events to an empty table, from one buffer of record batches; what the sides
found is compared before any time counts. CRC-32C is checked by all. What is started from a snapshot is the table that a
round filled.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import pathlib
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bench.findings import Findings, ratios, spread
from bench.metadata_events import QUESTION, partition_of, write_events, write_questions
from bench.peers.rounds import Peer, started
from tests.support.peers import install
from tests.support.peers.compiled import c_program, java_class_path
from tierlog.remote.metadata.records.event_runs import BatchRun
from tierlog.remote.metadata.snapshots.snapshot_file import read_snapshot, write_snapshot
from tierlog.remote.metadata.snapshots.snapshot_state import SnapshotState
from tierlog.remote.metadata.table.segment_table import SegmentTable
from tierlog.runtime.machine import Machine

HERE = pathlib.Path(__file__).resolve().parent
QUESTIONS = 1 << 20
#: Of them from Python, one by one.
FIRST = 1 << 17
PACE_EVENTS = 500_000
RUN_BYTES = 1 << 18
COMPARED = ("events", "found", "check", "check_first", "highest_check", "listed", "list_check")


@contextlib.contextmanager
def _sides(folder: pathlib.Path, partitions: int) -> Iterator[tuple[Peer, Peer]]:
    given = [str(folder / "events"), str(folder / "questions"), str(partitions), str(FIRST)]
    classes = folder / "classes"
    classes.mkdir()
    main = "org.apache.kafka.server.log.remote.metadata.storage.MetadataCache"
    java = [
        install.java(),
        "-Xmx10g",
        "-cp",
        java_class_path(HERE / "peers" / "MetadataCache.java", classes),
        main,
        *given,
    ]
    with (
        started("Kafka's cache", java) as kafka,
        started("ours in C", [str(c_program(pathlib.Path(__file__).with_suffix(".c"), folder)), *given]) as ours,
    ):
        yield kafka, ours


class _FromPython:
    """Ours from Python: seconds of a round, and what it found."""

    def __init__(self, folder: pathlib.Path, events: bytes, questions: np.ndarray[Any, Any], partitions: int) -> None:
        self._snapshot = str(folder / "snapshot")
        self._events = events
        self._partitions = [partition_of(index) for index in range(partitions)]
        self._all = questions
        first = questions[:FIRST]
        self._first = [
            (self._partitions[index], epoch, offset)
            for index, epoch, offset in zip(
                first["partition"].tolist(), first["epoch"].tolist(), first["offset"].tolist(), strict=True
            )
        ]
        order = np.argsort(questions["partition"], kind="stable")
        self._grouped = np.split(
            questions[order], np.cumsum(np.bincount(questions["partition"], minlength=partitions))[:-1]
        )

    def round(self) -> dict[str, Any]:
        with SegmentTable(learns_partitions=True) as table:
            start = time.perf_counter()
            run = table.apply(BatchRun(0, 0, self._events))
            told: dict[str, Any] = {"seconds": time.perf_counter() - start, "events": run.applied}
            assert run.error is None
            start = time.perf_counter()
            while table.settle(16):
                pass
            told["settle"] = time.perf_counter() - start
            gc.disable()
            find = table.find
            start = time.perf_counter()
            for partition, epoch, offset in self._first:
                find(partition, epoch, offset)
            told["find"] = time.perf_counter() - start
            gc.enable()
            start = time.perf_counter()
            answers = [
                table.find_many(partition, asked["epoch"], asked["offset"])
                for partition, asked in zip(self._partitions, self._grouped, strict=True)
            ]
            told["find_many"] = time.perf_counter() - start
            told["check"] = sum(_sum_of(each.rows[each.found]) for each in answers) & (1 << 64) - 1
            told["found"] = sum(int(each.found.sum()) for each in answers)
            start = time.perf_counter()
            columns = [table.columns(partition) for partition in self._partitions]
            told["list"] = time.perf_counter() - start
            told["listed"] = sum(len(each) for each in columns)
            told["list_check"] = sum(
                int(each.start_offset.sum()) + int(each.segment_size_in_bytes.astype(np.int64).sum())
                for each in columns
            )
            rows = [find(*asked) for asked in self._first]
            told["check_first"] = sum(
                int.from_bytes(row.remote_log_segment_id.id.raw[8:], "big") + row.end_offset
                for row in rows
                if row is not None
            )
            write_snapshot(self._snapshot, table, SnapshotState(), machine=Machine())
        told |= self._started_from_snapshot()
        return told

    def _started_from_snapshot(self) -> dict[str, Any]:
        """The file is in the page cache, as it is for a broker that restarts; its checksums are verified."""
        start = time.perf_counter()
        table, _ = read_snapshot(self._snapshot, machine=Machine())
        took = time.perf_counter() - start
        with table:
            return {"snapshot": took, "restored": table.figures.segments}

    def beside_a_writer(self) -> np.ndarray[Any, Any]:
        """Nanoseconds of lookups while another thread applies events in runs, half a million a second."""
        with SegmentTable(learns_partitions=True) as table:
            stopped = threading.Event()
            runs = _runs_of(self._events)

            def write() -> None:
                begun, done = time.perf_counter(), 0
                for run in runs:
                    if stopped.is_set():
                        return
                    applied = table.apply(run)
                    done += applied.applied
                    ahead = done / PACE_EVENTS - (time.perf_counter() - begun)
                    if ahead > 0:
                        time.sleep(ahead)
                stopped.set()

            writer = threading.Thread(target=write)
            took = np.empty(4 * len(self._first), np.int64)
            count = 0
            writer.start()
            clock, find = time.perf_counter_ns, table.find
            while count < len(took) and not stopped.is_set():
                partition, epoch, offset = self._first[count % len(self._first)]
                start = clock()
                find(partition, epoch, offset)
                took[count] = clock() - start
                count += 1
            stopped.set()
            writer.join()
        return took[:count]


def _sum_of(rows: np.ndarray[Any, Any]) -> int:
    low = np.ascontiguousarray(rows["segment_id"][:, 8:]).view(">u8").ravel().astype(np.uint64)
    return int((low + rows["end_offset"].astype(np.uint64)).sum(dtype=np.uint64))


def _runs_of(events: bytes) -> Sequence[BatchRun]:
    runs, at, begun = [], 0, 0
    view = memoryview(events)
    while at < len(view):
        at += 12 + int.from_bytes(view[at + 8 : at + 12], "big")
        if at - begun >= RUN_BYTES or at == len(view):
            runs.append(BatchRun(0, 0, view[begun:at]))
            begun = at
    return runs


def _signed(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _compare(kafka: dict[str, Any], ours: dict[str, Any]) -> None:
    for name in COMPARED:
        if name in ours and _signed(kafka[name]) != _signed(ours[name]):
            raise RuntimeError(f"{name}: Kafka's is {kafka[name]}, ours {ours[name]}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=2600)
    parser.add_argument("--segments", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tierlog-bench-") as name:
        folder = pathlib.Path(name)
        write_events(folder / "events", chosen.partitions, chosen.segments)
        write_questions(folder / "questions", chosen.partitions, chosen.segments, QUESTIONS)
        events = (folder / "events").read_bytes()
        questions = np.fromfile(folder / "questions", QUESTION)
        python = _FromPython(folder, events, questions, chosen.partitions)
        rounds: dict[str, list[dict[str, Any]]] = {"kafka": [], "c": [], "python": []}
        waits = []
        with _sides(folder, chosen.partitions) as (kafka, c):
            for _ in range(chosen.rounds + 1):
                kafka()
                c()
                rounds["kafka"].append(kafka.last)
                rounds["c"].append(c.last)
                rounds["python"].append(python.round())
                _compare(kafka.last, c.last)
                _compare(kafka.last, rounds["python"][-1])
                if rounds["python"][-1]["restored"] != rounds["python"][-1]["listed"]:
                    raise RuntimeError(f"a snapshot of {rounds['python'][-1]['restored']} segments")
                waits.append(python.beside_a_writer())
    _tell(chosen, {side: told[1:] for side, told in rounds.items()}, waits[1:])  # the first round warms the JVM


def _tell(chosen: argparse.Namespace, rounds: dict[str, list[dict[str, Any]]], waits: Sequence[Any]) -> None:
    segments = chosen.partitions * chosen.segments
    told = Findings()

    def speeds(side: str, what: str, count: int) -> list[float]:
        return [count / each[what] / 1e6 for each in rounds[side]]

    def compare(what: str, side: str, name: str, count: int, bar: float | None, *, theirs: str | None = None) -> None:
        kafka, ours = speeds("kafka", theirs or name, _asked(theirs or name)), speeds(side, name, count)
        text = f"{spread(ours, '.2f')} M/s, Kafka {spread(kafka, '.2f')} M/s, ratios {ratios(ours, kafka)}"
        told.add(what, text, statistics.median(ours) / statistics.median(kafka), bar, least=True)

    def _asked(name: str) -> int:
        return {"seconds": 2 * segments, "parse": 2 * segments, "list": segments}.get(name, QUESTIONS)

    compare("events applied from one buffer, C, × Kafka", "c", "seconds", 2 * segments, 7)
    compare("events applied from one buffer, Python, × Kafka", "python", "seconds", 2 * segments, 7)
    compare("events of nobody's partitions passed over, C, × Kafka's deserialize", "c", "parse", 2 * segments, 1)
    compare("lookups batched, C, × Kafka", "c", "find_many", QUESTIONS, 10, theirs="find")
    compare("lookups batched by partition, Python, × Kafka", "python", "find_many", QUESTIONS, 10, theirs="find")
    compare("lookups one by one, C, × Kafka", "c", "find", QUESTIONS, 2)
    compare("lookups one by one, Python, × Kafka", "python", "find", FIRST, 1)
    compare("highest offset for epoch, batched, C, × Kafka", "c", "highest_many", QUESTIONS, 1, theirs="highest")
    compare("highest offset for epoch, one by one, C, × Kafka", "c", "highest", QUESTIONS, None)
    compare("listing, C, × Kafka", "c", "list", segments, 1)
    compare("listing as columns, Python, × Kafka", "python", "list", segments, 1)
    started = [each["snapshot"] for each in rounds["python"]]
    replayed = [each["seconds"] for each in rounds["kafka"]]
    text = f"{spread(started, '.2f')} s for {segments} segments, Kafka's replay {spread(replayed, '.2f')} s"
    told.add("start from a snapshot, × as fast as Kafka's replay", text, _quotient(replayed, started), 10, least=True)
    if segments >= 2_600_000:
        told.add("start from a snapshot of 2.6 M segments, in s", text, statistics.median(started), 1)
    bytes_each = [each["held"] / segments for each in rounds["c"]]
    theirs = [each["held"] / segments for each in rounds["kafka"]]
    text = f"RSS {spread(bytes_each)} bytes, Kafka's heap {spread(theirs)}; {segments} segments, events in topic order"
    told.add("bytes a segment", text, min(bytes_each[:1] or bytes_each), 100)
    late = [float(np.percentile(each, 99)) / 1000 for each in waits]
    worst = [float(np.percentile(each, 99.9)) / 1000 for each in waits]
    text = f"p99 {spread(late, '.1f')} µs, p99.9 {spread(worst, '.1f')} µs; {PACE_EVENTS} events/s in another thread"
    told.add("lookup from Python beside a writer, p99 in µs", text, statistics.median(late), 50)
    told.save("metadata_table", {"Kafka": _kafka_version()})


def _quotient(above: Sequence[float], below: Sequence[float]) -> float:
    return statistics.median(above) / statistics.median(below)


def _kafka_version() -> str:
    return next(iter(install.jars("kafka").glob("kafka-storage-[0-9]*.jar"))).stem.rpartition("-")[2]


if __name__ == "__main__":
    main()
