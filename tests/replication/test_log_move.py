"""LogMove and LogDirectories: a log on its way to another disk, while it lives on."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.batches import Batch, encode
from tests.support.living_logs import NOW_MS, batch_of
from tests.support.message_set_builder import MessageSetBuilder
from tierlog.errors import ConfigError, StoreError
from tierlog.log.formats.identity_files import Uuid
from tierlog.log.formats.segment_files import RECOVERY_POINTS
from tierlog.log.local.compaction.cleaning_states import CleaningState
from tierlog.log.local.directory.directory_files import DirectoryIdentity
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directories import LogDirectories
from tierlog.log.local.log_errors import AppendRefusedError, KafkaError, LogClosedError, LogOfflineError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.replication import (
    Brokers,
    ByteQuota,
    Completed,
    FetchRecords,
    FollowerState,
    Leader,
    LeaderAndIsr,
    LogMove,
)
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing import FailingDisk

PATHS = ["/a", "/b", "/c"]
SMALL = LogConfig(segment_bytes=700, retention_ms=-1, index_interval_bytes=100, file_delete_delay_ms=0)
TOPIC_ID = Uuid(b"orders-topic-id!")


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def directories(files: MemoryFiles) -> Iterator[LogDirectories]:
    with opened(files) as found:
        yield found


def opened(files: MemoryFiles, *, config: LogConfig = SMALL, tiered: bool = False) -> LogDirectories:
    return LogDirectories.open(
        PATHS,
        machine=Machine(clock=ManualClock(time_ms=NOW_MS), files=files),
        config=config,
        runs_tasks=False,
        is_sole_replica=False,
        remote_log_enabled=tiered,
        identity=DirectoryIdentity("cluster", 1),
    )


def append(log: UnifiedLog, *values: bytes, epoch: int = 0, **more: int | bool) -> None:
    log.append_as_leader(batch_of(*values, **more), leader_epoch=epoch)  # type: ignore[arg-type]


def fill(log: UnifiedLog, batches: int = 12, *, epoch: int = 0) -> None:
    for number in range(batches):
        append(log, b"%d" % number * 20, b"x" * 30, epoch=epoch)


def send_without_epochs(log: UnifiedLog, *values: bytes) -> None:
    """Append messages of magic 1, as a follower of an old broker."""
    for value in values:
        builder = MessageSetBuilder(1, log.log_end_offset)
        builder.append(b"key", value, timestamp_ms=NOW_MS)
        log.append_as_follower(builder.build(), leader_epoch=0)


def other_than(log: UnifiedLog, number: int = 0) -> str:
    return [path for path in PATHS if path != log.parent_dir][number]


def records_of(log: UnifiedLog) -> bytes:
    """All batches from the log's local start on."""
    found, offset = [], log.local_log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, max_bytes=1 << 20, isolation=FetchIsolation.LOG_END)
        found.extend(bytes(part.read()) for part in read.records)
        at = found[-1]
        end = 0
        while end < len(at):
            last = end
            end += 12 + int.from_bytes(at[end + 8 : end + 12], "big")
        offset = int.from_bytes(at[last : last + 8], "big") + int.from_bytes(at[last + 23 : last + 27], "big") + 1
    return b"".join(found)


def caught_up(move: LogMove, *, now_ms: int = 0, max_bytes: int = 400) -> int:
    """Go on until the future log has everything; the steps."""
    for steps in range(1000):
        if move.is_caught_up:
            return steps
        move.step(now_ms + steps * 2000, max_bytes=max_bytes)
        assert move.failure is None
    raise AssertionError(f"no end: {move.follower.state}")


def moving(directories: LogDirectories, *, batches: int = 12) -> tuple[UnifiedLog, UnifiedLog, LogMove]:
    """A log of some batches, the future one, and the move that has begun."""
    log = directories.log("orders", 0)
    fill(log, batches)
    future = directories.begin_move("orders", 0, other_than(log))
    assert future is not None
    return log, future, LogMove(log, future)


def moved(directories: LogDirectories, log: UnifiedLog, path: str) -> UnifiedLog:
    """A whole move."""
    future = directories.begin_move(log.topic, log.partition, path)
    assert future is not None
    caught_up(LogMove(log, future))
    found = directories.finish_move(log.topic, log.partition)
    assert found is future
    return found


