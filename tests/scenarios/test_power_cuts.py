"""The storage manager on a machine of one thread and a disk in memory: any order of turns, the power cut anywhere."""

from __future__ import annotations

import contextlib
import pathlib
import threading
from collections.abc import Iterator

import pytest

from tests.support.closed_segments import ClosedSegment
from tests.support.manager_configs import KEYS, ZSTD
from tests.support.power_cuts import CONFIG, disk_with
from tests.support.power_cuts import segment as segment  # noqa: PLC0414 - a fixture
from tierlog.remote.api import IndexType, RemoteResourceNotFoundException, RemoteStorageException
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import PowerCut

SHAPES = {"aiven": ZSTD | KEYS, "kafka": {"layout": "kafka"}}
CUTS = 60
PARTS = 3


@contextlib.contextmanager
def running(seed: int, files: MemoryFiles, shape: str) -> Iterator[tuple[TieredStorageManager, ManualScheduler]]:
    machine, scheduler = ManualScheduler.machine(seed, files)
    with scheduler, TieredStorageManager(machine=machine) as manager:
        manager.configure(CONFIG | SHAPES[shape])
        yield manager, scheduler


def read(manager: TieredStorageManager, segment: ClosedSegment, custom: bytes | None, start: int = 0) -> bytes:
    with manager.fetch_log_segment(segment.finished(custom), start) as stream:
        return stream.read()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_turns_gives_the_same(segment: ClosedSegment, shape: str, seed: int) -> None:
    """If this fails, copies, readers and prefetch of one process get in each other's way once in a month."""
    threads = threading.active_count()
    with running(seed, disk_with(segment), shape) as (manager, scheduler):
        attempts = [segment.with_id(number) for number in (1, 2, 3)]
        with scheduler.pool(3, name="copies") as pool:
            copies = [
                pool.submit(lambda each=each: manager.copy_log_segment_data(each.metadata, each.data))  # type: ignore[misc]
                for each in attempts
            ]
            customs = [copy.result() for copy in copies]
        starts = (0, 40_000, 16_384, 1)
        with scheduler.pool(4, name="readers") as pool:
            reads = [
                pool.submit(lambda each=each, custom=custom, start=start: read(manager, each, custom, start))  # type: ignore[misc]
                for each, custom in zip(attempts, customs, strict=True)
                for start in starts
            ]
            assert [each.result() for each in reads] == [segment.log[start:] for start in starts] * len(attempts)
        with manager.fetch_index(attempts[0].finished(customs[0]), IndexType.OFFSET) as stream:
            assert stream.read() == pathlib.Path(segment.data.offset_index).read_bytes()
        manager.delete_log_segment_data(attempts[1].finished(customs[1]))
        with pytest.raises(RemoteResourceNotFoundException):
            read(manager, attempts[1], customs[1])
    assert threading.active_count() == threads


@pytest.mark.few(2)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("shape", SHAPES)
def test_the_power_may_go_at_any_moment(segment: ClosedSegment, shape: str, part: int) -> None:
    """If this fails, a broker deletes its own segment for a copy that a power cut then takes, or a reader sees half of
    one.
    """
    with running(0, files := disk_with(segment), shape) as (manager, _):
        counting = PowerCut(files, at=0, seed=0)
        manager.copy_log_segment_data(segment.metadata, segment.data)
    survived = lost = 0
    for cut in range(part, CUTS, PARTS):
        seed = cut + 1
        files = disk_with(segment)
        custom, done = None, False
        first, again = segment.with_id(1), segment.with_id(2)
        with running(seed, files, shape) as (manager, _):
            power = PowerCut(files, at=1 + cut * (counting.seen + 5) // CUTS, seed=seed)
            try:
                custom, done = manager.copy_log_segment_data(first.metadata, first.data), True
            except RemoteStorageException:
                assert power.left is not None
        with running(seed, power.cut(), shape) as (manager, _):
            if done:
                assert read(manager, first, custom) == segment.log, cut
            else:
                try:
                    found = read(manager, first, custom)
                except RemoteResourceNotFoundException:
                    lost += 1
                else:
                    survived += 1
                    assert found == segment.log, cut
            custom = manager.copy_log_segment_data(again.metadata, again.data)
            assert read(manager, again, custom) == segment.log, cut
            manager.delete_log_segment_data(first.finished(None))
    assert lost > CUTS // (3 * PARTS)
