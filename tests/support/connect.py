"""Kafka Connect as a process: a worker with connectors, and what they leave in clusters."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.support.metadata_cluster import admin_of
from tests.support.peers import install
from tests.support.replica_server import free_port, write_properties

_MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"
START_SECONDS = 90.0
STOP_SECONDS = 60.0
CONVERTERS = ("key.converter", "value.converter", "header.converter")
AS_TEXT = dict.fromkeys(CONVERTERS, "org.apache.kafka.connect.storage.StringConverter")
AS_BYTES = dict.fromkeys(CONVERTERS, "org.apache.kafka.connect.converters.ByteArrayConverter")


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
        """Return the traces of connectors and tasks that have failed."""
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


def committed(bootstrap: str, group: str, topic: str, partitions: Mapping[int, int]) -> dict[int, int]:
    """Partition -> the offset that a group has committed."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        found = consumer.committed([TopicPartition(topic, partition) for partition in partitions], 20)
    finally:
        consumer.close()
    return {each.partition: each.offset for each in found}
