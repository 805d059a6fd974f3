"""The storage manager and the metadata manager that a broker's configuration names, made and configured.

Source: Kafka RemoteLogManagerConfig, RemoteLogManager#configAndWrapRsmPlugin, #configAndWrapRlmmPlugin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from tierlog.arguments import require_texts
from tierlog.config_keys import check_values, key, read_values
from tierlog.errors import ConfigError
from tierlog.remote.api import RemoteLogMetadataManager, RemoteStorageManager
from tierlog.remote.config.class_loading import (
    DEFAULT_METADATA_MANAGER,
    METADATA_MANAGER_KEY,
    STORAGE_MANAGER_KEY,
    load_metadata_manager,
    load_storage_manager,
)
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.machine import Machine

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

SYSTEM_KEY: Final = "remote.log.storage.system.enable"
_INDEX_CACHE: Final = "fetch.indexes.cache.size"


@dataclass(frozen=True, slots=True)
class OpeningKeys:
    """A broker's keys that name its managers."""

    system_enable: bool = key("The broker has tiered storage.", default=False, name=SYSTEM_KEY)
    storage_manager: str | None = key(
        "Its storage manager: the plugin's Java class is Tierlog's; the dotted path of a Python class is a third "
        "party's.",
        name=STORAGE_MANAGER_KEY,
    )
    storage_prefix: str = key(
        "Keys of the storage manager begin with it.",
        default="rsm.config.",
        name="remote.log.storage.manager.impl.prefix",
        not_empty=True,
    )
    metadata_manager: str = key(
        "Its metadata manager, likewise.", default=DEFAULT_METADATA_MANAGER, name=METADATA_MANAGER_KEY
    )
    metadata_prefix: str = key(
        "Keys of the metadata manager begin with it.",
        default="rlmm.config.",
        name="remote.log.metadata.manager.impl.prefix",
        not_empty=True,
    )

    def __post_init__(self) -> None:
        check_values(self)


class OpenedManagers(NamedTuple):
    """The two managers, configured."""

    storage: RemoteStorageManager
    metadata: RemoteLogMetadataManager


def open_managers(
    given: Mapping[str, str],
    *,
    broker_id: int,
    cluster_id: str,
    client_configs: Mapping[str, str],
    index_cache_bytes: int | None,
    machine: Machine,
    registry: CollectorRegistry | None,
) -> OpenedManagers:
    """Make and configure both managers; after an error none is open.

    Args:
        given: A broker's configuration, with all of its keys.
        broker_id: This broker.
        cluster_id: Of the cluster, as its brokers know it.
        client_configs: How the metadata manager's Kafka clients reach the cluster, from the broker's own listener: the
            broker's keys win over them.
        index_cache_bytes: Of our storage manager, if its own keys do not say it.
        machine: Ours run on it.
        registry: Where ours collect their metrics.

    Raises:
        ConfigError: the broker has no tiered storage, a class is missing or cannot be loaded, or a manager refuses its
            keys. NoThreadError.
    """
    require_texts("given", given)
    keys = OpeningKeys(**read_values(OpeningKeys, given))
    if not keys.system_enable:
        raise ConfigError(f"{SYSTEM_KEY} is false: this broker has no tiered storage")
    if not keys.storage_manager:
        raise ConfigError(f"{STORAGE_MANAGER_KEY} is missing: it names the storage manager")
    of_ours: dict[str, object] = {"machine": machine, "registry": registry}
    with ExitStack() as opened:
        storage = load_storage_manager(keys.storage_manager, **of_ours)
        opened.callback(storage.close)
        configs: dict[str, object] = dict(_below(given, keys.storage_prefix))
        if index_cache_bytes is not None and isinstance(storage, TieredStorageManager):
            configs.setdefault(_INDEX_CACHE, index_cache_bytes)
        storage.configure(configs | {"broker.id": broker_id})
        metadata = load_metadata_manager(keys.metadata_manager, **of_ours)
        opened.callback(metadata.close)
        own = {"broker.id": broker_id, "log.dir": _first_log_dir(given), "cluster.id": cluster_id}
        metadata.configure({**client_configs, **dict(_below(given, keys.metadata_prefix)), **own})
        opened.pop_all()
    return OpenedManagers(storage, metadata)


def _below(given: Mapping[str, str], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the keys that begin with a prefix, without it."""
    return ((name.removeprefix(prefix), value) for name, value in given.items() if name.startswith(prefix))


def _first_log_dir(given: Mapping[str, str]) -> str:
    """Return the first log directory of a broker, Kafka's default if it names none."""
    return (given.get("log.dirs") or given.get("log.dir") or "/tmp/kafka-logs").split(",")[0].strip()  # noqa: S108
