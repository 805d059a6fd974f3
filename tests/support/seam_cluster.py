"""A broker that tiers and Spark beside it, for reads that go over from the tier to the broker."""

from __future__ import annotations

import json
import os
import pathlib
import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any

import pyarrow.parquet as pq

from pyspark_tierlog.jar import jar_path
from tests.support.line_process import LineProcess
from tests.support.metadata_cluster import TIERED_JARS, admin_of, make_topic, needs_a_broker, tiered_broker
from tests.support.peers import broker, install
from tests.support.peers.plugin_peer import live_children
from tests.support.servers import free_port
from tests.support.waiting import LIMIT_SECONDS, wait_until

QUERY_SECONDS = 240.0
Row = tuple[Any, ...]


#: A driver with two executors, of a process and a core each; the other one has them as threads of its own.
EXECUTORS = "local-cluster[2,1,800]"
THREADS = "local[2]"


class Cluster:
    """A broker that tiers, and Spark beside it.

    Attributes:
        master: Spark's, of drivers that are started from now on.
        through_connect: Whether their queries go through Spark Connect.
    """

    def __init__(self, running: broker.Broker, tier: pathlib.Path, work: pathlib.Path) -> None:
        self.running, self.tier, self.work = running, tier, work
        self.master, self.through_connect = THREADS, False
        self._jars = f"{install.class_path('spark-kafka')}:{shutil.copy(jar_path(), work)}"
        self._again: ExitStack | None = None
        self._spark: LineProcess | None = None
        self._chance = random.Random(31)
        self.written = 0

    @property
    def spark(self) -> LineProcess:
        """Spark's driver, started if it is not there."""
        if self._spark is None:
            paths = {f"spark.{each}.extraClassPath": self._jars for each in ("driver", "executor")}
            settings = {"spark.master": self.master, "spark.executor.memory": "800m", **paths}
            settings |= {"connect": str(free_port())} if self.through_connect else {}
            command = [str(install.python()), "-m", "tests.support.spark_queries", json.dumps(settings)]
            process = LineProcess(command, self.work / "spark.err", environment=install.environment())
            self._spark = process.__enter__()
        return self._spark

    def end_spark(self) -> None:
        """End the driver; the next query starts another."""
        process, self._spark = self._spark, None
        if process is not None:
            process.__exit__()

    def kill_spark(self) -> None:
        """Kill the driver and its JVM, with whatever query runs."""
        if self._spark is not None:
            kill_driver(self._spark)
            self.end_spark()

    def kill_executor(self) -> bool:
        """Kill one of the driver's executors, with the tasks that it runs; whether there was one."""
        driver = self._spark
        jvms = [] if driver is None else live_children(driver.pid)
        for pid in [each for jvm in jvms for each in live_children(jvm)]:
            with suppress(OSError):
                if b"CoarseGrainedExecutorBackend" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False

    def restart(self, down_seconds: float) -> None:
        """Kill the broker, and begin it again at its port after a while."""
        port = int(self.bootstrap.rpartition(":")[2])
        self.running.process.kill()
        self.running.process.wait()
        time.sleep(down_seconds)
        self.end_again()
        self._again = ExitStack()
        self.running = self._again.enter_context(_broker(self.work, self.tier, port=port))

    def end_again(self) -> None:
        """End the broker that ``restart`` began."""
        opened, self._again = self._again, None
        if opened is not None:
            opened.close()

    @property
    def bootstrap(self) -> str:
        return self.running.bootstrap

    def topic_id(self, topic: str) -> str:
        from confluent_kafka import TopicCollection

        admin = admin_of(self.bootstrap)
        found = str(admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id)
        return found.rstrip("=").replace("+", "-").replace("/", "_")

    def make(self, topic: str, **config: str) -> None:
        settings = {"segment_bytes": str(1 << 20), "local_retention_bytes": "1", "retention_bytes": "-1"}
        make_topic(self.bootstrap, topic, 2, **settings | {"remote_storage_enable": "true"} | config)

    def add_partition(self, topic: str, count: int) -> None:
        """Have a topic have so many partitions."""
        from confluent_kafka.admin import NewPartitions

        admin = admin_of(self.bootstrap)
        admin.create_partitions([NewPartitions(topic, count)])[topic].result(LIMIT_SECONDS)

    def produce(self, topic: str, count: int, *, partition: int = 0) -> None:
        """Write transactions of 25 records of 8 KB, every third of which is aborted."""
        from confluent_kafka import Producer

        keys = {"bootstrap.servers": self.bootstrap, "transactional.id": topic, "compression.type": "none"}
        producer = Producer(keys)
        producer.init_transactions(LIMIT_SECONDS)
        for number in range(0, count, 25):
            producer.begin_transaction()
            for at in range(25):
                headers: Any = [("n", str(self.written + at).encode()), ("empty", None)] if at % 3 else None
                value = None if at == 7 else self._chance.randbytes(8000)
                key = None if at == 11 else b"%d" % at
                producer.produce(topic, value, key, partition, headers=headers)
            assert producer.flush(LIMIT_SECONDS) == 0
            self.written += 25
            if number // 25 % 3 == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()

    def delete_records(self, topic: str) -> None:
        """Delete all that the first partition of a topic has."""
        from confluent_kafka import OFFSET_END, TopicPartition

        admin = admin_of(self.bootstrap)
        for result in admin.delete_records([TopicPartition(topic, 0, OFFSET_END)]).values():
            result.result(LIMIT_SECONDS)

    def local_start(self, topic: str, partition: int = 0) -> int:
        return min(int(path.stem) for path in (self.running.log_dir / f"{topic}-{partition}").glob("*.log"))

    def wait_for_tier(self, topic: str, offset: int, partition: int = 0) -> None:
        """Wait until retention has deleted all below an offset locally."""
        wait_until(lambda: self.local_start(topic, partition) > offset)

    def ask(self, mode: str, topic: str, **more: Any) -> tuple[list[Row], dict[str, Any]]:
        """What a query has written in all, by partition and offset, and the answer."""
        given: dict[str, str | None] = {
            "subscribe": topic,
            "kafka.bootstrap.servers": self.bootstrap,
            "includeHeaders": "true",
        }
        given |= {"startingOffsets": "earliest"} | more.pop("options", {})
        options = {name: value for name, value in given.items() if value is not None}
        engine = more.pop("engine", "jar")
        if mode != "kafka":
            options |= {
                "path": str(more.pop("path", self.tier)),
                "mode": mode,
                "engine": engine,
                "refreshInterval": "1ms",
            }
        out = more.pop("out", self.work / "out")
        question = {"format": "kafka" if mode == "kafka" else "tierlog", "options": options, "out": str(out)}
        found = json.loads(self.spark.ask(json.dumps(question | more), seconds=QUERY_SECONDS))
        return ([] if found["error"] else rows_of(out)), found


