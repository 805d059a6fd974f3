"""A log whose machine loses power, whose process is killed, whose disk fails: at every operation, and what is left.

The default run takes some points of each kind, ``make test-crashes`` all of several seeds.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import pathlib
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.support.checkout import ROOT
from tests.support.crashed_log import Found, check_closed_log, check_log, check_names, copy_of, found_in
from tests.support.expected_log import ExpectedLog
from tests.support.log_workload import (
    FOLDER,
    LOGS,
    PARTITION,
    POLICIES,
    TOPIC,
    LogLife,
    appended_batch,
    kill_config,
)
from tierlog.errors import StoreError
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_errors import LogClosedError, LogOfflineError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.builder import RecordBatchBuilder
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_disk import CHANGES, DiskOperation
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import FailingDisk, PowerCut

STEPS: Final = 60
#: Of the campaign.
SEEDS: Final = range(2, 6)
KILLS: Final = 20


def begun() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directories(LOGS)
    return files


@contextlib.contextmanager
def living(seed: int, policy: str, files: MemoryFiles) -> Iterator[LogLife]:
    """A life until its disk fails or its steps are done; nothing is closed by itself."""
    machine, scheduler = ManualScheduler.machine(seed, files)
    with scheduler:
        yield LogLife(seed, policy, machine)


def changes_of(seed: int, policy: str) -> int:
    """How many changes of the disk a life makes."""
    counting = PowerCut(files := begun(), at=0, seed=seed)
    with living(seed, policy, files) as life:
        life.open()
        life.run(STEPS)
    return counting.seen


def opened(machine: Machine, policy: str) -> tuple[LogDirectory, UnifiedLog]:
    directory = LogDirectory.open(LOGS, machine=machine, config=POLICIES[policy], remote_log_enabled=True)
    return directory, directory.log(TOPIC, PARTITION)


def recovered(seed: int, files: MemoryFiles, expected: ExpectedLog, policy: str) -> Found:
    """Start after a crash: the log has what it must have, stops cleanly, and starts again with the same."""
    machine, scheduler = ManualScheduler.machine(seed, files)
    with scheduler:
        directory, log = opened(machine, policy)
        with directory:
            found = check_log(log, files, expected)
            check_names(FOLDER, files)
        check_closed_log(FOLDER, files, found, expected)
        directory, log = opened(machine, policy)
        with directory:
            assert log.recovery_report.batches_checked == 0
            reopened = check_log(log, files, expected)
        assert reopened == found, "a clean stop and start make another log"
    return found


def go_on(seed: int, files: MemoryFiles, before: LogLife) -> None:
    """Another life, over what a crash left."""
    with living(seed, before.policy, files) as life:
        life.expected = before.expected
        life.open()
        life.begin_after_crash(leader_epoch=before.leader_epoch + 1)
        life.run(12)
        check_log(life.log, files, life.expected)


def cut_power(seed: int, policy: str, at: int) -> Found:
    """A life that ends with the power at the n-th change; what its successor finds, and does."""
    chance = random.Random(f"{seed} {policy} {at}")
    power = PowerCut(files := begun(), at=at, seed=chance.randrange(1 << 32))
    with living(seed, policy, files) as life, contextlib.suppress(StoreError):
        life.open()
        life.run(STEPS)
    left = power.cut()
    counting = PowerCut(whole := copy_of(left), at=0, seed=0)
    found = recovered(seed, whole, life.expected, policy)
    again = PowerCut(struck := copy_of(left), at=chance.randint(1, counting.seen), seed=chance.randrange(1 << 32))
    machine, scheduler = ManualScheduler.machine(seed, struck)
    with scheduler, contextlib.suppress(StoreError):
        directory, _ = opened(machine, policy)
        directory.close()
    repeated = recovered(seed, again.cut(), life.expected, policy)
    assert repeated == found, "what a recovery finds that was cut short is another log"
    go_on(seed + 1, left, life)
    return found


def cut_power_at(seed: int, policy: str, points: Callable[[int], range]) -> int:
    """Cut at some of all points; how many."""
    chosen = points(changes_of(seed, policy) + 1)
    for at in chosen:
        try:
            cut_power(seed, policy, at)
        except BaseException as error:
            error.add_note(f"cut_power({seed}, {policy!r}, {at})")
            raise
    return len(chosen)


@pytest.mark.few(2)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_power_may_go_at_any_change(policy: str) -> None:
    """If this fails, a broker that lost power has lost what it had flushed, or has what nobody appended."""
    assert cut_power_at(1, policy, lambda changes: range(1, changes, changes // 12)) >= 12


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_power_may_go_at_every_change(policy: str, seed: int) -> None:
    """The same at all points, of which there are more than 500."""
    assert cut_power_at(seed, policy, lambda changes: range(1, changes)) > 500 / len(SEEDS) / len(POLICIES)


# ---- a disk that fails

WRITING: Final = frozenset((DiskOperation.WRITE, DiskOperation.CREATE, DiskOperation.MAKE_DIRECTORY))
OPENING: Final = frozenset((DiskOperation.OPEN, DiskOperation.CREATE))
#: What fails → errno, which operations, whether all later ones fail too.
FAULTS: Final = {
    "full": (errno.ENOSPC, WRITING, True),
    "full once": (errno.ENOSPC, WRITING, False),
    "read-only": (errno.EROFS, CHANGES, True),
    "too many open files": (errno.EMFILE, OPENING, False),
    "fsync": (errno.EIO, frozenset((DiskOperation.FSYNC,)), False),
    "fsync of a directory": (errno.EIO, frozenset((DiskOperation.FSYNC_DIRECTORY,)), False),
    "read": (errno.EIO, frozenset((DiskOperation.READ,)), False),
}


def fail_disk(seed: int, policy: str, fault: str, at: int) -> bool:
    """A life whose disk fails at the n-th of some operations in the log's folder; False if there are not so many."""
    number, kinds, lasting = FAULTS[fault]
    files = begun()
    with living(seed, policy, files) as life:
        life.open()
        broken = FailingDisk(files, number, at=at, kinds=kinds, inside=FOLDER, lasting=lasting, seed=at)
        told: StoreError | None = None
        try:
            life.run(STEPS)
        except StoreError as error:
            told = error
        if not broken.failed:
            return False
        if life.is_open:
            assert life.log.is_offline or fault == "read-only", "the log goes on"
            if life.log.is_offline:
                check_offline(life.log, files)
        else:
            assert told is not None, "the log was opened as if nothing were wrong"
        assert told is None or FOLDER in str(told)
        files.mend()
    recovered(seed, copy_of(files), life.expected, policy)
    after_power = files.crash()
    recovered(seed, copy_of(after_power), life.expected, policy)
    go_on(seed + 1, after_power, life)
    return True


