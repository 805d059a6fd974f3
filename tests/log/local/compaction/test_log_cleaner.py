"""Cleaner threads over log directories, in the orders that seeds find: nothing here waits for the real time."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
from collections.abc import Callable, Iterator

import pytest

from tests.support.living_logs import batch_of
from tierlog.errors import ConfigError, CorruptRecordError, NoThreadError, StoreError
from tierlog.log.local.compaction.log_cleaner import STOP_SECONDS_MAX, LogCleaner
from tierlog.log.local.compaction.log_cleaner_manager import LogCleanerManager
from tierlog.log.local.log_config import CleanerConfig, LogConfig
from tierlog.log.local.log_directories import LogDirectories
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_errors import LogBusyError
from tierlog.log.local.log_metrics import CLEANER_SERIES, LogCleanerMetrics
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine, Process
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.machine.scheduling import Future
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler, SharedClock
from tierlog.runtime.simulated.memory_disk import DiskOperation
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import FailingDisk

LOGS = "/logs"
KEY = ("orders", 0)
CONFIG = LogConfig(cleanup_policy=frozenset(("compact",)), segment_bytes=1000, min_cleanable_dirty_ratio=0.0)
#: Fast enough for all, but for what says otherwise.
FAST = CleanerConfig(log_cleaner_backoff_ms=1000)
#: One batch takes seconds.
SLOW = dataclasses.replace(FAST, log_cleaner_io_max_bytes_per_second=50.0)


@contextlib.contextmanager
def running(seed: int, config: CleanerConfig = FAST) -> Iterator[tuple[Machine, LogDirectory]]:
    machine, scheduler = ManualScheduler.machine(seed)
    with (
        scheduler,
        LogDirectory.open(LOGS, machine=machine, config=CONFIG, cleaner_config=config) as directory,
    ):
        yield machine, directory


def fill(log: UnifiedLog, batches: int = 30) -> None:
    for _ in range(batches):
        log.append_as_leader(batch_of(b"x" * 200), leader_epoch=0)


def cleaner_of(directory: LogDirectory) -> LogCleaner:
    assert directory.cleaner is not None
    return directory.cleaner


def wait_until_cleaned(machine: Machine, log: UnifiedLog, manager: LogCleanerManager) -> None:
    for _ in range(2000):
        if manager.cleaner_offset((log.topic, log.partition)) == log.active_segment.base_offset:
            return
        machine.clock.sleep(0.5)
    raise AssertionError(f"{log.folder}: cleaned up to {manager.cleaner_offset((log.topic, log.partition))}")


def wait_for(machine: Machine, directory: LogDirectory, kind: str) -> None:
    for _ in range(2000):
        if directory.cleaner_manager.states.state_of(KEY).kind == kind:
            return
        machine.clock.sleep(0.05)
    raise AssertionError(kind)


@pytest.mark.parametrize("seed", range(8))
def test_a_log_is_cleaned_again_and_again(seed: int) -> None:
    """If this fails, a compacted topic grows for ever."""
    with running(seed) as (machine, directory):
        log = directory.log(*KEY)
        for _ in range(3):
            fill(log)
            wait_until_cleaned(machine, log, directory.cleaner_manager)
        text = machine.files.read_whole(f"{LOGS}/cleaner-offset-checkpoint").decode()
        assert text == f"0\n1\norders 0 {log.active_segment.base_offset}\n"
        cleaner = cleaner_of(directory)
        assert cleaner.time_since_last_run_ms <= 2000
        assert cleaner.dead_thread_count == 0
        assert cleaner.max_dirty_percent == 0


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("how", ["cut", "begin anew", "close", "delete", "leave"])
def test_a_cleaning_is_aborted_by_what_shortens_its_log(seed: int, how: str) -> None:
    """If this fails, a segment that was cut or deleted comes back, or a follower waits for a throttled cleaner."""
    with running(seed, SLOW) as (machine, directory):
        log, manager = directory.log(*KEY), directory.cleaner_manager
        fill(log)
        manager.write_checkpoint(KEY, 12)
        wait_for(machine, directory, "in progress")
        begun = machine.clock.monotonic_seconds()
        if how == "cut":
            cut_to = log.log_segments()[2].base_offset
            log.truncate_to(cut_to)
            assert log.log_end_offset == cut_to
            assert manager.cleaner_offset(KEY) == min(12, cut_to)
        elif how == "begin anew":
            log.truncate_fully_and_start_at(5)
            assert manager.cleaner_offset(KEY) == 5
        elif how == "close":
            log.close()
        elif how == "delete":
            directory.delete_log(*KEY)
            assert manager.cleaner_offset(KEY) is None
        else:
            log.update_config(LogConfig(segment_bytes=1000))
            assert manager.cleaner_offset(KEY) == 12
        assert machine.clock.monotonic_seconds() - begun < 1
        assert manager.states.state_of(KEY).kind in ("none", "in progress")
        cleaner_of(directory).reconfigure(FAST)
        log = directory.log(*KEY)
        log.update_config(CONFIG)
        fill(log)
        wait_until_cleaned(machine, log, manager)
        assert not manager.uncleanable


@pytest.mark.parametrize("seed", range(5))
def test_a_cleaning_holds_up_nothing(seed: int) -> None:
    """If this fails, producers and consumers wait for the cleaner, or a disk is not flushed for hours."""
    with running(seed, SLOW) as (machine, directory):
        log = directory.log(*KEY)
        fill(log)
        other = directory.log("other", 0, config=LogConfig(segment_bytes=1000, retention_bytes=0))
        wait_for(machine, directory, "in progress")
        begun = machine.clock.monotonic_seconds()
        fill(log, 5)
        fill(other)
        for each in (log, other):
            each.flush()
            assert each.recovery_point == each.log_end_offset
            assert each.read(0, max_bytes=1, isolation=FetchIsolation.LOG_END).records
        directory.checkpoint()
        directory.cleaner_manager.retain(other)
        assert other.log_start_offset > 0
        directory.delete_log("other", 0)
        assert directory.log("new", 0).log_end_offset == 0
        assert machine.clock.monotonic_seconds() == begun
        assert directory.cleaner_manager.states.state_of(KEY).kind == "in progress"


@pytest.mark.parametrize("seed", range(10))
def test_closing_aborts(seed: int) -> None:
    """If this fails, a broker does not stop, or a thread writes into a directory that another process has."""
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler:
        with LogDirectory.open(LOGS, machine=machine, config=CONFIG, cleaner_config=SLOW) as directory:
            fill(directory.log(*KEY))
            wait_for(machine, directory, "in progress")
            begun = machine.clock.monotonic_seconds()
        assert machine.clock.monotonic_seconds() - begun < 1
        assert scheduler.unfinished == []
        assert machine.files.find(f"{LOGS}/cleaner-offset-checkpoint") is None
        assert directory.last_stop.was_clean is False
        with LogDirectory.open(LOGS, machine=machine, config=CONFIG, cleaner_config=FAST) as again:
            assert again.last_stop.was_clean
            wait_until_cleaned(machine, again.log(*KEY), again.cleaner_manager)


@pytest.mark.parametrize("seed", range(5))
def test_a_thread_that_hangs_is_left(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """If this fails, a disk that hangs keeps a broker from stopping."""
    machine, scheduler = ManualScheduler.machine(seed)

    def hang() -> dict[tuple[str, int], UnifiedLog]:
        machine.clock.sleep(10 * STOP_SECONDS_MAX)
        return {}

    with scheduler, LogDirectory.open(LOGS, machine=machine, runs_tasks=False) as directory:
        manager = LogCleanerManager(machine, LOGS, state=directory._state, logs=hang)
        cleaner = LogCleaner(machine, config=FAST, managers=[manager])
        cleaner.start()
        machine.clock.sleep(1)
        with caplog.at_level(logging.WARNING):
            cleaner.close()
        assert "tierlog-log-cleaner-0: still cleans 60 s after it was to end" in caplog.text
        machine.clock.sleep(20 * STOP_SECONDS_MAX)
        assert scheduler.unfinished == []


@pytest.mark.parametrize("seed", range(3))
def test_a_cleaning_that_hangs_is_busy(seed: int) -> None:
    """If this fails, a follower waits for ever for a disk that hangs, or cuts a log under its cleaner."""
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler:
        with LogDirectory.open(LOGS, machine=machine, config=CONFIG, runs_tasks=False) as directory:
            log, manager = directory.log(*KEY), directory.cleaner_manager
            fill(log)
            manager.write_checkpoint(KEY, 12)
            assert manager.states.begin(KEY)
            for attempt in (
                lambda: log.truncate_to(4),
                lambda: log.truncate_fully_and_start_at(7),
                lambda: log.update_config(LogConfig(segment_bytes=1000)),
                log.delete_old_segments,
                lambda: directory.delete_log(*KEY),
            ):
                begun = machine.clock.monotonic_seconds()
                with pytest.raises(LogBusyError, match="orders-0: a cleaning did not end within 60 s"):
                    attempt()
                assert machine.clock.monotonic_seconds() - begun == pytest.approx(60)
            assert (log.log_end_offset, manager.cleaner_offset(KEY), log.config) == (30, 12, CONFIG)
            assert manager.states.state_of(KEY).kind == "in progress"
            log.truncate_to(29)  # of the active segment alone
        assert log.is_closed
        with LogDirectory.open(LOGS, machine=machine, config=CONFIG, runs_tasks=False) as directory:
            assert directory.last_stop.was_clean
            assert directory.log(*KEY).log_end_offset == 29


@pytest.mark.parametrize("seed", range(5))
def test_a_change_of_threads_and_rate(seed: int) -> None:
    """If this fails, an operator who wants the disk back has to restart the broker."""
    with running(seed, SLOW) as (machine, directory):
        for partition in range(4):
            fill(directory.log("orders", partition))
        wait_for(machine, directory, "in progress")
        cleaner = cleaner_of(directory)
        with pytest.raises(ConfigError, match="at most double"):
            cleaner.reconfigure(dataclasses.replace(SLOW, log_cleaner_threads=3))
        with pytest.raises(ConfigError, match="cannot be changed at run time"):
            cleaner.reconfigure(dataclasses.replace(SLOW, log_cleaner_enable=False))
        assert cleaner.config == SLOW
        begun = machine.clock.monotonic_seconds()
        cleaner.reconfigure(dataclasses.replace(FAST, log_cleaner_threads=2))
        assert machine.clock.monotonic_seconds() - begun < 1
        assert cleaner.throttler.bytes_per_second == FAST.log_cleaner_io_max_bytes_per_second
        for log in directory.logs.values():
            wait_until_cleaned(machine, log, directory.cleaner_manager)
        cleaner.reconfigure(dataclasses.replace(FAST, log_cleaner_threads=1))


@pytest.mark.parametrize("seed", range(5))
def test_a_damaged_log_harms_no_other(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """If this fails, one damaged segment keeps a whole broker from compacting, or its log is changed."""
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler:
        with LogDirectory.open(LOGS, machine=machine, config=CONFIG, runs_tasks=False) as directory:
            for partition in range(3):
                fill(directory.log("orders", partition))
            path = directory.log(*KEY).log_segments()[2].log_path
        data = bytearray(machine.files.read_whole(path))
        data[8:12] = b"\xff\xff\xff\xff"  # the size of the first batch
        machine.files.write_whole(path, bytes(data))
        before = {info.name: info.size_bytes for info in machine.files.iter_directory(f"{LOGS}/orders-0")}
        with LogDirectory.open(LOGS, machine=machine, config=CONFIG, cleaner_config=FAST) as directory:
            directory.load_logs()
            manager = directory.cleaner_manager
            with caplog.at_level(logging.WARNING):
                for partition in (1, 2):
                    wait_until_cleaned(machine, directory.log("orders", partition), manager)
                machine.clock.sleep(10)
            assert list(manager.uncleanable) == [KEY]
            assert isinstance(manager.uncleanable[KEY], CorruptRecordError)
            assert manager.uncleanable[KEY].__traceback__ is None  # whose frames hold the segment open (seed 130089)
            assert caplog.text.count("/logs/orders-0: the log is not compacted any more") == 1
            metrics = LogCleanerMetrics(machine, cleaner_of(directory)).registry
            names = {f"{series.full_name}": series.label for series in CLEANER_SERIES}
            assert {family.name: len(family.samples) for family in metrics.collect()} == dict.fromkeys(names, 1)
            labels = {"log_directory": LOGS}
            assert metrics.get_sample_value("tierlog_log_cleaner_uncleanable_partitions_count", labels) == 1
            size_bytes = metrics.get_sample_value("tierlog_log_cleaner_uncleanable_bytes", labels)
            assert size_bytes == manager.uncleanable_bytes(machine.clock.time_ms()) > 0
            assert metrics.get_sample_value("tierlog_log_cleaner_time_since_last_run_ms") == pytest.approx(500, abs=500)
            assert not directory.is_offline
            assert cleaner_of(directory).dead_thread_count == 0
            assert directory.log(*KEY).log_end_offset == 30
        after = {info.name: info.size_bytes for info in machine.files.iter_directory(f"{LOGS}/orders-0")}
        assert {name: size for name, size in after.items() if name.endswith(".log")} == {
            name: size for name, size in before.items() if name.endswith(".log")
        }


@pytest.mark.parametrize("seed", range(5))
def test_directories_fail_alone(seed: int) -> None:
    """If this fails, the logs of a sound disk are not compacted any more when another one fails."""
    machine, scheduler = ManualScheduler.machine(seed)
    paths = ["/a", "/b"]
    with scheduler, LogDirectories.open(paths, machine=machine, config=CONFIG, cleaner_config=SLOW) as directories:
        first, second = (directories.directory(path) for path in paths)
        assert directories.cleaner is not None
        assert first.cleaner is second.cleaner is directories.cleaner
        fill(first.log(*KEY))
        wait_for(machine, first, "in progress")
        fill(second.log("other", 0))
        first.take_offline(StoreError("the disk failed"))
        directories.cleaner.reconfigure(FAST)
        wait_until_cleaned(machine, second.log("other", 0), second.cleaner_manager)
        assert not first.cleaner_manager.uncleanable
        assert first.cleaner_manager.cleaner_offset(KEY) is None


@pytest.mark.parametrize("at", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("kind", [DiskOperation[name] for name in ("WRITE", "FSYNC", "RENAME", "UNLINK", "CREATE")])
def test_a_disk_that_fails_a_cleaning(at: int, kind: DiskOperation) -> None:
    """If this fails, a full disk costs records, ends a thread, or stops the other disks' logs."""
    files = MemoryFiles()
    machine, scheduler = ManualScheduler.machine(at, files)
    paths = ["/a", "/b"]
    with scheduler:
        with LogDirectories.open(paths, machine=machine, config=CONFIG, runs_tasks=False) as directories:
            for path in paths:
                fill(directories.directory(path).log(path[1:], 0))
                directories.directory(path).log(path[1:], 0).flush()
        with (
            FailingDisk(files, errno.ENOSPC, at=at, kinds={kind}, inside="/a/a-0", lasting=True) as disk,
            LogDirectories.open(paths, machine=machine, config=CONFIG, cleaner_config=FAST) as directories,
        ):
            directories.load_logs()
            other = directories.directory("/b")
            wait_until_cleaned(machine, other.log("b", 0), other.cleaner_manager)
            machine.clock.sleep(120)
            assert directories.cleaner is not None
            assert directories.cleaner.dead_thread_count == 0
            # A file that cannot be removed stays until the next start.
            assert list(directories.offline) == (["/a"] if disk.failed and kind is not DiskOperation.UNLINK else [])
            assert disk.failed or at > 2
            assert not other.cleaner_manager.uncleanable
        with LogDirectory.open("/a", machine=machine, config=CONFIG, cleaner_config=FAST) as directory:
            log = directory.log("a", 0)
            assert log.log_end_offset == 30
            wait_until_cleaned(machine, log, directory.cleaner_manager)


