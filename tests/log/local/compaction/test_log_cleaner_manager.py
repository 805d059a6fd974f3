"""The choice of the next log to compact, and the cleaner's checkpoint, over a log directory in memory."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
from collections.abc import Iterator

import pytest

from tests.support.living_logs import batch_of
from tierlog.errors import CorruptRecordError, StoreError
from tierlog.log.local.compaction.cleanable_logs import LogToClean
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_errors import LogClosedError, LogOfflineError
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import PowerCut

LOGS = "/logs"
CHECKPOINT = f"{LOGS}/cleaner-offset-checkpoint"
NOW_MS = 1_700_000_000_000
#: One batch of 60 bytes and its header a segment.
CONFIG = LogConfig(cleanup_policy=frozenset(("compact",)), segment_bytes=180, min_cleanable_dirty_ratio=0.0)


@contextlib.contextmanager
def directory_of(machine: Machine, config: LogConfig = CONFIG) -> Iterator[LogDirectory]:
    with LogDirectory.open(LOGS, machine=machine, config=config, runs_tasks=False) as directory:
        yield directory


def machine_of(files: MemoryFiles | None = None) -> Machine:
    clock = ManualClock(time_ms=NOW_MS)
    return Machine(clock=clock, files=files or MemoryFiles(clock))


def fill(log: UnifiedLog, segments: int, *, timestamp_ms: int = NOW_MS) -> None:
    """So many closed segments of one batch each, and the active one."""
    for _ in range(segments + 1):
        log.append_as_leader(batch_of(b"x" * 60, timestamp_ms=timestamp_ms), leader_epoch=0)


def chosen(directory: LogDirectory, now_ms: int = NOW_MS) -> dict[str, LogToClean]:
    return {f"{each.key[0]}-{each.key[1]}": each for each in directory.cleaner_manager.find_dirty_logs(now_ms)}


def text_of(machine: Machine) -> str:
    return machine.files.read_whole(CHECKPOINT).decode()


def test_the_dirtiest_by_ratio_and_the_due_first() -> None:
    """If this fails, the disk fills by the log that is compacted last, or a record outlives max.compaction.lag.ms."""
    machine = machine_of()
    with directory_of(machine) as directory:
        for partition, segments in enumerate((4, 4, 2)):
            fill(directory.log("orders", partition), segments)
        directory.cleaner_manager.write_checkpoint(("orders", 0), 3)
        directory.cleaner_manager.write_checkpoint(("orders", 1), 1)
        assert text_of(machine) == "0\n2\norders 0 3\norders 1 1\n"
        found = chosen(directory)
        assert [found[f"orders-{n}"].cleanable_ratio for n in range(3)] == [0.25, 0.75, 1.0]
        assert [found[f"orders-{n}"].first_uncleanable_offset for n in range(3)] == [4, 4, 2]
        assert max(found.values(), key=lambda each: each.urgency).key == ("orders", 2)

        log = directory.log("orders", 0)
        log.update_config(dataclasses.replace(CONFIG, max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=0.9))
        assert not chosen(directory)["orders-0"].may_be_cleaned
        due = chosen(directory, NOW_MS + 1500)
        assert (due["orders-0"].delay_ms, due["orders-0"].may_be_cleaned) == (500, True)
        assert max(due.values(), key=lambda each: each.urgency).key == ("orders", 0)
        assert chosen(directory, -(2**40))["orders-0"].delay_ms == 0  # a clock that jumped back


def test_what_is_young_open_or_unstable_stays() -> None:
    """If this fails, a consumer that is within min.compaction.lag.ms misses records, or an open transaction's go."""
    machine = machine_of()
    with directory_of(machine) as directory:
        log = directory.log("orders", 0)
        fill(log, 2, timestamp_ms=NOW_MS - 5000)
        fill(log, 2, timestamp_ms=NOW_MS - 1000)
        log.update_config(dataclasses.replace(CONFIG, min_compaction_lag_ms=2000))
        assert [chosen(directory, NOW_MS + plus)["orders-0"].first_uncleanable_offset for plus in (0, 1001)] == [3, 5]
        transactional = batch_of(b"y" * 60, transactional=True, producer_id=7, base_sequence=0)
        log.update_config(CONFIG)
        log.append_as_leader(transactional, leader_epoch=0)
        fill(log, 3)
        assert log.last_stable_offset == 6
        assert chosen(directory)["orders-0"].first_uncleanable_offset == 6
        log.update_config(LogConfig())
        assert not chosen(directory)  # not compacted any more


