"""What a log syncs, and what it leaves alone: counted on a disk in memory."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.living_logs import batch_of
from tierlog.errors import StoreError
from tierlog.log.local.background_tasks import BackgroundTasks
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import LogOfflineError
from tierlog.log.local.recovery.log_loader import LogCheckpoints
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_disk import DiskOperation
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import FailingDisk

FOLDER = "/logs/orders-0"
SYNCS = frozenset((DiskOperation.FSYNC, DiskOperation.FSYNC_DIRECTORY))


class Queue:
    """BackgroundTasks that run when they are told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, function: Callable[[], None], *, delay_ms: int = 0) -> None:
        self.waiting.append(function)

    def run(self) -> int:
        waiting, self.waiting = self.waiting, []
        for function in waiting:
            function()
        return len(waiting)


class Rig:
    """A log on a disk in memory whose syncs are counted."""

    def __init__(self, **config: Any) -> None:
        clock = ManualClock(time_ms=1_700_000_000_000)
        self.files = MemoryFiles(clock)
        self.machine = Machine(clock=clock, files=self.files)
        self.tasks = Queue()
        self.log = UnifiedLog.open(
            FOLDER, machine=self.machine, config=LogConfig(**config), tasks=self.tasks, is_sole_replica=True
        )
        self.disk = FailingDisk(self.files, errno.EIO, at=0, kinds=SYNCS)

    def append(self, *, leader_epoch: int = 0) -> None:
        append(self.log, leader_epoch=leader_epoch)

    def syncs(self, change: Callable[[], object]) -> int:
        before = self.disk.seen
        change()
        return self.disk.seen - before


def append(log: UnifiedLog, *, leader_epoch: int = 0) -> None:
    batch = batch_of(b"v", producer_id=7, base_sequence=log.log_end_offset)
    log.append_as_leader(batch, leader_epoch=leader_epoch)


def test_nothing_is_synced_twice() -> None:
    """Else a broker that flushes by message or by time spends a sync on each call, though nothing was appended."""
    rig = Rig()
    rig.append()
    assert rig.syncs(rig.log.flush) > 0
    rig.machine.clock.sleep(5)
    flushed_ms = rig.log.last_flush_ms
    assert rig.syncs(rig.log.flush) == 0
    assert rig.log.last_flush_ms == flushed_ms < rig.machine.clock.time_ms()
    rig.append()
    assert rig.syncs(lambda: rig.log.flush(1)) == 0
    assert rig.log.recovery_point == 1
    assert rig.syncs(lambda: rig.log.flush(1 << 40)) > 0
    assert (rig.log.recovery_point, rig.log.last_flush_ms) == (2, rig.machine.clock.time_ms())


def test_what_a_roll_closed_is_synced_once_in_the_background() -> None:
    """Else the roll waits for a sync, or the closed segment is recovered at every unclean start."""
    rig = Rig()
    rig.append()
    assert rig.syncs(rig.log.roll) == 0
    rig.append()
    assert rig.log.recovery_point == 0
    assert rig.syncs(rig.tasks.run) > 0
    assert rig.log.recovery_point == 1
    assert rig.tasks.waiting == []
    rig.log.roll()
    rig.log.flush()
    assert rig.syncs(rig.tasks.run) == 0


def test_the_snapshot_of_a_roll_is_synced_where_all_records_were() -> None:
    """Its producers would be forgotten with their records if the log's start moves and the power goes."""
    rig = Rig(flush_messages=1)
    rig.append()
    rig.log.roll()
    assert rig.log.recovery_point == 1
    assert rig.syncs(rig.tasks.run) == 2  # the snapshot and the folder
    assert rig.files.crash().find(f"{FOLDER}/{1:020}.snapshot") is not None


def test_a_roll_whose_sync_is_late_does_not_undo_a_truncation() -> None:
    """Else the recovery point lies behind the log's end, and what is appended there later is believed unread."""
    rig = Rig()
    rig.append()
    rig.append()
    rig.log.roll()
    rig.log.truncate_to(1)
    rig.tasks.run()
    assert rig.log.recovery_point == 1
    assert rig.log.log_end_offset == 1


def test_a_sync_says_nothing_of_what_was_cut_off_meanwhile() -> None:
    """Else the recovery point covers what was appended behind the cut, which nobody has synced: it is never checked."""
    met = 0
    for seed in range(60):
        machine, scheduler = ManualScheduler.machine(seed)
        with scheduler:
            log = UnifiedLog.open(FOLDER, machine=machine, is_sole_replica=True)
            for _ in range(4):
                append(log)
            flushed = scheduler.start(log.flush, name="flush")
            machine.clock.sleep(0)
            was_flushed = log.recovery_point == 4
            log.truncate_to(1)
            for _ in range(3):
                append(log)
            flushed.result()
            recovery_point = log.recovery_point
            assert isinstance(machine.files, MemoryFiles)
            left = Machine(clock=ManualClock(), files=machine.files.crash())
            checkpoints = LogCheckpoints(recovery_point)
            found = UnifiedLog.open(FOLDER, machine=left, checkpoints=checkpoints, is_sole_replica=True)
            assert found.log_end_offset >= recovery_point
            met += not was_flushed and recovery_point < 4
    assert met > 3, "no flush was under way"


def test_an_offline_log_syncs_nothing_more() -> None:
    """What was left for later when a disk failed would be tried on it again, and might seem to succeed."""
    rig = Rig()
    rig.append()
    rig.append(leader_epoch=1)
    rig.log.roll()
    rig.log.maybe_increment_log_start_offset(1, "records were deleted")  # leaves epochs to be written
    assert len(rig.tasks.waiting) > 1
    rig.log.take_offline(StoreError("no space left on device"))
    disk = FailingDisk(rig.files, errno.EIO, at=0, inside=FOLDER)
    assert rig.tasks.run() > 1
    assert disk.seen == 0
    with pytest.raises(LogOfflineError):
        rig.log.flush()
    assert disk.seen == 0


def test_a_write_of_epochs_that_waits_sees_that_the_log_is_offline() -> None:
    """It asked before it waited for the lock, and wrote to a disk that had failed meanwhile."""
    touched = 0
    for seed in range(40):
        machine, scheduler = ManualScheduler.machine(seed)
        with scheduler, BackgroundTasks(machine) as tasks:
            log = UnifiedLog.open(FOLDER, machine=machine, tasks=tasks, is_sole_replica=True)
            append(log)
            append(log, leader_epoch=1)
            machine.clock.sleep(1)
            log.maybe_increment_log_start_offset(1, "records were deleted")
            is_unwritten = log.leader_epoch_cache.is_unwritten
            log.take_offline(StoreError("no space left on device"))
            assert isinstance(machine.files, MemoryFiles)
            disk = FailingDisk(machine.files, errno.EIO, at=0, inside=FOLDER)
            machine.clock.sleep(1)
            assert disk.seen == 0
            touched += is_unwritten
    assert touched > 5, "the epochs were written before the log went offline"
