"""The requests of a front's clients: passed on to the broker of their connection, or answered by a handler."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map

from tierlog.broker.front.endpoints import (
    EndpointOf,
    EndpointWalker,
    edited,
    iter_endpoint_versions,
    passable_versions,
    walker_of,
)
from tierlog.broker.front.sasl_login import messages_of
from tierlog.broker.front.upstream_connection import UpstreamConnection
from tierlog.broker.handling import Handler, RequestCoding, RequestContext, UpstreamError, may_read_all
from tierlog.broker.protocol.api_errors import ApiError
from tierlog.broker.protocol.decoding import Cursor, MalformedRequestError
from tierlog.broker.protocol.entities import entities_of
from tierlog.broker.protocol.fetch_client import MalformedResponseError
from tierlog.broker.protocol.peer_answers import body_position, decode_answer
from tierlog.broker.protocol.requests import RequestHeader, api_name, read_body, read_header
from tierlog.broker.protocol.responses import encode_response
from tierlog.broker.server.api_versions import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tierlog.broker.server.request_answers import ANONYMOUS, answer_by
from tierlog.broker.server.server_metrics import ServerMetrics
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.waiting.loops import Worker
from tierlog.serving.admission import RequestMemory
from tierlog.serving.connection import Client
from tierlog.serving.outgoing import ReceivedFrame
from tierlog.serving.refusals import RefusedError
from tierlog.serving.response_writer import Reply

_PRODUCE: Final = 0
#: From this version on the name of a transaction comes before the acks of a Produce request.
_TRANSACTIONS: Final = 3
#: SaslHandshake 0 is followed by bare tokens, which no frame tells from requests.
_FRAMED_SASL: Final = 1
#: ApiVersions as kio has it.
_API_VERSIONS: Final = passable_versions(API_VERSIONS)
_VERSIONS_SECONDS: Final = 10.0
_OAUTHBEARER: Final = "OAUTHBEARER"
#: Kerberos names the broker's host in its ticket: here it would be another one's.
_NOT_RELAYED: Final = frozenset(("GSSAPI",))


@dataclass(slots=True)
class FrontClient(Client):
    """A client of a front.

    Attributes:
        advertised_host, advertised_port: Under which it is told of the front; the port is the one that it reached.
        upstream: Its own connection to a broker.
        needs_login: Whether it has to be authenticated yet, by the broker: until then nothing is answered but there.
        endpoint_of: What it is told of brokers.
    """

    advertised_host: str
    advertised_port: int
    upstream: UpstreamConnection
    endpoint_of: EndpointOf
    needs_login: bool
    _mechanism: str = ""
    _messages_left: int = 0
    _close: Callable[[], None] | None = None

    @property
    def is_trusted(self) -> bool:
        return not self.needs_login

    @property
    def is_read_out(self) -> bool:
        return self.upstream.is_passing

    def opened(self, close: Callable[[], None]) -> None:
        self._close = close

    def closed(self, left: Sequence[memoryview]) -> None:
        self._close = None
        self.upstream.finish(() if self.needs_login else _unanswered(left))

    def upstream_lost(self) -> None:
        """Close the connection as the broker has closed its own; a request under way ends by its own error."""
        if self._close is not None:
            self._close()

    def begin_login(self, mechanism: str) -> None:
        """Note that an exchange has begun."""
        self._mechanism = mechanism
        self._messages_left = messages_of(mechanism)

    def note_login(self, challenge: bytes) -> None:
        """Note that the broker answered a message of the exchange without an error. One with a challenge is no login by
        OAUTHBEARER: it says why the token does not count (RFC 7628), and the error comes with the next answer.
        """
        if self._mechanism == _OAUTHBEARER and challenge:
            return
        self._messages_left -= 1
        if self._messages_left <= 0:
            self.needs_login = False


class Relay:
    """Answers the requests of all connections.

    What a handler has versions of is the handler's; all else goes to the broker and comes back as bytes, the endpoints
    in it changed. A client that the broker has not authenticated gets to no handler.

    Args:
        handlers: Of the APIs that are not the broker's alone; one each.
        memory: Of all requests.
    """

    def __init__(
        self, handlers: Iterable[Handler], *, clock: Clock, memory: RequestMemory, metrics: ServerMetrics
    ) -> None:
        self._handlers = {handler.api_key: handler for handler in handlers}
        self._clock = clock
        self._memory = memory
        self._metrics = metrics
        #: Of a running server: the thread for long requests and answers.
        self.worker: Worker | None = None

    def iter_loads(self) -> Iterator[Callable[[], object]]:
        """Yield calls that load what answering needs, what clients ask first at the front: the newest version of each
        API, those with endpoints, and the handlers' own.
        """
        yield from (partial(load_response_schema, API_VERSIONS, version) for version in reversed(_API_VERSIONS))
        for api_key in sorted(api_key_map):
            if (passable := passable_versions(api_key)) and api_key not in self._handlers:
                yield partial(load_request_schema, api_key, passable[-1])
        for api_key, version in reversed(tuple(iter_endpoint_versions())):
            if api_key not in self._handlers:
                yield partial(load_request_schema, api_key, version)
                yield partial(walker_of, api_key, version)
        for handler in self._handlers.values():
            for version in reversed(handler.versions):
                yield partial(load_request_schema, handler.api_key, version)
                yield partial(entities_of, handler.api_key, version)

    async def answer(self, client: FrontClient, frame: memoryview) -> Reply | None:
        """Return the reply to a request; None if the client expects none.

        Raises:
            RefusedError: the connection is to be closed. Else a handler's unexpected errors.
        """
        try:
            return await self._answer(client, read_header(frame), frame)
        except MalformedRequestError as error:
            raise RefusedError("malformed", str(error)) from error
        except ApiError as error:
            raise RefusedError("api_error", f"{error.code.name}: {error.text}") from error
        except (UpstreamError, MalformedResponseError) as error:
            client.upstream.close()
            raise RefusedError("upstream", str(error)) from error

    async def _answer(self, client: FrontClient, header: RequestHeader, frame: memoryview) -> Reply | None:
        api_key, version = header.api_key, header.api_version
        handler = self._handlers.get(api_key)
        if handler is not None and not client.needs_login:
            if version in handler.versions:
                return await self._handled(handler, client, header, frame)
        elif api_key == API_VERSIONS:
            if version in _API_VERSIONS:
                return await self._api_versions(client, header, frame)
            return _version_error(header)
        elif version in passable_versions(api_key):
            if api_key == SASL_HANDSHAKE:
                return await self._handshake(client, header, frame)
            return await self._counted(client, header, frame)
        raise RefusedError("unsupported", f"{api_name(api_key)} {version} is not served")

    async def _handled(
        self, handler: Handler, client: FrontClient, header: RequestHeader, frame: memoryview
    ) -> Reply | None:
        assert self.worker is not None
        coding = RequestCoding(self._memory, self.worker, client.host)
        upstream = client.upstream
        upstream.client_id = header.client_id
        try:
            await upstream.learn_versions(seconds=_VERSIONS_SECONDS)
            context = RequestContext(
                header.api_version,
                header.client_id,
                ANONYMOUS,
                client.host,
                client.connection_id,
                client.advertised_host,
                client.advertised_port,
                may_read_all,
                coding.encode,
                upstream,
                client.endpoint_of,
            )
            return await answer_by(
                handler, header, frame, coding=coding, context=context, metrics=self._metrics, clock=self._clock
            )
        finally:
            coding.give_back()

    async def _counted(self, client: FrontClient, header: RequestHeader, frame: memoryview) -> Reply | None:
        """Pass a request on and its answer back."""
        api = self._metrics.api(header.api_key)
        api.at_work += 1
        began = self._clock.monotonic_seconds()
        reply: Reply | None = None
        try:
            reply = await self._relayed(client, header, frame)
        finally:
            sent_bytes = 0 if reply is None else reply.size_bytes
            api.at_work -= 1
            api.count(len(frame), sent_bytes, self._clock.monotonic_seconds() - began)
            self._metrics.count_client(header.client_id, len(frame), sent_bytes)
        return reply

    async def _relayed(self, client: FrontClient, header: RequestHeader, frame: memoryview) -> Reply | None:
        if header.api_key == _PRODUCE and not _acks(header, frame):
            await client.upstream.pass_on(frame)
            return None
        answer = await client.upstream.relay(header, frame)
        try:
            if header.api_key == SASL_AUTHENTICATE and _error_code(header, answer) == ErrorCode.none.value:
                position = body_position(SASL_AUTHENTICATE, header.api_version, answer.data)
                told = decode_answer(SASL_AUTHENTICATE, header.api_version, answer.data, position)
                client.note_login(bytes(told.auth_bytes))
            walker = walker_of(header.api_key, header.api_version)
            return _reply(answer) if walker is None else _edited(walker, client, header, answer)
        except BaseException:
            answer.release()
            raise

    async def _handshake(self, client: FrontClient, header: RequestHeader, frame: memoryview) -> Reply | None:
        """Pass on the choice of a mechanism; what cannot be relayed is refused as a broker without it does."""
        if header.api_version < _FRAMED_SASL:
            raise RefusedError("unsupported", "SaslHandshake 0, with bare tokens behind it, is not relayed")
        mechanism: str = read_body(header, frame).mechanism
        if mechanism in _NOT_RELAYED:
            refusal = entities_of(SASL_HANDSHAKE, header.api_version).response(
                error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=()
            )
            response = encode_response(header, refusal)
            return Reply((response,), len(response), is_last=True)
        client.begin_login(mechanism)
        return await self._counted(client, header, frame)

    async def _api_versions(self, client: FrontClient, header: RequestHeader, frame: memoryview) -> Reply:
        """Answer the broker's versions, without those whose answers nobody here can read."""
        answer = await client.upstream.relay(header, frame)
        try:
            position = body_position(API_VERSIONS, header.api_version, answer.data)
            version = header.api_version
            if _error_code(header, answer) == ErrorCode.unsupported_version.value:
                version = 0  # as all brokers have it, with the versions of this API
            entity = decode_answer(API_VERSIONS, version, answer.data, position)
        finally:
            answer.release()
        if entity.error_code is ErrorCode.none:
            client.upstream.note_versions(entity)
        cut = dataclasses.replace(entity, api_keys=tuple(self._cut(entity.api_keys)))
        response = encode_response(header, cut)
        return Reply((response,), len(response))

    def _cut(self, found: Iterable[Any]) -> Iterable[Any]:
        for each in found:
            passable = self._versions(each.api_key)
            first, last = max(each.min_version, passable.start), min(each.max_version, passable.stop - 1)
            if first <= last:
                yield dataclasses.replace(each, min_version=first, max_version=last)

    def _versions(self, api_key: int) -> range:
        handler = self._handlers.get(api_key)
        if handler is not None:
            return handler.versions
        passable = passable_versions(api_key)
        return range(_FRAMED_SASL, passable.stop) if api_key == SASL_HANDSHAKE else passable


