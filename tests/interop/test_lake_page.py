"""The blocks of docs/lake.md, as they stand there, on the Spark for which both formats have a release."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess

import pytest

from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.checkout import ROOT, needs_checkout
from tests.support.peers import install

pytestmark = [pytest.mark.interop, needs_checkout]

PAGE = "docs/lake.md"
TABLES = {"delta": "orders", "iceberg": "lake.kafka.orders"}

#: Grows the bucket between its runs, as the lines of stdin say; prints the table behind each.
DRIVER = """
import json, sys
from pyspark.sql import SparkSession

settings, table, create, job, path = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
settings |= {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sql(create)
exec(job)
for line in sys.stdin:
    merge(spark, table, path, "orders")
    columns = ("partition", "offset", "unix_millis(timestamp) AS ms", "CAST(value AS STRING) AS value")
    rows = spark.table(table).selectExpr(*columns).orderBy("partition", "offset").collect()
    started = json.loads(starting_offsets(spark, table, path, "orders", {}))
    print("ROWS " + json.dumps([started, [list(row) for row in rows]]), flush=True)
spark.stop()
"""


def block(language: str, holding: str) -> str:
    blocks = re.findall(rf"^```{language}\n(.*?)^```", (ROOT / PAGE).read_text(), re.DOTALL | re.MULTILINE)
    (found,) = [each for each in blocks if holding in each]
    return found


def segment(bucket: Bucket, first: int, end: int) -> None:
    values = tuple(b"%d" % offset for offset in range(first, end))
    batch = Batch(first, values, timestamp_ms=1_700_000_000_000 + first)
    bucket.segment(f"{bucket.partition}-{first}", [batch], lineage={0: 0})


@pytest.mark.parametrize("form", TABLES)
def test_the_job_merges_each_record_once(tmp_path: pathlib.Path, form: str) -> None:
    """A user who copies the page would have records twice in the lake, or lack those of a new partition."""
    (version,) = re.findall(r"on Spark (\d+\.\d+\.\d+)", (ROOT / PAGE).read_text())
    settings = dict(line.split() for line in block("", f"{form}-spark").splitlines())
    settings |= {"spark.sql.warehouse.dir": f"{tmp_path}/warehouse", "spark.jars.ivy": str(install.home() / "ivy")}
    if form == "iceberg":
        settings["spark.sql.catalog.lake.warehouse"] = f"{tmp_path}/lake"
    table = TABLES[form]
    create = block("sql", "CREATE TABLE").format(table=table, format=form)
    bucket = Bucket(tmp_path / "tier")
    segment(bucket, 0, 5)
    given = json.dumps([settings, table, create, block("python", "MERGE INTO"), str(bucket.root)])
    command = [str(install.python(version)), "-c", DRIVER, given]
    # Ivy takes a description in Maven's folder for the jar itself, which Maven may never have fetched.
    environment = install.environment(version) | {"JAVA_TOOL_OPTIONS": f"-Duser.home={install.home()}"}
    errors = tmp_path / "errors"
    with (
        errors.open("wb") as out,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=out,
            env=environment,
            text=True,
            cwd=tmp_path,
        ) as process,
    ):

        def run() -> tuple[object, list[list[object]]]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            for line in process.stdout:
                if line.startswith("ROWS "):
                    started, rows = json.loads(line.removeprefix("ROWS "))
                    return started, rows
            raise AssertionError(errors.read_text()[-4000:])

        def wanted(partition: int, end: int) -> list[list[object]]:
            return [[partition, offset, 1_700_000_000_000 + offset, str(offset)] for offset in range(end)]

        started, rows = run()
        assert started == {"orders": {"0": 5}}
        assert rows == wanted(0, 5)
        assert run() == (started, rows)
        segment(bucket, 5, 9)
        segment(Bucket(bucket.root, partition=1), 0, 3)
        started, rows = run()
        assert started == {"orders": {"0": 9, "1": 3}}
        assert rows == wanted(0, 9) + wanted(1, 3)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0
