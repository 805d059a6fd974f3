"""ListOffsets as clients see it."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.api_calls import call, make_request
from tests.support.batches import Batch
from tests.support.memory_topics import MemoryCatalog
from tierlog.broker.apis.list_offsets import ListOffsetsHandler
from tierlog.errors import CorruptObjectError, StoreUnavailableError

LIST_OFFSETS = 2
T0 = 1_700_000_000_000
BATCHES = [
    Batch(10, (b"a", b"b"), epoch=1, timestamp_ms=T0),
    Batch(12, (b"c", b"d", b"e"), epoch=3, timestamp_ms=T0 + 1000),
    Batch(15, (b"f",), epoch=5, timestamp_ms=T0 + 500),
]
ALL_VERSIONS = ListOffsetsHandler.versions


@pytest.fixture
def topics() -> MemoryCatalog:
    topics = MemoryCatalog()
    topics.add("t", batches=BATCHES)[0].log_start_offset = 10
    return topics


def ask(
    topics: MemoryCatalog, version: int, timestamp: int, *, isolation: int = 0, epoch: int = -1, replica_id: int = -1
) -> tuple[Any, ...]:
    """(error, timestamp, offset, epoch if there is one) of partition t-0."""
    (partition,) = ask_all(topics, version, [("t", 0, timestamp)], isolation=isolation, epoch=epoch, replica=replica_id)
    return partition


def ask_all(
    topics: MemoryCatalog,
    version: int,
    questions: list[tuple[str, int, int]],
    *,
    isolation: int = 0,
    epoch: int = -1,
    replica: int = -1,
    timeout_ms: int = 0,
) -> list[tuple[Any, ...]]:
    asked = [
        {"name": n, "partitions": [{"partition_index": p, "timestamp": t, "current_leader_epoch": epoch}]}
        for n, p, t in questions
    ]
    timeout = datetime.timedelta(milliseconds=timeout_ms)
    request = make_request(
        LIST_OFFSETS, version, replica_id=replica, isolation_level=isolation, topics=asked, timeout=timeout
    )
    response = call(ListOffsetsHandler(topics), version, request)
    names = ["error_code", "timestamp", "offset", *(["leader_epoch"] if version >= 4 else [])]
    told = {
        (topic.name, partition.partition_index): tuple(getattr(partition, name) for name in names)
        for topic in response.topics
        for partition in topic.partitions
    }
    assert len(told) == sum(len(topic.partitions) for topic in response.topics), "one answer a partition"
    assert len({topic.name for topic in response.topics}) == len(response.topics), "one place a topic"
    return [told.pop((name, number)) for name, number in dict.fromkeys((n, p) for n, p, _ in questions)]


def found(version: int, offset: int, epoch: int, timestamp: int = -1) -> tuple[Any, ...]:
    return (ErrorCode.none, timestamp, offset, epoch)[: 4 if version >= 4 else 3]


def failed(version: int, error: ErrorCode) -> tuple[Any, ...]:
    return (error, -1, -1, -1)[: 4 if version >= 4 else 3]


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_borders(topics: MemoryCatalog, version: int) -> None:
    """Consumers would begin in the middle, or wait for offsets that never come."""
    assert ask(topics, version, -1) == found(version, 16, 5)
    assert ask(topics, version, -2) == found(version, 10, 1)


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_by_time(topics: MemoryCatalog, version: int) -> None:
    """``--from-time`` would skip records or read days too much."""
    assert ask(topics, version, 0) == found(version, 10, 1, T0)
    assert ask(topics, version, T0 + 1) == found(version, 11, 1, T0 + 1)
    assert ask(topics, version, T0 + 2) == found(version, 12, 3, T0 + 1000)
    assert ask(topics, version, T0 + 5000) == found(version, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "since", "expected"),
    [(-3, 7, (14, 3, T0 + 1002)), (-4, 8, (16, 5)), (-5, 9, (15, 5)), (-6, 11, (16, 5))],
)
def test_special_times_by_version(topics: MemoryCatalog, timestamp: int, since: int, expected: tuple[int, ...]) -> None:
    """Tools that ask for the tier's end or the newest record would get another answer, or old ones a wrong number."""
    for version in ALL_VERSIONS:
        answer = ask(topics, version, timestamp)
        if version < since:
            assert answer == failed(version, ErrorCode.unsupported_version)
        else:
            assert answer == found(version, *expected)
    assert ask(topics, 11, -7) == failed(11, ErrorCode.unsupported_version)


