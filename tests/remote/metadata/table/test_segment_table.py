"""The segment table from Python. A wrong answer is a fetch of the wrong segment; a crash takes the broker with it."""

from __future__ import annotations

import copy
import pickle
import threading
from contextlib import suppress
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from tests.remote.metadata.table.segments import (
    DELETED,
    DELETING,
    FINISHED,
    ORDERS,
    STARTED,
    run_of,
    segment,
    segment_id,
    update,
)
from tierlog.remote.api import (
    InvalidTransitionError,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    RemoteResourceNotFoundException,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.metadata_log import MetadataBatches, MetadataValues
from tierlog.remote.metadata.record_serde import encode_record
from tierlog.remote.metadata.segment_table import RefusedEvent, SegmentTable

OTHER = TopicIdPartition(Uuid(bytes(range(16))), "payments", 0)


@pytest.fixture
def table():
    with SegmentTable() as made:
        made.assign(ORDERS)
        yield made


def test_a_row_stands_for_the_plain_value_everywhere(table: SegmentTable) -> None:
    """Callers put segments into sets, compare and pickle them; a row that differs there loses or doubles one."""
    begun = segment(7, 0, 100, {0: 0, 1: 20, 2: 80, 5: 90}, custom=b"abc", txn_idx_empty=True)
    done = update(7, FINISHED, custom=b"key=x")
    table.apply_record(begun)
    table.apply_record(done)
    plain, row = begun.create_with_updates(done), table.find(ORDERS, 1, 25)
    assert row is not None
    assert type(row) is not RemoteLogSegmentMetadata
    assert isinstance(row, RemoteLogSegmentMetadata)
    assert (row == plain, plain == row, row != plain, plain != row) == (True, True, False, False)
    assert hash(row) == hash(plain)
    assert len({row, plain}) == 1
    assert repr(row) == repr(plain)
    other = table.find(ORDERS, 2, 85)
    assert row == other
    assert hash(row) == hash(other)
    for made in (pickle.loads(pickle.dumps(row)), copy.copy(row), copy.deepcopy(row), replace(row)):
        assert type(made) is RemoteLogSegmentMetadata
        assert made == plain
    assert replace(row, broker_id=9) == replace(plain, broker_id=9)
    assert row != replace(plain, broker_id=9)
    assert replace(plain, broker_id=9) != row
    assert row.create_with_updates(update(7, DELETING)) == plain.create_with_updates(update(7, DELETING))
    assert row.topic_id_partition == ORDERS
    assert row != 5
    with pytest.raises(FrozenInstanceError):
        row.broker_id = 3  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del row.broker_id
    with pytest.raises(AttributeError, match="no_such"):
        row.no_such  # type: ignore[attr-defined] # noqa: B018


@pytest.mark.parametrize("custom", [None, b"", b"a", b"x" * 512, b"y" * 513, b"z" * 70_000])
@pytest.mark.parametrize("epochs", [1, 3, 4, 64, 65, 3000])
def test_whatever_its_size_a_segment_comes_back_whole(table: SegmentTable, custom: bytes | None, epochs: int) -> None:
    """A row holds a few epochs and no custom metadata; more of them must not be cut off."""
    lineage = {2 * n: 10 * n for n in range(epochs)}
    put = segment(1, 0, 10 * epochs, lineage, custom=custom, state=FINISHED)
    table.put(put)
    assert table.find(ORDERS, 0, 5) == put
    assert table.get(put.remote_log_segment_id) == put
    assert list(table.list(ORDERS)) == [put]


def test_a_row_does_not_change_when_its_segment_does(table: SegmentTable) -> None:
    """A reader that is told of a deletion in the middle of its work would mix two states of a segment."""
    table.put(segment(1, 0, 9, state=FINISHED, custom=b"c"))
    row = table.find(ORDERS, 0, 3)
    assert row is not None
    table.apply_record(update(1, DELETING))
    table.apply_record(update(1, DELETED))
    assert (row.state, row.custom_metadata) == (FINISHED, b"c")
    assert table.find(ORDERS, 0, 3) is None


def test_a_run_tells_what_came_of_it(table: SegmentTable) -> None:
    """Whoever waits for an event of his must learn that it was refused, and why."""
    removal = RemotePartitionDeleteMetadata(
        ORDERS, RemotePartitionDeleteState.DELETE_PARTITION_MARKED, event_timestamp_ms=5, broker_id=4
    )
    elsewhere = replace(removal, topic_id_partition=OTHER)
    run = run_of(
        [
            segment(1, 0, 9),
            update(1, FINISHED),
            update(2, FINISHED),
            segment(1, 0, 9),
            segment(3, 10, 19, state=FINISHED),
            update(1, STARTED),
            segment(4, 0, 9, partition=OTHER),
            removal,
            elsewhere,
            update(1, DELETED),
        ],
        first=100,
    )
    applied = table.apply(run)
    assert applied.error is None
    assert applied.next_offset == 110
    assert (applied.applied, applied.passed_over, applied.refused_count) == (2, 2, 5)
    assert applied.refused == (
        RefusedEvent(102, segment_id(2), None, FINISHED),
        RefusedEvent(103, segment_id(1), FINISHED, STARTED),
        RefusedEvent(104, segment_id(3), None, FINISHED),
        RefusedEvent(105, segment_id(1), FINISHED, STARTED),
        RefusedEvent(109, segment_id(1), FINISHED, DELETED),
    )
    assert applied.removals == ((107, removal),)
    assert applied.newest_timestamp_ms == 1_700_000_000_109
    assert table.find(ORDERS, 0, 5) == segment(1, 0, 9).create_with_updates(update(1, FINISHED))


def test_a_run_that_is_read_again_changes_nothing(table: SegmentTable) -> None:
    """A metadata partition is read from its beginning for each later assignment: a segment that was deleted since
    must not come back.
    """
    run = run_of([segment(1, 0, 9), update(1, FINISHED), update(1, DELETING), update(1, DELETED)])
    table.apply(run)
    table.assign(OTHER)
    again = table.apply(run)
    assert (again.applied, again.passed_over, again.refused_count) == (0, 4, 0)
    assert list(table.list(ORDERS)) == []
    later = run_of([segment(5, 0, 9, partition=OTHER)], first=4)
    assert table.apply(later).applied == 1


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (b"", "TRUNCATED"),
        (b"\x00", "BAD_VERSION"),
        (b"\x02\x00\x00", "BAD_VERSION"),
        (b"\x01\x09\x00", "BAD_VERSION"),
        (b"\x01\x00\x01", "BAD_VERSION"),
        (b"\x01\x03\x00" + bytes(80), "BAD_VERSION"),
        (encode_record(update(1, FINISHED)) + b"\x00", "TRAILING_BYTES"),
        (encode_record(update(1, FINISHED))[:-3], "TRUNCATED"),
        (encode_record(segment(9, 0, 9, partition=replace(ORDERS, topic="orders2"))), "BAD_ENTRY"),
        (None, "BAD_FIELD_LENGTH"),
    ],
)
def test_a_record_that_cannot_be_read_ends_the_run_at_its_offset(
    table: SegmentTable, value: bytes | None, fault: str
) -> None:
    """Going on behind it would lose an event; not applying what came before would lose others."""
    records = [segment(1, 0, 9), value, update(1, FINISHED)]
    applied = table.apply(run_of(records, first=40))
    assert applied.error is not None
    assert (applied.error.fault, applied.error.base_offset) == (fault, 41)
    assert (applied.next_offset, applied.applied) == (41, 1)
    assert [each.state for each in table.list(ORDERS)] == [STARTED]
    mended = table.apply(run_of([update(1, FINISHED)], first=42))
    assert (mended.applied, mended.error) == (1, None)


