"""Jobs over a tier by the executors of a SparkSession: ``tierlog.upkeep``'s own, over partitions of its segments.

``verify(spark, …)`` is ``tierlog.upkeep.verify(…)`` whose segments Spark's executors check; ``index``, ``copy`` and
``rewrap`` are alike. The driver lists, compares segments with each other, keeps the ledger and sums up. What an
executor does to a segment is the same code as here.

Every executor needs a Python with Tierlog, and reaches the tier under the same path (docs/spark.md, Jobs).
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark_tierlog.job_tasks import SCHEMA, Raised, SegmentTask, cut_tasks, run_tasks
from tierlog import upkeep
from tierlog.errors import ConfigError, TierlogError
from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.threads import Arrivals
from tierlog.upkeep.segment_work import Item, Outcome, SegmentWork, WorkOrder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tierlog.opening import Path

#: Tasks of one query of Spark's, at most: its function carries them all.
_WAVE_TASKS_MAX: Final = 256
#: Tasks of a query for each core, which does them as one task of Spark's: that costs 30 ms of Python's and some of the
#: JVM's, a query a tenth of a second of the driver's.
_TASKS_A_CORE: Final = 32
#: Of a session that does not say: Spark Connect.
_CORES_UNKNOWN: Final = 8
_TEXT_MAX: Final = 300


class SparkJobError(TierlogError, RuntimeError):
    """Spark gave up a task (its executor died, or its Python failed): the same call with the same ledger goes on."""


class SparkExecutor:
    """Has the work of segments done by Spark's executors. An ``Executor`` of ``tierlog.upkeep``.

    Args:
        spark: A session, classic or of Spark Connect; it stays open.
        cores: Cores to keep busy: Spark is handed tasks enough for so many, and runs as many as it has. None for those
            that the session has now; of Spark Connect, which does not say, 8.

    Thread safety: one thread.
    """

    def __init__(self, spark: SparkSession, *, cores: int | None = None) -> None:
        self._spark = spark
        self._cores = cores or _cores_of(spark)
        self._machine = Machine()

    def run(self, work: SegmentWork[Item, Outcome], items: Iterable[Item]) -> Generator[tuple[Item, Outcome]]:
        """Yield each item with its outcome, as ``Executor`` says.

        Raises:
            ConfigError: only this process can do the work. SparkJobError: Spark gave up. Those of the work.
        """
        order = work.order
        if order is None:
            raise ConfigError("one file is read by this process alone, and not by Spark")
        wave_tasks = min(_WAVE_TASKS_MAX, self._cores * _TASKS_A_CORE)
        waves = -(-self._cores * _TASKS_A_CORE // wave_tasks) + 1
        under_way: dict[int, Item] = {}
        tasks = cut_tasks(work, _noted(items, under_way))
        tag = f"tierlog-{self._machine.rng.secret_bytes(8).hex()}"
        running: Arrivals[list[bytes]] = Arrivals(self._machine.scheduler)
        with self._machine.scheduler.pool(waves, name="tierlog-spark") as pool:
            try:
                while True:
                    while len(running) < waves and (wave := tuple(itertools.islice(tasks, wave_tasks))):
                        running.add(pool.submit(partial(self._collect, tag, order, wave)))
                    if not running:
                        return
                    for row in running.take().result():
                        number, outcome = pickle.loads(row)  # noqa: S301 - of this job's own executors
                        if isinstance(outcome, Raised):
                            raise outcome.error
                        item = under_way.pop(number)
                        work.passed(item)
                        yield item, outcome
            finally:
                if running:
                    with suppress(Exception):  # of a session that is gone, whose queries are too
                        _cancel(self._spark, tag)

    def query(self, order: WorkOrder[Any, Any], wave: Sequence[SegmentTask]) -> DataFrame:
        """Return the query that does these tasks, which has a row for each outcome."""
        numbers = self._spark.range(0, len(wave), 1, -(-len(wave) // _TASKS_A_CORE))
        return numbers.mapInArrow(partial(run_tasks, order, wave), SCHEMA)

    def _collect(self, tag: str, order: WorkOrder[Any, Any], wave: Sequence[SegmentTask]) -> list[bytes]:
        """Run one query. Raises SparkJobError."""
        try:
            _add_tag(self._spark, tag)
            return [bytes(row[0]) for row in self.query(order, wave).collect()]
        except Exception as error:
            # PySpark's, py4j's and gRPC's errors have no class in common.
            raise SparkJobError(f"Spark gave up a task: {_one_line(error)}") from error


def _noted(items: Iterable[Item], under_way: dict[int, Item]) -> Iterator[tuple[int, Item]]:
    """Yield the items with their numbers, and remember them until their outcomes come."""
    for number, item in enumerate(items):
        under_way[number] = item
        yield number, item


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _add_tag(spark: SparkSession, tag: str) -> None:
    """Tag the queries of this thread. A classic session's own tags (Spark 4.3) find none of its queries."""
    if _is_connect(spark):
        spark.addTag(tag)
    else:
        spark.sparkContext.addJobTag(tag)


