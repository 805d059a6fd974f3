"""A cleaning of one log: what stays of it, what is swapped in, and what a failure leaves."""

from __future__ import annotations

import errno

import pytest

from tests.support.cleaned_logs import FOLDER, CleanedLog, Given
from tierlog.errors import CorruptRecordError, StoreError
from tierlog.log.local.log_errors import LogCleaningAbortedError
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.log.local.recovery.log_loader import LogCheckpoints
from tierlog.runtime.simulated.memory_disk import DiskOperation
from tierlog.testing import FailingDisk

DAY_MS = 86_400_000


def test_the_latest_record_of_each_key_stays() -> None:
    """Older values of a key would fill the disk for good; offsets, timestamps and the active segment stay."""
    with CleanedLog() as log:
        log.append(Given(b"a", b"1"), Given(b"b", b"2"))
        log.append(Given(b"a", b"3"))
        log.roll()
        log.append(Given(b"b", b"4"))
        result = log.clean()
        assert log.rows() == [(1, b"b", b"2"), (2, b"a", b"3"), (3, b"b", b"4")]
        assert result.next_dirty_offset == 3
        assert (result.stats.messages_read, result.stats.messages_written) == (3, 2)
        assert result.stats.map_messages_read == 3
        assert log.clean(first_dirty_offset=0).stats.messages_read == 2
        assert log.files() == ["00000000000000000000", "00000000000000000003"]


def test_segments_become_one_where_they_fit() -> None:
    """A log of many segments, that all become small, would keep a file and an index for each of them."""
    with CleanedLog(segment_bytes=1000) as log:
        for number in range(6):
            log.append(Given(b"key", bytes(100)), Given(b"%d" % number, b"x"))
            log.roll()
        log.clean()
        assert [segment.base_offset for segment in log.log.log_segments()] == [0, 10, 12]
        assert [offset for offset, *_ in log.rows()] == [1, 3, 5, 7, 9, 10, 11]


def test_a_tombstone_goes_when_its_horizon_has_passed() -> None:
    """A deleted key would come back for a reader that was slow, if the tombstone went at once; or stay for good."""
    with CleanedLog(delete_retention_ms=1000) as log:
        log.append(Given(b"a", b"1"), Given(b"c", b"1"))
        log.append(Given(b"a", None), Given(b"b", b"2"))
        log.roll()
        log.append(Given(b"z", b"9"))
        log.clean()
        assert log.rows() == [(1, b"c", b"1"), (2, b"a", None), (3, b"b", b"2"), (4, b"z", b"9")]
        timestamps = log.timestamps()
        log.clean()
        assert [offset for offset, *_ in log.rows()] == [1, 2, 3, 4]
        assert log.timestamps() == timestamps
        log.pass_ms(1001)
        log.clean()
        assert [offset for offset, *_ in log.rows()] == [1, 3, 4]


def test_records_without_a_key_go() -> None:
    """Kafka's rule of old logs that became compacted."""
    with CleanedLog() as log:
        log.append_unchecked(Given(None, b"1"), Given(b"a", b"1"))
        log.roll()
        log.append(Given(b"z", b"9"))
        assert log.clean().stats.invalid_messages_read == 1
        assert log.rows() == [(1, b"a", b"1"), (2, b"z", b"9")]


def test_a_map_that_is_full_ends_the_cleaning_there() -> None:
    """What the map does not know may not go: the next cleaning goes on where this one ended."""
    with CleanedLog(keys=3) as log:
        for number in range(8):
            log.append(Given(b"%d" % (number % 4), b"v%d" % number))
        log.roll()
        log.append(Given(b"z", b"9"))
        offsets = [0]
        while offsets[-1] < 8:
            offsets.append(log.clean(first_dirty_offset=offsets[-1]).next_dirty_offset)
        assert offsets == [0, 3, 6, 8]
        assert [offset for offset, *_ in log.rows()] == [4, 5, 6, 7, 8]


def test_aborted_records_go_and_their_marker_after_them() -> None:
    """Readers of committed records skip aborted ones by the transaction index, as long as there are any."""
    with CleanedLog(delete_retention_ms=1000) as log:
        log.append(Given(b"a", b"1"), producer_id=7, sequence=0)
        log.append(Given(b"x", b"1"), producer_id=8, sequence=0)
        log.end(7, is_commit=False)
        log.end(8, is_commit=True)
        log.append(Given(b"b", b"2"), Given(b"c", b"2"), producer_id=7, sequence=1)
        log.end(7, is_commit=True)
        log.append(Given(b"d", b"2"), producer_id=8, sequence=1)
        log.end(8, is_commit=True)
        log.roll()
        log.append(Given(b"z", b"9"))
        assert log.log.collect_aborted_transactions(0, 100) == ((7, 0, 2),)
        log.clean()
        assert [offset for offset, *_ in log.rows()] == [1, 4, 5, 7, 9]
        assert log.markers() == [2, 3, 6, 8]
        log.clean()  # the first one's batch has gone: the marker gets a horizon
        log.pass_ms(1001)
        assert log.markers() == [2, 3, 6, 8]
        log.clean()
        assert log.markers() == [3, 6, 8]
        assert log.log.collect_aborted_transactions(0, 100) == ()


