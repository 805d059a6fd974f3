"""A log that loses power at every change of its disk while it is cleaned.

What the next start finds has the latest record of every key, no record that was aborted, and no file of a cleaning.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from typing import Final

import pytest

from tests.support.cleaned_batches import EPOCH, CleanedBatches
from tests.support.cleaned_logs import FOLDER, cleaner_of
from tests.support.crashed_log import check_names
from tests.support.oracle import Aborted, DecodeOptions, decode
from tierlog.errors import StoreError
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.recovery.log_loader import LogCheckpoints
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import PowerCut

CONFIG: Final = LogConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=1200, index_interval_bytes=300, delete_retention_ms=1
)
Rows = list[tuple[int, bytes, bytes | None]]


def opened(machine: Machine, recovery_point: int, *, clean: bool = False) -> UnifiedLog:
    checkpoints = LogCheckpoints(recovery_point, high_watermark=1 << 40)
    return UnifiedLog.open(
        FOLDER, machine=machine, config=CONFIG, checkpoints=checkpoints, had_clean_shutdown=clean, is_sole_replica=True
    )


def committed(log: UnifiedLog) -> Rows:
    """(offset, key, value) that a reader of committed records gets."""
    segments = log.log_segments()
    data = b"".join(bytes(segment.read_at(0, segment.size_bytes)) for segment in segments)
    aborted = tuple(Aborted(*entry) for entry in log.collect_aborted_transactions(0, 1 << 40))
    rows, fault = decode(data, DecodeOptions(aborted=aborted))
    assert fault is None
    return [(row.offset, row.key, row.value) for row in rows if row.key is not None]


def latest(rows: Rows, end: int) -> dict[bytes, tuple[int, bytes]]:
    """The values of the keys in front of an offset."""
    found: dict[bytes, tuple[int, bytes | None]] = {}
    for offset, key, value in rows:
        if offset < end:
            found[key] = (offset, value)
    return {key: (offset, value) for key, (offset, value) in found.items() if value is not None}


class Life:
    """A log with several segments, some of them cleaned before, and the cleaning that is to be cut."""

    def __init__(self, seed: int, *, flushes: bool) -> None:
        self.machine, self.scheduler = ManualScheduler.machine(seed)
        self.machine.files.make_directories("/logs")
        self.rng = random.Random(seed)
        self.log = opened(self.machine, 0)
        self.batches = CleanedBatches(self.rng)
        self.append()
        self.clean(0)
        self.dirty = self.log.log_end_offset
        self.scheduler.clock.advance(5)
        self.append()
        if flushes:
            self.log.flush()
        self.recovery_point = self.log.recovery_point
        self.before = committed(self.log)
        self.end = self.log.log_end_offset

    def append(self) -> None:
        now_ms = self.machine.clock.time_ms()
        for _ in range(40):
            self.log.append_as_follower(self.batches.turn(now_ms), leader_epoch=EPOCH)
        for marker in self.batches.end_all(now_ms):
            self.log.append_as_follower(marker, leader_epoch=EPOCH)
        self.log.roll()

    def clean(self, first_dirty_offset: int) -> None:
        cleaner_of(self.machine, keys=500, io_buffer_bytes=700).clean(
            self.log,
            first_dirty_offset=first_dirty_offset,
            first_uncleanable_offset=self.log.active_segment.base_offset,
            now_ms=self.machine.clock.time_ms(),
        )

    def cut(self, at: int, seed: int) -> PowerCut:
        """Clean, and lose power at a change of the disk; 0: at none."""
        files = self.machine.files
        assert isinstance(files, MemoryFiles)
        power = PowerCut(files, at=at, seed=seed)
        with contextlib.suppress(StoreError):
            self.clean(0)
        return power


def check_left(life: Life, files: MemoryFiles, *, seed: int) -> None:
    machine, scheduler = ManualScheduler.machine(seed, files)
    with scheduler:
        log = opened(machine, life.recovery_point)
        check_names(FOLDER, files)
        rows, end = committed(log), min(log.last_stable_offset, life.end)
        assert end >= life.recovery_point
        assert latest(rows, end) == latest(life.before, end)
        assert {row for row in rows if row[0] < end} <= set(life.before)
        ends = [segment.read_next_offset() for segment in log.log_segments()]
        bases = [segment.base_offset for segment in log.log_segments()]
        assert all(before <= after for before, after in zip(ends, bases[1:], strict=False))
        log.close()
        again = opened(machine, log.recovery_point, clean=True)
        assert committed(again) == rows
        cleaner_of(machine, keys=500).clean(
            again, first_dirty_offset=0, first_uncleanable_offset=again.active_segment.base_offset, now_ms=1 << 41
        )
        assert latest(committed(again), end) == latest(life.before, end)
        again.close()


def cut_everywhere(seed: int, step: int, *, flushes: bool) -> None:
    changes = Life(seed, flushes=flushes).cut(0, seed).seen
    assert changes > 30
    for at in itertools.chain(range(1 + seed % step, changes + 1, step), [changes]):
        life = Life(seed, flushes=flushes)
        power = life.cut(at, seed + at)
        left = power.cut()
        check_left(life, left, seed=seed)


@pytest.mark.parametrize("flushes", [True, False])
def test_a_cleaning_that_loses_power(flushes: bool) -> None:
    """A key would be lost, or a deleted or aborted record come back."""
    cut_everywhere(3, 23, flushes=flushes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 12))
@pytest.mark.parametrize("flushes", [True, False])
def test_cleanings_that_lose_power_anywhere(seed: int, flushes: bool) -> None:
    """The power goes at every change, of several seeds."""
    cut_everywhere(seed, 1, flushes=flushes)
