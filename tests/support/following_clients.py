"""Kafka clients that were not written here and that follow topics without an end, each in a thread or a process."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.checkout import ROOT
from tests.support.peers import install

CLIENTS = ROOT / "tests" / "interop" / "clients"
#: Short of what clients wait by default for news of topics and after errors.
WAIT_MS = 200
#: (topic, partition)
Place = tuple[str, int]


@dataclass(frozen=True)
class Delivered:
    """A record that a client handed to its user."""

    offset: int
    value: bytes
    at_seconds: float


class Following:
    """What one client has got so far. Written by the client's thread, read by the test's.

    Attributes:
        assigned_again: Partitions that librdkafka is to be assigned anew, from their beginning.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.delivered: dict[Place, list[Delivered]] = {}
        self.errors: list[str] = []
        self.assigned_again: queue.SimpleQueue[Place] = queue.SimpleQueue()
        self._lock = threading.Lock()

    def add(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        with self._lock:
            self.delivered.setdefault((topic, partition), []).append(Delivered(offset, value, time.monotonic()))

    def note(self, error: object) -> None:
        """What the client told its user of a trouble."""
        with self._lock:
            self.errors.append(str(error))

    def got(self, place: Place) -> list[Delivered]:
        """All of one partition, in the order of delivery."""
        with self._lock:
            return list(self.delivered.get(place, ()))

    def position(self, place: Place) -> int | None:
        """Behind the last record of a partition; None before the first one."""
        with self._lock:
            got = self.delivered.get(place)
            return got[-1].offset + 1 if got else None


@contextlib.contextmanager
def _in_thread(following: Following, run: Callable[[threading.Event], None]) -> Iterator[Following]:
    """The client runs until the block ends; what ends it before that fails the test."""
    ended = threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            run(ended)
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    thread = threading.Thread(target=work, name=f"following-{following.name}")
    thread.start()
    try:
        yield following
    finally:
        ended.set()
        thread.join()
    if failed:
        raise failed[0]


@contextlib.contextmanager
def librdkafka(bootstrap: str, topics: Mapping[str, int], *, starts: Mapping[Place, int]) -> Iterator[Following]:
    """confluent-kafka."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    following = Following("librdkafka")

    def run(ended: threading.Event) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "following",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "check.crcs": True,
                "topic.metadata.refresh.interval.ms": 1000,
                "fetch.wait.max.ms": WAIT_MS,
                "fetch.error.backoff.ms": WAIT_MS,
                "fetch.message.max.bytes": 3000,
            }
        )
        try:
            consumer.assign(
                [
                    TopicPartition(topic, number, starts.get((topic, number), OFFSET_BEGINNING))
                    for topic, partitions in topics.items()
                    for number in range(partitions)
                ]
            )
            while not ended.is_set():
                while not following.assigned_again.empty():
                    place = following.assigned_again.get()
                    consumer.incremental_unassign([TopicPartition(*place)])
                    consumer.incremental_assign([TopicPartition(*place, OFFSET_BEGINNING)])
                for message in consumer.consume(500, WAIT_MS / 1000):
                    if (error := message.error()) is not None:
                        following.note(f"{message.topic()}-{message.partition()}: {error.name()}")
                    else:
                        topic, partition, offset = message.topic(), message.partition(), message.offset()
                        assert topic is not None
                        assert partition is not None
                        assert offset is not None
                        following.add(topic, partition, offset, bytes(message.value() or b""))
        finally:
            consumer.close()

    with _in_thread(following, run):
        yield following


@contextlib.contextmanager
def aiokafka(bootstrap: str, topics: Mapping[str, int], *, starts: Mapping[Place, int]) -> Iterator[Following]:
    library: Any = pytest.importorskip("aiokafka")
    errors: Any = pytest.importorskip("aiokafka.errors")
    following = Following("aiokafka")

    async def follow(ended: threading.Event) -> None:
        consumer = library.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=WAIT_MS,
            retry_backoff_ms=WAIT_MS,
            metadata_max_age_ms=1000,
            max_partition_fetch_bytes=3000,
        )
        await consumer.start()
        try:
            places = [
                library.TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)
            ]
            consumer.assign(places)
            for place in places:
                if (place.topic, place.partition) in starts:
                    consumer.seek(place, starts[place.topic, place.partition])
            while not ended.is_set():
                try:
                    found = await consumer.getmany(timeout_ms=WAIT_MS)
                except errors.KafkaError as error:
                    following.note(repr(error))
                    continue
                for place, records in found.items():
                    for record in records:
                        following.add(place.topic, place.partition, record.offset, record.value)
        finally:
            await consumer.stop()

    with _in_thread(following, lambda ended: asyncio.run(follow(ended))):
        yield following


@contextlib.contextmanager
def java(bootstrap: str, topics: Mapping[str, int], *, starts: Mapping[Place, int]) -> Iterator[Following]:
    """Kafka's own consumer, which ends with its stdin."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("Kafka's jars are fetched by Maven, and need a JVM")
    following = Following("java")
    places = [
        f"{topic}:{number}:{starts.get((topic, number), -1)}" for topic, n in topics.items() for number in range(n)
    ]
    source = str(CLIENTS / "ReplicaFollower.java")
    command = [install.java(), "-cp", install.class_path("kafka"), source, bootstrap, str(WAIT_MS), *places]
    process = subprocess.Popen(
        command, cwd=CLIENTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    out = process.stdout

    def run(_: threading.Event) -> None:
        for line in out:
            said = json.loads(line)
            if "error" in said:
                following.note(said["error"])
            else:
                following.add(said["topic"], said["partition"], said["offset"], base64.b64decode(said["value"]))

    try:
        with _in_thread(following, run):
            try:
                yield following
            finally:
                process.stdin.close()  # ends the client, and so the thread that reads from it
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
        assert process.returncode == 0, following.errors[-5:]
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


CLIENTS_BY_NAME: Mapping[str, Any] = {"librdkafka": librdkafka, "aiokafka": aiokafka, "java": java}
#: Those that ask where an epoch ends when the leader changes, and so learn of records that are no history any more.
EPOCH_AWARE = ("librdkafka", "java")


@contextlib.contextmanager
def following(
    names: Sequence[str], bootstrap: str, topics: Mapping[str, int], *, starts: Mapping[Place, int] | None = None
) -> Iterator[list[Following]]:
    """Clients that follow all partitions of some topics until the block ends.

    Args:
        names: Of CLIENTS_BY_NAME.
        bootstrap: HOST:PORT.
        topics: With how many partitions each has.
        starts: Where to begin in some partitions; at the beginning in the others.
    """
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(CLIENTS_BY_NAME[name](bootstrap, topics, starts=starts or {})) for name in names]
