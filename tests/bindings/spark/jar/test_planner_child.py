"""The child that plans: missing, foreign, killed, mad; and gone when the application is."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_tierlog.plan.frames import PROTOCOL
from tests.bindings.spark.conftest import offsets
from tests.bindings.spark.jar.conftest import ROOTS, SETTINGS, Read
from tests.support.buckets import Bucket
from tests.support.waiting import wait_until
from tierlog._version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")]

MODULE = b"pyspark_tierlog.plan"
GREETING = {"protocol": PROTOCOL, "version": __version__, "python": "3"}


def frame(kind: str, body: bytes | dict[str, object]) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return struct.pack(">iB", len(data), ord(kind)) + data


@pytest.fixture
def fake(tmp_path: pathlib.Path) -> Callable[..., str]:
    """The path of an interpreter that writes these bytes, then ends: at once, or when it was asked."""

    def make(answer: bytes, *, linger: bool = False, asked: bool = False) -> str:
        path = tmp_path / "python-of-a-test"
        path.write_text(
            f"#!{sys.executable}\n"
            f"import sys, time\nsys.stdout.buffer.write({answer!r})\n"
            f"sys.stdout.flush()\nsys.stdin.buffer.read({int(asked)})\ntime.sleep(120 if {linger} else 0)\n"
        )
        path.chmod(0o755)
        return str(path)

    return make


def planners(root: int, python: str = sys.executable) -> list[int]:
    """The planner children of a process's JVM that run under this interpreter; those that tests start are its own."""
    program = [python.encode(), b"-m", MODULE]
    parents: dict[int, int] = {}
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            # That of a script is behind its own interpreter.
            if (entry / "cmdline").read_bytes().split(b"\0")[:-1][-3:] == program:
                found.append(int(entry.name))
        except OSError:
            continue  # it ended meanwhile
    return [child for child in found if root in _ancestors(child, parents)[1:]]


def _ancestors(child: int, parents: dict[int, int]) -> list[int]:
    line = []
    while child in parents:
        child = parents[child]
        line.append(child)
    return line


def failure(read: Read, bucket: Bucket, python: str) -> str:
    from pyspark.errors import AnalysisException  # not at the top: pyspark is an extra

    with pytest.raises(AnalysisException, match="PlannerError") as caught:
        read(bucket.root, subscribe="orders", plannerPython=python)
    return str(caught.value)


def test_no_python(read: Read, bucket: Bucket) -> None:
    """A cluster's driver image without Python: the error names what was tried, and where that came from."""
    text = failure(read, bucket, "/nowhere/python")
    assert "/nowhere/python (of option plannerPython) does not start" in text
    assert f"install tierlog[spark]=={__version__}" in text


def test_a_python_without_the_package(read: Read, bucket: Bucket, tmp_path: pathlib.Path) -> None:
    """What that Python said is the only hint at what is wrong with it, also of one that ends before anybody reads it.

    The pipe of its errors was closed as soon as it had ended: of children like this one half had said nothing.
    """
    path = tmp_path / "python-of-a-test"
    path.write_text("#!/bin/sh\nprintf \"No module named 'pyspark_tierlog'\" >&2\n")
    path.chmod(0o755)
    said = {failure(read, bucket, str(path)).partition(" -m pyspark_tierlog.plan ")[2] for _ in range(20)}
    assert len(said) == 1, said
    assert said.pop().startswith("ended with exit code 0 and said: No module named 'pyspark_tierlog'; install")


@pytest.mark.parametrize("change", [{"version": "0.0.9"}, {"protocol": PROTOCOL + 1}])
def test_another_version(read: Read, bucket: Bucket, fake: Callable[..., str], change: dict[str, object]) -> None:
    """A jar and a wheel of different versions would read by rules that only one of them knows."""
    text = failure(read, bucket, fake(frame("V", GREETING | change), linger=True))
    assert f"the jar is tierlog {__version__} (plan protocol {PROTOCOL}), the Python package of" in text
    assert f"pip install 'tierlog[spark]=={__version__}'" in text
    assert "pyspark_tierlog.jar_path()" in text


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (frame("L", b"x" * 100)[:50], "ended twice over one request"),
        (b"", "ended twice over one request"),
        (struct.pack(">iB", 2**31 - 1, ord("L")), "is none of the protocol's"),
        (struct.pack(">iB", -1, ord("L")), "is none of the protocol's"),
        (b"Hello, this is a Python that prints\n", "is none of the protocol's"),
        (frame("T", b""), "frame T does not belong to a listing"),
        (frame("E", b"no JSON"), "frame E is not JSON"),
        (frame("Z", b"more"), "4 bytes behind its end"),
    ],
)
def test_an_answer_that_is_none(read: Read, bucket: Bucket, fake: Callable[..., str], answer: bytes, text: str) -> None:
    """A cut or mad answer must end the query, and never the driver."""
    assert text in failure(read, bucket, fake(frame("V", GREETING) + answer, asked=True))
    assert offsets(read(bucket.root, subscribe="orders")) == [*range(60)]


