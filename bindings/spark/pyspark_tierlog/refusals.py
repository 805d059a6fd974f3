"""Error messages for streams from this source of batches, and for writes to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from pyspark_tierlog.plain_errors import told_in_one_line
from pyspark_tierlog.spark_workers import runs_worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.datasource import InputPartition

_WRITE_WORKER = "pyspark.sql.worker.write_into_data_source"
# The jar says the same (Purpose.java).
_STREAMS = "tierlog does not stream in this version: use spark.read instead of spark.readStream"
_WRITES = "tierlog only reads: a tier is written by Kafka's brokers, or by the command tierlog copy"


def is_written_to() -> bool:
    """Whether Spark asks for a writer in this process: then the options are not those of a reader."""
    return runs_worker(_WRITE_WORKER)


@told_in_one_line()
def refuse_writing() -> NoReturn:
    """Raise ConfigError, always: this source is only read."""
    from tierlog.errors import ConfigError

    raise ConfigError(_WRITES)


@told_in_one_line()
def refuse_streaming() -> NoReturn:
    """Raise ConfigError, always: this source has no streams."""
    from tierlog.errors import ConfigError

    raise ConfigError(_STREAMS)


class NoStream(DataSourceStreamReader):
    """A stream whose first call raises that this source has no streams.

    ``streamReader`` itself must not raise it: PySpark 4.x would then stop a reader that it does not have, and show that
    error. Before, in ``load()``, a Python source cannot see that it is used as a stream.
    """

    def initialOffset(self) -> NoReturn:  # noqa: N802  Spark's name
        refuse_streaming()

    def latestOffset(self, start: object = None, limit: object = None) -> NoReturn:  # noqa: N802, ARG002  Spark's name
        refuse_streaming()

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:  # noqa: ARG002
        refuse_streaming()

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:  # noqa: ARG002
        refuse_streaming()
