"""Real clients read a live cluster through a front: history from the bucket, all else from the broker."""

from __future__ import annotations

import pathlib
import shutil
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.front_cluster import (
    LEVELS,
    Front,
    FrontCluster,
    front_cluster,
    grant,
    login,
    records_of,
)
from tests.support.kafka_tools import kafka_tools
from tests.support.metadata_cluster import admin_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontCluster]:
    with front_cluster(tmp_path_factory.mktemp("front")) as made:
        yield made


@pytest.fixture(scope="module")
def front(cluster: FrontCluster) -> Iterator[Front]:
    with cluster.front("--layout", "local-tiered") as made:  # of a bucket that has nothing yet
        yield made


def tiered(cluster: FrontCluster, topic: str, count: int = 750, partitions: int = 1) -> None:
    """A topic whose first half lies in the tier alone."""
    cluster.make(topic, partitions)
    cluster.produce(topic, count, partitions=partitions)
    for partition in range(partitions):
        cluster.wait_for_tier(topic, count // partitions // 2, partition)


def listed(front: Front, topic: str) -> None:
    """Wait until a new consumer gets bytes of the tier."""
    before = front.bytes_from("tier")

    def is_served() -> bool:
        records_of(front.bootstrap, topic, seconds=30)
        return front.bytes_from("tier") > before

    wait_until(is_served)


def is_refused(front: Front, topic: str) -> bool:
    """Whether a new consumer's partition is known not to be the bucket's."""
    records_of(front.bootstrap, topic)
    return front.metric("partitions_of_another_lineage") == 1


@pytest.mark.parametrize("isolation", LEVELS)
def test_each_record_as_from_the_broker(cluster: FrontCluster, front: Front, isolation: str) -> None:
    """If this fails, a consumer behind the front gets other records than one of the cluster."""
    topic = f"equal-{isolation}"
    tiered(cluster, topic, 1500, partitions=2)
    wanted = records_of(cluster.plain, topic, 2, isolation=isolation)
    before = front.bytes_from("tier"), front.bytes_from("upstream")
    found = records_of(front.bootstrap, topic, 2, isolation=isolation)
    assert found == wanted
    assert len(wanted) > 900
    assert front.bytes_from("tier") - before[0] > 4 << 20, "most of it came from the bucket"
    assert front.bytes_from("upstream") > before[1], "the live end came from the broker"


def test_a_consumer_goes_over_into_the_live_end(cluster: FrontCluster, front: Front) -> None:
    """If this fails, a record is lost or doubled while the border between tier and broker moves."""
    topic = "moving"
    tiered(cluster, topic)
    stop = threading.Event()

    def produce() -> None:
        while not stop.is_set():
            cluster.produce(topic, 75, bootstrap=front.bootstrap)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        for isolation in LEVELS:
            found = {}
            until = time.monotonic() + 8
            start = 0
            while time.monotonic() < until:
                found |= (more := records_of(front.bootstrap, topic, isolation=isolation, start={0: start}))
                start = max((offset for _, offset in more), default=start - 1) + 1
            wanted = records_of(cluster.plain, topic, isolation=isolation)
            assert len(found) > 750 * 0.6
            assert found == {place: told for place, told in wanted.items() if place[1] < start}
    finally:
        stop.set()
        thread.join()


def test_java_reads_the_same(cluster: FrontCluster, front: Front, tmp_path: pathlib.Path) -> None:
    """If this fails, Kafka's own consumer is told something that librdkafka does not look at."""
    topic = "java"
    tiered(cluster, topic)
    listed(front, topic)
    count = len(records_of(cluster.plain, topic, isolation="read_committed"))
    show = [
        f"--formatter-property=print.{name}=true" for name in ("offset", "partition", "key", "headers", "timestamp")
    ]
    with kafka_tools(tmp_path) as tools:
        outs = []
        for bootstrap in (cluster.plain, front.bootstrap):
            ran = tools.run(
                "kafka-console-consumer",
                *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--max-messages", str(count)),
                *("--isolation-level", "read_committed", *show),
            )
            assert ran.code == 0, ran.text
            outs.append(ran.out)
        assert outs[0] == outs[1]
        assert outs[0].count(b"Offset:") == count
        for time_ms in ("-2", "-1", "1"):
            told = [
                tools.run("kafka-get-offsets", "--bootstrap-server", each, "--topic", topic, "--time", time_ms).out
                for each in (cluster.plain, front.bootstrap)
            ]
            assert told[0] == told[1]
    assert front.metric("tier_lookups_total") >= 1


def test_times_are_the_brokers(cluster: FrontCluster, front: Front) -> None:
    """If this fails, a consumer that begins at a time begins somewhere else than at the broker."""
    from confluent_kafka import Consumer, TopicPartition

    topic = "times"
    tiered(cluster, topic)
    listed(front, topic)
    consumers = [Consumer({"bootstrap.servers": each, "group.id": "t"}) for each in (cluster.plain, front.bootstrap)]
    stamped = Consumer({"bootstrap.servers": cluster.plain, "group.id": "t", "auto.offset.reset": "earliest"})
    stamped.assign([TopicPartition(topic, 0, 0)])
    times = sorted({m.timestamp()[1] for m in stamped.consume(600, 10.0)})
    stamped.close()
    assert len(times) > 20
    for time_ms in [*times[:: len(times) // 20], times[0] - 1, times[-1] + 1, times[-1] + 10**9]:
        told = [each.offsets_for_times([TopicPartition(topic, 0, time_ms)], 30)[0] for each in consumers]
        assert [each.error for each in told] == [None, None]
        assert (time_ms, told[0].offset) == (time_ms, told[1].offset)
    for consumer in consumers:
        consumer.close()


def test_rights(cluster: FrontCluster) -> None:
    """If this fails, the bucket is a way past the cluster's ACLs."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

    topic = "secret"
    tiered(cluster, topic)
    grant(cluster.plain, "front", topic, ["DESCRIBE"])
    grant(cluster.plain, "reader", topic, ["READ"])
    grant(cluster.plain, "writer", topic, ["WRITE"])
    for user in ("reader", "writer"):
        grant(cluster.plain, user, "none", ["READ"], group=True)
    wanted = records_of(cluster.plain, topic)
    with cluster.front("--auth-refresh", "1", user="front") as front:

        def read(user: str) -> int:
            return len(records_of(front.bootstrap, topic, keys=login(user), seconds=30))

        wait_until(lambda: read("reader") == len(wanted) and front.bytes_from("tier") > 0)
        before = front.bytes_from("tier")
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            read("writer")
        assert front.bytes_from("tier") == before
        assert read("reader") == len(wanted)
        living = Consumer({"bootstrap.servers": front.bootstrap, "group.id": "none", **login("reader")})
        place = TopicPartition(topic, 0, OFFSET_BEGINNING)
        living.assign([place])
        assert living.poll(30) is not None
        grant(cluster.plain, "reader", topic, ["READ"], remove=True)
        time.sleep(1.5)
        before = front.bytes_from("tier")
        with pytest.raises((KafkaException, AssertionError)):
            read("reader")
        living.seek(place)  # on the connection that had the right
        told = [message.error() for message in living.consume(1000, 5)]
        living.close()
        assert front.bytes_from("tier") == before
        assert told
        assert all(error is not None for error in told[-3:])


def test_deleted_records_are_gone(cluster: FrontCluster, front: Front) -> None:
    """If this fails, what was deleted is still served from the bucket."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    topic = "deleted"
    tiered(cluster, topic)
    listed(front, topic)
    for bootstrap, offset, wait in ((front.bootstrap, 100, 0.0), (cluster.plain, 200, 1.2)):
        admin = admin_of(bootstrap)
        admin.delete_records([TopicPartition(topic, 0, offset)])[TopicPartition(topic, 0)].result(30)
        time.sleep(wait)
        with pytest.raises(KafkaException, match=r"OUT_OF_RANGE|out of range|_AUTO_OFFSET_RESET"):
            records_of(front.bootstrap, topic, start={0: offset - 1})
        before = front.bytes_from("tier")
        found = records_of(front.bootstrap, topic, start={0: offset})
        assert min(found) == (0, offset)
        assert found == records_of(cluster.plain, topic, start={0: offset})
        assert front.bytes_from("tier") > before
        consumer = Consumer({"bootstrap.servers": front.bootstrap, "group.id": "t"})
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)[0] == offset
        consumer.close()


def test_a_topic_made_anew(cluster: FrontCluster, front: Front, tmp_path: pathlib.Path) -> None:
    """If this fails, records of a topic that is gone are served under its name."""
    topic = "anew"
    tiered(cluster, topic)
    listed(front, topic)
    of_the_first = tmp_path / "tier"
    shutil.copytree(cluster.tier, of_the_first)
    cluster.delete(topic)
    cluster.make(topic)
    cluster.produce(topic, 300)
    wanted = records_of(cluster.plain, topic)
    assert records_of(front.bootstrap, topic) == wanted
    with cluster.front(tier=of_the_first) as behind:
        assert records_of(behind.bootstrap, topic) == wanted
        assert records_of(behind.bootstrap, topic) == wanted
        assert behind.bytes_from("tier") == 0
        wait_until(lambda: behind.metric("topics_of_another_id") == 1)  # whoever asks


def test_a_bucket_that_is_behind(cluster: FrontCluster, tmp_path: pathlib.Path) -> None:
    """If this fails, records between an old copy of the bucket and the broker's disk are lost."""
    topic = "behind"
    tiered(cluster, topic)
    old = tmp_path / "tier"
    shutil.copytree(cluster.tier, old)
    cluster.produce(topic, 750)
    cluster.wait_for_tier(topic, 1000)
    wanted = records_of(cluster.plain, topic)
    with cluster.front(tier=old) as front:
        assert records_of(front.bootstrap, topic) == wanted
        assert front.bytes_from("tier") > 1 << 20
        assert front.bytes_from("upstream") > 4 << 20


def test_a_bucket_of_another_lineage(cluster: FrontCluster, tmp_path: pathlib.Path) -> None:
    """If this fails, records that an unclean election took back are served."""
    topic = "diverged"
    tiered(cluster, topic)
    other = tmp_path / "tier"
    shutil.copytree(cluster.tier, other)
    changed = 0
    for path in other.rglob(f"{topic}-0-*/*leader*"):
        text = path.read_text()
        head, entries = text.splitlines()[:2], [line.split() for line in text.splitlines()[2:]]
        path.write_text("\n".join([*head, *(f"{int(epoch) + 5} {start}" for epoch, start in entries)]) + "\n")
        changed += 1
    assert changed > 2, [path.name for path in other.rglob("*")][:20]
    with cluster.front(tier=other) as front:
        wait_until(lambda: is_refused(front, topic))
        assert records_of(front.bootstrap, topic) == records_of(cluster.plain, topic)
        assert front.bytes_from("tier") == 0


def test_local_preference(cluster: FrontCluster) -> None:
    """If this fails, `--prefer` says nothing, or records between the two sources are lost."""
    topic = "local"
    cluster.make(topic, local_retention_bytes=str(3 << 20))
    cluster.produce(topic, 1500)
    cluster.wait_for_tier(topic, 500)
    wanted = records_of(cluster.plain, topic)
    told = {}
    for preference in ("local", "remote"):
        with cluster.front("--prefer", preference) as front:
            assert records_of(front.bootstrap, topic) == wanted
            told[preference] = front.bytes_from("tier")
    assert 0 < told["local"] < told["remote"]
