"""The messages of SASL mechanisms: what a client sends, what it is answered, and who it turns out to be."""

from __future__ import annotations

from typing import Final, Protocol

from tierlog.broker.server.security.users import ScramCredential, Users
from tierlog.errors import TierlogError
from tierlog.runtime.machine.randomness import Rng
from tierlog.runtime.waiting.loops import Worker

#: What Kafka 4 refuses too; earlier brokers let it pass.
_DOUBLED_NONCE: Final = (
    "Authentication failed: the client sends its SCRAM nonce twice, as librdkafka does before 2.6.1 (Debian's kcat has"
    " 2.0.2). Use a newer one, or SASL/PLAIN over TLS"
)
#: RFC 4616 lets each part of PLAIN have so many bytes; more are work for nothing.
_PLAIN_PART_MAX: Final = 1024
_NONCE_BYTES: Final = 24


class AuthenticationError(TierlogError):
    """The client has not proved who it is. The text is for the client, and tells it nothing that it may not know."""


class SaslExchange(Protocol):
    """One authentication by one mechanism."""

    @property
    def user(self) -> str | None:
        """Who the client is, once it has proved it."""

    async def evaluate(self, token: bytes) -> bytes:
        """Answer a message of the client. Raises AuthenticationError, after which the exchange is over."""


class PlainExchange:
    """PLAIN (RFC 4616): one message with name and password. Passwords are checked in a thread."""

    def __init__(self, users: Users, worker: Worker) -> None:
        self._users = users
        self._worker = worker
        self.user: str | None = None

    async def evaluate(self, token: bytes) -> bytes:
        """Answer the message. Raises AuthenticationError, in Kafka's words."""
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


class ScramExchange:
    """SCRAM (RFC 5802, 7677): two messages; the password is never sent."""

    def __init__(self, mechanism: str, users: Users, rng: Rng) -> None:
        from scramp import ScramMechanism

        self._mechanism = mechanism
        self._users = users
        self._name = ""
        self._server_nonce = rng.secret_bytes(_NONCE_BYTES).hex()
        self._server = ScramMechanism(mechanism).make_server(self._credential, s_nonce=self._server_nonce)
        self._has_begun = False
        self.user: str | None = None

    def _credential(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        self._name = name
        found: ScramCredential = self._users.credential(name, self._mechanism)
        return found.salt, found.stored_key, found.server_key, found.iterations

    async def evaluate(self, token: bytes) -> bytes:
        """Answer a message. Raises AuthenticationError, in Kafka's words."""
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
    """An exchange by one of the known mechanisms."""
    if mechanism == "PLAIN":
        return PlainExchange(users, worker)
    return ScramExchange(mechanism, users, rng)
