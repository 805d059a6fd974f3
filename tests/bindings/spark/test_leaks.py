"""Queries that end before their tasks do: nothing of ours stays in the executor's JVM."""

from __future__ import annotations

import pathlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.bindings.spark.conftest import Read
from tests.support.batches import Batch
from tests.support.buckets import Bucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SETTLE_SECONDS = 20.0
RECORDS = 2_000
TASKS_EACH = 10


class Jvm:
    """What the driver's JVM, which in local mode is the executor's, holds of ours and of the system's."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self.pid = int(jvm.java.lang.ProcessHandle.current().pid())

    def held(self) -> dict[str, int]:
        counters = self._jvm.io.tierlog.engine.EngineCounters
        return {
            "native bytes": int(counters.nativeBytes()),
            "files": int(counters.files()),
            "readers": int(counters.readers()),
        }

    def descriptors(self) -> int:
        return len(list(pathlib.Path(f"/proc/{self.pid}/fd").iterdir()))

    def settled(self) -> dict[str, int]:
        """As soon as nothing is held, or when it has had its time."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while any((held := self.held()).values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return held


NOTHING = {"native bytes": 0, "files": 0, "readers": 0}


@pytest.fixture
def big(tmp_path: pathlib.Path) -> pathlib.Path:
    """Ten segments, a task each; batches of ten records."""
    bucket = Bucket(tmp_path / "big")
    for first in range(0, RECORDS, RECORDS // TASKS_EACH):
        batches = [Batch(n, (b"x" * 500,) * 10) for n in range(first, first + RECORDS // TASKS_EACH, 10)]
        bucket.segment(f"s{first}", batches, lineage={0: 0})
    return bucket.root


@pytest.fixture
def frame(by_engine: dict[str, Read], big: pathlib.Path) -> DataFrame:
    return by_engine["jar"](big, subscribe="orders", maxBytesPerPartition="90k")


def test_stopped_early(with_jar: SparkSession, frame: DataFrame) -> None:
    """LIMIT, isEmpty() and show() leave readers in the middle of a batch, hundreds of times a notebook."""
    jvm = Jvm(with_jar)
    assert frame.rdd.getNumPartitions() >= TASKS_EACH
    frame.head(1)
    assert jvm.settled() == NOTHING
    descriptors = jvm.descriptors()
    for turn in range(10):
        assert len(frame.filter("value IS NOT NULL").take(3 + turn)) == 3 + turn
        assert not frame.filter("length(value) = 500").isEmpty()
    assert jvm.settled() == NOTHING
    assert jvm.descriptors() <= descriptors + 8
