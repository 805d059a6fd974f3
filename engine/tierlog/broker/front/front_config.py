"""The configuration of a front: the cluster behind it, how it is reached, and the ports that stand for its brokers."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tierlog.broker.front.source_choice import Preference
from tierlog.errors import ConfigError
from tierlog.runtime.kafka.security_keys import SECURITY_KEYS, security_settings
from tierlog.serving.outgoing import TlsContext, trusting_context
from tierlog.serving.serving_config import parse_address

#: Ports behind the bootstrap port that stand for brokers, unless a range is given.
PORTS_DEFAULT: Final = 16
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class FrontConfig:
    """The configuration of a front.

    Args:
        bootstrap: (host, port) of brokers that are asked for the others.
        advertised_host: What clients are told as the host of all brokers; "" for the address that they reached.
        ports: One for each broker: see ``VirtualBrokers``.
        security: The keys of a Kafka client by which the front reaches the cluster, as ``security_settings`` has them.
        preference: Whose records a client gets where the tier and a broker's disk have them.
        refresh_seconds: How old the state of a partition may be by which the tier serves it.
        auth_refresh_seconds: How long a client's right to read a topic counts.
    """

    bootstrap: Sequence[tuple[str, int]]
    ports: range
    advertised_host: str = ""
    security: Mapping[str, str | int | bool] = field(default_factory=dict, repr=False)
    preference: Preference = Preference.REMOTE
    refresh_seconds: float = 1.0
    auth_refresh_seconds: float = 10.0

    @property
    def has_tls(self) -> bool:
        """Whether brokers speak TLS."""
        return str(self.security.get("security.protocol", "")).endswith("ssl")

    @property
    def has_sasl(self) -> bool:
        """Whether brokers ask for SASL."""
        return str(self.security.get("security.protocol", "")).startswith("sasl")

    def may_reach(self, host: str) -> bool:
        """Whether clients' passwords and records may go to a host: by TLS, or within this machine."""
        return self.has_tls or _is_loopback(host)


def read_front_config(
    upstream: str, keys: Mapping[str, str], *, advertise: str | None, listen_port: int
) -> FrontConfig:
    """Return the configuration of the command's options.

    Args:
        upstream: ``HOST:PORT[,…]``.
        keys: Of ``--upstream-config``: a Kafka client's, under Java's names.
        advertise: ``HOST:FIRST-LAST``; None for the address that a client reached, and the 16 ports behind
            ``listen_port``.
        listen_port: The bootstrap port.

    Raises:
        ConfigError: malformed, or what cannot be: a client's certificate or ticket cannot be passed on, and passwords
            and records do not go to another machine in the clear.
    """
    unknown = sorted(keys.keys() - SECURITY_KEYS)
    if unknown:
        raise ConfigError(f"--upstream-config: {unknown[0]} is no key of security; others have no meaning here")
    bootstrap = [parse_address("--upstream", each.strip()) for each in upstream.split(",")]
    if not all(host and port for host, port in bootstrap):
        raise ConfigError(f"--upstream {upstream!r}: HOST:PORT is expected")
    security = security_settings(keys)
    config = FrontConfig(bootstrap, range(0), security=security)
    if any(name in security for name in ("ssl.keystore.location", "ssl.certificate.location", "ssl.certificate.pem")):
        raise ConfigError(
            "--upstream-config: a certificate of its own would make all clients the front's principal; clients are "
            "told apart by SASL (PLAIN, SCRAM, OAUTHBEARER), which passes through"
        )
    mechanism = security.get("sasl.mechanism")
    if mechanism is not None and mechanism not in _MECHANISMS:
        raise ConfigError(
            f"--upstream-config: sasl.mechanism {mechanism}: the front itself is authenticated by one of "
            f"{', '.join(_MECHANISMS)}; its clients by OAUTHBEARER too, and nobody by GSSAPI, which names the host"
        )
    if not all(config.may_reach(host) for host, _ in bootstrap):
        raise ConfigError(
            "--upstream: brokers on another machine are reached by TLS alone (--upstream-config with "
            "security.protocol=SSL or SASL_SSL): clients' passwords and records pass there"
        )
    host, ports = _advertised(advertise, listen_port)
    return FrontConfig(bootstrap, ports, host, security)


def _advertised(advertise: str | None, listen_port: int) -> tuple[str, range]:
    if advertise is None:
        if not listen_port:
            raise ConfigError("--listen with port 0 needs --advertise HOST:FIRST-LAST beside --upstream")
        return "", _ports(listen_port + 1, listen_port + PORTS_DEFAULT)
    address, dash, last = advertise.rpartition("-")
    if not dash or not (last.isascii() and last.isdecimal()):
        raise ConfigError(f"--advertise {advertise!r}: beside --upstream HOST:FIRST-LAST is expected")
    host, first_port = parse_address("--advertise", address)
    ports = _ports(first_port, int(last))
    if listen_port in ports:
        raise ConfigError(f"--advertise {advertise!r}: port {listen_port} is that of --listen")
    return host, ports


def _ports(first: int, last: int) -> range:
    if not 0 < first <= last <= 65535:
        raise ConfigError(f"--advertise: {first}-{last} is no range of ports")
    return range(first, last + 1)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def tls_context(config: FrontConfig) -> TlsContext | None:
    """Make the context of connections to brokers; None without TLS. Reads files: not for the loop's thread.

    Raises:
        ConfigError: the trusted certificates cannot be used.
    """
    if not config.has_tls:
        return None
    location, pem = config.security.get("ssl.ca.location"), config.security.get("ssl.ca.pem")
    try:
        return trusting_context(
            location=None if location is None else str(location),
            pem=None if pem is None else str(pem),
            checks_host=config.security.get("ssl.endpoint.identification.algorithm") != "none",
        )
    except (OSError, ValueError) as error:  # of TLS, too
        raise ConfigError(f"--upstream-config: the trusted certificates cannot be used: {error}") from error


def with_sources(
    config: FrontConfig, prefer: str | None, refresh_seconds: float | None, auth_refresh_seconds: float | None
) -> FrontConfig:
    """Return a configuration with the command's options about the two sources; None for the default.

    Raises ConfigError: there is no such preference.
    """
    try:
        preference = config.preference if prefer is None else Preference(prefer)
    except ValueError:
        raise ConfigError(f"--prefer {prefer}: remote or local is expected") from None
    return replace(
        config,
        preference=preference,
        refresh_seconds=config.refresh_seconds if refresh_seconds is None else refresh_seconds,
        auth_refresh_seconds=config.auth_refresh_seconds if auth_refresh_seconds is None else auth_refresh_seconds,
    )
