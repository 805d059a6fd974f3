"""Cuts of a log, and what a start behind a power cut makes of them: offsets and epochs are those of the cut log."""

from __future__ import annotations

import contextlib
import itertools

import pytest

from tests.support.living_logs import NOW_MS, batch_of
from tierlog.errors import StoreError
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import PowerCut


def opened(files: MemoryFiles, config: LogConfig) -> LogDirectory:
    """The directory of a follower's logs."""
    machine = Machine(clock=ManualClock(time_ms=NOW_MS), files=files)
    return LogDirectory.open(
        "/logs", machine=machine, config=config, runs_tasks=False, is_sole_replica=False, remote_log_enabled=True
    )


def fetch(log: UnifiedLog, end_offset: int, *, leader_epoch: int) -> None:
    """Append as a follower, up to an offset, batches of one record each."""
    for offset in range(log.log_end_offset, end_offset):
        data = batch_of(b"x")
        data[:8], data[12:16] = offset.to_bytes(8), leader_epoch.to_bytes(4)
        log.append_as_follower(data, leader_epoch=leader_epoch)


def filled(files: MemoryFiles, config: LogConfig, *, deletes: bool = False) -> UnifiedLog:
    """A log up to 100 that starts at 80, as the checkpoints say too; its old segments are there, unless they are
    deleted.
    """
    directory = opened(files, config)
    log = directory.log("orders", 0)
    fetch(log, 100, leader_epoch=0)
    log.update_high_watermark(100)
    log.maybe_increment_log_start_offset(80, "records were deleted")
    if deletes:
        log.delete_old_segments()
    log.flush()
    directory.checkpoint()
    return log


@pytest.mark.parametrize("tiered", [False, True])
@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("end_offset", [70, 95])
def test_a_cut_below_the_log_start_lowers_it_on_the_disk(end_offset: int, deletes: bool, tiered: bool) -> None:
    """If this fails, a power cut deletes or hides what a replica fetched from a leader that was elected uncleanly,
    flushed and acknowledged: it joins the in-sync set without that. Or it leads, and what was never committed is read.
    """
    files = MemoryFiles()
    config = LogConfig(segment_bytes=1000, remote_storage_enable=tiered)
    log = filled(files, config, deletes=deletes)
    log.truncate_to(50)
    fetch(log, end_offset, leader_epoch=1)
    log.update_high_watermark(60)
    log.flush()
    left = opened(files.crash(), config).log("orders", 0)
    assert (left.log_start_offset, left.log_end_offset, left.high_watermark) == (50, end_offset, 50)


def test_a_cut_below_the_log_start_that_is_cut_short() -> None:
    """If this fails, a power cut amid the cut leaves an empty log behind the leader's end: what lies between is missing
    for good on a replica that joins the in-sync set.
    """
    config = LogConfig(segment_bytes=1000)
    for at in itertools.count(1):
        files = MemoryFiles()
        log = filled(files, config)
        power = PowerCut(files, at=at, seed=at)
        with contextlib.suppress(StoreError):
            log.truncate_to(50)
        is_over = power.left is None
        left = opened(power.cut(), config).log("orders", 0)
        assert (left.log_start_offset, left.log_end_offset) == (80, 100) or left.log_start_offset == 50, at
        if is_over:
            break
    assert at > 5


def test_a_cut_into_the_tier_supersedes_all_logs_of_before() -> None:
    """If this fails, a tiered log that began anew, and was cut then, starts behind a power cut where the log before the
    last one did: what it has in the tier in front of that is offered no more, and deleted.
    """
    config = LogConfig(remote_storage_enable=True)
    seen: set[int] = set()
    for at in itertools.count(1):
        files = MemoryFiles()
        directory = opened(files, config)
        log = directory.log("orders", 0)
        log.truncate_fully_and_start_at(100)
        directory.checkpoint()
        log.truncate_fully_and_start_at(120, 50)
        fetch(log, 125, leader_epoch=0)
        power = PowerCut(files, at=at, seed=at)
        with contextlib.suppress(StoreError):
            log.truncate_to(110)
        if power.left is None:
            break
        left = opened(power.left, config).log("orders", 0)
        assert left.log_start_offset == 50, at
        seen.add(left.log_end_offset)
    assert 110 in seen
    assert max(seen) >= 120
