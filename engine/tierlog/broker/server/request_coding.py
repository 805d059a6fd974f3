"""A request's bytes to its entity, within the memory of all requests, and its answer to bytes.

What takes the event loop too long is done by a thread.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kio.static.protocol import ResponsePayload

from tierlog.broker.protocol.entities import LONG_ELEMENTS, count_elements
from tierlog.broker.protocol.requests import RequestBody, RequestHeader
from tierlog.broker.protocol.responses import encode_body
from tierlog.runtime.waiting.loops import Worker
from tierlog.runtime.waiting.side_by_side import give_way
from tierlog.serving.request_memory import RequestMemory


class RequestCoding:
    """Decodes one request and encodes its answer. It holds memory for the request until ``give_back`` is called.

    Args:
        memory: Of all requests.
        worker: One thread, for what takes the loop too long.
        client_host: Of the client.
    """

    __slots__ = ("_client_host", "_held_bytes", "_is_long", "_memory", "_worker")

    def __init__(self, memory: RequestMemory, worker: Worker, client_host: str) -> None:
        self._memory = memory
        self._worker = worker
        self._client_host = client_host
        self._held_bytes = 0
        self._is_long = False

    async def read(self, header: RequestHeader, frame: memoryview) -> Any:
        """Decode the body of the request, once there is memory for it.

        Raises:
            MalformedRequestError: kio has no such API and version, or the bytes are no such request.
        """
        body = RequestBody(header, frame)
        most_bytes = body.decoded_bytes
        if not self._memory.take_decoded(most_bytes):
            await self._memory.wait_decoded(self._client_host, most_bytes)
        self._held_bytes = most_bytes
        self._is_long = body.is_long
        request = body.read_regular()
        if request is None:
            request = await self._worker.run(body.read_slowly) if body.is_long else body.read_slowly()
            self._memory.shrink_decoded(most_bytes, body.decoded_bytes)
            self._held_bytes = body.decoded_bytes
        if body.is_long:
            await give_way()
        return request

    async def encode(self, payload: ResponsePayload) -> bytes:
        """Encode an answer, without its header. Raises as ``encode_body``."""
        if self._is_long or count_elements(payload) > LONG_ELEMENTS:
            return await self._worker.run(partial(encode_body, payload))
        return encode_body(payload)

    def give_back(self) -> None:
        """Give the memory back, as nobody has the request any more. Called once."""
        if self._held_bytes:
            self._memory.give_decoded(self._held_bytes)
