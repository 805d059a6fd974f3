"""The settings of a server of Kafka's protocol."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tierlog.config_keys import Int32, key
from tierlog.errors import ConfigError
from tierlog.serving.serving_config import ServingConfig, check_port

#: In the order in which clients get them.
SASL_MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


class SecurityProtocol(StrEnum):
    """Kafka's names for the protocol of a listener below the requests."""

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
class ServerConfig(ServingConfig):
    """The configuration of a server of Kafka's protocol beside a ServingConfig. A file has the names with ".".

    Args:
        advertised_host, advertised_port: The address of this server in answers; by default the address that the client
            reached.
        security_protocol: The listener's protocol.
        sasl_enabled_mechanisms: Some of SASL_MECHANISMS.
        sasl_users_location: The file of users: see ``security.users``.
        user_topics_location: The file of the topics that each user may read: see ``security.topic_access``; "" lets all
            users read all topics.

    Raises:
        ConfigError: a value is out of range, or two do not fit together.
    """

    advertised_host: str = ""
    advertised_port: int = 0
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    sasl_enabled_mechanisms: tuple[str, ...] = ()
    sasl_users_location: str = ""
    user_topics_location: str = ""
    connection_failed_authentication_delay_ms: Int32 = key(
        "How long the answer to a failed authentication is held back.", default=100, minimum=0
    )

    def __post_init__(self) -> None:
        ServingConfig.__post_init__(self)
        check_port("advertised_port", self.advertised_port)
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

    @property
    def has_tls(self) -> bool:
        return self.security_protocol.has_tls
