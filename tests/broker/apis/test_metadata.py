"""Metadata as clients see it."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.api_calls import call, context_of, make_request
from tests.support.batches import Batch
from tests.support.loops import run_on
from tests.support.memory_topics import MemoryBatch, MemoryCatalog
from tierlog.broker.apis.describe_cluster import ServerIdentity
from tierlog.broker.apis.metadata import MetadataHandler
from tierlog.errors import CorruptObjectError

METADATA = 3
BATCHES = [Batch(0, epoch=4)]
ALL_VERSIONS = MetadataHandler.versions
NOT_ASKED = -(2**31)


@pytest.fixture
def topics() -> MemoryCatalog:
    topics = MemoryCatalog()
    topics.add("orders", (0, 1, 3), batches=BATCHES)
    topics.add("__consumer_offsets", batches=BATCHES)
    return topics


def handler_of(topics: MemoryCatalog, load_seconds: float = 1.0) -> MetadataHandler:
    return MetadataHandler(topics, ServerIdentity("cluster", 5, "rack-a"), load_seconds=load_seconds)


def ask(
    topics: MemoryCatalog | MetadataHandler, version: int, names: list[str] | list[dict[str, Any]] | None, **values: Any
) -> Any:
    handler = topics if isinstance(topics, MetadataHandler) else handler_of(topics)
    asked = names and [{"name": name, "topic_id": None} if isinstance(name, str) else name for name in names]
    flags = {"include_topic_authorized_operations": False, "include_cluster_authorized_operations": False}
    return call(handler, version, make_request(METADATA, version, **({"topics": asked} | flags | values)))


def ask_ids(topics: MemoryCatalog, ids: list[uuid.UUID], names: tuple[str, ...] = ()) -> Any:
    asked = [{"name": None, "topic_id": one} for one in ids] + [{"name": name, "topic_id": None} for name in names]
    return ask(topics, 13, asked)


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_the_cluster_is_one_node(topics: MemoryCatalog, version: int) -> None:
    """Clients would connect elsewhere, or find no controller."""
    answer = ask(topics, version, ["orders"])
    (broker,) = answer.brokers
    assert (broker.node_id, broker.host, broker.port) == (5, "replica.example", 9092)
    if version >= 1:
        assert (broker.rack, answer.controller_id) == ("rack-a", 5)
    if version >= 2:
        assert answer.cluster_id == "cluster"


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_a_topic_with_its_partitions(topics: MemoryCatalog, version: int) -> None:
    """A consumer would miss partitions, or ask for one that nobody has."""
    (topic,) = ask(topics, version, ["orders", "orders"]).topics
    assert (topic.error_code, topic.name) == (ErrorCode.none, "orders")
    assert [partition.partition_index for partition in topic.partitions] == [0, 1, 3]
    for partition in topic.partitions:
        assert (partition.error_code, partition.leader_id) == (ErrorCode.none, 5)
        assert (partition.replica_nodes, partition.isr_nodes) == ((5,), (5,))
        assert getattr(partition, "leader_epoch", 4) == 4
        assert getattr(partition, "offline_replicas", ()) == ()
    if version >= 1:
        assert not topic.is_internal
    if version >= 10:
        assert topic.topic_id.bytes == topics.find("orders").topic_id.raw  # type: ignore[union-attr]


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_all_topics_and_none(topics: MemoryCatalog, version: int) -> None:
    """Tools would list nothing, or clients that want only the brokers would get megabytes."""
    everything = ask(topics, version, None if version else [])
    assert [topic.name for topic in everything.topics] == ["__consumer_offsets", "orders"]
    assert [len(topic.partitions) for topic in everything.topics] == [1, 3]
    assert everything.topics[1] == ask(topics, version, ["orders"]).topics[0]
    if version >= 1:
        assert [topic.is_internal for topic in everything.topics] == [True, False]
        assert ask(topics, version, []).topics == ()


def test_all_topics_are_those_of_now(topics: MemoryCatalog) -> None:
    """A cached answer would hide new topics, and epochs that have changed."""
    handler = handler_of(topics)
    assert len(ask(handler, 12, None).topics) == 2
    topics.add("new", batches=BATCHES)
    topics.change()
    assert len(ask(handler, 12, None).topics) == 3
    topics.at("new").batches = [MemoryBatch.of(Batch(0, epoch=9))]
    topics.change()
    assert [t.partitions[0].leader_epoch for t in ask(handler, 12, None).topics] == [4, 9, 4]


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_topics_that_are_not_there(topics: MemoryCatalog, version: int) -> None:
    """A client would wait for a topic that its name makes impossible, or give up on one that may come."""
    answer = ask(topics, version, ["later", "a b", "", ".", "x" * 250, "orders"])
    told = {topic.name: topic.error_code for topic in answer.topics}
    assert told == {
        "later": ErrorCode.unknown_topic_or_partition,
        "a b": ErrorCode.invalid_topic_exception,
        "": ErrorCode.invalid_topic_exception,
        ".": ErrorCode.invalid_topic_exception,
        "x" * 250: ErrorCode.invalid_topic_exception,
        "orders": ErrorCode.none,
    }
    assert topics.find("later") is None, "nothing is created"


def test_by_topic_id(topics: MemoryCatalog) -> None:
    """Clients that know a topic by its id would take a topic that was made anew for the old one."""
    known, unknown = uuid.UUID(bytes=topics.find("orders").topic_id.raw), uuid.UUID(int=7)  # type: ignore[union-attr]
    answer = ask_ids(topics, [known, unknown, known], ("__consumer_offsets",))
    assert [(topic.error_code, topic.name, topic.topic_id) for topic in answer.topics] == [
        (ErrorCode.none, "orders", known),
        (ErrorCode.unknown_topic_id, None, unknown),
    ]


@pytest.mark.parametrize("version", [10, 11])
def test_ids_before_they_are_served(topics: MemoryCatalog, version: int) -> None:
    """As Kafka refuses them: a client would get another topic than it means."""
    asked: list[dict[str, Any]] = [{"name": "orders", "topic_id": uuid.UUID(int=7)}, {"name": None, "topic_id": None}]
    told = ask(topics, version, asked).topics
    assert [topic.error_code for topic in told] == [ErrorCode.invalid_request] * 2


@pytest.mark.parametrize("version", range(8, 14))
def test_what_a_client_may_do_is_told_when_it_asks(topics: MemoryCatalog, version: int) -> None:
    """Tools would offer to write or to delete."""
    asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    for names in (["orders"], None):
        answer = ask(topics, version, names, **asked)
        assert answer.topics[-1].topic_authorized_operations == 1 << 3 | 1 << 8 | 1 << 10
        assert ask(topics, version, names).topics[-1].topic_authorized_operations == NOT_ASKED
        if version <= 10:
            assert answer.cluster_authorized_operations == 1 << 8 | 1 << 10
            assert ask(topics, version, names).cluster_authorized_operations == NOT_ASKED


def test_partitions_are_looked_at_before_they_are_told(topics: MemoryCatalog) -> None:
    """The first answer would have no epochs, and clients would refresh again and again."""
    for number in (0, 1, 3):
        topics.at("orders", number).is_loaded = False
    assert [p.leader_epoch for p in ask(topics, 12, None).topics[1].partitions] == [-1, -1, -1]
    assert [p.leader_epoch for p in ask(topics, 12, ["orders"]).topics[0].partitions] == [4, 4, 4]
    assert [topics.at("orders", number).loads_count for number in (0, 1, 3)] == [1, 1, 1]


def test_partitions_that_cannot_be_looked_at_are_told_without_an_epoch(topics: MemoryCatalog) -> None:
    """One stalled or broken object would keep the client from every partition of the topic."""
    topics.at("orders", 0).is_loaded = topics.at("orders", 1).is_loaded = False
    topics.at("orders", 0).error = CorruptObjectError("no JSON")
    topics.at("orders", 1).gate = asyncio.Event()
    (topic,) = ask(handler_of(topics, load_seconds=0.05), 12, ["orders"]).topics
    assert [(p.error_code, p.leader_epoch) for p in topic.partitions] == [
        (ErrorCode.none, -1),
        (ErrorCode.none, -1),
        (ErrorCode.none, 4),
    ]


def test_many_partitions() -> None:
    """Numbers or epochs would be mixed up in the answers that are put together from pieces."""
    topics = MemoryCatalog()
    topics.add("many", range(3000), batches=BATCHES)
    for number in range(0, 3000, 7):
        topics.at("many", number).batches = [MemoryBatch.of(Batch(0, epoch=number))]
    for names in (["many"], None):
        (topic,) = ask(topics, 13, names).topics
        assert [(p.partition_index, p.leader_epoch) for p in topic.partitions] == [
            (number, 4 if number % 7 else number) for number in range(3000)
        ]


def test_all_topics_are_put_together_once_for_all_who_ask_at_once() -> None:
    """A thousand clients that come back together would have the loop for minutes."""
    topics = MemoryCatalog()
    topics.add("many", range(1200), batches=BATCHES)
    topics.add("more", range(1200), batches=BATCHES)
    handler = handler_of(topics)
    request = make_request(METADATA, 12, topics=None, include_topic_authorized_operations=False)

    async def main() -> list[Any]:
        return await asyncio.gather(*(handler.handle(request, context_of(12)) for _ in range(20)))

    answers = run_on("asyncio", main)
    assert len({id(answer.buffers[0]) for answer in answers}) == 1