def test_a_deleted_key_stays_deleted_behind_an_aborted_transaction() -> None:
    """The keys of the producer's next transaction have to be in the map: else the value stays, and its tombstone goes.
    Kafka's cleaner takes them for aborted.
    """
    with CleanedLog(delete_retention_ms=1000, index_interval_bytes=1) as log:
        log.append(Given(b"deleted", b"1"))
        log.append(Given(b"a", b"1"), producer_id=7, sequence=0)
        log.end(7, is_commit=False)
        log.append(Given(b"deleted", None), producer_id=7, sequence=1)
        log.end(7, is_commit=True)
        log.roll()
        log.append(Given(b"z", b"9"))
        log.clean(first_dirty_offset=3)
        assert [offset for offset, *_ in log.rows()] == [3, 5]
        log.pass_ms(1001)
        log.roll()
        log.append(Given(b"z", b"10"))
        log.clean(first_dirty_offset=5)
        assert log.rows() == [(5, b"z", b"9"), (6, b"z", b"10")]


def test_aborted_records_in_front_of_the_log_start_go() -> None:
    """A log whose start was lost would show them as committed, once their marker has gone."""
    with CleanedLog() as log:
        log.append(Given(b"a", b"1"), producer_id=7, sequence=0)
        log.end(7, is_commit=False)
        log.append(Given(b"b", b"1"), Given(b"c", b"1"))
        log.log.update_high_watermark(4)
        assert log.log.maybe_increment_log_start_offset(3, "asked")
        log.roll()
        log.append(Given(b"z", b"9"))
        log.clean(first_dirty_offset=3)
        assert log.batches() == [(0, 0), (1, 1), (3, 2), (4, 1)]


def test_the_last_batch_of_a_producer_stays_empty() -> None:
    """A producer that goes on would be refused, out of order, after a restart that does not find its last sequence."""
    with CleanedLog() as log:
        log.append(Given(b"a", b"1"), producer_id=9, sequence=0, is_transactional=False)
        log.append(Given(b"a", b"2"))
        log.roll()
        log.append(Given(b"z", b"9"))
        log.clean()
        assert log.batches() == [(0, 0), (1, 1), (2, 1)]
        log.append(Given(b"y", b"1"), producer_id=9, sequence=1, is_transactional=False)


def test_the_last_committed_batch_of_a_producer_stays_empty() -> None:
    """Its later ones may be cut: a resend of it would be stored twice by a replica that has lost them (simulation, seed
    10876).
    """
    with CleanedLog(is_sole_replica=False) as log:
        for sequence in range(9):
            log.append(Given(b"a", b"1"), producer_id=9, sequence=sequence, is_transactional=False)
            if sequence in (0, 1):
                log.append(Given(b"a", b"2"))
                log.roll()
        log.log.update_high_watermark(4)
        log.clean()
        log.log.truncate_to(4)
        log.log.close()
        for name, _ in log.machine.files.list_files(FOLDER):  # a crash takes what was not synced
            if name.endswith(".snapshot"):
                log.machine.files.remove(f"{FOLDER}/{name}")
        log.open(LogCheckpoints(0), had_clean_shutdown=False)
        known = log.log._contents.producers.producers[9]
        assert (known.last_sequence, known.last_data_offset) == (1, 2)


def test_a_damaged_batch_ends_the_cleaning_and_leaves_the_log() -> None:
    """Damage that is written anew gets a right checksum: nobody would ever find it."""
    with CleanedLog() as log:
        for number in range(4):
            log.append(Given(b"a", bytes(200)), Given(b"b%d" % number, bytes(20)))
        log.roll()
        log.append(Given(b"z", b"9"))
        path = log.log.log_segments()[0].log_path
        with log.machine.files.open_update(path) as file:
            file.write_at(b"\xff", position=600)
        before = log.files(), log.log.log_segments()
        with pytest.raises(CorruptRecordError, match=path):
            log.clean()
        assert (log.files(), log.log.log_segments()) == before
        assert log.names_with("cleaned") == log.names_with("swap") == []
        assert not log.log.is_offline


@pytest.mark.parametrize("kind", [DiskOperation.READ, DiskOperation.WRITE, DiskOperation.FSYNC])
def test_a_disk_that_fails_leaves_the_log(kind: DiskOperation) -> None:
    """A segment that cannot be read, or a disk that is full, in the middle of a cleaning: others are not touched."""
    suffix = ".log" if kind is DiskOperation.READ else ".cleaned"
    with CleanedLog() as log:
        for number in range(4):
            log.append(Given(b"a", bytes(2000)), Given(b"b%d" % number, bytes(20)))
            log.roll()
        rows = log.rows()
        at = 6 if suffix == ".log" else 1
        disk = FailingDisk(log.machine.files, errno.EIO, at=at, kinds=[kind], suffix=suffix)
        with disk, pytest.raises(StoreError):
            log.clean()
        assert log.rows() == rows
        assert not log.log.is_offline
        assert log.names_with("cleaned") == []
        log.clean()
        assert [offset for offset, *_ in log.rows()] == [1, 3, 5, 6, 7]


