"""The rows of a task of a stream, or of a read that brokers answer too. Executors import this, and not the planning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pyspark_tierlog.batches import conformed, joined
from pyspark_tierlog.options.source_options import ReadOptions
from pyspark_tierlog.request import broker_keys, tier_config
from pyspark_tierlog.tasks import BrokerTask, StreamTask
from tierlog.opening import TierLocation
from tierlog.scan.reading.read import read_scan_range


@dataclass(frozen=True)
class TaskRows:
    """Reads tasks. It is pickled with secrets that the user gave, as every reader.

    Attributes:
        schema: That Spark was promised.
    """

    path: str
    schema: pa.Schema
    verify_checksums: bool
    config: dict[str, str] = field(repr=False)
    brokers: dict[str, str] = field(repr=False)
    fail_on_data_loss: bool

    @classmethod
    def of(cls, options: ReadOptions, schema: pa.Schema) -> TaskRows:
        keys = broker_keys(options) if options.asks_brokers else {}
        config, fails = tier_config(options), options.fail_on_data_loss
        return cls(options.paths[0], schema, options.verify_checksums, config, keys, fails)

    def read(self, task: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's rows, as Arrow record batches under the promised schema."""
        yield from joined(conformed(self._rows(task), self.schema))

    def _rows(self, task: InputPartition) -> Iterator[pa.RecordBatch]:
        columns = self.schema.names
        if isinstance(task, BrokerTask):
            from tierlog.scan.live.broker_logs import BrokerLogs
            from tierlog.scan.live.loss_report import LossReport

            with BrokerLogs(self.brokers) as logs:
                place = task.topic, task.partition, task.first, task.end
                losses = LossReport(fails=self.fail_on_data_loss)
                yield from logs.iter_records(*place, losses=losses, columns=columns, timestamp_unit="us")
        elif isinstance(task, StreamTask):  # with nothing to read Spark makes a task of its own
            with TierLocation(self.path, task.layout, self.config).opened() as tier:
                for scan_range in task.ranges:
                    yield from read_scan_range(
                        tier,
                        scan_range,
                        columns=columns,
                        timestamp_unit="us",
                        verify_checksums=self.verify_checksums,
                    )
