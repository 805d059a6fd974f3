"""Kafka as the oracle of the replica: one log directory behind both, the same questions, the same answers."""

from __future__ import annotations

import collections
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.api_calls import make_request
from tests.support.broker_servers import Client
from tests.support.metadata_cluster import admin_of, needs_a_broker
from tests.support.oracle_fetches import VERSIONS as FETCH_VERSIONS
from tests.support.oracle_fetches import FetchOracle
from tests.support.oracle_requests import (
    EARLIEST,
    LATEST,
    LIST_OFFSETS,
    MAKERS,
    METADATA,
    Ground,
    Partition,
    ask,
    canonical,
    difference,
    iter_requests,
)
from tests.support.peers import broker
from tests.support.replica_server import replica

pytestmark = pytest.mark.interop

TOPICS = {"plain": 3, "times": 2, "transactions": 1}
LOG_STARTS = {0: 37, 1: 38, 2: 0}
#: Seven active segments with indexes of 10 MiB, as they are made ahead, would not fit into the replica's cache.
SETTINGS = {
    "internal.segment.bytes": "4096",
    "index.interval.bytes": "256",
    "retention.ms": "-1",
    "segment.index.bytes": "65536",
}
BROKER: dict[str, Any] = {"heap": "512m", "jars": "kafka-log", "extra": {"auto.create.topics.enable": "false"}}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
T0 = 1_700_000_000_000
REQUESTS = 10_000
WAIT_SECONDS = 60.0


def make_topics(bootstrap: str) -> None:
    from confluent_kafka.admin import NewTopic

    new = [NewTopic(topic, partitions, 1, config=SETTINGS) for topic, partitions in TOPICS.items()]
    admin = admin_of(bootstrap)
    for future in admin.create_topics(new).values():
        future.result(30)
    eventually_leads(bootstrap)


def eventually_leads(bootstrap: str) -> None:
    """Wait until the broker leads all partitions."""
    until = time.monotonic() + WAIT_SECONDS
    while True:
        known = admin_of(bootstrap).list_topics(timeout=30).topics.values()
        if all(partition.leader == 1 for topic in known for partition in topic.partitions.values()):
            return
        assert time.monotonic() < until, "the broker does not lead its partitions"
        time.sleep(0.1)


def fill(bootstrap: str, generation: int) -> None:
    """Records of all codecs, with times that go back and forth; transactions, of which one is left open at the end."""
    from confluent_kafka import Producer

    for number, codec in enumerate(CODECS):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
        for record in range(60):
            timestamp = T0 + generation * 60_000 + number * 7000 + (record * 7919) % 10_000
            for topic in ("plain", "times"):
                value = b"v" * (record * 13 % 300)
                producer.produce(topic, value, partition=record % TOPICS[topic], timestamp=timestamp)
            if record % 10 == 9:
                producer.flush(30)
        assert producer.flush(30) == 0
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"t{generation}"})
    producer.init_transactions(30)
    for transaction in range(5):
        producer.begin_transaction()
        for record in range(20):
            timestamp = T0 + generation * 60_000 + transaction * 1000 + record
            producer.produce("transactions", b"x" * 100, timestamp=timestamp)
        if transaction % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def leave_open(bootstrap: str) -> object:
    """A transaction that nobody ends, and records behind it."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": bootstrap, "transactional.id": "open", "transaction.timeout.ms": 600_000}
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("transactions", b"undecided", timestamp=T0 + 500_000)
    assert producer.flush(30) == 0
    behind = Producer({"bootstrap.servers": bootstrap})
    for record in range(20):
        behind.produce("transactions", b"behind" * 30, timestamp=T0 + 500_001 + record)
    assert behind.flush(30) == 0
    return producer  # its end would be the transaction's


def cut(bootstrap: str) -> None:
    """Delete the first records of all topics."""
    from confluent_kafka import TopicPartition

    offsets = [TopicPartition(topic, number, LOG_STARTS[number]) for topic, n in TOPICS.items() for number in range(n)]
    admin = admin_of(bootstrap)
    for future in admin.delete_records(offsets).values():
        future.result(30)


def records_of(bootstrap: str) -> dict[tuple[str, int], tuple[tuple[int, int], ...]]:
    """(offset, timestamp) of all records, as a consumer gets them from Kafka."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    places = [(topic, number) for topic, count in TOPICS.items() for number in range(count)]
    found: dict[tuple[str, int], list[tuple[int, int]]] = {place: [] for place in places}
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "enable.partition.eof": True}
        | {"isolation.level": "read_uncommitted"}
    )
    ended: set[tuple[str, int]] = set()
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in places])
    until = time.monotonic() + WAIT_SECONDS
    while ended != set(places):
        assert time.monotonic() < until, "no end"
        for message in consumer.consume(500, 1.0):
            place = message.topic(), message.partition()
            if message.error() is None:
                found[place].append((message.offset(), message.timestamp()[1]))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(place)
    consumer.close()
    return {place: tuple(records) for place, records in found.items()}


