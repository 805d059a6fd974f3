"""What a client may ask before it has said who it is: Kafka's order of SASL."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.static.protocol import ResponsePayload

from tierlog.broker.protocol.api_errors import error_answer
from tierlog.broker.protocol.entities import entities_of
from tierlog.broker.protocol.requests import (
    RequestHeader,
    api_name,
    kafka_name,
    read_body,
    read_header,
)
from tierlog.broker.protocol.responses import encode_prefix, encode_response
from tierlog.broker.server.api_versions import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, ApiVersionsHandler
from tierlog.broker.server.refusals import RefusedError
from tierlog.broker.server.request_coding import RequestCoding
from tierlog.broker.server.security.reloaded_files import ReloadedFiles
from tierlog.broker.server.security.sasl_exchange import AuthenticationError, SaslExchange, begin_exchange
from tierlog.broker.server.security.users import Users
from tierlog.runtime.machine.randomness import Rng
from tierlog.runtime.waiting.loops import Worker

_LENGTH: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class SaslSetup:
    """What all clients of a listener have in common.

    Args:
        mechanisms: Those that are offered.
        users: Who there is, as the file has it now.
        worker: Checks passwords.
        api_versions: Answers ApiVersions.
    """

    mechanisms: tuple[str, ...]
    users: ReloadedFiles[Users]
    rng: Rng
    worker: Worker
    api_versions: ApiVersionsHandler


@dataclass(frozen=True, slots=True)
class SaslStep:
    """What one message of a client led to.

    Args:
        response: The bytes that answer it, their length included; b"" for none.
        principal: Who the client is, once it has proved it.
        failure: Why it is refused: the response is held back for a while, and the connection closed behind it.
    """

    response: bytes = b""
    principal: str | None = None
    failure: str | None = None


class _State(Enum):
    HANDSHAKE_OR_VERSIONS = auto()
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    OVER = auto()


class SaslAuthenticator:
    """The authentication of one client, as Kafka's SaslServerAuthenticator orders it.

    First ApiVersions, once and if the client likes; then SaslHandshake, which names a mechanism; then the messages of
    the mechanism: in SaslAuthenticate requests, or bare behind a handshake of version 0. A session has no end: nobody
    is asked again.
    """

    def __init__(self, setup: SaslSetup) -> None:
        self._setup = setup
        self._state = _State.HANDSHAKE_OR_VERSIONS
        self._exchange: SaslExchange | None = None
        self._has_headers = False
        self.mechanism = ""

    async def take(self, frame: memoryview, coding: RequestCoding) -> SaslStep:
        """Answer a message. ``coding`` is that of this request.

        Raises:
            MalformedRequestError: it is no request. RefusedError: it has no place here. In both cases the connection
            is to be closed.
        """
        if self._state is _State.OVER:
            raise RefusedError("authentication", "the authentication is over")
        if self._exchange is not None and not self._has_headers:
            return await self._take_token(self._exchange, bytes(frame))
        header = read_header(frame)
        if self._exchange is not None:
            if header.api_key != SASL_AUTHENTICATE:
                return await self._out_of_order(header, frame, coding)
            return await self._take_authenticate(self._exchange, header, frame)
        if header.api_key == API_VERSIONS:
            return self._take_versions(header, frame)
        if header.api_key == SASL_HANDSHAKE:
            return self._take_handshake(header, frame)
        self._state = _State.OVER
        return SaslStep(failure=f"{api_name(header.api_key)} was sent during the SASL handshake")

    def _take_versions(self, header: RequestHeader, frame: memoryview) -> SaslStep:
        if self._state is not _State.HANDSHAKE_OR_VERSIONS:
            raise RefusedError("authentication", "ApiVersions was sent twice during the SASL handshake")
        handler = self._setup.api_versions
        if header.api_version not in handler.versions:
            return SaslStep(encode_response(header, handler.answer_unsupported()))
        answer: Any = handler.answer(read_body(header, frame), header.api_version)
        if answer.error_code is ErrorCode.none:
            self._state = _State.HANDSHAKE
        return SaslStep(encode_response(header, answer))

    def _take_handshake(self, header: RequestHeader, frame: memoryview) -> SaslStep:
        setup = self._setup
        mechanism: str = read_body(header, frame).mechanism
        if mechanism not in setup.mechanisms:
            self._state = _State.OVER
            response = self._handshake_response(header, ErrorCode.unsupported_sasl_mechanism)
            return SaslStep(response, failure=f"the SASL mechanism {mechanism[:40]!r} is not offered")
        self.mechanism = mechanism
        self._has_headers = header.api_version >= 1
        self._exchange = begin_exchange(mechanism, setup.users.value, setup.rng, setup.worker)
        self._state = _State.AUTHENTICATE
        return SaslStep(self._handshake_response(header, ErrorCode.none))

    def _handshake_response(self, header: RequestHeader, error_code: ErrorCode) -> bytes:
        entities = entities_of(SASL_HANDSHAKE, header.api_version)
        mechanisms = self._setup.mechanisms
        return encode_response(
            header, entities.make("SaslHandshakeResponse", error_code=error_code, mechanisms=mechanisms)
        )

    async def _take_token(self, exchange: SaslExchange, token: bytes) -> SaslStep:
        try:
            answer = await exchange.evaluate(token)
        except AuthenticationError as error:
            self._state = _State.OVER
            return SaslStep(failure=str(error))
        return self._step(_LENGTH.pack(len(answer)) + answer, exchange)

    async def _take_authenticate(self, exchange: SaslExchange, header: RequestHeader, frame: memoryview) -> SaslStep:
        request = read_body(header, frame)
        try:
            answer = await exchange.evaluate(bytes(request.auth_bytes))
        except AuthenticationError as error:
            self._state = _State.OVER
            response = _authenticate_response(header, ErrorCode.sasl_authentication_failed, str(error), b"")
            return SaslStep(response, failure=str(error))
        return self._step(_authenticate_response(header, ErrorCode.none, None, answer), exchange)

    async def _out_of_order(self, header: RequestHeader, frame: memoryview, coding: RequestCoding) -> SaslStep:
        """Kafka answers any API that it knows, in all of its places for errors, and closes the connection."""
        self._state = _State.OVER
        text = f"Unexpected Kafka request of type {kafka_name(header.api_key)} during SASL authentication."
        if not self._setup.api_versions.has(header.api_key, header.api_version):
            if header.api_key != API_VERSIONS:
                raise RefusedError("authentication", text)
            answer = self._setup.api_versions.answer_error(0, ErrorCode.illegal_sasl_state)
            return SaslStep(encode_response(header, answer), failure=text)
        request = await coding.read(header, frame)
        answer = error_answer(
            request,
            ErrorCode.illegal_sasl_state,
            text=text,
            general_text="Request is not valid given the current SASL state.",
        )
        body = await coding.encode(answer)
        return SaslStep(encode_prefix(header, len(body)) + body, failure=text)

    def _step(self, response: bytes, exchange: SaslExchange) -> SaslStep:
        if exchange.user is None:
            return SaslStep(response)
        self._state = _State.OVER
        return SaslStep(response, principal=f"User:{exchange.user}")


def _authenticate_response(header: RequestHeader, code: ErrorCode, text: str | None, token: bytes) -> bytes:
    response: ResponsePayload = entities_of(SASL_AUTHENTICATE, header.api_version).make(
        "SaslAuthenticateResponse", error_code=code, error_message=text, auth_bytes=token
    )
    return encode_response(header, response)
