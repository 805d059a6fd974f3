"""A Spark session whose class path has the jar: the same queries, by the other path."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

import pyspark_tierlog
import tierlog
from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tierlog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[..., "DataFrame"]
ROOTS = [str(pathlib.Path(module.__file__ or "").parents[1]) for module in (tierlog, pyspark_tierlog)]
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="session")
def jar() -> str:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no JDK: Spark cannot start")
    try:
        return pyspark_tierlog.jar_path()
    except ConfigError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="package")
def jar_session(jar: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A JVM of its own: one that runs already cannot be given a jar that others do not see."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._gateway is not None:
        pytest.skip("this process has a JVM without the jar: run tests/bindings/spark/jar by itself")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([*ROOTS, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    folder = tmp_path_factory.mktemp("spark-jar")
    builder = SparkSession.builder.master("local[2,2]").appName("tierlog jar tests").config("spark.jars", jar)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse")).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    gateway: Any = SparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=60)
    SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture
def jar_spark(jar_session: SparkSession) -> Iterator[SparkSession]:
    yield jar_session
    for table in jar_session.catalog.listTables():
        jar_session.sql(f"DROP {'VIEW' if table.isTemporary else 'TABLE'} IF EXISTS {table.name}")


@pytest.fixture
def read(jar_spark: SparkSession) -> Read:
    """``read(path, subscribe="t", …)``: a DataFrame."""

    def load(path: object, **options: str) -> DataFrame:
        return jar_spark.read.format("tierlog").options(**options).load(str(path))

    return load


@pytest.fixture
def bucket(tmp_path: pathlib.Path) -> Bucket:
    """Segments 0, 20, 40 of twenty records each; record n has the value n and the timestamp 1700000000000 + n."""
    made = Bucket(tmp_path / "bucket", index_interval_bytes=1)
    for first in (0, 20, 40):
        made.segment(f"s{first}", batches(first), lineage={0: 0})
    return made


def batches(first: int, count: int = 4, value_bytes: int = 0) -> list[Batch]:
    return [
        Batch(
            offset,
            tuple(b"%d" % n + bytes(value_bytes) for n in range(offset, offset + 5)),
            timestamp_ms=1_700_000_000_000 + offset,
        )
        for offset in range(first, first + 5 * count, 5)
    ]


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())


def executed(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())
