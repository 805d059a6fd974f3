"""Random requests about topics that two servers have, and what of their answers may differ.

An API is added to the comparison by a maker in MAKERS, and by what is to be forgiven in INTENDED.
"""

from __future__ import annotations

import dataclasses
import datetime
import random
import struct
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from kio.index import load_response_schema
from kio.serial import entity_reader

from tests.support.api_calls import make_request
from tests.support.broker_servers import Client
from tests.support.kafka_entities import kio_bytes

METADATA, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_TOPIC_PARTITIONS = 3, 2, 23, 75
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6

#: Nested dicts and lists of an answer.
Answer = dict[str, Any]


@dataclass(frozen=True)
class Partition:
    """What is known of a partition: enough to ask about its borders.

    Args:
        timestamps_ms: The first and the last that are asked for.
        records: (offset, timestamp) of those that consumers get.
    """

    log_start_offset: int
    end_offset: int
    leader_epoch: int
    timestamps_ms: tuple[int, int]
    records: tuple[tuple[int, int], ...] = dataclasses.field(default=(), compare=False)


@dataclass(frozen=True)
class Ground:
    """The topics that both servers have."""

    topic_ids: dict[str, uuid.UUID]
    partitions: dict[tuple[str, int], Partition]

    def names(self) -> list[str]:
        return sorted(self.topic_ids)


class Chance:
    """Draws what clients ask for, mostly what is there."""

    def __init__(self, ground: Ground, seed: int) -> None:
        self.ground = ground
        self.random = random.Random(seed)

    def topic(self) -> str:
        if self.random.random() < 0.1:
            return self.random.choice(["not-there", "no name", "", "x" * 300])
        return self.random.choice(self.ground.names())

    def partition(self, topic: str) -> int:
        numbers = [number for name, number in self.ground.partitions if name == topic]
        return self.random.choice([*numbers * 5, 77, -1])

    def known(self, topic: str, partition: int) -> Partition:
        return self.ground.partitions.get((topic, partition), Partition(0, 10, 1, (0, 1000)))

    def current_leader_epoch(self, known: Partition) -> int:
        return self.random.choice([-1, -1, -1, known.leader_epoch, known.leader_epoch - 1, known.leader_epoch + 1])

    def some(self, count: int) -> range:
        return range(self.random.randint(0 if self.random.random() < 0.05 else 1, count))


def _metadata(chance: Chance, version: int) -> Any:
    draw = chance.random
    topics: list[dict[str, Any]] | None = [{"name": chance.topic(), "topic_id": None} for _ in chance.some(4)]
    if version >= 12 and draw.random() < 0.3:
        known = list(chance.ground.topic_ids.values())
        ids = [draw.choice([*known, uuid.UUID(int=77)]) for _ in chance.some(3)]
        topics = [{"name": None, "topic_id": one} for one in ids]
    if draw.random() < 0.1 and version >= 1:
        topics = None
    return make_request(
        METADATA,
        version,
        topics=topics,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=draw.random() < 0.2,
        include_cluster_authorized_operations=draw.random() < 0.2,
    )


def _list_offsets(chance: Chance, version: int) -> Any:
    draw = chance.random
    asked = []
    for _ in chance.some(4):
        topic = chance.topic()
        partitions = []
        for _ in chance.some(3):
            number = chance.partition(topic)
            known = chance.known(topic, number)
            first, last = known.timestamps_ms
            partitions.append(
                {
                    "partition_index": number,
                    "current_leader_epoch": chance.current_leader_epoch(known),
                    "timestamp": draw.choice(
                        [*range(-7, 0), 0, first, last, last + 1, *(draw.randint(first, last) for _ in range(10))]
                    ),
                }
            )
        asked.append({"name": topic, "partitions": partitions})
    isolation, timeout = draw.randint(0, 1), datetime.timedelta(seconds=30)
    return make_request(LIST_OFFSETS, version, replica_id=-1, isolation_level=isolation, topics=asked, timeout=timeout)