def _cancel(spark: SparkSession, tag: str) -> None:
    """Cancel all queries with a tag."""
    if _is_connect(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)


def _cores_of(spark: SparkSession) -> int:
    if _is_connect(spark):
        return _CORES_UNKNOWN
    return max(1, spark.sparkContext.defaultParallelism)


def open_session(master: str, name: str) -> SparkSession:
    """Start a session, or find that of this process, for a job by itself; the caller stops it.

    Args:
        master: As Spark's ``--master`` takes it, or ``sc://HOST`` of Spark Connect.
        name: Of the application.

    Raises:
        ConfigError: it does not start.
    """
    from pyspark.sql import SparkSession

    try:
        builder = SparkSession.builder.appName(name)
        if master.startswith("sc:"):
            return builder.remote(master).getOrCreate()
        builder = builder.master(master).config("spark.ui.showConsoleProgress", "false")
        # Faster than TCP between the JVM and its Python, where this Spark has it.
        session = builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
    except Exception as error:
        # PySpark's, py4j's and gRPC's errors have no class in common.
        raise ConfigError(f"Spark does not start with master {master}: {_one_line(error)}") from error
    session.sparkContext.setLogLevel("OFF")  # what goes wrong is an error of ours, in one line
    return session


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:_TEXT_MAX]}"


def verify(
    spark: SparkSession, path: Path, topic: str | None = None, *, cores: int | None = None, **options: Any
) -> upkeep.VerifyResult:
    """Check every segment of a tier by Spark's executors.

    Args:
        spark: A session, classic or of Spark Connect; it stays open.
        path: As for ``tierlog.upkeep.verify``.
        topic: As for ``tierlog.upkeep.verify``.
        cores: To keep busy, as for SparkExecutor.
        options: The other arguments of ``tierlog.upkeep.verify``; ``ledger`` lets a later call go on.

    Returns:
        The counts, and the first findings.

    Raises:
        As ``tierlog.upkeep.verify``; SparkJobError: Spark gave up a task.
    """
    return upkeep.verify(path, topic, executor=SparkExecutor(spark, cores=cores), **options)


def index(
    spark: SparkSession, path: Path, topic: str | None = None, *, cores: int | None = None, **options: Any
) -> upkeep.IndexResult:
    """Write the footers that segments of a bucket lack, by Spark's executors.

    Args:
        spark: A session, classic or of Spark Connect; it stays open.
        path: As for ``tierlog.upkeep.index``; executors write there, or to the place of ``to``.
        topic: As for ``tierlog.upkeep.index``.
        cores: To keep busy, as for SparkExecutor.
        options: The other arguments of ``tierlog.upkeep.index``; ``ledger`` lets a later call go on.

    Returns:
        The counts, and the segments that failed.

    Raises:
        As ``tierlog.upkeep.index``; SparkJobError: Spark gave up a task.
    """
    return upkeep.index(path, topic, executor=SparkExecutor(spark, cores=cores), **options)


def copy(
    spark: SparkSession,
    source: Path,
    dest: Path,
    topics: str | Iterable[str] = (),
    *,
    cores: int | None = None,
    **options: Any,
) -> upkeep.CopyResult:
    """Copy closed segments into a bucket, by Spark's executors.

    Args:
        spark: A session, classic or of Spark Connect; it stays open.
        source: As for ``tierlog.upkeep.copy``; every executor reads there.
        dest: As for ``tierlog.upkeep.copy``; every executor writes there.
        topics: As for ``tierlog.upkeep.copy``.
        cores: To keep busy, as for SparkExecutor.
        options: The other arguments of ``tierlog.upkeep.copy``; ``ledger`` lets a later call go on. Limits of rates are
            each executor's own.

    Returns:
        The counts, and the segments that were left out.

    Raises:
        As ``tierlog.upkeep.copy``; SparkJobError: Spark gave up a task.
    """
    return upkeep.copy(source, dest, topics, executor=SparkExecutor(spark, cores=cores), **options)


def rewrap(spark: SparkSession, path: Path, *, cores: int | None = None, **options: Any) -> upkeep.RewrapResult:
    """Put the data keys of a bucket under the active key pair, by Spark's executors.

    Args:
        spark: A session, classic or of Spark Connect; it stays open.
        path: As for ``tierlog.upkeep.rewrap``.
        cores: To keep busy, as for SparkExecutor; each has 16 manifests under way.
        options: The other arguments of ``tierlog.upkeep.rewrap``; metadata is read by this process alone.

    Returns:
        The counts.

    Raises:
        As ``tierlog.upkeep.rewrap``; SparkJobError: Spark gave up a task.
    """
    return upkeep.rewrap(path, executor=SparkExecutor(spark, cores=cores), **options)