def test_a_child_that_was_killed_is_started_anew(jar_spark: SparkSession, read: Read, bucket: Bucket) -> None:
    """The kernel's OOM killer takes the child; the application must not notice."""
    frame = read(bucket.root, subscribe="orders")
    before = planners(os.getpid())
    assert len(before) == 1
    os.kill(before[0], signal.SIGKILL)
    assert offsets(frame) == [*range(60)]
    after = planners(os.getpid())
    assert len(after) == 1
    assert after != before
    assert offsets(read(bucket.root, subscribe="orders")) == [*range(60)]
    assert planners(os.getpid()) == after


def test_streams_use_the_children_that_are_there(jar_spark: SparkSession, read: Read, bucket: Bucket) -> None:
    """A start is most of what a short query costs; and a query that runs has its child for itself."""

    def query(**trigger: Any) -> StreamingQuery:
        loaded = jar_spark.readStream.format("tierlog").options(subscribe="orders", startingOffsets="earliest")
        written = loaded.option("engine", "jar").load(str(bucket.root)).writeStream.format("noop")
        return written.trigger(**trigger).start()

    assert offsets(read(bucket.root, subscribe="orders")) == [*range(60)]
    first = planners(os.getpid())
    for _ in range(2):
        ended = query(availableNow=True)
        assert ended.awaitTermination(60)
        assert sum(each["numInputRows"] for each in ended.recentProgress) == 60
    assert planners(os.getpid()) == first
    going_on = query(processingTime="1 second")
    wait_until(lambda: any(each["numInputRows"] for each in going_on.recentProgress))
    assert offsets(read(bucket.root, subscribe="orders")) == [*range(60)]
    assert len(planners(os.getpid())) == len(first) + 1
    going_on.stop()


def test_a_stream_that_does_not_start_leaves_no_child(jar_spark: SparkSession, read: Read, bucket: Bucket) -> None:
    """Starting a query again and again, until its store is there, would fill the driver's machine with children."""
    assert offsets(read(bucket.root, subscribe="orders")) == [*range(60)]
    first = planners(os.getpid())
    for trigger in ({"availableNow": True}, {"processingTime": "1 second"}) * 2:
        loaded = jar_spark.readStream.format("tierlog").options(subscribe="orders", engine="jar")
        writing = loaded.load(str(bucket.root / "nothing")).writeStream.format("noop").trigger(**trigger)
        with pytest.raises(Exception, match="nothing"):
            writing.start().awaitTermination(60)
    assert planners(os.getpid()) == first


# Runs the planner, but for listings of paths that end in "slow": those wait for a file. Who runs and who waits is told.
HELD_UP = """#!{python}
import os, pathlib, sys, time
from pyspark_tierlog.plan import planner, process
told = pathlib.Path({told!r})
(told / f"ran-{{os.getpid()}}").touch()
list_tiers = planner.list_tiers
def held_up(options, *_):
    if options.paths[0].endswith("slow"):
        (told / f"held-{{os.getpid()}}").touch()
        while not (told / "gate").exists():
            time.sleep(0.02)
    return list_tiers(options)
planner.list_tiers = held_up
sys.exit(process.main())
"""