def _offset_for_leader_epoch(chance: Chance, version: int) -> Any:
    asked: dict[str, list[dict[str, int]]] = {}
    for _ in chance.some(6):
        topic = chance.topic()
        number = chance.partition(topic)
        known = chance.known(topic, number)
        epoch = chance.random.randint(-2, known.leader_epoch + 2)
        current = chance.current_leader_epoch(known)
        question = {"partition": number, "current_leader_epoch": current, "leader_epoch": epoch}
        asked.setdefault(topic, []).append(question)
    topics = [{"topic": name, "partitions": partitions} for name, partitions in asked.items()]
    return make_request(OFFSET_FOR_LEADER_EPOCH, version, replica_id=-1, topics=topics)


def _describe_topic_partitions(chance: Chance, version: int) -> Any:
    draw = chance.random
    # Of an empty name Kafka has an error of its own making: it takes it for the topic of the cursor that is not there.
    names = sorted({chance.topic() for _ in chance.some(3)} - {""}) or chance.ground.names()
    cursor = None
    if draw.random() < 0.3:
        cursor = {"topic_name": draw.choice(names), "partition_index": draw.randint(-1, 3)}
    topics = [{"name": name} for name in names]
    limit = draw.choice([1, 2, 3, 2000])
    return make_request(
        DESCRIBE_TOPIC_PARTITIONS, version, topics=topics, response_partition_limit=limit, cursor=cursor
    )


#: API key -> its versions, and what makes a request.
MAKERS: Final[dict[int, tuple[range, Callable[[Chance, int], Any]]]] = {
    METADATA: (range(14), _metadata),
    LIST_OFFSETS: (range(1, 12), _list_offsets),
    OFFSET_FOR_LEADER_EPOCH: (range(2, 5), _offset_for_leader_epoch),
    DESCRIBE_TOPIC_PARTITIONS: (range(1), _describe_topic_partitions),
}


def iter_requests(ground: Ground, *, count: int, seed: int) -> Iterator[Any]:
    """Random requests of all APIs and versions."""
    chance = Chance(ground, seed)
    for _ in range(count):
        versions, make = MAKERS[chance.random.choice(list(MAKERS))]
        yield make(chance, chance.random.choice(versions))


def ask(client: Client, request: Any) -> Answer:
    """A server's answer; fails for bytes that kio does not read, or leaves over."""
    key, version, flexible = request.__api_key__, request.__version__, request.__flexible__
    correlation_id = client.send_request(key, version, kio_bytes(request), flexible=flexible)
    data = client.read_frame()
    assert struct.unpack_from(">i", data) == (correlation_id,)
    response, read_bytes = entity_reader(load_response_schema(key, version))(data, 5 if flexible else 4)
    assert read_bytes == len(data) - (5 if flexible else 4), "bytes are left over"
    answer: Answer = dataclasses.asdict(response)
    return answer


# ---- what may differ


def canonical(answer: Answer, *, node_id: int, address: tuple[str, int]) -> Answer:
    """An answer in an order of its own, with the one node as 0 at no address: neither is part of the question."""
    for broker in answer.get("brokers", ()):
        assert (broker.pop("host"), broker.pop("port")) == address
    return _canonical(answer, node_id)  # type: ignore[no-any-return]


_NODES: Final = frozenset({"node_id", "controller_id", "leader_id", "replica_nodes", "isr_nodes"})


