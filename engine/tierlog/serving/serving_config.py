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
        "The largest request of a client that is not authenticated.", default=524288, minimum=1
    )
    #: The descriptors that are left are for files, and for connections of the process's own.
    max_connections: Int32 = key(
        "Connections; the next ones wait in the system's queue. At most seven eighths of the process's descriptors.",
        default=INT32_MAX,
        minimum=1,
    )
    max_connections_per_ip: Int32 = key(
        "Connections of one address; the next one is closed.", default=INT32_MAX, minimum=1
    )
    connections_max_idle_ms: Int32 = key(
        "Time without a byte either way, also while a request is worked on; then a connection is closed.",
        default=600_000,
        minimum=1,
    )
    socket_request_max_bytes: Int32 = key("The largest request.", default=104857600, minimum=1)
    #: Without a bound a client could make the server hold ``socket_request_max_bytes`` for each of its connections, and
    #: its decoded form.
    queued_max_request_bytes: int = key(
        "Memory of all requests that are read or worked on, as bytes and decoded; a request of up to 16 KiB never "
        "waits for it. -1, Kafka's default, is no bound.",
        default=256 << 20,
        minimum=1,
        also=-1,
    )
    socket_listen_backlog_size: Int32 = key(
        "Connections that wait to be accepted; Kafka's default is 50.", default=1024, minimum=1
    )
    authentication_deadline_ms: Int32 = key(
        "Time until a client is through with TLS and SASL.", default=30_000, own=True, minimum=1
    )
    request_deadline_ms: Int32 = key(
        "Time from the first byte of a request to its last one.", default=30_000, own=True, minimum=1
    )
    response_deadline_ms: Int32 = key(
        "Time in which a client takes no byte of a response; then it is cut off.", default=60_000, own=True, minimum=1
    )
    #: A request that another one waits for must not have to wait for it: this is above the number of connections.
    requests_at_work_max: Int32 = key(
        "Requests that are worked on at once, long polls among them; the next ones wait, and client hosts take turns.",
        default=100_000,
        own=True,
        minimum=1,
    )
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


def parse_address(option: str, text: str) -> tuple[str, int]:
    """Return (host, port) of ``HOST:PORT``; an IPv6 address stands in brackets, and no host is all addresses.

    Raises:
        ConfigError: malformed; names the option.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"{option} {text!r}: an IPv6 address stands in brackets, as [::1]:9092")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > _PORT_MAX:
        raise ConfigError(f"{option} {text!r}: HOST:PORT is expected")
    try:
        host.encode("idna")  # as each look-up does
    except UnicodeError:
        raise ConfigError(f"{option} {text!r}: {host!r} is no name of a host") from None
    return host, int(port)
