"""The local log beside Kafka's own UnifiedLog and OffsetIndex, and beside bare system calls, over the same bytes.

    python -m bench.local_log [append read lookups recovery] [--batches 16384] [--rounds 5] [--folder DIR]

Sides take turns: Kafka's classes in a JVM (``bench/peers/LogTurns.java``), the core in C (``bench/local_log.c``), ours
from Python. What they write, find and rebuild is compared before any time counts: files byte for byte, answers one by
one. Nothing is fsynced but where it says so: what a log leaves for its background is dropped on both sides. All files
lie in one folder of one file system, and are removed behind each round, before the system writes them out.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import os
import pathlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bench.findings import Findings, ratios, spread
from bench.local_log_data import BATCH_BYTES, INDEX_BASE, write_batches, write_index, write_questions
from bench.peers.rounds import Peer, started
from tests.support.peers import install
from tests.support.peers.compiled import c_program, java_class_path
from tierlog.log.formats.offset_index import OffsetIndex
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.unified_log import UnifiedLog

HERE = pathlib.Path(__file__).resolve().parent
SEGMENT_BYTES = 64 << 20
RECOVERED_BATCHES = (1 << 30) // BATCH_BYTES
READ_BYTES = 1 << 20
QUESTIONS = 1 << 20
AT_ONCE = 64
LEADER_EPOCH = 3
KINDS = ("plain", "idempotent")


class _Dropped:
    """Where a roll leaves its fsync, on the other side too: it is never done."""

    def submit(self, function: Callable[[], None], *, delay_ms: int = 0) -> None:
        """Forget it."""


def _opened(folder: pathlib.Path, segment_bytes: int) -> UnifiedLog:
    config = LogConfig(segment_bytes=segment_bytes, retention_ms=-1)
    return UnifiedLog.open(str(folder), config=config, tasks=_Dropped())


def _digests(folder: pathlib.Path) -> dict[str, str]:
    """Name to content of all files of a log."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def _compare(what: str, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    differing = [name for name in theirs | ours if theirs.get(name) != ours.get(name)]
    if differing:
        raise RuntimeError(f"{what}: {', '.join(differing)} differ")


