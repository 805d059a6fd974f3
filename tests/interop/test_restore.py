"""A real broker that lost its metadata topic gets it back from the bucket, and serves old offsets again."""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers import broker, install, plugin
from tests.support.command import Outcome, run_process
from tests.support.metadata_topics import TopicRecords, read_topic
from tierlog.remote.metadata.topic_backed.partitioner import metadata_partition

pytestmark = pytest.mark.interop

TOPIC = "orders"
METADATA = "__remote_log_metadata"
RECORDS = 4500
PATIENCE_SECONDS = 120.0
TIERS = ["local-tiered", "plugin"]


@pytest.fixture(autouse=True)
def _needs_a_broker() -> None:
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("Kafka's jars are fetched by Maven, and need a JVM")


@pytest.fixture(params=TIERS)
def settings(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> dict[str, str]:
    """Of a broker that tiers at once into ``tmp_path/tier``, and keeps no closed segment."""
    (tmp_path / "tier").mkdir()
    if request.param == "plugin":
        if not plugin.jars():
            pytest.skip(plugin.HOW)
        manager, jars = plugin.MANAGER, ":".join(map(str, plugin.jars()))
        keys = {
            "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
            "storage.root": str(tmp_path / "tier"),
            "chunk.size": "65536",
            "compression.enabled": "true",
        }
    else:
        manager = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
        jars, keys = install.class_path("kafka-tier"), {"dir": str(tmp_path / "tier")}
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "rlmm.config.remote.log.metadata.topic.min.isr": "1",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "remote.log.storage.manager.class.name": manager,
        "remote.log.storage.manager.class.path": jars,
    } | {f"rsm.config.{name}": value for name, value in keys.items()}


def create_topic(bootstrap: str) -> None:
    config = {
        "remote.storage.enable": "true",
        "segment.bytes": str(1 << 20),
        "local.retention.ms": "1",
        "retention.ms": "-1",
        "file.delete.delay.ms": "0",
    }
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(60)


