"""Streams into Delta and Iceberg by the lines of docs/spark.md, with drivers that are killed: each record once.

``TIERLOG_SINK_KILLS=40`` kills each so often.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
import random
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from pyspark_tierlog.jar import jar_path
from tests.bindings.spark.conftest import ENGINES, QUICK_START
from tests.interop.test_lake_page import block as lake_block
from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.checkout import ROOT, needs_checkout
from tests.support.line_process import LineProcess
from tests.support.peers import install
from tests.support.seam_cluster import QUERY_SECONDS, Row, check, kill_driver, rows_of

pytestmark = [pytest.mark.interop, needs_checkout]

KILLS = int(os.environ.get("TIERLOG_SINK_KILLS", "3"))
#: Records of a trigger, where it can be said: some batches a second.
LIMIT = "150"


@dataclass(frozen=True, slots=True)
class Sink:
    """A lake.

    Attributes:
        form: Its name, of its jars and of Spark's format.
        pyspark: The newest that it has a release for.
        holding: What is in its lines of the page alone.
        table: As these lines name it.
    """

    form: str
    pyspark: str
    holding: str
    table: str

    def commits(self, lake: pathlib.Path) -> list[pathlib.Path]:
        """The files of the table that are its commits."""
        return list(lake.glob("orders/_delta_log/*.json" if self.form == "delta" else "kafka/orders/metadata/v*.json"))

    def batches(self, commit: pathlib.Path) -> list[int]:
        """The batches of the query that the table has by a commit, as it says itself."""
        if self.form == "delta":
            actions = map(json.loads, commit.read_text().splitlines())
            return [action["txn"]["version"] for action in actions if "txn" in action]
        notes = (snapshot["summary"] for snapshot in json.loads(commit.read_text())["snapshots"])
        return [int(noted["spark.sql.streaming.epochId"]) for noted in notes]


SINKS = (
    Sink("delta", "4.2.0", "foreachBatch", "s3://lake/orders"),
    Sink("iceberg", "4.1.4", 'format("iceberg")', "lake.kafka.orders"),
)


class Tier:
    """Two partitions that grow, and the rows that they have."""

    def __init__(self, root: pathlib.Path, chance: random.Random) -> None:
        self.root, self.rows = root, list[Row]()
        self._chance, self._ends, self._buckets = chance, [0, 0], [Bucket(root), Bucket(root, partition=1)]

    def grow(self) -> None:
        """Add a segment to a partition, of a few batches."""
        partition = self._chance.randrange(2)
        first = self._ends[partition]
        batches = [self._batch(partition) for _ in range(self._chance.randrange(1, 5))]
        self._buckets[partition].segment(f"{partition}-{first}", batches, lineage={0: 0})

    def sorted_rows(self) -> list[Row]:
        return sorted(self.rows, key=lambda row: row[:2])

    def _batch(self, partition: int) -> Batch:
        first, count = self._ends[partition], self._chance.randrange(1, 80)
        values = tuple(self._chance.choice((None, b"", self._chance.randbytes(90))) for _ in range(count))
        keys = tuple(self._chance.choice((None, b"%d" % number)) for number in range(count))
        time_ms = 1_700_000_000_000 + first
        for number, (key, value) in enumerate(zip(keys, values, strict=True)):
            headers = (("n", b"%d" % first), ("empty", None))
            self.rows.append((partition, first + number, time_ms + number, 0, key, value, headers))
        self._ends[partition] += count
        headers_of_all = ((b"n", b"%d" % first), (b"empty", None))
        return Batch(first, values, timestamp_ms=time_ms, keys=keys, headers=headers_of_all)


class Query:
    """A query over a tier into a lake, and the driver that runs it, which is another after a kill."""

    def __init__(self, sink: Sink, tier: Tier, work: pathlib.Path) -> None:
        self.sink, self.tier, self.work = sink, tier, work
        self.lake, self.checkpoint = work / "lake", work / "checkpoint"
        self.lines = page_lines(sink.holding).replace("s3://lake", str(self.lake))
        self._driver: LineProcess | None = None
        self._jars = [*map(str, sorted(install.jars(sink.form).glob("*.jar"))), str(shutil.copy(jar_path(), work))]

    @property
    def driver(self) -> LineProcess:
        """Started, with the table, if it is not there."""
        if self._driver is None:
            settings = dict(line.split() for line in lake_block("", f"{self.sink.form}-spark").splitlines())
            del settings["spark.jars.packages"]
            settings |= {"spark.jars": ",".join(self._jars), "spark.sql.warehouse.dir": str(self.work / "warehouse")}
            settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
            settings["spark.driver.extraJavaOptions"] = QUICK_START
            if self.sink.form == "iceberg":
                settings["spark.sql.catalog.lake.warehouse"] = str(self.lake)
                settings["spark.sql.catalog.lake.cache-enabled"] = (
                    "false"  # a stream's session has a catalog of its own
                )
            else:
                settings["spark.databricks.delta.snapshotPartitions"] = "2"  # by default 50 tasks for each look
            interpreter, environment = str(install.python(self.sink.pyspark)), install.environment(self.sink.pyspark)
            command = [interpreter, "-m", "tests.support.spark_queries", json.dumps(settings)]
            process = LineProcess(command, self.work / "spark.err", environment=environment, folder=ROOT)
            self._driver = process.__enter__()
            if self.sink.form == "iceberg":
                self.ask(sql=lake_block("sql", "CREATE TABLE").format(table=self.sink.table, format="iceberg"))
        return self._driver

    def end(self) -> None:
        """End the driver."""
        process, self._driver = self._driver, None
        if process is not None:
            process.__exit__()

    def kill(self) -> None:
        """Kill the driver and its JVM."""
        if self._driver is not None:
            kill_driver(self._driver)
            self.end()

    def ask(self, driver: LineProcess | None = None, **question: Any) -> None:
        """Ask a driver, by default the one that runs, or another if none does."""
        answer = json.loads((driver or self.driver).ask(json.dumps(question), seconds=QUERY_SECONDS))
        assert answer["error"] is None, answer["error"]

    def run(self, engine: str, lines: str = "", driver: LineProcess | None = None) -> None:
        """Read all that the tier has, from the checkpoint on."""
        options = {"path": str(self.tier.root), "subscribe": "orders", "engine": engine, "includeHeaders": "true"}
        options |= {"startingOffsets": "earliest", "refreshInterval": "50ms"}
        if engine == "jar" or self.sink.pyspark >= "4.2":
            options["maxOffsetsPerTrigger"] = LIMIT
        question = {"format": "tierlog", "options": options, "lines": lines or self.lines}
        self.ask(driver, **question, checkpoint=str(self.checkpoint))

    def last(self, kind: str) -> int:
        """Newest batch of the checkpoint that is planned (``offsets``) or done (``commits``); -1: none."""
        folder = self.checkpoint / kind
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def planned_records(self) -> int:
        """How many records the checkpoint's batches have."""
        if (newest := self.last("offsets")) < 0:
            return 0
        written = (self.checkpoint / "offsets" / str(newest)).read_text().splitlines()[-1]
        return sum(json.loads(written)["orders"].values())

    def table_commits(self) -> int:
        return len(self.sink.commits(self.lake))

    def newest_batch(self) -> int:
        """Return the highest batch that the table has; -1 for none."""
        return max((batch for path in self.sink.commits(self.lake) for batch in self.sink.batches(path)), default=-1)

    def forget_last_commit(self) -> None:
        """As if a kill had come between the table's commit and the checkpoint's."""
        newest = self.last("commits")
        for name in (f"{newest}", f".{newest}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    def table(self) -> list[Row]:
        """The rows of the table."""
        out = self.work / "rows"
        name = self.sink.table.replace("s3://lake", str(self.lake))
        self.ask(format=self.sink.form, options={"path": name}, out=str(out))
        return rows_of(out)


def page_lines(holding: str) -> str:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/spark.md").read_text(), re.DOTALL | re.MULTILINE)
    (found,) = [each for each in blocks if holding in each]
    return str(found)


@contextmanager
def query_of(sink: Sink, work: pathlib.Path) -> Iterator[Query]:
    query = Query(sink, Tier(work / "tier", random.Random(31)), work)
    try:
        yield query
    finally:
        query.end()


def killed_in(query: Query, engine: str, batches: int, seconds: float | None) -> str:
    """Kill a query that runs: so long after it has planned so many batches, or, without ``seconds``, when the table has
    the next commit then; say where that was.
    """
    before, driver, is_struck, is_over = query.last("offsets"), query.driver, threading.Event(), threading.Event()
    deadline = time.monotonic() + QUERY_SECONDS

    def wait_while(holds: Callable[[], bool]) -> None:
        while holds() and time.monotonic() < deadline and not is_over.is_set():
            if len(query.tier.rows) - query.planned_records() < 3 * int(LIMIT):
                query.tier.grow()
            time.sleep(0.01)

    def strike() -> None:
        wait_while(lambda: query.last("offsets") < before + batches)
        if seconds is None:
            commits = query.table_commits()
            wait_while(lambda: query.table_commits() == commits)
        else:
            is_over.wait(seconds)
        is_struck.set()
        query.kill()

    striking = threading.Thread(target=strike)
    striking.start()
    try:
        while not is_struck.is_set():
            query.run(engine, driver=driver)
    except (AssertionError, ValueError):
        if not is_struck.is_set():
            raise
    finally:
        is_over.set()
        striking.join()
    planned, done, written = query.last("offsets"), query.last("commits"), query.newest_batch()
    if planned == done:
        return "between batches"
    return "behind the table's commit" if written >= planned else "in a batch"


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.form)
def test_each_record_once(tmp_path: pathlib.Path, sink: Sink) -> None:
    """If this fails, a query that was killed leaves records in the lake twice, or lacks some."""
    chance, struck = random.Random(f"kills of {sink.form}"), collections.Counter[tuple[str, str]]()
    with query_of(sink, tmp_path) as query:
        query.tier.grow()
        for number in range(KILLS):
            engine = chance.choice(ENGINES) if number >= len(ENGINES) else ENGINES[number]
            seconds = chance.uniform(0.0, 5.0) if number % 3 else None
            where = killed_in(query, engine, chance.randrange(4), seconds)
            struck[engine, where] += 1
            print(f"{sink.form}, kill {number}: {engine}, {where}, {len(query.tier.rows)} records", flush=True)
        for engine in ENGINES:
            query.tier.grow()
            query.run(engine)
        check(query.table(), query.tier.sorted_rows())
        batches = query.last("commits") + 1
    print(f"{sink.form}: {dict(struck)}, {len(query.tier.rows)} records in {batches} batches", flush=True)
    assert struck.total() == KILLS


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.form)
def test_a_batch_that_is_written_again(tmp_path: pathlib.Path, sink: Sink) -> None:
    """If this fails, a kill between the table's commit and the checkpoint's has a batch in the table twice. That the
    checker finds it shows where the table is not told which batch it gets.
    """
    with query_of(sink, tmp_path) as query:
        for engine in ENGINES:
            for _ in range(3):
                query.tier.grow()
            query.run(engine)
            check(query.table(), query.tier.sorted_rows())
            query.forget_last_commit()
            query.run(engine)
            check(query.table(), query.tier.sorted_rows())
        with pytest.raises(AssertionError, match="missing"):
            check(query.table()[1:], query.tier.sorted_rows())
        query.forget_last_commit()
        target = query.sink.table.replace("s3://lake", str(query.lake))
        careless = f"lambda batch, _: batch.write.format({sink.form!r}).mode('append').save({target!r})"
        lines = f"query = orders.writeStream.foreachBatch({careless}).option('checkpointLocation', checkpoint).start()"
        query.run("jar", lines)
        with pytest.raises(AssertionError, match="read twice"):
            check(query.table(), query.tier.sorted_rows())
