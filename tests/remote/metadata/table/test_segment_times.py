"""Searches by time of a table's partitions."""

from __future__ import annotations

import pytest

from tests.contract.metadata_events import FINISHED, PARTITION, TIME, ids, segment, to
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.metadata.segment_row import SegmentColumns
from tierlog.remote.metadata.segment_table import SegmentTable


class CountedTable(SegmentTable):
    """A table that notes of which partitions all rows were copied out."""

    def __init__(self, **more: bool) -> None:
        super().__init__(**more)
        self.copied_out: list[int] = []

    def columns(self, partition: TopicIdPartition, epoch: int | None = None) -> SegmentColumns:
        self.copied_out.append(partition.partition)
        return super().columns(partition, epoch)


def numbered(number: int) -> TopicIdPartition:
    return TopicIdPartition(PARTITION.topic_id, PARTITION.topic, number)


def finish(table: SegmentTable, number: int, partition: TopicIdPartition = PARTITION) -> None:
    of = segment(number, number, number, partition=partition)
    table.apply_record(of)
    table.apply_record(to(of, FINISHED))


def from_time(table: SegmentTable, time: int, partition: TopicIdPartition = PARTITION) -> list[int]:
    return ids(table.list_from_time(partition, TIME + time, start_offset=0, end_offset_exclusive=1 << 40))


@pytest.mark.parametrize("as_kafka", [True, False])
def test_rows_are_copied_out_again_only_after_a_change(as_kafka: bool) -> None:
    with CountedTable(as_kafka=as_kafka) as table:
        table.assign(PARTITION)
        finish(table, 1)
        for time, found in ((0, [1]), (1, [1]), (2, [])):
            assert from_time(table, time) == found
        assert table.copied_out == [0]
        finish(table, 2)
        assert from_time(table, 2) == [2]
        assert from_time(table, 0) == [1, 2]
        assert table.copied_out == [0, 0]


def test_a_partition_that_is_assigned_again() -> None:
    """If this fails, the segments of before are looked for: searches find nothing."""
    with CountedTable() as table:
        table.assign(PARTITION)
        finish(table, 1)
        assert from_time(table, 0) == [1]
        table.unassign(PARTITION)
        assert from_time(table, 0) == []
        table.assign(PARTITION)
        finish(table, 2)
        assert from_time(table, 0) == [2]


def test_few_partitions_are_remembered() -> None:
    with CountedTable() as table:
        for number in range(70):
            table.assign(numbered(number))
            finish(table, 1, numbered(number))
            assert from_time(table, 0, numbered(number)) == [1]
        assert len(table.copied_out) == 70
        table.copied_out.clear()
        for number in (69, 6, 5):
            assert from_time(table, 0, numbered(number)) == [1]
        assert table.copied_out == [5]


def test_a_segment_that_goes_while_it_is_listed_is_left_out() -> None:
    with SegmentTable() as table:
        table.assign(PARTITION)
        finish(table, 1)
        finish(table, 2)
        listed = table.list_from_time(PARTITION, TIME, start_offset=0, end_offset_exclusive=9)
        assert ids([next(listed)]) == [1]
        table.unassign(PARTITION)
        assert list(listed) == []
