"""The front's own login to a broker: PLAIN and SCRAM, as a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.front.upstream_connection import UpstreamConnection
from tierlog.broker.handling import UpstreamError
from tierlog.broker.protocol.entities import request_entities_of
from tierlog.runtime.waiting.loops import Worker

_HANDSHAKE: Final = 17
_AUTHENTICATE: Final = 36
#: Of the answer that tells how long a session lasts.
_VERSION: Final = 1
_SECONDS: Final = 30.0


async def log_in(connection: UpstreamConnection, security: Mapping[str, str | int | bool], worker: Worker) -> float:
    """Authenticate a connection on which nothing but ApiVersions was asked.

    Args:
        connection: Of the front's own.
        security: ``sasl.mechanism``, ``sasl.username`` and ``sasl.password``.
        worker: Derives keys of passwords, some milliseconds each.

    Returns:
        How long the session lasts, in seconds; 0 for no end.

    Raises:
        UpstreamError: refused, or the connection is gone. Quotes no password.
    """
    mechanism = str(security["sasl.mechanism"])
    answer = await connection.ask_entity(
        request_entities_of(_HANDSHAKE, 1).request(mechanism=mechanism), seconds=_SECONDS
    )
    if answer.error_code is not ErrorCode.none:
        raise _refused(connection, f"{mechanism}: {answer.error_code.name}; it offers {', '.join(answer.mechanisms)}")
    user, password = str(security["sasl.username"]), str(security["sasl.password"])
    if mechanism == "PLAIN":
        answer = await _authenticate(connection, f"\0{user}\0{password}".encode())
    else:
        answer = await _scram(connection, mechanism, user, password, worker)
    return float(answer.session_lifetime.total_seconds())


async def _scram(connection: UpstreamConnection, mechanism: str, user: str, password: str, worker: Worker) -> Any:
    client, error_kind = await worker.run(lambda: _scram_client(mechanism, user, password))
    answer = await _authenticate(connection, client.get_client_first().encode())

    def final() -> bytes:
        client.set_server_first(bytes(answer.auth_bytes).decode())
        return str(client.get_client_final()).encode()

    try:
        answer = await _authenticate(connection, await worker.run(final))
        await worker.run(lambda: client.set_server_final(bytes(answer.auth_bytes).decode()))
    except (error_kind, UnicodeDecodeError) as error:  # also a broker that does not know the password
        raise _refused(connection, f"{mechanism}: {error}") from error
    return answer


def _scram_client(mechanism: str, user: str, password: str) -> tuple[Any, type[Exception]]:
    from scramp import ScramClient, ScramException

    return ScramClient([mechanism], user, password), ScramException


async def _authenticate(connection: UpstreamConnection, token: bytes) -> Any:
    request = request_entities_of(_AUTHENTICATE, _VERSION).request(auth_bytes=token)
    answer = await connection.ask_entity(request, seconds=_SECONDS)
    if answer.error_code is not ErrorCode.none:
        raise _refused(connection, f"{answer.error_code.name}: {answer.error_message}")
    return answer


def _refused(connection: UpstreamConnection, text: str) -> UpstreamError:
    connection.close()
    return UpstreamError(f"the broker does not authenticate the front: {text}")


def messages_of(mechanism: str) -> int:
    """Return the number of a client's messages that a mechanism has, each of which is answered."""
    return 2 if mechanism.startswith("SCRAM") else 1