def test_read_committed_ends_at_the_last_stable_offset(topics: MemoryCatalog) -> None:
    """A consumer that reads only what is committed would wait at the end for what may never be."""
    topics.at("t").last_stable_offset = 12
    assert ask(topics, 11, -1, isolation=1) == found(11, 12, 5)
    assert ask(topics, 11, -1, isolation=0) == found(11, 16, 5)
    assert ask(topics, 11, -1, isolation=1, replica_id=3) == found(11, 16, 5)
    assert ask(topics, 11, -2, isolation=1) == found(11, 10, 1)
    assert ask(topics, 11, T0 + 1, isolation=1) == found(11, 11, 1, T0 + 1)
    for behind in (T0 + 2, -3, -5):
        assert ask(topics, 11, behind, isolation=1) == found(11, -1, -1)
    assert ask(topics, 11, -4, isolation=1) == found(11, 16, 5)


def test_a_partition_without_records(topics: MemoryCatalog) -> None:
    """A consumer of an empty partition would fail instead of waiting."""
    topics.at("t").batches = []
    topics.at("t").log_start_offset = 40
    assert ask(topics, 11, -1) == found(11, 40, -1)
    assert ask(topics, 11, -2) == found(11, 40, -1)
    for timestamp in (-3, -5, 5):
        assert ask(topics, 11, timestamp) == found(11, -1, -1)


def test_leader_epochs_are_checked(topics: MemoryCatalog) -> None:
    """A client with stale metadata would never learn that it is."""
    assert ask(topics, 4, -1, epoch=5) == found(4, 16, 5)
    assert ask(topics, 4, -1, epoch=4) == failed(4, ErrorCode.fenced_leader_epoch)
    assert ask(topics, 11, 0, epoch=6) == failed(11, ErrorCode.unknown_leader_epoch)
    topics.at("t").batches = []  # and of a partition that knows none, any is right
    assert ask(topics, 11, -2, epoch=6) == found(11, 10, -1)


def test_partitions_named_twice(topics: MemoryCatalog) -> None:
    """Clients match answers by partition: one of two would be taken for both."""
    topics.add("u", batches=BATCHES)
    answers = ask_all(topics, 11, [("t", 0, -1), ("u", 0, -1), ("t", 0, -2)])
    assert answers == [failed(11, ErrorCode.invalid_request), found(11, 16, 5)]


def test_a_topic_without_partitions_has_no_answer(topics: MemoryCatalog) -> None:
    """Kafka leaves such a topic out; the answer of a replica would be another than the broker's."""
    named = [{"name": "t", "partitions": []}, {"name": "gone", "partitions": []}]
    request = make_request(LIST_OFFSETS, 9, replica_id=-1, isolation_level=0, topics=named)
    assert not list(call(ListOffsetsHandler(topics), 9, request).topics)


def test_errors_stay_with_their_partitions(topics: MemoryCatalog) -> None:
    """One broken object would stop the consumer on all partitions."""
    topics.add("p", range(4), batches=BATCHES)
    topics.at("p", 0).error = CorruptObjectError("manifest: no JSON")
    topics.at("p", 1).error = StoreUnavailableError("timed out")
    topics.at("p", 2).error = RuntimeError("a bug")
    questions = [("p", number, 5) for number in range(4)] + [("gone", 0, 5), ("t", 1, 5)]
    assert ask_all(topics, 11, questions) == [
        failed(11, ErrorCode.corrupt_message),
        failed(11, ErrorCode.kafka_storage_error),
        failed(11, ErrorCode.unknown_server_error),
        found(11, 10, 1, T0),
        failed(11, ErrorCode.unknown_topic_or_partition),
        failed(11, ErrorCode.unknown_topic_or_partition),
    ]


def test_one_slow_partition_costs_its_own_answer_alone(topics: MemoryCatalog) -> None:
    """A store that stalls for one partition would hold up all others until the client gives up."""
    topics.add("slow", range(3), batches=BATCHES)
    topics.at("slow", 1).gate = asyncio.Event()
    questions = [("slow", number, 5) for number in range(3)]
    answers = ask_all(topics, 11, questions, timeout_ms=50)
    assert answers == [found(11, 10, 1, T0), failed(11, ErrorCode.request_timed_out), found(11, 10, 1, T0)]


def test_many_partitions_of_which_none_is_loaded(topics: MemoryCatalog) -> None:
    """A client of all partitions would have each looked up twice, or miss some."""
    topics.add("many", range(500), batches=BATCHES)
    for number in range(500):
        topics.at("many", number).is_loaded = False
    answers = ask_all(topics, 11, [("many", number, -1) for number in range(500)])
    assert answers == [found(11, 16, 5)] * 500
    assert {topics.at("many", number).loads_count for number in range(500)} == {1}


def test_an_error_is_logged_once(topics: MemoryCatalog, caplog: pytest.LogCaptureFixture) -> None:
    """A client that asks again and again for a broken partition would fill the log."""
    for text in ("one", "one", "another", "one"):
        topics.at("t").error = CorruptObjectError(f"{text} fault of a manifest")
        ask(topics, 11, 5)
    told = [record.message for record in caplog.records]
    assert told == [f"t-0: CorruptObjectError: {text} fault of a manifest" for text in ("one", "another", "one")]
