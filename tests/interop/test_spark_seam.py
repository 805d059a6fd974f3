"""Spark reads history from the tier and the rest from brokers: each record once, as by Spark's Kafka source."""

from __future__ import annotations

import json
import pathlib
import random
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow.parquet as pq
import pytest

from pyspark_tierlog.jar import jar_path
from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.line_process import LineProcess
from tests.support.metadata_cluster import TIERED_JARS, admin_of, make_topic, needs_a_broker, tiered_broker
from tests.support.peers import broker, install
from tests.support.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.interop

TOPIC = "orders"
QUERY_SECONDS = 240.0
#: Mode and engine; Python's cannot ask where local logs begin.
READS = (
    ("remote-preferred", "jar"),
    ("local-preferred", "jar"),
    ("local-only", "jar"),
    ("remote-preferred", "python"),
    ("local-only", "python"),
)
Row = tuple[Any, ...]


class Cluster:
    """A broker that tiers, and Spark beside it."""

    def __init__(self, running: broker.Broker, tier: pathlib.Path, spark: LineProcess, work: pathlib.Path) -> None:
        self.running, self.tier, self.work, self._spark = running, tier, work, spark
        self._chance = random.Random(31)
        self.written = 0

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
        found = json.loads(self._spark.ask(json.dumps(question | more), seconds=QUERY_SECONDS))
        return ([] if found["error"] else rows_of(out)), found