class _Bench:
    """The sides, their files, and what they told."""

    def __init__(self, folder: pathlib.Path, kafka: Peer, c: Peer, *, batches: int, rounds: int) -> None:
        self.folder = folder
        self.kafka = kafka
        self.c = c
        self.batches = batches
        self.rounds = rounds
        self.told = Findings()

    @contextlib.contextmanager
    def _log_folder(self) -> Iterator[pathlib.Path]:
        folder = self.folder / "logs" / "orders-0"
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder.parent)

    # ---- append

    def append(self) -> None:
        for kind in KINDS:
            self._append(kind)

    def _append(self, kind: str) -> None:
        data = self.folder / "batches"
        write_batches(data, self.batches, idempotent=kind == "idempotent")
        sides: dict[str, Callable[[pathlib.Path], tuple[float, float]]] = {
            "write": lambda log: (self.c("write", data, log, SEGMENT_BYTES), self.c.last["cpu"]),
            "c": lambda log: (self.c("append", data, log, SEGMENT_BYTES), self.c.last["cpu"]),
            "kafka": lambda log: (self.kafka("append", data, log, SEGMENT_BYTES), self.kafka.last["cpu"]),
            "python": lambda log: _append_from_python(data, log),
        }
        rounds: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
        for number in range(self.rounds + 2):  # the first compares, the second goes on to warm the JVM
            written: dict[str, dict[str, str]] = {}
            for side, measure in sides.items():
                with self._log_folder() as log:
                    rounds[side].append(measure(log))
                    if number == 0 and side != "write":
                        written[side] = _digests(log)
            if number == 0:
                _compare(f"files of {kind} appends", written["kafka"], written["python"])
                kept = {name: written["kafka"].get(name, "") for name in written["c"]}
                _compare(f"files of {kind} appends in C", kept, written["c"])
        data.unlink()
        self._tell_append(kind, {side: seconds[2:] for side, seconds in rounds.items()})

    def _tell_append(self, kind: str, seconds: dict[str, list[tuple[float, float]]]) -> None:
        """Batches a second by the clock; and the processor time of a batch, which other work disturbs less."""
        rates = {side: [self.batches / wall / 1000 for wall, _ in told] for side, told in seconds.items()}
        cpu = {side: spread([spent / self.batches * 1e6 for _, spent in told], ".1f") for side, told in seconds.items()}
        bare, c, kafka, python = rates["write"], rates["c"], rates["kafka"], rates["python"]
        text = f"{spread(c, '.1f')} k/s, write(2) {spread(bare, '.1f')} k/s, ratios {ratios(c, bare)}"
        text += f"; CPU {cpu['c']} and {cpu['write']} µs"
        self.told.add(f"append, {kind}, C, × write(2)", text, _quotient(c, bare), 0.7, least=True)
        text = f"{spread(python, '.1f')} k/s, Kafka {spread(kafka, '.1f')} k/s, ratios {ratios(python, kafka)}"
        text += f"; CPU {cpu['python']} and {cpu['kafka']} µs"
        self.told.add(f"append, {kind}, Python, × Kafka's UnifiedLog", text, _quotient(python, kafka), 1, least=True)

    # ---- read

    def read(self) -> None:
        data = self.folder / "batches"
        write_batches(data, self.batches, idempotent=False)
        with self._log_folder() as folder:
            _append_from_python(data, folder)
            data.unlink()
            buffer = memoryview(bytearray(READ_BYTES))
            with _opened(folder, SEGMENT_BYTES) as log:
                starts, ranges = _reads_of(log)
                _check_reads(log, starts, ranges, buffer)
                ours, bare = [], []
                for _ in range(self.rounds + 1):
                    bare.append(_read_bare(ranges, buffer))
                    ours.append(_read_log(log, starts, buffer))
        size = sum(each[2] for each in ranges)
        rates = [[size / each / 1e9 for each in seconds[1:]] for seconds in (ours, bare)]
        text = f"{spread(rates[0], '.2f')} GB/s, preadv {spread(rates[1], '.2f')} GB/s, ratios {ratios(*rates)}"
        self.told.add(
            "read, sequential, warm, 1 MiB, × preadv of the same ranges", text, _quotient(*rates), 0.85, least=True
        )

    # ---- lookups

    def lookups(self) -> None:
        index, questions = self.folder / f"{INDEX_BASE:020}.index", self.folder / "questions"
        tail, last = write_index(index)
        for where, first in (("random", INDEX_BASE), ("in the last 8 KiB", tail)):
            write_questions(questions, first, last, QUESTIONS)
            rounds: dict[str, list[float]] = {"kafka": [], "many": [], "one": [], "python": []}
            view, asked = OffsetIndex(index.read_bytes(), INDEX_BASE), np.fromfile(questions, "<i8")
            parts = np.split(asked, QUESTIONS // AT_ONCE)
            for number in range(self.rounds + 2):
                answers = [self.folder / side if number == 0 else "-" for side in ("kafka", "many", "one")]
                rounds["kafka"].append(self.kafka("lookup", index, INDEX_BASE, questions, answers[0]))
                rounds["many"].append(self.c("lookup", index, INDEX_BASE, questions, AT_ONCE, answers[1]))
                rounds["one"].append(self.c("lookup", index, INDEX_BASE, questions, 1, answers[2]))
                rounds["python"].append(_look_up(view, parts))
                if number == 0:
                    _check_answers(view, parts, [np.fromfile(path, "<i8") for path in answers])
            self._tell_lookups(where, {side: seconds[2:] for side, seconds in rounds.items()})

    def _tell_lookups(self, where: str, seconds: dict[str, list[float]]) -> None:
        rates = {side: [QUESTIONS / each / 1e6 for each in told] for side, told in seconds.items()}
        kafka = rates["kafka"]
        for side, name, bar in (
            ("many", f"C, batches of {AT_ONCE}", 3),
            ("python", f"Python, batches of {AT_ONCE}", 2),
            ("one", "C, one by one", None),
        ):
            ours = rates[side]
            text = f"{spread(ours, '.1f')} M/s, Kafka {spread(kafka, '.1f')} M/s, ratios {ratios(ours, kafka)}"
            what = f"offset lookups, {where}, {name}, × Kafka's OffsetIndex"
            self.told.add(what, text, _quotient(ours, kafka), bar if where == "random" else None, least=True)

    # ---- recovery

    def recovery(self) -> None:
        batches = RECOVERED_BATCHES if self.batches >= QUESTIONS >> 6 else self.batches
        for kind in KINDS:
            data = self.folder / "batches"
            write_batches(data, batches, idempotent=kind == "idempotent")
            with self._log_folder() as folder:
                self.c("append", data, folder, 1 << 30)
                data.unlink()
                log = folder / f"{0:020}.log"
                whole = _digests(folder)
                _sync(log)
                rounds: dict[str, list[float]] = {"bare": [], "ours": [], "fsync": [], "kafka": []}
                for number in range(self.rounds + 1):
                    rounds["bare"].append(self.c("checksum", log))
                    _leave_log_alone(folder)
                    seconds, fsync, end = _recover(folder)
                    rounds["ours"].append(seconds - fsync)
                    rounds["fsync"].append(fsync)
                    rebuilt = _digests(folder)
                    _compare("rebuilt files", whole, {name: rebuilt[name] for name in whole})
                    _leave_log_alone(folder)
                    if number < 3:  # Kafka's takes long, and has no bar
                        rounds["kafka"].append(self.kafka("recover", folder, 1 << 30))
                        _compare("files that Kafka rebuilt", rebuilt, _digests(folder))
                        if self.kafka.last["end"] != end:
                            raise RuntimeError(f"Kafka's log ends at {self.kafka.last['end']}, ours at {end}")
            self._tell_recovery(kind, batches * BATCH_BYTES, rounds)

    def _tell_recovery(self, kind: str, size: int, rounds: dict[str, list[float]]) -> None:
        bare, ours, fsync = (rounds[side][1:] for side in ("bare", "ours", "fsync"))
        kafka = rounds["kafka"][1:]
        text = (
            f"{spread(ours, '.3f')} s and {spread(fsync, '.3f')} s of fsync; pread and CRC-32C {spread(bare, '.3f')} s"
            f", ratios {ratios(ours, bare)}; Kafka {spread(kafka, '.2f')} s; {size >> 20} MiB"
        )
        value = statistics.median(ours) / statistics.median(bare)
        self.told.add(f"recovery without indexes, {kind}, time × pread by 1 MiB and CRC-32C", text, value, 1.3)


def _append_from_python(data: pathlib.Path, folder: pathlib.Path) -> tuple[float, float]:
    """Seconds by the clock, and of this thread's processor time."""
    everything = memoryview(bytearray(data.read_bytes()))
    requests = [everything[at : at + BATCH_BYTES] for at in range(0, len(everything), BATCH_BYTES)]
    with _opened(folder, SEGMENT_BYTES) as log:
        gc.collect()
        append = log.append_as_leader
        start, begun = time.perf_counter(), time.thread_time()
        for request in requests:
            append(request, leader_epoch=LEADER_EPOCH)
        return time.perf_counter() - start, time.thread_time() - begun


def _reads_of(log: UnifiedLog) -> tuple[list[int], list[tuple[str, int, int]]]:
    """Offsets of reads one behind the other, and (path, position, size) of what they give."""
    starts, ranges, offset = [], [], 0
    while offset < log.log_end_offset:
        records = log.read(offset, max_bytes=READ_BYTES, isolation=FetchIsolation.LOG_END).records
        assert records is not None
        starts.append(offset)
        ranges.append((records.path, records.position, records.size_bytes))
        offset += records.size_bytes // BATCH_BYTES * 16
    return starts, ranges


def _check_reads(
    log: UnifiedLog, starts: Sequence[int], ranges: Sequence[tuple[str, int, int]], buffer: memoryview
) -> None:
    for start, (path, position, size) in zip(starts, ranges, strict=True):
        records = log.read(start, max_bytes=READ_BYTES, isolation=FetchIsolation.LOG_END).records
        assert records is not None
        records.read_into(buffer[:size])
        with pathlib.Path(path).open("rb") as file:
            if os.pread(file.fileno(), size, position) != buffer[:size]:
                raise RuntimeError(f"the read at offset {start} has other bytes than the file")


def _read_log(log: UnifiedLog, starts: Sequence[int], buffer: memoryview) -> float:
    read = log.read
    begun = time.perf_counter()
    for start in starts:
        records = read(start, max_bytes=READ_BYTES, isolation=FetchIsolation.LOG_END).records
        assert records is not None
        records.read_into(buffer[: records.size_bytes])
    return time.perf_counter() - begun


def _read_bare(ranges: Sequence[tuple[str, int, int]], buffer: memoryview) -> float:
    with contextlib.ExitStack() as stack:
        files = {path: stack.enter_context(pathlib.Path(path).open("rb")).fileno() for path, _, _ in ranges}
        begun = time.perf_counter()
        for path, position, size in ranges:
            os.preadv(files[path], [buffer[:size]], position)
        return time.perf_counter() - begun


def _look_up(index: OffsetIndex, parts: Sequence[np.ndarray[Any, Any]]) -> float:
    look_up = index.lookup_many
    begun = time.perf_counter()
    for part in parts:
        look_up(part)
    return time.perf_counter() - begun


def _check_answers(
    index: OffsetIndex, parts: Sequence[np.ndarray[Any, Any]], answers: Sequence[np.ndarray[Any, Any]]
) -> None:
    columns = [np.concatenate(column) for column in zip(*map(index.lookup_many, parts), strict=True)]
    ours = np.stack(columns, axis=1).ravel()
    if not all(np.array_equal(each, ours) for each in answers):
        raise RuntimeError("the sides found different entries")


def _leave_log_alone(folder: pathlib.Path) -> None:
    for path in folder.iterdir():
        if path.suffix != ".log":
            path.unlink()


def _sync(path: pathlib.Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _recover(folder: pathlib.Path) -> tuple[float, float, int]:
    """Seconds in all, of them in fsync, and where the log ends. The log is closed behind the measurement."""
    spent, bare = [0.0], os.fsync

    def fsync(file: int) -> None:
        start = time.perf_counter()
        bare(file)
        spent[0] += time.perf_counter() - start

    os.fsync = fsync
    try:
        start = time.perf_counter()
        log = _opened(folder, 1 << 30)
        seconds = time.perf_counter() - start
    finally:
        os.fsync = bare
    synced = spent[0]
    with log:
        return seconds, synced, log.log_end_offset


def _quotient(above: Sequence[float], below: Sequence[float]) -> float:
    return statistics.median(above) / statistics.median(below)


def _kafka_version() -> str:
    return next(iter(install.jars("kafka").glob("kafka-storage-[0-9]*.jar"))).stem.rpartition("-")[2]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", choices=["append", "read", "lookups", "recovery", []], default=[])
    parser.add_argument("--batches", type=int, default=16384)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="a folder of the file system to measure on; the system's own otherwise")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tierlog-bench-", dir=chosen.folder) as name:
        folder = pathlib.Path(name)
        classes = java_class_path(HERE / "peers" / "LogTurns.java", folder / "classes")
        java = [install.java(), "-Xmx3g", "-cp", classes, "org.apache.kafka.storage.internals.log.LogTurns"]
        program = c_program(pathlib.Path(__file__).with_suffix(".c"), folder)
        with started("Kafka", java) as kafka, started("ours in C", [str(program)]) as c:
            bench = _Bench(folder, kafka, c, batches=chosen.batches, rounds=chosen.rounds)
            for what in chosen.what or ["append", "read", "lookups", "recovery"]:
                getattr(bench, what)()
    bench.told.save("local_log", {"Kafka": _kafka_version()})


if __name__ == "__main__":
    main()
