"""Others' clients and tools read a live cluster through a front as they read it straight, most of it from the tier."""

from __future__ import annotations

import collections
import functools
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.support.connect import AS_BYTES, AS_TEXT, committed, connect_worker, has_records, mirror
from tests.support.front_cluster import LEVELS, Front, FrontCluster, front_cluster
from tests.support.metadata_cluster import admin_of
from tests.support.peers import broker, install
from tests.support.replica_readers import CLIENTS, READERS, confluent
from tests.support.spark_reader import spark_reading

pytestmark = pytest.mark.interop

TOPIC, PARTITIONS = "read-by-all", 2
PATIENCE_SECONDS = 180.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontCluster]:
    with front_cluster(tmp_path_factory.mktemp("front")) as made:
        made.make(TOPIC, PARTITIONS)
        made.produce(TOPIC, 1200, partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            made.wait_for_tier(TOPIC, 300, partition)
        yield made


@pytest.fixture(scope="module")
def front(cluster: FrontCluster) -> Iterator[Front]:
    with cluster.front() as made:
        yield made


@pytest.mark.parametrize("client", READERS)
def test_each_library_reads_the_same(cluster: FrontCluster, front: Front, client: str) -> None:
    """A library that reads other fields of an answer than librdkafka would be told something else by the front."""
    for isolation in LEVELS:
        wanted = READERS[client](cluster.plain, TOPIC, isolation, range(PARTITIONS))
        before = front.bytes_from("tier")
        assert READERS[client](front.bootstrap, TOPIC, isolation, range(PARTITIONS)) == wanted, isolation
        assert len(wanted) > 700
        assert front.bytes_from("tier") - before > 4 << 20, "most of it came from the bucket"


def test_spark_reads_the_same(cluster: FrontCluster, front: Front, tmp_path: pathlib.Path) -> None:
    """Spark's own Kafka source: its offsets are those of the front's ListOffsets, its records those of its Fetch."""
    wanted = confluent(cluster.plain, TOPIC, "read_committed", range(PARTITIONS))
    with spark_reading(tmp_path) as reader:
        before = front.bytes_from("tier")
        assert reader.read(front.bootstrap, TOPIC, "read_committed") == (wanted, 0)
        assert front.bytes_from("tier") - before > 4 << 20
        found, batches = reader.read(front.bootstrap, TOPIC, "read_committed", records_per_batch=200)
        assert found == wanted
        assert batches > 2


def test_connect_reads_the_same(cluster: FrontCluster, front: Front, tmp_path: pathlib.Path) -> None:
    """A sink of Kafka Connect, whose group commits through the front."""
    wanted = confluent(cluster.plain, TOPIC, "read_committed", range(PARTITIONS))
    file = tmp_path / "sink.txt"
    sink = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "topics": TOPIC,
        "file": str(file),
        "key.converter": AS_TEXT["key.converter"],
        "value.converter": AS_TEXT["value.converter"],
        "transforms": "keys",
        "transforms.keys.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        "transforms.keys.field": "value",
        "consumer.override.isolation.level": "read_committed",
    }
    with connect_worker(tmp_path, front.bootstrap, {"sink": sink}, AS_TEXT) as worker:

        def has_committed() -> bool:
            last = {partition: max(row[1] for row in wanted if row[0] == partition) for partition in range(PARTITIONS)}
            found = committed(cluster.plain, "connect-sink", TOPIC, last)
            return all(found[partition] > offset for partition, offset in last.items())

        worker.wait_until(has_committed, "the sink's group is at the end", seconds=PATIENCE_SECONDS)
    assert file.read_bytes().count(b"Struct{value=") + file.read_bytes().count(b"Struct{}") == len(wanted)


def test_mirror_maker_copies_the_same(cluster: FrontCluster, front: Front, tmp_path: pathlib.Path) -> None:
    """MirrorMaker 2 moves a cluster by reading all of its history: just what a front is for."""
    wanted = confluent(cluster.plain, TOPIC, "read_committed", range(PARTITIONS))
    with broker.running(tmp_path / "target", heap="512m", jars="kafka-log") as target:
        keys = mirror(front.bootstrap, target.bootstrap, "source", "read_committed") | {"topics": TOPIC}
        keys["config.properties.exclude"] = "remote[.].*, local[.].*"  # the other cluster does not tier
        copy = f"source.{TOPIC}"
        with connect_worker(tmp_path, target.bootstrap, {"mirror": keys}, AS_BYTES) as worker:
            is_whole = functools.partial(has_records, target.bootstrap, copy, len(wanted))
            worker.wait_until(is_whole, f"{copy} has all records", seconds=PATIENCE_SECONDS)
            found = confluent(target.bootstrap, copy, "read_uncommitted", range(PARTITIONS))
    assert [(row[0], *row[2:]) for row in found] == [(row[0], *row[2:]) for row in wanted]


def test_streams_count_each_word_once(cluster: FrontCluster, front: Front, tmp_path: pathlib.Path) -> None:
    """Kafka Streams with exactly_once_v2: killed, and begun again without its state, which its changelog has."""
    words, counts = "words", "counts"
    cluster.make(words, PARTITIONS)
    cluster.make(counts, 1, remote_storage_enable="false", local_retention_bytes="-2")
    written = write_words(front.bootstrap, words, 3000)
    for partition in range(PARTITIONS):
        cluster.wait_for_tier(words, 500, partition)
    java = [install.java(), "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    command = [*java, "-cp", install.class_path("kafka-streams"), str(CLIENTS / "WordCount.java")]
    before = front.bytes_from("tier")
    for attempt in range(2):
        at = [front.bootstrap, words, counts, "word-count", str(tmp_path / f"state-{attempt}")]
        log = tmp_path / f"streams-{attempt}.log"
        with log.open("wb") as out:
            process = subprocess.Popen([*command, *at], stdin=subprocess.PIPE, stdout=out, stderr=out)
        try:
            until = time.monotonic() + PATIENCE_SECONDS
            while counted(cluster.plain, counts) != written:
                is_under_way = process.poll() is None and time.monotonic() < until
                assert is_under_way, log.read_text()[-3000:]
            if attempt == 0:
                os.kill(process.pid, signal.SIGKILL)
                written += write_words(front.bootstrap, words, 500)
            else:
                process.communicate(timeout=60)
                assert process.returncode == 0, log.read_text()[-3000:]
        finally:
            process.kill()
            process.communicate()
    assert front.bytes_from("tier") - before > 4 << 20
    internal = {
        name for name in admin_of(cluster.plain).list_topics(timeout=30).topics if name.startswith("word-count")
    }
    assert {name.rpartition("-")[2] for name in internal} == {"changelog", "repartition"}


def write_words(bootstrap: str, topic: str, count: int) -> collections.Counter[str]:
    """Records whose first word counts, and how often each is there."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    written: collections.Counter[str] = collections.Counter()
    for number in range(count):
        word = f"word-{number * number % 23}"
        producer.produce(topic, f"{word} {os.urandom(2000).hex()}".encode(), partition=number % PARTITIONS)
        producer.poll(0)
        written[word] += 1
    assert producer.flush(PATIENCE_SECONDS) == 0
    return written


def counted(bootstrap: str, topic: str) -> collections.Counter[str]:
    """The last count of each word."""
    rows = confluent(bootstrap, topic, "read_committed", [0])
    return collections.Counter({bytes(row[3] or b"").decode(): int(row[4] or 0) for row in rows})
