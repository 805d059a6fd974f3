"""The error message of writes to this source, which is only read."""

from __future__ import annotations

from typing import NoReturn

from pyspark_tierlog.plain_errors import told_in_one_line
from pyspark_tierlog.spark_workers import runs_worker

_WRITE_WORKER = "pyspark.sql.worker.write_into_data_source"
# The jar says the same (Purpose.java).
_WRITES = "tierlog only reads: a tier is written by Kafka's brokers, or by the command tierlog copy"


def is_written_to() -> bool:
    """Whether Spark asks for a writer in this process: then the options are not those of a reader."""
    return runs_worker(_WRITE_WORKER)


@told_in_one_line()
def refuse_writing() -> NoReturn:
    """Raise ConfigError, always: this source is only read."""
    from tierlog.errors import ConfigError

    raise ConfigError(_WRITES)
