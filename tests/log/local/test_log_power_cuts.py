"""What a log relies on when the power goes: each of these was lost once. All of it at random is in the scenarios."""

from __future__ import annotations

import contextlib
import errno
import gc
import itertools
from collections.abc import Callable

import pytest

from tests.support.living_logs import FOLDER, NOW_MS, batch_of
from tierlog.errors import StoreError
from tierlog.log.formats.leader_epochs import LeaderEpochs, encode_leader_epochs, parse_leader_epochs
from tierlog.log.formats.producer_snapshot import encode_producer_snapshot
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import LogOfflineError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.log.local.recovery.log_loader import LogCheckpoints
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.builder import build_end_transaction_marker
from tierlog.records.control import ControlRecordType
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import DiskOperation, FailingDisk, PowerCut

VALUE = bytes(10)
SEEDS = range(60)


class Never:
    """BackgroundTasks that the machine does not live to run."""

    def submit(self, function: object, *, delay_ms: int = 0) -> None:
        pass


def machine_of(files: MemoryFiles | None = None) -> Machine:
    clock = ManualClock(time_ms=NOW_MS)
    return Machine(clock=clock, files=MemoryFiles(clock) if files is None else files)


def opened(machine: Machine, recovery_point: int | None = 0, log_start_offset: int = 0, **config: object) -> UnifiedLog:
    return UnifiedLog.open(
        FOLDER,
        machine=machine,
        config=LogConfig(**config),  # type: ignore[arg-type]
        checkpoints=LogCheckpoints(recovery_point, log_start_offset),
        remote_log_enabled=True,  # the topic's own key decides
        is_sole_replica=True,
        tasks=Never(),
    )


