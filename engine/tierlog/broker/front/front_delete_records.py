"""DeleteRecords in front of a cluster: the broker's answer moves the log start at once."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.front.upstream_partitions import UpstreamPartitions
from tierlog.broker.front.upstream_questions import decode_reply
from tierlog.broker.handling import Answer, RequestContext, UpstreamError
from tierlog.broker.protocol.peer_answers import encode_request_body

_DELETE_RECORDS: Final = 21


class FrontDeleteRecordsHandler:
    """The handler of DeleteRecords in front of a cluster, which passes it on. Used on the event loop alone.

    Args:
        states: Of upstream's partitions.
    """

    api_key: ClassVar[int] = _DELETE_RECORDS
    versions: ClassVar[range] = range(3)

    def __init__(self, states: UpstreamPartitions) -> None:
        self._states = states

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """Answer what the broker answers; a fetch that begins behind it gets no deleted record."""
        if context.upstream is None:
            raise UpstreamError("the client has no connection to a broker")
        reply = await context.upstream.ask(self.api_key, context.api_version, encode_request_body(request))
        try:
            answer = decode_reply(self.api_key, context.api_version, reply)
        except BaseException:
            reply.release()
            raise
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code is ErrorCode.none:
                    self._states.move_log_start((topic.name, one.partition_index), one.low_watermark)
        return reply
