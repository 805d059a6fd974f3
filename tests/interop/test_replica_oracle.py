"""Kafka as the oracle of the replica: one log directory behind both, the same questions, the same answers."""

from __future__ import annotations

import collections
import datetime
import hashlib
import random
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.support.api_calls import make_request
from tests.support.broker_servers import Client
from tests.support.metadata_cluster import admin_of, needs_a_broker
from tests.support.oracle_requests import (
    EARLIEST,
    LATEST,
    LIST_OFFSETS,
    MAKERS,
    METADATA,
    Answer,
    Ground,
    Partition,
    ask,
    canonical,
    difference,
    iter_requests,
)
from tests.support.peers import broker
from tests.support.replica_server import replica

FETCH: Final = 1
FETCH_VERSIONS: Final = range(4, 19)
_HEADER_BYTES: Final = 61
#: Sessions at once: far fewer than Kafka's slots, of which it has some in each of eight caches.
_CONVERSATIONS_MAX: Final = 50
_UNKNOWN_ID: Final = uuid.UUID(int=77)


class Records(bytes):
    """Records of an answer; told by size and checksum."""

    def __repr__(self) -> str:
        return f"{len(self)} bytes {hashlib.sha256(self).hexdigest()[:8]}"


@dataclass
class Conversation:
    """A client of both servers, which goes on with its sessions of both."""

    version: int
    theirs_id: int = 0
    ours_id: int = 0
    epoch: int = 0
    left: int = 0


