"""Filters that the plan can apply exactly, so that segments and batches outside of them are never fetched.

Comparisons of ``topic``, ``partition``, ``offset`` and ``timestamp`` with a literal become bounds of the scan. A filter
that only narrows the bounds (``offset IN (1, 5)``) is used and also returned to Spark, which evaluates it again.

Both paths end in ``tighten``: Spark's own filter classes through ``absorb``, the jar's through the plan protocol.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tierlog.scan.scan_request import RecordFilter

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_INT64_MAX = 2**63 - 1
_PARTITION_END = 2**31
_COLUMNS = ("topic", "partition", "offset", "timestamp")
_OPERATIONS = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "In": "in",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison with literals.

    Attributes:
        column: Name of the column.
        operation: ``=``, ``in``, ``<``, ``<=``, ``>`` or ``>=``.
        values: One value, or those of ``in``: str for the topic, else int (timestamps in microseconds since 1970, UTC).
    """

    column: str
    operation: str
    values: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class _Interval:
    """The values of one column that a filter lets through, inclusive, in the column's unit (timestamps: µs).

    Attributes:
        least, most: The bounds; None for no bound.
        exact: Every value in the interval passes the filter, and no other does.
    """

    least: int | None = None
    most: int | None = None
    exact: bool = True


def absorb(
    filters: Iterable[Filter], record_filter: RecordFilter, *, table: str = "records"
) -> tuple[RecordFilter, list[Filter]]:
    """Tighten a record filter by the filters that Spark offers.

    Args:
        filters: Filters that all rows of the result must pass (Spark joins them by AND).
        record_filter: The record filter so far.
        table: The table. For tables other than ``records`` only topic and partition are known before they are read.

    Returns:
        The tightened filter, and the filters that Spark has to evaluate after the scan, in their order.
    """
    left: list[Filter] = []
    columns = _COLUMNS if table == "records" else ("topic", "partition")
    for offered in filters:
        kind, column = type(offered).__name__, ".".join(getattr(offered, "attribute", ()))
        if column not in columns:
            left.append(offered)
            continue
        if kind == "IsNotNull":
            continue  # these columns have a value in every row
        exact = False
        values = _literals_of(getattr(offered, "value", None), column)
        if values and kind in _OPERATIONS:
            record_filter, exact = tighten(record_filter, Comparison(column, _OPERATIONS[kind], values))
        if not exact:
            left.append(offered)
    return record_filter, left


def tighten(record_filter: RecordFilter, comparison: Comparison) -> tuple[RecordFilter, bool]:
    """Return a record filter narrowed by a comparison, and whether the narrowed filter is equivalent to it.

    If not, the comparison has to be evaluated again on the rows of the scan.
    """
    column, operation, values = comparison.column, comparison.operation, comparison.values
    names = frozenset(value for value in values if isinstance(value, str))
    if column == "topic":
        if operation not in ("=", "in") or len(names) < len(frozenset(values)):
            return record_filter, False
        known = record_filter.topics
        return replace(record_filter, topics=names if known is None else known & names), True
    numbers = frozenset(value for value in values if isinstance(value, int))
    if not numbers or names or column not in _COLUMNS:
        return record_filter, False
    if operation == "in" and column == "partition":
        return _with_partitions(record_filter, numbers), True
    interval = _interval_of(operation, numbers)
    if interval is None:
        return record_filter, False
    return _with_interval(record_filter, column, interval), interval.exact


def _literals_of(value: object, column: str) -> tuple[int | str, ...]:
    """Return the filter's literals in the column's unit; empty if one is not of the column's type."""
    literals = list(value) if isinstance(value, (tuple, list)) else [value]
    if column == "topic":
        names = tuple(literal for literal in literals if isinstance(literal, str))
        return names if len(names) == len(literals) else ()
    numbers: list[int] = []
    for literal in literals:
        if column == "timestamp" and isinstance(literal, datetime) and literal.tzinfo is not None:
            numbers.append((literal - _EPOCH) // _MICROSECOND)
        elif column != "timestamp" and type(literal) is int:
            numbers.append(literal)
        else:
            return ()
    return tuple(numbers)


def _interval_of(operation: str, values: Collection[int]) -> _Interval | None:
    least, most = min(values), max(values)
    if operation == "=":
        return _Interval(least, most)
    if operation == "in":
        return _Interval(least, most, exact=len(values) == most - least + 1)
    if operation == ">":
        return _Interval(least=most + 1)
    if operation == ">=":
        return _Interval(least=most)
    if operation == "<":
        return _Interval(most=least - 1)
    if operation == "<=":
        return _Interval(most=least)
    return None


def _with_interval(record_filter: RecordFilter, column: str, interval: _Interval) -> RecordFilter:
    least, most = interval.least, interval.most
    if column == "partition":
        first = 0 if least is None else max(least, 0)
        end = _PARTITION_END if most is None else min(most + 1, _PARTITION_END)
        return _with_partitions(record_filter, range(first, end))
    if column == "offset":
        first_offset, end_offset = record_filter.first_offset, record_filter.end_offset_exclusive
        return replace(
            record_filter,
            first_offset=first_offset if least is None else min(max(first_offset, least), _INT64_MAX),
            end_offset_exclusive=end_offset if most is None else max(min(end_offset, most + 1), 0),
        )
    # Records have milliseconds: the first one at or after `least`, and the last one at or before `most`.
    first_ms, end_ms = record_filter.first_timestamp_ms, record_filter.end_timestamp_exclusive_ms
    return replace(
        record_filter,
        first_timestamp_ms=first_ms if least is None else max(first_ms, -(-least // 1000)),
        end_timestamp_exclusive_ms=end_ms if most is None else min(end_ms, most // 1000 + 1),
    )


def _with_partitions(record_filter: RecordFilter, allowed: frozenset[int] | range) -> RecordFilter:
    before = record_filter.partitions
    if isinstance(before, range) and isinstance(allowed, range):
        return replace(
            record_filter, partitions=range(max(before.start, allowed.start), min(before.stop, allowed.stop))
        )
    if before is None:
        return replace(record_filter, partitions=allowed)
    smaller, other = (allowed, before) if isinstance(allowed, frozenset) else (before, allowed)
    return replace(record_filter, partitions=frozenset(partition for partition in smaller if partition in other))