def kill_driver(driver: LineProcess) -> None:
    """Kill a driver and its JVM, with whatever query runs."""
    for pid in (*live_children(driver.pid), driver.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def check(found: list[Row], wanted: list[Row]) -> None:
    """Fail unless each record was read once, and as it is."""
    places = [row[:2] for row in found]
    assert len(places) == len(set(places)), "a record was read twice"
    assert set(places) == {row[:2] for row in wanted}, "a record is missing, or was never written"
    assert found == wanted


def rows_of(folder: pathlib.Path) -> list[Row]:
    """The rows of a folder that a query or a write has written, by partition and offset."""
    found = []
    for path in _committed(folder):
        for row in pq.read_table(path).to_pylist():
            headers = row["headers"]
            row["headers"] = None if headers is None else tuple((each["key"], each["value"]) for each in headers)
            found.append(tuple(row.values()))
    return sorted(found, key=lambda row: row[:2])


def _committed(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files of a folder; of a streaming query those that its sink's log names: a task that was killed leaves its
    own behind.
    """
    logs = [path for path in (folder / "_spark_metadata").glob("[0-9]*") if not path.name.endswith(".tmp")]
    if not logs:
        return sorted(folder.glob("*.parquet"))
    last_compact = max((int(path.stem) for path in logs if path.suffix == ".compact"), default=-1)
    names: set[str] = set()
    for path in logs:
        if int(path.stem) > last_compact or (path.suffix == ".compact" and int(path.stem) == last_compact):
            lines = path.read_text().splitlines()[1:]
            names.update(pathlib.PurePath(json.loads(line)["path"]).name for line in lines)
    return sorted(folder / name for name in names)


def _broker(
    work: pathlib.Path, tier: pathlib.Path, *, port: int | None = None
) -> AbstractContextManager[broker.Broker]:
    return broker.running(work / "broker", heap="512m", extra=tiered_broker(tier), jars=TIERED_JARS, port=port)


@contextmanager
def seam_cluster(work: pathlib.Path) -> Iterator[Cluster]:
    """Run them until the block ends."""
    needs_a_broker()
    tier = work / "tier"
    tier.mkdir()
    with ExitStack() as opened:
        made = Cluster(opened.enter_context(_broker(work, tier)), tier, work)
        opened.callback(made.end_again)
        opened.callback(made.end_spark)
        yield made