def test_a_slow_listing_holds_no_other_query_up(read: Read, bucket: Bucket, tmp_path: pathlib.Path) -> None:
    """One DataFrame over a bucket of a million objects would stop every notebook of the driver for minutes."""
    gate, python = tmp_path / "gate", tmp_path / "python-of-a-test"
    python.write_text(HELD_UP.format(python=sys.executable, told=str(tmp_path)))
    python.chmod(0o755)
    (tmp_path / "slow").symlink_to(bucket.root)

    def load(path: pathlib.Path) -> list[int]:
        return offsets(read(path, subscribe="orders", plannerPython=str(python)))

    with ThreadPoolExecutor(7) as pool:
        try:
            slow = [pool.submit(load, tmp_path / "slow") for _ in range(3)]
            assert load(bucket.root) == [*range(60)]
            assert not any(each.done() for each in slow)
            slow += [pool.submit(load, tmp_path / "slow") for _ in range(3)]
            quick = pool.submit(load, bucket.root)
            wait_until(lambda: len([*tmp_path.glob("held-*")]) == 4)  # nobody is left to answer the quick one
            assert not quick.done()
        finally:
            gate.touch()
        assert [each.result(60) for each in [*slow, quick]] == [[*range(60)]] * 7
        assert len([*tmp_path.glob("ran-*")]) == 4, "however many ask, an application has four of them at most"


ALONE = """
import os, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.jars", sys.argv[1])
for name, value in {settings!r}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
def read(**options):
    return spark.read.format("tierlog").options(subscribe="orders", **options).load(sys.argv[2])
def say(*words):
    print("SAID", *words, flush=True)
"""


def alone(jar_file: str, bucket: Bucket, body: str, folder: pathlib.Path) -> subprocess.Popen[str]:
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment["PYTHONPATH"] = os.pathsep.join(ROOTS)
    source = ALONE.format(settings=SETTINGS) + body
    return subprocess.Popen(
        [sys.executable, "-c", source, jar_file, str(bucket.root)],
        env=environment,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def told(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return next(line.removeprefix("SAID ").strip() for line in process.stdout if line.startswith("SAID "))


def ended(process: int, seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not pathlib.Path(f"/proc/{process}").exists():
            return True
        time.sleep(0.1)
    return False


def without_store_client(jar_file: str, made: pathlib.Path) -> str:
    """The jar as a machine without Rust, or whose network gives no crates, builds it."""
    with zipfile.ZipFile(jar_file) as whole, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as lean:
        for entry in whole.infolist():
            if not entry.filename.endswith("libtierlog_store.so"):
                lean.writestr(entry, whole.read(entry))
    return str(made)


@pytest.mark.slow
def test_a_driver_from_begin_to_end(jar_file: str, bucket: Bucket, tmp_path: pathlib.Path) -> None:
    """A /tmp that is mounted noexec must cost speed, not the query; engine=jar says that it cannot be had.

    A jar without the client of object stores reads local files all the same. Children that outlive their application
    fill the machine; in one JVM the next application starts its own. What lies beside a notebook
    is no module of theirs.
    """
    missing = str(tmp_path / "missing")
    body = f"""
frame = read(nativeDirectory={missing!r})
say(frame._jdf.queryExecution().executedPlan().toString().replace("\\n", " "))
say(frame.count())
for options in ({{"nativeDirectory": {missing!r}}}, {{"path": "s3://bucket/prefix"}}):
    try:
        source = spark.read.format("tierlog").options(path=sys.argv[2], subscribe="orders", engine="jar")
        source.options(**options).load()
    except Exception as error:
        say(str(error).replace("\\n", " "))
say(read(engine="jar").count())
sys.stdin.readline()
spark.stop()
say("stopped")
sys.stdin.readline()
open("pyspark_tierlog.py", "w").write("raise SystemExit('planted')")
spark = builder.getOrCreate()
say(read(engine="jar").count())
os.kill(os.getpid(), 9)
"""
    with alone(without_store_client(jar_file, tmp_path / "tierlog-spark.jar"), bucket, body, tmp_path) as process:
        assert process.stdin is not None
        plan, count, error = told(process), told(process), told(process)
        assert "tierlog engine=python (libtierlog_jni.so cannot be unpacked to" in plan
        assert "give another folder by option nativeDirectory" in plan
        assert count == "60"
        assert "option engine: jar: libtierlog_jni.so cannot be unpacked" in error
        assert "option engine: jar: this jar carries no libtierlog_store.so, which reads object stores" in told(process)
        assert told(process) == "60"
        (first,) = planners(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        assert told(process) == "stopped"
        assert ended(first)
        process.stdin.write("\n")
        process.stdin.flush()
        seen: list[int] = []
        while not seen and process.poll() is None:
            seen = planners(process.pid)
        assert told(process) == "60"
        assert all(ended(child, 60) for child in seen)
