"""The segment table beside Kafka's RemoteLogMetadataCache, over the same bytes and the same questions.

    python -m bench.metadata_table [--scale 0.05] [--rounds 5]

2,600 partitions of 1,000 segments: STARTED and FINISHED of each, in the order of its partition, partitions in turns of
64, one to three leader epochs a segment; then questions about random ones. Sides take turns: Kafka's cache in a warm
JVM (``bench/peers/MetadataCache.java``), ours in C (``bench/metadata_table.c``), ours from Python. Caches lie in an
array in the JVM, so that its manager's look-ups in maps before are not counted. Each round applies all events to an
empty table, from one buffer of record batches; the sides' results are compared before any time counts. CRC-32C is
checked by all. Questions are asked of a table that is settled (``SegmentTable.settle``), as the manager does when no
events come. A start from a snapshot loads the table that a round filled.
"""

from __future__ import annotations

import gc
import pathlib
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bench.harness import PEERS, ROOT, Round, Suite, arguments, equal, in_turn, quotient, spread, started, work_folder
from tests.support.peers import install
from tests.support.peers.compiled import c_program, java_class_path
from tierlog._native.checksums import crc32c
from tierlog.remote.api import TopicIdPartition, Uuid
from tierlog.remote.metadata.metadata_log import MetadataBatches
from tierlog.remote.metadata.segment_table import SegmentTable
from tierlog.remote.metadata.snapshots.snapshot_file import SnapshotState, read_snapshot, write_snapshot
from tierlog.runtime.machine import Machine

PARTITIONS, SEGMENTS = 2600, 1000
QUESTIONS = 1 << 20
#: Of them from Python, one by one.
FIRST = 1 << 17
PACE_EVENTS, RUN_BYTES = 500_000, 1 << 18
COMPARED = ("events", "found", "check", "check_first", "highest_check", "listed", "list_check")
KAFKA = "Kafka's cache"

# ---- events as record batches, and questions about them

PARTITIONS_EACH_TOPIC = 100
SEGMENT_OFFSETS = 1000
#: Offsets of a leader epoch, by partition: so that segments have one, one or two, two or three.
EPOCH_OFFSETS = (5000, 1500, 650)
TURN = 64
BATCH_RECORDS = 1000
FIRST_MS = 1_700_000_000_000
QUESTION = np.dtype([("partition", "<i4"), ("epoch", "<i4"), ("offset", "<i8")])

_BODY = struct.Struct(">qqiqq")
_EPOCH = struct.Struct(">iqx")
_BATCH = struct.Struct(">hiqqqhii")


def partition_of(index: int) -> TopicIdPartition:
    topic, number = divmod(index, PARTITIONS_EACH_TOPIC)
    return TopicIdPartition(Uuid(topic.to_bytes(16, "big")), f"topic-{topic:05}", number)


