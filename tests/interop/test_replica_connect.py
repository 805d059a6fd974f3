"""Kafka Connect reads every golden bucket through ``tierlog replica``: its file sink, and MirrorMaker 2's source."""

from __future__ import annotations

import contextlib
import functools
import json
import pathlib
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from tests.support.golden import ISOLATIONS, tiered_offsets
from tests.support.golden_replicas import expected_reads, golden_replicas
from tests.support.metadata_cluster import admin_of, needs_a_broker
from tests.support.peers import broker, install
from tests.support.replica_readers import ReadRow, confluent, expected_rows, plain_text
from tests.support.replica_server import free_port, write_properties

_MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"
START_SECONDS = 90.0
STOP_SECONDS = 60.0


class ConnectWorker:
    """A worker with its connectors.

    Args:
        url: Of its REST interface.
        process: Of the worker.
        log: What it wrote to stdout and stderr.
    """

    def __init__(self, url: str, process: subprocess.Popen[bytes], log: pathlib.Path) -> None:
        self.url, self.process, self.log = url, process, log

    def wait_until(self, holds: Callable[[], bool], what: str, *, seconds: float) -> None:
        """Wait for what its connectors do. The test fails where one of them, or the worker, fails, or time is up."""
        deadline = time.monotonic() + seconds
        while not holds():
            failed = self.failures()
            if failed or self.process.poll() is not None or time.monotonic() > deadline:
                told = self.log.read_text(errors="replace")[-3000:]
                pytest.fail(f"{what}: not after {seconds} s; failed: {failed}\n{told}", pytrace=False)
            time.sleep(0.2)

    def failures(self) -> list[str]:
        """What made connectors and tasks fail."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}?expand=status", timeout=20) as answer:
            known = [each["status"] for each in json.load(answer).values()]
            parts = [part for status in known for part in (status["connector"], *status["tasks"])]
            return [part.get("trace", "") for part in parts if part["state"] == "FAILED"]
        return []


@contextlib.contextmanager
def connect_worker(
    folder: pathlib.Path, bootstrap: str, connectors: Mapping[str, Mapping[str, str]], settings: Mapping[str, str]
) -> Iterator[ConnectWorker]:
    """Run connectors until the block ends; then SIGTERM must end the worker, which commits what it has read.

    Args:
        folder: For its files.
        bootstrap: The cluster that it works for.
        connectors: Name -> configuration.
        settings: Of the worker.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}/connectors"
    own = {
        "bootstrap.servers": bootstrap,
        "listeners": f"http://127.0.0.1:{port}",
        "offset.storage.file.filename": str(folder / "connect.offsets"),
        "offset.flush.interval.ms": "500",
        "plugin.discovery": "service_load",
    }
    files = [write_properties(folder / "worker.properties", own | dict(settings))]
    for name, keys in connectors.items():
        files.append(write_properties(folder / f"{name}.properties", {"name": name, **keys}))
    command = [install.java(), "-Xmx768m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    command += ["-cp", install.class_path("kafka-connect"), _MAIN, *map(str, files)]
    log = folder / "connect.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    worker = ConnectWorker(url, process, log)
    try:
        worker.wait_until(lambda: _listens(url), "the worker takes requests", seconds=START_SECONDS)
        yield worker
        process.terminate()
        process.wait(STOP_SECONDS)
    finally:
        process.kill()
        process.wait()


def _listens(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=20):
        return True
    return False


pytestmark = pytest.mark.interop

PATIENCE_SECONDS = 180.0
CONFIG = {"group.initial.rebalance.delay.ms": "0"}
CONVERTERS = ("key.converter", "value.converter", "header.converter")
AS_TEXT = dict.fromkeys(CONVERTERS, "org.apache.kafka.connect.storage.StringConverter")
AS_BYTES = dict.fromkeys(CONVERTERS, "org.apache.kafka.connect.converters.ByteArrayConverter")


def test_the_file_sink_writes_what_a_real_consumer_read(fixtures: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A connector that replays history into another system would leave that with other records than the broker had."""
    needs_a_broker()
    compared = 0
    for server, cases in golden_replicas(fixtures, tmp_path, CONFIG):
        folder = pathlib.Path(server.log.parent)
        connectors, wanted = {}, {}
        for case, isolation, expected in expected_reads(cases):
            if any(isinstance(value, str) for *_, value, _ in expected):
                continue  # of large values the golden data has digests, which text does not give
            name = f"{case.topic}-{isolation}"
            wanted[name] = case.topic, expected
            connectors[name] = {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
                "topics": case.topic,
                "file": str(folder / f"{name}.txt"),
                "consumer.override.isolation.level": isolation,
            }
        with connect_worker(folder, server.bootstrap, connectors, AS_TEXT) as worker:
            for name, (_, expected) in wanted.items():
                file, text = folder / f"{name}.txt", text_of(expected)
                is_whole = functools.partial(has_lines, file, text.count("\n"))
                worker.wait_until(is_whole, f"{name} has all records", seconds=PATIENCE_SECONDS)
        for name, (topic, expected) in wanted.items():
            written = (folder / f"{name}.txt").read_bytes().decode()
            assert sorted(plain_text(written).split("\n")) == sorted(plain_text(text_of(expected)).split("\n")), name
            last = {partition: offset + 1 for partition, offset, *_ in expected}
            assert committed(server.bootstrap, f"connect-{name}", topic, last) == last, name
            compared += 1
    assert compared > 60


def text_of(rows: Sequence[ReadRow]) -> str:
    """What the file sink writes of records whose values are text to it, as far as order counts for nothing."""
    values = ("null" if value is None else bytes(value).decode(errors="replace") for *_, value, _ in rows)  # type: ignore[arg-type]
    return "".join(f"{value}\n" for value in values)


def has_lines(file: pathlib.Path, count: int) -> bool:
    return file.exists() and file.read_bytes().count(b"\n") >= count


def committed(bootstrap: str, group: str, topic: str, partitions: Mapping[int, int]) -> dict[int, int]:
    """Partition -> the offset that a group has committed."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        found = consumer.committed([TopicPartition(topic, partition) for partition in partitions], 20)
    finally:
        consumer.close()
    return {each.partition: each.offset for each in found}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Kafka that copies go to."""
    needs_a_broker()
    folder = tmp_path_factory.mktemp("target")
    with broker.running(folder / "broker", heap="512m", jars="kafka-log") as started:
        yield started.bootstrap


def test_mirror_maker_copies_what_a_real_consumer_read(
    target: str, fixtures: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A cluster that is filled again from its bucket would hold other records than the one that was lost."""
    compared = 0
    for server, cases in golden_replicas(fixtures, tmp_path):
        folder = pathlib.Path(server.log.parent)
        aliases = {isolation: f"{folder.name}-{isolation}" for isolation in ISOLATIONS}
        connectors = {alias: mirror(server.bootstrap, target, alias, isolation) for isolation, alias in aliases.items()}
        with connect_worker(folder, target, connectors, AS_BYTES) as worker:
            for case in cases:
                for isolation, alias in aliases.items():
                    expected = expected_rows(case, isolation)
                    if not expected:
                        continue
                    topic, partitions = f"{alias}.{case.topic}", sorted(tiered_offsets(case))
                    is_whole = functools.partial(has_records, target, topic, len(expected))
                    worker.wait_until(is_whole, f"{topic} has all records", seconds=PATIENCE_SECONDS)
                    found = confluent(target, topic, "read_uncommitted", partitions)
                    assert without_offsets(found) == without_offsets(expected), f"{case} {isolation}"
                    compared += 1
    assert compared > 60


def mirror(source: str, target: str, alias: str, isolation: str) -> dict[str, str]:
    """A copy of all topics; what MirrorMaker itself has to keep goes to the target, as a replica takes no writes."""
    return {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": alias,
        "source.cluster.bootstrap.servers": source,
        "source.consumer.isolation.level": isolation,
        "target.cluster.alias": "target",
        "target.cluster.bootstrap.servers": target,
        "topics": ".*",
        "tasks.max": "2",
        "replication.factor": "1",
        "offset-syncs.topic.location": "target",
        "offset-syncs.topic.replication.factor": "1",
    }


def has_records(bootstrap: str, topic: str, count: int) -> bool:
    """Whether a topic without transactions is there and has as many."""
    from confluent_kafka import KafkaError, KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    admin = admin_of(bootstrap)
    known = admin.list_topics(timeout=20).topics.get(topic)
    if known is None:
        return False
    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in known.partitions}
    try:
        return sum(future.result(20).offset for future in admin.list_offsets(asked).values()) >= count
    except KafkaException as error:
        new = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART)
        if error.args[0].code() not in new:  # a topic that was made just now has no leader yet
            raise
        return False


def without_offsets(rows: Sequence[ReadRow]) -> list[tuple[object, ...]]:
    """In the order of each partition: a copy has no gaps."""
    return [(row[0], *row[2:]) for row in rows]
