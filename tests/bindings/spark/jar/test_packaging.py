"""How the jar reaches Spark: where it is, and sessions that run already, classic and of Spark Connect."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

import pyspark_tierlog
import tierlog
from tests.bindings.spark.conftest import QUICK_START
from tests.bindings.spark.jar.conftest import Read, executed
from tests.support.servers import free_port
from tierlog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOTS = os.pathsep.join(str(pathlib.Path(m.__file__ or "").parents[1]) for m in (tierlog, pyspark_tierlog))

BEGIN = """
import sys
from pyspark.sql import SparkSession
import pyspark_tierlog

def session(**settings):
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    settings |= {"spark.driver.extraJavaOptions": sys.argv[-1]}
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()

def read(spark):
    return spark.read.format("tierlog").option("path", sys.argv[1]).option("subscribePattern", ".*").load()

def about(frame):
    rows = frame.where("offset >= 0").selectExpr("count(key)", "bit_xor(xxhash64(topic, partition, offset, value))")
    return [tuple(rows.collect()[0]), "engine=jar" in plan(frame)]
"""
CLASSIC = """
def plan(frame):
    return frame._jdf.queryExecution().toString()

spark = session()
print(about(read(spark)))
pyspark_tierlog.enable(spark)
pyspark_tierlog.enable(spark)
print(about(read(spark)))
print(len(spark.sql("LIST JARS").collect()))
spark.stop()
"""
# The third session has no jar and must not see that of the others; the first goes on when the second has gone.
CONNECT = """
import os, threading
from pyspark.sql.connect.session import SparkSession as Remote

def plan(frame):
    return frame._explain_string()

port = sys.argv[2]
server = session(**{"spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
                    "spark.connect.grpc.binding.port": port})
sessions = [Remote.builder.remote(f"sc://127.0.0.1:{port}").create() for _ in range(3)]
for spark in sessions[:2]:
    pyspark_tierlog.enable(spark)
    pyspark_tierlog.enable(spark)
found = [None] * 3
def run(at):
    found[at] = about(read(sessions[at]))
threads = [threading.Thread(target=run, args=(at,)) for at in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for each in found:
    print(each)
sessions[1].client.release_session()
server._jvm.System.gc()
print(about(read(sessions[0])), flush=True)
os._exit(0)  # the server would wait for its sessions
"""


def lines_of(script: str, *arguments: str) -> list[str]:
    """What a driver of its own prints."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no JDK: Spark cannot start")
    environment = {"PYTHONPATH": ROOTS, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script, *arguments, QUICK_START],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    # Of metrics whose classes Spark's UI does not find: 145 lines a query, in a notebook's cell.
    assert "ClassNotFoundException" not in done.stderr, done.stderr[-4000:]
    return done.stdout.strip().splitlines()


def split(line: str) -> tuple[str, bool]:
    """(the rows' digest, whether the jar read them)."""
    rows, _, through_jar = line.strip("[]").rpartition(", ")
    return rows, through_jar == "True"


def test_the_jar_is_of_this_version(jar_file: str) -> None:
    """Planner and executors would speak different protocols: the jar refuses to start, or reads other bytes."""
    with zipfile.ZipFile(jar_file) as archive:
        properties = archive.read("io/tierlog/spark/build.properties").decode()
        manifest = archive.read("META-INF/MANIFEST.MF").decode()
        assert "io/tierlog/native/libtierlog_jni.so" in archive.namelist()
    assert f"version={tierlog.__version__}" in properties
    assert f"Implementation-Version: {tierlog.__version__}" in manifest


def test_a_missing_jar_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Spark would add a path that leads nowhere, and the user would wonder why nothing is faster, and what to do."""
    monkeypatch.setattr("pyspark_tierlog.jar.__file__", str(tmp_path / "jar.py"))
    with pytest.raises(ConfigError, match=r"^install the wheel of tierlog that carries the jar; .*TIERLOG_JAR=build"):
        pyspark_tierlog.jar_path()


def test_the_package_names_what_it_has() -> None:
    """Tab completion in a notebook is where enable() is found."""
    assert {"DefaultSource", "enable", "jar_path"} <= set(dir(pyspark_tierlog))
    assert not hasattr(pyspark_tierlog, "nonsense")


@pytest.mark.spark
@pytest.mark.more
def test_a_live_session_gets_the_jar(jar_file: str, data: pathlib.Path) -> None:
    """A notebook's session would stay on the slow path, or read other rows after it changed."""
    before, after, jars = lines_of(CLASSIC, str(data / "main-plain" / "objects"))
    assert (split(before)[1], split(after)[1]) == (False, True)
    assert split(before)[0] == split(after)[0]
    assert jars == "1"


@pytest.mark.spark
@pytest.mark.more
def test_a_configured_session_has_the_jar(jar_spark: SparkSession, read: Read, data: pathlib.Path) -> None:
    """The one line in spark-defaults would do nothing, or enable() add the jar a second time."""
    frame = read(data / "main-plain" / "objects", subscribe="fx-txn")
    assert "engine=jar" in executed(frame)
    before = jar_spark.sql("LIST JARS").collect()
    pyspark_tierlog.enable(jar_spark)
    assert jar_spark.sql("LIST JARS").collect() == before


@pytest.mark.spark
@pytest.mark.slow
def test_two_connect_sessions_have_the_jar_at_once(jar_file: str, data: pathlib.Path) -> None:
    """Each session has a class loader of its own, and a JVM loads a file of native code for one only."""
    if importlib.util.find_spec("grpc") is None or importlib.util.find_spec("grpc_status") is None:
        pytest.skip("pyspark[connect] is not installed")
    found = [split(line) for line in lines_of(CONNECT, str(data / "main-plain" / "objects"), str(free_port()))]
    assert [through_jar for _, through_jar in found] == [True, True, False, True]
    assert len({rows for rows, _ in found}) == 1