def test_a_keyed_record_is_read_and_a_keyed_tombstone_is_counted(table: SegmentTable) -> None:
    """KIP-1266 would write keys and tombstones; a topic that has them must not stop the broker."""
    run = run_of([segment(1, 0, 9), None, update(1, FINISHED)], keys=[b"k", b"k", b"k2"])
    applied = table.apply(run)
    assert (applied.applied, applied.tombstones, applied.error) == (2, 1, None)


def test_events_of_a_partition_from_two_metadata_partitions_are_an_error(table: SegmentTable) -> None:
    """Their offsets cannot be compared: with a wrong partition count events would be taken for old ones."""
    table.apply(run_of([segment(1, 0, 9)], place=4, first=50))
    applied = table.apply(run_of([update(1, FINISHED)], place=5))
    assert applied.error is not None
    assert (applied.error.fault, applied.error.expected, applied.error.found) == ("BAD_ENTRY", 4, 5)


def test_what_is_no_batch_is_an_error_not_a_crash(table: SegmentTable) -> None:
    """A file's tail may be anything."""
    for data in (b"x", bytes(11), bytes(70), b"\xff" * 200):
        applied = table.apply(MetadataBatches(0, 9, data))
        assert applied.error is not None, data
        assert applied.applied == 0
    assert table.apply(MetadataBatches(0, 9, b"")).next_offset == 9


