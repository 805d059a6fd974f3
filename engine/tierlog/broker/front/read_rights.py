"""The topics that clients may read, as their brokers say: asked on each client's own connection."""

from __future__ import annotations

import weakref
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from tierlog.broker.front.upstream_questions import decode_reply
from tierlog.broker.handling import RequestContext, Upstream
from tierlog.broker.protocol.entities import request_entities_of
from tierlog.broker.protocol.peer_answers import encode_request_body
from tierlog.runtime.machine.clock import Timers

_METADATA: Final = 3
#: With a topic's authorized operations, and names for topics.
_VERSIONS: Final = range(8, 14)
#: Of ``topic_authorized_operations``: the bit of Kafka's AclOperation READ, and that they were not told.
_READ: Final = 1 << 3
_NOT_TOLD: Final = -(1 << 31)
#: Topics of one connection that are remembered.
_TOPICS_MAX: Final = 10_000


class _Right(NamedTuple):
    """Whether a topic may be read, as of a time of the loop's clock."""

    may_read: bool
    asked_at_seconds: float


class ReadRights:
    """The rights of all clients, each on its own connection. Used on the event loop alone.

    Args:
        timers: Of the event loop.
        refresh_seconds: How long an answer counts.
    """

    def __init__(self, timers: Timers, *, refresh_seconds: float) -> None:
        self._timers = timers
        self._refresh_seconds = refresh_seconds
        self._rights: weakref.WeakKeyDictionary[Upstream, dict[str, _Right]] = weakref.WeakKeyDictionary()

    async def readable(self, context: RequestContext, topics: AbstractSet[str]) -> AbstractSet[str]:
        """Return those of some topics that a client may read now, as its broker said no longer ago than the refresh.

        A connection with a question under way, which may last, is not waited for: nothing new is readable then.

        Raises:
            UpstreamError: the client's connection to its broker has ended.
        """
        upstream = context.upstream
        if upstream is None:
            return frozenset()
        rights = self._rights.setdefault(upstream, {})
        oldest = self._timers.monotonic_seconds() - self._refresh_seconds
        missing = {topic for topic in topics if topic not in rights or rights[topic].asked_at_seconds < oldest}
        if missing and not upstream.is_busy:
            if len(rights) + len(missing) > _TOPICS_MAX:
                rights.clear()
                missing = set(topics)
            await self._ask(upstream, missing, rights)
        return {topic for topic in topics if topic in rights and _counts(rights[topic], oldest)}

    async def _ask(self, upstream: Upstream, topics: AbstractSet[str], rights: dict[str, _Right]) -> None:
        known = upstream.versions.get(_METADATA, range(0))
        version = min(known.stop, _VERSIONS.stop) - 1
        if version < max(known.start, _VERSIONS.start):
            return  # nothing tells: nothing is readable
        entities = request_entities_of(_METADATA, version)
        request = entities.request(
            topics=tuple(entities.make("MetadataRequestTopic", topic_id=None, name=name) for name in sorted(topics)),
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=True,
        )
        now = self._timers.monotonic_seconds()
        reply = await upstream.ask(_METADATA, version, encode_request_body(request))
        try:
            answer = decode_reply(_METADATA, version, reply)
        finally:
            reply.release()
        for topic in topics:
            rights[topic] = _Right(may_read=False, asked_at_seconds=now)
        for told in answer.topics:
            operations = told.topic_authorized_operations
            if told.name in topics and told.error_code is ErrorCode.none and operations != _NOT_TOLD:
                rights[told.name] = _Right(bool(operations & _READ), now)


def _counts(right: _Right, oldest_seconds: float) -> bool:
    return right.may_read and right.asked_at_seconds >= oldest_seconds
