"""Filters: what is absorbed is exact, since Spark evaluates it no more; what is not exact goes back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as spark

from pyspark_tierlog.pushdown import absorb
from tierlog.scan.scan_request import RecordFilter

if not hasattr(spark, "EqualTo"):
    pytest.skip("Spark 4.0 has no filters for Python data sources", allow_module_level=True)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KINDS = {
    spark.EqualTo: lambda x, v: x == v,
    spark.EqualNullSafe: lambda x, v: x == v,
    spark.GreaterThan: lambda x, v: x > v,
    spark.GreaterThanOrEqual: lambda x, v: x >= v,
    spark.LessThan: lambda x, v: x < v,
    spark.LessThanOrEqual: lambda x, v: x <= v,
    spark.In: lambda x, v: x in v,
}


def passes(record_filter: RecordFilter, partition: int, offset: int, timestamp_ms: int) -> bool:
    return (
        (record_filter.partitions is None or partition in record_filter.partitions)
        and record_filter.first_offset <= offset < record_filter.end_offset_exclusive
        and record_filter.first_timestamp_ms <= timestamp_ms < record_filter.end_timestamp_exclusive_ms
    )


def filters() -> st.SearchStrategy[Any]:
    numbers = st.integers(-3, 12)
    moments = st.integers(-3_000, 12_000).map(lambda us: EPOCH + timedelta(microseconds=us))

    def of(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        compared = st.builds(
            lambda kind, value: kind((column,), value),
            st.sampled_from([kind for kind in KINDS if kind is not spark.In]),
            values,
        )
        among = st.lists(values, min_size=1, max_size=4).map(lambda some: spark.In((column,), some))
        return st.one_of(compared, among)

    return st.one_of(of("partition", numbers), of("offset", numbers), of("timestamp", moments))


@given(st.lists(filters(), max_size=4), st.integers(0, 9), st.integers(0, 9), st.integers(-1, 9))
def test_the_bounds_and_what_is_left_say_what_was_asked(
    asked: list[Any], partition: int, offset: int, timestamp_ms: int
) -> None:
    """A bound that is one off loses rows or gives too many, and nobody evaluates the filter again."""
    row = {"partition": partition, "offset": offset, "timestamp": EPOCH + timedelta(milliseconds=timestamp_ms)}
    bounds, left = absorb(asked, RecordFilter())
    wanted = all(KINDS[type(each)](row[each.attribute[0]], each.value) for each in asked)
    after = passes(bounds, partition, offset, timestamp_ms) and all(
        KINDS[type(each)](row[each.attribute[0]], each.value) for each in left
    )
    assert after == wanted


@pytest.mark.parametrize(
    "offered",
    [
        spark.EqualTo(("value",), b"x"),
        spark.EqualTo(("headers", "key"), "x"),
        spark.EqualTo(("offset",), "7"),
        spark.EqualTo(("partition",), None),
        spark.EqualNullSafe(("offset",), None),
        spark.In(("partition",), [1, None]),
        spark.In(("partition",), []),
        spark.EqualTo(("timestamp",), datetime(2024, 1, 1)),  # noqa: DTZ001  the point: no zone
        spark.EqualTo(("partition",), True),
        spark.Not(spark.EqualTo(("partition",), 3)),
        spark.IsNotNull(("key",)),
        spark.IsNull(("offset",)),
        spark.StringStartsWith(("topic",), "a"),
    ],
)
def test_what_is_not_understood_goes_back_untouched(offered: Any) -> None:
    """Spark drops a filter that is not returned: the rows would be wrong."""
    bounds, left = absorb([offered], RecordFilter())
    assert left == [offered]
    assert left[0] is offered
    assert bounds == RecordFilter()


def test_columns_that_are_never_null_need_no_check() -> None:
    """Spark offers IsNotNull beside every comparison; returned, it costs a pass over the rows."""
    assert absorb([spark.IsNotNull(("offset",)), spark.IsNotNull(("timestamp",))], RecordFilter())[1] == []


def test_a_range_of_partitions_is_exact() -> None:
    """Partition >= 2 AND partition < 4 must not fetch partition 1."""
    bounds, left = absorb(
        [spark.GreaterThanOrEqual(("partition",), 2), spark.LessThan(("partition",), 4)], RecordFilter()
    )
    assert left == []
    assert bounds.partitions is not None
    assert [p for p in range(10) if p in bounds.partitions] == [2, 3]


def test_topics_are_kept_exactly() -> None:
    """Where topic = 'a' over a pattern of hundred topics must not fetch ninety-nine of them."""
    asked = [spark.In(("topic",), ["a", "b"]), spark.EqualTo(("topic",), "b"), spark.GreaterThan(("topic",), "a")]
    bounds, left = absorb(asked, RecordFilter())
    assert left == asked[2:]
    assert [topic for topic in "abc" if bounds.admits(topic, 0)] == ["b"]
    assert not absorb([spark.EqualTo(("topic",), "c")], bounds)[0].admits("b", 0)


def test_bounds_stay_within_64_bits() -> None:
    """Offset > 2^63 - 1 is no row, not an overflow in the core."""
    bounds, left = absorb([spark.GreaterThan(("offset",), 2**63 - 1)], RecordFilter())
    assert left == []
    assert 2**63 > bounds.first_offset >= bounds.end_offset_exclusive