def test_partitions_are_learned_where_that_is_asked_for() -> None:
    """A reader of a whole topic knows no partitions beforehand."""
    with SegmentTable(learns_partitions=True) as table:
        events = [segment(n, 0, 9, partition=replace(OTHER, partition=n % 90)) for n in range(1000)]
        assert table.apply(run_of(events)).applied == 1000
        assert sorted(table.partitions()) == [replace(OTHER, partition=n) for n in range(90)]
        assert table.figures.segments == 1000
        assert table.figures.partitions == 90
        renamed = table.apply(run_of([segment(1, 0, 9, partition=replace(OTHER, topic="x", partition=91))], first=1000))
        assert renamed.error is not None
        assert renamed.error.fault == "BAD_ENTRY"
        bad = encode_record(segment(1, 0, 9, partition=OTHER)).replace(b"payments", b"paym\xff\xffts")
        bad = bad.replace(OTHER.topic_id.raw, bytes(16))
        unreadable = table.apply(run_of([bad], first=1000))
        assert unreadable.error is not None
        assert unreadable.error.fault == "BAD_FIELD_LENGTH"


def test_a_partition_that_goes_is_forgotten(table: SegmentTable) -> None:
    """After a reassignment a broker would answer from metadata that it no longer follows."""
    table.put(segment(1, 0, 9, state=FINISHED))
    table.unassign(ORDERS)
    table.unassign(OTHER)
    assert table.find(ORDERS, 0, 3) is None
    assert table.partitions() == []
    assert table.apply(run_of([segment(1, 0, 9)])).passed_over == 1
    with pytest.raises(RemoteResourceNotFoundException):
        table.put(segment(1, 0, 9))
    renamed = replace(ORDERS, topic="renamed")
    table.assign(renamed)
    with pytest.raises(ValueError, match="another topic"):
        table.assign(replace(ORDERS, partition=7))
    assert table.partitions() == [renamed]


def test_single_records_are_refused_as_the_kip_says(table: SegmentTable) -> None:
    """Kafka only logs an invalid transition: its caller believes that it was stored."""
    table.apply_record(segment(1, 0, 9))
    with pytest.raises(InvalidTransitionError, match="COPY_SEGMENT_STARTED and cannot become DELETE_SEGMENT_FINISHED"):
        table.apply_record(update(1, DELETED))
    with pytest.raises(InvalidTransitionError):
        table.apply_record(update(1, STARTED))
    with pytest.raises(InvalidTransitionError):
        table.apply_record(segment(2, 0, 9, state=FINISHED))
    with pytest.raises(RemoteResourceNotFoundException):
        table.apply_record(update(2, FINISHED))
    with pytest.raises(InvalidTransitionError):
        table.put(segment(2, 0, 9, state=DELETED))
    table.apply_record(update(1, FINISHED))
    with pytest.raises(InvalidTransitionError):
        table.put(segment(1, 0, 9))


def test_many_questions_are_answered_as_each_alone(table: SegmentTable) -> None:
    """A batch that mixes rows up plans reads of the wrong segments."""
    for n in range(3000):
        table.put(segment(n, 10 * n, 10 * n + 7, {n % 5: 10 * n}, state=FINISHED, size=n))
    epochs = np.arange(30_000, dtype=np.int64) // 10 % 5
    offsets = np.arange(30_000)
    found, answers = table.find_many(ORDERS, epochs.astype(np.int32), offsets)
    for n in range(0, 30_000, 7):
        alone = table.find(ORDERS, int(epochs[n]), n)
        assert (alone is not None) == found[n] == (n % 10 <= 7)
        if alone is not None:
            assert answers.segment_id[n].tobytes() == alone.remote_log_segment_id.id.raw
            assert answers.end_offset[n] == alone.end_offset
    assert table.size_in_bytes(ORDERS, 0) == sum(range(0, 3000, 5))
    columns = table.columns(ORDERS, 2)
    assert len(columns) == 600
    assert columns.start_offset.tolist() == [10 * n for n in range(2, 3000, 5)]
    assert len(table.columns(ORDERS)) == 3000
    assert len(table.columns(OTHER)) == 0
    assert table.find_many(ORDERS, [], [])[0].tolist() == []
    with pytest.raises(ValueError, match="one length"):
        table.find_many(ORDERS, [1, 2], [1])


def test_next_segment_with_a_transaction_index_stops_at_a_gap(table: SegmentTable) -> None:
    """A read_committed fetch collects aborted transactions through it."""
    for n, (start, end, empty) in enumerate([(0, 9, True), (10, 19, True), (20, 29, False), (40, 49, False)]):
        table.put(segment(n, start, end, state=FINISHED, txn_idx_empty=empty))
    for offset, found in [(0, 2), (15, 2), (20, 2), (30, None), (45, 3), (60, None)]:
        answer = table.next_with_txn_index(ORDERS, 0, offset)
        assert (answer and answer.remote_log_segment_id) == (None if found is None else segment_id(found))
    table.put(segment(9, 2**63 - 5, 2**63 - 1, {7: 2**63 - 5}, state=FINISHED, txn_idx_empty=True))
    assert table.next_with_txn_index(ORDERS, 7, 2**63 - 2) is None


