"""The reader of a batch read that brokers answer too: from the tier up to the seam, from brokers behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_tierlog.columns import checked_schema
from pyspark_tierlog.plain_errors import told_in_one_line
from pyspark_tierlog.reader import takes_filters
from pyspark_tierlog.request import EVERYTHING
from pyspark_tierlog.stream.task_rows import TaskRows

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from pyspark_tierlog.options.source_options import ReadOptions


class SeamedReader(DataSourceReader):
    """Plans on the driver, when each query runs; reads on executors. Made by :func:`make_seamed_reader`.

    Raises:
        ConfigError: the schema does not fit.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._rows = TaskRows.of(options, checked_schema(options, schema))
        self._options: ReadOptions | None = options
        self._filter = EVERYTHING

    def __getstate__(self) -> dict[str, object]:
        """Return the state that an executor needs."""
        return self.__dict__ | {"_options": None}

    @told_in_one_line()
    def partitions(self) -> Sequence[InputPartition]:
        """Find the ends, and cut what lies between them into tasks.

        Raises:
            TierlogError: of the kinds of SeamedStream.
        """
        from pyspark_tierlog.stream.seamed_stream import SeamedStream
        from pyspark_tierlog.stream.stream_tasks import plan_tasks

        assert self._options is not None, "planned on the driver only"
        given = self._options
        with SeamedStream(given) as stream:
            start = stream.find_offsets(
                given.first_offsets(), given.starting_timestamp, given.starting_offsets_by_timestamp
            )
            end = stream.find_offsets(
                given.ending_offsets, given.ending_timestamp, given.ending_offsets_by_timestamp, strategy="latest"
            )
            # A partition that is added between the two questions is newer than the read.
            ends = {place: max(end.get(place, first), first) for place, first in start.items()}
            return plan_tasks(stream, start, ends, self._filter)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, as Arrow record batches under the promised schema."""
        with told_in_one_line():
            yield from self._rows.read(partition)


class PushdownSeamedReader(SeamedReader):
    """A SeamedReader that takes filters; see ``PushdownReader``."""

    @told_in_one_line()
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Leave out of the tier's part what does not pass them; Spark applies all, since brokers know none."""
        from pyspark_tierlog.pushdown import absorb

        self._filter, _ = absorb(filters, self._filter)
        return filters


def make_seamed_reader(options: ReadOptions, schema: StructType) -> SeamedReader:
    """Make the reader for the planner process that calls. Raises ConfigError: the schema does not fit."""
    kind = PushdownSeamedReader if takes_filters(options.push_down_predicate) else SeamedReader
    return kind(options, schema)
