"""One Spark session for all tests of the binding, and how they read through it: by both of its engines."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import pyspark_tierlog
import tierlog
from pyspark_tierlog.jar import jar_path
from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tierlog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[..., "DataFrame"]
ENGINES = ("python", "jar")
NO_JAR = "no jar is built (make jar)"
#: Tests start many JVMs and run small queries: without the second compiler both take half of the processor's time.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.hookimpl(tryfirst=True)  # `few` draws among the cases that this leaves
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test of the ``engine`` fixture runs by one engine in ``make test``, by the other in ``make test-more``; those
    with the mark ``both_engines`` run by both at once. Which one is drawn by the test's name, so that each engine has
    about half of them; without a jar it is Python's.

    Collecting in Spark 4.0 and 4.1 leaves its socket to Python's collector of garbage, which warns.
    """
    here, is_old = pathlib.Path(__file__).parent, importlib.metadata.version("pyspark") < "4.2"
    for item in items:
        if not item.path.is_relative_to(here):
            continue
        if is_old:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        engine = parameters.get("engine")
        if engine is not None and not item.get_closest_marker("both_engines") and engine != _engine_of(item, engine):
            item.add_marker(pytest.mark.more)


def _engine_of(item: pytest.Item, engine: str) -> str:
    """The engine by which ``make test`` runs a test."""
    try:
        jar_path()
    except ConfigError:
        return "python"
    return ENGINES[zlib.crc32(item.nodeid.replace(f"[{engine}", "[").encode()) % len(ENGINES)]


@pytest.fixture(scope="session")
def jar(tmp_path_factory: pytest.TempPathFactory) -> str | None:
    """A copy of the jar, so that a build beside the tests swaps no library under a JVM; None where none is built."""
    try:
        return str(shutil.copy(jar_path(), tmp_path_factory.mktemp("jar")))
    except ConfigError:
        return None


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory, jar: str | None) -> Iterator[SparkSession]:
    """A local session of two cores that tries a task again, as a cluster does; with the jar where it is built."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no JDK: Spark cannot start")
    from pyspark.sql import SparkSession

    # Spark looks data sources up with the interpreter of PATH unless told; workers must see what this process sees.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    roots = [str(pathlib.Path(module.__file__ or "").parents[1]) for module in (tierlog, pyspark_tierlog)]
    os.environ["PYTHONPATH"] = os.pathsep.join([*roots, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    folder = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder if jar is None else SparkSession.builder.config("spark.jars", jar)
    session = (
        builder.master("local[2,2]")
        .appName("tierlog tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", QUICK_START)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def spark(spark_session: SparkSession) -> Iterator[SparkSession]:
    """The session without filter pushdown, which is Spark's default."""
    spark_session.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    yield spark_session
    for table in spark_session.catalog.listTables():
        spark_session.sql(f"DROP {'VIEW' if table.isTemporary else 'TABLE'} IF EXISTS {table.name}")


@pytest.fixture
def pushing(spark: SparkSession) -> SparkSession:
    """The session with filter pushdown."""
    if spark.version < "4.1":
        pytest.skip("Spark 4.0 has no filter pushdown for Python data sources")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    return spark


@pytest.fixture
def with_jar(spark: SparkSession, jar: str | None) -> SparkSession:
    """The session, for a test that means nothing without the jar."""
    if jar is None:
        pytest.skip(NO_JAR)
    return spark


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, jar: str | None) -> str:
    """The test runs over each of the engines, in ``make test`` or in ``make test-more``."""
    if request.param == "jar" and jar is None:
        pytest.skip(NO_JAR)
    return str(request.param)


def reader_of(spark: SparkSession, engine: str) -> Read:
    """Reads by one engine, unless an option names another."""

    def load(path: object, **options: str) -> DataFrame:
        return spark.read.format("tierlog").options(**{"engine": engine} | options).load(str(path))

    return load


@pytest.fixture
def read(spark: SparkSession, engine: str) -> Read:
    """``read(path, subscribe="t", …)``: a DataFrame."""
    return reader_of(spark, engine)


@pytest.fixture
def by_engine(with_jar: SparkSession) -> dict[str, Read]:
    """Both engines in one test, to compare what they say."""
    return {engine: reader_of(with_jar, engine) for engine in ENGINES}


def in_milliseconds(table: pa.Table) -> pa.Table:
    """Spark's microseconds as Kafka's milliseconds."""
    at = table.schema.get_field_index("timestamp")
    return table.set_column(at, "timestamp", table["timestamp"].cast(pa.timestamp("ms", tz="UTC")))


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
