"""A flushed segment whose files are damaged, and a power cut in the middle of rebuilding them: no later start would
recover it again by its recovery point.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from tests.support.crashed_log import copy_of
from tests.support.living_logs import batch_of, ended
from tierlog.errors import StoreError
from tierlog.log.formats.segment_files import SegmentFileKind, segment_file_name
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.recovery.log_loader import LogCheckpoints
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import PowerCut

FOLDER = "logs/orders-0"
#: More than a page of the offset index has: its first entries are written in the middle of a rebuild.
BATCHES = 520
CONFIG = LogConfig(index_interval_bytes=0)


def path_of(kind: SegmentFileKind) -> str:
    return f"{FOLDER}/{segment_file_name(2, kind)}"


def lived() -> tuple[MemoryFiles, int]:
    """A log of six segments, all flushed; the second one ends the transaction that begins in the first."""
    files = MemoryFiles()
    with UnifiedLog.open(FOLDER, machine=Machine(files=files), config=CONFIG, is_sole_replica=True) as log:
        for producer_id in (7, 8):  # the first one aborts, the other one stays open
            begun = batch_of(b"of %d" % producer_id, producer_id=producer_id, base_sequence=0, transactional=True)
            log.append_as_leader(begun, leader_epoch=0)
        log.roll()
        for _ in range(BATCHES):
            log.append_as_leader(batch_of(b""), leader_epoch=0)
        ended(log, 7, commits=False)
        log.roll()
        for _ in range(3):
            log.append_as_leader(batch_of(b"behind"), leader_epoch=0)
            log.roll()
        return files, log.log_end_offset


def lose_index(files: MemoryFiles) -> None:
    files.remove(path_of(SegmentFileKind.OFFSET_INDEX))


def damage_transactions(files: MemoryFiles) -> None:
    flip(files, SegmentFileKind.TRANSACTION_INDEX, 1)


def delete_transactions_alone(files: MemoryFiles) -> None:
    """Of the renames of a deletion, which no fsync of the folder followed, a power cut left one."""
    files.rename(path_of(SegmentFileKind.TRANSACTION_INDEX), f"{path_of(SegmentFileKind.TRANSACTION_INDEX)}.deleted")


def lose_index_and_a_batch(files: MemoryFiles) -> None:
    lose_index(files)
    flip(files, SegmentFileKind.LOG, 40)


def flip(files: MemoryFiles, kind: SegmentFileKind, at: int) -> None:
    data = bytearray(files.read_whole(path_of(kind)))
    data[at] ^= 1
    files.write_whole(path_of(kind), bytes(data))


def opened(files: MemoryFiles, end_offset: int, *, clean: bool) -> UnifiedLog:
    checkpoints = LogCheckpoints(recovery_point=end_offset, log_start_offset=0, high_watermark=end_offset)
    return UnifiedLog.open(
        FOLDER,
        machine=Machine(files=files),
        config=CONFIG,
        checkpoints=checkpoints,
        had_clean_shutdown=clean,
        is_sole_replica=True,
    )


@pytest.mark.parametrize("damage", [lose_index, damage_transactions, delete_transactions_alone, lose_index_and_a_batch])
def test_the_power_goes_while_a_flushed_segment_is_rebuilt(damage: Callable[[MemoryFiles], None]) -> None:
    """If this fails, readers of committed records get those of an aborted transaction, since the start behind finds a
    new index and takes a transaction index for whole that is none; or the tier gets no more segments.
    """
    files, end_offset = lived()
    damage(files)
    files.fsync_directory(FOLDER)
    at, seen = 0, 0
    while at <= seen:
        at += 1
        for seed in range(8):
            power = PowerCut(struck := copy_of(files), at=at, seed=seed)
            with contextlib.suppress(StoreError):
                opened(struck, end_offset, clean=True).close()
            seen = power.seen
            with opened(power.cut(), end_offset, clean=False) as log:
                bases = [segment.base_offset for segment in log.log_segments()]
                assert [base for base in bases[1:] if log.snapshot_at(base) is None] == [], (at, seed)
                read = log.read(0, max_bytes=100, isolation=FetchIsolation.TXN_COMMITTED)
                assert not read.records or read.aborted_transactions == ((7, 0),), (at, seed)
                began = {entry.producer_id: entry.transaction_first_offset for entry in log.open_transactions()}
                assert began[8] == 1, (at, seed)
    assert seen > 10, seen
