"""Spark's Python interface of a stream, over TierStream.

Spark asks the same class in two processes: in one for the driver, as long as the query runs, for offsets and tasks; in
another for the function that reads a task. Spark 4.0 and 4.1 know no limits of a trigger, and hand none over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_tierlog.columns import checked_schema
from pyspark_tierlog.options.offset_options import LATEST_OFFSET, TopicPartition
from pyspark_tierlog.plain_errors import told_in_one_line
from pyspark_tierlog.stream.stream_offsets import JsonOffsets, StreamOffsets, from_json, to_json
from pyspark_tierlog.stream.task_rows import TaskRows
from pyspark_tierlog.stream.trigger_limits import TriggerLimits, trigger_limits

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_tierlog.options.source_options import ReadOptions
    from pyspark_tierlog.stream.seamed_stream import SeamedStream
    from pyspark_tierlog.stream.tier_stream import TierStream

logger = logging.getLogger(__name__)


class TierlogStreamReader(DataSourceStreamReader):
    """Plans batches in the driver's process, reads on executors. Made by :func:`make_stream_reader`."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        options.check_stream()
        self._rows = TaskRows.of(options, checked_schema(options, schema))
        self._options: ReadOptions | None = options
        self._opened: TierStream | SeamedStream | None = None
        self._begun: StreamOffsets = {}
        self._first_end: StreamOffsets | None = None
        self._initial: StreamOffsets | None = None
        self._has_batch = False

    def __getstate__(self) -> dict[str, object]:
        """Return the state that an executor needs."""
        return self.__dict__ | {"_options": None, "_opened": None}

    @told_in_one_line()
    def initialOffset(self) -> JsonOffsets:  # noqa: N802  Spark's name
        """Return where a new query begins: not behind its first batch's end, for which Spark 4.0 and 4.1 ask before."""
        found, end = self._stream().initial_offsets(), self._first_end
        if end is not None:
            found = {place: min(offset, end[place]) for place, offset in found.items() if place in end}
        self._begun = self._initial = found
        return to_json(self._begun)

    @told_in_one_line()
    def latestOffset(self) -> JsonOffsets:  # type: ignore[override]  # noqa: N802  Spark's name, as of 4.0 and 4.1
        """Return the end of the next batch."""
        end = self._stream().next_offsets(self._begun)
        if not self._begun:
            self._first_end = end
        return to_json(end)

    @told_in_one_line()
    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        """Plan a batch."""
        stream, self._begun = self._stream(), from_json(end)
        from pyspark_tierlog.stream.stream_tasks import plan_tasks

        begun = from_json(start)
        first = self._before(begun, self._begun) if begun == self._initial else begun
        self._has_batch = True
        return plan_tasks(stream, first, self._begun)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, as Arrow record batches under the promised schema."""
        with told_in_one_line():
            yield from self._rows.read(partition)

    def stop(self) -> None:
        """Close the tier; Spark asks for nothing more."""
        stream, self._opened = self._opened, None
        if stream is not None:
            stream.close()

    def _stream(self) -> TierStream | SeamedStream:
        """The stream, opened when it is first needed: readers of tasks have none."""
        from pyspark_tierlog.stream.stream_tasks import open_stream

        if self._opened is None:
            assert self._options is not None, "planned on the driver only"
            self._opened = open_stream(self._options)
        return self._opened

    def _begins_now(self, place: TopicPartition) -> bool:
        """Whether a new query begins a partition at its end. Spark keeps no beginning of a Python source: asked again
        for a first batch that is tried again, it is another one. So that batch has nothing of the partition.
        """
        assert self._options is not None, "planned on the driver only"
        options = self._options
        if options.starting_timestamp is not None or options.starting_offsets_by_timestamp is not None:
            return False
        start = "latest" if options.starting_offsets is None else options.starting_offsets
        return (start if isinstance(start, str) else start.get(place)) in ("latest", LATEST_OFFSET)

    def _before(self, start: StreamOffsets, end: StreamOffsets) -> StreamOffsets:
        """Return where the first batch began, not behind its end, of which Spark asks when it is tried again."""
        return {
            place: min(offset, end.get(place, offset)) if self._begins_now(place) else offset
            for place, offset in start.items()
            if place in end or not self._begins_now(place)
        }

    def _limits(self) -> TriggerLimits:
        assert self._options is not None, "planned on the driver only"
        return trigger_limits(self._options)
