"""One request: its bytes to an entity and its answer to bytes, where it came from, and the handler of its API."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from kio.static.protocol import ResponsePayload

from tierlog.broker.protocol.entities import LONG_ELEMENTS, count_elements
from tierlog.broker.protocol.requests import RequestBody, RequestHeader
from tierlog.broker.protocol.responses import encode_body
from tierlog.errors import TierlogError
from tierlog.runtime.waiting.loops import Worker
from tierlog.runtime.waiting.side_by_side import give_way
from tierlog.serving.admission import RequestMemory
from tierlog.serving.response_writer import Reply


def may_read_all(_topic: str) -> bool:
    """Allow all topics, on a server without access control."""
    return True


def as_named(_node_id: int, host: str, port: int) -> tuple[str, int]:
    """Name a broker by its own address, on a server that stands in front of none."""
    return host, port


async def encode_here(payload: ResponsePayload) -> bytes:
    """Encode an answer on the loop, however long it is."""
    return encode_body(payload)


class RequestCoding:
    """The decoding of one request and the encoding of its answer. It holds memory for the request until ``give_back``
    is called.

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
        """Release the memory, as the request is dropped. Called once."""
        if self._held_bytes:
            self._memory.give_decoded(self._held_bytes)


class UpstreamError(TierlogError):
    """A broker in front of which the server stands does not answer, or its connection has ended."""

    retriable = True


class Upstream(Protocol):
    """A client's own connection to a broker, on a server in front of a cluster. Used on the event loop alone."""

    @property
    def versions(self) -> Mapping[int, range]:
        """The versions that the broker has, by API."""

    @property
    def is_busy(self) -> bool:
        """Whether a question is under way: another one waits for its answer."""

    async def ask(self, api_key: int, api_version: int, body: bytes) -> Reply:
        """Ask the broker, in the client's name, behind the questions under way.

        Args:
            api_key: Of the request.
            api_version: Of the request and of its answer.
            body: Of the request, behind its header.

        Returns:
            The response behind its header, one buffer of bytes; ``release`` frees the memory that it was granted.

        Raises:
            UpstreamError: the connection has ended, or there was no answer in time; the client's is to be closed.

        A task that is cancelled here leaves the connection in order: the answer is dropped when it comes.
        """


class RequestContext(NamedTuple):
    """The context of a request.

    Args:
        api_version: Of the request and of its response.
        client_id: As the client calls itself; "" if it does not.
        principal: The client's: ``User:name`` after SASL, else ``User:ANONYMOUS``.
        client_host: The client's address.
        connection_id: Of the connection, unique while the server runs.
        advertised_host, advertised_port: Under which this server is reached by this client, for answers that name it.
        may_read: Whether the client may read the topic of a name, there or not, at the time of the call. For any other,
            an API answers TOPIC_AUTHORIZATION_FAILED where it was named, and leaves it out where it was not.
        encode: Encodes an answer that the handler caches, without its header; a long one in a thread.
        upstream: The client's own connection to a broker; None on a server that stands in front of none.
        endpoint_of: (node id, host, port) of a broker, as upstream names it -> (host, port) that the client is told.
    """

    api_version: int
    client_id: str
    principal: str
    client_host: str
    connection_id: int
    advertised_host: str
    advertised_port: int
    may_read: Callable[[str], bool] = may_read_all
    encode: Callable[[ResponsePayload], Coroutine[Any, Any, bytes]] = encode_here
    upstream: Upstream | None = None
    endpoint_of: Callable[[int, str, int], tuple[str, int]] = as_named


#: A payload of kio's; the bytes of a response behind its header, which the server writes as they are; None where the
#: client expects no answer (Produce with acks=0).
Answer = ResponsePayload | Reply | None


class Handler(Protocol):
    """Answers one API, at all versions of it that are served."""

    @property
    def api_key(self) -> int:
        """Kafka's number of the API."""

    @property
    def versions(self) -> range:
        """The versions that are answered, without a hole."""

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """Answer a request: the entity of kio's module for the API and ``context.api_version``.

        What went wrong is in the answer's error codes where the API has them; an ApiError that is raised ends the
        connection, any other exception too (and it is logged): no answer can be made of those.

        A server cancels the call when the client has gone.
        """
