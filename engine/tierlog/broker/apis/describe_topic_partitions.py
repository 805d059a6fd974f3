"""DescribeTopicPartitions: topics and their partitions, page by page."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.apis.describe_cluster import TOPIC_OPERATIONS, ServerIdentity
from tierlog.broker.apis.topic_answers import TopicAnswers
from tierlog.broker.handling import Answer, RequestContext
from tierlog.broker.partitions import Catalog
from tierlog.broker.protocol.entities import MadeElements, entities_of

#: Kafka's ``max.request.partition.size.limit``.
_PARTITIONS_MAX: Final = 2000


class _Page(Collection[str]):
    """The names of a page by name, as in Kafka those that the client may not read last. They are sorted when they are
    encoded: by the worker thread, if they are many.
    """

    def __init__(self, names: list[str], may_read: Callable[[str], bool]) -> None:
        self._names = names
        self._may_read = may_read

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names, key=lambda name: (not self._may_read(name), name)))


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
        told: dict[str, Callable[[], Any]] = {}
        stop: str | None = None
        next_index = 0
        served = {name: topic for name in names if may_read(name) and (topic := self._catalog.find(name)) is not None}
        for name, topic in sorted(served.items()):
            start = cursor.partition_index if cursor is not None and name == first else 0
            partitions = topic.partitions[bisect_left(topic.partitions, start) :]
            told[name] = partial(answers.found, topic, answers.epochs(topic, partitions[:left]))
            if len(partitions) > left:
                stop, next_index = name, partitions[left]
                break
            left -= len(partitions)
            if left <= 0:
                stop = min((later for later in names if later > name and may_read(later)), default=None)
                break
        page = [name for name in names if name in told or (name not in served and (stop is None or name < stop))]

        def made(name: str) -> Any:
            if name in told:
                return told[name]()
            return answers.missing(name) if may_read(name) else answers.denied(name)

        topics = MadeElements(_Page(page, may_read), made)
        next_cursor = None if stop is None else entities.make("Cursor", topic_name=stop, partition_index=next_index)
        return entities.response(topics=topics, next_cursor=next_cursor)
