"""Spark's Python interface of a stream from Spark 4.2 on: limits of a trigger, AvailableNow, and the lag."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_tierlog.plain_errors import told_in_one_line
from pyspark_tierlog.stream.stream_offsets import JsonOffsets, StreamOffsets, from_json, to_json
from pyspark_tierlog.stream.stream_reader import TierlogStreamReader


class LimitedStreamReader(TierlogStreamReader, SupportsTriggerAvailableNow):
    """A TierlogStreamReader whose batches are limited. Defining these methods where Spark does not know them is an
    error to Spark.
    """

    _final: StreamOffsets | None = None
    _ends: StreamOffsets | None = None

    @told_in_one_line()
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Return a limit that the options give: Spark has none of both kinds, and the options say the rest."""
        limits = self._limits()
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        return ReadAllAvailable() if limits.min_offsets is None else ReadMinRows(limits.min_offsets)

    @told_in_one_line()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Fix the end of the query: what the tier has now."""
        self._final = self._ends = self._stream().tier_ends(is_fresh=True)

    @told_in_one_line()
    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # type: ignore[override]  # noqa: N802
        """Return the end of the next batch."""
        stream = self._stream()
        limits = None if isinstance(limit, ReadAllAvailable) else self._limits()
        if self._final is None:
            self._ends = stream.tier_ends()
        begun = from_json(start)
        end = stream.next_offsets(begun, limits, final=self._final)
        if not self._has_batch and begun == self._initial:
            end = {
                place: begun[place] if self._begins_now(place) else offset
                for place, offset in end.items()
                if place in begun or not self._begins_now(place)
            }
        return to_json(end)

    def reportLatestOffset(self) -> JsonOffsets | None:  # noqa: N802  Spark's name
        """Return the end of the tier as it was seen last, for the query's progress."""
        return None if self._ends is None else to_json(self._ends)
