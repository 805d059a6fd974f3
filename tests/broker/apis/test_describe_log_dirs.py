"""DescribeLogDirs as clients see it."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.api_calls import call, make_request
from tests.support.batches import Batch, encode
from tests.support.memory_topics import MemoryCatalog
from tierlog.broker.apis.describe_log_dirs import DescribeLogDirsHandler
from tierlog.errors import StoreUnavailableError

BATCH = Batch(0, (b"value",) * 5)


def ask(topics: MemoryCatalog, version: int, asked: list[dict[str, Any]] | None) -> dict[str, dict[int, int]]:
    """Topic -> partition -> bytes."""
    answer = call(DescribeLogDirsHandler(topics), version, make_request(35, version, topics=asked))
    (result,) = answer.results
    assert (result.error_code, result.log_dir) == (ErrorCode.none, "tier")
    assert all(not p.is_future_key and not p.offset_lag for topic in result.topics for p in topic.partitions)
    return {topic.name: {p.partition_index: p.partition_size for p in topic.partitions} for topic in result.topics}


@pytest.mark.parametrize("version", DescribeLogDirsHandler.versions)
def test_sizes(version: int) -> None:
    """Whoever plans a migration by these numbers would plan for nothing."""
    topics = MemoryCatalog()
    topics.add("a", (0, 1), batches=[BATCH])
    topics.add("b", batches=[BATCH])
    topics.at("a", 1).error = StoreUnavailableError("timed out")
    size = len(encode(BATCH))
    assert ask(topics, version, None) == {"a": {0: size, 1: -1}, "b": {0: size}}
    asked = [{"topic": "b", "partitions": [0, 0, 9]}, {"topic": "gone", "partitions": [0]}]
    assert ask(topics, version, asked) == {"b": {0: size}}
    assert ask(topics, version, []) == {}
