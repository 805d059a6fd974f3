"""A process that appends to a compacted log, and compacts it, is killed: what the next one finds."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
from typing import Final

import pytest

from tests.support.checkout import ROOT
from tierlog.log.local.log_config import CleanerConfig, LogConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records import decode, scan
from tierlog.records.builder import RecordBatchBuilder
from tierlog.runtime.machine import Machine
from tierlog.upkeep import verify

KEY: Final = ("orders", 0)
KEYS: Final = 60
CONFIG: Final = LogConfig(
    cleanup_policy=frozenset(("compact",)), segment_bytes=4000, min_cleanable_dirty_ratio=0.0, file_delete_delay_ms=50
)
CLEANER: Final = CleanerConfig(log_cleaner_backoff_ms=1, log_cleaner_threads=2)
RECORDS_PER_BATCH: Final = 3


def key_of(offset: int) -> bytes:
    return b"key-%d" % (offset * 2_654_435_761 % 2**32 % KEYS)


def value_of(offset: int) -> bytes:
    return b"value-%d" % offset


def write(folder: str) -> None:
    """Append and compact until the process is killed; print the log's end after each append."""
    with LogDirectory.open(folder, config=CONFIG, cleaner_config=CLEANER) as directory:
        log = directory.log(*KEY)
        for number in range(1 << 30):
            builder = RecordBatchBuilder(0, codec="none" if number % 3 else "lz4")
            for offset in range(log.log_end_offset, log.log_end_offset + RECORDS_PER_BATCH):
                builder.append(key_of(offset), value_of(offset), timestamp_ms=1_700_000_000_000 + offset)
            log.append_as_leader(bytearray(builder.build()), leader_epoch=0)
            sys.stdout.write(f"{log.log_end_offset} {directory.cleaner_manager.cleaner_offset(KEY) or 0}\n")
            sys.stdout.flush()


def records_of(log: UnifiedLog) -> dict[int, tuple[bytes, bytes]]:
    found: dict[int, tuple[bytes, bytes]] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, max_bytes=1 << 20, isolation=FetchIsolation.LOG_END)
        if not read.records:
            break
        data = read.records[0].read()
        rows = decode(data, from_offset=offset, allow_partial=True)
        columns = [rows.column(name).to_pylist() for name in ("offset", "key", "value")]
        found |= {at: (key, value) for at, key, value in zip(*columns, strict=True)}
        offset = int(scan(data).last_offset[-1]) + 1
    return found


def check(folder: pathlib.Path, appended_to: int) -> int:
    """The latest of each key is there, and nothing counts as compacted that is not; the offset up to which it is."""
    with LogDirectory.open(str(folder), config=CONFIG, runs_tasks=False) as directory:
        log = directory.log(*KEY)
        found, end_offset = records_of(log), log.log_end_offset
        assert end_offset >= appended_to
        assert all(record == (key_of(offset), value_of(offset)) for offset, record in found.items())
        latest = {key_of(offset): offset for offset in range(end_offset)}
        assert {key: offset for offset, (key, _) in sorted(found.items())} == latest
        clean_to = directory.cleaner_manager.cleaner_offset(KEY) or 0
        clean = [key for offset, (key, _) in found.items() if offset < clean_to]
        assert len(clean) == len(set(clean)), clean_to
    return clean_to


def killed(folder: pathlib.Path, kill: int) -> None:
    code = f"from tests.scenarios.test_killed_cleaners import write; write({str(folder)!r})"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None
    machine = Machine()
    with child, child.stdout:
        for line in child.stdout:  # until something was compacted
            if line.endswith(b"\n") and int(line.split()[1]) > 0:
                break
        machine.clock.sleep(0.0137 * kill)
        child.send_signal(signal.SIGKILL)
        told = (line + child.stdout.read()).rpartition(b"\n")[0].splitlines()[-1]
    appended_to, clean_to = map(int, told.split())
    assert check(folder, appended_to) >= clean_to
    result = verify(str(folder))
    assert (result.faults, result.errors) == (0, 0), result.findings


@pytest.mark.parametrize("kill", [1, 9])
def test_the_process_may_be_killed(tmp_path: pathlib.Path, kill: int) -> None:
    """If this fails, a broker that is killed loses the latest record of a key, or leaves older ones for ever."""
    killed(tmp_path, kill)


@pytest.mark.slow
@pytest.mark.parametrize("kill", range(20))
def test_the_process_may_be_killed_at_any_time(tmp_path: pathlib.Path, kill: int) -> None:
    """Twenty kills, at twenty times."""
    killed(tmp_path, kill)
