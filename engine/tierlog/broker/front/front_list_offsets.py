"""ListOffsets in front of a cluster: a time that lies in the tier is looked up there, all else is the broker's.

A search by time is what costs a broker most: it fetches the indexes of remote segments, one after another.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.apis.topic_answers import CONCURRENCY
from tierlog.broker.front.front_metrics import FrontCounts
from tierlog.broker.front.source_choice import Wish
from tierlog.broker.front.tier_choices import TierChoice, TierChoices
from tierlog.broker.front.upstream_questions import LIST_OFFSETS, NamedPartition, decode_reply
from tierlog.broker.handling import Answer, RequestContext, UpstreamError
from tierlog.broker.partitions import UNKNOWN, FoundOffset, ToldErrors
from tierlog.broker.protocol.entities import entities_of, field_of
from tierlog.broker.protocol.peer_answers import encode_request_body
from tierlog.runtime.machine.clock import Timers
from tierlog.runtime.waiting.side_by_side import run_each

_TOLD: Final = ToldErrors(logging.getLogger(__name__))
_CONSUMER: Final = -1
_READ_COMMITTED: Final = 1
#: How long the tier is searched before the broker is asked instead.
_SEARCH_SECONDS: Final = 10.0


class FrontListOffsetsHandler:
    """The handler of ListOffsets in front of a cluster. Used on the event loop alone.

    Args:
        choices: Of the tier's partitions.
        timers: Of the event loop.
        counts: Where lookups are counted.
    """

    api_key: ClassVar[int] = LIST_OFFSETS
    versions: ClassVar[range] = range(1, 12)

    def __init__(self, choices: TierChoices, *, timers: Timers, counts: FrontCounts) -> None:
        self._choices = choices
        self._timers = timers
        self._counts = counts

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """Answer what the tier knows, and ask the broker for the rest, in one request."""
        upstream = context.upstream
        if upstream is None:
            raise UpstreamError("the client has no connection to a broker")
        found = await self._find(request, context)
        if not found:
            return await upstream.ask(self.api_key, context.api_version, encode_request_body(request))
        left = _without(request, found)
        told: dict[NamedPartition, Any] = {}
        values: dict[str, Any] = {}
        if left.topics:
            reply = await upstream.ask(self.api_key, context.api_version, encode_request_body(left))
            try:
                answer = decode_reply(self.api_key, context.api_version, reply)
            finally:
                reply.release()
            told = {(topic.name, one.partition_index): one for topic in answer.topics for one in topic.partitions}
            if hasattr(answer, "throttle_time"):
                values["throttle_time"] = answer.throttle_time
        return self._response(request, context, found, told, values)

    async def _find(self, request: Any, context: RequestContext) -> dict[NamedPartition, FoundOffset]:
        """Find the offsets of times that lie in the tier."""
        read_committed = field_of(request, "isolation_level", 0) == _READ_COMMITTED
        asked: dict[NamedPartition, Any] = {}
        twice: set[NamedPartition] = set()
        for topic in request.topics:
            for one in topic.partitions:
                key = (topic.name, one.partition_index)
                if key in asked:
                    twice.add(key)  # an error, which is the broker's to tell
                asked[key] = one
        if request.replica_id != _CONSUMER or twice:
            return {}
        times = {key: one.timestamp for key, one in asked.items() if one.timestamp >= 0}
        wishes = {
            key: Wish(
                0,
                field_of(asked[key], "current_leader_epoch", UNKNOWN),
                is_read_committed=read_committed,
                is_search=True,
            )
            for key in times
        }
        chosen = await self._choices.choose(wishes, context) if wishes else {}
        if not chosen:
            return {}
        calls = [self._search(key, choice, times[key], read_committed=read_committed) for key, choice in chosen.items()]
        results = await run_each(
            calls, count=len(calls), limit=CONCURRENCY, seconds=_SEARCH_SECONDS, timers=self._timers
        )
        found = {key: result for key, result in zip(chosen, results, strict=True) if result is not None}
        self._counts.tier_lookups += len(found)
        return found

    def _search(
        self, key: NamedPartition, choice: TierChoice, timestamp_ms: int, *, read_committed: bool
    ) -> Callable[[], Coroutine[Any, Any, FoundOffset | None]]:
        """Make a search in the tier. It finds nothing where the broker is to answer."""

        async def search() -> FoundOffset | None:
            partition, seam, log_start = choice.partition, choice.seam, choice.state.log_start_offset
            try:
                found = await partition.find_offset(timestamp_ms, read_committed=read_committed)
            except Exception as error:  # noqa: BLE001 - it is logged, and the broker searches instead
                _TOLD.tell(*key, error)
                return None
            offsets = partition.offsets
            if found is None or offsets is None or offsets.log_start_offset > log_start:
                return None  # it may lie behind the tier, or in front of it
            is_same = (offsets.high_watermark, offsets.leader_epoch) == (seam.end_offset, seam.leader_epoch)
            return found if is_same and found.offset >= log_start else None

        return search

    def _response(
        self,
        request: Any,
        context: RequestContext,
        found: Mapping[NamedPartition, FoundOffset],
        told: Mapping[NamedPartition, Any],
        values: Mapping[str, Any],
    ) -> Answer:
        """Put the answers together, in the order of the request."""
        entities = entities_of(self.api_key, context.api_version)

        def answer(topic: str, number: int) -> Any:
            key = (topic, number)
            if key not in found:
                return told.get(key)
            offset = found[key]
            return entities.make(
                "ListOffsetsPartitionResponse",
                partition_index=number,
                error_code=ErrorCode.none,
                timestamp=offset.timestamp_ms,
                offset=offset.offset,
                leader_epoch=offset.leader_epoch,
            )

        topics = []
        for topic in request.topics:
            answers = (answer(topic.name, one.partition_index) for one in topic.partitions)
            partitions = tuple(one for one in answers if one is not None)
            topics.append(entities.make("ListOffsetsTopicResponse", name=topic.name, partitions=partitions))
        return entities.response(topics=tuple(topics), **values)


def _without(request: Any, found: Mapping[NamedPartition, FoundOffset]) -> Any:
    """Return a request without the partitions that are answered."""
    topics = []
    for topic in request.topics:
        left = tuple(one for one in topic.partitions if (topic.name, one.partition_index) not in found)
        if left:
            topics.append(dataclasses.replace(topic, partitions=left))
    return dataclasses.replace(request, topics=tuple(topics))
