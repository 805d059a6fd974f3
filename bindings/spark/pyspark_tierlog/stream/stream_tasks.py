"""The tasks of a batch of a stream, on the driver of the Python path."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.datasource import InputPartition

from pyspark_tierlog.options.source_options import ReadOptions
from pyspark_tierlog.request import EVERYTHING
from pyspark_tierlog.stream.seamed_stream import SeamedStream
from pyspark_tierlog.stream.stream_offsets import StreamOffsets
from pyspark_tierlog.stream.tier_stream import TierStream
from pyspark_tierlog.tasks import StreamTask
from tierlog.scan.scan_request import RecordFilter


def open_stream(options: ReadOptions) -> TierStream | SeamedStream:
    """Open the stream that the options name. Raises: as it does."""
    return SeamedStream(options) if options.asks_brokers else TierStream(options)


def plan_tasks(
    stream: TierStream | SeamedStream,
    start: StreamOffsets,
    end: StreamOffsets,
    record_filter: RecordFilter = EVERYTHING,
) -> Sequence[InputPartition]:
    """Plan a batch of a stream. Raises: as its ``plan``."""
    if isinstance(stream, SeamedStream):
        scan, brokers = stream.plan(start, end, record_filter=record_filter)
        tier = stream.tier_stream
    else:
        scan, brokers, tier = stream.plan(start, end, record_filter=record_filter), (), stream
    tasks: list[InputPartition] = []
    if scan is not None and tier is not None:
        tasks += [StreamTask(tier.tier.layout, ranges) for ranges in scan.iter_tasks()]
        stream.told(scan.warnings)
    return [*tasks, *brokers]
