"""A log that is deleted while others have it open: they read on, and nobody else notices."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest

from tests.support.living_logs import batch_of, ended
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_errors import LogClosedError, LogTruncatedError, OffsetOutOfRangeError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records import decode
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles

LOGS = "/logs"
#: A segment a batch.
SMALL = LogConfig(segment_bytes=300, file_delete_delay_ms=1000)


def append_aborted(log: UnifiedLog, value: bytes, *, sequence: int) -> None:
    """A transaction of producer 7 of one record, and its marker."""
    log.append_as_leader(
        batch_of(value, producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=1), leader_epoch=0
    )
    ended(log, 7, commits=False, leader_epoch=0)


@pytest.mark.parametrize("seed", range(4))
def test_who_has_a_deleted_log_open_reads_on(seed: int) -> None:
    """If this fails, a topic's deletion beside a fetch takes every partition of the broker offline, or the fetch
    is handed records of an aborted transaction, or of the topic that was made anew.
    """
    machine, scheduler = ManualScheduler.machine(seed)
    assert isinstance(machine.files, MemoryFiles)
    counts, pauses = [0, 0, 0], [0.01]

    def read(log: UnifiedLog, number: int) -> None:
        with contextlib.suppress(LogClosedError):
            while True:
                machine.clock.sleep(pauses[0])
                offset = 2 * machine.rng.integer_below(12)  # behind each is its marker
                try:
                    found = log.read(offset, max_bytes=1, isolation=FetchIsolation.TXN_COMMITTED)
                except (OffsetOutOfRangeError, LogTruncatedError):  # retention was here
                    continue
                assert found.records
                assert decode(bytes(found.records[0].read()))["value"].to_pylist()[0][:3] == b"old"
                assert found.aborted_transactions is not None
                assert (7, offset) in found.aborted_transactions
                counts[number] += 1

    def write(log: UnifiedLog) -> None:
        with contextlib.suppress(LogClosedError):
            for epoch in range(1, 100):
                log.flush()
                log.leader_epoch_cache.assign_all([(epoch, 24)])
                log.leader_epoch_cache.truncate_from_start(epoch % 5)
                log.roll()
                machine.clock.sleep(0.01)

    with scheduler, LogDirectory.open(LOGS, machine=machine, config=SMALL) as directory:
        other, log = directory.log("bills", 0), directory.log("orders", 0)
        for number in range(12):
            append_aborted(log, b"old" * 30, sequence=number)
        log.flush()
        calls = [machine.scheduler.start(partial(read, log, number), name=f"reader {number}") for number in range(3)]
        calls.append(machine.scheduler.start(lambda: write(log), name="writer"))
        if seed % 2:
            log.update_config(SMALL.with_changes({"retention.bytes": "2000"}))
            assert log.delete_old_segments()
        machine.clock.sleep(0.001 * (seed % 4))
        machine.files.befall(lambda _operation, _path: scheduler.may_switch())
        pauses[0] = 0.0
        assert directory.delete_log("orders", 0)
        pauses[0] = 0.01
        machine.files.mend()
        for _ in range(24):
            directory.log("orders", 0).append_as_leader(batch_of(b"new" * 30), leader_epoch=0)
        machine.clock.sleep(2)
        for call in calls:
            call.result()
        assert not directory.is_offline
        other.append_as_leader(batch_of(b"a"), leader_epoch=0)
        assert [each.name for each in machine.files.iter_directory(LOGS) if each.name.endswith("-delete")] == []
    assert min(counts) > 0
