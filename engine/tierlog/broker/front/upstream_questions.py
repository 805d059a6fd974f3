"""The questions that a front asks brokers about partitions, in its own name, and their answers as values."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple, Protocol

from kio.schema.errors import ErrorCode
from kio.static.protocol import RequestPayload

from tierlog.broker.partitions import EpochEndOffset
from tierlog.broker.protocol.entities import MadeElements, request_entities_of, topic_id_of
from tierlog.broker.protocol.peer_answers import decode_answer
from tierlog.remote.api import Uuid
from tierlog.runtime.waiting.file_part import FilePart
from tierlog.serving.response_writer import Reply

LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_FOR_LEADER_EPOCH: Final = 23
#: With topic ids in Metadata; with the earliest local offset in ListOffsets; for clients in OffsetForLeaderEpoch.
_METADATA_VERSIONS: Final = range(10, 14)
_LIST_OFFSETS_VERSIONS: Final = range(8, 12)
_EPOCH_VERSIONS: Final = range(3, 5)
#: Of a client that asks.
_CONSUMER: Final = -1

#: A topic's name and the number of a partition.
NamedPartition = tuple[str, int]


class AskedBrokers(Protocol):
    """Connections to the brokers of a cluster in the front's own name. Used on the event loop alone."""

    async def ask(
        self,
        node_id: int | None,
        api_key: int,
        versions: range,
        make: Callable[[int], RequestPayload],
        *,
        seconds: float,
    ) -> Any:
        """Ask a broker.

        Args:
            node_id: Which one; None for any that answers.
            api_key: Of the request.
            versions: That may be used: the newest of them that the broker has is.
            make: Makes the request, an entity of kio's module for the API and the given version.
            seconds: For all of it, the connection included.

        Returns:
            kio's entity of the response; a long one was decoded in a thread.

        Raises:
            UpstreamError: there is no answer in time, or none at all.
        """


def decode_reply(api_key: int, api_version: int, reply: Reply) -> Any:
    """Decode the answer to a question on a client's connection: kio's entity, which refers to none of its bytes.

    Raises:
        MalformedResponseError: the bytes are no such answer.
    """
    (data,) = reply.buffers
    if isinstance(data, FilePart):
        raise TypeError("a broker's answer is in memory")
    return decode_answer(api_key, api_version, memoryview(data))


class PartitionLeader(NamedTuple):
    """The leader of a partition."""

    topic_id: Uuid
    node_id: int
    leader_epoch: int


async def ask_leaders(
    brokers: AskedBrokers, topics: Iterable[str], *, errors: dict[str, ErrorCode], seconds: float
) -> Mapping[NamedPartition, PartitionLeader]:
    """Return the leaders of all partitions of topics that are there and have one. Errors of topics are noted in
    ``errors``. Raises UpstreamError.
    """
    names = tuple(topics)

    def make(api_version: int) -> RequestPayload:
        entities = request_entities_of(METADATA, api_version)
        return entities.request(
            topics=tuple(entities.make("MetadataRequestTopic", topic_id=None, name=name) for name in names),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
            include_cluster_authorized_operations=False,
        )

    answer = await brokers.ask(None, METADATA, _METADATA_VERSIONS, make, seconds=seconds)
    for topic in answer.topics:
        if topic.error_code is not ErrorCode.none and topic.name is not None:
            errors[topic.name] = topic.error_code
    return {
        (topic.name, one.partition_index): PartitionLeader(topic_id_of(topic.topic_id), one.leader_id, one.leader_epoch)
        for topic in answer.topics
        if topic.error_code is ErrorCode.none and topic.name is not None
        for one in topic.partitions
        if one.error_code is ErrorCode.none and one.leader_id >= 0
    }


async def ask_offsets(
    brokers: AskedBrokers,
    node_id: int,
    partitions: Iterable[NamedPartition],
    timestamp: int,
    *,
    is_read_committed: bool = False,
    errors: dict[NamedPartition, ErrorCode],
    seconds: float,
) -> Mapping[NamedPartition, int]:
    """Return the offsets of partitions that a broker leads, at a special timestamp. Those with an error are left out,
    and noted in ``errors``.

    Raises:
        UpstreamError: there is no answer.
    """
    asked = sorted(partitions)

    def make(api_version: int) -> RequestPayload:
        entities = request_entities_of(LIST_OFFSETS, api_version)
        topics = _by_topic(
            asked,
            partial(entities.make, "ListOffsetsTopic"),
            "name",
            lambda one: entities.make("ListOffsetsPartition", partition_index=one[1], timestamp=timestamp),
        )
        return entities.request(
            replica_id=_CONSUMER,
            isolation_level=int(is_read_committed),
            topics=topics,
            timeout=datetime.timedelta(seconds=seconds),
        )

    answer = await brokers.ask(node_id, LIST_OFFSETS, _LIST_OFFSETS_VERSIONS, make, seconds=seconds)
    found: dict[NamedPartition, int] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            if one.error_code is ErrorCode.none:
                found[topic.name, one.partition_index] = one.offset
            else:
                errors[topic.name, one.partition_index] = one.error_code
    return found


async def ask_epoch_ends(
    brokers: AskedBrokers, node_id: int, epochs: Mapping[NamedPartition, int], *, seconds: float
) -> Mapping[NamedPartition, EpochEndOffset]:
    """Return the ends of leader epochs of partitions that a broker leads, as it knows them; partitions with an error
    are left out.

    Raises:
        UpstreamError: there is no answer.
    """
    asked = sorted(epochs)

    def make(api_version: int) -> RequestPayload:
        entities = request_entities_of(OFFSET_FOR_LEADER_EPOCH, api_version)
        topics = _by_topic(
            asked,
            partial(entities.make, "OffsetForLeaderTopic"),
            "topic",
            lambda one: entities.make("OffsetForLeaderPartition", partition=one[1], leader_epoch=epochs[one]),
        )
        return entities.request(replica_id=_CONSUMER, topics=topics)

    answer = await brokers.ask(node_id, OFFSET_FOR_LEADER_EPOCH, _EPOCH_VERSIONS, make, seconds=seconds)
    return {
        (topic.topic, one.partition): EpochEndOffset(one.leader_epoch, one.end_offset)
        for topic in answer.topics
        for one in topic.partitions
        if one.error_code is ErrorCode.none
    }


def _by_topic(
    asked: list[NamedPartition], make_topic: Callable[..., Any], name: str, make: Callable[[NamedPartition], Any]
) -> MadeElements[Any]:
    topics = [(topic, list(partitions)) for topic, partitions in groupby(asked, key=lambda one: one[0])]
    return MadeElements(
        topics,
        lambda topic: make_topic(**{name: topic[0], "partitions": MadeElements(topic[1], make)}),
        nested=len(asked),
    )
