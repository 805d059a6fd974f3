"""Metadata: which topics there are, and who leads their partitions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.apis.partition_answers import CONCURRENCY, load_quietly
from tierlog.broker.apis.server_identity import (
    CLUSTER_OPERATIONS,
    OPERATIONS_NOT_ASKED,
    TOPIC_OPERATIONS,
    ServerIdentity,
)
from tierlog.broker.apis.topic_answers import (
    denied_topic,
    epochs_at_hand,
    missing_named_topic,
    missing_topic,
    partition_encoder,
)
from tierlog.broker.apis.topic_names import is_internal
from tierlog.broker.handling import Answer, RequestContext, may_read_all
from tierlog.broker.partitions import Catalog, Topic
from tierlog.broker.protocol.encoding import EncodedElements, MadeElements, append_entity
from tierlog.broker.protocol.entities import Entities, entities_of, field_of
from tierlog.broker.protocol.topic_ids import topic_id_of, wire_id_of
from tierlog.remote.api import ZERO_UUID, Uuid
from tierlog.runtime.waiting.loops import SharedCall
from tierlog.runtime.waiting.side_by_side import LoopShare, run_each

_TOPIC: Final = "MetadataResponseTopic"
_PARTITION: Final = "MetadataResponsePartition"
#: The first version whose requests may name topics by their ids.
_TOPIC_IDS_SINCE: Final = 12
#: The first version in which no topic means none.
_NULL_MEANS_ALL_SINCE: Final = 1
#: Partitions that are encoded in a step.
_PARTITIONS_A_STEP: Final = 10


class MetadataHandler:
    """Answers Metadata. No topic is ever created.

    Leader epochs are those at hand; for topics that were named, partitions that nobody has asked for yet are looked at,
    for a while: one that takes longer, or cannot be read, is told without an epoch, which every client understands.

    Args:
        catalog: What is served.
        identity: Who this node is.
        load_seconds: How long one request waits for partitions.
    """

    api_key: ClassVar[int] = 3
    versions: ClassVar[range] = range(14)

    def __init__(self, catalog: Catalog, identity: ServerIdentity, *, load_seconds: float = 1.0) -> None:
        self._catalog = catalog
        self._identity = identity
        self._load_seconds = load_seconds
        #: (api version, operations) -> (catalog version, all topics): what many clients ask for again and again.
        self._all_topics: dict[tuple[int, int], tuple[int, EncodedElements]] = {}
        self._making: dict[tuple[int, int], SharedCall[EncodedElements]] = {}

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """All topics, or those that are named; an error for each that is not there."""
        version, identity = context.api_version, self._identity
        entities = entities_of(self.api_key, version)
        operations = TOPIC_OPERATIONS
        if not field_of(request, "include_topic_authorized_operations", default=False):
            operations = OPERATIONS_NOT_ASKED
        broker = entities.make(
            "MetadataResponseBroker",
            node_id=identity.node_id,
            host=context.advertised_host,
            port=context.advertised_port,
            rack=identity.rack,
        )
        asked = field_of(request, "include_cluster_authorized_operations", default=False)
        return entities.response(
            brokers=(broker,),
            cluster_id=identity.cluster_id,
            controller_id=identity.node_id,
            topics=await self._topics(request, entities, context, operations),
            cluster_authorized_operations=CLUSTER_OPERATIONS if asked else OPERATIONS_NOT_ASKED,
            error_code=ErrorCode.none,
        )

    async def _topics(self, request: Any, entities: Entities, context: RequestContext, operations: int) -> Any:
        version, share = context.api_version, context.share
        if request.topics is None or (version < _NULL_MEANS_ALL_SINCE and not request.topics):
            return await self._every_topic(version, operations, context)
        if version < _TOPIC_IDS_SINCE and await _has_ids(request.topics, share):
            return MadeElements(
                request.topics,
                lambda topic: missing_topic(
                    entities, _TOPIC, ErrorCode.invalid_request, name=topic.name or "", topic_id=topic.topic_id
                ),
            )
        found, missing, denied = await self._named(request.topics, context)
        await self._load(found, share)
        return await _encoded(
            share,
            itertools.chain(
                ((self._answer(entities, version, topic, operations), len(topic.partitions)) for topic in found),
                ((_missing(entities, asked, operations), 0) for asked in missing),
                ((_denied(entities, asked), 0) for asked in denied),
            ),
        )

    async def _named(
        self, asked: Sequence[Any], context: RequestContext
    ) -> tuple[list[Topic], list[str | Uuid], list[str | Uuid]]:
        """The topics that are there, each once; names or ids of those that are not; and of those that the client may
        not read: as with Kafka an id is no secret, but whether there is a topic of a name is one.
        """
        share = context.share
        ids: dict[Uuid, None] = {}
        names: dict[str, None] = {}
        for one in asked:
            topic_id = topic_id_of(field_of(one, "topic_id"))
            if topic_id == ZERO_UUID:
                names[one.name or ""] = None
            else:
                ids[topic_id] = None
            await share.take()
        found: list[Topic] = []
        missing: list[str | Uuid] = []
        denied: list[str | Uuid] = []
        for key in ids or names:  # as Kafka: where one topic is named by its id, names count no more
            topic = self._catalog.find_by_id(key) if isinstance(key, Uuid) else self._catalog.find(key)
            name = key if isinstance(key, str) else None if topic is None else topic.name
            if name is not None and not context.may_read(name):
                denied.append(key)
            elif topic is None:
                missing.append(key)
            else:
                found.append(topic)
            await share.take()
        return found, missing, denied

    async def _load(self, topics: Sequence[Topic], share: LoopShare) -> None:
        """Find out the offsets of partitions that nobody has asked for yet, as far as time allows."""
        calls = []
        for topic in topics:
            for number in topic.partitions:
                partition = self._catalog.partition(topic.name, number)
                if partition is not None and partition.offsets is None:
                    calls.append(load_quietly(topic.name, number, partition))
                await share.take()
        if calls:
            await run_each(calls, count=len(calls), limit=CONCURRENCY, seconds=self._load_seconds)

    def _answer(self, entities: Entities, version: int, topic: Topic, operations: int) -> Any:
        encoder = partition_encoder(self.api_key, version, _PARTITION, self._identity.node_id)
        return entities.make(
            _TOPIC,
            error_code=ErrorCode.none,
            name=topic.name,
            topic_id=wire_id_of(topic.topic_id),
            is_internal=is_internal(topic.name),
            partitions=encoder.encode(epochs_at_hand(self._catalog, topic.name, topic.partitions)),
            topic_authorized_operations=operations,
        )

    async def _every_topic(self, version: int, operations: int, context: RequestContext) -> EncodedElements:
        """All topics, made once a version of the catalog, for all who ask at once; for a client that may not read all
        those that it may.
        """
        share = context.share
        if context.may_read is not may_read_all:
            topics = [topic for topic in self._catalog.topics() if context.may_read(topic.name)]
            return await self._encode_topics(topics, version, operations, share)
        key = version, operations
        at_hand = self._all_topics.get(key)
        if at_hand is not None and at_hand[0] == self._catalog.version:
            return at_hand[1]
        if key not in self._making:
            self._making[key] = SharedCall(partial(self._make_every_topic, version, operations, share))
        return await self._making[key].result()

    async def _make_every_topic(self, version: int, operations: int, share: LoopShare) -> EncodedElements:
        catalog_version = self._catalog.version
        made = await self._encode_topics(list(self._catalog.topics()), version, operations, share)
        self._all_topics = {key: kept for key, kept in self._all_topics.items() if kept[0] == catalog_version}
        self._all_topics[version, operations] = catalog_version, made
        return made

    async def _encode_topics(
        self, topics: Sequence[Topic], version: int, operations: int, share: LoopShare
    ) -> EncodedElements:
        entities = entities_of(self.api_key, version)
        return await _encoded(
            share, ((self._answer(entities, version, topic, operations), len(topic.partitions)) for topic in topics)
        )


async def _has_ids(asked: Sequence[Any], share: LoopShare) -> bool:
    """Whether a topic is named by its id, or not at all."""
    for topic in asked:
        if topic.name is None or field_of(topic, "topic_id") is not None:
            return True
        await share.take()
    return False


def _missing(entities: Entities, asked: str | Uuid, operations: int) -> Any:
    """The answer for a topic that is not there."""
    if isinstance(asked, Uuid):
        return missing_topic(entities, _TOPIC, ErrorCode.unknown_topic_id, topic_id=wire_id_of(asked))
    return missing_named_topic(entities, _TOPIC, asked, operations)


def _denied(entities: Entities, asked: str | Uuid) -> Any:
    """The answer for a topic that the client may not read."""
    if isinstance(asked, Uuid):
        return denied_topic(entities, _TOPIC, None, wire_id_of(asked))
    return denied_topic(entities, _TOPIC, asked)


async def _encoded(share: LoopShare, answers: Iterable[tuple[Any, int]]) -> EncodedElements:
    """Answers for topics as bytes; others have the loop in between.

    Args:
        share: Of the loop.
        answers: Made one by one, each with the number of its partitions.
    """
    out, count = bytearray(), 0
    for answer, partitions in answers:
        append_entity(out, answer)
        count += 1
        await share.take(1 + partitions // _PARTITIONS_A_STEP)
    return EncodedElements(count, out)
