"""How an API is answered: what a server hands to a handler, and what it takes from it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol

from kio.static.protocol import ResponsePayload
from typing_extensions import Buffer

from tierlog.broker.protocol.responses import encode_body
from tierlog.serving.response_writer import FilePart


def may_read_all(_topic: str) -> bool:
    """Of a server that keeps no topic from anybody."""
    return True


async def encode_here(payload: ResponsePayload) -> bytes:
    """Encode an answer on the loop, however long it is."""
    return encode_body(payload)


def _nothing() -> None:
    """Release a body that holds nothing."""


class RequestContext(NamedTuple):
    """Where a request came from.

    Args:
        api_version: Of the request and of its response.
        client_id: As the client calls itself; "" if it does not.
        principal: Who the client is: ``User:name`` after SASL, else ``User:ANONYMOUS``.
        client_host: The client's address.
        connection_id: Of the connection, unique while the server runs.
        advertised_host, advertised_port: Under which this server is reached by this client, for answers that name it.
        may_read: Whether the client may read the topic of a name, there or not, at the time of the call. Of one that it
            may not, an API tells TOPIC_AUTHORIZATION_FAILED where it was named, and nothing where it was not.
        encode: Encodes an answer that the handler caches, without its header; a long one in a thread.
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


class EncodedBody(NamedTuple):
    """The bytes of a response behind its header, which the server writes as they are.

    Args:
        buffers: In order, never joined; parts of files among them. They stay as they are until ``release`` is called.
        size_bytes: Of all of them.
        release: Called once, when the bytes are out or the connection is gone.
    """

    buffers: Sequence[Buffer | FilePart]
    size_bytes: int
    release: Callable[[], None] = _nothing


#: A payload of kio's, bytes, or None: the client expects no answer (Produce with acks=0).
Answer = ResponsePayload | EncodedBody | None


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
