"""The reader of a stream that this version of Spark can use."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_tierlog.plain_errors import told_in_one_line
from pyspark_tierlog.stream.stream_reader import TierlogStreamReader
from pyspark_tierlog.stream.trigger_limits import trigger_limits
from tierlog.errors import ConfigError, TierlogError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_tierlog.options.source_options import ReadOptions


class RefusedStream(DataSourceStreamReader):
    """A stream whose first call raises why there is none.

    Making it must not raise: PySpark 4.x would then stop a reader that it does not have, and show that error.
    """

    def __init__(self, error: TierlogError) -> None:
        self._error = error

    @told_in_one_line()
    def initialOffset(self) -> NoReturn:  # noqa: N802  Spark's name
        raise self._error

    @told_in_one_line()
    def latestOffset(self, start: object = None, limit: object = None) -> NoReturn:  # noqa: N802, ARG002  Spark's name
        raise self._error

    @told_in_one_line()
    def partitions(self, start: object, end: object) -> NoReturn:  # noqa: ARG002  Spark's signature
        raise self._error

    @told_in_one_line()
    def read(self, partition: InputPartition) -> NoReturn:  # noqa: ARG002  Spark's signature
        raise self._error


def make_stream_reader(options: ReadOptions, schema: StructType) -> DataSourceStreamReader:
    """Make the reader for this version of Spark. Where the options are not those of a stream, ask for more than this
    version can, or the schema does not fit, its first call raises the ConfigError.
    """
    try:
        return _made(options, schema)
    except TierlogError as error:
        return RefusedStream(error)


def _made(options: ReadOptions, schema: StructType) -> TierlogStreamReader:
    try:
        from pyspark_tierlog.stream.limited_reader import LimitedStreamReader
    except ImportError:
        limits = trigger_limits(options)
        if limits.max_offsets is not None or limits.min_offsets is not None:
            text = "maxOffsetsPerTrigger and minOffsetsPerTrigger need the jar or Spark 4.2"
            raise ConfigError(f"{text}, this is {pyspark.__version__}") from None
        return TierlogStreamReader(options, schema)
    return LimitedStreamReader(options, schema)