class JumpingClock(SharedClock):
    """Its time of day jumps."""

    jump_ms = 0

    def time_ms(self) -> int:
        return super().time_ms() + self.jump_ms


@pytest.mark.parametrize("seed", range(3))
def test_a_clock_that_jumps(seed: int) -> None:
    """If this fails, a clock that is set ends compaction, or compacts what consumers have not read yet."""
    clock = JumpingClock()
    scheduler = ManualScheduler(seed, clock=clock)
    machine = Machine(clock, SeededRng(seed), scheduler, MemoryFiles(clock), Process())
    config = dataclasses.replace(CONFIG, min_compaction_lag_ms=3_600_000, message_timestamp_after_max_ms=2**62)
    with scheduler, LogDirectory.open(LOGS, machine=machine, config=config, cleaner_config=FAST) as directory:
        log, manager = directory.log(*KEY), directory.cleaner_manager
        fill(log)
        for jump_ms in (0, -(2**40), 3_000_000):
            clock.jump_ms = jump_ms
            machine.clock.sleep(10)
            assert manager.cleaner_offset(KEY) in (None, 0)
            assert cleaner_of(directory).time_since_last_run_ms <= 2000
        clock.jump_ms = 2**40
        wait_until_cleaned(machine, log, manager)
        clock.jump_ms = -(2**40)
        fill(log)
        machine.clock.sleep(10)
        assert cleaner_of(directory).dead_thread_count == 0
        assert not manager.uncleanable


