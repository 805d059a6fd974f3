"""The local log beside Kafka's own UnifiedLog and OffsetIndex, and beside bare system calls, over the same bytes.

    python -m bench.local_log [append read lookups recovery open compaction] [--scale 0.05] [--rounds 5] [--folder DIR]

Sides take turns: Kafka 4.3.1's classes in a warm JVM (``bench/peers/LogTurns.java``), the core in C
(``bench/local_log.c``), ours from Python. 16 records of 1,020 bytes a batch, as producers send them (*plain*), or from
eight idempotent producers in turn; segments of 64 MiB. Compared first: every file of the log byte for byte between
Kafka, Python and, as far as it writes them, C; each answer of an index; the files that recovery rebuilds against the
originals, and against those that Kafka rebuilds. Nothing is fsynced while appends are measured: a roll's background
fsync is dropped on both sides. All files lie in one folder of one file system (``--folder``; the system's own
otherwise), and are removed behind each round, before the system writes them out.

*open* is a broker's start: Kafka's LogManager (``bench/peers/OpenTurns.java``) and LogDirectories over the same folder
in turn, with the same number of threads, the page cache warm, after a clean stop, and after a kill behind the last
roll: the recovery points are where the last segments begin, which are checked. Both tell the same offsets of every log.

*compaction* is one cleaning by one thread, beside Kafka's Cleaner, of a gibibyte in which half of the keys stand twice
(uncompressed, in lz4, and uncompressed in transactions of eight producers side by side, every fourth aborted), with
Kafka's default buffers, the page cache warm, fsyncs included: a folder in memory (``--folder /dev/shm``) compares the
work. The cleaned files are the same, byte for byte where nothing is compressed, else in all headers and records.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import pathlib
import resource
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from bench import data
from bench.harness import (
    PEERS,
    ROOT,
    Rounds,
    Side,
    Suite,
    arguments,
    equal,
    in_turn,
    quotient,
    spread,
    started,
    work_folder,
)
from bench.log_batches import BATCH_BYTES, LEADER_EPOCH, RECORDS_A_BATCH, write_batches, write_compacted
from tests.support.peers import install
from tests.support.peers.compiled import c_program, java_class_path
from tests.support.sparse_indexes import encode_offset_index
from tierlog._native.batches import scan_batches
from tierlog.log.formats.checkpoints import encode_offset_checkpoint
from tierlog.log.formats.identity_files import Uuid
from tierlog.log.formats.segment_files import CLEAN_SHUTDOWN, HIGH_WATERMARKS, RECOVERY_POINTS
from tierlog.log.formats.segment_indexes import OFFSET_ENTRY_BYTES, OffsetIndex
from tierlog.log.local.compaction.cleaner import Cleaner
from tierlog.log.local.log_config import LogConfig, LogDirectoryConfig
from tierlog.log.local.log_directories import LogDirectories
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.recovery.log_loader import LogCheckpoints
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.decoding import decode
from tierlog.runtime.machine import Machine

BATCHES, RECOVERED_BYTES = 16384, 1 << 30
SEGMENT_BYTES, READ_BYTES = 64 << 20, 1 << 20
KINDS = ("plain", "idempotent")
KAFKA, WRITE, MANAGER = "Kafka's UnifiedLog", "write(2)", "Kafka's LogManager"
INDEX, INDEX_BYTES, INDEX_BASE = "Kafka's OffsetIndex", 10 << 20, 1_000_000
QUESTIONS, AT_ONCE = 1 << 20, 64
#: Of the start: a directory's partitions, the segments and the batches of each, the threads.
PARTITIONS, SEGMENTS, BATCHES_A_SEGMENT, THREADS = 1000, 20, 4, 2
#: A JVM's, beside those of the logs.
SPARE_FILES = 400
TOPIC = "orders"
#: Of a compaction: bytes of records, of the map and of each buffer, as of a broker's one cleaner thread; the time.
COMPACTED_BYTES, DEDUPE_BYTES, IO_BYTES, CLEAN_MS = 1 << 30, 128 << 20, 256 << 10, 1_700_000_000_000
CLEANER = "Kafka's Cleaner"
#: Of the indexes of a segment that is appended to, by Kafka: whole entries of each.
ALLOCATED_BYTES = 10_485_744
#: The tail of an index in which Kafka searches first, as its warm section.
TAIL_BYTES = 8192


# ---- the appends and the lookups, from fixed seeds


def write_index(path: pathlib.Path) -> tuple[int, int]:
    """An offset index of 10 MiB; (the first offset of its last 8 KiB, its last offset)."""
    rng = np.random.default_rng(data.SEED + 8)
    entries = INDEX_BYTES // OFFSET_ENTRY_BYTES
    offsets = INDEX_BASE + np.cumsum(rng.integers(1, 64, entries))
    path.write_bytes(encode_offset_index(INDEX_BASE, offsets, np.cumsum(rng.integers(1, 3000, entries))))
    return int(offsets[-TAIL_BYTES // OFFSET_ENTRY_BYTES]), int(offsets[-1])


# ---- ours from Python


class _Dropped:
    """The queue of a roll's fsync, and of a cleaning's removals, which are never done, as on the other side."""

    def submit(self, function: Callable[[], None], *, delay_ms: int = 0) -> None:
        """Forget it."""


def _opened(folder: pathlib.Path, segment_bytes: int) -> UnifiedLog:
    config = LogConfig(segment_bytes=segment_bytes, retention_ms=-1)
    return UnifiedLog.open(str(folder), config=config, tasks=_Dropped())


def _append(batches: pathlib.Path, folder: pathlib.Path) -> dict[str, float]:
    everything = memoryview(bytearray(batches.read_bytes()))
    requests = [everything[at : at + BATCH_BYTES] for at in range(0, len(everything), BATCH_BYTES)]
    with _opened(folder, SEGMENT_BYTES) as log:
        gc.collect()
        append = log.append_as_leader
        start, begun = time.perf_counter(), time.thread_time()
        for request in requests:
            append(request, leader_epoch=LEADER_EPOCH)
        return {"wall": time.perf_counter() - start, "cpu": time.thread_time() - begun}


def _recover(folder: pathlib.Path) -> dict[str, float]:
    """Seconds without those of fsync, these apart, and where the log ends. It is closed behind the measurement."""
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
        return {"wall": seconds - synced, "fsync": synced, "end": log.log_end_offset}


def _append_all(batches: pathlib.Path, folder: pathlib.Path, segment_bytes: int, *, have_offsets: bool) -> None:
    everything, at = memoryview(bytearray(batches.read_bytes())), 0
    with _opened(folder, segment_bytes) as log:
        while at < len(everything):
            size = 12 + int.from_bytes(everything[at + 8 : at + 12], "big")
            if have_offsets:
                log.append_as_follower(everything[at : at + size], leader_epoch=LEADER_EPOCH)
            else:
                log.append_as_leader(everything[at : at + size], leader_epoch=LEADER_EPOCH)
            at += size
        log.roll()


def _clean(folder: pathlib.Path) -> dict[str, float]:
    """A cleaning of all but the active segment, and the greatest size of the process beyond that before it."""
    config = LogConfig(segment_bytes=SEGMENT_BYTES, cleanup_policy=frozenset({"compact"}))
    checkpoints = LogCheckpoints(1 << 62)
    with UnifiedLog.open(
        str(folder),
        config=config,
        checkpoints=checkpoints,
        had_clean_shutdown=True,
        is_sole_replica=True,
        tasks=_Dropped(),
    ) as log:
        cleaner = Cleaner(
            Machine(),
            dedupe_buffer_bytes=DEDUPE_BYTES,
            load_factor=0.9,
            io_buffer_bytes=IO_BYTES,
            throttle=lambda _: None,
            check_done=lambda: None,
        )
        gc.collect()
        before = _resident("VmRSS")
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        start, begun = time.perf_counter(), time.thread_time()
        result = cleaner.clean(
            log, first_dirty_offset=0, first_uncleanable_offset=log.active_segment.base_offset, now_ms=CLEAN_MS
        )
        wall, cpu = time.perf_counter() - start, time.thread_time() - begun
        counts = {"read": result.stats.messages_read, "written": result.stats.messages_written}
        return {
            "wall": wall,
            "cpu": cpu,
            "peak": _resident("VmHWM") - before,
            "next": result.next_dirty_offset,
            **counts,
        }


def _resident(field: str) -> int:
    (found,) = [line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith(field)]
    return int(found.split()[1]) << 10


def _cleaned_content(folder: pathlib.Path) -> dict[str, str]:
    """Name to a digest of all headers and records of each log, whatever its streams are."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.log")):
        content = path.read_bytes()
        columns = scan_batches(content)[0]
        parts = [columns[name].tobytes() for name in columns if name not in ("position", "size_bytes", "crc")]
        rows = decode(content, columns=("offset", "timestamp", "key", "value"))
        parts += [str(row).encode() for row in rows.to_pylist()]
        found[path.name] = hashlib.sha256(b"".join(parts)).hexdigest()
    return found


