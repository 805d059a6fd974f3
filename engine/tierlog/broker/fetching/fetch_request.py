"""A Fetch request as one form of all its versions: its limits, its session, its partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from tierlog.broker.partition_watches import PartitionKey
from tierlog.broker.partitions import UNKNOWN
from tierlog.broker.protocol.entities import field_of

#: From these versions on a request has the epoch of the leader that the client knows; the epoch of the last record that
#: it has; ids in place of topic names; the asking replica in a structure of its own.
_LEADER_EPOCH: Final = 9
_FETCHED_EPOCH: Final = 12
TOPIC_IDS: Final = 13
_REPLICA_STATE: Final = 15

#: Of a request that belongs to no session; of the first request of a session; of one that ends a session or wants none.
NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1

_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_NO_ID: Final = bytes(16)


class FetchPartition:
    """What a client wants of a partition, and what it was last told of it (Kafka's ``CachedPartition``).

    Attributes:
        key: Of the partition in its request.
        topic: Its topic's name; None until the topic's id is known to the server.
        topic_id: 16 bytes; zeros below version 13.
        partition: Its number.
        fetch_offset: The first offset that is wanted.
        max_bytes: The most of this partition; the client's number, which may be anything.
        current_leader_epoch: The leader's epoch as the client knows it; UNKNOWN for no check.
        last_fetched_epoch: The epoch of the record before ``fetch_offset``; UNKNOWN for no check.
        high_watermark, log_start_offset: As the client was told last in a session; UNKNOWN if never, or after an error.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        key: PartitionKey,
        topic: str | None,
        topic_id: bytes,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = UNKNOWN,
        last_fetched_epoch: int = UNKNOWN,
    ) -> None:
        self.key = key
        self.topic = topic
        self.topic_id = topic_id
        self.partition = key[1]
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.high_watermark = UNKNOWN
        self.log_start_offset = UNKNOWN

    def ask_as(self, other: FetchPartition) -> None:
        """Take over what a newer request wants of the same partition."""
        self.fetch_offset = other.fetch_offset
        self.max_bytes = other.max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch


@dataclass(slots=True)
class FetchRequest:
    """A Fetch request.

    Attributes:
        max_wait_seconds: How long the answer may wait for ``min_bytes``; 0 or less for not at all.
        min_bytes: Records that make an answer worth sending.
        max_bytes: The most of the answer but for a first batch that is larger.
        is_read_committed: Whether records of open and aborted transactions are not to be seen; None for an isolation
            level that nobody knows.
        session_id, session_epoch: Of the session that it continues; NO_SESSION and FINAL_EPOCH for none.
        replica_id: Of the broker that asks; negative for a consumer.
        uses_topic_ids: Whether topics are named by their ids.
        partitions: What is wanted, in order; one that is named twice stands where it was first and is as it was last.
        forgotten: Partitions that leave the session.
    """

    max_wait_seconds: float
    min_bytes: int
    max_bytes: int
    is_read_committed: bool | None
    session_id: int
    session_epoch: int
    replica_id: int
    uses_topic_ids: bool
    partitions: dict[PartitionKey, FetchPartition]
    forgotten: list[PartitionKey]


def read_fetch_request(request: Any, api_version: int) -> FetchRequest:
    """What a request's entity of kio's asks for, at any version from 4 on."""
    if api_version >= _REPLICA_STATE:
        replica_id = request.replica_state.replica_id
    else:
        replica_id = request.replica_id
    isolation = {_READ_UNCOMMITTED: False, _READ_COMMITTED: True}.get(request.isolation_level)
    return FetchRequest(
        request.max_wait.total_seconds(),
        request.min_bytes,
        request.max_bytes,
        isolation,
        field_of(request, "session_id", NO_SESSION),
        field_of(request, "session_epoch", FINAL_EPOCH),
        replica_id,
        api_version >= TOPIC_IDS,
        _partitions(request.topics, api_version) if request.topics else {},
        _forgotten(field_of(request, "forgotten_topics_data", ()), api_version),
    )


def _partitions(topics: Any, api_version: int) -> dict[PartitionKey, FetchPartition]:
    found: dict[PartitionKey, FetchPartition] = {}
    for topic in topics:
        if api_version >= TOPIC_IDS:
            name, topic_id = None, _id_bytes(topic.topic_id)
        else:
            name, topic_id = topic.topic, _NO_ID
        named = topic_id if name is None else name
        for one in topic.partitions:
            key = (named, one.partition)
            found[key] = FetchPartition(
                key,
                name,
                topic_id,
                one.fetch_offset,
                one.partition_max_bytes,
                one.current_leader_epoch if api_version >= _LEADER_EPOCH else UNKNOWN,
                one.last_fetched_epoch if api_version >= _FETCHED_EPOCH else UNKNOWN,
            )
    return found


def _forgotten(topics: Any, api_version: int) -> list[PartitionKey]:
    return [
        (_id_bytes(topic.topic_id) if api_version >= TOPIC_IDS else topic.topic, partition)
        for topic in topics
        for partition in topic.partitions
    ]


def _id_bytes(topic_id: UUID | None) -> bytes:
    return _NO_ID if topic_id is None else topic_id.bytes
