"""Producer snapshots of what a log does not have, beside those that it needs."""

from __future__ import annotations

import pytest

from tests.support.living_logs import batch_of, ended
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.recovery.log_loader import LogCheckpoints
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.memory_files import MemoryFiles

FOLDER = "logs/orders-0"


def batch(machine: Machine, sequence: int) -> bytearray:
    values, now = (b"value" * 20,) * 3, machine.clock.time_ms()
    return batch_of(*values, timestamp_ms=now, producer_id=7, base_sequence=sequence)


@pytest.mark.parametrize("clean", [True, False])
def test_a_snapshot_behind_the_end_does_not_cost_that_of_the_end(*, clean: bool) -> None:
    """A truncation in the midst of a batch leaves one, or a hand: the producers would be forgotten with it, and their
    last batch, sent once more, stored twice.
    """
    machine = Machine(files=MemoryFiles())
    config = LogConfig(segment_bytes=1000)
    with UnifiedLog.open(FOLDER, machine=machine, config=config) as log:
        for number in range(9):
            log.append_as_leader(batch(machine, number * 3), leader_epoch=0)
        end = log.log_end_offset
    machine.files.write_whole(f"{FOLDER}/{end + 900:020d}.snapshot", b"")
    with UnifiedLog.open(FOLDER, machine=machine, config=config, had_clean_shutdown=clean) as log:
        assert log.log_end_offset == end
        assert log.append_as_leader(batch(machine, 24), leader_epoch=0).is_duplicate


def test_a_log_whose_snapshot_is_of_no_use_replays_its_producers() -> None:
    """Only a log without any snapshot is of a version that knew no producers."""
    machine = Machine(files=MemoryFiles())
    with UnifiedLog.open(FOLDER, machine=machine) as log:
        log.append_as_leader(batch(machine, 0), leader_epoch=0)
    machine.files.rename(f"{FOLDER}/{3:020d}.snapshot", f"{FOLDER}/{4:020d}.snapshot")
    with UnifiedLog.open(FOLDER, machine=machine, had_clean_shutdown=True) as log:
        assert log.append_as_leader(batch(machine, 0), leader_epoch=0).is_duplicate


def test_an_epoch_that_begins_at_the_end_goes_with_a_truncation_behind_it() -> None:
    """It may be another leader's: a follower that kept it would answer for an epoch that it has no record of."""
    machine = Machine(files=MemoryFiles())
    with UnifiedLog.open(FOLDER, machine=machine) as log:
        log.append_as_leader(batch(machine, 0), leader_epoch=0)
        log.assign_epoch_start_offset(1, 3)
        assert not log.truncate_to(4)
        assert log.leader_epoch_cache.latest_epoch == 0


def test_a_log_without_snapshots_gets_those_of_its_last_segments() -> None:
    """A tiered segment is copied with the snapshot behind it: without that no copy of the segment is complete, and a
    log that starts at its end would have had none.
    """
    machine = Machine(files=MemoryFiles())
    with UnifiedLog.open(FOLDER, machine=machine) as log:
        log.append_as_leader(batch(machine, 0), leader_epoch=0)
        log.roll()
        log.update_high_watermark(3)
        log.maybe_increment_log_start_offset(3, "a client deleted the records")
    machine.files.remove(f"{FOLDER}/{3:020d}.snapshot")
    checkpoints = LogCheckpoints(recovery_point=3, log_start_offset=3, high_watermark=3)
    with UnifiedLog.open(FOLDER, machine=machine, checkpoints=checkpoints, had_clean_shutdown=True) as log:
        assert log.snapshot_at(3) is not None


def test_a_marker_that_damage_took_ends_no_transaction() -> None:
    """If this fails, readers of committed records get those of a transaction that was aborted: a snapshot knows that it
    has ended, and nobody how.
    """
    machine = Machine(files=MemoryFiles())
    with UnifiedLog.open(FOLDER, machine=machine, is_sole_replica=True) as log:
        now = machine.clock.time_ms()
        for producer_id in (7, 8):
            begun = batch_of(b"", producer_id=producer_id, base_sequence=0, transactional=True, timestamp_ms=now)
            log.append_as_leader(begun, leader_epoch=0)
        log.roll()
        log.append_as_leader(batch_of(b"damaged", timestamp_ms=now), leader_epoch=0)
        ended(log, 7, commits=False)
        log.roll()
        for number in range(3):
            log.append_as_leader(batch_of(b"behind", timestamp_ms=now), leader_epoch=0)
            if number == 0:
                ended(log, 8, commits=True)
            log.roll()
        assert log.last_stable_offset == log.log_end_offset == 8
    path = f"{FOLDER}/{2:020d}.log"
    damaged = bytearray(machine.files.read_whole(path))
    damaged[40] ^= 1
    machine.files.write_whole(path, bytes(damaged))
    machine.files.remove(f"{FOLDER}/{2:020d}.index")
    with UnifiedLog.open(FOLDER, machine=machine, had_clean_shutdown=True, is_sole_replica=True) as log:
        assert [segment.base_offset for segment in log.log_segments()] == [0, 2, 4, 6, 7, 8]
        assert (log.last_stable_offset, log.log_end_offset) == (0, 8)
        assert not log.read(0, max_bytes=1000, isolation=FetchIsolation.TXN_COMMITTED).records
        assert [entry.producer_id for entry in log.open_transactions()] == [7]
        assert all(log.snapshot_at(offset) is not None for offset in (4, 6, 7, 8)), "no segment is copied without one"