def _varint(number: int) -> bytes:
    value = number << 1 ^ number >> 63
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def event_values(partitions: int, segments: int) -> Iterator[bytes]:
    """The values of all records, in the order of the topic."""
    heads = []
    for index in range(partitions):
        partition = partition_of(index)
        name = partition.topic.encode()
        head = bytes([len(name) + 1]) + name + partition.topic_id.raw + struct.pack(">ix", partition.partition)
        heads.append((index << 32, head))
    for number in range(segments):
        start, end = number * SEGMENT_OFFSETS, (number + 1) * SEGMENT_OFFSETS - 1
        tail = _BODY.pack(start, end, number % 5, FIRST_MS + start, FIRST_MS + end)
        bodies = []
        for length in EPOCH_OFFSETS:
            epochs = range(start // length, end // length + 1)
            told = b"".join(_EPOCH.pack(epoch, max(start, epoch * length)) for epoch in epochs)
            bodies.append(tail + bytes([len(epochs) + 1]) + told + struct.pack(">ixxx", 100_000_000 + number))
        finished = struct.pack(">xiqxbx", number % 5, FIRST_MS + end, 1)
        for turn in range(0, partitions, TURN):
            ours = range(turn, min(turn + TURN, partitions))
            ids = [struct.pack(">8xQ", heads[index][0] | number) for index in ours]
            for index, segment_id in zip(ours, ids, strict=True):
                yield b"\1\0\0" + heads[index][1] + segment_id + b"\0" + bodies[index % 3]
            for index, segment_id in zip(ours, ids, strict=True):
                yield b"\1\1\0" + heads[index][1] + segment_id + finished


def _batches(values: Iterator[bytes]) -> Iterator[bytes]:
    deltas = [b"\0\0" + _varint(delta) + b"\1" for delta in range(BATCH_RECORDS)]
    first, records = 0, bytearray()
    count = 0
    for value in values:
        fields = deltas[count] + _varint(len(value)) + value + b"\0"
        records += _varint(len(fields)) + fields
        count += 1
        if count == BATCH_RECORDS:
            yield _batch(first, count, records)
            first, count = first + count, 0
            records.clear()
    if count:
        yield _batch(first, count, records)


def _batch(first: int, count: int, records: bytearray) -> bytes:
    now = FIRST_MS + first
    summed = _BATCH.pack(0, count - 1, now, now, -1, -1, -1, count) + records
    head = struct.pack(">qiiBI", first, len(summed) + 9, 0, 2, crc32c(summed))
    return head + summed


def write_events(path: pathlib.Path, partitions: int, segments: int) -> None:
    """Write the batches."""
    with path.open("wb") as file:
        for batch in _batches(event_values(partitions, segments)):
            file.write(batch)


def write_questions(path: pathlib.Path, partitions: int, segments: int, count: int) -> None:
    """Write questions of random partitions and offsets with the epoch that wrote them; one in twenty of another one."""
    rng = np.random.default_rng(20261123)
    questions = np.empty(count, QUESTION)
    questions["partition"] = rng.integers(0, partitions, count)
    questions["offset"] = rng.integers(0, segments * SEGMENT_OFFSETS, count)
    questions["epoch"] = questions["offset"] // np.array(EPOCH_OFFSETS)[questions["partition"] % 3]
    questions["epoch"] += rng.integers(0, 20, count) == 0
    path.write_bytes(questions.tobytes())


# ---- ours from Python


class FromPython:
    """Our table from Python: seconds of a round, and its results."""

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
            run = table.apply(MetadataBatches(0, 0, self._events))
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
            told["check"] = sum(_sum_of(rows[found]) for found, rows in answers) & (1 << 64) - 1
            told["found"] = sum(int(found.sum()) for found, _ in answers)
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


def _runs_of(events: bytes) -> Sequence[MetadataBatches]:
    runs, at, begun = [], 0, 0
    view = memoryview(events)
    while at < len(view):
        at += 12 + int.from_bytes(view[at + 8 : at + 12], "big")
        if at - begun >= RUN_BYTES or at == len(view):
            runs.append(MetadataBatches(0, 0, view[begun:at]))
            begun = at
    return runs


# ---- the rounds


def main() -> None:
    chosen = arguments(__doc__)
    partitions, segments = max(100, int(PARTITIONS * chosen.scale)), SEGMENTS
    with work_folder() as folder:
        write_events(folder / "events", partitions, segments)
        write_questions(folder / "questions", partitions, segments, QUESTIONS)
        questions = np.fromfile(folder / "questions", QUESTION)
        python = FromPython(folder, (folder / "events").read_bytes(), questions, partitions)
        given = [str(folder / "events"), str(folder / "questions"), str(partitions), str(FIRST)]
        (folder / "classes").mkdir()
        class_path = java_class_path(PEERS / "MetadataCache.java", folder / "classes")
        program = "org.apache.kafka.server.log.remote.metadata.storage.MetadataCache"
        java = [install.java(), "-Xmx10g", "-cp", class_path, program, *given]
        c = str(c_program(ROOT / "bench" / "metadata_table.c", folder))
        waits: list[Any] = []
        with started(KAFKA, java) as kafka, started("ours in C", [c, *given]) as ours:

            def compared() -> dict[str, Any]:
                told = {KAFKA: kafka(), "C": ours(), "Python": python.round()}
                for name in COMPARED:
                    equal(name, {side: each[name] % (1 << 64) for side, each in told.items() if name in each})
                equal("segments of a snapshot", {name: told["Python"][name] for name in ("restored", "listed")})
                waits.append(python.beside_a_writer())
                return told

            rounds = [each.told for each in in_turn({"all": compared}, chosen.rounds)["all"]]  # the first warms the JVM
    _tell(Suite("metadata_table", {"Kafka": install.kafka_version()}), partitions * segments, rounds, waits[1:])


def _tell(suite: Suite, segments: int, rounds: Sequence[dict[str, Any]], waits: Sequence[Any]) -> None:
    def column(side: str, name: str) -> list[float]:
        return [each[side][name] for each in rounds]

    events = 2 * segments
    rows: list[tuple[str, str, str, int, float | None, str, int]] = [
        ("events applied from one buffer, C", "C", "seconds", events, 7, "seconds", events),
        ("events applied from one buffer, Python", "Python", "seconds", events, 7, "seconds", events),
        ("events of nobody's partitions passed over, C, beside deserialize", "C", "parse", events, 1, "parse", events),
        ("lookups batched, C", "C", "find_many", QUESTIONS, 10, "find", QUESTIONS),
        ("lookups batched by partition, Python", "Python", "find_many", QUESTIONS, 10, "find", QUESTIONS),
        ("lookups one by one, C", "C", "find", QUESTIONS, 2, "find", QUESTIONS),
        ("lookups one by one, Python", "Python", "find", FIRST, 1, "find", QUESTIONS),
        ("highest offset for epoch, batched, C", "C", "highest_many", QUESTIONS, 1, "highest", QUESTIONS),
        ("highest offset for epoch, one by one, C", "C", "highest", QUESTIONS, None, "highest", QUESTIONS),
        ("listing, C", "C", "list", segments, 1, "list", segments),
        ("listing as columns, Python", "Python", "list", segments, 1, "list", segments),
    ]
    for what, side, name, count, bar, theirs, their_count in rows:
        found = {
            "ours": [Round(wall, 0.0) for wall in column(side, name)],
            KAFKA: [Round(wall, 0.0) for wall in column(KAFKA, theirs)],
        }
        suite.speed(what, found, KAFKA, amount=count, their_amount=their_count, unit="M/s", bar=bar)
    begun, replayed = column("Python", "snapshot"), column(KAFKA, "seconds")
    told = f"{spread(begun, '.2f')} s for {segments} segments, Kafka's replay {spread(replayed, '.2f')} s"
    suite.add("start from a snapshot, × as fast as Kafka's replay", told, quotient(replayed, begun), 10)
    if segments >= PARTITIONS * SEGMENTS:
        suite.add("start from a snapshot of 2.6 M segments, s", told, quotient(begun, [1.0]), 1, least=False)
    sizes = [[size / segments for size in column(side, "held")] for side in ("C", KAFKA)]
    told = f"RSS {spread(sizes[0])} bytes, Kafka's heap {spread(sizes[1])}; events in topic order"
    suite.add("bytes a segment", told, sizes[0][0], 100, least=False)
    late, worst = ([float(np.percentile(each, share)) / 1000 for each in waits] for share in (99, 99.9))
    told = f"p99 {spread(late, '.1f')} µs, p99.9 {spread(worst, '.1f')} µs; {PACE_EVENTS} events/s in another thread"
    suite.add("lookup from Python beside a writer, p99 in µs", told, quotient(late, [1.0]), 50, least=False)
    suite.save()


if __name__ == "__main__":
    main()
