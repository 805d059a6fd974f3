"""What answers tell of topics and their partitions: one node leads all of them."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.apis.topic_names import error_of_missing, is_internal
from tierlog.broker.partitions import UNKNOWN, Catalog
from tierlog.broker.protocol.encoding import EncodedElements, append_entity
from tierlog.broker.protocol.entities import Entities, entities_of

_NUMBER: Final = struct.Struct(">i")
#: Of a partition's bytes, in all versions of Metadata and DescribeTopicPartitions: an error of 2 bytes, its number, the
#: leader, and from version 7 of Metadata on the leader's epoch.
_NUMBER_POSITION: Final = 2
_EPOCH_POSITION: Final = 10


class PartitionEncoder:
    """Encodes what Metadata or DescribeTopicPartitions tell of partitions, which differ in number and epoch alone.

    Ten thousand entities would take a tenth of a second to make; so many copies of a few bytes take milliseconds.

    Args:
        api_key, api_version: Of the response.
        entity: The name of its class of partitions.
        node_id: Who leads.
    """

    def __init__(self, api_key: int, api_version: int, entity: str, node_id: int) -> None:
        entities = entities_of(api_key, api_version)
        example = entities.make(
            entity,
            error_code=ErrorCode.none,
            partition_index=0,
            leader_id=node_id,
            leader_epoch=0,
            replica_nodes=(node_id,),
            isr_nodes=(node_id,),
            offline_replicas=(),
            eligible_leader_replicas=(),
            last_known_elr=(),
        )
        names = [field.name for field in dataclasses.fields(example)]
        self._has_epoch = "leader_epoch" in names
        expected = ["error_code", "partition_index", "leader_id", *(["leader_epoch"] if self._has_epoch else [])]
        assert names[: len(expected)] == expected, names
        self._template = bytearray()
        append_entity(self._template, example)

    def encode(self, partitions: Sequence[tuple[int, int]]) -> EncodedElements:
        """The partitions of one topic: (number, leader epoch) of each."""
        template, pack_into = bytearray(self._template), _NUMBER.pack_into
        out = bytearray()
        for number, leader_epoch in partitions:
            pack_into(template, _NUMBER_POSITION, number)
            if self._has_epoch:
                pack_into(template, _EPOCH_POSITION, leader_epoch)
            out += template
        return EncodedElements(len(partitions), bytes(out))


@cache
def partition_encoder(api_key: int, api_version: int, entity: str, node_id: int) -> PartitionEncoder:
    """The encoder of a version's partitions."""
    return PartitionEncoder(api_key, api_version, entity, node_id)


def epochs_at_hand(catalog: Catalog, name: str, partitions: Sequence[int]) -> list[tuple[int, int]]:
    """(number, leader epoch) of a topic's partitions, UNKNOWN where none is at hand. Waits for nothing."""
    found = []
    for number in partitions:
        partition = catalog.partition(name, number)
        offsets = None if partition is None else partition.offsets
        found.append((number, UNKNOWN if offsets is None else offsets.leader_epoch))
    return found


def missing_topic(entities: Entities, entity: str, error: ErrorCode, **values: Any) -> Any:
    """The answer for a topic that is not there."""
    return entities.make(
        entity, **{"error_code": error, "name": None, "topic_id": None, "is_internal": False, "partitions": ()} | values
    )


def denied_topic(entities: Entities, entity: str, name: str | None, topic_id: object = None) -> Any:
    """The answer for a topic that the client may not read, there or not: nothing but what the request had."""
    return missing_topic(entities, entity, ErrorCode.topic_authorization_failed, name=name, topic_id=topic_id)


def missing_named_topic(entities: Entities, entity: str, name: str, operations: int) -> Any:
    """The answer for a topic that was asked for by its name: what a client might do with it, if it were there."""
    return missing_topic(
        entities,
        entity,
        error_of_missing(name),
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=operations,
    )
