"""A batch read over tier and brokers, planned without brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from pyspark.sql import types as spark

from pyspark_tierlog.options.source_options import parse_options
from pyspark_tierlog.seamed_reader import SeamedReader
from pyspark_tierlog.stream import seamed_stream
from pyspark_tierlog.tasks import BrokerTask


class GrowingTopic:
    """Brokers whose topic has one partition, and two from the second question on; each has offsets 0 to 9."""

    def __init__(self, *_: object, **__: object) -> None:
        self._asked = 0

    def partitions(self, topic: str) -> tuple[str | None, range]:
        assert topic == "orders"
        self._asked += 1
        return None, range(min(self._asked, 2))

    def offsets(self, topic: str, partitions: Sequence[int]) -> Mapping[int, tuple[int, int]]:
        assert topic == "orders"
        return dict.fromkeys(partitions, (0, 10))

    def close(self) -> None:
        pass


def test_a_partition_that_is_added_while_a_read_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a read ends with a KeyError, or begins a partition amid its records."""
    monkeypatch.setattr(seamed_stream, "BrokerLogs", GrowingTopic)
    given = {"path": "/x", "subscribe": "orders", "mode": "local-only", "kafka.bootstrap.servers": "broker:9092"}
    schema = spark.StructType([spark.StructField("offset", spark.LongType())])
    reader = SeamedReader(parse_options(given)[0], schema)
    assert reader.partitions() == [BrokerTask("orders", 0, 0, 10)]
