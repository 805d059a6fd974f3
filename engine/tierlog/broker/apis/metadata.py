"""Metadata: the topics, and the leaders of their partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

from kio.schema.errors import ErrorCode
from kio.static.protocol import ResponsePayload

from tierlog.broker.apis.describe_cluster import (
    CLUSTER_OPERATIONS,
    OPERATIONS_NOT_ASKED,
    TOPIC_OPERATIONS,
    ServerIdentity,
)
from tierlog.broker.apis.topic_answers import CONCURRENCY, TopicAnswers, load_quietly
from tierlog.broker.handling import Answer, RequestContext, may_read_all
from tierlog.broker.partitions import Catalog, Topic
from tierlog.broker.protocol.entities import LONG_ELEMENTS, MadeElements, entities_of, field_of, topic_id_of
from tierlog.remote.api import Uuid
from tierlog.runtime.waiting.loops import SharedCall
from tierlog.runtime.waiting.side_by_side import give_way, run_each
from tierlog.serving.response_writer import Reply

#: The first version whose requests may name topics by their ids.
_TOPIC_IDS_SINCE: Final = 12
#: The first version in which no topic means none.
_NULL_MEANS_ALL_SINCE: Final = 1


class _Form(NamedTuple):
    """The parts of a request that change the answer beside its topics."""

    api_version: int
    topic_operations: int
    cluster_operations: int
    host: str
    port: int


class MetadataHandler:
    """The handler of Metadata. No topic is ever created.

    Leader epochs are the cached ones; for named topics, partitions without cached offsets are looked up, for a while: a
    partition that takes longer, or cannot be read, is answered without an epoch, which every client understands.

    Args:
        catalog: The served topics.
        identity: This node's identity.
        load_seconds: How long one request waits for partitions.
    """

    api_key: ClassVar[int] = 3
    versions: ClassVar[range] = range(14)

    def __init__(self, catalog: Catalog, identity: ServerIdentity, *, load_seconds: float = 1.0) -> None:
        self._catalog = catalog
        self._identity = identity
        self._load_seconds = load_seconds
        #: The answer of all topics at a version of the catalog: many clients ask for it again and again.
        self._encoded: dict[_Form, tuple[int, Reply]] = {}
        self._encoding: dict[_Form, SharedCall[Reply]] = {}

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """Answer all topics, or those that are named; an error for each that is not there."""
        version = context.api_version
        asks_topic = field_of(request, "include_topic_authorized_operations", default=False)
        asks_cluster = field_of(request, "include_cluster_authorized_operations", default=False)
        form = _Form(
            version,
            TOPIC_OPERATIONS if asks_topic else OPERATIONS_NOT_ASKED,
            CLUSTER_OPERATIONS if asks_cluster else OPERATIONS_NOT_ASKED,
            context.advertised_host,
            context.advertised_port,
        )
        if request.topics is None or (version < _NULL_MEANS_ALL_SINCE and not request.topics):
            return await self._every_topic(form, context)
        answers = self._answers(form)
        if version < _TOPIC_IDS_SINCE and any(
            topic.name is None or field_of(topic, "topic_id") is not None for topic in request.topics
        ):
            return self._response(
                form,
                MadeElements(
                    request.topics,
                    lambda topic: answers.failed(
                        ErrorCode.invalid_request, name=topic.name or "", topic_id=topic.topic_id
                    ),
                ),
            )
        found, missing, denied = await self._named(request.topics, context.may_read)
        await self._load(found)
        return self._response(form, answers.all(found, missing, denied))

    def _answers(self, form: _Form) -> TopicAnswers:
        return TopicAnswers(
            entities_of(self.api_key, form.api_version),
            "MetadataResponse",
            self._catalog,
            self._identity.node_id,
            form.topic_operations,
        )

    def _response(self, form: _Form, topics: MadeElements[Any]) -> ResponsePayload:
        identity, entities = self._identity, entities_of(self.api_key, form.api_version)
        broker = entities.make(
            "MetadataResponseBroker", node_id=identity.node_id, host=form.host, port=form.port, rack=identity.rack
        )
        return entities.response(
            brokers=(broker,),
            cluster_id=identity.cluster_id,
            controller_id=identity.node_id,
            topics=topics,
            cluster_authorized_operations=form.cluster_operations,
            error_code=ErrorCode.none,
        )

    async def _named(
        self, asked: Sequence[Any], may_read: Callable[[str], bool]
    ) -> tuple[list[Topic], list[str | Uuid], list[str | Uuid]]:
        """Return the topics that are there, each once; names or ids of those that are not; and of those that the client
        may not read: as with Kafka an id is no secret, but whether there is a topic of a name is one.
        """
        ids = {topic_id_of(wire_id): None for one in asked if (wire_id := field_of(one, "topic_id")) is not None}
        names = dict.fromkeys([one.name or "" for one in asked])
        if len(asked) > LONG_ELEMENTS:
            await give_way()
        found: list[Topic] = []
        missing: list[str | Uuid] = []
        denied: list[str | Uuid] = []
        # As Kafka: where one topic is named by its id, names count no more.
        topics = [self._catalog.find_by_id(key) for key in ids] if ids else [self._catalog.find(key) for key in names]
        if len(asked) > LONG_ELEMENTS:
            await give_way()
        for key, topic in zip(ids or names, topics, strict=True):
            name = key if isinstance(key, str) else None if topic is None else topic.name
            if name is not None and not may_read(name):
                denied.append(key)
            elif topic is None:
                missing.append(key)
            else:
                found.append(topic)
        return found, missing, denied

    async def _load(self, topics: Iterable[Topic]) -> None:
        """Look up the offsets of partitions without cached ones, as far as time allows."""
        calls = []
        for topic in topics:
            for number in topic.partitions:
                partition = self._catalog.partition(topic.name, number)
                if partition is not None and partition.offsets is None:
                    calls.append(load_quietly(topic.name, number, partition))
        if calls:
            await run_each(calls, count=len(calls), limit=CONCURRENCY, seconds=self._load_seconds)

    async def _every_topic(self, form: _Form, context: RequestContext) -> Answer:
        """Answer all topics, encoded once a version of the catalog, for all clients; a client without rights for all
        gets its own.
        """
        if context.may_read is not may_read_all:
            return self._topics(form, [topic for topic in self._catalog.topics() if context.may_read(topic.name)])
        at_hand = self._encoded.get(form)
        if at_hand is not None and at_hand[0] == self._catalog.version:
            return at_hand[1]
        if form not in self._encoding:
            self._encoding[form] = SharedCall(partial(self._encode_every_topic, form, context))
        return await self._encoding[form].result()

    async def _encode_every_topic(self, form: _Form, context: RequestContext) -> Reply:
        catalog_version = self._catalog.version
        body = await context.encode(self._topics(form, self._catalog.topics()))
        encoded = Reply((body,), len(body))
        self._encoded = {key: each for key, each in self._encoded.items() if each[0] == catalog_version}
        self._encoded[form] = catalog_version, encoded
        return encoded

    def _topics(self, form: _Form, topics: Iterable[Topic]) -> ResponsePayload:
        return self._response(form, self._answers(form).all(topics))
