"""Executors of their own: one that is killed in the middle of a scan, and copies of tasks that are slow on another.

Spark runs a speculative copy on another host than the first, so ``local-cluster``, all of whose workers have one name,
never runs any. Here the driver's JVM has a master and two workers at two addresses, as ``local-cluster`` is made.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pyspark
import pytest

from tests.bindings.spark.conftest import QUICK_START
from tests.bindings.spark.jar.conftest import ROOTS, SETTINGS
from tests.support.batches import Batch
from tests.support.buckets import Bucket

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,  # four JVMs: 32 CPU seconds
    pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is Linux's"),
]

SEGMENTS = 12
ROWS_EACH = 20
SCRIPT = """
import json, os, signal, sys, threading, time
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

jar, bucket, work, settings = *sys.argv[1:4], json.loads(sys.argv[4])
configuration = SparkConf().setAll([*settings.items(), ("spark.jars", jar)])
SparkContext._ensure_initialized(conf=configuration)
jvm = SparkContext._jvm
conf = jvm.org.apache.spark.SparkConf()
deploy = jvm.org.apache.spark.deploy
master = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)._1().address().toSparkURL()
urls = SparkContext._gateway.new_array(jvm.String, 1)
urls[0] = master
nobody = jvm.scala.Option.empty()
for number in (1, 2):
    deploy.worker.Worker.startRpcEnvAndEndpoint(
        f"127.0.0.{number}", 0, 0, 1, 1024, urls, work, jvm.scala.Option.apply(number), conf, nobody)
spark = SparkSession.builder.config(conf=configuration).master(master).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
tracker = spark.sparkContext.statusTracker()
records = spark.read.format("tierlog").options(
    subscribe="orders", engine="jar", maxBytesPerPartition="1").load(bucket)
COUNTERS = [
    f"bigint(java_method('io.tierlog.engine.EngineCounters', '{name}')) AS {name}"
    for name in ("nativeBytes", "nativeBytesHigh", "files", "readers", "objectReads")]

def say(**words):
    print("SAID", json.dumps(words), flush=True)

def until(true, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found

# By pid: what each holds. A task each, which waits until both have one.
def executors():
    asked = spark.range(0, 2, 1, 2).selectExpr(
        "java_method('java.lang.Thread', 'sleep', 300L) AS slept",
        "int(java_method('java.lang.ProcessHandle', 'current')) AS pid", *COUNTERS)
    return {row.pid: row.asDict() for row in asked.collect()}

def both():
    found = {}
    until(lambda: found.update(executors()) or len(found) == 2)
    return found

# Records and the sum of their offsets; `pause` is an expression of milliseconds.
def answer(pause):
    slow = records.selectExpr("offset", "value", f"java_method('java.lang.Thread', 'sleep', bigint({pause})) AS slept")
    return list(slow.where("slept = 'null' AND value IS NOT NULL").selectExpr("count(*)", "sum(offset)").first())

def held_here():
    counters = jvm.io.tierlog.engine.EngineCounters
    return {"nativeBytes": counters.nativeBytes(), "readers": counters.readers(), "files": counters.files()}

first, second = both()

# A straggler: on one executor a task sleeps for ten minutes in the middle of its batch.
begun = time.monotonic()
here = "java_method('java.lang.ProcessHandle', 'current')"
found = answer(f"if({here} = '{first}' AND offset % 20 = 7, 600000L, 0L)")
say(answer=found, seconds=time.monotonic() - begun, held=both(), driver=held_here())

# A loss: the other one is killed while both read.
found = []
query = threading.Thread(target=lambda: found.extend(answer("20L")))
query.start()
running = lambda: sum(
    tracker.getStageInfo(stage).numActiveTasks for stage in tracker.getActiveStageIds() if tracker.getStageInfo(stage))
busy = until(lambda: running() >= 2, 20)
time.sleep(0.2)
os.kill(second, signal.SIGKILL)
query.join(120)
held = executors()
say(answer=found, busy=busy, lost=second not in held, held=held, driver=held_here())
os._exit(0)  # the workers end their executors as this JVM goes
"""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": QUICK_START,
}


@pytest.fixture
def records(tmp_path: pathlib.Path) -> pathlib.Path:
    """A task each segment, of one batch."""
    bucket = Bucket(tmp_path / "bucket")
    for first in range(0, SEGMENTS * ROWS_EACH, ROWS_EACH):
        bucket.segment(f"s{first}", [Batch(first, (b"x" * 500,) * ROWS_EACH)], lineage={0: 0})
    return bucket.root


def test_copies_of_stragglers_and_a_lost_executor(jar_file: str, records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Spot instances go and slow nodes are overtaken: each record counts once, and what stays behind holds nothing."""
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(ROOTS),
        "SPARK_HOME": str(pathlib.Path(pyspark.__file__).parent),
    }
    settings = json.dumps(SETTINGS | SPECULATION)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, jar_file, str(records), str(tmp_path / "work"), settings],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    told = [json.loads(line.removeprefix("SAID ")) for line in done.stdout.splitlines() if line.startswith("SAID ")]
    assert len(told) == 2, done.stderr[-4000:]
    count = SEGMENTS * ROWS_EACH
    for each in told:
        assert each["answer"] == [count, count * (count - 1) // 2]
        assert each["driver"] == {"nativeBytes": 0, "readers": 0, "files": 0}
        for held in each["held"].values():
            assert [held[name] for name in ("nativeBytes", "files", "readers", "objectReads")] == [0] * 4
    straggler, loss = told
    assert len(straggler["held"]) == 2
    assert straggler["seconds"] < 120
    assert all(held["nativeBytesHigh"] > 0 for held in straggler["held"].values())
    assert (loss["busy"], loss["lost"], bool(loss["held"])) == (True, True, True)
