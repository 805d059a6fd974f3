"""The configuration of a replica: the command's options, and the keys of a broker's properties."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tierlog.broker.fetching.fetch_handler import FetchLimits
from tierlog.broker.fetching.fetch_session import SessionLimits
from tierlog.broker.front.front_config import FrontConfig
from tierlog.broker.groups.group_config import GroupConfig
from tierlog.broker.replica.catalog.bucket_catalog import HISTORIES_BYTES
from tierlog.broker.server.server_config import SASL_MECHANISMS, SecurityProtocol, ServerConfig
from tierlog.config_keys import key, names_of, read_values
from tierlog.remote.config import StorageConfig, read_storage_config
from tierlog.runtime.machine import Machine

_MECHANISMS: Final = "sasl.enabled.mechanisms"


#: Defaults of a server: 256 MiB of chunks in memory (``fetch.chunk.cache.class`` and ``.size``; a size of 0 caches
#: nothing), and 64 MiB of indexes (``fetch.indexes.cache.size``), since every read that does not go on behind the last
#: one needs one.
CHUNK_CACHE_BYTES: Final = 256 << 20
INDEX_CACHE_BYTES: Final = 64 << 20


def server_config(given: Mapping[str, object] | None, *, machine: Machine | None = None) -> StorageConfig:
    """Return the configuration of a server's reads: the storage manager's keys, and a server's caches where it names
    none.

    Raises: as ``read_storage_config``.
    """
    config = read_storage_config(given, machine=machine)
    defaults: dict[str, Any] = {}
    if config.fetch_chunk_cache_class is None:
        size = config.fetch_chunk_cache_size
        defaults["fetch_chunk_cache_class"] = "memory"
        defaults["fetch_chunk_cache_size"] = CHUNK_CACHE_BYTES if size is None else size
    if "fetch.indexes.cache.size" not in config.given:
        defaults["fetch_indexes_cache_size"] = INDEX_CACHE_BYTES
    return replace(config, **defaults)


@dataclass(frozen=True, slots=True)
class MetadataSource:
    """The source of segments' metadata, as ``open_metadata`` takes it.

    Args:
        sources: Folders of the metadata topic, a snapshot, or the bootstrap servers of a running Kafka; none: the
            bucket's keys alone.
        client_keys: Of Kafka's client.
    """

    sources: tuple[str, ...] = ()
    client_keys: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """The configuration of a replica.

    Args:
        path: The served tier, as ``open_tier`` takes it.
        server: Where it listens, and its limits.
        topics: Names and ``^`` patterns; all if empty.
        layout: As ``open_tier`` takes it.
        tier_keys: The storage manager's keys.
        state: The folder for what outlives the process; None for nothing.
        refresh_seconds: Pause between two listings.
        metadata: Where metadata comes from.
        log_starts: As ``--log-start`` takes them.
        cluster_id: In answers to clients.
        monitor: Host and port for metrics and health; None for neither.
        fetch: Limits of Fetch.
        histories_bytes_max: A key beside the storage manager's caches; Kafka has nothing like it.
        groups: Of consumer groups.
        front: The cluster in front of which the replica stands; None for none.
    """

    path: str
    server: ServerConfig
    cluster_id: str
    topics: tuple[str, ...] = ()
    layout: str = "auto"
    tier_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    state: str | None = None
    refresh_seconds: float = 60.0
    metadata: MetadataSource = MetadataSource()
    log_starts: tuple[str, ...] = ()
    monitor: tuple[str, int] | None = None
    fetch: FetchLimits = field(default_factory=FetchLimits)
    histories_bytes_max: int = key(
        "Memory of resolved histories; -1 for no limit.",
        default=HISTORIES_BYTES,
        name="fetch.histories.cache.size",
        minimum=-1,
        own=True,
    )
    groups: GroupConfig = field(default_factory=GroupConfig)
    front: FrontConfig | None = None


#: All keys of a broker that a replica obeys, beside those of the tier.
CONFIG_KEYS: Final = names_of(ServerConfig, GroupConfig, FetchLimits, SessionLimits, ReplicaConfig) | {_MECHANISMS}


def read_replica_config(path: str, given: Mapping[str, str], *, cluster_id: str | None = None) -> ReplicaConfig:
    """Return the configuration of PATH and of a broker's keys; options are set on it by ``dataclasses.replace``.

    Args:
        path: The served tier.
        given: CONFIG_KEYS by their names, and the tier's keys.
        cluster_id: None makes one of the path, the same each time.

    Raises:
        ConfigError: a key's value is malformed or out of range.
    """
    keys = {name: value for name, value in given.items() if name in CONFIG_KEYS}
    sessions = SessionLimits(**read_values(SessionLimits, keys))
    return ReplicaConfig(
        path,
        ServerConfig(**read_values(ServerConfig, keys)),
        cluster_id or _cluster_id(path),
        tier_keys={name: value for name, value in given.items() if name not in CONFIG_KEYS},
        fetch=FetchLimits(sessions=sessions, **read_values(FetchLimits, keys)),
        groups=GroupConfig(**read_values(GroupConfig, keys)),
        **read_values(ReplicaConfig, keys),
    )


def with_security(
    config: ReplicaConfig,
    given: Mapping[str, str],
    *,
    certificate: str | None,
    key: str | None,
    users: str | None,
    user_topics: str | None = None,
) -> ReplicaConfig:
    """Return the configuration with TLS where there is a certificate, and SASL where there are users.

    Raises:
        ConfigError: ``sasl.enabled.mechanisms`` names none that is known, or there are topics of users and no users.
    """
    protocol = {
        (False, False): SecurityProtocol.PLAINTEXT,
        (True, False): SecurityProtocol.SSL,
        (False, True): SecurityProtocol.SASL_PLAINTEXT,
        (True, True): SecurityProtocol.SASL_SSL,
    }[certificate is not None, users is not None]
    named = [each.strip() for each in given.get(_MECHANISMS, "").split(",") if each.strip()]
    mechanisms = tuple(named) or SASL_MECHANISMS
    server = replace(
        config.server,
        security_protocol=protocol,
        ssl_certificate_chain_location=certificate or "",
        ssl_key_location=key or "",
        sasl_enabled_mechanisms=mechanisms if users is not None else (),
        sasl_users_location=users or "",
        user_topics_location=user_topics or "",
    )
    return replace(config, server=server)


def _cluster_id(path: str) -> str:
    """22 characters, as Kafka's own ids have."""
    digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).digest()[:16]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
