"""Who is at the other end of a connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierlog.broker.server.security.sasl_authenticator import SaslAuthenticator

ANONYMOUS: Final = "User:ANONYMOUS"


@dataclass(slots=True)
class Client:
    """A client, as far as it is known.

    Attributes:
        host: Its address.
        connection_id: Unique while the server runs.
        advertised_host, advertised_port: Under which it is told to reach this server.
        principal: Who it is.
        authenticator: What it has to get through first; None once it is through, or if nothing is asked of it.
    """

    host: str
    connection_id: int
    advertised_host: str
    advertised_port: int
    principal: str = ANONYMOUS
    authenticator: SaslAuthenticator | None = None