@dataclass
class FetchOracle:
    """Asks two servers the same fetches.

    Args:
        ground: What both have.
        kafka, ours: The servers; Kafka's node is 1, ours 0.
        seed: Of the requests.

    Attributes:
        different: What differed and should not.
        records_count: Answers of partitions that had records.
        sessions_count: Requests that went on with a session.
        errors: Names of errors that were told alike.
    """

    ground: Ground
    kafka: Client
    ours: Client
    seed: int
    different: list[str] = field(default_factory=list)
    versions: set[int] = field(default_factory=set)
    errors: set[str] = field(default_factory=set)
    records_count: int = 0
    sessions_count: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._conversations: list[Conversation] = []

    def warm(self) -> None:
        """Have our server cache all that it has. Shares of partitions that it has to wait for are dealt out before it
        knows what they need: it gives less than Kafka then, in another order.
        """
        for (name, number), known in self.ground.partitions.items():
            for offset in range(known.log_start_offset, known.end_offset, 2):
                partition = {"partition": number, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
                topics = [{"topic": name, "partitions": [partition]}]
                ask(
                    self.ours,
                    make_request(
                        FETCH,
                        4,
                        replica_id=-1,
                        max_wait=datetime.timedelta(0),
                        min_bytes=1,
                        max_bytes=1 << 20,
                        isolation_level=offset // 2 % 2,
                        topics=topics,
                    ),
                )

    def compare(self, count: int) -> None:
        """Ask ``count`` times."""
        for _ in range(count):
            draw = self._random.random()
            if draw < 0.4:
                self._ask(Conversation(self._random.choice(FETCH_VERSIONS), epoch=-1))
            elif not self._conversations or (draw < 0.55 and len(self._conversations) < _CONVERSATIONS_MAX):
                opened = Conversation(self._random.choice(range(7, 19)), left=self._random.randint(1, 12))
                self._ask(opened)
                if opened.theirs_id:
                    self._conversations.append(opened)
            else:
                known = self._random.choice(self._conversations)
                self._go_on(known)
                if known.left <= 0:
                    self._conversations.remove(known)

    def _go_on(self, known: Conversation) -> None:
        self.sessions_count += 1
        draw = self._random.random()
        if draw < 0.04:  # an epoch that is not its turn, or an id that is nobody's
            other = Conversation(
                known.version, known.theirs_id, known.ours_id, known.epoch + self._random.choice([1, 5])
            )
            if self._random.random() < 0.4:
                other.theirs_id = other.ours_id = 1
            self._ask(other)
            return
        if draw < 0.08:  # a client of the other way to name topics
            version = self._random.choice(range(7, 13) if known.version >= 13 else range(13, 19))
            self._ask(Conversation(version, known.theirs_id, known.ours_id, known.epoch))
            return
        known.left -= 1
        if known.left == 0:
            known.epoch = -1  # which ends it
        self._ask(known)

    def _ask(self, who: Conversation) -> None:
        values = self._values(who)
        self.versions.add(who.version)
        theirs = ask(self.kafka, make_request(FETCH, who.version, **values, session_id=who.theirs_id))
        ours = ask(self.ours, make_request(FETCH, who.version, **values, session_id=who.ours_id))
        asked_in_session = bool(who.theirs_id)
        their_id, our_id = theirs.get("session_id", 0), ours.get("session_id", 0)
        same_sessions = bool(their_id) == bool(our_id)
        if who.epoch == 0:
            who.theirs_id, who.ours_id, who.epoch = their_id, our_id, 1
        elif asked_in_session and who.epoch > 0 and _name(theirs.get("error_code", "none")) == "none":
            same_sessions = same_sessions and their_id in (0, who.theirs_id) and our_id in (0, who.ours_id)
            who.epoch += 1
            if not their_id:
                who.left = 0
        left, right = self._plain(theirs, 1), self._plain(ours, 0)
        _forgive_cut_headers(left, right)
        if left != right or not same_sessions:
            who.left = 0  # what follows in the session differs, too
            self.different.append(
                f"{who}: {values}\n  {_first_difference(left, right)}\n  Kafka:   {left}\n  replica: {right}"
                f"\n  sessions: {their_id} {our_id}"
            )

    def _values(self, who: Conversation) -> dict[str, Any]:
        draw = self._random
        uses_ids = who.version >= 13
        names = self.ground.names()
        topics = []
        for _ in range(draw.choice([0, 1, 1, 2, 3]) if who.epoch > 0 else draw.choice([1, 1, 2, 3])):
            name = draw.choice([*names * 4, "not-there"])
            numbers = [number for topic, number in self.ground.partitions if topic == name] or [0]
            partitions = [
                self._partition(self.ground.partitions.get((name, number), Partition(0, 10, 1, (0, 0))), number)
                for number in draw.choices([*numbers * 5, 9, -1], k=draw.randint(1, 4))
            ]
            topics.append(self._named(name, uses_ids) | {"partitions": partitions})
        forgotten = []
        if who.epoch > 0 and draw.random() < 0.3:
            name, number = draw.choice(list(self.ground.partitions))
            forgotten.append(self._named(name, uses_ids) | {"partitions": [number, 9]})
        return {
            "replica_id": -1,
            "max_wait": datetime.timedelta(0),
            "min_bytes": draw.choice([0, 1, 1, 1000, -1]),
            "max_bytes": draw.choice([-1, 0, 1, 500, 3000, 20_000, 50 << 20, 2**31 - 1]),
            "isolation_level": draw.choice([0, 1]),
            "session_epoch": who.epoch,
            "topics": topics,
            "forgotten_topics_data": forgotten,
            "rack_id": draw.choice(["", "a"]),
        }

    def _named(self, name: str, uses_ids: bool) -> dict[str, Any]:
        return {"topic_id": self.ground.topic_ids.get(name, _UNKNOWN_ID)} if uses_ids else {"topic": name}

    def _partition(self, known: Partition, number: int) -> dict[str, int]:
        draw = self._random
        first, end = known.log_start_offset, known.end_offset
        epoch = known.leader_epoch
        fetched = draw.choice([-1] * 6 + [*range(epoch + 2)])
        return {
            "partition": number,
            "current_leader_epoch": draw.choice([-1] * 12 + [epoch] * 3 + [epoch - 1, epoch + 1]),
            "fetch_offset": draw.choice(
                [*(draw.randint(first, end) for _ in range(12)), first, end, end + 1, first - 1]
            ),
            "last_fetched_epoch": fetched,
            "log_start_offset": -1,
            "partition_max_bytes": draw.choice([-1, 0, 1, 100, 1000, 1000, 5000, 1 << 20, 1 << 20, 2**31 - 1]),
        }

    def _plain(self, answer: Answer, node_id: int) -> Answer:
        """An answer as values that can be compared, in its order."""
        topics = []
        for topic in answer["responses"]:
            partitions = []
            for one in topic["partitions"]:
                told = dict(one)
                told["error_code"] = _name(one["error_code"])
                self.errors.add(told["error_code"])
                records = bytes(one["records"] or b"")
                self.records_count += bool(records)
                told["records"] = Records(records)
                leader = told.get("current_leader")
                if leader is not None and leader["leader_id"] == node_id:
                    leader["leader_id"] = "this node"
                partitions.append(told)
            topics.append((topic.get("topic"), topic.get("topic_id"), partitions))
        nodes = [node["node_id"] == node_id for node in answer.get("node_endpoints", ())]
        error = _name(answer.get("error_code", "none"))
        self.errors.add(error)
        return {"error": error, "topics": topics, "nodes": nodes, "throttle": answer["throttle_time"]}


def _name(error: Any) -> str:
    return str(getattr(error, "name", error))


def _forgive_cut_headers(theirs: Answer, ours: Answer) -> None:
    """Kafka cuts an answer at any byte; a replica sends no part of a header that it has not read to its end: only then
    it knows whose branch the batch belongs to. Clients pass over both.
    """
    for (_, _, kafka), (_, _, own) in zip(theirs["topics"], ours["topics"], strict=False):
        for one, other in zip(kafka, own, strict=False):
            full, cut = one["records"], other["records"]
            if len(full) - _HEADER_BYTES < len(cut) < len(full) and full.startswith(cut) and _ends_whole(cut):
                one["records"] = cut


def _ends_whole(records: bytes) -> bool:
    """Whether records end behind a batch."""
    at = 0
    while at + 12 <= len(records):
        at += 12 + int.from_bytes(records[at + 8 : at + 12], "big")
    return at == len(records) > 0


def _first_difference(theirs: Any, ours: Any, where: str = "answer") -> str:
    """Where two answers differ first."""
    if isinstance(theirs, dict) and isinstance(ours, dict) and theirs.keys() == ours.keys():
        return next(
            (_first_difference(theirs[key], ours[key], f"{where}.{key}") for key in theirs if theirs[key] != ours[key]),
            "",
        )
    if isinstance(theirs, list | tuple) and isinstance(ours, list | tuple) and len(theirs) == len(ours):
        pairs = enumerate(zip(theirs, ours, strict=True))
        return next((_first_difference(one, other, f"{where}[{n}]") for n, (one, other) in pairs if one != other), "")
    return f"{where}: Kafka {theirs}, replica {ours}"


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
