"""A log that begins anew from the tier, or is cut below what it has here, and loses power at every change of its disk.

What the next start finds is the log of before or the new one, whole: never a log with an end and no lineage, never a
log start that an older checkpoint took back.
"""

from __future__ import annotations

import contextlib
import pathlib
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import pytest

from tests.support.checkout import ROOT
from tests.support.log_workload import LOGS, PARTITION, SMALL, TOPIC
from tests.support.replicas import batch_of
from tierlog.errors import CorruptIndexError, StoreError
from tierlog.log.formats.producer_snapshot import ProducerEntry, encode_producer_snapshot
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_folder import LogFolder
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.recovery.tier_start import TIER_START_FILE, TierStart, TierStartFile, TierStartState
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.builder import RecordBatchBuilder
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import PowerCut

CONFIG: Final = replace(SMALL, remote_storage_enable=True, local_retention_bytes=0, retention_bytes=-1)
EPOCHS: Final = {0: 0, 2: 4}
NOW_MS: Final = 1_700_000_000_000


@dataclass(frozen=True)
class Seen:
    """A log as its readers see it."""

    log_start: int
    local_start: int
    end: int
    stable: int
    epochs: tuple[tuple[int, int], ...]
    values: tuple[int, ...]
    producers: tuple[int, ...]
    must_be_rebuilt: bool


def seen(log: UnifiedLog) -> Seen:
    offsets = log.offsets
    values: list[int] = []
    at = offsets.local_log_start_offset
    while at < offsets.log_end_offset:
        assert log.read(at, max_bytes=1, isolation=FetchIsolation.LOG_END).records
        values.append(at)
        at += 1
    return Seen(
        offsets.log_start_offset,
        offsets.local_log_start_offset,
        offsets.log_end_offset,
        offsets.last_stable_offset,
        tuple(log.leader_epoch_cache.epochs),
        tuple(values),
        tuple(sorted(log._contents.producers._producers)),
        log.must_be_rebuilt,
    )


