"""Decoding a request within the memory of all."""

from __future__ import annotations

from typing import Any, Final

from tierlog.broker.protocol.requests import RequestBody, RequestHeader
from tierlog.broker.server.request_memory import RequestMemory
from tierlog.runtime.waiting.side_by_side import LoopShare

#: Memory of some seven thousand elements.
_LONG_BYTES: Final = 4 << 20


class RequestReading:
    """Decodes one request, and holds memory for what that makes until ``give_back`` is called.

    Args:
        memory: Of all requests.
        client_host: Of the client.

    Attributes:
        is_long: Whether the end of the request, all at once, would hold the loop for a millisecond and more.
    """

    __slots__ = ("_client_host", "_held_bytes", "_memory", "is_long")

    def __init__(self, memory: RequestMemory, client_host: str) -> None:
        self._memory = memory
        self._client_host = client_host
        self._held_bytes = 0
        self.is_long = False

    async def read(self, header: RequestHeader, frame: memoryview, share: LoopShare) -> Any:
        """Decode the body of the request, once there is memory for it; others have the loop in between.

        Raises:
            MalformedRequestError: kio has no such API and version, or the bytes are no such request.
        """
        body = RequestBody(header, frame)
        most_bytes = body.decoded_bytes
        if not self._memory.take_decoded(most_bytes):
            await self._memory.wait_decoded(self._client_host, most_bytes)
        self._held_bytes = most_bytes
        request = body.read_regular()
        if request is None:
            request = await body.read_in_turns(share)
            self._memory.shrink_decoded(most_bytes, body.decoded_bytes)
            self._held_bytes = body.decoded_bytes
            self.is_long = body.decoded_bytes > _LONG_BYTES
        return request

    def give_back(self) -> None:
        """Give the memory back, as nobody has the request any more. Called once."""
        if self._held_bytes:
            self._memory.give_decoded(self._held_bytes)
