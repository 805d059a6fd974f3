"""What a server of frames listens on, and what it bounds; and numbers that are the values of a broker's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tierlog.errors import ConfigError

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class ServingConfig:
    """What a server listens on, and what it bounds. Names and defaults are Kafka's, "_" for ".", where Kafka has them.

    Args:
        host: The name or address to listen on; "" for all addresses.
        port: 0 to 65535; 0 for any free one.
        ssl_certificate_chain_location, ssl_key_location: PEM files: this server's certificate and those behind it, and
            the key. The chain's file may hold the key too.
        ssl_key_password: Of an encrypted key.
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
        ConfigError: a value is out of range.
    """

    host: str = "127.0.0.1"
    port: int = 9092
    ssl_certificate_chain_location: str = ""
    ssl_key_location: str = ""
    ssl_key_password: str = ""
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
        check_range("port", self.port, 0, _PORT_MAX)
        for name, (least, most) in LIMITS.items():
            check_range(name, getattr(self, name), least, most)
        if self.queued_max_request_bytes == 0:
            raise ConfigError("queued_max_request_bytes: 0 is no memory for any request; -1 stands for no bound")

    @property
    def has_tls(self) -> bool:
        """Whether clients speak TLS."""
        return bool(self.ssl_certificate_chain_location)


#: The fields that a file may set: the smallest and the largest value of each.
LIMITS: Final[Mapping[str, tuple[int, int]]] = {
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


def check_range(name: str, value: int, least: int, most: int) -> None:
    """Raise ConfigError for a value of a field that is out of range."""
    if not least <= value <= most:
        raise ConfigError(f"{name}: {value} is not in the range from {least} to {most}")


def read_number(properties: Mapping[str, str], key: str, least: int, most: int = INT32_MAX) -> int:
    """The value of a key that is there: a number within limits, both inclusive.

    Raises:
        ConfigError: the value is no number, or out of range; names the key.
    """
    text = properties[key].strip()
    digits = text.removeprefix("-")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) < 20
    if not is_number or not least <= int(text) <= most:
        raise ConfigError(f"{key}={text:.40}: a number from {least} to {most} is expected")
    return int(text)
