"""OffsetForLeaderEpoch: where epochs end, for clients that look for truncation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.apis.topic_answers import Question, answer_each, current_offsets
from tierlog.broker.handling import Answer, RequestContext
from tierlog.broker.partitions import UNKNOWN, Catalog, EpochEndOffset, Partition
from tierlog.broker.protocol.entities import Entities, MadeElements, entities_of, field_of

_SECONDS: Final = 30.0


class OffsetForLeaderEpochHandler:
    """The handler of OffsetForLeaderEpoch, in the order of the request.

    Args:
        catalog: The served topics.
    """

    api_key: ClassVar[int] = 23
    versions: ClassVar[range] = range(2, 5)

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """Answer each named partition."""
        entities = entities_of(self.api_key, context.api_version)
        count = sum(len(topic.partitions) for topic in request.topics)
        found = iter(await answer_each(self._catalog, _questions(request), context, count=count, seconds=_SECONDS))
        return entities.response(
            topics=MadeElements(
                request.topics,
                lambda topic: entities.make(
                    "OffsetForLeaderTopicResult",
                    topic=topic.topic,
                    partitions=MadeElements(
                        topic.partitions, lambda question: _answer(entities, question.partition, next(found))
                    ),
                ),
                nested=count,
            )
        )


def _questions(request: Any) -> Iterator[Question]:
    for topic in request.topics:
        for question in topic.partitions:
            yield Question(topic.topic, question.partition, partial(_end_of_epoch, question))


async def _end_of_epoch(question: Any, partition: Partition) -> EpochEndOffset:
    await current_offsets(partition, field_of(question, "current_leader_epoch", UNKNOWN))
    return await partition.end_offset_for_epoch(question.leader_epoch)


def _answer(entities: Entities, partition: int, found: EpochEndOffset | ErrorCode) -> Any:
    if isinstance(found, ErrorCode):
        return entities.make("EpochEndOffset", error_code=found, partition=partition)
    return entities.make(
        "EpochEndOffset",
        error_code=ErrorCode.none,
        partition=partition,
        leader_epoch=found.leader_epoch,
        end_offset=found.end_offset,
    )
