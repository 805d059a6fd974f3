"""LogMove of a log that begins in the tier."""

from __future__ import annotations

from tests.replication.test_log_move import append, caught_up, fill, moved, opened, other_than, records_of
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.replication import LogMove
from tierlog.runtime.simulated.memory_files import MemoryFiles

TIERED = LogConfig(segment_bytes=300, retention_ms=-1, remote_storage_enable=True, local_retention_bytes=400)


def shorten(log: UnifiedLog) -> None:
    """Let a log have three epochs, and offsets up to 18 in the tier alone, as far as segments end there."""
    for epoch in range(3):
        fill(log, 4, epoch=epoch)
    log.update_high_watermark(log.log_end_offset)
    log.update_highest_offset_in_remote_storage(18)
    log.delete_old_segments()


def test_a_tiered_log() -> None:
    """If this fails, a move brings the tier's records back to the disk, or loses its lineage or its producers."""
    with opened(MemoryFiles(), config=TIERED, tiered=True) as directories:
        log = directories.log("orders", 0)
        append(log, b"p", producer_id=7, base_sequence=0)
        shorten(log)
        assert 0 < log.local_log_start_offset <= 19
        wanted = records_of(log), log.offsets._replace(recovery_point=log.log_end_offset)
        epochs = log.leader_epoch_cache.epochs
        new = moved(directories, log, other_than(log))
        assert (records_of(new), new.offsets) == wanted
        assert new.leader_epoch_cache.epochs == epochs
        append(new, b"p", epoch=2, producer_id=7, base_sequence=0)  # a duplicate
        assert new.log_end_offset == wanted[1].log_end_offset


def test_a_future_log_without_its_lineage() -> None:
    """Its directory was left by a broker that was killed: what was copied is not copied again."""
    files = MemoryFiles()
    with opened(files, config=TIERED, tiered=True) as directories:
        log = directories.log("orders", 0)
        shorten(log)
        path, wanted, epochs = other_than(log), records_of(log), log.leader_epoch_cache.epochs
        future = directories.begin_move("orders", 0, path)
        assert future is not None
        caught_up(LogMove(log, future))
        future.leader_epoch_cache.truncate_from_start(future.local_log_start_offset)
    with opened(files, config=TIERED, tiered=True) as directories:
        log, future = directories.log("orders", 0), directories.begin_move("orders", 0, path)
        assert future is not None
        assert future.must_be_rebuilt
        move, copied = LogMove(log, future), 0
        for now_ms in range(10):
            copied += move.step(now_ms)
        assert (copied, move.is_caught_up, future.must_be_rebuilt) == (0, True, False)
        assert (records_of(future), future.leader_epoch_cache.epochs) == (wanted, epochs)
