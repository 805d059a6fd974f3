"""Bounds of records from an expression of pyarrow's, found by asking pyarrow.

An expression cannot be taken apart. But pyarrow says of a dataset's fragment whether an expression may hold for rows of
which some facts are known, which is how it leaves out files: asked for ranges of offsets and of time, it says where the
first and last record lies that may be wanted. What it does not understand it does not leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs

from tierlog.scan.scan_request import RecordFilter

_OFFSETS: Final = (0, 2**63 - 1)
#: ms since 1970, some hundred million years to both sides.
_TIMES_MS: Final = (-(2**62), 2**62)
_FORMAT: Final = ds.IpcFileFormat()
_TIME: Final = pa.timestamp("ms", tz="UTC")


class ExpressionBounds:
    """What an expression leaves of records.

    Args:
        expression: Over columns of the records; None: all.
        schema: Theirs.
    """

    def __init__(self, expression: ds.Expression | None, schema: pa.Schema) -> None:
        self._expression = expression
        self._schema = schema
        self._files = pyarrow.fs.LocalFileSystem()

    def may_hold(self, known: ds.Expression) -> bool:
        """Whether the expression may hold for a record of which another one is known."""
        if self._expression is None:
            return True
        fragment = _FORMAT.make_fragment("unread", filesystem=self._files, partition_expression=known)
        asked = ds.FileSystemDataset([fragment], self._schema, _FORMAT, filesystem=self._files)
        return any(True for _ in asked.get_fragments(filter=self._expression))

    def narrowed(self, base: RecordFilter, places: Iterable[tuple[str, int]]) -> RecordFilter | None:
        """Narrow a filter to what may be wanted; None: nothing is.

        Args:
            base: Already holds.
            places: The topics and partitions that there are.
        """
        topic, partition = ds.field("topic"), ds.field("partition")
        wanted = [each for each in places if self.may_hold((topic == each[0]) & (partition == each[1]))]
        offsets = self._hull(_OFFSETS, lambda low, high: _between("offset", low, high))
        times = self._hull(_TIMES_MS, lambda low, high: _between("timestamp", _moment(low), _moment(high)))
        if not wanted or offsets is None or times is None:
            return None
        numbers = frozenset(number for _, number in wanted)
        narrowed = replace(
            base,
            topics=frozenset(name for name, _ in wanted),
            partitions=numbers if base.partitions is None else numbers & frozenset(base.partitions),
            first_offset=max(base.first_offset, offsets[0]),
            end_offset_exclusive=min(base.end_offset_exclusive, offsets[1] + 1),
        )
        if times[0] > _TIMES_MS[0]:  # else not even a bound of time is asked for
            narrowed = replace(narrowed, first_timestamp_ms=max(base.first_timestamp_ms, times[0]))
        if times[1] < _TIMES_MS[1]:
            narrowed = replace(narrowed, end_timestamp_exclusive_ms=min(base.end_timestamp_exclusive_ms, times[1] + 1))
        return narrowed

    def _hull(self, all_of: tuple[int, int], between: Callable[[int, int], ds.Expression]) -> tuple[int, int] | None:
        """The least and greatest value that may be wanted; None: none may."""
        low, high = all_of
        if not self.may_hold(between(low, high)):
            return None
        first = _least(low, high, lambda at: self.may_hold(between(low, at)))
        last = -_least(-high, -first, lambda at: self.may_hold(between(-at, high)))
        return first, last


def _least(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The least number in [low, high] from which on something holds, which does at ``high``."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _between(name: str, low: object, high: object) -> ds.Expression:
    return (ds.field(name) >= low) & (ds.field(name) <= high)


def _moment(milliseconds: int) -> pa.Scalar:
    return pa.scalar(milliseconds, _TIME)