def _canonical(value: Any, node_id: int, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _canonical(inner, node_id, key) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return sorted((_canonical(inner, node_id, name) for inner in value), key=repr)
    return 0 if name in _NODES and value == node_id else value


@dataclass(frozen=True)
class Intended:
    """A difference that is wanted.

    Args:
        why: In a sentence.
        api_key: Whose answers differ.
        forgive: Takes it out of both answers, if it is as it should be: of the request, Kafka's answer and ours.
    """

    why: str
    api_key: int
    forgive: Callable[[Any, Answer, Answer, Ground], None]


def _operations(_: Any, theirs: Answer, ours: Answer, ground: Ground) -> None:
    for kafka, replica in zip([theirs, *theirs["topics"]], [ours, *ours["topics"]], strict=False):
        for field in ("cluster_authorized_operations", "topic_authorized_operations"):
            if field in kafka and kafka[field] != replica[field]:
                assert replica[field] & kafka[field] == replica[field] > 0, "more than Kafka allows"
                del kafka[field], replica[field]


def _internal_topics(_: Any, theirs: Answer, __: Answer, ground: Ground) -> None:
    theirs["topics"] = [topic for topic in theirs["topics"] if not (topic["name"] or "").startswith("__")]


def _nothing_is_local(request: Any, theirs: Answer, ours: Answer, ground: Ground) -> None:
    asked = {(t.name, p.partition_index): p.timestamp for t in request.topics for p in t.partitions}
    for topic, number, kafka in _partitions(theirs):
        timestamp = asked[topic, number]
        replica = next(one for name, n, one in _partitions(ours) if (name, n) == (topic, number))
        if timestamp not in (EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD) or kafka["error_code"].value:
            continue
        known = ground.partitions[topic, number]
        end = known.end_offset
        kafka_says, we_say = {
            EARLIEST_LOCAL: ({known.log_start_offset}, {end}),
            LATEST_TIERED: ({-1}, {end - 1, -1}),  # not behind the last stable offset
            EARLIEST_PENDING_UPLOAD: ({-1}, {end}),
        }[timestamp]
        assert kafka["offset"] in kafka_says
        assert replica["offset"] in we_say
        for one in (kafka, replica):
            one.pop("offset")
            one.pop("leader_epoch", None)


def _one_segment_is_searched(request: Any, theirs: Answer, ours: Answer, ground: Ground) -> None:
    asked = {(t.name, p.partition_index): p.timestamp for t in request.topics for p in t.partitions}
    for topic, number, kafka in _partitions(theirs):
        timestamp = asked[topic, number]
        replica = next(one for name, n, one in _partitions(ours) if (name, n) == (topic, number))
        if kafka == replica or timestamp < 0 or kafka["error_code"].value or kafka["offset"] != -1:
            continue
        known = ground.partitions[topic, number]
        records = (offset for offset, time in known.records if time >= timestamp and offset >= known.log_start_offset)
        assert known.log_start_offset > 0
        assert known.log_start_offset <= replica["offset"] == next(records)
        for one in (kafka, replica):
            for field in ("offset", "timestamp", "leader_epoch"):
                one.pop(field, None)


def _partitions(answer: Answer) -> Iterator[tuple[str, int, Answer]]:
    for topic in answer["topics"]:
        for partition in topic["partitions"]:
            yield topic["name"], partition["partition_index"], partition


#: All that may differ. What is not here is a bug of one of the two.
INTENDED: Final = [
    Intended("Kafka's own state is not served", METADATA, _internal_topics),
    Intended("a replica allows reading alone", METADATA, _operations),
    Intended("a replica allows reading alone", DESCRIBE_TOPIC_PARTITIONS, _operations),
    Intended(
        "the log directory stands for a tier: all of it is tiered, nothing is local", LIST_OFFSETS, _nothing_is_local
    ),
    Intended(
        "Kafka looks at one segment by time: where its record is deleted, later ones are not looked at",
        LIST_OFFSETS,
        _one_segment_is_searched,
    ),
]


def difference(request: Any, theirs: Answer, ours: Answer, ground: Ground) -> str:
    """What differs between two canonical answers and should not; "" if nothing."""
    told = f"{request}\n  Kafka:   {theirs}\n  replica: {ours}"
    for intended in INTENDED:
        if intended.api_key == request.__api_key__:
            try:
                intended.forgive(request, theirs, ours, ground)
            except (AssertionError, LookupError, StopIteration) as error:
                return f"{intended.why}: {error!r}\n{told}"
    return "" if theirs == ours else told
