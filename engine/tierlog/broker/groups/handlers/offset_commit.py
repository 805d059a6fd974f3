"""OffsetCommit and OffsetDelete: offsets of partitions that are served."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.groups.committed_offsets import CommitRequest
from tierlog.broker.groups.coordinator import GroupCoordinator
from tierlog.broker.groups.handlers.membership_handlers import NO_THROTTLE
from tierlog.broker.groups.handlers.named_topics import asked_topic, echoed, not_served
from tierlog.broker.groups.stored_state import CommittedOffset
from tierlog.broker.handling import RequestContext
from tierlog.broker.partitions import UNKNOWN, Catalog
from tierlog.broker.protocol.entities import MadeElements, entities_of, field_of
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.waiting.loops import Reply

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
        reply = Reply[ErrorCode]()
        commit = CommitRequest(
            request.group_id,
            request.member_id,
            request.generation_id_or_member_epoch,
            field_of(request, "group_instance_id"),
            context.api_version,
            offsets,
        )
        self._coordinator.commit(commit, reply.give)
        return await reply.wait()

    def _answer(
        self, request: Any, context: RequestContext, faults: list[list[ErrorCode | None]], error: ErrorCode
    ) -> Any:
        make = entities_of(self.api_key, context.api_version).make

        def told(fault: ErrorCode | None) -> ErrorCode:
            if fault is None:
                return error
            # A client that may not commit at all learns that first.
            is_second = fault is ErrorCode.offset_metadata_too_large and error is not ErrorCode.none
            return error if is_second else fault

        each_fault = iter(faults)

        def answered(asked: Any) -> Any:
            of_topic = iter(next(each_fault))
            return make(
                "OffsetCommitResponseTopic",
                **echoed(asked),
                partitions=MadeElements(
                    asked.partitions,
                    lambda partition: make(
                        "OffsetCommitResponsePartition",
                        partition_index=partition.partition_index,
                        error_code=told(next(of_topic)),
                    ),
                ),
            )

        return make("OffsetCommitResponse", throttle_time=NO_THROTTLE, topics=MadeElements(request.topics, answered))


class OffsetDelete:
    """An administrator deletes offsets of topics that the group does not read."""

    api_key: ClassVar[int] = 47
    versions: ClassVar[range] = range(1)

    def __init__(self, coordinator: GroupCoordinator, catalog: Catalog) -> None:
        self._coordinator = coordinator
        self._catalog = catalog

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Answer a request."""
        make = entities_of(self.api_key, context.api_version).make
        error, faults, gone = self._check(request, context)
        if error is ErrorCode.none and gone:
            reply = Reply[ErrorCode]()
            self._coordinator.offsets.delete(request.group_id, gone, reply.give)
            error = await reply.wait()
        if error is not ErrorCode.none:
            return make("OffsetDeleteResponse", error_code=error, throttle_time=NO_THROTTLE, topics=())
        each_fault = iter(faults)
        topics = MadeElements(
            request.topics,
            lambda asked: make(
                "OffsetDeleteResponseTopic",
                name=asked.name,
                partitions=MadeElements(
                    asked.partitions,
                    lambda partition: make(
                        "OffsetDeleteResponsePartition",
                        partition_index=partition.partition_index,
                        error_code=next(each_fault),
                    ),
                ),
            ),
        )
        return make("OffsetDeleteResponse", error_code=ErrorCode.none, throttle_time=NO_THROTTLE, topics=topics)

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
