"""The judge's own reading of bytes: batches, records of the metadata topic, lineages."""

from __future__ import annotations

import pathlib

import pytest

from tests.simulation.judge import batches as judged
from tests.simulation.judge.lineage import divergence, epoch_of
from tests.simulation.judge.segments import (
    DELETING,
    FINISHED,
    STARTED,
    Change,
    PartitionChange,
    Segment,
    SegmentTable,
    UnreadableRecordError,
    decode,
)
from tests.support.batches import Batch, encode

ADDED = bytes.fromhex(
    "010000076f72646572730123456789abcdef112233445566778800000003000a0b0c0d0e0f1011202122232425262700"
    "00000000000000000000000000000064000000010000018bcfe568000000018bcfe5687b04000000000000000000000000"
    "00000000010000000000000014000000000200000000000000500000000400000000"
)
FINISHING = bytes.fromhex(
    "010100076f72646572730123456789abcdef112233445566778800000003000a0b0c0d0e0f1011202122232425262700"
    "000000010000018bcfe569c8000100"
)
MARKED = bytes.fromhex("010200076f72646572730123456789abcdef11223344556677880000000300000000010000018bcfe56b150000")
PARTITION = (bytes.fromhex("0123456789abcdef1122334455667788"), 3)
SEGMENT_ID = bytes.fromhex("0a0b0c0d0e0f10112021222324252627")


def test_batches_are_read() -> None:
    """Otherwise the judge compares what it misread."""
    data = encode(Batch(5, (b"a", None, b"c"), epoch=2, keys=(b"k", b"l", None), headers=((b"h", None),)))
    data += encode(Batch(8, (), producer_id=9, producer_epoch=1, marker="abort"))
    data += encode(Batch(8, (b"x",), producer_id=9, producer_epoch=1, marker="abort"))
    first, emptied, marker = judged.parse(data)
    assert (first.base_offset, first.last_offset, first.leader_epoch, first.count) == (5, 7, 2, 3)
    assert [(each.offset, each.key, each.value) for each in first.records()] == [
        (5, b"k", b"a"),
        (6, b"l", None),
        (7, None, b"c"),
    ]
    assert first.is_sound()
    assert not first.is_control
    assert (emptied.records(), emptied.is_control, emptied.is_commit) == ((), True, None)
    assert marker.is_control
    assert marker.is_commit is False
    assert marker.producer_id == 9


def test_what_is_no_batch_is_not_read() -> None:
    """Otherwise damage looks like records that are missing."""
    data = encode(Batch(5, (b"abc",)))
    for broken in (data[:-1], data + b"\0", data[:16] + b"\1" + data[17:]):
        with pytest.raises(judged.UnreadableBatchError):
            judged.parse(broken)
    (batch,) = judged.parse(data[:-3] + b"\xff" + data[-2:])
    assert not batch.is_sound()


def test_read_committed_skips_what_was_aborted() -> None:
    """Otherwise the judge takes an aborted record for a read one, or misses that it was read."""
    ours = {"producer_id": 1, "transactional": True}
    data = [
        encode(Batch(0, (b"old",), **ours)),
        encode(Batch(1, (b"x",), producer_id=1, marker="commit")),
        encode(Batch(2, (b"bad",), **ours)),
        encode(Batch(3, (b"plain",))),
        encode(Batch(4, (b"x",), producer_id=1, marker="abort")),
        encode(Batch(5, (b"new",), **ours)),
    ]
    found = judged.visible(judged.parse(b"".join(data)), [(1, 2)], 0)
    assert [each.value for each in found] == [b"old", b"plain", b"new"]


def test_metadata_records_are_read() -> None:
    """Otherwise the judge does not know what is in the tier."""
    added = decode(ADDED)
    assert added == Segment(SEGMENT_ID, PARTITION, 0, 100, 1700000000000, 1024, ((0, 0), (1, 20), (2, 80)), 1, STARTED)
    assert decode(FINISHING) == Change(SEGMENT_ID, PARTITION, 1, FINISHED)
    assert decode(MARKED) == PartitionChange(PARTITION, 0)
    for broken in (ADDED[:-1], ADDED + b"\0", b"\0" + ADDED[1:], b"\1\4" + ADDED[2:], b""):
        with pytest.raises(UnreadableRecordError):
            decode(broken)


def _states(*states: int) -> tuple[SegmentTable, Segment | None]:
    table, last = SegmentTable(), None
    for state in states:
        last = table.apply(ADDED if state == STARTED else FINISHING[:-2] + bytes([state, 0]))
    return table, last


def test_states_change_as_kafkas_do() -> None:
    """Otherwise a zombie's FINISHED, which nobody follows, counts for the judge."""
    assert _states(FINISHED)[1] is None, "of nothing"
    table, last = _states(STARTED, DELETING, FINISHED)
    assert last is None
    assert table.segments[SEGMENT_ID].state == DELETING
    table, last = _states(STARTED, FINISHED, DELETING, 3, STARTED)
    assert last is None
    assert not table.segments
    assert table.deleted == {SEGMENT_ID}
    assert _states(STARTED, 3)[1] is None


def test_holes_are_found_by_epoch() -> None:
    """Otherwise a segment of an abandoned branch covers offsets that are another epoch's."""
    table, _ = _states(STARTED, FINISHED)
    own = ((0, 0), (1, 20), (2, 80))
    assert table.hole(PARTITION, own, 0, 101) is None
    assert table.hole(PARTITION, own, 0, 102) == 101
    assert table.hole(PARTITION, own, 50, 90) is None
    assert table.hole(PARTITION, ((0, 0), (1, 20), (3, 60)), 0, 101) == 60
    assert table.hole(PARTITION, ((0, 0), (1, 30)), 0, 50) == 20
    assert _states(STARTED)[0].hole(PARTITION, own, 0, 1) == 0


def test_segments_of_a_log_are_found_by_epoch() -> None:
    """Otherwise retention is judged over another branch's segments, or without one that reaches back in front of a log
    whose first segments have gone.
    """
    table, _ = _states(STARTED, FINISHED)
    for lineage, end, is_within in (
        (((0, 0), (1, 20), (2, 80)), 101, True),
        (((0, 0), (1, 20), (2, 80)), 100, False),
        (((1, 50), (2, 80)), 101, True),
        (((2, 90),), 200, True),
        (((1, 50), (2, 70)), 101, False),
        (((0, 0), (2, 80)), 101, False),
        (((3, 0),), 101, False),
        ((), 101, False),
    ):
        assert bool(table.finished_within(PARTITION, lineage, end)) == is_within, lineage


def test_lineages_diverge_where_epochs_do() -> None:
    """Otherwise the judge does not know what an unclean election took."""
    own = ((0, 0), (2, 10), (5, 20))
    assert epoch_of(own, 9) == 0
    assert epoch_of(own, 10) == 2
    assert epoch_of(((2, 10),), 9) == -1
    assert divergence(own, 30, own, 25, 0) == 25
    assert divergence(own, 30, ((0, 0), (3, 15)), 30, 0) == 10
    assert divergence(own, 30, ((0, 0), (2, 10), (4, 15)), 30, 0) == 15
    assert divergence(own, 30, ((5, 22),), 30, 22) == 30
    assert divergence(own, 12, own, 12, 15) == 15


def test_the_judge_imports_nothing_of_the_engine() -> None:
    """Otherwise both have the same mistake, and agree."""
    for path in pathlib.Path(judged.__file__).parent.glob("*.py"):
        lines = path.read_text().splitlines()
        assert not [line for line in lines if line.startswith(("import tierlog", "from tierlog"))], path.name
