"""DescribeTopicPartitions: topics and their partitions, page by page."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.apis.describe_cluster import TOPIC_OPERATIONS, ServerIdentity
from tierlog.broker.apis.topic_answers import TopicAnswers
from tierlog.broker.handling import Answer, RequestContext
from tierlog.broker.partitions import Catalog
from tierlog.broker.protocol.entities import MadeElements, entities_of

#: Kafka's ``max.request.partition.size.limit``. Here a topic that has no partition counts as one, too.
_PARTITIONS_MAX: Final = 2000


class DescribeTopicPartitionsHandler:
    """The handler of DescribeTopicPartitions. A page ends after so many partitions; the cursor names the beginning of
    the next.

    Args:
        catalog: The served topics.
        identity: This node's identity.
    """

    api_key: ClassVar[int] = 75
    versions: ClassVar[range] = range(1)

    def __init__(self, catalog: Catalog, identity: ServerIdentity) -> None:
        self._catalog = catalog
        self._identity = identity

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """Answer a page of topics by name: all, or those that are named, from the cursor on."""
        entities = entities_of(self.api_key, context.api_version)
        answers = TopicAnswers(
            entities, "DescribeTopicPartitionsResponse", self._catalog, self._identity.node_id, TOPIC_OPERATIONS
        )
        cursor, is_named, may_read = request.cursor, bool(request.topics), context.may_read
        first = "" if cursor is None else cursor.topic_name
        names: Iterable[str]
        if is_named:
            names = {name for topic in request.topics if (name := topic.name) >= first}
        else:
            names = [name for topic in self._catalog.topics() if (name := topic.name) >= first and may_read(name)]
        if cursor is not None and (cursor.partition_index < 0 or (is_named and first not in names)):
            # As Kafka: the response has no error of its own, so each topic that was named has it.
            refused = MadeElements(
                request.topics, lambda topic: answers.failed(ErrorCode.invalid_request, name=topic.name)
            )
            return entities.response(topics=refused, next_cursor=None)
        left = max(min(_PARTITIONS_MAX, request.response_partition_limit), 1)
        told: list[Callable[[], Any]] = []
        denied: list[Callable[[], Any]] = []
        next_cursor = None
        for name in heapq.nsmallest(left + 1, names):
            if left <= 0:
                next_cursor = entities.make("Cursor", topic_name=name, partition_index=0)
                break
            topic, used = self._catalog.find(name), 1
            if not may_read(name):
                denied.append(partial(answers.denied, name))  # as in Kafka they come last on each page
            elif topic is not None:
                start = cursor.partition_index if cursor is not None and name == first else 0
                partitions = topic.partitions[bisect_left(topic.partitions, start) :]
                told.append(partial(answers.found, topic, answers.epochs(topic, partitions[:left])))
                if len(partitions) > left:
                    next_cursor = entities.make("Cursor", topic_name=name, partition_index=partitions[left])
                    break
                used = max(len(partitions), 1)
            elif is_named:
                told.append(partial(answers.missing, name))
            left -= used
        # A topic has as many partitions as a page at most: the answer is short enough for the loop.
        topics = MadeElements([*told, *denied], lambda call: call())
        return entities.response(topics=topics, next_cursor=next_cursor)
