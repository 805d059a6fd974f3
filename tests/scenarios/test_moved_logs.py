"""A log that moves to another disk, and loses power at every change of either; and a random life of moves.

What a start finds of a partition is one log, which has all that was flushed and starts where it was said to, whatever
the move had done by then; an unfinished move goes on, and ends as it would have.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.crashed_log import found_in
from tests.support.living_logs import NOW_MS, batch_of
from tierlog.errors import StoreError
from tierlog.log.formats.identity_files import Uuid
from tierlog.log.local.directory.directory_files import DirectoryIdentity
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directories import LogDirectories
from tierlog.log.local.log_switch import MOVED_FROM_FILE
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.replication import LogMove
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing import PowerCut

PATHS: Final = ["/a", "/b", "/c"]
KEY: Final = ("orders", 0)
TOPIC_ID: Final = Uuid(b"orders-topic-id!")
CONFIG: Final = LogConfig(segment_bytes=400, retention_ms=-1, index_interval_bytes=100, file_delete_delay_ms=0)


def opened(files: MemoryFiles, seed: int = 1, *, paths: Sequence[str] = PATHS) -> LogDirectories:
    machine = Machine(clock=ManualClock(time_ms=NOW_MS), rng=SeededRng(seed), files=files)
    return LogDirectories.open(
        list(paths),
        machine=machine,
        config=CONFIG,
        runs_tasks=False,
        is_sole_replica=False,
        identity=DirectoryIdentity("cluster", 1),
    )


def batches_of(log: UnifiedLog, files: MemoryFiles) -> list[tuple[int, bytes]]:
    return list(found_in(log, files).batches)


def caught_up(log: UnifiedLog, future: UnifiedLog, *, max_bytes: int = 300) -> None:
    move = LogMove(log, future)
    for number in range(1000):
        if move.is_caught_up:
            return
        move.step(number * 2000, max_bytes=max_bytes)
        if move.failure is not None:
            raise move.failure
    raise AssertionError(f"no end: {move.follower.state}")


def flushed_disk() -> MemoryFiles:
    """A partition of ten batches and three epochs, flushed, whose first records a client has deleted."""
    files = MemoryFiles()
    with opened(files) as directories:
        log = directories.log(*KEY, topic_id=TOPIC_ID)
        for number in range(10):
            log.append_as_leader(batch_of(b"%d" % number * 40, b"x"), leader_epoch=number // 4)
        log.update_high_watermark(16)
        log.maybe_increment_log_start_offset(3, "a client deleted records")
    return files


def move_all(directories: LogDirectories, path: str) -> None:
    """A whole move, from wherever it is."""
    directories.load_logs()
    future = directories.begin_move(*KEY, path)
    if future is not None:
        caught_up(directories.log(*KEY), future)
        assert directories.finish_move(*KEY) is future


def check_power_cuts(seed: int) -> tuple[int, set[str]]:
    """The number of changes of a move, and what was seen behind the cuts."""
    seen: set[str] = set()
    at, is_over = 0, False
    while not is_over:
        at += 1
        files = flushed_disk()
        with opened(files) as directories:
            log = directories.load_logs()[KEY]
            wanted, source = batches_of(log, files), log.parent_dir
            epochs = tuple(log.leader_epoch_cache.epochs)
            target = next(path for path in PATHS if path != source)
            power = PowerCut(files, at=at, seed=seed * 1000 + at)
            with contextlib.suppress(StoreError):
                move_all(directories, target)
            is_over = power.left is None
            left = power.cut()
            with contextlib.suppress(StoreError):
                directories.close()
        seen |= {"two"} if len([path for path in PATHS if left.find(f"{path}/orders-0")]) > 1 else set()
        with opened(left, seed=2) as directories:
            log = directories.load_logs()[KEY]
            assert directories.offline == {}
            seen |= {"future"} if directories.future_logs else set()
            seen |= {log.parent_dir} if not is_over else set()
            assert log.topic_id == TOPIC_ID
            if is_over:
                assert log.parent_dir == target
            assert [each for each in batches_of(log, left) if each[0] >= 2] == [
                each for each in wanted if each[0] >= 2
            ], (seed, at)
            assert (log.log_start_offset, log.log_end_offset) == (3, 20), (seed, at)
            assert tuple(log.leader_epoch_cache.epochs) == epochs
            move_all(directories, target)
            moved = directories.log(*KEY)
            assert moved.parent_dir == target
            assert [each for each in batches_of(moved, left) if each[0] >= 2] == [
                each for each in wanted if each[0] >= 2
            ]
            assert (moved.log_start_offset, moved.log_end_offset) == (3, 20), (seed, at)
            assert left.find(f"{target}/orders-0/{MOVED_FROM_FILE}") is None or not is_over
    return at, seen


def test_a_power_cut_at_every_change() -> None:
    """If this fails, a power cut during a move costs records that were flushed, brings deleted ones back, or leaves a
    broker that does not start: with a log in two directories.
    """
    changes, seen = check_power_cuts(seed=1)
    assert changes > 60
    assert {"future", "two"} | set(PATHS[:2]) <= seen


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_power_cuts_with_other_remains(seed: int) -> None:
    """As above, where other writes of before the cut survive."""
    check_power_cuts(seed)


def test_a_future_log_without_its_topic_id() -> None:
    """If this fails, a power cut amid the begin of a move leaves a log whose topic nobody knows once it has moved: the
    broker's next start deletes it as a stray one (simulation, seed 27).
    """
    files = flushed_disk()
    with opened(files) as directories:
        source = directories.load_logs()[KEY].parent_dir
        target = next(path for path in PATHS if path != source)
        future = directories.begin_move(*KEY, target)
        assert future is not None
        folder = future.folder
    files.remove(f"{folder}/partition.metadata")  # as the cut would leave it
    with opened(files) as directories:
        log = directories.load_logs()[KEY]
        future = directories.future_logs[KEY]
        assert future.topic_id is None
        caught_up(log, future)
        assert directories.finish_move(*KEY) is future
        assert future.topic_id == TOPIC_ID
    with opened(files) as directories:
        assert (directories.load_logs()[KEY].parent_dir, directories.log(*KEY).topic_id) == (target, TOPIC_ID)


def test_a_directory_that_was_offline_when_the_log_left_it() -> None:
    """If this fails, a disk that was repaired brings a stale log back, or a broker that does not start."""
    files = flushed_disk()
    with opened(files) as directories:
        log = directories.load_logs()[KEY]
        wanted, source = batches_of(log, files), log.parent_dir
        stale = {entry.path: files.read_whole(entry.path) for entry in files.iter_directory(log.folder)}
        folder = log.folder
        target, third = (path for path in PATHS if path != source)
        move_all(directories, target)
        machine = directories.log(*KEY)
        files.write_whole(f"{machine.folder}/{MOVED_FROM_FILE}", f"{source}\n".encode())  # as the cut would leave it
    files.make_directories(folder)
    with opened(files) as directories:  # an empty one is no different
        assert directories.load_logs()[KEY].parent_dir == target
        assert files.find(folder) is None
        move_all(directories, third)
        files.write_whole(f"{third}/orders-0/{MOVED_FROM_FILE}", f"{source}\n{target}\n".encode())
    files.make_directories(folder)
    for path, data in stale.items():
        files.write_whole(path, data)
    with opened(files) as directories:
        log = directories.load_logs()[KEY]
        assert log.parent_dir == third
        assert [each for each in batches_of(log, files) if each[0] >= 2] == [each for each in wanted if each[0] >= 2]


class MovedLog(RuleBasedStateMachine):
    """A partition, the batches that it has to have, and its moves."""

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.directories = opened(self.files)
        self.log = self.directories.log(*KEY, topic_id=TOPIC_ID)
        self.future: UnifiedLog | None = None
        self.move: LogMove | None = None
        self.batches: list[tuple[int, bytes]] = []
        self.epoch = 0
        self.flushed = 0
        self.now_ms = 0
        self.random = random.Random(0)

    def teardown(self) -> None:
        self.directories.close()

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.random = random.Random(seed)

    # ---- the log's own life

    @rule(size=st.integers(1, 120), count=st.integers(1, 4))
    def append(self, size: int, count: int) -> None:
        for _ in range(count):
            data = batch_of(bytes([self.random.randrange(256)]) * size, b"2")
            info = self.log.append_as_leader(data, leader_epoch=self.epoch)
            self.batches.append((info.first_offset, bytes(data)))

    @rule(has_records=st.booleans())
    def begin_epoch(self, has_records: bool) -> None:
        self.epoch += 1
        if not has_records:
            self.log.assign_epoch_start_offset(self.epoch, self.log.log_end_offset)

    @rule(back=st.integers(1, 6))
    def truncate(self, back: int) -> None:
        """What a follower does whose leader has other records: they are of a later epoch."""
        offset = max(self.log.high_watermark, self.log.log_end_offset - 2 * back)
        if self.log.truncate_to(offset):
            self.batches = [each for each in self.batches if each[0] < offset]
            self.flushed = min(self.flushed, offset)
            self.epoch += 1

    @rule(forward=st.integers(0, 8))
    def replicate(self, forward: int) -> None:
        end = self.log.log_end_offset
        self.log.update_high_watermark(min(end - end % 2, self.log.high_watermark + 2 * forward))

    @rule(forward=st.integers(1, 5))
    def delete_records(self, forward: int) -> None:
        start = min(self.log.high_watermark, self.log.log_start_offset + forward)
        self.log.maybe_increment_log_start_offset(start, "a client deleted records")
        self.log.delete_old_segments()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.log_end_offset

    @rule()
    def roll(self) -> None:
        self.log.roll()

    # ---- moves

    @rule(path=st.sampled_from(PATHS))
    def begin_move(self, path: str) -> None:
        found = self.directories.begin_move(*KEY, path)
        assert (found is None) == (path == self.log.parent_dir)
        if found is not self.future:
            self.future = found
            self.move = None if found is None else LogMove(self.log, found)

    @rule()
    def cancel(self) -> None:
        assert self.directories.cancel_move(*KEY) == (self.future is not None)
        self.future = self.move = None

    @precondition(lambda self: self.move is not None)
    @rule(steps=st.integers(1, 12), max_bytes=st.integers(1, 600))
    def step(self, steps: int, max_bytes: int) -> None:
        assert self.move is not None
        for _ in range(steps):
            self.now_ms += 500
            self.move.step(self.now_ms, max_bytes=max_bytes)
            assert self.move.failure is None

    @precondition(lambda self: self.move is not None)
    @rule(catches_up=st.booleans())
    def finish(self, catches_up: bool) -> None:
        assert self.move is not None
        for _ in range(200):
            if not catches_up or self.move.is_caught_up:
                break
            self.now_ms += 2000
            self.move.step(self.now_ms)
        offsets, epochs = self.log.offsets, self.log.leader_epoch_cache.epochs
        was_caught_up = self.move.is_caught_up
        found = self.directories.finish_move(*KEY)
        assert found is not None or not was_caught_up
        assert found is not None or not catches_up
        if found is not None:
            assert found is self.future
            assert found.offsets == offsets._replace(recovery_point=offsets.log_end_offset)
            start = offsets.log_start_offset
            if epochs.earliest is not None:  # a crash took the log start back, not what its rise had cut of the lineage
                start = max(start, epochs.earliest.start_offset)
            assert found.leader_epoch_cache.epochs.truncate_from_start(start) == epochs.truncate_from_start(start)
            self.log, self.future, self.move = found, None, None
            self.flushed = found.log_end_offset

    # ---- stops

    @rule(is_clean=st.booleans(), seed=st.integers(0, 2**16))
    def stop(self, is_clean: bool, seed: int) -> None:
        if is_clean:
            self.directories.close()
        else:
            self.files = self.files.crash(SeededRng(seed))
            with contextlib.suppress(StoreError):
                self.directories.close()
        self.directories = opened(self.files, seed)
        self.log = self.directories.load_logs()[KEY]
        end = self.log.log_end_offset
        assert end >= (self.flushed if not is_clean else self.batches[-1][0] + 2 if self.batches else 0)
        self.batches = [each for each in self.batches if each[0] < end]
        self.epoch += 1
        self.future = self.directories.future_logs.get(KEY)
        self.move = None if self.future is None else LogMove(self.log, self.future)

    @invariant()
    def same_batches(self) -> None:
        start = self.log.log_start_offset
        found = [each for each in batches_of(self.log, self.files) if each[0] + 1 >= start]
        assert found == [each for each in self.batches if each[0] + 1 >= start]
        assert self.directories.offline == {}
        assert dict(self.directories.logs) == {KEY: self.log}


TestMovedLog: Any = MovedLog.TestCase
TestMovedLog.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.slow
class TestManyMovedLogs(MovedLog.TestCase):  # type: ignore[name-defined,misc]
    """As above, a thousand lives."""

    settings = settings(
        max_examples=1000, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
    )
