"""Listings that take more than one page of rows."""

from __future__ import annotations

import pytest

from tests.contract.metadata_events import PARTITION, ids, segment
from tierlog._native.segments import SEGMENT_DTYPE
from tierlog.remote.metadata.segment_table import SegmentTable


@pytest.mark.parametrize("as_kafka", [True, False])
@pytest.mark.parametrize("epoch", [None, 0])
def test_every_segment_is_listed(as_kafka: bool, epoch: int | None) -> None:
    """Numpy packs rows that it joins: most segments of a long listing were left out, and memory behind it was read."""
    count = 5000
    with SegmentTable(as_kafka=as_kafka) as table:
        table.assign(PARTITION)
        for number in range(1, count + 1):
            table.apply_record(segment(number, number, number))
        assert ids(table.list(PARTITION, epoch)) == list(range(1, count + 1))
        assert table.columns(PARTITION, epoch).dtype.itemsize == SEGMENT_DTYPE.itemsize
