"""OffsetCommit, OffsetFetch and OffsetDelete: offsets of partitions that are served."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar, Final, TypeVar

from kio.schema.errors import ErrorCode

from tierlog.broker.groups.committed_offsets import CommitRequest
from tierlog.broker.groups.coordinator import GroupCoordinator
from tierlog.broker.groups.stored_state import CommittedOffset
from tierlog.broker.handling import RequestContext
from tierlog.broker.partitions import UNKNOWN, Catalog, Topic
from tierlog.broker.protocol.entities import Entities, MadeElements, entities_of, field_of, topic_id_of, wire_id_of
from tierlog.remote.api import ZERO_UUID
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.waiting.loops import LoopFuture

Answer = TypeVar("Answer")


async def answer_to(ask: Callable[[Callable[[Answer], None]], object]) -> Answer:
    """Wait for the coordinator's answer to a question that takes a callback."""
    reply = LoopFuture[Answer]()
    ask(reply.give)
    return await reply.wait()


def asked_topic(catalog: Catalog, asked: Any) -> tuple[Topic | None, str]:
    """Return the topic of a request's entity, None if it is not served; and its name, "" for an unknown id."""
    if hasattr(asked, "name"):
        return catalog.find(asked.name), asked.name
    topic = catalog.find_by_id(topic_id_of(asked.topic_id))
    return topic, topic.name if topic is not None else ""


def not_served(asked: Any) -> ErrorCode:
    """Return the error code that answers a request for a topic that is not served."""
    return ErrorCode.unknown_topic_or_partition if hasattr(asked, "name") else ErrorCode.unknown_topic_id


def echoed(asked: Any) -> dict[str, Any]:
    """Return the fields that name a topic in the answer as the request did."""
    return {"name": asked.name} if hasattr(asked, "name") else {"topic_id": asked.topic_id}


def committed_for(topic: Topic | None, offset: CommittedOffset) -> bool:
    """Whether an offset is of the served topic, not of an older one with its name."""
    if topic is None or ZERO_UUID in (offset.topic_id, topic.topic_id):
        return True
    return offset.topic_id == topic.topic_id


_MILLISECOND: Final = timedelta(milliseconds=1)