def crashed(machine: Machine, seed: int) -> Machine:
    assert isinstance(machine.files, MemoryFiles)
    return machine_of(machine.files.crash(SeededRng(seed)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_flushed_segment_that_was_rolled_has_its_last_time_entry(seed: int) -> None:
    """A search by time would miss the newest records of a segment that nobody checks any more, for good."""
    machine = machine_of()
    log = opened(machine, flush_messages=1)
    for number in range(4):
        log.append_as_leader(batch_of(VALUE, timestamp_ms=NOW_MS + number), leader_epoch=0)
    recovery_point = log.recovery_point
    log.roll()
    found = opened(crashed(machine, seed), recovery_point).fetch_offset_by_timestamp(NOW_MS + 3)
    assert found is not None
    assert found.offset == 3


@pytest.mark.parametrize("seed", SEEDS)
def test_an_aborted_transaction_that_was_flushed_stays_aborted(seed: int) -> None:
    """The transaction index is made long after its segment: without its name, consumers get what was aborted."""
    machine = machine_of()
    log = opened(machine)
    log.append_as_leader(batch_of(VALUE, producer_id=7, base_sequence=0, transactional=True), leader_epoch=0)
    log.flush()
    marker = build_end_transaction_marker(
        0, ControlRecordType.ABORT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
    )
    log.append_as_leader(bytearray(marker), leader_epoch=0, origin=AppendOrigin.COORDINATOR, transaction_version=1)
    log.roll()
    log.flush()
    left = opened(crashed(machine, seed), log.recovery_point)
    assert left.collect_aborted_transactions(0, 2) == ((7, 0, 1),)


def test_a_flush_behind_a_start_that_rose_is_one() -> None:
    """The recovery point rises with the log start, but syncs nothing: the offsets of deleted records came again."""
    machine = machine_of()
    log = opened(machine)
    for _ in range(3):
        log.append_as_leader(batch_of(VALUE), leader_epoch=0)
    log.update_high_watermark(log.log_end_offset)
    log.maybe_increment_log_start_offset(log.log_end_offset, "a client deleted records")
    log.flush()
    assert isinstance(machine.files, MemoryFiles)
    again = opened(machine_of(machine.files.crash()))  # the directory's checkpoint is as it was
    assert again.log_end_offset == log.log_end_offset == 3


@pytest.mark.parametrize("seed", SEEDS)
def test_an_empty_segment_that_is_rolled_is_not_lost(seed: int) -> None:
    """The log would begin anew at offset 0, and give offsets out twice."""
    machine = machine_of()
    log = opened(machine)
    log.truncate_fully_and_start_at(34)
    log.roll()
    assert opened(crashed(machine, seed), log.recovery_point).log_end_offset == 34


def test_a_beginning_at_the_leaders_start_is_whole_or_none() -> None:
    """It would end there, and start in the tier where the old one did, without the lineage and the producers of what
    lies between (simulation, seed 10626).
    """
    seen: set[tuple[int, int, bool]] = set()
    for at in itertools.count(1):
        machine = machine_of()
        log = opened(machine, remote_storage_enable=True)
        for number in range(3):
            log.append_as_leader(batch_of(VALUE, producer_id=7, base_sequence=number), leader_epoch=0)
        log.flush()
        assert isinstance(machine.files, MemoryFiles)
        power = PowerCut(machine.files, at=at, seed=at)
        with contextlib.suppress(StoreError, LogOfflineError):
            log.truncate_fully_and_start_at(75)
        if power.left is None:
            break
        left = opened(machine_of(power.left), 3, remote_storage_enable=True)
        seen.add((left.log_start_offset, left.log_end_offset, 7 in left._contents.producers.producers))
    assert seen == {(0, 3, True), (75, 75, False)}


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_never_has_a_hole(seed: int, policy: str) -> None:
    """A closed segment is synced after the next one has begun. A replica that lost its end and kept the next one would
    go on behind the hole: nobody would ever send it what is missing, and one day it is the leader. In a compacted log
    holes are not told apart (simulation, seed 13): it syncs a segment before the next one begins.
    """
    machine = machine_of()
    log = opened(machine, cleanup_policy=frozenset((policy,)))
    for number in range(6):
        log.append_as_leader(batch_of(bytes(300)), leader_epoch=0)
        if number % 2:
            log.roll()
    left = opened(crashed(machine, seed), cleanup_policy=frozenset((policy,)))
    machine_left = left.log_segments()
    ends = [segment.read_next_offset() for segment in machine_left]
    assert [segment.base_offset for segment in machine_left] == [0, *ends[:-1]]


def test_a_hole_stays_where_nobody_knows_what_was_flushed() -> None:
    """What lies behind it may be what compaction left, flushed and sound: whoever gives no checkpoints, or has lost
    them, would lose it.
    """
    seen = 0
    for seed in SEEDS:
        machine = machine_of()
        log = opened(machine)
        for number in range(6):
            log.append_as_leader(batch_of(bytes(300)), leader_epoch=0)
            if number % 2:
                log.roll()
        machine = crashed(machine, seed)
        bases = sorted(int(entry.name[:20]) for entry in machine.files.iter_directory(FOLDER) if ".log" in entry.name)
        left = opened(machine, None)
        segments = left.log_segments()
        actions = left.recovery_report.actions
        if not [action for action in actions if action.kind == "cut"]:  # behind a torn batch all goes, as in Kafka
            assert [segment.base_offset for segment in segments] == bases
        holes = [
            f"offsets {before.read_next_offset()} … {after.base_offset - 1} are in no segment"
            for before, after in itertools.pairwise(segments)
            if before.read_next_offset() < after.base_offset
        ]
        assert [action.text.partition(";")[0] for action in actions if action.kind == "hole"] == holes
        assert left.recovery_point == left.log_end_offset
        seen += bool(holes)
    assert seen > 5


def test_a_hole_that_compaction_made_stays() -> None:
    """Recovery would delete what a compacted log has behind a hole: all of it was flushed."""
    machine = machine_of()
    log = opened(machine)
    for base_offset in (0, 4, 5):
        data = batch_of(VALUE)
        data[:8] = base_offset.to_bytes(8)
        data[12:16] = bytes(4)  # the leader's epoch
        log.append_as_follower(data, leader_epoch=0)
    log.roll(9)
    data[:8] = (9).to_bytes(8)
    log.append_as_follower(data, leader_epoch=0)
    log.flush()
    left = opened(crashed(machine, 1))
    assert [segment.base_offset for segment in left.log_segments()] == [0, 9]
    assert left.log_end_offset == 10


def test_the_epochs_of_what_is_recovered_are_those_of_its_batches() -> None:
    """A log start that was lost with the power leaves a lineage that begins behind records that are there again: a
    follower would be told to truncate what it has of them.
    """
    machine = machine_of()
    log = opened(machine)
    for epoch in (0, 0, 1, 2):
        log.append_as_leader(batch_of(VALUE), leader_epoch=epoch)
    log.flush()
    left = crashed(machine, 1)
    left.files.write_whole(f"{FOLDER}/leader-epoch-checkpoint", encode_leader_epochs(LeaderEpochs(((1, 3),))))
    assert opened(left).leader_epoch_cache.epoch_with_offsets() == {0: 0, 1: 2, 2: 3}


def test_a_lineage_that_begins_behind_what_is_left() -> None:
    """Cut to the log's end, it would have nothing: a leader whose records have no epoch cannot tell a follower that its
    log diverges.
    """
    machine = machine_of()
    log = opened(machine)
    for epoch in (0, 1):
        log.append_as_leader(batch_of(VALUE), leader_epoch=epoch)
    log.flush()
    left = crashed(machine, 1)
    left.files.write_whole(f"{FOLDER}/leader-epoch-checkpoint", encode_leader_epochs(LeaderEpochs(((2, 5), (3, 9)))))
    assert opened(left, log.recovery_point).leader_epoch_cache.epoch_with_offsets() == {0: 0, 1: 1}


@pytest.mark.parametrize("lineage", [((1, 3), (2, 5)), ((2, 5),), ((2, 6),)])
def test_the_epochs_of_what_was_flushed_are_those_of_its_batches(lineage: tuple[tuple[int, int], ...]) -> None:
    """What a log start that was lost had taken may be flushed: a follower would be told that the leader's log diverges
    from its own there.
    """
    machine = machine_of()
    log = opened(machine)
    for epoch in (0, 0, 1, 1):
        log.append_as_leader(batch_of(VALUE), leader_epoch=epoch)
    log.roll()
    for epoch in (1, 2, 2):
        log.append_as_leader(batch_of(VALUE), leader_epoch=epoch)
    log.flush()
    left = crashed(machine, 1)
    left.files.write_whole(f"{FOLDER}/leader-epoch-checkpoint", encode_leader_epochs(LeaderEpochs(lineage)))
    assert opened(left, log.recovery_point).leader_epoch_cache.epoch_with_offsets() == {0: 0, 1: 2, 2: 5}


@pytest.mark.parametrize("led", ["with records", "without"])
def test_an_epoch_that_was_cut_does_not_come_back(led: str) -> None:
    """If this fails, a replica that led an epoch in which nothing was committed, and leads again, tells the others that
    the epoch before ends in front of committed records: they cut these. Its copies have that lineage in the tier.
    """
    machine = machine_of()
    log = opened(machine, flush_messages=1)
    log.append_as_leader(batch_of(VALUE), leader_epoch=0)
    log.assign_epoch_start_offset(1, 1)
    if led == "with records":
        log.append_as_leader(batch_of(VALUE), leader_epoch=1)
    log.truncate_to(1)  # the new leader has more of epoch 0
    for offset in (1, 2):
        data = batch_of(VALUE)
        data[:8], data[12:16] = offset.to_bytes(8), bytes(4)
        log.append_as_follower(data, leader_epoch=2)
    assert isinstance(machine.files, MemoryFiles)
    left = opened(machine_of(machine.files.crash()), log.recovery_point)
    assert (left.log_end_offset, left.leader_epoch_cache.epoch_with_offsets()) == (3, {0: 0})


def begin_from_tier(log: UnifiedLog, offset: int) -> None:
    producers = encode_producer_snapshot(())
    log.start_from_tier(offset, log_start_offset=0, epochs=[(0, 0)], producer_snapshot=producers)


@pytest.mark.parametrize(
    ("begin", "begun"),
    [
        (lambda log: log.truncate_to(2), (0, 2, 2, True, {0: 0})),
        (lambda log: log.truncate_fully_and_start_at(5), (5, 5, 5, False, {})),
        (lambda log: begin_from_tier(log, 3), (0, 3, 3, False, {0: 0})),
    ],
    ids=["cut below its segments", "begun anew", "begun from the tier"],
)
def test_a_beginning_behind_a_cut_is_whole_or_none(
    begin: Callable[[UnifiedLog], None], begun: tuple[object, ...]
) -> None:
    """If this fails, a start behind a power cut takes the epochs that were cut for another broker's, and leaves half of
    a log: without its producers, with the old lineage, or one that nobody knows has to be rebuilt.
    """
    seen: list[tuple[object, ...]] = []
    for at in itertools.count(1):
        machine = machine_of()
        log = opened(machine, remote_storage_enable=True)
        begin_from_tier(log, 4)
        for epoch in (0, 0, 1):
            log.append_as_leader(batch_of(VALUE), leader_epoch=epoch)
        log.flush()
        log.truncate_to(6)
        assert isinstance(machine.files, MemoryFiles)
        power = PowerCut(machine.files, at=at, seed=at)
        with contextlib.suppress(StoreError):
            begin(log)
        if power.left is None:
            break
        left = opened(machine_of(power.left), remote_storage_enable=True)
        lineage = left.leader_epoch_cache.epoch_with_offsets()
        seen.append((*left.offsets[:2], left.log_end_offset, left.must_be_rebuilt, lineage))
    assert [each for each in seen if each not in ((0, 4, 6, False, {0: 0}), begun)] == []
    assert seen[-1] == begun


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_lineage_that_was_lost_is_that_of_the_batches(is_clean: bool) -> None:
    """The file has gone, and the active segment has no batch that recovery would read: the records would have no epoch,
    for good.
    """
    machine = machine_of()
    log = opened(machine)
    for epoch in (0, 0, 1):
        log.append_as_leader(batch_of(VALUE), leader_epoch=epoch)
    log.roll()
    log.flush()
    if is_clean:
        log.close()
    left = crashed(machine, 1)
    left.files.remove(f"{FOLDER}/leader-epoch-checkpoint")
    again = opened(left, log.recovery_point)
    assert again.leader_epoch_cache.epoch_with_offsets() == {0: 0, 1: 2}
    assert parse_leader_epochs(left.files.read_whole(f"{FOLDER}/leader-epoch-checkpoint")).latest is not None


def test_the_lineage_from_the_log_start_on_stays() -> None:
    """An epoch begins where no batch lies: a follower that is told the begin of its next batch keeps what is cut here.
    The segment with the log start begins in front of it, where the lineage knows no epoch.
    """
    machine = machine_of()
    log = opened(machine)
    for epoch in (0, 0, 0):
        log.append_as_leader(batch_of(VALUE), leader_epoch=epoch)
    log.update_high_watermark(3)
    log.maybe_increment_log_start_offset(2, "records were deleted")
    log.assign_epoch_start_offset(1, 3)
    data = batch_of(VALUE)
    data[:8], data[12:16] = (5).to_bytes(8), (1).to_bytes(4)
    log.append_as_follower(data, leader_epoch=1)
    log.flush()
    left = opened(crashed(machine, 1), log_start_offset=2)
    assert left.log_end_offset == 6
    assert left.leader_epoch_cache.epoch_with_offsets() == {0: 2, 1: 3}


class Rolled:
    """A log whose producer 7 has one batch, at offset 0, and whose last roll was at offset 2."""

    def __init__(self, *, flushed: int, **config: int) -> None:
        self.machine = machine_of()
        self.log = opened(self.machine, **config)
        self.sent = batch_of(VALUE, producer_id=7, base_sequence=0)
        self.log.append_as_leader(bytearray(self.sent), leader_epoch=0)
        if flushed == 1:
            self.log.flush()
        self.log.append_as_leader(batch_of(VALUE), leader_epoch=0)
        if flushed == 2:
            self.log.flush()
        self.log.roll()

    def assert_known(self, machine: Machine, **config: int) -> None:
        """The start behind a power cut knows the producer, though the record is not there to tell."""
        log, self.log = self.log, opened(machine, self.log.recovery_point, self.log.log_start_offset, **config)
        assert (log.recovery_point, log.log_end_offset) == (2, 2)
        assert self.log.append_as_leader(self.sent, leader_epoch=0).is_duplicate


@pytest.mark.parametrize("seed", SEEDS[:30])
@pytest.mark.parametrize("flushed", range(3))
def test_what_was_flushed_has_its_producers(seed: int, flushed: int) -> None:
    """The snapshot's content was durable and its name not: a producer whose records were deleted is forgotten, and what
    it sends once more is in the log twice. ``flushed`` is how far the log was flushed before it was rolled.
    """
    rolled = Rolled(flushed=flushed)
    rolled.log.flush(2)  # as the roll has it done in the background
    rolled.log.maybe_increment_log_start_offset(1, "records were deleted")
    rolled.assert_known(crashed(rolled.machine, seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_copied_and_deleted_has_its_producers(seed: int) -> None:
    """The recovery point moved with the local log's start, past a snapshot that nobody had synced: the tier has the
    records, and the log doubles what is sent once more.
    """
    tiered = {"remote_storage_enable": True, "local_retention_bytes": 0, "retention_bytes": 1 << 20}
    rolled = Rolled(flushed=0, **tiered)
    rolled.log.update_highest_offset_in_remote_storage(1)
    assert rolled.log.delete_old_segments() == 1
    rolled.assert_known(crashed(rolled.machine, seed), **tiered)


@pytest.mark.parametrize("seed", SEEDS[:20])
@pytest.mark.parametrize("flushed", [0, 2])
def test_what_is_copied_has_its_producers_while_it_is_deleted(seed: int, flushed: int) -> None:
    """The segments went before the snapshot of the roll behind them was synced (simulation, seed 175533)."""
    tiered = {"remote_storage_enable": True, "local_retention_bytes": 0, "retention_bytes": 1 << 20}
    for at in itertools.count(1):
        rolled = Rolled(flushed=flushed, **tiered)
        rolled.log.update_highest_offset_in_remote_storage(1)
        assert isinstance(rolled.machine.files, MemoryFiles)
        power = PowerCut(rolled.machine.files, at=at, seed=seed)
        with contextlib.suppress(StoreError, LogOfflineError):
            rolled.log.delete_old_segments()
        if power.left is None:
            break
        left = opened(machine_of(power.left), rolled.log.recovery_point, **tiered)
        is_known = 7 in left._contents.producers.producers
        assert is_known or left.log_end_offset == 0, at
    assert at > 5


def test_a_disk_that_fails_amid_a_deletion_leaves_no_file_open() -> None:
    """The log's last state had the segment that was set aside, and with it a file that nobody closed (simulation, seed
    200546).
    """
    tiered = {"remote_storage_enable": True, "local_retention_bytes": 0, "retention_bytes": 1 << 20}
    for at in itertools.count(1):
        rolled = Rolled(flushed=2, **tiered)
        log, files = rolled.log, rolled.machine.files
        log.append_as_leader(batch_of(VALUE), leader_epoch=0)
        log.roll()
        log.update_highest_offset_in_remote_storage(2)
        for offset in (0, 2):
            assert log.read(offset, max_bytes=1000, isolation=FetchIsolation.LOG_END).size_bytes
        assert isinstance(files, MemoryFiles)
        with FailingDisk(files, errno.EIO, at=at, kinds={DiskOperation.RENAME}, lasting=True):
            with contextlib.suppress(StoreError, LogOfflineError):
                log.delete_old_segments()
            has_failed = log.is_offline
            log.close()
        gc.collect()
        assert files.open_paths() == [], at
        if not has_failed:
            break
    assert at > 2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_clean_stop_leaves_the_snapshot_of_the_last_roll(seed: int) -> None:
    """Whoever rolled and stopped at once had the end's snapshot already, and nobody synced it."""
    rolled = Rolled(flushed=0)
    rolled.log.maybe_increment_log_start_offset(1, "records were deleted")
    rolled.log.close()
    rolled.assert_known(crashed(rolled.machine, seed))


@pytest.mark.parametrize("seed", SEEDS[:20])
def test_deleted_segments_do_not_come_back(seed: int) -> None:
    """Consumers would get records that retention has deleted, or some of them, with a hole behind."""
    machine = machine_of()
    log = opened(machine, retention_bytes=0)
    for _ in range(4):
        log.append_as_leader(batch_of(bytes(300)), leader_epoch=0)
        log.roll()
    log.flush()
    assert log.delete_old_segments() == 4
    assert opened(crashed(machine, seed), log.recovery_point).log_start_offset == 4


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_a_truncation_that_is_cut_short_leaves_no_hole(seed: int) -> None:
    """All of the log was flushed, so that no start looks for a hole: what lies behind it would stay, for good."""
    for at in itertools.count(1):
        machine = machine_of()
        log = opened(machine)
        for _ in range(5):
            log.append_as_leader(batch_of(bytes(300)), leader_epoch=0)
            log.roll()
        log.flush()
        recovery_point = log.recovery_point
        assert isinstance(machine.files, MemoryFiles)
        power = PowerCut(machine.files, at=at, seed=seed)
        with contextlib.suppress(StoreError):
            log.truncate_to(1)
        if power.left is None:
            break
        left = opened(machine_of(power.left), recovery_point).log_segments()
        ends = [segment.read_next_offset() for segment in left]
        assert [segment.base_offset for segment in left] == [0, *ends[:-1]], at
    assert at > 10


@pytest.mark.parametrize("seed", SEEDS[:6])
def test_a_deletion_that_is_cut_short_leaves_no_hole(seed: int) -> None:
    """A consumer at an old segment that came back would go on behind the hole, past records that the tier has."""
    for at in itertools.count(1):
        machine = machine_of()
        log = opened(machine, retention_bytes=0)
        for _ in range(5):
            log.append_as_leader(batch_of(bytes(300)), leader_epoch=0)
            log.roll()
        log.flush()
        recovery_point = log.recovery_point
        assert isinstance(machine.files, MemoryFiles)
        power = PowerCut(machine.files, at=at, seed=seed)
        with contextlib.suppress(StoreError):
            log.delete_old_segments()
        if power.left is None:
            break
        left = opened(machine_of(power.left), recovery_point).log_segments()
        ends = [segment.read_next_offset() for segment in left]
        assert [segment.base_offset for segment in left][1:] == ends[:-1], at
        assert ends[-1] == 5
    assert at > 10


def test_a_tiered_log_that_is_copied_no_more_starts_where_its_segments_do() -> None:
    """If this fails, what retention deleted seems to be in the tier, which never got it (simulation, seed 213283)."""
    starts: set[int] = set()
    stopped = {"remote_storage_enable": True, "remote_log_copy_disable": True, "retention_bytes": 0}
    for at in itertools.count(1):
        machine = machine_of()
        log = opened(machine, **stopped)
        for _ in range(3):
            log.append_as_leader(batch_of(VALUE), leader_epoch=0)
            log.roll()
        log.update_high_watermark(log.log_end_offset)
        log.flush()
        assert isinstance(machine.files, MemoryFiles)
        power = PowerCut(machine.files, at=at, seed=at)
        with contextlib.suppress(StoreError, LogOfflineError):
            log.delete_old_segments()
        if power.left is None:
            break
        left = opened(machine_of(power.left), log.recovery_point, **stopped)
        assert left.log_start_offset == left.local_log_start_offset, at
        starts.add(left.log_start_offset)
    assert starts == {0, 3}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_that_becomes_compacted_has_no_hole(seed: int) -> None:
    """What was closed before its topic became a compacted one is synced then: recovery tells no hole apart any more."""
    machine = machine_of()
    log = opened(machine)
    for number in range(6):
        log.append_as_leader(batch_of(bytes(300)), leader_epoch=0)
        if number % 2:
            log.roll()
    log.append_as_leader(batch_of(bytes(300)), leader_epoch=0)
    compacted = frozenset(("compact",))
    log.update_config(LogConfig(cleanup_policy=compacted))
    left = opened(crashed(machine, seed), cleanup_policy=compacted).log_segments()
    ends = [segment.read_next_offset() for segment in left]
    assert [segment.base_offset for segment in left] == [0, *ends[:-1]]