def check_offline(log: UnifiedLog, files: MemoryFiles) -> None:
    """Every call ends with the same error, and nothing touches the disk any more."""
    touched = FailingDisk(files, errno.EIO, at=0, inside=FOLDER)
    calls: list[Callable[[], object]] = [
        log.flush,
        log.roll,
        lambda: log.append_as_leader(bytearray(appended_batch(0)), leader_epoch=1 << 20),
        lambda: log.read(log.log_start_offset, max_bytes=1, isolation=FetchIsolation.LOG_END),
        lambda: log.truncate_to(log.log_start_offset),
        lambda: log.truncate_fully_and_start_at(1 << 20),
        lambda: log.assign_epoch_start_offset(1 << 20, log.log_end_offset),
        lambda: log.maybe_increment_log_start_offset(log.log_end_offset, "test"),
        lambda: log.fetch_offset_by_timestamp(1),
        log.delete_old_segments,
        log.flush,
    ]
    for call in calls:
        with pytest.raises(LogOfflineError):
            call()
    assert touched.seen == 0, "an offline log touches its files"


@pytest.mark.few(4)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_disk_that_fails_takes_the_log_offline(fault: str) -> None:
    """If this fails, a log goes on after a write or an fsync that failed, and what it acknowledges then is lost."""
    struck = [fail_disk(1, policy, fault, at) for policy in POLICIES for at in (1, 4, 9, 22)]
    assert any(struck)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_disk_may_fail_at_every_operation(fault: str, policy: str) -> None:
    """The same at each operation."""
    for at in range(1, 10_000):
        try:
            if not fail_disk(2, policy, fault, at):
                break
        except BaseException as error:
            error.add_note(f"fail_disk(2, {policy!r}, {fault!r}, {at})")
            raise


# ---- a process that is killed


