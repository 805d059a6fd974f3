"""Queries and tasks that end early, in the ways that Spark knows: nothing of ours stays in the executor's JVM.

Executors that are lost, and speculative copies, need executors of their own: ``jar/test_executors.py``.
"""

from __future__ import annotations

import itertools
import pathlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.bindings.spark.conftest import Read
from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.waiting import LIMIT_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SETTLE_SECONDS = LIMIT_SECONDS
RECORDS = 2_000
TASKS_EACH = 10
#: Spark's and py4j's own sockets and threads that come and go.
DESCRIPTORS_SPARE = THREADS_SPARE = 8
#: A pool of Spark's that makes a thread for each message, up to a hundred, and keeps them for a minute.
POOL = "block-manager"
KILLS = 200
NOTHING = {"native bytes": 0, "files": 0, "readers": 0, "object reads": 0}


class Jvm:
    """What the driver's JVM, which in local mode is the executor's, holds of ours and of the system's."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._process = pathlib.Path(f"/proc/{int(jvm.java.lang.ProcessHandle.current().pid())}")

    def held(self) -> dict[str, int]:
        counters = self._jvm.io.tierlog.engine.EngineCounters
        return {
            "native bytes": int(counters.nativeBytes()),
            "files": int(counters.files()),
            "readers": int(counters.readers()),
            "object reads": int(counters.objectReads()),
        }

    def descriptors(self) -> int:
        return len(list((self._process / "fd").iterdir()))

    def threads(self) -> list[str]:
        """By the names that Linux has, which end after 15 characters; without those of POOL."""
        found = []
        for thread in (self._process / "task").iterdir():
            try:
                found.append((thread / "comm").read_text().strip())
            except OSError:
                continue  # it ended meanwhile
        return [name for name in found if not name.startswith(POOL)]

    def settled(self) -> dict[str, int]:
        """As soon as nothing is held, or when it has had its time."""
        wait_until(lambda: not any(self.held().values()))
        return self.held()


def wait_until(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SETTLE_SECONDS
    while not (found := true()) and time.monotonic() < deadline:
        time.sleep(0.002)
    return found


@contextmanager
def back_to_baseline(spark: SparkSession) -> Iterator[Jvm]:
    """Native bytes, files and readers end at zero; descriptors and threads where they began."""
    jvm = Jvm(spark)
    assert jvm.settled() == NOTHING
    descriptors, threads = jvm.descriptors(), jvm.threads()
    yield jvm
    assert jvm.settled() == NOTHING
    assert wait_until(lambda: jvm.descriptors() <= descriptors + DESCRIPTORS_SPARE)
    assert wait_until(lambda: len(jvm.threads()) <= len(threads) + THREADS_SPARE)
    assert wait_until(lambda: not ours(jvm.threads()) - ours(threads)), jvm.threads()


def ours(threads: list[str]) -> Counter[str]:
    """How many of each name. A planner that an earlier test left may end meanwhile; none may come that stays."""
    return Counter(name for name in threads if name.startswith("tierlog"))


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
    assert frame.rdd.getNumPartitions() >= TASKS_EACH
    frame.head(1)
    with back_to_baseline(with_jar):
        for turn in range(10):
            assert len(frame.filter("value IS NOT NULL").take(3 + turn)) == 3 + turn
            assert not frame.filter("length(value) = 500").isEmpty()


def sleepy(frame: DataFrame, ms: int) -> DataFrame:
    """Each row takes its time, so that tasks are in the middle of a batch when they are killed."""
    return frame.selectExpr("length(value) + offset AS n", f"java_method('java.lang.Thread', 'sleep', {ms}L) AS slept")


class Query:
    """One that runs in a thread of its own until it is cancelled."""

    def __init__(self, spark: SparkSession, frame: DataFrame, group: str) -> None:
        self.error = ""
        self._spark, self._frame, self._group = spark, frame, group
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._spark.sparkContext.setJobGroup(self._group, self._group, interruptOnCancel=True)
        try:
            self._frame.write.format("noop").mode("overwrite").save()
        except Exception as error:  # noqa: BLE001  py4j's; its text is what counts
            self.error = str(error)

    def cancel(self) -> None:
        """Afterwards it is over; it was running until now."""
        assert self._thread.is_alive(), self.error
        self._spark.sparkContext.cancelJobGroup(self._group)
        self._thread.join(SETTLE_SECONDS)
        assert not self._thread.is_alive()
        assert "cancel" in self.error.lower()


def test_two_hundred_killed_tasks(with_jar: SparkSession, frame: DataFrame) -> None:
    """Spark kills attempts one by one: preemption, a lost race of copies, the button in its UI. Each buffer that one
    leaves behind brings the executor nearer to its end, and no heap dump shows it.
    """
    context: Any = with_jar.sparkContext._jsc.sc()
    scheduler = context.taskScheduler()
    frame.head(1)
    pauses = random.Random(7)
    with back_to_baseline(with_jar) as jvm:
        first = int(scheduler.nextTaskId())
        query = Query(with_jar, sleepy(frame, 20), "killed one by one")
        held_most, killed = 0, 0
        for attempt in itertools.count(first):
            assert wait_until(lambda attempt=attempt: int(scheduler.nextTaskId()) > attempt)  # type: ignore[misc]
            time.sleep(pauses.random() * 0.02)
            held_most = max(held_most, jvm.held()["native bytes"])
            killed += bool(context.killTaskAttempt(attempt, True, "a test kills it"))
            if killed == KILLS:
                break
        query.cancel()
        assert held_most > 0
    assert frame.filter("value IS NOT NULL").count() == RECORDS


def test_cancelled_queries(with_jar: SparkSession, frame: DataFrame) -> None:
    """Each cell of a notebook that is stopped would leave what its tasks held."""
    frame.head(1)
    with back_to_baseline(with_jar) as jvm:
        for number in range(10):
            query = Query(with_jar, sleepy(frame, 20), f"cancelled {number}")
            assert wait_until(lambda: jvm.held()["readers"] == 2)
            query.cancel()


def test_failing_tasks(with_jar: SparkSession, frame: DataFrame) -> None:
    """An error of the user's in the middle of a batch ends the reader from outside."""
    failing = frame.selectExpr("assert_true(offset % 200 < 150) AS checked", "value")
    frame.head(1)
    with back_to_baseline(with_jar):
        for _ in range(5):
            with pytest.raises(Exception, match="is not true"):
                failing.collect()


def test_a_limit_of_native_memory_that_is_too_small(by_engine: dict[str, Read], big: pathlib.Path) -> None:
    """A task that took what it needs would get its executor killed by the cluster, which gives no reason."""
    spark = by_engine["jar"](big, subscribe="orders").sparkSession
    with back_to_baseline(spark):
        tight = by_engine["jar"](big, subscribe="orders", offHeapBytesPerTask="64k")
        with pytest.raises(
            Exception, match=r"offHeapBytesPerTask is 65536: raise it, and spark\.executor\.memoryOverhead"
        ):
            tight.filter("value IS NOT NULL").count()
    assert by_engine["jar"](big, subscribe="orders", offHeapBytesPerTask="8m").collect()