class OffsetCommit:
    """A client has offsets stored; the answer comes when they are durable."""

    api_key: ClassVar[int] = 8
    versions: ClassVar[range] = range(2, 11)

    def __init__(self, coordinator: GroupCoordinator, catalog: Catalog, clock: Clock) -> None:
        self._coordinator = coordinator
        self._catalog = catalog
        self._clock = clock

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Answer a request."""
        now_ms = self._clock.time_ms()
        retention = field_of(request, "retention_time")
        retention_ms = UNKNOWN if retention is None else retention // _MILLISECOND
        expire_ms = None if retention_ms == UNKNOWN else now_ms + retention_ms
        # Of each topic: the error of each partition, or None where that of the whole commit counts.
        faults: list[list[ErrorCode | None]] = []
        offsets: list[tuple[str, int, CommittedOffset]] = []
        is_checked = False
        for asked in request.topics:
            topic, name = asked_topic(self._catalog, asked)
            is_denied = bool(name) and not context.may_read(name)
            served = frozenset(topic.partitions) if topic is not None else frozenset()
            of_topic: list[ErrorCode | None] = []
            for partition in asked.partitions:
                if is_denied:
                    of_topic.append(ErrorCode.topic_authorization_failed)
                    continue
                if topic is None or partition.partition_index not in served:
                    of_topic.append(not_served(asked) if topic is None else ErrorCode.unknown_topic_or_partition)
                    continue
                is_checked = True
                metadata = partition.committed_metadata or ""
                if self._coordinator.offsets.is_too_large(metadata):
                    of_topic.append(ErrorCode.offset_metadata_too_large)
                    continue
                of_topic.append(None)
                offset = CommittedOffset(
                    partition.committed_offset,
                    field_of(partition, "committed_leader_epoch", UNKNOWN),
                    metadata,
                    now_ms,
                    expire_ms,
                    topic.topic_id,
                )
                offsets.append((topic.name, partition.partition_index, offset))
            faults.append(of_topic)
        error = await self._commit(request, context, offsets) if is_checked else ErrorCode.none
        return self._answer(request, context, faults, error)

    async def _commit(
        self, request: Any, context: RequestContext, offsets: list[tuple[str, int, CommittedOffset]]
    ) -> ErrorCode:
        commit = CommitRequest(
            request.group_id,
            request.member_id,
            request.generation_id_or_member_epoch,
            field_of(request, "group_instance_id"),
            context.api_version,
            offsets,
        )
        return await answer_to(partial(self._coordinator.commit, commit))

    def _answer(
        self, request: Any, context: RequestContext, faults: list[list[ErrorCode | None]], error: ErrorCode
    ) -> Any:
        entities = entities_of(self.api_key, context.api_version)

        def told(fault: ErrorCode | None) -> ErrorCode:
            if fault is None:
                return error
            # A client that may not commit at all learns that first.
            is_second = fault is ErrorCode.offset_metadata_too_large and error is not ErrorCode.none
            return error if is_second else fault

        each_fault = iter(faults)

        def answered(asked: Any) -> Any:
            of_topic = iter(next(each_fault))
            return entities.make(
                "OffsetCommitResponseTopic",
                **echoed(asked),
                partitions=MadeElements(
                    asked.partitions,
                    lambda partition: entities.make(
                        "OffsetCommitResponsePartition",
                        partition_index=partition.partition_index,
                        error_code=told(next(of_topic)),
                    ),
                ),
            )

        return entities.response(topics=MadeElements(request.topics, answered))


class OffsetDelete:
    """An administrator deletes offsets of topics that the group does not read."""

    api_key: ClassVar[int] = 47
    versions: ClassVar[range] = range(1)

    def __init__(self, coordinator: GroupCoordinator, catalog: Catalog) -> None:
        self._coordinator = coordinator
        self._catalog = catalog

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Answer a request."""
        entities = entities_of(self.api_key, context.api_version)
        error, faults, gone = self._check(request, context)
        if error is ErrorCode.none and gone:
            error = await answer_to(partial(self._coordinator.offsets.delete, request.group_id, gone))
        if error is not ErrorCode.none:
            return entities.response(error_code=error, topics=())
        each_fault = iter(faults)
        topics = MadeElements(
            request.topics,
            lambda asked: entities.make(
                "OffsetDeleteResponseTopic",
                name=asked.name,
                partitions=MadeElements(
                    asked.partitions,
                    lambda partition: entities.make(
                        "OffsetDeleteResponsePartition",
                        partition_index=partition.partition_index,
                        error_code=next(each_fault),
                    ),
                ),
            ),
        )
        return entities.response(error_code=ErrorCode.none, topics=topics)

    def _check(self, request: Any, context: RequestContext) -> tuple[ErrorCode, list[ErrorCode], list[tuple[str, int]]]:
        """The error of the whole request, that of each partition in order, and the partitions without an error."""
        error = self._coordinator.delete_offsets_fault(request.group_id)
        group = self._coordinator.find(request.group_id)
        faults: list[ErrorCode] = []
        fine: list[tuple[str, int]] = []
        for asked in request.topics:
            topic = self._catalog.find(asked.name)
            served = frozenset(topic.partitions) if topic is not None else frozenset()
            is_denied = not context.may_read(asked.name)
            is_read = group is not None and group.is_subscribed(asked.name)
            for partition in asked.partitions:
                number = partition.partition_index
                if is_denied:
                    faults.append(ErrorCode.topic_authorization_failed)
                elif number not in served:
                    faults.append(ErrorCode.unknown_topic_or_partition)
                elif is_read:
                    faults.append(ErrorCode.group_subscribed_to_topic)
                else:
                    faults.append(ErrorCode.none)
                    fine.append((asked.name, number))
        return error, faults, fine


#: Versions that ask for several groups, and those that name topics by their ids.
_GROUPS_SINCE: Final = 8
_IDS_SINCE: Final = 10