def _unanswered(frames: Sequence[memoryview]) -> list[memoryview]:
    """Return the requests that no answer is expected of, up to the first other one: what a broker does with them is
    what counts for a client that has sent them, and has gone.
    """
    found: list[memoryview] = []
    with contextlib.suppress(MalformedRequestError):
        for frame in frames:
            header = read_header(frame)
            if header.api_key != _PRODUCE or _acks(header, frame):
                break
            found.append(frame)
    return found


def _acks(header: RequestHeader, frame: memoryview) -> int:
    """Return the acknowledgements that a Produce request asks for; without any it is not answered."""
    cursor = Cursor(frame, header.body_position)
    if header.api_version >= _TRANSACTIONS:
        flexible = load_response_schema(_PRODUCE, header.api_version).__flexible__
        size_bytes = cursor.unsigned_varint() - 1 if flexible else int.from_bytes(cursor.take(2), "big", signed=True)
        cursor.take(max(size_bytes, 0))
    return int.from_bytes(cursor.take(2), "big", signed=True)


def _error_code(header: RequestHeader, answer: ReceivedFrame) -> int:
    """Return the error code that an answer begins with."""
    position = body_position(header.api_key, header.api_version, answer.data)
    return int.from_bytes(answer.data[position : position + 2], "big", signed=True)


def _reply(answer: ReceivedFrame) -> Reply:
    return Reply((answer.data,), len(answer.data), answer.release)


def _edited(walker: EndpointWalker, client: FrontClient, header: RequestHeader, answer: ReceivedFrame) -> Reply:
    position = body_position(header.api_key, header.api_version, answer.data)
    edits = walker.edits(answer.data, position, client.endpoint_of)
    if not edits:
        return _reply(answer)
    buffers, size_bytes = edited(answer.data, edits)
    return Reply(buffers, size_bytes, answer.release)


def _version_error(header: RequestHeader) -> Reply:
    """Answer a version of ApiVersions that is not known here, so that the client can ask again."""
    entities = entities_of(API_VERSIONS, 0)
    own = entities.make("ApiVersion", api_key=API_VERSIONS, min_version=0, max_version=_API_VERSIONS.stop - 1)
    response = encode_response(header, entities.response(error_code=ErrorCode.unsupported_version, api_keys=(own,)))
    return Reply((response,), len(response))
