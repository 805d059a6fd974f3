"""An exported directory under a real broker of another cluster: opened as its own, at once, and written on."""

from __future__ import annotations

import pathlib
import shutil

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.command import run_process
from tests.support.peers import broker

pytestmark = pytest.mark.interop

TOPIC = "orders"
RECORDS = 4500


@pytest.fixture(autouse=True)
def _needs_a_broker() -> None:
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("Kafka's jars are fetched by Maven, and need a JVM")


def create_topic(bootstrap: str) -> str:
    """The id that the cluster gives it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config={"segment.bytes": str(1 << 20)})])[TOPIC].result(30)
    found = admin.describe_topics(_collection())[TOPIC].result(30)
    # librdkafka writes ids in base64 with padding and the letters of the other alphabet
    return str(found.topic_id).replace("+", "-").replace("/", "_").rstrip("=")


def _collection() -> object:
    from confluent_kafka import TopicCollection

    return TopicCollection([TOPIC])


def produce(bootstrap: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.num.messages": 50})
    for number in range(first, first + count):
        producer.produce(TOPIC, key=str(number).encode(), value=f"{number:08d}".encode() * 100)
        producer.poll(0)
    assert producer.flush(60) == 0


def consume(bootstrap: str, count: int) -> list[tuple[int, bytes]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[tuple[int, bytes]] = []
    try:
        while len(found) < count:
            messages = consumer.consume(1000, timeout=30)
            assert messages, f"{len(found)} of {count} records came"
            for message in messages:
                assert message.error() is None
                found.append((message.offset(), message.value()))
    finally:
        consumer.close()
    return found


def stamps(folder: pathlib.Path) -> dict[str, int]:
    """Of the indexes but the last segment's, which a broker makes larger for what it writes: when they were changed."""
    bases = sorted(log.stem for log in folder.glob("*.log"))[:-1]
    return {path.name: path.stat().st_mtime_ns for base in bases for path in folder.glob(f"{base}.*index")}


def test_a_broker_of_another_cluster_opens_it_as_its_own(tmp_path: pathlib.Path) -> None:
    """Otherwise a disaster's copy is a folder that no broker takes, or reads for hours before it does."""
    with broker.running(tmp_path / "old") as old:
        create_topic(old.bootstrap)
        produce(old.bootstrap, 0, RECORDS)
        before = consume(old.bootstrap, RECORDS)
    copied = run_process("copy", tmp_path / "old" / "logs", tmp_path / "bucket", TOPIC)
    assert copied.code == 0, copied.err

    disks = {"log.dirs": str(tmp_path / "empty"), "metadata.log.dir": str(tmp_path / "new" / "logs")}
    with broker.running(tmp_path / "new", extra=disks) as new:
        topic_id = create_topic(new.bootstrap)
    known = (tmp_path / "empty" / "meta.properties").read_text().splitlines()
    directory_id = next(line.removeprefix("directory.id=") for line in known if line.startswith("directory.id="))
    dest = tmp_path / "dest"
    options = ("--for-cluster", broker.CLUSTER_ID, "--node-id", "1", "--topic-id", topic_id)
    options = (*options, "--directory-id", directory_id)
    exported = run_process("export", tmp_path / "bucket", TOPIC, dest, *options)
    assert exported.code == 0, exported.err

    written = stamps(dest / f"{TOPIC}-0")
    assert len(written) >= 4
    disks["log.dirs"] = str(dest)
    with broker.running(tmp_path / "new", extra=disks) as new:
        assert stamps(dest / f"{TOPIC}-0") == written, "it took the stop for unclean, and made indexes anew"
        last = max(int(log.stem) for log in (tmp_path / "old" / "logs" / f"{TOPIC}-0").glob("*.log"))
        found = consume(new.bootstrap, last)  # what the bucket has: all but the segment that was active
        assert found == before[:last]
        produce(new.bootstrap, last, 100)
        again = consume(new.bootstrap, last + 100)
        assert [offset for offset, _ in again] == list(range(last + 100))
        assert [value for _, value in again] == [value for _, value in before[: last + 100]]
    assert run_process("verify", dest).code == 0
