"""A process that appends to a log, and moves it from disk to disk, is killed: what the next one finds."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Final

import pytest

from tests.support.checkout import ROOT
from tierlog.log.local.directory.directory_files import DirectoryIdentity
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directories import LogDirectories
from tierlog.log.local.log_errors import LogClosedError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records import decode, scan
from tierlog.records.builder import RecordBatchBuilder
from tierlog.replication import LogMove
from tierlog.runtime.machine import Machine
from tierlog.upkeep import verify

KEY: Final = ("orders", 0)
CONFIG: Final = LogConfig(segment_bytes=4000, retention_ms=-1, index_interval_bytes=200, file_delete_delay_ms=50)
RECORDS_PER_BATCH: Final = 3
RECORDS_PER_EPOCH: Final = 60
#: Deleted by a client once a move is over, but for as many.
RECORDS_KEPT: Final = 2000


def opened(folder: str, *, runs_tasks: bool) -> LogDirectories:
    return LogDirectories.open(
        [f"{folder}/{name}" for name in "abc"],
        config=CONFIG,
        runs_tasks=runs_tasks,
        identity=DirectoryIdentity("cluster", 1),
    )


def value_of(offset: int) -> bytes:
    return b"value-%d" % offset


def tell(word: str, offset: int) -> None:
    sys.stdout.write(f"{word} {offset}\n")
    sys.stdout.flush()


def append(directories: LogDirectories, end_offset: int) -> int:
    """Append a batch, and again where the log was switched meanwhile; the log's end."""
    builder = RecordBatchBuilder(0, codec="none" if end_offset % 2 else "lz4")
    for offset in range(end_offset, end_offset + RECORDS_PER_BATCH):
        builder.append(None, value_of(offset), timestamp_ms=1_700_000_000_000 + offset)
    while True:
        try:
            log = directories.log(*KEY)
            info = log.append_as_leader(bytearray(builder.build()), leader_epoch=end_offset // RECORDS_PER_EPOCH)
        except LogClosedError:
            continue
        assert info.first_offset == end_offset
        return info.last_offset + 1


def write(folder: str) -> None:
    """Append in one thread and move in another until the process is killed, and tell of each append and each move."""
    with opened(folder, runs_tasks=True) as directories:
        directories.log(*KEY)

        def append_all() -> None:
            end_offset = 0
            while True:
                end_offset = append(directories, end_offset)
                tell("end", end_offset)
                time.sleep(0.002)  # else a move on a busy machine never catches up

        threading.Thread(target=append_all, daemon=True).start()
        for number in range(1 << 30):
            move_all(directories, f"{folder}/{'abc'[number % 3]}", now_ms=number << 20)
            log = directories.log(*KEY)
            start_offset = max(0, log.log_end_offset - RECORDS_KEPT)
            tell("start", start_offset)
            log.maybe_increment_log_start_offset(start_offset, "a client deleted records")
            log.delete_old_segments()
            tell("moves", number)


def move_all(directories: LogDirectories, path: str, *, now_ms: int = 0) -> None:
    """Move the log to a directory, from wherever it is."""
    future = directories.begin_move(*KEY, path)
    if future is None:
        return
    move = LogMove(directories.log(*KEY), future)
    while not (move.is_caught_up and directories.finish_move(*KEY)):
        move.step(now_ms, max_bytes=3000)
        assert move.failure is None
        now_ms += 1


def offsets_of(log: UnifiedLog) -> list[int]:
    """The offsets of all records, whose values are right."""
    found, offset = list[int](), log.local_log_start_offset
    while offset < log.log_end_offset:
        data = b"".join(
            part.read() for part in log.read(offset, max_bytes=1 << 20, isolation=FetchIsolation.LOG_END).records
        )
        rows = decode(data, from_offset=offset, allow_partial=True)
        offsets, values = (rows.column(name).to_pylist() for name in ("offset", "value"))
        assert values == [value_of(each) for each in offsets]
        found += offsets
        offset = int(scan(data).last_offset[-1]) + 1
    return found


def check(directories: LogDirectories, *, appended_to: int, start_told: int) -> int:
    """The log is one, has all that was appended, starts where it was said to at the latest, and knows its epochs; its
    end.
    """
    log = directories.load_logs()[KEY]
    start_offset, end_offset = log.log_start_offset, log.log_end_offset
    assert directories.offline == {}
    assert start_offset <= start_told
    assert end_offset >= appended_to
    assert offsets_of(log) == list(range(start_offset, end_offset))
    epochs = range(start_offset // RECORDS_PER_EPOCH, (end_offset - 1) // RECORDS_PER_EPOCH + 1)
    wanted = {epoch: max(start_offset, RECORDS_PER_EPOCH * epoch) for epoch in epochs}
    assert log.leader_epoch_cache.epoch_with_offsets() == wanted
    return end_offset


def killed(folder: pathlib.Path, kill: int) -> bool:
    """Kill a process, and look; whether a move was under way."""
    code = f"from tests.scenarios.test_killed_moves import write; write({str(folder)!r})"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None
    with child, child.stdout:
        lines = []
        for line in child.stdout:  # until a whole move is over, and more than was deleted
            lines.append(line)
            if line.startswith(b"moves") and line != b"moves 0\n":
                break
        Machine().clock.sleep(0.0071 * kill)
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.read().rpartition(b"\n")[0].splitlines()
    told = {word: int(offset) for word, offset in (line.decode().split() for line in lines)}
    with opened(str(folder), runs_tasks=False) as directories:
        end_offset = check(directories, appended_to=told["end"], start_told=told["start"])
        was_moving = bool(directories.future_logs)
    for path in folder.glob("*/orders-0"):
        result = verify(str(path.parent))
        assert (result.faults, result.errors) == (0, 0), result.findings
    with opened(str(folder), runs_tasks=False) as directories:
        log = directories.load_logs()[KEY]
        for target in (*(future.parent_dir for future in directories.future_logs.values()), *directories.paths):
            move_all(directories, target)  # what was under way, then to each of them
            assert directories.logs[KEY].parent_dir == target
        assert log.log_end_offset == end_offset
        assert check(directories, appended_to=end_offset, start_told=told["start"]) == end_offset
        assert not directories.future_logs
    return was_moving


@pytest.mark.parametrize("kill", [3])
def test_the_process_may_be_killed(tmp_path: pathlib.Path, kill: int) -> None:
    """If this fails, a broker that is killed while a log moves loses records, or starts with a log in two places."""
    killed(tmp_path, kill)


@pytest.mark.slow
def test_the_process_may_be_killed_at_any_time(tmp_path: pathlib.Path) -> None:
    """Twenty kills, at twenty times, most of them within a move."""
    assert sum(killed(tmp_path / str(kill), kill) for kill in range(20)) > 5
