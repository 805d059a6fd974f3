"""DescribeTopicPartitions as clients see it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from tests.support.api_calls import call, make_request
from tests.support.batches import Batch
from tests.support.memory_topics import MemoryCatalog
from tierlog.broker.apis.describe_cluster import ServerIdentity
from tierlog.broker.apis.describe_topic_partitions import DescribeTopicPartitionsHandler

DESCRIBE = 75


@pytest.fixture
def topics() -> MemoryCatalog:
    topics = MemoryCatalog()
    topics.add("a", (0, 1, 5), batches=[Batch(0, epoch=2)])
    topics.add("b", range(4))
    topics.add("c", (0,))
    return topics


def ask(
    topics: MemoryCatalog, names: list[str], *, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[Any, ...]], tuple[str, int] | None]:
    """([(error, topic, partitions)], next cursor)."""
    at = cursor and {"topic_name": cursor[0], "partition_index": cursor[1]}
    asked = [{"name": name} for name in names]
    request = make_request(DESCRIBE, 0, topics=asked, response_partition_limit=limit, cursor=at)
    answer = call(DescribeTopicPartitionsHandler(topics, ServerIdentity("cluster", 5)), 0, request)
    told = [(t.error_code, t.name, [p.partition_index for p in t.partitions]) for t in answer.topics]
    following = answer.next_cursor
    return told, following and (following.topic_name, following.partition_index)


def test_all_topics(topics: MemoryCatalog) -> None:
    """``kafka-topics --describe`` would show nothing."""
    none = ErrorCode.none
    assert ask(topics, []) == ([(none, "a", [0, 1, 5]), (none, "b", [0, 1, 2, 3]), (none, "c", [0])], None)


def test_what_is_told_of_a_partition(topics: MemoryCatalog) -> None:
    """Tools would call partitions leaderless or under-replicated."""
    request = make_request(DESCRIBE, 0, topics=[{"name": "a"}])
    answer = call(DescribeTopicPartitionsHandler(topics, ServerIdentity("cluster", 5)), 0, request)
    (topic,) = answer.topics
    assert topic.topic_id.bytes == topics.find("a").topic_id.raw  # type: ignore[union-attr]
    assert topic.topic_authorized_operations == 1 << 3 | 1 << 8 | 1 << 10
    for partition in topic.partitions:
        assert (partition.leader_id, partition.leader_epoch) == (5, 2)
        assert partition.replica_nodes == partition.isr_nodes == (5,)
        assert partition.eligible_leader_replicas == partition.last_known_elr == partition.offline_replicas == ()


def test_named_topics_and_missing_ones(topics: MemoryCatalog) -> None:
    """A misspelled name would look like an empty topic."""
    told, cursor = ask(topics, ["c", "no such", "later", "c"])
    assert told == [
        (ErrorCode.none, "c", [0]),
        (ErrorCode.unknown_topic_or_partition, "later", []),
        (ErrorCode.invalid_topic_exception, "no such", []),
    ]
    assert cursor is None


def test_names_of_no_topic_fill_no_page(topics: MemoryCatalog) -> None:
    """As a broker, whose limit is of partitions: a tool that asks for several topics would see fewer of them."""
    missing = ErrorCode.unknown_topic_or_partition
    first = [(missing, "0", []), (missing, "00", []), (ErrorCode.none, "a", [0, 1, 5])]
    assert ask(topics, ["00", "c", "a", "bb", "0"], limit=3) == (first, ("bb", 0))
    rest = [(missing, "bb", []), (ErrorCode.none, "c", [0])]
    assert ask(topics, ["00", "c", "a", "bb", "0"], limit=3, cursor=("bb", 0)) == (rest, None)


@given(limit=st.integers(-3, 9))
def test_pages_add_up_to_the_whole(limit: int) -> None:
    """A topic's partitions would be missing, or told twice, where a page ends."""
    topics = MemoryCatalog()
    topics.add("a", (0, 1, 5))
    topics.add("b", range(4))
    topics.add("c", (0,))
    seen: list[tuple[str, int]] = []
    cursor: tuple[str, int] | None = None
    for _ in range(20):
        told, cursor = ask(topics, [], limit=limit, cursor=cursor)
        page = [(name, number) for _, name, numbers in told for number in numbers]
        assert 0 < len(page) <= max(limit, 1)
        seen += page
        if cursor is None:
            break
    assert seen == [*(("a", n) for n in (0, 1, 5)), *(("b", n) for n in range(4)), ("c", 0)]


def test_a_cursor_that_cannot_be(topics: MemoryCatalog) -> None:
    """A tool would read pages forever."""
    assert ask(topics, ["b", "c"], cursor=("a", 0))[0] == [
        (ErrorCode.invalid_request, "b", []),
        (ErrorCode.invalid_request, "c", []),
    ]
    assert ask(topics, ["b"], cursor=("b", -1))[0] == [(ErrorCode.invalid_request, "b", [])]
    assert ask(topics, [], cursor=("b", 3)) == ([(ErrorCode.none, "b", [3]), (ErrorCode.none, "c", [0])], None)
    assert ask(topics, [], cursor=("bb", 0)) == ([(ErrorCode.none, "c", [0])], None)
