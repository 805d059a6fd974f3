"""Spark's Python interface of a stream, over TierStream.

Spark asks the same class in two processes: in one for the driver, as long as the query runs, for offsets and tasks; in
another for the function that reads a task. Spark 4.0 and 4.1 know no limits of a trigger, and hand none over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_tierlog.batches import conformed, joined
from pyspark_tierlog.columns import checked_schema
from pyspark_tierlog.plain_errors import told_in_one_line
from pyspark_tierlog.request import tier_config
from pyspark_tierlog.stream.stream_offsets import JsonOffsets, StreamOffsets, from_json, to_json
from pyspark_tierlog.stream.trigger_limits import TriggerLimits, trigger_limits
from pyspark_tierlog.tasks import TierLocation
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.scan_range import ScanRange

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_tierlog.options.source_options import ReadOptions
    from pyspark_tierlog.stream.tier_stream import TierStream

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamTask(InputPartition):
    """Neighbouring ranges of a tier of a layout, in order."""

    layout: str
    ranges: tuple[ScanRange, ...]


class TierlogStreamReader(DataSourceStreamReader):
    """Plans batches in the driver's process, reads on executors. Made by :func:`make_stream_reader`."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        options.check_stream()
        self._schema = checked_schema(options, schema)
        self._path = options.paths[0]
        self._config = tier_config(options)
        self._verify_checksums = options.verify_checksums
        self._options: ReadOptions | None = options
        self._opened: TierStream | None = None
        self._begun: StreamOffsets = {}

    def __getstate__(self) -> dict[str, object]:
        """Return the state that an executor needs."""
        return self.__dict__ | {"_options": None, "_opened": None}

    @told_in_one_line()
    def initialOffset(self) -> JsonOffsets:  # noqa: N802  Spark's name
        """Return where a new query begins."""
        self._begun = self._stream().initial_offsets()
        return to_json(self._begun)

    @told_in_one_line()
    def latestOffset(self) -> JsonOffsets:  # type: ignore[override]  # noqa: N802  Spark's name, as of 4.0 and 4.1
        """Return the end of the next batch."""
        return to_json(self._stream().next_offsets(self._begun))

    @told_in_one_line()
    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        """Plan a batch."""
        stream, self._begun = self._stream(), from_json(end)
        plan = stream.plan(from_json(start), self._begun)
        tasks = [StreamTask(stream.tier.layout, ranges) for ranges in plan.iter_tasks()]
        stream.told(plan.warnings)
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, as Arrow record batches under the promised schema."""
        with told_in_one_line():
            yield from joined(conformed(self._rows(partition), self._schema))

    def _rows(self, task: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(task, StreamTask):
            return
        with TierLocation(self._path, task.layout, self._config).opened() as tier:
            for scan_range in task.ranges:
                yield from read_scan_range(
                    tier,
                    scan_range,
                    columns=self._schema.names,
                    timestamp_unit="us",
                    verify_checksums=self._verify_checksums,
                )

    def stop(self) -> None:
        """Close the tier; Spark asks for nothing more."""
        stream, self._opened = self._opened, None
        if stream is not None:
            stream.close()

    def _stream(self) -> TierStream:
        """The stream, opened when it is first needed: readers of tasks have none."""
        from pyspark_tierlog.stream.tier_stream import TierStream

        if self._opened is None:
            assert self._options is not None, "planned on the driver only"
            self._opened = TierStream(self._options)
        return self._opened

    def _limits(self) -> TriggerLimits:
        assert self._options is not None, "planned on the driver only"
        return trigger_limits(self._options)