def killed(folder: pathlib.Path, kill: int) -> None:
    """A child appends and is killed; what it acknowledged is there."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.support.log_workload", str(folder), str(kill % 3)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert child.stdout is not None
    machine = Machine()
    with child, child.stdout:
        told = child.stdout.readline()
        machine.clock.sleep(0.004 * kill)
        child.send_signal(signal.SIGKILL)
        told = (told + child.stdout.read()).rpartition(b"\n")[0]
    acknowledged = int(told.splitlines()[-1])
    with LogDirectory.open(str(folder), machine=machine, config=kill_config(kill % 3)) as directory:
        log = directory.log(TOPIC, PARTITION)
        assert log.log_end_offset > acknowledged
        for offset in range(log.log_start_offset, log.log_end_offset):
            (found,) = log.read(offset, max_bytes=1, isolation=FetchIsolation.LOG_END).records
            data = bytes(found.read())
            assert data[:8] == offset.to_bytes(8)
            assert data[21:] == appended_batch(offset)[21:], f"another batch at offset {offset}"
        info = log.append_as_leader(bytearray(appended_batch(log.log_end_offset)), leader_epoch=9)
        assert info.first_offset == log.log_end_offset - 1


@pytest.mark.parametrize("kill", range(2))
def test_the_process_may_be_killed(tmp_path: pathlib.Path, kill: int) -> None:
    """If this fails, a broker that is killed has lost what it acknowledged, or does not start again."""
    killed(tmp_path, 3 * kill + 2)


@pytest.mark.slow
@pytest.mark.parametrize("kill", range(KILLS))
def test_the_process_may_be_killed_at_any_moment(tmp_path: pathlib.Path, kill: int) -> None:
    """The same, later and later, with all flush policies."""
    killed(tmp_path, kill)


# ---- offsets that are missing where a segment ends

#: Base offsets of batches of two records, of which two fill a segment; "roll" begins another behind the gap.
WITH_GAPS: Final = (0, 2, 6, 8, 10, 12, 20, 22, 25, 27, "roll 32", 32, 34, 42)
GAP_CONFIG: Final = LogConfig(segment_bytes=400, retention_ms=-1, retention_bytes=-1, file_delete_delay_ms=0)


class Followed:
    """A follower of a leader whose log has gaps, which is cut in the midst of one on the way.

    Attributes:
        told: Base offsets of the batches that must be there, whatever happens to the process.
        flushed: How many of them survive a power cut.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.told: list[int] = []
        self.flushed = 0

    def live(self) -> None:
        directory = LogDirectory.open(LOGS, machine=self.machine, config=GAP_CONFIG)
        log = directory.log(TOPIC, PARTITION)
        for step in WITH_GAPS:
            self._take(log, step)
        for cut_at in (37, 30, 16):
            self.told = [base for base in self.told if base + 2 <= cut_at]
            self.flushed = min(self.flushed, len(self.told))
            log.truncate_to(cut_at)
            assert log.log_end_offset == cut_at
            for step in (f"roll {cut_at}", cut_at, cut_at + 2, cut_at + 9):
                self._take(log, step)
        directory.close()

    def _take(self, log: UnifiedLog, step: int | str) -> None:
        if isinstance(step, str):
            log.roll(int(step.removeprefix("roll ")))
            return
        builder = RecordBatchBuilder(step, leader_epoch=1, producer_id=9, producer_epoch=0, base_sequence=step)
        for _ in range(2):
            builder.append(None, b"v" * 40, timestamp_ms=1_700_000_000_000)
        log.append_as_follower(bytearray(builder.build()), leader_epoch=1)
        self.told.append(step)
        self.flushed = sum(base < log.recovery_point for base in self.told)

    @staticmethod
    def found(files: MemoryFiles) -> list[int]:
        """The batches that a start finds: twice the same."""
        machine, scheduler = ManualScheduler.machine(1, files)
        with scheduler:
            for _ in range(2):
                directory = LogDirectory.open(LOGS, machine=machine, config=GAP_CONFIG)
                log = directory.log(TOPIC, PARTITION)
                bases = [base for base, _ in found_in(log, files).batches]
                assert not bases or log.log_end_offset >= bases[-1] + 2
                directory.close()
        return bases


def kill_with_gaps(at: int) -> bool:
    """A kill in front of the n-th change of the disk, whose pages the kernel keeps; False if there are not so many."""
    files = begun()
    machine, scheduler = ManualScheduler.machine(2, files)
    left: list[tuple[MemoryFiles, list[int]]] = []
    with scheduler:
        follower, seen = Followed(machine), itertools.count(1)

        def strike(operation: DiskOperation, _: str) -> None:
            if operation in CHANGES and next(seen) == at:
                left.append((copy_of(files), list(follower.told)))

        files.befall(strike)
        follower.live()
    for found, told in left:
        assert Followed.found(found)[: len(told)] == told, f"killed at change {at}"
    return bool(left)


def cut_power_with_gaps(at: int) -> bool:
    """The same with the power cut: what was flushed is there, and nothing behind what was lost."""
    power = PowerCut(files := begun(), at=at, seed=at)
    machine, scheduler = ManualScheduler.machine(2, files)
    follower = Followed(machine)
    with scheduler, contextlib.suppress(StoreError):
        follower.live()
        return False
    bases = Followed.found(power.cut())
    assert bases[: follower.flushed] == follower.told[: follower.flushed], f"cut at change {at}"
    assert bases[: len(follower.told)] == follower.told[: len(bases)], f"cut at change {at}"
    return True


@pytest.mark.parametrize("crash", [kill_with_gaps, cut_power_with_gaps])
def test_a_crash_beside_missing_offsets(crash: Callable[[int], bool]) -> None:
    """If this fails, a kill of a broker loses what it acknowledged behind a gap of a compacted topic, or a power cut
    leaves records behind others that it took.
    """
    assert sum(map(crash, range(3, 200, 23))) == 9


@pytest.mark.slow
@pytest.mark.parametrize("crash", [kill_with_gaps, cut_power_with_gaps])
def test_a_crash_anywhere_beside_missing_offsets(crash: Callable[[int], bool]) -> None:
    """The same at each change."""
    changes = itertools.takewhile(crash, itertools.count(1))
    assert sum(1 for _ in changes) > 200


def test_a_log_that_is_closed_says_so() -> None:
    """If this fails, a test above that ends with a closed log passes for the wrong reason."""
    with living(1, "roll", begun()) as life:
        life.open()
        life.directory.close()
        with pytest.raises(LogClosedError):
            life.log.flush()
