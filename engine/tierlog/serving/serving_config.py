"""The addresses and limits of a server of frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierlog.arguments import INT32_MAX
from tierlog.config_keys import Int32, check_values, key
from tierlog.errors import ConfigError

_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class ServingConfig:
    """The addresses and limits of a server. Names and defaults are Kafka's, "_" for ".", where Kafka has them.

    Args:
        host: The name or address to listen on; "" for all addresses.
        port: 0 to 65535; 0 for any free one.
        ssl_certificate_chain_location, ssl_key_location: PEM files: this server's certificate and those behind it, and
            the key. The chain's file may hold the key too.
        ssl_key_password: Of an encrypted key.

    The other fields are keys of a broker's file.

    Raises:
        ConfigError: a value is out of range.
    """

    host: str = "127.0.0.1"
    port: int = 9092
    ssl_certificate_chain_location: str = ""
    ssl_key_location: str = ""
    ssl_key_password: str = ""
    sasl_server_max_receive_size: Int32 = key(
        "The largest request of a client that has not said who it is, bytes.", default=524288, minimum=1
    )
    #: There are never more than seven eighths of the descriptors that the process may have: the rest is for files, and
    #: for connections of its own.
    max_connections: Int32 = key("No further ones are accepted until one is gone.", default=INT32_MAX, minimum=1)
    max_connections_per_ip: Int32 = key("More of one address are closed at once.", default=INT32_MAX, minimum=1)
    connections_max_idle_ms: Int32 = key(
        "After so long without a request a connection is closed.", default=600_000, minimum=1
    )
    socket_request_max_bytes: Int32 = key("The largest request.", default=104857600, minimum=1)
    #: Kafka's default is no bound: a client could make the server hold ``socket_request_max_bytes`` for each of its
    #: connections, and its decoded form. A request of up to 16 KiB never waits for memory.
    queued_max_request_bytes: int = key(
        "Memory of all requests that are read or worked on, as bytes and decoded; -1 for no bound.",
        default=256 << 20,
        minimum=1,
        also=-1,
    )
    socket_listen_backlog_size: Int32 = key("Connections that wait to be accepted.", default=1024, minimum=1)
    authentication_deadline_ms: Int32 = key(
        "A client has so long to be through with TLS and SASL.", default=30_000, own=True, minimum=1
    )
    request_deadline_ms: Int32 = key(
        "A request has so long to arrive, from its first byte on.", default=30_000, own=True, minimum=1
    )
    response_deadline_ms: Int32 = key(
        "A client that takes no byte of a response for so long is cut off.", default=60_000, own=True, minimum=1
    )
    #: Requests that wait for data or for other members of their group count too: what those wait for must not have to
    #: wait for them, so that this is above the number of connections. The next ones wait, and client hosts take turns.
    requests_at_work_max: Int32 = key("Requests that are worked on at once.", default=100_000, own=True, minimum=1)
    stop_grace_ms: Int32 = key("How long a stop waits for requests under way.", default=2_000, own=True, minimum=0)

    def __post_init__(self) -> None:
        check_values(self)
        check_port("port", self.port)

    @property
    def has_tls(self) -> bool:
        """Whether clients speak TLS."""
        return bool(self.ssl_certificate_chain_location)


def check_port(name: str, value: int) -> None:
    """Raise ConfigError for a number that is no port."""
    if not 0 <= value <= _PORT_MAX:
        raise ConfigError(f"{name}: {value} is not in the range from 0 to {_PORT_MAX}")