def test_an_epoch_that_begins_behind_its_segment_holds_nobody_up(table: SegmentTable) -> None:
    """If this fails, one record of the topic keeps a thread of the broker busy for ever."""
    table.put(segment(1, 5, 7, {0: 5, 1: 2**40}, state=FINISHED, txn_idx_empty=True))
    assert table.next_with_txn_index(ORDERS, 0, 8) is None
    assert table.next_with_txn_index(ORDERS, 0, 2**39) is None


@pytest.mark.parametrize("longer_first", [True, False])
def test_an_epoch_that_begins_behind_its_end_hides_nothing(table: SegmentTable, longer_first: bool) -> None:
    """What a leader has copied so far is the highest offset: one too low is copied again, or kept on disk for ever."""
    longer = segment(1, 20, 24, {6: 20}, state=FINISHED)
    malformed = segment(2, 10, 22, {6: 50, 7: 23}, state=FINISHED)  # of epoch 6: 50 to 22
    for put in (longer, malformed) if longer_first else (malformed, longer):
        table.put(put)
    assert table.highest_offset(ORDERS, 6) == 24
    assert table.find_many(ORDERS, [6, 6], [24, 50])[0].tolist() == [True, False]
    table.apply_record(update(1, DELETING))
    table.apply_record(update(1, DELETED))
    assert table.highest_offset(ORDERS, 6) == 24


def test_kafkas_displaced_segment_comes_back_when_it_is_finished_again() -> None:
    """A broker that repeats its update finds in Kafka's cache what the repeat brought back, and so it must in ours."""
    with SegmentTable(as_kafka=True) as table:
        table.assign(ORDERS)
        table.put(segment(1, 5, 9, {0: 5}, state=FINISHED))
        table.put(segment(2, 0, 20, {0: 0}, state=FINISHED))
        assert table.find(ORDERS, 0, 7) == segment(2, 0, 20, {0: 0}, state=FINISHED)
        table.apply_record(update(1, FINISHED))
        assert table.find(ORDERS, 0, 7) == table.get(segment_id(1))
        assert (table.find(ORDERS, 0, 15), table.highest_offset(ORDERS, 0)) == (None, 20)
        assert len(list(table.list(ORDERS, 0))) == 2


def test_a_closed_table_says_so_and_calls_under_way_end_first() -> None:
    """A broker shuts down while requests are being answered."""
    for _ in range(5):
        table = SegmentTable()
        table.assign(ORDERS)
        table.put(segment(1, 0, 9, state=FINISHED))
        run = run_of([event for n in range(2, 4000) for event in (segment(n, 10 * n, 10 * n + 9), update(n, FINISHED))])
        ended: list[BaseException] = []

        def ask(table: SegmentTable = table, ended: list[BaseException] = ended) -> None:
            try:
                while True:
                    table.find(ORDERS, 0, 5)
                    table.columns(ORDERS)
            except ValueError as error:
                ended.append(error)

        threads = [threading.Thread(target=ask) for _ in range(2)]

        def write(table: SegmentTable = table, run: MetadataValues = run) -> None:
            with suppress(ValueError):  # closed before it began
                table.apply(run)

        threads.append(threading.Thread(target=write))
        for thread in threads:
            thread.start()
        table.close()
        table.close()
        for thread in threads:
            thread.join(30)
        assert len(ended) == 2
        assert table.closed
    for call in (
        lambda: table.find(ORDERS, 0, 0),
        lambda: table.get(segment_id(1)),
        lambda: table.highest_offset(ORDERS, 0),
        lambda: table.columns(ORDERS),
        lambda: table.find_many(ORDERS, [0], [0]),
        lambda: table.size_in_bytes(ORDERS, 0),
        lambda: table.version(ORDERS),
        table.partitions,
        lambda: table.figures,
        lambda: table.assign(ORDERS),
        lambda: table.put(segment(1, 0, 9)),
        lambda: table.apply(run_of([segment(1, 0, 9)])),
    ):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_a_table_that_is_settled_answers_as_before(table: SegmentTable) -> None:
    """Huge pages are made under cells that are in use: a few megabytes of segments, so that there is one to be made."""
    for number in range(2_000):
        table.apply_record(segment(number, 100 * number, 100 * number + 99, {0: 100 * number}, custom=bytes(2_000)))
    before = list(table.list(ORDERS))
    for _ in range(1_000):
        if not table.settle():
            break
    else:
        pytest.fail("there is always one more page")
    assert list(table.list(ORDERS)) == before
    assert len(before) == 2_000
