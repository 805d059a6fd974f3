"""ListOffsets: the offsets at the borders of partitions, and of times."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.apis.topic_answers import Question, answer_each, current_offsets
from tierlog.broker.handling import Answer, RequestContext
from tierlog.broker.partitions import UNKNOWN, Catalog, FoundOffset, OffsetSnapshot, Partition
from tierlog.broker.protocol.entities import MadeElements, entities_of, field_of

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

#: The first version of a request that may name them.
_SINCE_VERSION: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_READ_COMMITTED: Final = 1
_CONSUMER: Final = -1
#: Kafka's ``remote.list.offsets.request.timeout.ms``, and the most that a client may ask for.
_SECONDS_DEFAULT: Final = 30.0
_SECONDS_MAX: Final = 300.0
_NOTHING: Final = FoundOffset(UNKNOWN)


class ListOffsetsHandler:
    """The handler of ListOffsets.

    Nothing is local: the earliest local offset and the earliest that waits for its copy are the end of the tier.

    Args:
        catalog: The served topics.
    """

    api_key: ClassVar[int] = 2
    versions: ClassVar[range] = range(1, 12)

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """Answer each partition once, as Kafka: INVALID_REQUEST for a partition that was named twice."""
        entities = entities_of(self.api_key, context.api_version)
        # A follower or a debugger would see offsets above the high watermark: here are none.
        read_committed = request.replica_id == _CONSUMER and field_of(request, "isolation_level", 0) == _READ_COMMITTED
        asked, count = _asked(request, context)
        questions = _questions(asked, read_committed=read_committed)
        found = iter(await answer_each(self._catalog, questions, context, count=count, seconds=_seconds(request)))

        def answer(partition: tuple[int, Any]) -> Any:
            number, what = partition
            told = what if isinstance(what, ErrorCode) else next(found)
            error, offset = (told, _NOTHING) if isinstance(told, ErrorCode) else (ErrorCode.none, told)
            return entities.make(
                "ListOffsetsPartitionResponse",
                partition_index=number,
                error_code=error,
                timestamp=offset.timestamp_ms,
                offset=offset.offset,
                leader_epoch=offset.leader_epoch,
            )

        return entities.response(
            topics=MadeElements(
                asked.items(),
                lambda topic: entities.make(
                    "ListOffsetsTopicResponse", name=topic[0], partitions=MadeElements(topic[1].items(), answer)
                ),
                nested=sum(map(len, asked.values())),
            )
        )


#: The questions about partitions, by topic and number: an entity of the request, or an error where it is invalid.
_Asked = dict[str, dict[int, Any]]


def _asked(request: Any, context: RequestContext) -> tuple[_Asked, int]:
    """Return the questions, each partition once, and their number: the errors of invalid ones are known before any
    look-up.
    """
    asked: _Asked = {}
    count = 0
    api_version = context.api_version
    for topic in request.topics:
        if not topic.partitions:
            continue
        is_denied = not context.may_read(topic.name)
        partitions = asked.setdefault(topic.name, {})
        for partition in topic.partitions:
            number, timestamp = partition.partition_index, partition.timestamp
            if is_denied:
                partitions[number] = ErrorCode.topic_authorization_failed
            elif number in partitions:
                count -= not isinstance(partitions[number], ErrorCode)
                partitions[number] = ErrorCode.invalid_request
            elif timestamp < 0 and _SINCE_VERSION.get(timestamp, api_version + 1) > api_version:
                partitions[number] = ErrorCode.unsupported_version
            else:
                count += 1
                partitions[number] = partition
    return asked, count


def _questions(asked: _Asked, *, read_committed: bool) -> Iterator[Question]:
    for topic, partitions in asked.items():
        for number, what in partitions.items():
            if not isinstance(what, ErrorCode):
                yield Question(topic, number, partial(_find, what, read_committed=read_committed))


def _seconds(request: Any) -> float:
    timeout = field_of(request, "timeout", datetime.timedelta(0)).total_seconds()
    return min(timeout, _SECONDS_MAX) if timeout > 0 else _SECONDS_DEFAULT


async def _find(question: Any, partition: Partition, *, read_committed: bool) -> FoundOffset:
    """Ask one partition. Raises ApiError, and a Partition's errors."""
    offsets = await current_offsets(partition, field_of(question, "current_leader_epoch", UNKNOWN))
    end = offsets.end_offset(read_committed=read_committed)
    timestamp = question.timestamp
    if timestamp == LATEST:
        return FoundOffset(end, leader_epoch=offsets.leader_epoch)
    if timestamp == EARLIEST:
        start = offsets.log_start_offset
        return FoundOffset(start, leader_epoch=await partition.epoch_of(start))
    if timestamp in (EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD):
        return FoundOffset(offsets.high_watermark, leader_epoch=offsets.leader_epoch)
    found = await _find_inside(partition, offsets, timestamp, read_committed=read_committed)
    # As Kafka: an offset behind the last stable one is not found.
    return _NOTHING if found is None or found.offset >= end else found


async def _find_inside(
    partition: Partition, offsets: OffsetSnapshot, timestamp: int, *, read_committed: bool
) -> FoundOffset | None:
    """Find the offset of a record that is there."""
    if timestamp == MAX_TIMESTAMP:
        return await partition.find_max_timestamp()
    if timestamp == LATEST_TIERED:
        last = offsets.high_watermark - 1
        if last < offsets.log_start_offset:
            return None
        return FoundOffset(last, leader_epoch=await partition.epoch_of(last))
    return await partition.find_offset(timestamp, read_committed=read_committed)
