"""The settings of a server of Kafka's protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tierlog.broker.key_values import INT32_MAX, INT64_MAX, read_number
from tierlog.errors import ConfigError

_PORT_MAX: Final = 65535
#: In the order in which clients are told of them.
SASL_MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


class SecurityProtocol(StrEnum):
    """Kafka's names for what a listener speaks below the requests."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """What a server listens on, and what it bounds. Names and defaults are Kafka's, "_" for ".", where Kafka has them;
    a file has the names with ".", Kafka's and the others.

    Args:
        host: The name or address to listen on; "" for all addresses.
        port: 0 to 65535; 0 for any free one.
        advertised_host, advertised_port: Under which clients are told to reach this server; by default the address
            that the client reached.
        security_protocol: What the listener speaks.
        ssl_certificate_chain_location, ssl_key_location: PEM files: this server's certificate and those behind it, and
            the key. The chain's file may hold the key too.
        ssl_key_password: Of an encrypted key.
        sasl_enabled_mechanisms: Some of SASL_MECHANISMS.
        sasl_users_location: The file of users: see ``security.users``.
        user_topics_location: The file of the topics that each user may read: see ``security.topic_access``; "" lets all
            users read all topics.
        connection_failed_authentication_delay_ms: How long the answer to a failed authentication is held back.
        sasl_server_max_receive_size: The largest request of a client that has not said who it is, bytes.
        max_connections: The server accepts no further ones until one is gone. There are never more than seven eighths
            of the descriptors that the process may have: the rest is for files, and for connections of its own.
        max_connections_per_ip: More of one address are closed at once.
        connections_max_idle_ms: After so long without a request a connection is closed.
        socket_request_max_bytes: The largest request.
        queued_max_request_bytes: Memory of all requests that are read or worked on, as bytes and decoded; -1 for no
            bound, which is Kafka's default: a client could make the server hold ``socket_request_max_bytes`` for each
            of its connections, and what that is decoded to. What takes up to 16 KiB never waits for memory.
        socket_listen_backlog_size: Connections that wait to be accepted.
        authentication_deadline_ms: A client has so long to be through with TLS and SASL. (Kafka has none.)
        request_deadline_ms: A request has so long to arrive, from its first byte on. (Kafka has none.)
        response_deadline_ms: A client that takes no byte of a response for so long is cut off. (Kafka has none.)
        requests_at_work_max: Requests that are worked on at once, those that wait for data or for other members of
            their group included: what those wait for must not have to wait for them, so that this is above the number
            of connections. The next ones wait, and client hosts take turns. (Kafka has threads instead.)
        stop_grace_ms: How long a stop waits for requests under way.

    Raises:
        ConfigError: a value is out of range, or two do not fit together.
    """

    host: str = "127.0.0.1"
    port: int = 9092
    advertised_host: str = ""
    advertised_port: int = 0
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    ssl_certificate_chain_location: str = ""
    ssl_key_location: str = ""
    ssl_key_password: str = ""
    sasl_enabled_mechanisms: tuple[str, ...] = ()
    sasl_users_location: str = ""
    user_topics_location: str = ""
    connection_failed_authentication_delay_ms: int = 100
    sasl_server_max_receive_size: int = 524288
    max_connections: int = INT32_MAX
    max_connections_per_ip: int = INT32_MAX
    connections_max_idle_ms: int = 600_000
    socket_request_max_bytes: int = 104857600
    queued_max_request_bytes: int = 256 << 20
    socket_listen_backlog_size: int = 1024
    authentication_deadline_ms: int = 30_000
    request_deadline_ms: int = 30_000
    response_deadline_ms: int = 60_000
    requests_at_work_max: int = 100_000
    stop_grace_ms: int = 2_000

    def __post_init__(self) -> None:
        for name in ("port", "advertised_port"):
            _check(name, getattr(self, name), 0, _PORT_MAX)
        for name, (least, most) in _LIMITS.items():
            _check(name, getattr(self, name), least, most)
        if self.queued_max_request_bytes == 0:
            raise ConfigError("queued_max_request_bytes: 0 is no memory for any request; -1 stands for no bound")
        self._check_security()

    def _check_security(self) -> None:
        protocol = self.security_protocol
        if protocol.has_tls and not self.ssl_certificate_chain_location:
            raise ConfigError(f"{protocol}: ssl_certificate_chain_location is missing")
        if protocol.has_sasl and not self.sasl_enabled_mechanisms:
            raise ConfigError(f"{protocol}: sasl_enabled_mechanisms is missing")
        if protocol.has_sasl and not self.sasl_users_location:
            raise ConfigError(f"{protocol}: sasl_users_location is missing")
        if self.user_topics_location and not protocol.has_sasl:
            raise ConfigError(f"{protocol}: user_topics_location is of no use where clients do not say who they are")
        for mechanism in self.sasl_enabled_mechanisms:
            if mechanism not in SASL_MECHANISMS:
                known = ", ".join(SASL_MECHANISMS)
                raise ConfigError(f"sasl_enabled_mechanisms: {mechanism!r} is none of {known}")


#: The fields that a file may set: the smallest and the largest value of each.
_LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    "connection_failed_authentication_delay_ms": (0, INT32_MAX),
    "sasl_server_max_receive_size": (1, INT32_MAX),
    "max_connections": (1, INT32_MAX),
    "max_connections_per_ip": (1, INT32_MAX),
    "connections_max_idle_ms": (1, INT32_MAX),
    "socket_request_max_bytes": (1, INT32_MAX),
    "queued_max_request_bytes": (-1, INT64_MAX),
    "socket_listen_backlog_size": (1, INT32_MAX),
    "authentication_deadline_ms": (1, INT32_MAX),
    "request_deadline_ms": (1, INT32_MAX),
    "response_deadline_ms": (1, INT32_MAX),
    "requests_at_work_max": (1, INT32_MAX),
    "stop_grace_ms": (0, INT32_MAX),
}
#: The keys of a file, and the field that each sets.
KEYS: Final[Mapping[str, str]] = {field.replace("_", "."): field for field in _LIMITS}


def read_server_config(properties: Mapping[str, str]) -> ServerConfig:
    """The configuration of a broker's properties: KEYS; what else a server is told is set by ``dataclasses.replace``.

    Raises:
        ConfigError: a value is no number, or out of range.
    """
    values = {field: read_number(properties, key, *_LIMITS[field]) for key, field in KEYS.items() if key in properties}
    return ServerConfig(**values)  # type: ignore[arg-type] # all of these fields are numbers


def _check(name: str, value: int, minimum: int, maximum: int) -> None:
    if not minimum <= value <= maximum:
        raise ConfigError(f"{name}: {value} is not in the range from {minimum} to {maximum}")
