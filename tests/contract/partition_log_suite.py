"""What a partition's log owes to replication and to the RemoteLogManager.

Inherit ``PartitionLogContract`` and give it a rig:

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
from tierlog.log.formats.leader_epochs import parse_leader_epochs
from tierlog.log.formats.producer_snapshot import ProducerEntry, encode_producer_snapshot, parse_producer_snapshot
from tierlog.log.local import AppendRefusedError, FetchIsolation, OffsetOutOfRangeError
from tierlog.log.partition_log import PartitionLog, PartitionSegment
from tierlog.records.builder import RecordBatchBuilder
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


def batch_of(base_offset: int, count: int, *, leader_epoch: int) -> bytes:
    """A batch as a leader sends it to its followers."""
    builder = RecordBatchBuilder(base_offset, leader_epoch=leader_epoch)
    for number in range(count):
        builder.append(None, b"sent %d" % number, timestamp_ms=TIMESTAMP_MS + 1000 + number)
    return builder.build()


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

    def test_segments_to_copy(self, rig: LogRig) -> None:
        """Closed, and below the last stable offset: what may still be aborted, or cut, is copied by nobody."""
        log = rig.log
        assert [(each.base_offset, end) for each, end in log.closed_segments()] == [(0, 3), (3, 6), (6, 9)]
        assert [(each.base_offset, end) for each, end in log.closed_segments(4)] == [(3, 6), (6, 9)]
        log.update_high_watermark(8)
        assert [(each.base_offset, end) for each, end in log.closed_segments(3)] == [(3, 6)]

    def test_an_offset_that_the_tier_alone_has(self, log: PartitionLog) -> None:
        """A follower gets the error that it has moved, a consumer an answer from the tier."""
        log.truncate_fully_and_start_at(500, 20)
        for offset, is_in_tier in ((19, False), (20, True), (499, True), (501, False)):
            with pytest.raises(OffsetOutOfRangeError) as raised:
                log.read(offset, max_bytes=1, isolation=FetchIsolation.LOG_END)
            assert raised.value.is_in_tier is is_in_tier
            assert (raised.value.log_start_offset, raised.value.local_log_start_offset) == (20, 500)

    def test_sizes(self, log: PartitionLog) -> None:
        """Retention by size and the lag of copying are sums of these."""
        sizes = [segment.size_bytes for segment in log.log_segments()]
        assert all(size > 0 for size in sizes)
        assert log.size() == sum(sizes)
        assert (log.only_local_log_segments_size(), log.only_local_log_segments_count()) == (sum(sizes), 4)

    def test_a_lease_of_a_closed_segment(self, log: PartitionLog) -> None:
        """It is what is copied: a file that is missing, short or another's fails every copy of the partition."""
        for segment, end_offset in zip(log.log_segments(0, 9), (3, 6, 9), strict=True):
            with log.lease(segment) as data:
                assert self.size_of(log, data.log_segment) == segment.size_bytes
                assert self.size_of(log, data.offset_index) % 8 == 0
                assert self.size_of(log, data.time_index) % 12 == 0
                assert data.transaction_index is None or self.size_of(log, data.transaction_index) == 0
                assert parse_producer_snapshot(self.read(log, data.producer_snapshot)).entries == ()
                epochs = dict(parse_leader_epochs(data.leader_epoch_index))
                assert epochs == {epoch: start for epoch, start in ((0, 0), (2, 6)) if start < end_offset}
        with pytest.raises(ValueError, match="appended to"):
            log.lease(log.active_segment)

    def test_a_lease_holds_whatever_the_log_does(self, rig: LogRig) -> None:
        """If this fails, a copy that is slower than retention, or than a new leader's cut, stores part of a segment."""
        log = rig.log
        first = log.log_segments()[0]
        with log.lease(first) as data:
            before = self.read(log, data.log_segment)
            log.truncate_fully_and_start_at(40)
            assert self.read(log, data.log_segment) == before
            assert parse_producer_snapshot(self.read(log, data.producer_snapshot)).entries == ()
        with pytest.raises(LookupError) as raised:
            log.lease(first)
        assert isinstance(raised.value, TierlogError)

    def size_of(self, log: PartitionLog, path: str) -> int:
        """The size of a file of the log's."""
        return len(self.read(log, path))

    def read(self, log: PartitionLog, path: str) -> bytes:
        """The content of a file of the log's; to be overridden for a log that lies in no file system."""
        return pathlib.Path(path).read_bytes()

    def test_a_snapshot_of_each_closed_segments_end(self, log: PartitionLog) -> None:
        """It goes with the copy; without it a follower that starts from the tier lets duplicates in."""
        for offset in (3, 6, 9):
            snapshot = log.snapshot_at(offset)
            assert snapshot is not None
            assert parse_producer_snapshot(snapshot).entries == ()
        assert log.snapshot_at(4) is None

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

    def test_what_is_copied_no_more(self, log: PartitionLog) -> None:
        """Another leader had it deleted from the tier. If this fails, local retention deletes what no tier has."""
        log.update_highest_offset_in_remote_storage(5)
        log.update_highest_offset_in_remote_storage(2, may_fall=True)
        assert log.highest_offset_in_remote_storage == 2
        log.update_highest_offset_in_remote_storage(4, may_fall=True)
        assert log.highest_offset_in_remote_storage == 4

    def test_a_copied_segment_of_one_record(self, rig: LogRig) -> None:
        """It would count here and in the tier, and retention by size would take what is within its bound."""
        rig.roll()
        log = rig.log
        log.update_highest_offset_in_remote_storage(9)
        assert (log.only_local_log_segments_size(), log.only_local_log_segments_count()) == (0, 1)

    def test_what_lies_in_front_of_the_log_start(self, log: PartitionLog) -> None:
        """After a DeleteRecords retention by size would take as many bytes of the log again."""
        sizes = [segment.size_bytes for segment in log.log_segments()]
        log.maybe_increment_log_start_offset(5, "a client deleted records")
        assert (log.only_local_log_segments_size(), log.only_local_log_segments_count()) == (sum(sizes[1:]), 3)

    def test_a_log_start_within_a_segment(self, make_rig: MakeRig) -> None:
        """Segments of the tier end elsewhere: retention by size would take what is within its bound."""
        rig = make_rig(True)
        log, sizes = rig.log, [0]
        for count in (3, 2, 4):
            rig.append(count, leader_epoch=0, timestamp_ms=TIMESTAMP_MS)
            sizes.append(log.size())
        rig.replicate()
        for offset, begin in ((2, 0), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3)):
            log.maybe_increment_log_start_offset(offset, "the tier's segment ends there")
            assert log.only_local_log_segments_size() == sizes[-1] - sizes[begin], offset

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

    def test_no_more_is_copied_than_the_log_has(self, log: PartitionLog) -> None:
        """If this fails, a task that looked before a cut makes local retention delete what is appended behind it."""
        end_offset = log.log_end_offset
        log.update_highest_offset_in_remote_storage(end_offset + 5)
        assert log.highest_offset_in_remote_storage == end_offset - 1

    def test_what_was_copied_of_another_branch(self, log: PartitionLog) -> None:
        """The task stood still while the log was cut and filled by another leader. If this fails, local retention
        deletes what that one wrote, which no tier has.
        """
        for may_fall in (False, True):
            log.update_highest_offset_in_remote_storage(7, may_fall=may_fall, leader_epoch=0)
            assert log.highest_offset_in_remote_storage == -1
        log.update_highest_offset_in_remote_storage(7, leader_epoch=2)
        assert log.highest_offset_in_remote_storage == 7

    def test_what_was_copied_in_front_of_the_first_epoch(self, log: PartitionLog) -> None:
        """If this fails, a log whose start lies behind its tier is looked up in each run."""
        log.maybe_increment_log_start_offset(7, "a client deleted records")
        log.update_highest_offset_in_remote_storage(5, leader_epoch=0)
        assert log.highest_offset_in_remote_storage == 5

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
        now_ms = Machine().clock.time_ms()  # a producer that is silent for a day is forgotten
        silent = ProducerEntry(7, 0, 4, 499, 0, now_ms, -1, -1)
        transacting = ProducerEntry(8, 2, 0, 400, 0, now_ms, -1, 400)
        log.start_from_tier(
            500,
            log_start_offset=20,
            epochs=[(0, 0), (3, 300), (4, 700)],
            producer_snapshot=encode_producer_snapshot([silent, transacting]),
        )
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (20, 500, 500)
        assert bases(log.log_segments()) == [500]
        assert (log.size(), log.must_be_rebuilt) == (0, False)
        assert log.leader_epoch_cache.epoch_with_offsets() == {0: 20, 3: 300}
        assert log.snapshot_at(500) is not None
        assert (log.last_stable_offset, log.high_watermark) == (400, 500), "a transaction is open"
        rig.append(2, leader_epoch=3, timestamp_ms=TIMESTAMP_MS)
        assert (log.log_end_offset, bases(log.log_segments())) == (502, [500])
        assert log.leader_epoch_cache.epoch_with_offsets() == {0: 20, 3: 300}
        rig.roll()
        assert self.producers_at(log, 502) == [silent, transacting], "what goes to the tier with the next copy"

    def test_open_transactions(self, log: PartitionLog) -> None:
        """A coordinator that takes over ends them: one that it is not told of holds back every reader, for ever."""
        assert list(log.open_transactions()) == []
        now_ms = Machine().clock.time_ms()
        begun = [
            ProducerEntry(number, 0, 0, first, 0, now_ms, -1, first) for number, first in ((7, 90), (8, 40), (9, 70))
        ]
        snapshot = encode_producer_snapshot([*begun, ProducerEntry(6, 1, 3, 95, 0, now_ms, 2, -1)])
        log.start_from_tier(100, log_start_offset=20, epochs=[(0, 0)], producer_snapshot=snapshot)
        assert [entry.producer_id for entry in log.open_transactions()] == [8, 9, 7]
        assert (log.last_stable_offset, log.high_watermark) == (40, 100)

    def test_the_high_watermark_is_not_below_the_local_start(self, log: PartitionLog) -> None:
        """A manager that publishes one that is would delete segments that the log offers."""
        log.truncate_fully_and_start_at(500, 20)
        assert (log.update_high_watermark(30), log.high_watermark) == (500, 500)
        assert log.update_high_watermark(900) == 500

    def test_a_beginning_that_is_refused_changes_nothing(self, log: PartitionLog) -> None:
        """A tier whose files are damaged must not cost a follower the log that it has."""
        none = encode_producer_snapshot(())
        refused: list[tuple[int, list[tuple[int, int]], bytes]] = [
            (50, [(0, 0)], none),
            (1, [], none),
            (1, [(0, 2)], none),
            (1, [(0, 0)], none[:-1]),
        ]
        for log_start_offset, epochs, snapshot in refused:
            with pytest.raises((ValueError, TierlogError)):
                log.start_from_tier(40, log_start_offset=log_start_offset, epochs=epochs, producer_snapshot=snapshot)
            assert (log.log_start_offset, log.log_end_offset, bases(log.log_segments())) == (0, 10, [0, 3, 6, 9])

    def test_a_cut_below_what_is_here(self, rig: LogRig) -> None:
        """The start and the lineage are the tier's: with them a new leader offers what is there, without them it is
        lost.
        """
        log = rig.log
        log.start_from_tier(
            500, log_start_offset=20, epochs=[(0, 0), (3, 300)], producer_snapshot=encode_producer_snapshot(())
        )
        assert log.truncate_to(310)
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (20, 310, 310)
        assert (log.leader_epoch_cache.epoch_with_offsets(), log.must_be_rebuilt) == ({0: 20, 3: 300}, True)
        assert log.truncate_to(300)
        assert (log.leader_epoch_cache.epoch_with_offsets(), log.must_be_rebuilt) == ({0: 20}, True)
        log.start_from_tier(
            400, log_start_offset=20, epochs=[(0, 0), (4, 300)], producer_snapshot=encode_producer_snapshot(())
        )
        assert (log.log_end_offset, log.must_be_rebuilt) == (400, False)
        log.truncate_fully_and_start_at(5)
        assert (log.log_start_offset, log.log_end_offset, log.must_be_rebuilt) == (5, 5, False)

    def test_a_lineage_that_begins_too_late_is_completed(self, rig: LogRig) -> None:
        """A leader has nobody to fetch its records from: they stay, and their tier is found again."""
        log = rig.log
        log.truncate_fully_and_start_at(500, 20)
        with pytest.raises(ValueError, match="records"):
            log.complete_lineage([(0, 0)])
        rig.append(2, leader_epoch=3, timestamp_ms=TIMESTAMP_MS)
        assert log.leader_epoch_cache.epoch_with_offsets() == {3: 500}
        for wrong in ([(0, 21)], [], [(0, 0), (4, 300)]):
            with pytest.raises(ValueError, match="epoch"):
                log.complete_lineage(wrong)
        assert log.leader_epoch_cache.epoch_with_offsets() == {3: 500}
        log.complete_lineage([(0, 0), (2, 300), (5, 700)])
        assert log.leader_epoch_cache.epoch_with_offsets() == {0: 20, 2: 300, 3: 500}
        log.complete_lineage([(1, 10)])
        assert log.leader_epoch_cache.epoch_with_offsets() == {0: 20, 2: 300, 3: 500}, "nothing is missing any more"
        assert (log.log_start_offset, log.log_end_offset, log.must_be_rebuilt) == (20, 502, False)
        assert log.end_offset_for_epoch(2) == (2, 500)
        assert log.read(500, max_bytes=1, isolation=FetchIsolation.LOG_END).records

    def test_an_epoch_that_goes_on_in_the_tier(self, rig: LogRig) -> None:
        """It begins there, and nowhere else."""
        rig.log.truncate_fully_and_start_at(500, 20)
        rig.append(2, leader_epoch=3, timestamp_ms=TIMESTAMP_MS)
        rig.log.complete_lineage([(0, 0), (3, 300)])
        assert rig.log.leader_epoch_cache.epoch_with_offsets() == {0: 20, 3: 300}

    def producers_at(self, log: PartitionLog, offset: int) -> list[ProducerEntry]:
        """The producers that the log's snapshot of an offset names, by id."""
        snapshot = log.snapshot_at(offset)
        assert snapshot is not None
        return sorted(parse_producer_snapshot(snapshot).entries, key=lambda entry: entry.producer_id)

    # ---- leaders and followers

    def test_a_follower_appends_what_a_leader_sends(self, rig: LogRig) -> None:
        """Offsets and epochs are the leader's; what is cut off, or of a later epoch, is not taken."""
        log = rig.log
        sent = batch_of(10, 2, leader_epoch=4) + batch_of(12, 1, leader_epoch=5)
        log.append_as_follower(sent + batch_of(13, 1, leader_epoch=6), leader_epoch=5)
        assert (log.log_end_offset, log.leader_epoch_cache.epoch_with_offsets()) == (13, {0: 0, 2: 6, 4: 10, 5: 12})
        log.append_as_follower(batch_of(13, 1, leader_epoch=5)[:-4], leader_epoch=5)
        assert log.log_end_offset == 13
        found = log.read(11, max_bytes=1, isolation=FetchIsolation.LOG_END)
        assert b"".join(part.read() for part in found.records) == batch_of(10, 2, leader_epoch=4)
        with pytest.raises(AppendRefusedError):
            log.append_as_follower(batch_of(5, 1, leader_epoch=5), leader_epoch=5)
        for fallen in (
            batch_of(13, 1, leader_epoch=4),
            batch_of(13, 1, leader_epoch=6) + batch_of(14, 1, leader_epoch=5),
        ):
            with pytest.raises(AppendRefusedError):
                log.append_as_follower(fallen, leader_epoch=6)
        assert (log.log_end_offset, log.leader_epoch_cache.epoch_with_offsets()) == (13, {0: 0, 2: 6, 4: 10, 5: 12})

    def test_reads_end_where_their_isolation_does(self, rig: LogRig) -> None:
        """A follower sees all, a consumer what is replicated."""
        log = rig.log
        rig.append(1, leader_epoch=2, timestamp_ms=TIMESTAMP_MS)
        assert log.read(10, max_bytes=1, isolation=FetchIsolation.LOG_END).records
        assert log.read(10, max_bytes=1, isolation=FetchIsolation.HIGH_WATERMARK).records == ()
        assert log.maybe_increment_high_watermark(11) == 10
        assert log.maybe_increment_high_watermark(11) is None
        assert log.read(10, max_bytes=1, isolation=FetchIsolation.HIGH_WATERMARK).records
        assert log.update_high_watermark(4) == 4
        assert log.high_watermark == 4
        with pytest.raises(LookupError):
            log.read(12, max_bytes=1, isolation=FetchIsolation.LOG_END)

    def test_a_truncation(self, log: PartitionLog) -> None:
        """A follower cuts to where it agrees with its leader: records and epochs from there on are gone."""
        assert not log.truncate_to(10)
        assert log.truncate_to(5)
        assert (log.log_end_offset, log.high_watermark, bases(log.log_segments())) == (5, 5, [0, 3])
        assert log.leader_epoch_cache.epoch_with_offsets() == {0: 0}
        assert log.end_offset_for_epoch(0) == (0, 5)
        log.assign_epoch_start_offset(7, 5)
        assert log.end_offset_for_epoch(0) == (0, 5)
        assert log.end_offset_for_epoch(8) == (-1, -1)

    def test_offsets_by_time(self, log: PartitionLog) -> None:
        """ListOffsets, special timestamps among them."""
        found = {timestamp: log.fetch_offset_by_timestamp(timestamp) for timestamp in (-1, -2, TIMESTAMP_MS + 101)}
        assert {timestamp: None if each is None else each.offset for timestamp, each in found.items()} == {
            -1: 10,
            -2: 0,
            TIMESTAMP_MS + 101: 4,
        }

    def test_beginning_anew(self, rig: LogRig) -> None:
        """A follower whose leader has nothing of what it has."""
        rig.log.truncate_fully_and_start_at(7)
        log = rig.log
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (7, 7, 7)
        assert log.leader_epoch_cache.latest_entry is None