def ground_of(client: Client, records: dict[tuple[str, int], tuple[tuple[int, int], ...]]) -> Ground:
    """What a server says of the topics."""
    names = [{"name": name, "topic_id": None} for name in TOPICS]
    request = make_request(METADATA, 12, topics=names, include_topic_authorized_operations=False)
    answer = ask(client, request)
    ids: dict[str, uuid.UUID] = {topic["name"]: topic["topic_id"] for topic in answer["topics"]}
    epochs = {
        (topic["name"], p["partition_index"]): p["leader_epoch"]
        for topic in answer["topics"]
        for p in topic["partitions"]
    }
    known = {}
    for (name, number), epoch in epochs.items():
        start, end = (offset_of(client, name, number, timestamp) for timestamp in (EARLIEST, LATEST))
        times = T0 - 10, T0 + 600_000
        known[name, number] = Partition(start, end, epoch, times, records[name, number])
    return Ground(ids, known)


def offset_of(client: Client, name: str, number: int, timestamp: int) -> int:
    partitions = [{"partition_index": number, "timestamp": timestamp}]
    topics = [{"name": name, "partitions": partitions}]
    answer = ask(client, make_request(LIST_OFFSETS, 2, replica_id=-1, isolation_level=0, topics=topics))
    return int(answer["topics"][0]["partitions"][0]["offset"])


def arguments() -> list[str]:
    """Of the command. Kafka writes its checkpoint of log starts once a minute: the copy may have an old one."""
    starts = [f"--log-start={number}:{log_start}" for number, log_start in LOG_STARTS.items()]
    return [*TOPICS, "--layout", "log-dir", "--cluster-id", broker.CLUSTER_ID, *starts]


@dataclass
class Both:
    """Kafka and the replica of its log."""

    ground: Ground
    kafka: Client
    ours: Client
    addresses: tuple[tuple[str, int], tuple[str, int]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    needs_a_broker()
    tmp_path = tmp_path_factory.mktemp("oracle")
    folder, port = tmp_path / "broker", broker.free_port()
    for generation in range(2):
        with broker.running(folder, port=port, **BROKER) as started:
            if generation == 0:
                make_topics(started.bootstrap)
            eventually_leads(started.bootstrap)
            fill(started.bootstrap, generation)
    with broker.running(folder, port=port, **BROKER) as started:
        eventually_leads(started.bootstrap)
        fill(started.bootstrap, 2)  # the newest epoch has records
        cut(started.bootstrap)
        kept = leave_open(started.bootstrap)
        copy = tmp_path / "copy"
        shutil.copytree(started.log_dir, copy)
        with connected(started.bootstrap) as kafka:
            records = records_of(started.bootstrap)
            ground = ground_of(kafka, records)
            assert {known.leader_epoch > 1 for known in ground.partitions.values()} == {True}
            # Reads go through the memory cache, as those of a bucket: with a rate no file is read past it.
            config = {"rsm.config.download.rate.limit.bytes.per.second": "1000000000"}
            with replica(copy, tmp_path, *arguments(), config=config) as served, connected(served.bootstrap) as ours:
                assert ground_of(ours, records) == ground, "before anything is drawn"
                yield Both(ground, kafka, ours, (address_of(started.bootstrap), address_of(served.bootstrap)))
        del kept


def test_the_same_questions_have_the_same_answers(both: Both) -> None:
    """A client would be told something else by the replica than by the broker whose log it is."""
    compare(both.ground, both.kafka, both.ours, addresses=both.addresses)


def test_the_same_fetches_have_the_same_answers(both: Both) -> None:
    """A consumer would get other records, errors or news of its session than from the broker whose log it is."""
    oracle = FetchOracle(both.ground, both.kafka, both.ours, seed=432)
    oracle.warm()
    oracle.compare(REQUESTS)
    assert not oracle.different, f"{len(oracle.different)} of {REQUESTS}:\n" + "\n".join(oracle.different[:5])
    assert oracle.versions == set(FETCH_VERSIONS)
    assert oracle.records_count > REQUESTS
    assert oracle.sessions_count > REQUESTS // 4
    assert oracle.errors == {
        "none",
        "fenced_leader_epoch",
        "fetch_session_id_not_found",
        "fetch_session_topic_id_error",
        "invalid_fetch_session_epoch",
        "offset_out_of_range",
        "unknown_leader_epoch",
        "unknown_server_error",
        "unknown_topic_id",
        "unknown_topic_or_partition",
    }


def address_of(bootstrap: str) -> tuple[str, int]:
    host, port = bootstrap.split(":")
    return host, int(port)


def connected(bootstrap: str) -> Client:
    return Client(*address_of(bootstrap))


def compare(ground: Ground, kafka: Client, ours: Client, *, addresses: tuple[tuple[str, int], ...]) -> None:
    asked: collections.Counter[tuple[int, int]] = collections.Counter()
    different: list[str] = []
    for request in iter_requests(ground, count=REQUESTS, seed=431):
        asked[request.__api_key__, request.__version__] += 1
        theirs = canonical(ask(kafka, request), node_id=1, address=addresses[0])
        answer = canonical(ask(ours, request), node_id=0, address=addresses[1])
        if told := difference(request, theirs, answer, ground):
            different.append(told)
    assert not different, f"{len(different)} of {REQUESTS}:\n" + "\n".join(different[:5])
    assert asked.keys() == {(key, version) for key, (versions, _) in MAKERS.items() for version in versions}