class OffsetFetch:
    """A client asks where it was."""

    api_key: ClassVar[int] = 9
    versions: ClassVar[range] = range(1, 11)

    def __init__(self, coordinator: GroupCoordinator, catalog: Catalog) -> None:
        self._coordinator = coordinator
        self._catalog = catalog

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Answer a request. A request for stable offsets waits for pending commits. A group that is named twice is an
        error: each name may stand for all its offsets.
        """
        entities = entities_of(self.api_key, context.api_version)
        if context.api_version < _GROUPS_SINCE:
            topics = await self._fetch(entities, context, request, request)
            return entities.response(error_code=ErrorCode.none, topics=topics)
        groups: dict[str, Any] = {}
        for asked in request.groups:
            group_id, told = asked.group_id, {"error_code": ErrorCode.invalid_request, "topics": ()}
            if group_id not in groups:
                told = {
                    "error_code": ErrorCode.none,
                    "topics": await self._fetch(entities, context, request, asked),
                }
            groups[group_id] = entities.make("OffsetFetchResponseGroup", group_id=group_id, **told)
        return entities.response(groups=tuple(groups.values()))

    async def _fetch(self, entities: Entities, context: RequestContext, request: Any, asked: Any) -> MadeElements[Any]:
        """The topics of one group: those that are asked for, or all that it has offsets of."""
        if field_of(request, "require_stable", default=False):
            reply = LoopFuture[None]()
            self._coordinator.offsets.settle(asked.group_id, lambda: reply.give(None))
            await reply.wait()
        offsets = self._coordinator.offsets.of(asked.group_id)
        plural = "s" if context.api_version >= _GROUPS_SINCE else ""

        if asked.topics is None:
            topics = self._all(offsets, context)
        else:
            topics = [self._asked(topic, offsets, context) for topic in asked.topics]

        def answered(of_topic: _OfTopic) -> Any:
            fields, partitions = of_topic
            return entities.make(
                f"OffsetFetchResponseTopic{plural}",
                **fields,
                partitions=MadeElements(
                    partitions, lambda each: self._partition(entities, f"OffsetFetchResponsePartition{plural}", *each)
                ),
            )

        return MadeElements(topics, answered, nested=sum(len(partitions) for _, partitions in topics))

    def _asked(
        self, asked: Any, offsets: Mapping[tuple[str, int], CommittedOffset], context: RequestContext
    ) -> _OfTopic:
        topic, name = asked_topic(self._catalog, asked)
        error = ErrorCode.unknown_topic_id if topic is None and not name else ErrorCode.none
        if error is ErrorCode.none and not context.may_read(name):
            error = ErrorCode.topic_authorization_failed
        told: list[_OfPartition] = []
        for partition in asked.partition_indexes:
            offset = offsets.get((name, partition)) if error is ErrorCode.none else None
            is_its = offset is not None and committed_for(topic, offset)
            told.append((partition, offset if is_its else None, error))
        return echoed(asked), told

    def _all(self, offsets: Mapping[tuple[str, int], CommittedOffset], context: RequestContext) -> list[_OfTopic]:
        by_topic: dict[str, list[_OfPartition]] = {}
        for (name, partition), offset in sorted(offsets.items(), key=itemgetter(0)):
            if context.may_read(name) and committed_for(self._catalog.find(name), offset):
                by_topic.setdefault(name, []).append((partition, offset, ErrorCode.none))
        if context.api_version < _IDS_SINCE:
            return [({"name": name}, partitions) for name, partitions in by_topic.items()]
        found: list[_OfTopic] = []
        for name, partitions in by_topic.items():
            topic = self._catalog.find(name)
            wire_id = wire_id_of(topic.topic_id) if topic is not None else None
            if wire_id is not None:  # as in Kafka, topics without an id are left out
                found.append(({"topic_id": wire_id}, partitions))
        return found

    @staticmethod
    def _partition(
        entities: Entities, kind: str, partition: int, offset: CommittedOffset | None, error: ErrorCode
    ) -> Any:
        return entities.make(
            kind,
            partition_index=partition,
            committed_offset=UNKNOWN if offset is None else offset.committed_offset,
            committed_leader_epoch=UNKNOWN if offset is None else offset.leader_epoch,
            metadata="" if offset is None else offset.metadata,
            error_code=error,
        )


_OfPartition = tuple[int, CommittedOffset | None, ErrorCode]
#: The fields that name a topic, and its partitions.
_OfTopic = tuple[dict[str, Any], list[_OfPartition]]
