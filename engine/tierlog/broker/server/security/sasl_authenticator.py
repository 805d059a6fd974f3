"""The requests of a client before it is authenticated: Kafka's order of SASL, and the messages of its mechanisms."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.static.protocol import ResponsePayload

from tierlog.broker.handling import RequestCoding
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
from tierlog.broker.server.security.users import ScramCredential, Users
from tierlog.errors import TierlogError
from tierlog.runtime.machine.randomness import Rng
from tierlog.runtime.waiting.loops import Worker
from tierlog.serving.refusals import RefusedError
from tierlog.serving.reloaded_files import ReloadedFiles

_LENGTH: Final = struct.Struct(">i")
#: What Kafka 4 refuses too; earlier brokers let it pass.
_DOUBLED_NONCE: Final = (
    "Authentication failed: the client sends its SCRAM nonce twice, as librdkafka does before 2.6.1 (Debian's kcat has"
    " 2.0.2). Use a newer one, or SASL/PLAIN over TLS"
)
#: RFC 4616 lets each part of PLAIN have so many bytes; more are work for nothing.
_PLAIN_PART_MAX: Final = 1024
_NONCE_BYTES: Final = 24


class AuthenticationError(TierlogError):
    """The client is not authenticated. The text is for the client, and reveals nothing that it may not know."""


class SaslExchange:
    """One authentication by one mechanism.

    Attributes:
        user: The client's name, once it is authenticated.
    """

    user: str | None = None

    async def evaluate(self, token: bytes) -> bytes:
        """Answer a message of the client. Raises AuthenticationError, in Kafka's words; the exchange is over then."""
        raise NotImplementedError


class PlainExchange(SaslExchange):
    """PLAIN (RFC 4616): one message with name and password. Passwords are checked in a thread."""

    def __init__(self, users: Users, worker: Worker) -> None:
        self._users = users
        self._worker = worker

    async def evaluate(self, token: bytes) -> bytes:
        try:
            parts = token.decode("utf-8").split("\0")
        except UnicodeDecodeError:
            raise AuthenticationError("Invalid SASL/PLAIN response: not UTF-8") from None
        if len(parts) != 3:
            raise AuthenticationError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, name, password = parts
        if not name:
            raise AuthenticationError("Authentication failed: username not specified")
        if not password:
            raise AuthenticationError("Authentication failed: password not specified")
        if max(len(name), len(password)) > _PLAIN_PART_MAX:
            raise AuthenticationError("Authentication failed: Invalid username or password")
        if not await self._worker.run(lambda: self._users.is_password(name, password)):
            raise AuthenticationError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise AuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = name
        return b""


class ScramExchange(SaslExchange):
    """SCRAM (RFC 5802, 7677): two messages; the password is never sent."""

    def __init__(self, mechanism: str, users: Users, rng: Rng) -> None:
        from scramp import ScramMechanism

        self._mechanism = mechanism
        self._users = users
        self._name = ""
        self._server_nonce = rng.secret_bytes(_NONCE_BYTES).hex()
        self._server = ScramMechanism(mechanism).make_server(self._credential, s_nonce=self._server_nonce)
        self._has_begun = False

    def _credential(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        self._name = name
        found: ScramCredential = self._users.credential(name, self._mechanism)
        return found.salt, found.stored_key, found.server_key, found.iterations

    async def evaluate(self, token: bytes) -> bytes:
        from scramp import ScramException

        text = ""
        try:
            text = token.decode("utf-8")
            if not self._has_begun:
                self._has_begun = True
                self._server.set_client_first(text)
                return str(self._server.get_server_first()).encode()
            self._server.set_client_final(text)
            final = str(self._server.get_server_final()).encode()
        except (ScramException, UnicodeDecodeError):
            if self._has_doubled_nonce(text):
                raise AuthenticationError(_DOUBLED_NONCE) from None
            raise AuthenticationError(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                + self._mechanism
            ) from None
        self.user = self._name
        return final

    def _has_doubled_nonce(self, client_final: str) -> bool:
        """Whether a last message has the client's part of the nonce twice. Knows of no user and no password."""
        given = client_final.partition(",r=")[2].partition(",")[0]
        client_nonces = given.removesuffix(self._server_nonce)
        half = len(client_nonces) // 2
        return client_nonces != given and half > 0 and client_nonces[:half] == client_nonces[half:]


def load_mechanisms() -> None:
    """Load the library that SCRAM needs. Takes 50 ms: not for the loop's thread, and not for servers without SASL."""
    import scramp  # noqa: F401 - the first exchange finds it loaded


def begin_exchange(mechanism: str, users: Users, rng: Rng, worker: Worker) -> SaslExchange:
    """Begin an exchange by one of the known mechanisms."""
    if mechanism == "PLAIN":
        return PlainExchange(users, worker)
    return ScramExchange(mechanism, users, rng)


@dataclass(frozen=True, slots=True)
class SaslSetup:
    """The settings of all clients of a listener.

    Args:
        mechanisms: Those that are offered.
        users: The users of the current file.
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
    """The outcome of one message of a client.

    Args:
        response: The bytes that answer it, their length included; b"" for none.
        principal: The client's, once it is authenticated.
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
    the mechanism: in SaslAuthenticate requests, or bare behind a handshake of version 0. A session has no end: there is
    no reauthentication.
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
        """Answer a known API out of order as Kafka does, in all of its places for errors, and close the connection."""
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
