"""Classes of third parties, by their dotted path: stores and whole storage managers."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Final, TypeVar

from tierlog.errors import ConfigError
from tierlog.remote.api import RemoteStorageManager
from tierlog.remote.config import StorageConfig
from tierlog.remote.config.class_names import STORAGE_MANAGERS, our_name
from tierlog.remote.tier.tier_paths import open_configured_store
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectStore

MANAGER_KEY: Final = "remote.log.storage.manager.class.name"
Manager = TypeVar("Manager")
_BACKEND_KEY: Final = "storage.backend.class"
_STORAGE: Final = "storage."
#: What a store must have, as far as its class shows it.
_STORE_NAMES: Final = tuple(name for name in vars(ObjectStore) if not name.startswith("_"))


def load_class(path: str, *, key: str) -> type:
    """The class of a dotted path, ``package.module.Class``.

    Raises:
        ConfigError: there is no such module or class, or the module fails to load; the message names the key.
    """
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except Exception as cause:  # the module's own code runs here: whatever it raises, the key is what is wrong
        raise ConfigError(f"{key}: cannot load {module}: {type(cause).__name__}: {cause}") from cause
    if not isinstance(found, type):
        raise ConfigError(f"{key}: {module} has no class {name}")
    return found


def load_manager(key: str, name: str, known: Mapping[str, str], interface: type[Manager]) -> Manager:
    """An instance of a manager, not yet configured.

    Args:
        key: The configuration key, for messages.
        name: Its value: a Java class that is known, or the dotted path of a Python class that takes no arguments.
        known: Java class → the dotted path of ours.
        interface: What the class must implement.

    Raises:
        ConfigError: the class cannot be loaded, or does not implement the interface.
    """
    kind = load_class(our_name(key, name, known, dotted=True), key=key)
    if not issubclass(kind, interface):
        raise ConfigError(f"{key}: {name} is no {interface.__name__}")
    try:
        return kind()
    except TypeError as cause:
        raise ConfigError(f"{key}: {name}: {cause}") from cause


def load_storage_manager(name: str) -> RemoteStorageManager:
    """A storage manager, not yet configured: by the plugin's Java class, or the dotted path of a Python class.

    Raises:
        ConfigError: as ``load_manager``.
    """
    return load_manager(MANAGER_KEY, name, STORAGE_MANAGERS, RemoteStorageManager)  # type: ignore[type-abstract]


def open_backend(config: StorageConfig, *, machine: Machine | None = None) -> ObjectStore:
    """The store that a configuration names, with nothing around it; keys are relative to its bucket, container or root.

    A third party's class is called with its options (the keys below ``storage.``, without that prefix) and the machine:
    ``HdfsStore({"hdfs.host": "namenode"}, machine)``.

    Args:
        config: A configuration that passed ``check_for_broker``.
        machine: Has the files, threads and clock.

    Raises:
        ConfigError: the store refuses a value, or a third party's class cannot be loaded. ObjectNotFoundError: a root
            that does not exist. StoreError and its kinds.
    """
    machine = machine or Machine()
    if config.third_party_backend is not None:
        return _third_party(config.third_party_backend, config, machine)
    return open_configured_store(_url(config), config, machine=machine)


def _url(config: StorageConfig) -> str:
    if config.storage_backend_class == "s3":
        return f"s3://{config.storage_s3_bucket_name}"
    if config.storage_backend_class == "gcs":
        return f"gs://{config.storage_gcs_bucket_name}"
    if config.storage_backend_class == "azure":
        return f"az://{config.storage_azure_container_name}"
    return str(config.storage_root)


def _third_party(path: str, config: StorageConfig, machine: Machine) -> ObjectStore:
    kind = load_class(path, key=_BACKEND_KEY)
    missing = [name for name in _STORE_NAMES if not hasattr(kind, name)]
    if missing:
        raise ConfigError(f"{_BACKEND_KEY}: {path} is no ObjectStore: {', '.join(missing)} missing")
    options = {name.removeprefix(_STORAGE): value for name, value in config.other_storage_keys.items()}
    try:
        made: ObjectStore = kind(options, machine)
    except (KeyError, TypeError, ValueError) as cause:
        # ConfigError is a ValueError: its own words, with the key in front. Others may quote an option.
        told = str(cause) if isinstance(cause, ConfigError) else type(cause).__name__
        raise ConfigError(f"{_BACKEND_KEY}: {path} refuses its storage.* keys: {told}") from None
    return made