def rows_of(folder: pathlib.Path) -> list[Row]:
    found = []
    for path in sorted(folder.glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            headers = row["headers"]
            row["headers"] = None if headers is None else tuple((each["key"], each["value"]) for each in headers)
            found.append(tuple(row.values()))
    return sorted(found, key=lambda row: row[:2])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    needs_a_broker()
    work = tmp_path_factory.mktemp("seam")
    tier = work / "tier"
    tier.mkdir()
    jars = f"{install.class_path('spark-kafka')}:{shutil.copy(jar_path(), work)}"
    command = [str(install.python()), "-m", "tests.support.spark_queries", jars]
    with ExitStack() as opened:
        process = LineProcess(command, work / "spark.err", environment=install.environment())
        spark = opened.enter_context(process)
        running = opened.enter_context(
            broker.running(work / "broker", heap="512m", extra=tiered_broker(tier), jars=TIERED_JARS)
        )
        yield Cluster(running, tier, spark, work)


@pytest.fixture(scope="module")
def orders(cluster: Cluster) -> Cluster:
    """The topic, most of which is in the tier alone."""
    cluster.make(TOPIC)
    cluster.produce(TOPIC, 900)
    cluster.produce(TOPIC, 300, partition=1)
    cluster.wait_for_tier(TOPIC, 600)
    return cluster


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize(("mode", "engine"), READS)
def test_a_batch_read_ends_at_the_brokers_end(orders: Cluster, mode: str, engine: str, isolation: str) -> None:
    """If this fails, a read over the seam lacks records, has some twice, or has others than Kafka's."""
    options = {"kafka.isolation.level": isolation}
    wanted, _ = orders.ask("kafka", TOPIC, options=options)
    found, answer = orders.ask(mode, TOPIC, options=options, engine=engine)
    assert answer["error"] is None
    assert found == wanted
    assert len(wanted) > 700
    assert (answer["tasks"] > 2) == (mode != "local-only")


@pytest.mark.parametrize(("mode", "engine"), [READS[0], READS[1], READS[3]])
def test_bounds_are_those_of_kafkas_source(orders: Cluster, mode: str, engine: str) -> None:
    """If this fails, an option that says where a read begins or ends says it of the tier alone."""
    middle = orders.ask("kafka", TOPIC)[0][400][2]
    bounds: tuple[dict[str, str | None], ...] = (
        {"startingOffsets": '{"orders":{"0":17,"1":3}}', "endingOffsets": '{"orders":{"0":880,"1":-1}}'},
        {"startingTimestamp": str(middle)},
        {"startingOffsets": "earliest", "endingTimestamp": str(middle)},
        {"startingOffsets": "earliest", "endingTimestamp": "4000000000000"},
        {"assign": '{"orders":[1]}', "subscribe": None},
    )
    for options in bounds:
        wanted, answer = orders.ask("kafka", TOPIC, options=options)
        assert (answer["error"], bool(wanted)) == (None, True)
        found, answer = orders.ask(mode, TOPIC, options=options, engine=engine)
        assert answer["error"] is None
        assert found == wanted, options


def test_columns_are_pruned(orders: Cluster) -> None:
    """If this fails, a query of some columns takes other ones of the brokers' rows."""
    columns = ["offset", "partition", "unix_millis(timestamp) AS time", "CAST(NULL AS array<int>) AS headers", "topic"]
    wanted, _ = orders.ask("kafka", TOPIC, columns=columns)
    for engine in ("jar", "python"):
        found, answer = orders.ask("remote-preferred", TOPIC, columns=columns, engine=engine)
        assert (answer["error"], found) == (None, wanted)


def test_options_are_checked_in_every_mode(orders: Cluster) -> None:
    """If this fails, an option that brokers cannot obey, or a misspelt one, is passed over."""
    columns = ["offset", "partition", "headers"]
    for mode, engine in READS:
        asked = {"columns": "partition,offset,headers", "includeHeaders": None}
        found, answer = orders.ask(mode, TOPIC, options=asked, columns=columns, engine=engine)
        assert answer["error"] is None
        assert any(row[2] for row in found)
        for wrong, text in (
            ({"columns": "offset,segment"}, "does not have"),
            ({"stratOffsets": "1"}, "unknown option"),
        ):
            _, answer = orders.ask(mode, TOPIC, options=wrong, columns=["offset"], engine=engine)
            assert text in str(answer["error"])
        _, answer = orders.ask(mode, TOPIC, options={"startingOffsets": "latest"}, engine=engine)
        assert "latest" in str(answer["error"])


def test_a_stream_goes_from_the_tier_to_the_brokers(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """If this fails, a query that goes on while the border of the tier moves has records twice or lacks some, or its
    checkpoint is of no use to Spark's Kafka source, or that one's to it.
    """
    topic, out = "followed", tmp_path / "out"
    cluster.make(topic)
    preferred = ("remote-preferred", "jar")
    turns = (preferred, ("kafka", ""), ("local-preferred", "jar"), ("remote-preferred", "python"), preferred)
    for number, (mode, engine) in enumerate(turns):
        cluster.produce(topic, 300)
        if number:
            cluster.produce(topic, 100, partition=1)
        cluster.wait_for_tier(topic, 200 * number)
        options = {} if number % 2 else {"maxOffsetsPerTrigger": "180"}
        more = {"options": options, "engine": engine, "checkpoint": str(tmp_path / "checkpoint")}
        _, answer = cluster.ask(mode, topic, out=out, **more)
        assert answer["error"] is None, (number, mode, answer)
        assert answer["batches"] >= (1 if number % 2 else 2)
    wanted, _ = cluster.ask("kafka", topic)
    found = rows_of(out)
    assert len(found) == len({row[:2] for row in found})
    assert found == wanted


@pytest.mark.parametrize(
    ("lineage", "count", "own_id", "text"),
    [
        ({0: 0}, 10, False, "another cluster, or the topic was deleted and made anew"),
        ({7: 0}, 10, True, "has leader epoch 0 at offset 9 at the brokers, and 7 in the tier"),
        ({0: 0}, 500, True, "ends at offset 500 in the tier, and at 26 at the brokers"),
    ],
    ids=["topic-id", "epoch", "ahead"],
)
def test_the_bucket_of_another_cluster(
    cluster: Cluster, tmp_path: pathlib.Path, lineage: dict[int, int], count: int, own_id: bool, text: str
) -> None:
    """If this fails, records of two clusters become one history, without a word."""
    topic = f"foreign-{count}-{own_id}-{max(lineage)}"
    cluster.make(topic, remote_storage_enable="false", local_retention_bytes="-2")
    cluster.produce(topic, 25)
    topic_id = cluster.topic_id(topic) if own_id else ""
    bucket = Bucket(tmp_path / "bucket", topic=topic, topic_id=topic_id)
    bucket.segment("s", [message(offset, f"m{offset}", 0) for offset in range(count)], lineage=lineage)
    streamed = {"checkpoint": str(tmp_path / "checkpoint"), "out": tmp_path / "streamed"}
    for more in ({}, streamed, {"engine": "python"}):
        _, answer = cluster.ask("remote-preferred", topic, path=bucket.root, **more)
        assert text in str(answer["error"]), answer
    _, answer = cluster.ask("local-only", topic, path=bucket.root)
    assert answer["error"] is None