def produce(bootstrap: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.num.messages": 50})
    for number in range(first, first + count):
        producer.produce(TOPIC, key=str(number).encode(), value=f"{number:08d}".encode() * 100)
        producer.poll(0)
    assert producer.flush(60) == 0


def consume(bootstrap: str, count: int) -> list[tuple[int, bytes]]:
    """Records from offset 0 on; nobody resets to where the broker has some."""
    options = {"group.id": "reader", "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **options})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    errors: list[str] = []
    try:
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records came; {errors[-3:]}"
            for message in consumer.consume(1000, timeout=5):
                error = message.error()
                if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise AssertionError(f"offset 0 is gone: {error}")
                if error is not None:  # a broker that has just started has not read its metadata yet
                    assert error.code() == KafkaError.UNKNOWN, error
                    errors.append(str(error))
                    continue
                found.append((message.offset(), message.value()))
    finally:
        consumer.close()
    return found


def until_tiered(folder: pathlib.Path) -> int:
    """Wait until the active segment alone is left on the disk; its base offset."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        left = sorted(int(path.name.split(".")[0]) for path in (folder / f"{TOPIC}-0").glob("*.log*"))
        if len(left) == 1 and left[0] > 0:
            return left[0]
        assert time.monotonic() < deadline, f"closed segments are still on the disk: {left}"
        time.sleep(0.5)


def topic_id_of(folder: pathlib.Path) -> str:
    found = re.search(r"topic_id: (\S+)", (folder / "partition.metadata").read_text())
    assert found is not None
    return found[1]


@contextlib.contextmanager
def running(folder: pathlib.Path, settings: dict[str, str]) -> Iterator[broker.Broker]:
    with broker.running(folder, heap="512m", extra=settings) as started:
        yield started


def restored(tmp_path: pathlib.Path, *options: object) -> Outcome:
    outcome = run_process("restore", tmp_path / "tier", "--quiet-minutes", "0", *options)
    assert outcome.code == 0, outcome.err
    return outcome


def test_a_lost_metadata_topic_comes_back(tmp_path: pathlib.Path, settings: dict[str, str]) -> None:
    """Otherwise all that was tiered is lost with the fifty small partitions that say where it is."""
    logs = tmp_path / "broker" / "logs"
    with running(tmp_path / "broker", settings) as started:
        create_topic(started.bootstrap)
        produce(started.bootstrap, 0, RECORDS)
        before = consume(started.bootstrap, RECORDS)
        local_start = until_tiered(logs)
    assert 0 < local_start <= RECORDS

    topic_id = topic_id_of(logs / f"{METADATA}-0")
    for number in range(2):
        shutil.rmtree(logs / f"{METADATA}-{number}")
    restored(tmp_path, "--to", f"{tmp_path}/restored/", "--partitions", 2, "--topic-id", topic_id)
    for number in range(2):
        shutil.move(tmp_path / "restored" / f"{METADATA}-{number}", logs)

    with running(tmp_path / "broker", settings) as started:
        assert consume(started.bootstrap, RECORDS) == before
        produce(started.bootstrap, RECORDS, RECORDS)  # and the cluster goes on with them
        after = consume(started.bootstrap, 2 * RECORDS)
        assert [offset for offset, _ in after] == list(range(2 * RECORDS))
        assert after[:RECORDS] == before
        assert until_tiered(logs) > local_start
        again = run_process("restore", tmp_path / "tier", "--to", started.bootstrap, "--quiet-minutes", "0")
        assert again.code == 0, again.err  # it knows them all already


def test_a_topic_that_was_made_anew_reads_its_old_segments(tmp_path: pathlib.Path, settings: dict[str, str]) -> None:
    """The cluster is gone with its disks; the bucket is there, under the id that the topic had."""
    tier = tmp_path / "tier"
    with running(tmp_path / "old", settings) as started:
        create_topic(started.bootstrap)
        produce(started.bootstrap, 0, RECORDS)
        before = consume(started.bootstrap, RECORDS)
        tiered = until_tiered(tmp_path / "old" / "logs")
    old_id = topic_id_of(tmp_path / "old" / "logs" / f"{TOPIC}-0")
    shutil.rmtree(tmp_path / "old")

    logs = tmp_path / "new" / "logs"
    with running(tmp_path / "new", settings) as started:
        create_topic(started.bootstrap)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not all((logs / name / "partition.metadata").exists() for name in (f"{TOPIC}-0", f"{METADATA}-1")):
            assert time.monotonic() < deadline
            time.sleep(0.5)
    new_id, metadata_id = topic_id_of(logs / f"{TOPIC}-0"), topic_id_of(logs / f"{METADATA}-1")
    assert new_id != old_id
    mapped: tuple[object, ...] = ("--map", f"{old_id}={new_id}")
    if "rsm.config.dir" in settings:  # LocalTieredStorage
        noted = run_process("restore", tier, *mapped)
        assert "rename their folders first" in noted.err
        (folder,) = tier.rglob(f"{TOPIC}-0-{old_id}")
        folder.rename(folder.with_name(f"{TOPIC}-0-{new_id}"))
        mapped = ()
    else:
        noted = run_process("restore", tier, *mapped)
        assert "tierlog copy" in noted.err
        config = tmp_path / "tier.properties"
        config.write_text("compression.enabled=true\nchunk.size=65536\n")
        copied = run_process("copy", tier, tier, *mapped, "--dest-config", config)
        assert copied.code == 0, copied.err
    assert "note:" not in restored(tmp_path, *mapped).err
    restored(tmp_path, *mapped, "--to", f"{tmp_path}/restored/", "--partitions", 2, "--topic-id", metadata_id)
    exported = run_process("export", tier, f"{new_id}:{TOPIC}", tmp_path / "exported", "--last-segment")
    assert exported.code == 0, exported.err
    for source in (*(tmp_path / "restored").glob(f"{METADATA}-*"), tmp_path / "exported" / f"{TOPIC}-0"):
        shutil.rmtree(logs / source.name)
        shutil.move(source, logs)
    assert len(list((logs / f"{TOPIC}-0").glob("*.log"))) == 1

    with running(tmp_path / "new", settings) as started:
        assert consume(started.bootstrap, tiered) == before[:tiered]
        produce(started.bootstrap, tiered, 100)
        assert consume(started.bootstrap, tiered + 100)[:tiered] == before[:tiered]


def test_records_go_into_a_running_kafka(tmp_path: pathlib.Path, data: pathlib.Path, settings: dict[str, str]) -> None:
    """Both records of each segment, without key, in the partition in which brokers look; a second run adds none."""
    if "rsm.config.dir" not in settings:
        pytest.skip("whose tier the broker has makes no difference")
    bucket = data / "main-plain" / "objects"
    with running(tmp_path / "broker", settings) as started:
        eventually_there(started.bootstrap)
        for _ in range(2):
            outcome = run_process("restore", bucket, "--to", started.bootstrap, "--quiet-minutes", "0")
            assert outcome.code == 0, outcome.err
            found = records_in(started.bootstrap, 2)
            topic = TopicRecords()
            for place, key, value in found:
                assert key is None
                topic.add(place, value)
            assert len(found) == 2 * len(topic.finished) == 2 * len(list(bucket.rglob("*.rsm-manifest")))
            for partition, places in topic.places.items():
                assert places == {metadata_partition(partition, 2)}
        elsewhere = tmp_path / "folder"
        restored_there = run_process("restore", bucket, "--to", f"{elsewhere}/", "--quiet-minutes", "0")
        assert restored_there.code == 0
        assert topic.segments == read_topic([elsewhere]).segments


def eventually_there(bootstrap: str) -> None:
    """Until the broker has made its metadata topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + PATIENCE_SECONDS
    while METADATA not in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline
        time.sleep(0.5)


def records_in(bootstrap: str, partitions: int) -> list[tuple[int, bytes | None, bytes]]:
    """(partition, key, value) of every record of the metadata topic, in order."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    found: list[tuple[int, bytes | None, bytes]] = []
    try:
        for partition in range(partitions):
            _, end = consumer.get_watermark_offsets(TopicPartition(METADATA, partition), timeout=30)
            consumer.assign([TopicPartition(METADATA, partition, 0)])
            last = -1
            while last < end - 1:
                (message,) = consumer.consume(1, timeout=30)
                assert message.error() is None
                found.append((partition, message.key(), message.value()))
                last = message.offset()
    finally:
        consumer.close()
    return found
