"""A Spark driver of its own with the jar, outside of the tests' session."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

import pyspark_tierlog
import tierlog
from tests.bindings.spark.conftest import QUICK_START
from tierlog.errors import ConfigError

ROOTS = os.pathsep.join(str(pathlib.Path(m.__file__ or "").parents[1]) for m in (tierlog, pyspark_tierlog))
SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
import pyspark_tierlog

builder = SparkSession.builder.master("local[2]").config("spark.jars", pyspark_tierlog.jar_path())
builder = builder.config("spark.driver.extraJavaOptions", sys.argv[1])
for name, value in (("ui.enabled", "false"), ("driver.host", "127.0.0.1"), ("driver.bindAddress", "127.0.0.1")):
    builder = builder.config(f"spark.{name}", value)
spark = builder.getOrCreate()
for request in json.loads(sys.stdin.read()):
    try:
        rows = spark.read.format("tierlog").options(**request).load()
        columns = [name for name in rows.columns if name != "headers"]
        columns += ["to_json(headers)"] * ("headers" in rows.columns)
        plan = rows._jdf.queryExecution().toString()
        asked = sys.argv[2:] or ["count(key)", f"bit_xor(xxhash64({', '.join(columns)}))"]
        print(json.dumps(["engine=jar" in plan, *rows.selectExpr(*asked).collect()[0]]))
    except Exception as error:
        print(json.dumps(["error", str(error)]))
spark.stop()
"""


def need_store_client() -> None:
    """Skips the test where the jar has none."""
    try:
        with zipfile.ZipFile(pyspark_tierlog.jar_path()) as jar:
            if not any(name.endswith("libtierlog_store.so") for name in jar.namelist()):
                pytest.skip("the jar was built without Rust: object stores take the Python path")
    except ConfigError as error:
        pytest.skip(str(error))


def answers_of(requests: list[dict[str, str]], *select: str) -> list[list[object]]:
    """What one driver prints for each ``load()``, with no credentials of this machine in sight.

    Whether the jar reads, and the aggregates of ``select``, by default the number of keys and a hash of all columns.
    """
    need_store_client()
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no JDK: Spark cannot start")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "AZURE_", "GOOGLE_"))}
    environment |= {"PYTHONPATH": ROOTS, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, QUICK_START, *select],
        input=json.dumps(requests),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