class TestMoves:
    """A moved log has what the log had."""

    def test_records_offsets_epochs_and_producers(self, directories: LogDirectories, files: MemoryFiles) -> None:
        """If this fails, a disk that is emptied costs records, or lets producers write theirs twice."""
        log = directories.log("orders", 0, topic_id=TOPIC_ID)
        fill(log)
        log.assign_epoch_start_offset(3, log.log_end_offset)
        for sequence in range(3):
            append(log, b"a", epoch=3, producer_id=7, base_sequence=sequence)
        append(log, b"t", epoch=3, producer_id=8, base_sequence=0, transactional=True)
        append(log, b"b", epoch=3)
        log.update_high_watermark(25)
        log.maybe_increment_log_start_offset(4, "a client deleted records")
        wanted = records_of(log), log.offsets._replace(recovery_point=log.log_end_offset)
        epochs = log.leader_epoch_cache.epochs
        path, before = other_than(log), log.folder
        future = directories.begin_move("orders", 0, path)
        assert future is not None
        assert future.folder.startswith(f"{path}/orders-0.")
        assert future.folder.endswith("-future")
        assert directories.future_logs == {("orders", 0): future}
        (told,) = [each for found in directories.describe() for each in found.logs if each.is_future]
        assert told.offset_lag == log.log_end_offset
        move = LogMove(log, future)
        assert directories.finish_move("orders", 0) is None
        assert caught_up(move) > 5
        assert directories.finish_move("orders", 0) is future
        assert future.folder == f"{path}/orders-0"
        assert future.topic_id == TOPIC_ID
        assert (records_of(future), future.offsets) == wanted
        assert future.leader_epoch_cache.epochs == epochs
        append(future, b"a", epoch=3, producer_id=7, base_sequence=2)  # a duplicate
        assert future.offsets == wanted[1]
        with pytest.raises(AppendRefusedError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
            append(future, b"a", epoch=3, producer_id=7, base_sequence=9)
        assert [entry.producer_id for entry in future.open_transactions()] == [8]
        assert files.find(before) is None
        assert directories.log("orders", 0) is future
        assert directories.future_logs == {}
        with pytest.raises(LogClosedError):
            append(log, b"late")
        assert b"orders 0 29" in files.read_whole(f"{path}/{RECOVERY_POINTS}")
        assert b"orders" not in files.read_whole(f"{before.rpartition('/')[0]}/{RECOVERY_POINTS}")

    def test_an_epoch_whose_first_records_compaction_took(self, directories: LogDirectories) -> None:
        """If this fails, a follower that diverged there is not cut behind a move, and shows what was never committed
        (simulation, seed 140237).
        """
        log = directories.log("orders", 0)
        append(log, b"a", b"b", b"c")
        log.assign_epoch_start_offset(1, 3)
        log.append_as_follower(encode(Batch(5, (b"x",), epoch=1)), leader_epoch=1)
        log.update_high_watermark(6)
        new = moved(directories, log, other_than(log))
        assert new.leader_epoch_cache.epoch_with_offsets() == {0: 0, 1: 3}

    def test_a_start_within_a_batch(self, directories: LogDirectories) -> None:
        """If this fails, a log whose oldest records a client deleted can never be moved, nor followed anew."""
        log = directories.log("orders", 0)
        append(log, b"a", b"b", b"c")
        append(log, b"d")
        log.update_high_watermark(4)
        log.maybe_increment_log_start_offset(1, "a client deleted records")
        new = moved(directories, log, other_than(log))
        assert (new.log_start_offset, new.log_end_offset) == (1, 4)

    def test_appends_and_retention_meanwhile(self, directories: LogDirectories) -> None:
        """If this fails, a busy partition can never be moved, or loses what came last."""
        log, future, move = moving(directories, batches=20)
        for number in range(6):
            move.step(number, max_bytes=300)
            append(log, b"late %d" % number)
        log.update_high_watermark(30)
        log.maybe_increment_log_start_offset(21, "a client deleted records")
        log.delete_old_segments()
        caught_up(move, now_ms=100)
        append(log, b"one more")
        assert directories.finish_move("orders", 0) is None
        caught_up(move, now_ms=200)
        wanted = records_of(log)[-500:]
        assert directories.finish_move("orders", 0) is future
        assert records_of(future)[-500:] == wanted
        assert (future.log_start_offset, future.high_watermark) == (21, 30)

    def test_a_cut_of_the_current_log(self, directories: LogDirectories) -> None:
        """If this fails, a moved follower has records that no other replica has."""
        log, future, move = moving(directories)
        caught_up(move)
        log.truncate_to(10)
        assert not move.is_caught_up
        for offset in range(10, 30):
            data = encode(Batch(offset, (b"of another leader",), epoch=2))
            log.append_as_follower(data, leader_epoch=2)
        assert directories.finish_move("orders", 0) is None
        caught_up(move, now_ms=10_000)
        assert records_of(future) == records_of(log)
        log.truncate_to(15)
        caught_up(move, now_ms=100_000)
        assert future.log_end_offset == 15
        wanted = records_of(log)
        assert directories.finish_move("orders", 0) is future
        assert records_of(future) == wanted

    def test_a_log_whose_records_are_all_deleted(self, directories: LogDirectories) -> None:
        """If this fails, a move waits for ever: the epoch that began at the end was cut off, and no record has one."""
        log, future, move = moving(directories)
        caught_up(move)
        log.update_high_watermark(log.log_end_offset)
        log.maybe_increment_log_start_offset(log.log_end_offset, "a client deleted records")
        log.truncate_to(log.log_end_offset)
        assert log.leader_epoch_cache.latest_entry is None
        caught_up(move, now_ms=10_000)
        end = log.log_end_offset
        assert directories.finish_move("orders", 0) is future
        assert (future.log_start_offset, future.log_end_offset) == (end, end)
        assert future.leader_epoch_cache.latest_entry is None

    def test_a_cut_that_the_broker_notes(self, directories: LogDirectories) -> None:
        """If this fails, logs of before leader epochs differ behind a move: their ends alone look the same."""
        log = directories.log("orders", 0)
        send_without_epochs(log, b"a", b"b", b"c", b"d")
        future = directories.begin_move("orders", 0, other_than(log))
        assert future is not None
        move = LogMove(log, future)
        caught_up(move)
        assert log.leader_epoch_cache.latest_entry is None
        assert records_of(future) == records_of(log)
        log.truncate_to(2)
        move.truncated(3)
        move.truncated(2)
        send_without_epochs(log, b"C", b"D")
        assert future.log_end_offset == log.log_end_offset
        assert not move.is_caught_up
        assert caught_up(move, now_ms=10_000) > 0
        wanted = records_of(log)
        assert directories.finish_move("orders", 0) is future
        assert records_of(future) == wanted
        with pytest.raises(ValueError, match="offset"):
            move.truncated(-1)

    def test_another_epoch_with_the_same_end(self, directories: LogDirectories) -> None:
        """If this fails, a broker is asked again and again to end a move that cannot end yet."""
        log, future, move = moving(directories, batches=2)
        caught_up(move)
        log.truncate_to(2)
        append(log, b"B", b"C", epoch=1)
        assert not move.is_caught_up
        assert directories.finish_move("orders", 0) is None
        caught_up(move, now_ms=10_000)
        assert records_of(future) == records_of(log)

    def test_an_epoch_without_records_behind_another_branch(self, directories: LogDirectories) -> None:
        """If this fails, a leader that was just elected serves a dead branch behind a move, as committed."""
        log, future, move = moving(directories, batches=10)
        caught_up(move)
        log.truncate_to(16)
        for offset in range(16, 20):
            log.append_as_follower(encode(Batch(offset, (b"of another leader",), epoch=6)), leader_epoch=6)
        log.assign_epoch_start_offset(7, 20)
        assert log.log_end_offset == future.log_end_offset == 20
        assert directories.finish_move("orders", 0) is None
        assert future.leader_epoch_cache.latest_epoch == 0
        caught_up(move, now_ms=10_000)
        wanted = records_of(log), log.leader_epoch_cache.epochs
        assert directories.finish_move("orders", 0) is future
        assert (records_of(future), future.leader_epoch_cache.epochs) == wanted

    def test_an_epoch_without_records(self, directories: LogDirectories) -> None:
        """If this fails, a leader that was just elected forgets its epoch with the move."""
        log = directories.log("orders", 0)
        fill(log, 3)
        log.assign_epoch_start_offset(5, log.log_end_offset)
        epochs = log.leader_epoch_cache.epochs
        new = moved(directories, log, other_than(log))
        assert new.leader_epoch_cache.epochs == epochs

    def test_a_compacted_log(self, directories: LogDirectories) -> None:
        """If this fails, offsets that compaction took away stop a move; the cleaner works in the copy's back; or all is
        compacted again behind the move.
        """
        config = LogConfig(segment_bytes=700, retention_ms=-1, cleanup_policy=frozenset(("compact",)))
        log = directories.log("orders", 0, config=config)
        for offset in (0, 5, 6, 40, 41, 2000):
            log.append_as_follower(encode(Batch(offset, (b"v" * 200,), epoch=0)), leader_epoch=0)
        source = directories.directory(log.parent_dir)
        source.cleaner_manager.write_checkpoint(("orders", 0), 6)
        path = other_than(log)
        future = directories.begin_move("orders", 0, path)
        assert future is not None
        assert future.config == config
        assert source.cleaner_manager.states.state_of(("orders", 0)) == CleaningState("paused", 1)
        caught_up(LogMove(log, future))
        wanted = records_of(log)
        assert directories.finish_move("orders", 0) is future
        assert (future.log_start_offset, records_of(future)) == (0, wanted)
        target = directories.directory(path)
        assert target.cleaner_manager.cleaner_offset(("orders", 0)) == 6
        assert source.cleaner_manager.cleaner_offset(("orders", 0)) is None
        for each in (source, target):
            assert each.cleaner_manager.states.state_of(("orders", 0)) == CleaningState("none")

    def test_a_changed_configuration(self, directories: LogDirectories) -> None:
        """If this fails, retention goes by the old configuration until the next start, once the log has moved."""
        log, future, _ = moving(directories, batches=2)
        directories.update_config("orders", LogConfig(retention_ms=5))
        assert (log.config.retention_ms, future.config.retention_ms) == (5, 5)

    def test_a_throttle(self, directories: LogDirectories) -> None:
        """If this fails, a move takes the disk from producers and consumers."""
        log, future, _ = moving(directories, batches=40)
        machine = Machine(clock=ManualClock())
        quota = ByteQuota(machine, 1000)
        move = LogMove(log, future, quota=quota)
        copied = {}
        for now_ms in range(0, 10_000, 10):
            copied[now_ms] = move.step(now_ms, max_bytes=400)
            machine.clock.sleep(0.01)
        assert 4000 <= sum(size for at, size in copied.items() if at < 5000) <= 6000
        assert move.is_caught_up
        quota.change(1 << 30)
        caught_up(move, now_ms=100_000)

    def test_under_a_leader(self, directories: LogDirectories) -> None:
        """If this fails, all producers and consumers that wait get an error when an operator empties a disk."""
        log = directories.log("orders", 0)
        leader = Leader(log, 1, Brokers({}))
        leader.lead(LeaderAndIsr(4, 0, (1, 2), frozenset((1, 2))), 0)
        leader.append(batch_of(b"a"), required_acks=-1, now_ms=0)
        leader.wait_for_replication(1, "produce")
        leader.wait_for_records(1, FetchIsolation.LOG_END, "poll")
        assert leader.take_actions() == []
        new = moved(directories, log, other_than(log))
        with pytest.raises(LogClosedError):
            leader.append(batch_of(b"b"), required_acks=-1, now_ms=0)
        leader.log_moved(new)
        leader.append(batch_of(b"b"), required_acks=-1, now_ms=1)
        assert leader.take_actions() == [Completed("poll", None)]
        assert new.log_end_offset == 2
        leader.fetch(2, FetchRecords(4, 2, 4, 0), max_bytes=100, now_ms=2)
        assert Completed("produce", None) in leader.take_actions()
        assert new.high_watermark == 2

    def test_back_and_forth(self, directories: LogDirectories) -> None:
        """If this fails, the second move of a log fails on what the first has left."""
        log = directories.log("orders", 0)
        fill(log)
        wanted = records_of(log)
        for _ in range(4):
            log = moved(directories, log, other_than(log))
            assert records_of(log) == wanted
        assert sum(each.log_count for each in directories.online) == 1


class TestThreads:
    """Producers, a mover and readers at the same time."""

    @pytest.mark.parametrize("seed", range(15))
    def test_nothing_is_lost_and_nothing_waits_for_ever(self, seed: int) -> None:
        """If this fails, a record that was acknowledged while the logs were switched is in the old one alone."""
        machine, scheduler = ManualScheduler.machine(seed)
        acknowledged: list[bytes] = []

        def produce(number: int) -> None:
            for count in range(12):
                value = b"<%d of %d>" % (count, number)
                while True:
                    with contextlib.suppress(LogClosedError):
                        append(directories.log("orders", 0), value)
                        acknowledged.append(value)
                        break
                machine.clock.sleep(0.01)

        def move() -> None:
            for number in range(6):
                log = directories.log("orders", 0)
                future = directories.begin_move("orders", 0, PATHS[number % 3])
                if future is None:
                    continue
                mover = LogMove(log, future)
                while not (mover.is_caught_up and directories.finish_move("orders", 0)):
                    assert mover.failure is None
                    mover.step(machine.clock.time_ms(), max_bytes=500)
                    machine.clock.sleep(0.001)

        with scheduler:
            directories = LogDirectories.open(PATHS, machine=machine, config=SMALL)
            directories.log("orders", 0)
            calls = [machine.scheduler.start(lambda n=n: produce(n), name=f"producer {n}") for n in range(3)]  # type: ignore[misc]
            calls.append(machine.scheduler.start(move, name="mover"))
            for call in calls:
                call.result()
            found = records_of(directories.log("orders", 0))
            assert len(acknowledged) == 36
            assert [found.count(value) for value in acknowledged] == [1] * 36
            assert directories.offline == {}
            directories.close()
            assert scheduler.unfinished == []

    def test_a_log_that_is_asked_for_while_it_is_switched(
        self, directories: LogDirectories, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If this fails, a producer's thread makes an empty log beside the one that has just moved."""
        _, future, move = moving(directories)
        caught_up(move)
        find = directories._find

        def find_and_switch(*arguments: Any, **more: Any) -> object:
            found = find(*arguments, **more)
            monkeypatch.undo()
            assert directories.finish_move("orders", 0) is future
            return found

        monkeypatch.setattr(directories, "_find", find_and_switch)
        assert directories.log("orders", 0) is future
        assert dict(directories.logs) == {("orders", 0): future}


class TestEnds:
    """Moves that do not come to their end."""

    def test_cancelled(self, directories: LogDirectories, files: MemoryFiles) -> None:
        """If this fails, a move that an operator took back goes on, or its half copy stays for ever."""
        log, future, move = moving(directories)
        move.step(0)
        assert directories.begin_move("orders", 0, log.parent_dir) is None
        assert directories.future_logs == {}
        assert files.find(future.folder) is None
        move.step(5000)
        assert isinstance(move.failure, LogClosedError)
        assert not move.is_caught_up
        assert directories.log("orders", 0) is log
        assert not directories.cancel_move("orders", 0)
        again = directories.begin_move("orders", 0, other_than(log))
        assert again is directories.begin_move("orders", 0, other_than(log))
        assert directories.cancel_move("orders", 0)
        append(log, b"goes on")

    def test_to_a_third_directory(self, directories: LogDirectories) -> None:
        """If this fails, a changed mind leaves two half copies."""
        log = directories.log("orders", 0)
        fill(log)
        first = directories.begin_move("orders", 0, other_than(log))
        assert first is not None
        second = directories.begin_move("orders", 0, other_than(log, 1))
        assert second is not None
        assert first.is_closed
        assert directories.future_logs == {("orders", 0): second}
        caught_up(LogMove(log, second))
        assert directories.finish_move("orders", 0) is second

    def test_a_topic_that_is_deleted(self, directories: LogDirectories, files: MemoryFiles) -> None:
        """If this fails, the half copy of a deleted topic comes back as its next incarnation."""
        moving(directories)
        assert directories.delete_log("orders", 0)
        assert [entry.name for path in PATHS for entry in files.iter_directory(path) if entry.is_directory] == []
        assert directories.finish_move("orders", 0) is None
        assert directories.log("orders", 0).log_end_offset == 0

    def test_refused(self, directories: LogDirectories) -> None:
        """If this fails, a wrong request takes a disk offline, or begins a copy that can never end."""
        name = "a" * 230
        long, log = directories.log(name, 0), directories.log("orders", 0)
        with pytest.raises(ConfigError, match="has no room"):
            directories.begin_move(name, 0, other_than(long))
        with pytest.raises(ConfigError, match="not found in the config"):
            directories.begin_move("orders", 0, "/elsewhere")
        directories.cordoned = [other_than(log)]
        with pytest.raises(ConfigError, match="is cordoned"):
            directories.begin_move("orders", 0, other_than(log))
        assert [each.path for each in directories.describe() if each.is_cordoned] == [other_than(log)]
        for partition in range(1, 9):
            assert directories.log("orders", partition).parent_dir != other_than(log)
        directories.cordoned = []
        assert directories.begin_move("unknown", 0, "/c") is None
        assert directories.log("unknown", 0).parent_dir == "/c"

    def test_a_disk_that_is_copied_to_fails(self, directories: LogDirectories, files: MemoryFiles) -> None:
        """If this fails, a move to a broken disk costs the log that stands on a sound one."""
        log = directories.log("orders", 0)
        fill(log)
        path = other_than(log)
        future = directories.begin_move("orders", 0, path)
        assert future is not None
        move = LogMove(log, future)
        with FailingDisk(files, errno.EIO, at=3, inside=path, lasting=True):
            for number in range(20):
                move.step(number * 2000, max_bytes=300)
        assert isinstance(move.failure, LogOfflineError)
        assert list(directories.offline) == [path]
        append(log, b"goes on")
        assert directories.finish_move("orders", 0) is None
        with pytest.raises(LogOfflineError, match="are offline"):
            directories.begin_move("orders", 0, other_than(log, 1))

    def test_the_disk_that_is_copied_fails(self, directories: LogDirectories) -> None:
        """If this fails, a half copy takes the place of the log when its disk breaks."""
        log, future, move = moving(directories)
        move.step(0, max_bytes=300)
        log.take_offline(StoreError("the disk is broken"))
        move.step(10)
        assert isinstance(move.failure, LogOfflineError)
        assert directories.finish_move("orders", 0) is None
        assert not future.is_offline

    @pytest.mark.parametrize("at", range(1, 40))
    @pytest.mark.parametrize("which", ["source", "target"])
    def test_a_disk_that_fails_at_the_switch(self, files: MemoryFiles, which: str, at: int) -> None:
        """If this fails, a disk that breaks at the wrong moment costs both copies, or brings back the one that lacks
        what was written since.
        """
        with opened(files) as directories:
            log = directories.log("orders", 0)
            fill(log)
            wanted, path, source = records_of(log), other_than(log), log.parent_dir
            future = directories.begin_move("orders", 0, path)
            assert future is not None
            caught_up(LogMove(log, future))
            broken = source if which == "source" else path
            with FailingDisk(files, errno.EIO, at=at, inside=broken, lasting=True) as disk:
                try:
                    found = directories.finish_move("orders", 0)
                except LogOfflineError:
                    found = directories.logs.get(("orders", 0))
                assert disk.failed or found is future
                if found is not None:
                    assert records_of(found) == wanted
                    if disk.failed:
                        append(found, b"goes on")
                        wanted = records_of(found)
                else:
                    assert list(directories.offline) == [broken]
                with contextlib.suppress(LogOfflineError):
                    directories.close()
        with opened(files) as directories:
            log = directories.load_logs()["orders", 0]
            assert records_of(log) == wanted
            if which == "source" and found is future:
                assert log.parent_dir == path


class TestAnswers:
    """The current log, as the leader of the move, answers requests."""

    def test_the_error_of_a_cut_off_answer(self, directories: LogDirectories) -> None:
        """If this fails, a read that meets a roll or a cut ends a move."""
        move = moving(directories, batches=3)[2]
        move.step(0)
        request = move.follower.next_request(5000)
        assert request is not None
        move.follower.on_error(request, KafkaError.KAFKA_STORAGE_ERROR, 5000)
        assert move.step(5001) == 0
        caught_up(move, now_ms=10_000)
        assert move.follower.state is FollowerState.FETCHING
