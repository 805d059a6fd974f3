"""LogMove of a log that begins in the tier."""

from __future__ import annotations

from dataclasses import replace

from tests.replication.test_log_move import append, caught_up, fill, moved, opened, other_than, records_of
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.replication import BuildAuxState, LogMove
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


def future_without_lineage(files: MemoryFiles) -> tuple[str, bytes, LeaderEpochs]:
    """Leave a future log that has all records, and of its lineage only what begins with them; its directory, and the
    current log's records and lineage.
    """
    with opened(files, config=TIERED, tiered=True) as directories:
        log = directories.log("orders", 0)
        shorten(log)
        path = other_than(log)
        future = directories.begin_move("orders", 0, path)
        assert future is not None
        caught_up(LogMove(log, future))
        future.leader_epoch_cache.truncate_from_start(future.local_log_start_offset)
        return path, records_of(log), log.leader_epoch_cache.epochs


def ask_for_a_build(move: LogMove) -> None:
    """Go on until the future log is to begin from the tier, or to take its lineage, with the next step."""
    for now_ms in range(20):
        if isinstance(move.follower._waiting, BuildAuxState):
            return
        move.step(now_ms)
    raise AssertionError(f"no build: {move.follower.state}")


def test_a_topic_that_leaves_the_tier_meanwhile() -> None:
    """If this fails, the task of all moves dies, and the log is neither cleaned nor retained until the next start."""
    with opened(MemoryFiles(), config=TIERED, tiered=True) as directories:
        log = directories.log("orders", 0)
        shorten(log)
        future = directories.begin_move("orders", 0, other_than(log))
        assert future is not None
        move = LogMove(log, future)
        ask_for_a_build(move)
        directories.update_config("orders", replace(TIERED, remote_storage_enable=False))
        caught_up(move)
        wanted = records_of(log), log.log_start_offset
        assert directories.finish_move("orders", 0) is future
        assert (records_of(future), future.log_start_offset) == wanted


def test_a_start_that_rises_before_a_lineage_is_taken() -> None:
    """If this fails, the task of all moves dies, and the log is neither cleaned nor retained until the next start."""
    files = MemoryFiles()
    path = future_without_lineage(files)[0]
    with opened(files, config=TIERED, tiered=True) as directories:
        log, future = directories.log("orders", 0), directories.begin_move("orders", 0, path)
        assert future is not None
        move = LogMove(log, future)
        ask_for_a_build(move)
        assert log.update_log_start_offset_from_remote_tier(9) == 9
        caught_up(move)
        move.step(10_000)
        assert not future.must_be_rebuilt
        assert future.log_start_offset == 9
        wanted = records_of(log), log.leader_epoch_cache.epochs
        assert directories.finish_move("orders", 0) is future
        assert (records_of(future), future.leader_epoch_cache.epochs) == wanted


def test_a_future_log_without_its_lineage() -> None:
    """Its directory was left by a broker that was killed: what was copied is not copied again."""
    files = MemoryFiles()
    path, wanted, epochs = future_without_lineage(files)
    with opened(files, config=TIERED, tiered=True) as directories:
        log, future = directories.log("orders", 0), directories.begin_move("orders", 0, path)
        assert future is not None
        assert future.must_be_rebuilt
        move, copied = LogMove(log, future), 0
        for now_ms in range(10):
            copied += move.step(now_ms)
        assert (copied, move.is_caught_up, future.must_be_rebuilt) == (0, True, False)
        assert (records_of(future), future.leader_epoch_cache.epochs) == (wanted, epochs)