def test_an_aborted_cleaning_leaves_the_log() -> None:
    """A log that is to be cut or deleted must not wait for its cleaning, nor find files of it."""
    with CleanedLog() as log:
        log.append(Given(b"a", bytes(2000)), Given(b"b", b"1"))
        log.append(Given(b"a", bytes(2000)))
        log.roll()
        rows, left = log.rows(), [3]

        def check_done() -> None:
            left[0] -= 1
            if not left[0]:
                raise LogCleaningAbortedError("stop")

        with pytest.raises(LogCleaningAbortedError):
            log.clean(check_done=check_done)
        assert (log.rows(), log.names_with("cleaned")) == (rows, [])


def test_a_log_that_was_cut_meanwhile_is_not_swapped() -> None:
    """Records that were cut would come back with the new segment."""
    with CleanedLog() as log:
        log.append(Given(b"a", b"1"), Given(b"a", b"2"))
        log.append(Given(b"b", b"1"))
        log.roll()
        cuts = [2]

        def cut(_: int) -> None:
            cuts[0] -= 1
            if not cuts[0]:
                log.log.truncate_to(2)

        with pytest.raises(LogCleaningAbortedError):
            log.clean(throttle=cut)
        assert [offset for offset, *_ in log.rows()] == [0, 1]
        assert log.names_with("cleaned") == []


def test_a_batch_above_the_buffers_is_cleaned() -> None:
    """A key of 16 MiB, or a limit that was lowered, must not keep a partition from ever being cleaned."""
    with CleanedLog(max_message_bytes=64 << 20, segment_bytes=1 << 30) as log:
        key = bytes(16 << 20)
        for number in range(3):
            log.append(Given(key, b"%d" % number), Given(b"k%d" % number, b"v"))
        log.append(Given(key + b"1", b"9"), codec="zstd")
        log.roll()
        log.clean()
        assert [offset for offset, *_ in log.rows()] == [1, 3, 4, 5, 6]


def test_a_reader_that_holds_a_slice_reads_on() -> None:
    """A fetch that has begun must not fail, or see other bytes, because its segment was cleaned."""
    with CleanedLog() as log:
        log.append(Given(b"a", b"1"), Given(b"a", b"2"))
        log.roll()
        held = log.read(0).records[0]
        before = bytes(held.read())
        log.clean()
        assert bytes(held.read()) == before
        assert [offset for offset, *_ in log.rows()] == [1]


def test_the_time_of_the_last_change_stays() -> None:
    """Retention by time goes by it where records have no timestamps."""
    with CleanedLog() as log:
        log.append(Given(b"a", b"1"), Given(b"a", b"2"))
        log.roll()
        before = log.log.log_segments()[0].modified_ms
        log.pass_ms(DAY_MS)
        log.clean()
        assert log.log.log_segments()[0].modified_ms == before


def test_a_transaction_that_is_compacted_away_has_ended() -> None:
    """A snapshot of before its marker says that it is open. A start after a kill would cut the log in front of the
    producer's next batch, or readers of committed records would stand still for ever.
    """
    with CleanedLog(delete_retention_ms=1000, segment_bytes=600) as log:
        log.append(Given(b"fills the segment", bytes(300)))
        log.append(Given(b"a", b"1"), producer_id=7, sequence=0)
        log.roll()  # writes the snapshot
        log.end(7, is_commit=True)
        log.append(Given(b"a", bytes(300)))
        log.append(Given(b"b", b"3"), producer_id=7, sequence=1, is_transactional=False)
        log.roll()
        log.append(Given(b"z", b"9"))
        log.clean()
        log.clean()
        log.pass_ms(1001)
        log.clean()
        assert (log.markers(), log.batches()) == ([], [(0, 1), (3, 1), (4, 1), (5, 1)])
        log.log.close()
        log.open(LogCheckpoints(recovery_point=0), had_clean_shutdown=False)
        assert log.batches() == [(0, 1), (3, 1), (4, 1), (5, 1)]
        assert log.log.open_transactions() == ()
        log.log.update_high_watermark(6)
        assert log.log.last_stable_offset == 6


def test_a_cleaned_log_is_opened_again() -> None:
    """Indexes, the snapshot of the producers and the transaction index of the new segment are those of its batches."""
    with CleanedLog(index_interval_bytes=200) as log:
        for number in range(40):
            log.append(Given(b"k%d" % (number % 7), bytes(50)), producer_id=3, sequence=number, is_transactional=False)
        log.roll()
        log.append(Given(b"z", b"9"), origin=AppendOrigin.CLIENT)
        log.clean()
        rows = log.rows()
        for clean in (True, False):
            log.reopen(had_clean_shutdown=clean)
            assert log.rows() == rows
            assert {action.kind for action in log.log.recovery_report.actions} <= {"hole"}
