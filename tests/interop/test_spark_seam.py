"""Spark reads history from the tier and the rest from brokers: each record once, as by Spark's Kafka source."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.metadata_cluster import delete_topic
from tests.support.peers import install
from tests.support.seam_cluster import Cluster, check, rows_of, seam_cluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

TOPIC = "orders"
#: Mode and engine; Python's cannot ask where local logs begin.
READS = (
    ("remote-preferred", "jar"),
    ("local-preferred", "jar"),
    ("local-only", "jar"),
    ("remote-preferred", "python"),
    ("local-only", "python"),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with seam_cluster(tmp_path_factory.mktemp("seam")) as made:
        yield made


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


@pytest.mark.parametrize(("mode", "engine"), [READS[0], READS[1], READS[3]])
def test_filters_leave_out_what_the_tier_need_not_give(orders: Cluster, mode: str, engine: str) -> None:
    """If this fails, a query of the last hour reads all of the tier, or a filter takes records that it lets through."""
    rows, _ = orders.ask("kafka", TOPIC)
    late = rows[650][2]
    options = {"pushDownPredicate": "true", "maxBytesPerPartition": "1"}
    for where in (
        f"timestamp >= timestamp_millis({late})",
        "offset BETWEEN 700 AND 750",
        "partition = 1 AND offset < 40",
    ):
        wanted, _ = orders.ask("kafka", TOPIC, where=where)
        found, answer = orders.ask(mode, TOPIC, options=options, engine=engine, where=where)
        assert (answer["error"], found) == (None, wanted), where
        assert len(wanted) > 30
        if engine == "python" and install.PYSPARK < "4.1":
            continue  # Spark 4.0 tells a Python source of no filters
        _, all_of_it = orders.ask(mode, TOPIC, options=options, engine=engine)
        assert answer["tasks"] < all_of_it["tasks"] / 2, where


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
    check(rows_of(out), wanted)


@pytest.mark.parametrize("engine", ["jar", "python"])
def test_a_stream_through_connect(cluster: Cluster, tmp_path: pathlib.Path, engine: str) -> None:
    """If this fails, a notebook that has no JVM of its own cannot follow a topic, or a batch read ends elsewhere."""
    topic = f"connect-{engine}"
    cluster.make(topic)
    cluster.produce(topic, 300)
    cluster.wait_for_tier(topic, 150)
    wanted, _ = cluster.ask("kafka", topic)
    cluster.end_spark()
    cluster.through_connect = True
    try:
        found, answer = cluster.ask("remote-preferred", topic, engine=engine)
        assert (answer["error"], found) == (None, wanted)
        more: dict[str, Any] = {"out": tmp_path / "out", "checkpoint": str(tmp_path / "checkpoint"), "engine": engine}
        for count in (0, 100):
            cluster.produce(topic, count, partition=1)
            _, answer = cluster.ask("remote-preferred", topic, **more)
            assert answer["error"] is None
        wanted, _ = cluster.ask("kafka", topic)
    finally:
        cluster.through_connect = False
        cluster.end_spark()
    check(rows_of(tmp_path / "out"), wanted)


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


def test_a_topic_that_is_made_anew(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """If this fails, a query goes on in another topic's records, at the offset of the old one's."""
    topic = "renewed"
    more: dict[str, Any] = {"out": tmp_path / "out", "checkpoint": str(tmp_path / "checkpoint")}
    more["options"] = {"layout": "local-tiered"}  # the bucket is empty, if this test runs first
    cluster.make(topic)
    cluster.produce(topic, 25)
    _, answer = cluster.ask("remote-preferred", topic, **more)
    assert answer["error"] is None
    delete_topic(cluster.bootstrap, topic)
    wait_until(lambda: not (cluster.running.log_dir / f"{topic}-0").exists())
    cluster.make(topic)
    cluster.produce(topic, 75)
    for _ in range(2):
        _, answer = cluster.ask("remote-preferred", topic, **more)
        assert "renewed was deleted and made anew" in str(answer["error"])


def test_brokers_that_do_not_know_the_topic(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """If this fails, a query begins over the history of a topic that its cluster does not have, or makes the topic."""
    topic = "nowhere"
    bucket = Bucket(tmp_path / "bucket", topic=topic)
    bucket.segment("s", [message(offset, f"m{offset}", 0) for offset in range(10)], lineage={0: 0})
    streamed = {"checkpoint": str(tmp_path / "checkpoint"), "out": tmp_path / "streamed"}
    for more in ({}, streamed, {"engine": "python"}):
        _, answer = cluster.ask("remote-preferred", topic, path=bucket.root, **more)
        assert "UnknownTopic" in str(answer["error"]), answer
    found, _ = cluster.ask("remote-only", topic, path=bucket.root, options={"kafka.bootstrap.servers": None})
    assert len(found) == 10
    assert not (cluster.running.log_dir / f"{topic}-0").exists()


@pytest.mark.parametrize("engine", ["jar", "python"])
def test_all_of_a_topic_is_deleted_past_its_reader(cluster: Cluster, tmp_path: pathlib.Path, engine: str) -> None:
    """If this fails, a query stands still before a topic that has nothing left, or passes over what it lost unasked."""
    topic = f"emptied-{engine}"
    more: dict[str, Any] = {"out": tmp_path / "out", "checkpoint": str(tmp_path / "checkpoint"), "engine": engine}
    more["options"] = {"layout": "local-tiered"}  # the bucket may have nothing else
    cluster.make(topic)
    cluster.produce(topic, 400)
    cluster.wait_for_tier(topic, 200)
    before, answer = cluster.ask("remote-preferred", topic, **more)
    assert answer["error"] is None
    cluster.produce(topic, 100)
    cluster.delete_records(topic)
    wait_until(lambda: not list(cluster.tier.glob(f"**/{topic}-*/**/*.log")))
    _, answer = cluster.ask("remote-preferred", topic, **more)
    assert "failOnDataLoss" in str(answer["error"]), answer
    cluster.produce(topic, 50)
    more["options"]["failOnDataLoss"] = "false"
    for _ in range(2):  # the first one of Spark 4.1's Python sources ends behind the batch that failed
        after, answer = cluster.ask("remote-preferred", topic, **more)
        assert answer["error"] is None
    wanted, _ = cluster.ask("kafka", topic, out=tmp_path / "wanted")
    check(after, sorted([*before, *wanted], key=lambda row: row[:2]))
    assert wanted
