"""The session of all tests of the binding, for those that mean nothing without the jar in it."""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

import pyspark_tierlog
import tierlog
from tests.bindings.spark.conftest import NO_JAR, QUICK_START
from tests.support.task_reader import TaskReaderProcess, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[..., "DataFrame"]
ROOTS = [str(pathlib.Path(module.__file__ or "").parents[1]) for module in (tierlog, pyspark_tierlog)]
#: Of drivers of their own.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="session")
def jar_file(jar: str | None) -> str:
    """The jar, for drivers of their own."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no JDK: Spark cannot start")
    if jar is None:
        pytest.skip(NO_JAR)
    return jar


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaskReaderProcess]:
    """The tasks' half of the jar, without Spark."""
    try:
        process = TaskReaderProcess(tmp_path_factory.mktemp("jvm"))
    except Unavailable as missing:
        pytest.skip(str(missing))
    with process:
        yield process


@pytest.fixture
def jar_spark(with_jar: SparkSession) -> SparkSession:
    return with_jar


@pytest.fixture
def read(jar_spark: SparkSession) -> Read:
    """``read(path, subscribe="t", …)``: a DataFrame."""

    def load(path: object, **options: str) -> DataFrame:
        return jar_spark.read.format("tierlog").options(**options).load(str(path))

    return load


def executed(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())
