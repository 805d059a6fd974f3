"""What a partition's log owes to the RemoteLogManager: inherit ``PartitionLogContract`` and give it a rig.

    class TestMine(PartitionLogContract):
        @pytest.fixture
        def make_rig(self): ...  # a function of ``tiered``: a LogRig over a new, empty log

Of the log nothing is used but PartitionLog's members; how records get into it is the rig's business. Every segment of
the story has three records, so that offsets can be told by heart.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Protocol

import pytest

from tierlog.errors import TierlogError
from tierlog.log.formats.producer_snapshot import ProducerEntry, encode_producer_snapshot, parse_producer_snapshot
from tierlog.remote.manager.partition_log import PartitionLog, PartitionSegment
from tierlog.runtime.machine import Machine

TIMESTAMP_MS = 1_700_000_000_000


class LogRig(Protocol):
    """A log, and the hands of a broker that the contract needs."""

    @property
    def log(self) -> PartitionLog: ...

    def append(self, count: int, *, leader_epoch: int, timestamp_ms: int) -> None:
        """Append records of one batch as the leader; the first has this timestamp, each later one 1 ms more."""

    def roll(self) -> None:
        """Close the active segment and begin another."""

    def replicate(self) -> None:
        """Move the high watermark to the end of the log."""


MakeRig = Callable[[bool], LogRig]


def filled(rig: LogRig) -> LogRig:
    """Segments at 0, 3, 6 (epochs 0, 0, 2) and an active one at 9 with one record of epoch 2; all replicated."""
    for number, epoch in enumerate((0, 0, 2)):
        rig.append(3, leader_epoch=epoch, timestamp_ms=TIMESTAMP_MS + 100 * number)
        rig.roll()
    rig.append(1, leader_epoch=2, timestamp_ms=TIMESTAMP_MS + 300)
    rig.replicate()
    return rig


def bases(segments: object) -> list[int]:
    return [segment.base_offset for segment in segments]  # type: ignore[attr-defined]


class PartitionLogContract:
    """The contract. A subclass has the fixture ``make_rig``."""

    @pytest.fixture
    def rig(self, make_rig: MakeRig) -> LogRig:
        """A tiered log with the story's segments."""
        return filled(make_rig(True))

    @pytest.fixture
    def log(self, rig: LogRig) -> PartitionLog:
        return rig.log

    # ---- what is known

    def test_offsets(self, log: PartitionLog) -> None:
        """What may be copied and what may be read here goes by these; one too many is data lost, or copied twice."""
        assert (log.log_start_offset, log.local_log_start_offset) == (0, 0)
        assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (10, 10, 10)
        assert log.highest_offset_in_remote_storage == -1
        assert log.remote_log_enabled()

    def test_an_empty_log(self, make_rig: MakeRig) -> None:
        """A partition that was just made: nothing to copy, and nothing to divide by."""
        log = make_rig(True).log
        assert (log.log_start_offset, log.log_end_offset, log.size()) == (0, 0, 0)
        assert bases(log.log_segments()) == [0]
        assert log.active_segment.base_offset == 0
        assert log.leader_epoch_cache.latest_entry is None
        assert log.only_local_log_segments_size() == 0

    def test_the_configuration(self, log: PartitionLog) -> None:
        """Expiration in the tier goes by it: a wrong number deletes what should stay."""
        config = log.config
        for number in (
            config.retention_ms,
            config.retention_bytes,
            config.local_retention_ms,
            config.local_retention_bytes,
        ):
            assert isinstance(number, int)
        assert config.remote_log_copy_disable is False
        assert config.remote_log_delete_on_disable is False

    def test_where_it_lies(self, log: PartitionLog) -> None:
        """The copy task begins anew when the folder moves to another disk, and only then."""
        assert pathlib.Path(log.folder).parent == pathlib.Path(log.parent_dir)

    # ---- segments

    def test_segments_by_offset(self, log: PartitionLog) -> None:
        """The copy task asks from the offset behind the last one copied: one left out is a hole in the tier."""
        assert bases(log.log_segments()) == [0, 3, 6, 9]
        assert log.active_segment.base_offset == 9
        table = {
            (0, 10): [0, 3, 6, 9],
            (3, 10): [3, 6, 9],
            (4, 10): [3, 6, 9],
            (5, 9): [3, 6],
            (6, 7): [6],
            (2, 3): [0],
            (9, 10): [9],
            (42, 50): [9],
        }
        assert {bounds: bases(log.log_segments(*bounds)) for bounds in table} == table

    def test_sizes(self, log: PartitionLog) -> None:
        """Retention by size and the lag of copying are sums of these."""
        sizes = [segment.size_bytes for segment in log.log_segments()]
        assert all(size > 0 for size in sizes)
        assert log.size() == sum(sizes)
        assert (log.only_local_log_segments_size(), log.only_local_log_segments_count()) == (sum(sizes), 4)

    def test_files_of_closed_segments(self, log: PartitionLog) -> None:
        """They are what is copied: one that is missing or short fails every copy of the partition."""
        for segment in log.log_segments(0, 9):
            assert self.size_of(log, segment.log_path) == segment.size_bytes
            assert pathlib.Path(segment.log_path).name == f"{segment.base_offset:020}.log"
            assert self.size_of(log, segment.offset_index_path) % 8 == 0
            assert self.size_of(log, segment.time_index_path) % 12 == 0
            assert pathlib.Path(segment.transaction_index_path).name == f"{segment.base_offset:020}.txnindex"

    def size_of(self, log: PartitionLog, path: str) -> int:
        """The size of a file of the log's; to be overridden for a log that lies in no file system."""
        return pathlib.Path(path).stat().st_size

    def test_a_snapshot_of_each_closed_segments_end(self, log: PartitionLog) -> None:
        """It goes with the copy; without it a follower that starts from the tier lets duplicates in."""
        for offset in (3, 6, 9):
            path = log.fetch_producer_snapshot(offset)
            assert path is not None
            assert self.size_of(log, path) >= 10
        assert log.fetch_producer_snapshot(4) is None

    def test_timestamps(self, log: PartitionLog) -> None:
        """Retention by time, and ListOffsets where the tier ends and the disk begins."""
        segments = log.log_segments()
        assert [segment.largest_timestamp_ms - TIMESTAMP_MS for segment in segments] == [2, 102, 202, 300]
        second = segments[1]
        assert self.found(second, TIMESTAMP_MS, 3) == (TIMESTAMP_MS + 100, 3)
        assert self.found(second, TIMESTAMP_MS + 101, 3) == (TIMESTAMP_MS + 101, 4)
        assert self.found(second, TIMESTAMP_MS, 5) == (TIMESTAMP_MS + 102, 5)
        assert self.found(second, TIMESTAMP_MS + 103, 3) is None

    def found(self, segment: PartitionSegment, timestamp_ms: int, starting_offset: int) -> tuple[int, int] | None:
        answer = segment.find_offset_by_timestamp(timestamp_ms, starting_offset)
        return None if answer is None else (answer.timestamp_ms, answer.offset)

    def test_aborted_transactions(self, log: PartitionLog) -> None:
        """A fetch that begins in the tier goes on in these: without transactions there are none, and no error."""
        for segment in log.log_segments():
            assert segment.collect_aborted(fetch_offset=0, upper_bound_offset=10) == ([], False)

    # ---- leader epochs

    def test_leader_epochs(self, log: PartitionLog) -> None:
        """Which segments are of this leader's lineage, and so in the tier, is decided by them."""
        epochs = log.leader_epoch_cache
        assert (epochs.earliest_entry, epochs.latest_entry) == ((0, 0), (2, 6))
        assert (epochs.next_epoch(0), epochs.next_epoch(2)) == (2, None)
        assert (epochs.previous_epoch(2), epochs.previous_epoch(0)) == (0, None)
        assert epochs.previous_entry(2) == (0, 0)
        assert (epochs.epoch_entry(2), epochs.epoch_entry(1)) == ((2, 6), None)
        assert [epochs.epoch_for_offset(offset) for offset in (0, 5, 6, 9)] == [0, 0, 2, 2]
        assert [epochs.end_offset_for(epoch, log.log_end_offset) for epoch in (0, 1, 2)] == [(0, 6), (0, 6), (2, 10)]
        assert epochs.epoch_with_offsets() == {0: 0, 2: 6}

    def test_the_epochs_of_a_segment(self, log: PartitionLog) -> None:
        """They are stored with the copy: every offset of it must be told its epoch, and none outside."""
        epochs = log.leader_epoch_cache
        assert list(epochs.epoch_entries_in_range(3, 6)) == [(0, 3)]
        assert list(epochs.epoch_entries_in_range(4, 8)) == [(0, 4), (2, 6)]
        assert epochs.epoch_with_offsets() == {0: 0, 2: 6}, "asking changes nothing"

    # ---- what the tier tells the log

    def test_what_is_copied(self, log: PartitionLog) -> None:
        """A task that is late with its news lowers nothing: segments would be copied, and counted, twice."""
        log.update_highest_offset_in_remote_storage(5)
        log.update_highest_offset_in_remote_storage(2)
        assert log.highest_offset_in_remote_storage == 5
        only_local = [segment.size_bytes for segment in log.log_segments() if segment.base_offset >= 5]
        assert log.only_local_log_segments_count() == len(only_local) == 2
        assert log.only_local_log_segments_size() == sum(only_local)

    def test_a_log_that_is_not_tiered(self, make_rig: MakeRig) -> None:
        """Else local retention would wait for copies that nobody makes, or delete by what nobody has."""
        log = filled(make_rig(False)).log
        assert not log.remote_log_enabled()
        log.update_highest_offset_in_remote_storage(5)
        assert log.update_log_start_offset_from_remote_tier(3) == 0
        assert (log.highest_offset_in_remote_storage, log.log_start_offset) == (-1, 0)

    def test_the_tiers_start_is_the_logs(self, log: PartitionLog) -> None:
        """What has expired in the tier must not be promised to consumers; what has not, must."""
        assert log.update_log_start_offset_from_remote_tier(4) == 4
        assert log.update_log_start_offset_from_remote_tier(2) == 4
        assert log.log_start_offset == 4

    def test_the_tiers_start_stops_at_the_high_watermark(self, rig: LogRig) -> None:
        """If this fails, the manager deletes segments that the log still offers."""
        rig.append(3, leader_epoch=2, timestamp_ms=TIMESTAMP_MS + 400)
        assert (rig.log.high_watermark, rig.log.log_end_offset) == (10, 13)
        assert rig.log.update_log_start_offset_from_remote_tier(12) == 10
        assert rig.log.log_start_offset == 10

    def test_a_cut_takes_back_what_is_copied(self, log: PartitionLog) -> None:
        """If this fails, local retention deletes what was appended behind a cut, and no tier has it."""
        log.update_highest_offset_in_remote_storage(8)
        log.truncate_fully_and_start_at(7, 0)
        assert log.highest_offset_in_remote_storage == 6
        log.truncate_fully_and_start_at(40, 0)
        assert log.highest_offset_in_remote_storage == 6

    def test_the_start_of_the_log_rises(self, log: PartitionLog) -> None:
        """DeleteRecords and retention; above the high watermark there is what followers still need."""
        assert log.maybe_increment_log_start_offset(4, "records were deleted")
        assert not log.maybe_increment_log_start_offset(4, "again")
        assert not log.maybe_increment_log_start_offset(1, "late")
        assert log.log_start_offset == 4
        with pytest.raises(LookupError) as raised:
            log.maybe_increment_log_start_offset(11, "too far")
        assert isinstance(raised.value, TierlogError)
        assert log.log_start_offset == 4

    def test_the_local_start_rises_alone(self, log: PartitionLog) -> None:
        """What is deleted here is read from the tier: the log still begins where it began."""
        assert log.maybe_increment_local_log_start_offset(6, "copied")
        assert not log.maybe_increment_local_log_start_offset(3, "late")
        assert (log.log_start_offset, log.local_log_start_offset) == (0, 6)

    # ---- a follower that starts from the tier

    def test_beginning_from_the_tier(self, rig: LogRig) -> None:
        """BuildRemoteLogAux: a new replica takes epochs and producers from the tier, and fetches from there on."""
        log = rig.log
        log.truncate_fully_and_start_at(500, 20)
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (20, 500, 500)
        assert bases(log.log_segments()) == [500]
        assert log.size() == 0
        log.leader_epoch_cache.clear_and_flush()
        log.leader_epoch_cache.assign_all([(0, 20), (3, 300)])
        assert log.leader_epoch_cache.epoch_with_offsets() == {0: 20, 3: 300}
        now_ms = Machine().clock.time_ms()  # a producer that is silent for a day is forgotten
        silent = ProducerEntry(7, 0, 4, 499, 0, now_ms, -1, -1)
        transacting = ProducerEntry(8, 2, 0, 400, 0, now_ms, -1, 400)
        self.put_file(log, f"{500:020}.snapshot", encode_producer_snapshot([silent, transacting]))
        log.load_producer_state(500)
        assert log.fetch_producer_snapshot(500) is not None
        assert (log.last_stable_offset, log.high_watermark) == (400, 500), "a transaction is open"
        rig.append(2, leader_epoch=3, timestamp_ms=TIMESTAMP_MS)
        assert (log.log_end_offset, bases(log.log_segments())) == (502, [500])
        assert log.leader_epoch_cache.epoch_with_offsets() == {0: 20, 3: 300}
        rig.roll()
        assert self.producers_at(log, 502) == [silent, transacting], "what goes to the tier with the next copy"

    def put_file(self, log: PartitionLog, name: str, content: bytes) -> None:
        """Write a file into the log's folder."""
        pathlib.Path(log.folder, name).write_bytes(content)

    def producers_at(self, log: PartitionLog, offset: int) -> list[ProducerEntry]:
        """The producers that the log's snapshot of an offset names, by id."""
        path = log.fetch_producer_snapshot(offset)
        assert path is not None
        found = parse_producer_snapshot(pathlib.Path(path).read_bytes()).entries
        return sorted(found, key=lambda entry: entry.producer_id)

    def test_beginning_anew(self, rig: LogRig) -> None:
        """A follower whose leader has nothing of what it has."""
        rig.log.truncate_fully_and_start_at(7)
        log = rig.log
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (7, 7, 7)
        assert log.leader_epoch_cache.latest_entry is None