def transactional(producer_id: int) -> bytearray:
    builder = RecordBatchBuilder(0, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    builder.append(None, b"x", timestamp_ms=NOW_MS)
    return bytearray(builder.build())


def opened(machine: Machine, folder: str = LOGS) -> tuple[LogDirectory, UnifiedLog]:
    directory = LogDirectory.open(folder, machine=machine, config=CONFIG, remote_log_enabled=True)
    return directory, directory.log(TOPIC, PARTITION)


def lived(log: UnifiedLog, directory: LogDirectory) -> None:
    """Ten records in two epochs, a segment each, two producers with open transactions; all on the disk."""
    for epoch, count in ((0, 4), (2, 6)):
        log.assign_epoch_start_offset(epoch, log.log_end_offset)
        for number in range(count):
            at = log.log_end_offset
            data = transactional(at) if at in (5, 7) else batch_of([b"%d" % number], now_ms=NOW_MS)
            log.append_as_leader(data, leader_epoch=epoch)
            log.roll()
    log.update_high_watermark(10)
    log.flush()
    directory.checkpoint()


def begin_above(log: UnifiedLog) -> None:
    """Its leader has more than this log ever had."""
    begun = [ProducerEntry(31, 0, 0, 45, 0, NOW_MS, -1, 40), ProducerEntry(34, 0, 0, 49, 0, NOW_MS, -1, 44)]
    entries = [*begun, ProducerEntry(32, 0, 0, 48, 0, NOW_MS, -1, -1)]
    log.start_from_tier(
        50,
        log_start_offset=20,
        epochs=[(0, 0), (3, 30), (4, 60)],
        producer_snapshot=encode_producer_snapshot(entries),
    )


def begin_below(log: UnifiedLog) -> None:
    """Its leader is one of another branch."""
    entries = [ProducerEntry(33, 0, 0, 3, 0, NOW_MS, -1, 3), ProducerEntry(35, 2, 0, 4, 0, NOW_MS, 1, 4)]
    log.start_from_tier(
        5, log_start_offset=1, epochs=[(0, 0), (1, 3)], producer_snapshot=encode_producer_snapshot(entries)
    )


def delete_first(log: UnifiedLog) -> None:
    log.update_highest_offset_in_remote_storage(6)
    assert log.delete_old_segments()
    assert log.local_log_start_offset == 7


def cut(log: UnifiedLog) -> None:
    """An unclean leader's branch leaves this log below what it has here."""
    log.truncate_to(4)


def cut_first(log: UnifiedLog) -> None:
    delete_first(log)
    cut(log)


def raise_start(log: UnifiedLog) -> None:
    """What lies in front of a segment has expired in the tier; the next epoch has the lineage written."""
    assert log.update_log_start_offset_from_remote_tier(5) == 5


#: What changes the log → what it is then.
CHANGES_OF_LOG: Final[dict[str, tuple[Callable[[UnifiedLog], None] | None, Callable[[UnifiedLog], None], Seen]]] = {
    "begin above": (None, begin_above, Seen(20, 50, 50, 40, ((0, 20), (3, 30)), (), (31, 32, 34), False)),
    "begin below": (None, begin_below, Seen(1, 5, 5, 3, ((0, 1), (1, 3)), (), (33, 35), False)),
    "begin again": (begin_above, begin_below, Seen(1, 5, 5, 3, ((0, 1), (1, 3)), (), (33, 35), False)),
    "cut": (delete_first, cut, Seen(0, 4, 4, 4, ((0, 0),), (), (), True)),
    "raise": (delete_first, raise_start, Seen(5, 7, 7, 5, ((2, 5),), (), (5, 7), False)),
    "cut and begin": (
        cut_first,
        begin_above,
        Seen(20, 50, 50, 40, ((0, 20), (3, 30)), (), (31, 32, 34), False),
    ),
}


def run_until(change: str, at: int, seed: int) -> tuple[MemoryFiles, bool, Seen | None, int]:
    """A life up to the n-th change of the disk within the change of the log: what is left of the disk, whether the
    change was done, the log of before, and how many changes there were.
    """
    files = MemoryFiles()
    files.make_directories(LOGS)
    machine, scheduler = ManualScheduler.machine(seed, files)
    before, done = None, False
    prepare, act, _ = CHANGES_OF_LOG[change]
    with scheduler:
        directory, log = opened(machine)
        lived(log, directory)
        if prepare is not None:
            prepare(log)
            directory.checkpoint()
        before = seen(log)
        power = PowerCut(files, at=at, seed=seed)
        with contextlib.suppress(StoreError):
            act(log)
            done = True
            if not log.must_be_rebuilt:
                log.append_as_leader(batch_of([b"behind"], now_ms=NOW_MS), leader_epoch=9)
                log.flush()
            directory.close()
    return power.cut(), done, before, power.seen


def started(files: MemoryFiles, seed: int) -> tuple[Seen, list[str]]:
    """The log after a start, twice the same."""
    found: list[Seen] = []
    for _ in range(2):
        machine, scheduler = ManualScheduler.machine(seed, files)
        with scheduler:
            directory, log = opened(machine)
            found.append(seen(log))
            directory.close()
    assert found[0] == found[1], "a clean stop and start make another log"
    names = [entry.name for entry in files.iter_directory(f"{LOGS}/{TOPIC}-{PARTITION}")]
    return found[0], names


def without_appended(log: Seen) -> Seen:
    """The log as it was before its last record, if that is the one appended behind the change."""
    if log.epochs and log.epochs[-1][0] == 9:
        log = replace(log, epochs=log.epochs[:-1])
    if log.values:
        log = replace(log, values=(), end=log.local_start)
    return log


def cut_power(change: str, at: int) -> bool:
    """Cut the power at one change; whether the change of the log was done by then."""
    seed = random.Random(f"{change} {at}").randrange(1 << 32)
    left, done, before, _ = run_until(change, at, seed)
    _, _, after = CHANGES_OF_LOG[change]
    found, names = started(left, seed)
    if found == before:
        assert not done, "a change that was done is undone"
    else:
        assert without_appended(found) == after, (before, found)
        assert (TIER_START_FILE in names) <= found.must_be_rebuilt, names
    return done


@pytest.mark.few(2)
@pytest.mark.parametrize("change", CHANGES_OF_LOG)
def test_power_may_go_at_any_change(change: str) -> None:
    """If this fails, a follower is left with an end and no lineage, and as leader loses the start of the tier."""
    _, done, _, changes = run_until(change, 0, 1)
    assert done
    outcomes = [cut_power(change, at) for at in range(1, changes + 1)]
    assert not all(outcomes)
    assert any(outcomes)


@pytest.mark.parametrize("offset", [2, 5, 50])
def test_a_log_that_began_anew_starts_there(offset: int) -> None:
    """If this fails, a follower that began at its leader's start, and has followed since, is built anew after a kill:
    its directory's checkpoint does not know the start yet, and the new epoch does.
    """
    files = MemoryFiles()
    files.make_directories(LOGS)
    machine, scheduler = ManualScheduler.machine(offset, files)
    with scheduler:
        directory, log = opened(machine)
        lived(log, directory)
        delete_first(log)
        directory.checkpoint()
        log.truncate_fully_and_start_at(offset)
        log.append_as_leader(batch_of([b"behind"], now_ms=NOW_MS), leader_epoch=9)
        log.flush()
        power = PowerCut(files, at=1, seed=offset)
        with contextlib.suppress(StoreError):
            directory.close()
    found, _ = started(power.cut(), offset)
    assert (found.log_start, found.local_start, found.end) == (offset, offset, offset + 1)
    assert found.epochs == ((9, offset),)
    assert not found.must_be_rebuilt


@pytest.mark.few(2)
@pytest.mark.parametrize("change", CHANGES_OF_LOG)
def test_a_start_that_loses_power_too_finds_the_same(change: str) -> None:
    """Loading finishes what the file says, however often it is cut short."""
    _, _, _, changes = run_until(change, 0, 1)
    for at in range(2, changes, 5):
        seed = random.Random(f"{change} {at}").randrange(1 << 32)
        left, _, before, _ = run_until(change, at, seed)
        for again in range(1, 40, 3):
            power = PowerCut(left, at=again, seed=again)
            machine, scheduler = ManualScheduler.machine(again, left)
            with scheduler, contextlib.suppress(StoreError):
                directory, _ = opened(machine)
                directory.close()
            left = power.cut()
        found, _ = started(left, seed)
        assert found == before or without_appended(found) == CHANGES_OF_LOG[change][2]


@pytest.mark.parametrize("stopped_cleanly", [True, False])
def test_a_broker_that_ran_over_it_has_the_last_word(stopped_cleanly: bool) -> None:
    """Kafka passes over the file: finishing it later would take what it appended meanwhile."""
    files = MemoryFiles()
    files.make_directories(LOGS)
    machine, scheduler = ManualScheduler.machine(1, files)
    with scheduler:
        directory, log = opened(machine)
        lived(log, directory)
        delete_first(log)
        if not stopped_cleanly:
            log.append_as_leader(batch_of([b"Kafka's"], now_ms=NOW_MS), leader_epoch=5)
            log.flush()
        before = seen(log)
        TierStartFile(files, LogFolder(machine, log.folder)).write(TierStart(TierStartState.CUTTING, 4, 0, 0, 2))
        if stopped_cleanly:
            directory.close()
        else:
            directory.checkpoint()
            files = files.crash(SeededRng(1))
    found, names = started(files, 1)
    assert found == before
    assert TIER_START_FILE not in names


@pytest.mark.parametrize("noted", [2, 5])
def test_a_start_that_another_broker_moved(noted: int) -> None:
    """A broker that passes over the file went on, and its clean stop says where its log starts. If this fails, the log
    begins where no tier has anything, and must be built anew, or behind records that the broker offered.
    """
    files = MemoryFiles()
    files.make_directories(LOGS)
    machine, scheduler = ManualScheduler.machine(1, files)
    with scheduler:
        directory, log = opened(machine)
        lived(log, directory)
        log.truncate_fully_and_start_at(2)
        for _ in range(3):
            log.append_as_leader(batch_of([b"x"], now_ms=NOW_MS), leader_epoch=2)
        log.roll()
        log.update_high_watermark(log.log_end_offset)
        log.maybe_increment_log_start_offset(4, "deleted")
        before = seen(log)
        TierStartFile(files, LogFolder(machine, log.folder)).write(
            TierStart(TierStartState.STARTED, noted, noted, 9, 2)
        )
        directory.close()
    found, names = started(files, 1)
    assert found == before
    assert TIER_START_FILE not in names


def test_a_damaged_file_stops_the_start() -> None:
    """Which of two logs stands there cannot be told: an error with the path, and nothing is changed."""
    files = MemoryFiles()
    files.make_directories(LOGS)
    machine = Machine(files=files)
    directory, log = opened(machine)
    lived(log, directory)
    delete_first(log)
    cut(log)
    path = f"{log.folder}/{TIER_START_FILE}"
    directory.close()
    whole = files.read_whole(path)
    for at in range(0, len(whole), 7):
        files.write_whole(path, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CorruptIndexError, match=TIER_START_FILE):
            UnifiedLog.open(log.folder, machine=Machine(files=files), config=CONFIG, remote_log_enabled=True)
    files.write_whole(path, whole)
    found, _ = started(files, 1)
    assert found == CHANGES_OF_LOG["cut"][2]


# ---- a process that is killed


def turn_of(number: int) -> Seen:
    """The log after the n-th turn of a child: begun anew from the tier, or cut below where it began."""
    start, offset = number % 7, 40 + 3 * (number % 11)
    epochs = ((0, start), (1, 20))
    if number % 3 == 2:
        return Seen(start, offset - 5, offset - 5, offset - 5, epochs, (), (), True)
    return Seen(start, offset, offset, offset - 2, epochs, (), (7, 8, number + 9), False)


def take_turns(folder: str) -> None:
    """Begin a log anew from the tier, again and again, until the process is killed; print each turn that is done."""
    machine = Machine()
    _, log = opened(machine, folder)
    for number in range(1 << 30):
        start, offset = number % 7, 40 + 3 * (number % 11)
        now_ms = machine.clock.time_ms()
        begun = [ProducerEntry(7 + at, 0, 0, offset - 1, 0, now_ms, -1, offset - 2 + at) for at in range(2)]
        log.start_from_tier(
            offset,
            log_start_offset=start,
            epochs=[(0, 0), (1, 20)],
            producer_snapshot=encode_producer_snapshot(
                [*begun, ProducerEntry(number + 9, 0, 0, offset - 1, 0, now_ms, -1, -1)]
            ),
        )
        if number % 3 == 2:
            log.truncate_to(offset - 5)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


def killed(folder: pathlib.Path, kill: int) -> None:
    """A child is killed in the middle of a turn: the log is of the last turn, or the one before."""
    code = f"from tests.scenarios.test_tier_start_crashes import take_turns; take_turns({str(folder)!r})"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None
    machine = Machine()
    with child, child.stdout:
        told = child.stdout.readline()
        machine.clock.sleep(0.0037 * kill)
        child.send_signal(signal.SIGKILL)
        told = (told + child.stdout.read()).rpartition(b"\n")[0]
    done = int(told.splitlines()[-1])
    directory, log = opened(machine, str(folder))
    with directory:
        found = seen(log)
    begun = turn_of(done + 1)
    if (done + 1) % 3 == 2:  # of two steps: begun anew, and not cut yet
        offset = begun.end + 5
        between = replace(
            begun,
            local_start=offset,
            end=offset,
            stable=offset - 2,
            producers=(7, 8, done + 10),
            must_be_rebuilt=False,
        )
    else:
        between = begun
    assert found in (turn_of(done), begun, between)


@pytest.mark.parametrize("kill", range(3))
def test_the_process_may_be_killed(tmp_path: pathlib.Path, kill: int) -> None:
    """If this fails, a broker that is killed has a log with an end and no lineage."""
    killed(tmp_path, 5 * kill + 1)


@pytest.mark.slow
@pytest.mark.parametrize("kill", range(20))
def test_the_process_may_be_killed_at_any_time(tmp_path: pathlib.Path, kill: int) -> None:
    """Twenty kills, at twenty times, leave a log of one turn or the next."""
    killed(tmp_path, kill)