def _digests(folder: pathlib.Path) -> dict[str, str]:
    """Name to content of all files of a log."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def write_directory(folder: pathlib.Path, batches: pathlib.Path, partitions: int) -> None:
    """A log directory as a broker leaves it: one log, with other names."""
    config = LogConfig(segment_bytes=BATCHES_A_SEGMENT * BATCH_BYTES, retention_ms=-1)
    with LogDirectories.open([str(folder)], config=config, runs_tasks=False) as directories:
        log = directories.log(TOPIC, 0, topic_id=Uuid(bytes(range(16))))
        data = memoryview(bytearray(batches.read_bytes()))
        for at in range(0, len(data), BATCH_BYTES):
            log.append_as_leader(data[at : at + BATCH_BYTES], leader_epoch=LEADER_EPOCH)
    for partition in range(1, partitions):
        shutil.copytree(folder / f"{TOPIC}-0", folder / f"{TOPIC}-{partition}")
    end_offset = len(data) // BATCH_BYTES * RECORDS_A_BATCH
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        offsets = {(TOPIC, partition): end_offset for partition in range(partitions)}
        (folder / name).write_bytes(encode_offset_checkpoint(offsets))


def make_unclean(folder: pathlib.Path, partitions: int) -> None:
    """Leave a directory as a broker that is killed does: no marker, recovery points at the last roll, no snapshot
    behind it, and the last indexes with the zeros that are allocated ahead.
    """
    (folder / CLEAN_SHUTDOWN).unlink()
    last = (SEGMENTS - 1) * BATCHES_A_SEGMENT * RECORDS_A_BATCH
    offsets = {(TOPIC, partition): last for partition in range(partitions)}
    (folder / RECOVERY_POINTS).write_bytes(encode_offset_checkpoint(offsets))
    for log in (folder / f"{TOPIC}-{partition}" for partition in range(partitions)):
        (log / f"{last + BATCHES_A_SEGMENT * RECORDS_A_BATCH:020}.snapshot").unlink()
        for index in ("index", "timeindex"):
            os.truncate(log / f"{last:020}.{index}", ALLOCATED_BYTES)


def _open(folder: pathlib.Path, answers: pathlib.Path) -> dict[str, float]:
    """Seconds of a start; what each log has is written down behind the measurement."""
    gc.collect()
    begun = time.process_time()
    start = time.perf_counter()
    settings = LogDirectoryConfig(num_recovery_threads_per_data_dir=THREADS)
    config = LogConfig(segment_bytes=1 << 20, retention_ms=-1)
    with LogDirectories.open([str(folder)], config=config, directory_config=settings) as directories:
        logs = directories.load_logs()
        seconds, cpu = time.perf_counter() - start, time.process_time() - begun
        told = (
            f"{log.topic}-{log.partition} {log.log_start_offset} {log.log_end_offset} {log.recovery_point}"
            for log in logs.values()
        )
        answers.write_text("".join(f"{line}\n" for line in sorted(told)))
        segments = sum(len(log.log_segments()) for log in logs.values())
    return {"wall": seconds, "cpu": cpu, "segments": segments}


class Bench:
    """The sides and their files."""

    def __init__(self, suite: Suite, folder: pathlib.Path, kafka: Side, c: Side, scale: float, rounds: int) -> None:
        self.suite, self.folder, self.kafka, self.c, self.rounds = suite, folder, kafka, c, rounds
        self.scale, self.count = scale, max(64, int(BATCHES * scale))

    @contextlib.contextmanager
    def _log_folder(self) -> Iterator[pathlib.Path]:
        folder = self.folder / "logs" / "orders-0"
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder.parent)

    def append(self) -> None:
        for kind in KINDS:
            self._append(kind)

    def _append(self, kind: str) -> None:
        """Batches a second by the clock; and the processor time of a batch, which other work disturbs less."""
        batches = self.folder / "batches"
        write_batches(batches, self.count, idempotent=kind == "idempotent")
        sides: dict[str, Callable[[pathlib.Path], dict[str, Any]]] = {
            WRITE: lambda log: self.c("write", batches, log, SEGMENT_BYTES),
            "C": lambda log: self.c("append", batches, log, SEGMENT_BYTES),
            KAFKA: lambda log: self.kafka("append", batches, log, SEGMENT_BYTES),
            "Python": lambda log: _append(batches, log),
        }
        written: dict[str, dict[str, str]] = {}

        def run(side: str, measure: Callable[[pathlib.Path], dict[str, Any]]) -> dict[str, Any]:
            with self._log_folder() as log:
                told = measure(log)
                if side not in written:
                    written[side] = _digests(log)
                return told

        calls = {side: partial(run, side, measure) for side, measure in sides.items()}
        in_turn(calls, 1, warm=0)
        equal(f"files of {kind} appends", {side: written[side] for side in (KAFKA, "Python")})
        same = {name: written[KAFKA].get(name, "") for name in written["C"]}
        equal(f"files of {kind} appends in C", {KAFKA: same, "C": written["C"]})
        found = in_turn(calls, self.rounds)  # the first goes on to warm the JVM
        batches.unlink()
        for ours, peer, bar in (("C", WRITE, 0.7), ("Python", KAFKA, 1.0)):
            self._speed(f"append, {kind}, {ours}", found, ours, peer, self.count, "k/s", bar, each="µs")

    def _speed(
        self, what: str, found: Rounds, ours: str, peer: str, amount: int, unit: str, bar: float | None, each: str = ""
    ) -> None:
        """A row of a speed, and the processor time of each piece of work where a unit is given."""
        self.suite.speed(what, found, peer, amount=amount, unit=unit, ours=ours, bar=bar)
        if each:
            cpu = [[1e6 * taken.cpu / amount for taken in found[side]] for side in (ours, peer)]
            told = f"{spread(cpu[0], '.1f')} {each}, {peer} {spread(cpu[1], '.1f')} {each}"
            self.suite.add(f"{what}, CPU, × {peer}", told, quotient(*cpu), None)

    def read(self) -> None:
        """Fetches of a mebibyte one behind the other, the page cache warm, beside preadv of the same ranges."""
        batches = self.folder / "batches"
        write_batches(batches, self.count, idempotent=False)
        with self._log_folder() as folder:
            _append(batches, folder)
            batches.unlink()
            buffer = memoryview(bytearray(READ_BYTES))
            with _opened(folder, SEGMENT_BYTES) as log, contextlib.ExitStack() as stack:
                starts, ranges, offset = [], [], 0
                files: dict[str, int] = {}
                while offset < log.log_end_offset:
                    (records,) = log.read(offset, max_bytes=READ_BYTES, isolation=FetchIsolation.LOG_END).records
                    if records.path not in files:
                        files[records.path] = stack.enter_context(pathlib.Path(records.path).open("rb")).fileno()
                    starts.append(offset)
                    ranges.append((files[records.path], records.position, records.size_bytes))
                    records.read_into(buffer[: records.size_bytes])
                    same = os.pread(files[records.path], records.size_bytes, records.position)
                    equal(f"the read at {offset}", {"log": buffer[: len(same)] == same, "file": True})
                    offset += records.size_bytes // BATCH_BYTES * RECORDS_A_BATCH

                def ours() -> None:
                    for start in starts:
                        (records,) = log.read(start, max_bytes=READ_BYTES, isolation=FetchIsolation.LOG_END).records
                        records.read_into(buffer[: records.size_bytes])

                def bare() -> None:
                    for file, position, size in ranges:
                        os.preadv(file, [buffer[:size]], position)

                found = in_turn({"preadv": bare, "ours": ours}, self.rounds)
        size = sum(each[2] for each in ranges)
        self.suite.speed("read, sequential, warm, 1 MiB", found, "preadv", amount=size, bar=0.85)

    def lookups(self) -> None:
        """Random offsets of an index of 10 MiB, and of its last 8 KiB."""
        index = self.folder / f"{INDEX_BASE:020}.index"
        tail, last = write_index(index)
        for where, first, bars in (("random", INDEX_BASE, (3, None, 2)), ("in the last 8 KiB", tail, (None,) * 3)):
            self._lookups(index, where, first, last, bars)

    def _lookups(self, index: pathlib.Path, where: str, first: int, last: int, bars: Sequence[float | None]) -> None:
        questions, answers = self.folder / "questions", [self.folder / str(each) for each in range(3)]
        count = max(AT_ONCE, int(QUESTIONS * self.scale) // AT_ONCE * AT_ONCE)
        asked = np.random.default_rng(data.SEED + 9).integers(first, last + 1, count).astype("<i8")
        asked.tofile(questions)
        view, parts = OffsetIndex(index.read_bytes(), INDEX_BASE), np.split(asked, count // AT_ONCE)
        many, one, python = f"C, batches of {AT_ONCE}", "C, one by one", f"Python, batches of {AT_ONCE}"

        def answer_all() -> None:  # like the peers, it drops its answers
            for part in parts:
                view.lookup_many(part)

        def sides(out: Sequence[object], ours: Callable[[], object]) -> dict[str, Callable[[], object]]:
            return {
                INDEX: lambda: self.kafka("lookup", index, INDEX_BASE, questions, out[0]),
                many: lambda: self.c("lookup", index, INDEX_BASE, questions, AT_ONCE, out[1]),
                one: lambda: self.c("lookup", index, INDEX_BASE, questions, 1, out[2]),
                python: ours,
            }

        (ours,) = in_turn(sides(answers, lambda: [view.lookup_many(part) for part in parts]), 1, warm=0)[python]
        columns = np.stack([np.concatenate(column) for column in zip(*ours.told, strict=True)], axis=1).ravel()
        same = [bool(np.array_equal(np.fromfile(path, "<i8"), columns)) for path in answers]
        equal(f"entries, {where}", {"the same": same, "wanted": [True] * 3})
        found = in_turn(sides("---", answer_all), self.rounds)
        for side, bar in zip((many, one, python), bars, strict=True):
            what = f"offset lookups, {where}, {side}"
            self.suite.speed(what, found, INDEX, amount=count, unit="M/s", ours=side, bar=bar)

    def recovery(self) -> None:
        """A log without its indexes, beside reading and checking it alone; Kafka's takes long, and has no bar."""
        for kind in KINDS:
            batches, count = self.folder / "batches", max(64, int(RECOVERED_BYTES * self.scale) // BATCH_BYTES)
            write_batches(batches, count, idempotent=kind == "idempotent")
            with self._log_folder() as folder:
                self.c("append", batches, folder, 1 << 30)
                batches.unlink()
                self._recovery(kind, folder, count * BATCH_BYTES)

    def _recovery(self, kind: str, folder: pathlib.Path, size: int) -> None:
        log, whole = folder / f"{0:020}.log", _digests(folder)
        with log.open("rb+") as file:
            os.fsync(file.fileno())
        rebuilt: dict[str, dict[str, str]] = {}
        ends: dict[str, float] = {}

        def run(side: str, recover: Callable[[], dict[str, Any]]) -> dict[str, Any]:
            for path in folder.iterdir():
                if path != log:
                    path.unlink()
            told = recover()
            rebuilt[side], ends[side] = _digests(folder), told["end"]
            return told

        bare = "pread and CRC-32C"
        calls: dict[str, Callable[[], dict[str, Any]]] = {
            bare: lambda: self.c("checksum", log),
            "ours": lambda: run("ours", lambda: _recover(folder)),
            KAFKA: lambda: run(KAFKA, lambda: self.kafka("recover", folder, 1 << 30)),
        }
        in_turn(calls, 1, warm=0)
        equal("rebuilt files", {"before": whole, "ours": {name: rebuilt["ours"][name] for name in whole}})
        equal("files that both rebuilt", rebuilt)
        equal("ends", ends)
        kafka = in_turn({KAFKA: calls.pop(KAFKA)}, 2, warm=0)[KAFKA]
        found = in_turn(calls, self.rounds)
        ours, theirs = ([each.wall for each in found[side]] for side in ("ours", bare))
        fsync = [each.told["fsync"] for each in found["ours"]]
        told = f"{spread(ours, '.3f')} s and {spread(fsync, '.3f')} s of fsync; {bare} {spread(theirs, '.3f')} s; "
        told += f"Kafka {spread([each.wall for each in kafka], '.2f')} s; {size >> 20} MiB"
        what = f"recovery without indexes, {kind}, × the time of {bare}"
        self.suite.add(what, told, quotient(ours, theirs), 1.3, least=False)

    def open(self) -> None:
        """A directory of a thousand logs, after a clean stop and after a kill, beside Kafka's LogManager, which opens
        each ``.log``: fewer logs where the system allows it fewer files.
        """
        batches, folder = self.folder / "batches", self.folder / "opened"
        allowed = (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES) // SEGMENTS
        partitions = max(4, min(allowed, int(PARTITIONS * self.scale)))
        write_batches(batches, SEGMENTS * BATCHES_A_SEGMENT, idempotent=True)
        write_directory(folder, batches, partitions)
        classes = java_class_path(PEERS / "OpenTurns.java", self.folder / "classes")
        java = [install.java(), "-Xmx3g", "-cp", classes, "kafka.log.OpenTurns"]
        with started(MANAGER, java) as kafka:
            for kind, bar in (("a clean stop", 1.5), ("an unclean stop", 1.0)):
                self._open(kind, folder, partitions, kafka, bar)
        shutil.rmtree(folder)

    def _open(self, kind: str, folder: pathlib.Path, partitions: int, kafka: Side, bar: float) -> None:
        answers = {side: self.folder / f"answers-{number}" for number, side in enumerate((MANAGER, "ours"))}

        def prepared(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
            if kind != "a clean stop":
                make_unclean(folder, partitions)
            os.sync()
            return measure()

        calls: dict[str, Callable[[], dict[str, Any]]] = {
            MANAGER: lambda: prepared(lambda: kafka(folder, THREADS, answers[MANAGER])),
            "ours": lambda: prepared(lambda: _open(folder, answers["ours"])),
        }
        in_turn(calls, 1, warm=0)
        equal(f"offsets after {kind}", {side: path.read_text() for side, path in answers.items()})
        found = in_turn(calls, self.rounds)
        self.suite.seconds(f"open {partitions} logs of {SEGMENTS} segments after {kind}", found, MANAGER, bar=bar)

    def compaction(self) -> None:
        """A log of which half of the keys stand twice, uncompressed, in lz4, and of transactions."""
        self._compaction("none", "none", transactional=False)
        self._compaction("lz4", "lz4", transactional=False)
        self._compaction("transactions", "none", transactional=True)

    def _compaction(self, kind: str, codec: str, *, transactional: bool) -> None:
        batches, source = self.folder / "batches", self.folder / "source" / "orders-0"
        write_compacted(batches, int(COMPACTED_BYTES * self.scale), codec, transactional=transactional)
        source.mkdir(parents=True)
        _append_all(batches, source, SEGMENT_BYTES, have_offsets=transactional)
        batches.unlink()
        size = sum(path.stat().st_size for path in source.glob("*.log"))
        cleaned: dict[str, dict[str, str]] = {}

        def run(side: str, clean: Callable[[pathlib.Path], dict[str, Any]]) -> dict[str, Any]:
            folder = self.folder / "logs" / "orders-0"
            shutil.copytree(source, folder)
            try:
                told = clean(folder)
                if side not in cleaned:
                    logs = [path for path in folder.iterdir() if path.suffix in (".log", ".index", ".timeindex")]
                    kept = {path.name for path in logs if path.stem != f"{int(told['next']):020d}"}
                    names = _digests(folder) if codec == "none" else _cleaned_content(folder)
                    cleaned[side] = {name: digest for name, digest in names.items() if name in kept}
                return told
            finally:
                shutil.rmtree(folder.parent)

        calls: dict[str, Callable[[], dict[str, Any]]] = {
            CLEANER: lambda: run(CLEANER, lambda log: self.kafka("clean", log, SEGMENT_BYTES, DEDUPE_BYTES, IO_BYTES)),
            "ours": lambda: run("ours", _clean),
        }
        first = in_turn(calls, 1, warm=0)
        counts = {side: [rounds[0].told[key] for key in ("next", "read", "written")] for side, rounds in first.items()}
        equal(f"records of the compaction, {kind}", counts)
        equal(f"files of the compaction, {kind}", cleaned)
        found = in_turn(calls, self.rounds)
        self._speed(f"compaction, {kind}", found, "ours", CLEANER, size, "MB/s", 2)
        peaks = [each.told["peak"] / (DEDUPE_BYTES + 2 * IO_BYTES) for each in [*first["ours"], *found["ours"]]]
        told = f"{spread(peaks, '.2f')} of {(DEDUPE_BYTES + 2 * IO_BYTES) >> 10} KiB"
        self.suite.add(f"compaction, {kind}, memory, × its buffers", told, max(peaks), 1.0, least=False)
        shutil.rmtree(source.parent)


def main() -> None:
    parts = ("append", "read", "lookups", "recovery", "open", "compaction")
    chosen = arguments(__doc__, parts, folder="")
    suite = Suite("local_log", {"Kafka": install.kafka_version()})
    with work_folder(chosen.folder) as folder:
        classes = java_class_path(PEERS / "LogTurns.java", folder / "classes")
        java = [install.java(), "-Xmx3g", "-cp", classes, "org.apache.kafka.storage.internals.log.LogTurns"]
        program = str(c_program(ROOT / "bench" / "local_log.c", folder))
        with started("Kafka", java) as kafka, started("ours in C", [program]) as c:
            bench = Bench(suite, folder, kafka, c, chosen.scale, chosen.rounds)
            for part in chosen.parts:
                getattr(bench, part)()
    suite.save()


if __name__ == "__main__":
    main()