@pytest.mark.parametrize(("checkpoint", "warns"), [(1, True), (99, True), (3, False), (6, False)])
def test_a_checkpoint_of_another_log_is_reset(
    checkpoint: int, *, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """If this fails, a log that was cut or restored is compacted in part for ever, or not at all."""
    machine = machine_of()
    with directory_of(machine) as directory:
        log = directory.log("orders", 0)
        fill(log, 5)
        log.maybe_increment_log_start_offset(2, "test")
        directory.cleaner_manager.write_checkpoint(("orders", 0), checkpoint)
        with caplog.at_level(logging.WARNING):
            found = chosen(directory)["orders-0"]
        assert found.first_dirty_offset == (2 if warns else checkpoint)
        assert bool(caplog.records) == warns
        assert text_of(machine) == f"0\n1\norders 0 {found.first_dirty_offset}\n"
        caplog.clear()
        log.update_config(dataclasses.replace(CONFIG, cleanup_policy=frozenset(("compact", "delete"))))
        directory.cleaner_manager.write_checkpoint(("orders", 0), 0)
        assert chosen(directory)["orders-0"].first_dirty_offset == 2
        assert not caplog.records  # retention raises a log's start, and nothing is wrong


def test_a_checkpoint_goes_with_its_log() -> None:
    """If this fails, a topic that is made anew begins as if it were compacted."""
    machine = machine_of()
    with directory_of(machine) as directory:
        manager = directory.cleaner_manager
        for topic in ("orders", "other"):
            fill(directory.log(topic, 0), 2)
            manager.write_checkpoint((topic, 0), 2)
        manager.mark_uncleanable(("orders", 0), CorruptRecordError("damaged"))
        directory.delete_log("orders", 0)
        assert text_of(machine) == "0\n1\nother 0 2\n"
        assert not manager.uncleanable
        directory.delete_log("other", 0)
        assert text_of(machine) == "0\n0\n"
    machine.files.write_whole(CHECKPOINT, b"0\n2\ngone 0 5\nhere 0 1\n")
    machine.files.make_directories(f"{LOGS}/here-0")
    with directory_of(machine) as directory:
        assert directory.cleaner_manager.cleaner_offset(("gone", 0)) is None
        assert directory.cleaner_manager.cleaner_offset(("here", 0)) == 1
    machine.files.write_whole(CHECKPOINT, b"0\n1\nhere 0 1\n")
    with directory_of(machine) as directory:
        directory.log("here", 0)  # which is empty: a crash took what was compacted
        assert text_of(machine) == "0\n1\nhere 0 0\n"
    machine.files.write_whole(CHECKPOINT, b"no checkpoint")
    with directory_of(machine) as directory:
        assert directory.cleaner_manager.cleaner_offset(("here", 0)) is None


def test_a_moved_log_takes_its_checkpoint_along() -> None:
    """If this fails, a log that changed its disk is compacted from its start again, or one that is damaged, too."""
    machine = machine_of()
    with (
        directory_of(machine) as source,
        LogDirectory.open("/other", machine=machine, config=CONFIG, runs_tasks=False) as target,
    ):
        key, error = ("orders", 0), CorruptRecordError("damaged")
        source.cleaner_manager.write_checkpoint(key, 5)
        source.cleaner_manager.mark_uncleanable(key, error)
        source.cleaner_manager.move_checkpoint(key, target.cleaner_manager)
        assert text_of(machine) == "0\n0\n"
        assert machine.files.read_whole("/other/cleaner-offset-checkpoint") == b"0\n1\norders 0 5\n"
        assert target.cleaner_manager.uncleanable == {key: error}
        assert not source.cleaner_manager.uncleanable


@pytest.mark.parametrize("fully", [False, True])
def test_a_cut_lowers_the_checkpoint_first(*, fully: bool) -> None:
    """If this fails, records that are appended behind a cut count as compacted after a power cut, and older ones of
    their keys stay for ever.
    """
    for at in itertools.count(1):
        files = MemoryFiles()
        with contextlib.suppress(LogOfflineError, StoreError), directory_of(machine_of(files)) as directory:
            log = directory.log("orders", 0)
            fill(log, 6)
            log.flush()
            directory.checkpoint()
            directory.cleaner_manager.write_checkpoint(("orders", 0), 6)
            power = PowerCut(files, at=at, seed=at)
            log.truncate_fully_and_start_at(2) if fully else log.truncate_to(2)
            assert directory.cleaner_manager.cleaner_offset(("orders", 0)) == 2
        if power.left is None:
            break
        with directory_of(machine_of(power.left)) as directory:
            end = directory.log("orders", 0).log_end_offset
            known = directory.cleaner_manager.cleaner_offset(("orders", 0))
            assert known is not None
            assert known <= (6 if end == 7 else 2), f"cut at change {at}"
    assert at > 8


def test_a_cut_of_the_active_segment_disturbs_no_cleaning() -> None:
    """If this fails, each change of a leader aborts the cleaning of a log, or waits for it."""
    with directory_of(machine_of()) as directory:
        log = directory.log("orders", 0)
        log.update_config(dataclasses.replace(CONFIG, segment_bytes=400))
        fill(log, 6)
        states = directory.cleaner_manager.states
        assert states.begin(("orders", 0))
        assert log.active_segment.base_offset == 6
        log.truncate_to(6)
        assert not states.is_aborted(("orders", 0))
        states.end(("orders", 0))


def test_one_fault_harms_one_log(caplog: pytest.LogCaptureFixture) -> None:
    """If this fails, a damaged partition keeps all others from being compacted, or is tried again and again."""
    machine = machine_of()
    with directory_of(machine) as directory:
        for partition in range(2):
            log = directory.log("orders", partition)
            fill(log, 3)
            log.update_config(dataclasses.replace(CONFIG, max_compaction_lag_ms=1))
    log_path = f"{LOGS}/orders-0/{0:020}.log"
    data = bytearray(machine.files.read_whole(log_path))
    data[8:12] = b"\xff\xff\xff\xff"
    machine.files.write_whole(log_path, bytes(data))
    lagging = dataclasses.replace(CONFIG, max_compaction_lag_ms=1)
    with directory_of(machine, lagging) as directory:
        directory.load_logs()
        manager = directory.cleaner_manager
        with caplog.at_level(logging.WARNING):
            assert list(chosen(directory, NOW_MS + 5)) == ["orders-1"]
        assert list(manager.uncleanable) == [("orders", 0)]
        assert isinstance(manager.uncleanable["orders", 0], CorruptRecordError)
        assert "/logs/orders-0: the log is not compacted any more until the next start" in caplog.text
        assert manager.uncleanable_bytes(NOW_MS) == 3 * directory.log("orders", 0).log_segments()[1].size_bytes
        caplog.clear()
        assert list(chosen(directory, NOW_MS + 5)) == ["orders-1"]
        assert not caplog.records
        assert not directory.is_offline


def test_a_failed_disk_fails_its_directory() -> None:
    """If this fails, a disk that failed is read again and again, or its logs are called damaged."""
    with directory_of(machine_of()) as directory:
        log = directory.log("orders", 0)
        fill(log, 3)
        manager = directory.cleaner_manager
        manager.note_failure(("orders", 0), log, LogClosedError("closed"))
        assert not directory.is_offline
        manager.note_failure(("orders", 0), log, StoreError("the disk failed"))
        assert directory.is_offline
        assert log.is_offline
        assert not manager.uncleanable
        assert not chosen(directory)


def test_retention_leaves_compacted_logs_to_the_cleaner() -> None:
    """If this fails, retention and a cleaning take the same segments, or nobody does."""
    with directory_of(machine_of(), LogConfig(segment_bytes=180, retention_bytes=0)) as directory:
        plain, compacted = directory.log("plain", 0), directory.log("compacted", 0)
        for log in (plain, compacted):
            fill(log, 3)
        both = frozenset(("compact", "delete"))
        compacted.update_config(dataclasses.replace(compacted.config, cleanup_policy=both))
        manager = directory.cleaner_manager
        assert manager.states.begin(("plain", 0))
        manager.retain(plain)
        assert plain.log_start_offset == 0  # it was compacted until now, and still is being cleaned
        manager.states.end(("plain", 0))
        for log in (plain, compacted):
            manager.retain(log)
        assert (plain.log_start_offset, compacted.log_start_offset) == (4, 0)
        assert manager.states.begin(("compacted", 0))
        manager.delete_old_segments(lambda: None)
        assert compacted.log_start_offset == 0  # it is being cleaned
        manager.states.end(("compacted", 0))
        manager.delete_old_segments(lambda: None)
        assert compacted.log_start_offset == 4
        assert manager.states.is_free(("plain", 0))


def test_a_log_that_is_closed_is_not_cleaned() -> None:
    """If this fails, a cleaning goes on in the folder of a log that was opened anew."""
    with directory_of(machine_of()) as directory:
        log = directory.log("orders", 0)
        fill(log, 3)
        (found,) = chosen(directory).values()
        log.close()
        assert not directory.cleaner_manager.begin(found, NOW_MS)
        again = directory.log("orders", 0)
        assert not directory.cleaner_manager.begin(found, NOW_MS)
        assert chosen(directory)["orders-0"].log is again


def test_a_log_that_was_cut_since_it_was_looked_at() -> None:
    """If this fails, a cleaning goes by offsets that were cut, and what is appended then counts as compacted."""
    with directory_of(machine_of()) as directory:
        log, manager = directory.log("orders", 0), directory.cleaner_manager
        fill(log, 6)
        (found,) = chosen(directory).values()
        assert found.first_uncleanable_offset == 6
        log.truncate_to(2)
        fill(log, 1)
        begun = manager.begin(found, NOW_MS)
        assert begun is not None
        assert begun.first_uncleanable_offset == 3
        manager.end(begun, 3)
        log.truncate_fully_and_start_at(0)
        assert manager.begin(found, NOW_MS) is None
        assert manager.states.is_free(found.key)


def test_leaving_compaction_aborts() -> None:
    """If this fails, a topic that is not compacted any more loses records."""
    with directory_of(machine_of()) as directory:
        log = directory.log("orders", 0)
        fill(log, 3)
        manager = directory.cleaner_manager
        (found,) = chosen(directory).values()
        log.update_config(LogConfig())
        assert not manager.begin(found, NOW_MS)
        log.update_config(CONFIG)
        assert manager.begin(found, NOW_MS)
        manager.states.end(found.key)
        directory.delete_log("orders", 0)
        assert not manager.begin(found, NOW_MS)
