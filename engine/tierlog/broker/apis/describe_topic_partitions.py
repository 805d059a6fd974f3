"""DescribeTopicPartitions: topics and their partitions, page by page."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, TypeAlias

from kio.schema.errors import ErrorCode
from kio.static.protocol import ResponsePayload

from tierlog.broker.apis.server_identity import TOPIC_OPERATIONS, ServerIdentity
from tierlog.broker.apis.topic_answers import (
    denied_topic,
    epochs_at_hand,
    missing_named_topic,
    missing_topic,
    partition_encoder,
)
from tierlog.broker.apis.topic_names import is_internal
from tierlog.broker.handling import Answer, RequestContext
from tierlog.broker.partitions import Catalog, Topic
from tierlog.broker.protocol.encoding import MadeElements
from tierlog.broker.protocol.entities import Entities, entities_of
from tierlog.broker.protocol.topic_ids import wire_id_of
from tierlog.runtime.waiting.side_by_side import sorted_in_turns

_TOPIC: Final = "DescribeTopicPartitionsResponseTopic"
_PARTITION: Final = "DescribeTopicPartitionsResponsePartition"
#: Kafka's ``max.request.partition.size.limit``.
_PARTITIONS_MAX: Final = 2000


@dataclass(frozen=True, slots=True)
class _Denied:
    """A topic that was named and that the client may not read: as in Kafka they come last on each page."""

    name: str


#: Of one topic: the partitions that are told; of a topic that is not there its name.
_Page: TypeAlias = tuple[Topic, tuple[int, ...]] | str | _Denied


class DescribeTopicPartitionsHandler:
    """Answers DescribeTopicPartitions. A page ends after so many partitions; the cursor says where the next begins.

    Args:
        catalog: What is served.
        identity: Who this node is.
    """

    api_key: ClassVar[int] = 75
    versions: ClassVar[range] = range(1)

    def __init__(self, catalog: Catalog, identity: ServerIdentity) -> None:
        self._catalog = catalog
        self._identity = identity

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """A page of topics by name: all, or those that are named, from the cursor on."""
        entities = entities_of(self.api_key, context.api_version)
        cursor = request.cursor
        first = "" if cursor is None else cursor.topic_name
        names_asked: set[str] = set()
        unsorted: list[str] = []  # a list of so large a set, made at once, holds the loop for 13 ms
        for asked in request.topics:
            name = asked.name
            if name >= first and name not in names_asked:
                names_asked.add(name)
                unsorted.append(name)
            await context.share.take()
        if cursor is not None and (cursor.partition_index < 0 or (request.topics and first not in names_asked)):
            # As Kafka: the response has no error of its own, so each topic that was named has it.
            refused = MadeElements(
                request.topics,
                lambda topic: missing_topic(entities, _TOPIC, ErrorCode.invalid_request, name=topic.name),
            )
            return self._response(entities, refused, None)
        may_read = context.may_read
        names: Iterable[str] = [
            name for topic in self._catalog.topics() if (name := topic.name) >= first and may_read(name)
        ]
        del names_asked  # its end takes 5 ms, and is not to come on top of that of the sorted names
        if request.topics:
            names = await sorted_in_turns(unsorted, context.share, str)
        del unsorted
        left = max(min(_PARTITIONS_MAX, request.response_partition_limit), 1)
        pages: list[_Page] = []
        denied: list[_Denied] = []
        next_cursor: tuple[str, int] | None = None
        for name in names:
            await context.share.take()
            if not may_read(name):
                denied.append(_Denied(name))
                continue
            if left <= 0:
                next_cursor = (name, 0)
                break
            topic = self._catalog.find(name)
            if topic is None:
                if request.topics:
                    pages.append(name)
                continue
            start = cursor.partition_index if cursor is not None and name == first else 0
            partitions = topic.partitions[bisect_left(topic.partitions, start) :]
            pages.append((topic, partitions[:left]))
            if len(partitions) > left:
                next_cursor = (name, partitions[left])
                break
            left -= len(partitions)
        pages += denied
        return self._response(entities, MadeElements(pages, partial(self._answer, entities)), next_cursor)

    def _answer(self, entities: Entities, page: _Page) -> Any:
        if isinstance(page, _Denied):
            return denied_topic(entities, _TOPIC, page.name)
        if isinstance(page, str):
            return missing_named_topic(entities, _TOPIC, page, TOPIC_OPERATIONS)
        topic, partitions = page
        encoder = partition_encoder(self.api_key, 0, _PARTITION, self._identity.node_id)
        return entities.make(
            _TOPIC,
            error_code=ErrorCode.none,
            name=topic.name,
            topic_id=wire_id_of(topic.topic_id),
            is_internal=is_internal(topic.name),
            partitions=encoder.encode(epochs_at_hand(self._catalog, topic.name, partitions)),
            topic_authorized_operations=TOPIC_OPERATIONS,
        )

    @staticmethod
    def _response(entities: Entities, topics: MadeElements[Any], cursor: tuple[str, int] | None) -> ResponsePayload:
        return entities.response(
            topics=topics,
            next_cursor=cursor and entities.make("Cursor", topic_name=cursor[0], partition_index=cursor[1]),
        )
