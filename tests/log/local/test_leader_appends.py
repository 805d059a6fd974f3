"""The usual append by one native call, against the same append step by step."""

from __future__ import annotations

import contextlib
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.living_logs import batch_of
from tierlog._native.appends import AssignedBatch, LeaderCheck, LogEnd, Refusal, sequence_after
from tierlog.log.local.log_appends import LogAppendInfo
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import AppendRefusedError, LogOfflineError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.posix_files import PosixFiles
from tierlog.runtime.simulated.memory_files import MemoryFiles

NOW = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200, segment_index_bytes=96)


class StepByStep:
    """What takes the place of the native call: it checks and assigns, and leaves everything else."""

    def __init__(self) -> None:
        self.check = LeaderCheck()

    def append(
        self, data: bytearray, end: LogEnd, leader_epoch: int, now_ms: int, from_client: bool
    ) -> AssignedBatch | Refusal | None:
        return self.check.assign(
            data,
            first_offset=end.log_end_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            from_client=from_client,
        )


class Step(NamedTuple):
    producer_id: int
    producer_epoch: int
    sequence_off: int
    records: int
    value_bytes: int
    is_transactional: bool
    later_ms: int
    leader_epoch_rises: bool
    looks: bool


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from((-1, 1, 1, 2)),
        st.sampled_from((0, 0, 0, 1)),
        st.sampled_from((0, 0, 0, 0, -1, 1)),
        st.integers(1, 4),
        st.sampled_from((1, 60, 300)),
        st.sampled_from((False, False, False, True)),
        st.sampled_from((0, 1, 5, 400_000_000)),
        st.sampled_from((False,) * 9 + (True,)),
        st.booleans(),
    ),
    max_size=30,
)


def batch_of_step(step: Step, sequence: int, timestamp_ms: int) -> bytearray:
    values, producer = (b"v" * step.value_bytes,) * step.records, {}
    if step.producer_id >= 0:
        producer = {"producer_id": step.producer_id, "producer_epoch": step.producer_epoch, "base_sequence": sequence}
        producer["transactional"] = step.is_transactional
    return batch_of(*values, timestamp_ms=timestamp_ms, **producer)