class ThreadlessScheduler(ManualScheduler):
    """Has no thread for a cleaner, until it has."""

    has_threads = False

    def start(self, function: Callable[[], None], *, name: str) -> Future[None]:
        if "cleaner" in name and not self.has_threads:
            raise NoThreadError(f"no thread for {name}")
        return super().start(function, name=name)


def test_no_memory_for_a_cleaner(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """If this fails, a log is called damaged because the machine had no memory for its keys."""

    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError("no memory")

    with running(1) as (machine, directory):
        log, cleaner = directory.log(*KEY), cleaner_of(directory)
        with monkeypatch.context() as patched:
            patched.setattr("tierlog.log.local.compaction.log_cleaner.Cleaner", no_memory)
            fill(log)
            machine.clock.sleep(5)
        assert cleaner.dead_thread_count == 1
        assert "tierlog-log-cleaner-0: the thread ends" in caplog.text
        assert not directory.cleaner_manager.uncleanable
        assert directory.cleaner_manager.states.is_free(KEY)
        cleaner.reconfigure(FAST)
        wait_until_cleaned(machine, log, directory.cleaner_manager)


def test_no_thread_for_a_cleaner(caplog: pytest.LogCaptureFixture) -> None:
    """If this fails, a process that is at its limit of threads cannot open its logs, or nobody is told."""
    scheduler = ThreadlessScheduler(1)
    machine = Machine(scheduler.clock, SeededRng(1), scheduler, MemoryFiles(scheduler.clock), Process())
    with scheduler, LogDirectory.open(LOGS, machine=machine, config=CONFIG, cleaner_config=FAST) as directory:
        log, cleaner = directory.log(*KEY), cleaner_of(directory)
        fill(log)
        assert cleaner.dead_thread_count == 1
        assert "tierlog-log-cleaner-0: no log is cleaned by it" in caplog.text
        scheduler.has_threads = True
        cleaner.reconfigure(FAST)
        assert cleaner.dead_thread_count == 0
        wait_until_cleaned(machine, log, directory.cleaner_manager)


@pytest.mark.parametrize("seed", range(5))
def test_a_topic_enters_compaction(seed: int) -> None:
    """If this fails, a topic whose policy changes is not compacted before the next start."""
    with running(seed) as (machine, directory):
        log = directory.log(*KEY, config=LogConfig(segment_bytes=1000))
        fill(log)
        machine.clock.sleep(10)
        assert directory.cleaner_manager.cleaner_offset(KEY) is None
        log.update_config(CONFIG)
        wait_until_cleaned(machine, log, directory.cleaner_manager)
        both = frozenset(("compact", "delete"))
        log.update_config(dataclasses.replace(CONFIG, cleanup_policy=both, retention_bytes=0))
        machine.clock.sleep(5)
        assert log.log_start_offset >= 29
        internal = directory.log("__consumer_offsets", 0)
        fill(internal)
        wait_until_cleaned(machine, internal, directory.cleaner_manager)


def test_an_error_of_no_log_ends_a_thread(caplog: pytest.LogCaptureFixture) -> None:
    """If this fails, nobody is told that nothing is compacted any more, or a fault is repeated a thousand times a
    second.
    """
    machine, scheduler = ManualScheduler.machine(4)
    faults = [True]

    def logs() -> dict[tuple[str, int], UnifiedLog]:
        if faults:
            raise RuntimeError("no log's fault")
        return {}

    with scheduler, LogDirectory.open(LOGS, machine=machine, runs_tasks=False) as directory:
        manager = LogCleanerManager(machine, LOGS, state=directory._state, logs=logs)
        with LogCleaner(machine, config=FAST) as cleaner:
            cleaner.start()
            cleaner.add(manager)
            machine.clock.sleep(5)
            assert cleaner.dead_thread_count == 1
            assert "tierlog-log-cleaner-0: the thread ends" in caplog.text
            faults.clear()
            cleaner.reconfigure(FAST)
            machine.clock.sleep(5)
            assert cleaner.dead_thread_count == 0
            cleaner.remove(manager)
            assert cleaner.managers == ()


def test_without_a_cleaner_nothing_is_compacted() -> None:
    """If this fails, ``log.cleaner.enable=false`` compacts, or retention deletes from compacted logs."""
    config = dataclasses.replace(FAST, log_cleaner_enable=False)
    with running(1, config) as (machine, directory):
        log = directory.log(*KEY)
        fill(log)
        machine.clock.sleep(1000)
        assert directory.cleaner_manager.cleaner_offset(KEY) is None
        assert log.log_start_offset == 0


def test_with_real_threads() -> None:
    """As the first, by threads of the system: if this fails, locks that a simulation lets pass stand still."""
    machine = Machine(files=MemoryFiles())
    config = dataclasses.replace(FAST, log_cleaner_backoff_ms=10, log_cleaner_threads=2)
    with LogDirectory.open(LOGS, machine=machine, config=CONFIG, cleaner_config=config) as directory:
        logs = [directory.log("orders", partition) for partition in range(3)]
        for log in logs:
            fill(log)
        for log in logs:
            log.truncate_to(log.log_segments()[-1].base_offset)  # a thread may have cleaned those in front
            fill(log)
        for log in logs:
            wait_until_cleaned(machine, log, directory.cleaner_manager)
