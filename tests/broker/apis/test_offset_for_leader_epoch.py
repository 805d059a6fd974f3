"""OffsetForLeaderEpoch as clients see it."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.api_calls import call, make_request
from tests.support.batches import Batch
from tests.support.memory_topics import MemoryCatalog
from tierlog.broker.apis.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from tierlog.errors import EncryptionKeyError

OFFSET_FOR_LEADER_EPOCH = 23
BATCHES = [Batch(0, (b"a", b"b"), epoch=1), Batch(2, epoch=3), Batch(3, epoch=3), Batch(4, epoch=7)]


@pytest.fixture
def topics() -> MemoryCatalog:
    topics = MemoryCatalog()
    topics.add("t", (0, 1), batches=BATCHES)
    return topics


def ask(topics: MemoryCatalog, version: int, *questions: tuple[str, int, int, int]) -> list[Any]:
    asked = [
        {"topic": t, "partitions": [{"partition": p, "current_leader_epoch": current, "leader_epoch": epoch}]}
        for t, p, current, epoch in questions
    ]
    answer = call(
        OffsetForLeaderEpochHandler(topics),
        version,
        make_request(OFFSET_FOR_LEADER_EPOCH, version, replica_id=-1, topics=asked),
    )
    assert [topic.topic for topic in answer.topics] == [question[0] for question in questions]
    found = [partition for topic in answer.topics for partition in topic.partitions]
    assert [partition.partition for partition in found] == [question[1] for question in questions]
    return [(one.error_code, one.leader_epoch, one.end_offset) for one in found]


@pytest.mark.parametrize("version", OffsetForLeaderEpochHandler.versions)
def test_ends_of_epochs(topics: MemoryCatalog, version: int) -> None:
    """A consumer would believe that what it read was cut off, or would not notice that it was."""
    epochs = [("t", 0, -1, epoch) for epoch in (0, 1, 2, 3, 6, 7, 9)]
    none = ErrorCode.none
    assert ask(topics, version, *epochs) == [
        (none, -1, -1),
        (none, 1, 2),
        (none, 1, 2),
        (none, 3, 4),
        (none, 3, 4),
        (none, 7, 5),
        (none, 7, 5),
    ]


@pytest.mark.parametrize("version", OffsetForLeaderEpochHandler.versions)
def test_errors_stay_with_their_partitions(topics: MemoryCatalog, version: int) -> None:
    """One partition's trouble would keep the others from being checked."""
    topics.at("t", 1).error = EncryptionKeyError("no key k1")
    questions = [("t", 0, 7, 3), ("t", 0, 6, 3), ("t", 0, 8, 3), ("t", 1, 7, 3), ("t", 2, -1, 3), ("u", 0, -1, 3)]
    told = ask(topics, version, *questions)
    assert told[0] == (ErrorCode.none, 3, 4)
    assert told[1:] == [
        (error, -1, -1)
        for error in (
            ErrorCode.fenced_leader_epoch,
            ErrorCode.unknown_leader_epoch,
            ErrorCode.unknown_server_error,
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.unknown_topic_or_partition,
        )
    ]
