"""OffsetFetch: the offsets that were committed for one group, or for several."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.groups.coordinator import GroupCoordinator
from tierlog.broker.groups.handlers.membership_handlers import NO_THROTTLE
from tierlog.broker.groups.handlers.named_topics import asked_topic, committed_for, echoed
from tierlog.broker.groups.stored_state import CommittedOffset
from tierlog.broker.handling import RequestContext
from tierlog.broker.partitions import UNKNOWN, Catalog
from tierlog.broker.protocol.entities import Entities, MadeElements, entities_of, field_of, wire_id_of
from tierlog.runtime.waiting.loops import Reply

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
        """Answer a request. One that wants stable offsets waits for the commits that are on their way."""
        entities = entities_of(self.api_key, context.api_version)
        if context.api_version < _GROUPS_SINCE:
            topics = await self._fetch(entities, context, request, request)
            return entities.make(
                "OffsetFetchResponse", throttle_time=NO_THROTTLE, error_code=ErrorCode.none, topics=topics
            )
        groups = [
            entities.make(
                "OffsetFetchResponseGroup",
                group_id=asked.group_id,
                topics=await self._fetch(entities, context, request, asked),
                error_code=ErrorCode.none,
            )
            for asked in request.groups
        ]
        return entities.make("OffsetFetchResponse", throttle_time=NO_THROTTLE, groups=tuple(groups))

    async def _fetch(self, entities: Entities, context: RequestContext, request: Any, asked: Any) -> MadeElements[Any]:
        """The topics of one group: those that are asked for, or all that it has offsets of."""
        if field_of(request, "require_stable", default=False):
            reply = Reply[None]()
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
            if wire_id is not None:  # as Kafka, nothing is said of what has no id
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