class Life:
    """A log, and what it was answered."""

    def __init__(self, log: UnifiedLog) -> None:
        self.log = log
        self.told: list[Any] = []
        self.following: dict[tuple[int, int], int] = {}

    def run(self, plan: list[Step], first_sequence: int) -> None:
        epoch, timestamp_ms = 1, 1_000_000
        for step in plan:
            epoch += step.leader_epoch_rises
            timestamp_ms += step.later_ms
            producer = step.producer_id, step.producer_epoch
            sequence = max(0, self.following.get(producer, first_sequence) + step.sequence_off) % 2**31
            try:
                info = self.log.append_as_leader(batch_of_step(step, sequence, timestamp_ms), leader_epoch=epoch)
            except AppendRefusedError as error:
                self.told.append((error.error, str(error)))
            else:
                if not info.is_duplicate:
                    self.following[producer] = sequence_after(sequence, step.records)
                self.told.append(info)
            if step.looks:
                self.look()

    def look(self) -> None:
        """Ask what readers ask: the entries that wait in native memory are taken out."""
        log = self.log
        self.told.append(log.offsets)
        self.told.append(log.end_offset_for_epoch(1))
        self.told.append(log.fetch_offset_by_timestamp(1_000_003))
        found = log.read(log.log_end_offset // 2, max_bytes=1 << 20, isolation=FetchIsolation.LOG_END)
        self.told.append(found.records and found.records[0].read())
        producers = log._contents.producers
        self.told.append((producers.snapshot(), producers.end_offset, producers.first_unstable_offset))


def files_of(files: Files, folder: str) -> dict[str, bytes]:
    return {found.name: files.read_whole(found.path) for found in files.iter_directory(folder)}


@contextlib.contextmanager
def place(kind: str) -> Iterator[tuple[Files, str]]:
    if kind == "memory":
        yield MemoryFiles(ManualClock(time_ms=NOW)), "/logs/orders-0"
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield PosixFiles(), f"{folder}/orders-0"


def outcome(
    kind: str, plan: list[Step], first_sequence: int, *, is_sole_replica: bool, by_steps: bool
) -> tuple[list[Any], dict[str, bytes]]:
    with place(kind) as (files, folder):
        machine = Machine(clock=ManualClock(time_ms=NOW), files=files)
        with UnifiedLog.open(folder, machine=machine, config=CONFIG, is_sole_replica=is_sole_replica) as log:
            if by_steps:
                log._contents.leader = StepByStep()  # type: ignore[assignment]
            life = Life(log)
            life.run(plan, first_sequence)
            life.look()
        return life.told, files_of(files, folder)


@pytest.mark.parametrize("kind", ["memory", "disk"])
@settings(max_examples=25)
@given(steps, st.sampled_from((0, 2**31 - 4)), st.booleans())
def test_one_call_does_what_all_steps_do(
    kind: str, plan: list[Step], first_sequence: int, is_sole_replica: bool
) -> None:
    """The short way of nearly every append would let a gap or a duplicate pass, miss a roll or an index entry."""
    short = outcome(kind, plan, first_sequence, is_sole_replica=is_sole_replica, by_steps=False)
    long = outcome("memory", plan, first_sequence, is_sole_replica=is_sole_replica, by_steps=True)
    assert short == long


def plain(size_bytes: int = 1, timestamp_ms: int = NOW) -> bytearray:
    return batch_of(b"v" * size_bytes, timestamp_ms=timestamp_ms)


def test_a_usual_append_is_one_call() -> None:
    """Else every append takes the long way, and nobody finds out but by its time."""
    machine = Machine(clock=ManualClock(time_ms=NOW), files=MemoryFiles(ManualClock(time_ms=NOW)))
    with UnifiedLog.open("/logs/orders-0", machine=machine) as log:
        log.append_as_leader(plain(), leader_epoch=3)
        end, native = log._local.end, log._contents.leader
        assert type(native.append(plain(), end, 3, NOW, True)) is LogAppendInfo
        assert type(native.append(plain(), end, 4, NOW, True)) is AssignedBatch
        assert log.log_end_offset == 2


def test_a_reader_sees_each_append_and_keeps_what_it_saw() -> None:
    """Else a consumer waits for records that are there, or an offset moves under a fetch that has begun."""
    machine = Machine(clock=ManualClock(time_ms=NOW), files=MemoryFiles(ManualClock(time_ms=NOW)))
    with UnifiedLog.open("/logs/orders-0", machine=machine, is_sole_replica=True) as log:
        seen = []
        for count in range(1, 50):
            log.append_as_leader(plain(), leader_epoch=3)
            seen.append(log.offsets)
            assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (count, count, count)
            if count % 10 == 0:
                log.roll()
        assert [offsets.log_end_offset for offsets in seen] == list(range(1, 50))


def test_index_pages_are_written_while_readers_look(tmp_path: Path) -> None:
    """Else the index of a segment that is read all the time grows in memory, and a killed process leaves none of it."""
    config = LogConfig(index_interval_bytes=0)
    with UnifiedLog.open(str(tmp_path / "orders-0"), config=config) as log:
        for number in range(1400):
            log.append_as_leader(plain(timestamp_ms=NOW + number), leader_epoch=0)
            if number % 7 == 0:
                log.read(number // 2, max_bytes=100, isolation=FetchIsolation.LOG_END)
                log.fetch_offset_by_timestamp(NOW + number // 3)
        segment = log.active_segment
        assert Path(segment.offset_index_path).stat().st_size >= 1024 * 8
        assert Path(segment.time_index_path).stat().st_size >= 1020 * 12


def test_a_write_that_fails_takes_the_log_offline(tmp_path: Path) -> None:
    """Else half a batch lies in the log, or an append is answered that is not in it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    log = UnifiedLog.open(str(tmp_path / "orders-0"))
    log.append_as_leader(plain(9000), leader_epoch=0)
    log.append_as_leader(plain(9000), leader_epoch=0)
    before, size_bytes = log.offsets, log.size()
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes + 4000, limits[1]))
        with pytest.raises(LogOfflineError) as failed:
            log.append_as_leader(plain(9000), leader_epoch=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (log.offsets, log.size()) == (before, size_bytes)
    assert Path(log.active_segment.log_path).stat().st_size == size_bytes
    with pytest.raises(LogOfflineError) as again:
        log.append_as_leader(plain(), leader_epoch=0)
    assert str(again.value) == str(failed.value)
    log.close()
    with UnifiedLog.open(str(tmp_path / "orders-0")) as recovered:
        assert recovered.log_end_offset == 2


def allocated_ahead(log: UnifiedLog) -> int:
    found = Path(log.active_segment.log_path).stat()
    return found.st_blocks * 512 - found.st_size


def grown_log(folder: Path) -> UnifiedLog:
    """A log of some MiB, for which room was reserved a moment ago, if the file system does that."""
    log = UnifiedLog.open(str(folder))
    while log.log_end_offset < 40 or (allocated_ahead(log) < 1 << 18 and log.log_end_offset < 60):
        log.append_as_leader(plain(100_000), leader_epoch=0)
    return log


def test_room_that_was_reserved_is_given_back(tmp_path: Path) -> None:
    """Else every segment keeps room on the disk that nobody uses, for as long as it lives."""
    for way in ("close", "roll", "truncate"):
        log = grown_log(tmp_path / f"{way}-0")
        if allocated_ahead(log) < 1 << 16:
            pytest.skip("this file system reserves no room")
        if way == "roll":
            segment = log.active_segment
            changed_ns = Path(segment.log_path).stat().st_mtime_ns
            log.roll()
            found = Path(segment.log_path).stat()
            assert found.st_mtime_ns == changed_ns, "retention goes by it where records have no timestamps"
            assert found.st_blocks * 512 - found.st_size < 1 << 16
        elif way == "truncate":
            log.truncate_to(20)
            assert allocated_ahead(log) < 1 << 16
        log.close()
        assert allocated_ahead(log) < 1 << 16


def test_room_that_a_killed_process_reserved_is_given_back(tmp_path: Path) -> None:
    """Else it stays until the segment is deleted, since the size tells nothing of it."""
    killed = grown_log(tmp_path / "orders-0")
    if allocated_ahead(killed) < 1 << 16:
        pytest.skip("this file system reserves no room")
    before = killed.log_end_offset, killed.size()
    del killed
    with UnifiedLog.open(str(tmp_path / "orders-0")) as log:
        assert (log.log_end_offset, log.size()) == before
    assert allocated_ahead(log) < 1 << 16
