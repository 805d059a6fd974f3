"""The store that a configuration names, and the one order in which wrappers are put around a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tierlog.errors import ConfigError
from tierlog.remote.config import StorageConfig
from tierlog.remote.config.class_loading import load_class
from tierlog.remote.config.storage_keys import storage_options
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.store_urls import StoreAddress, address_store, open_store
from tierlog.runtime.stores.wrappers.passing_store import MaskedStore
from tierlog.runtime.stores.wrappers.rate_limiter import limited_reads

_BACKEND_KEY: Final = "storage.backend.class"
_STORAGE: Final = "storage."
#: The attributes that a store must have, as far as its class shows them.
_STORE_NAMES: Final = tuple(name for name in vars(ObjectStore) if not name.startswith("_"))


def open_configured_store(url: str, config: StorageConfig, *, machine: Machine) -> ObjectStore:
    """Open the store of a URL, with all that a configuration says of it and nothing around it: see ``open_store``."""
    return open_store(url, config.store_options, machine=machine, begin=storage_options(config))


def address_configured_store(url: str, config: StorageConfig, *, machine: Machine | None = None) -> StoreAddress:
    """Return the address of the configured store, for a reader in another process: see ``address_store``."""
    return address_store(url, config.store_options, machine=machine, begin=storage_options(config))


def as_it_is(store: ObjectStore) -> ObjectStore:
    """Return the store, for callers that wrap nothing around it."""
    return store


def stack_store(
    store: ObjectStore,
    config: StorageConfig,
    *,
    machine: Machine,
    wrap_store: Callable[[ObjectStore], ObjectStore] = as_it_is,
    limited: bool = False,
) -> ObjectStore:
    """Put the wrappers of the configuration and of the caller around a store.

    From the bucket outwards:

    1. ``wrap_store``, the caller's: it counts or breaks the bucket's real requests, and all others hold for it.
    2. The download limit cuts large reads in pieces, each of which the caller's wrapper sees as the request it is.
    3. The mask, outside of everything that raises errors with whole keys in them.

    A layer that nothing asks for is not there.

    Args:
        store: The bucket, or the folder.
        config: Its ``key.prefix.mask`` and download limit.
        machine: The clock of the limit.
        wrap_store: Gets the store, and gives the one to use.
        limited: Whether the configuration's download limit holds for all reads here. The storage manager limits its
            fetches itself: it puts no limit on the reads of its own that copies and deletions wait for.
    """
    store = wrap_store(store)
    if limited:
        store = limited_reads(store, config.download_rate_limit_bytes_per_second, machine)
    if config.key_prefix_mask and config.key_prefix:
        store = MaskedStore(store, config.key_prefix)
    return store


def open_backend(config: StorageConfig, *, machine: Machine | None = None) -> ObjectStore:
    """Open the store that a configuration names, with nothing around it; keys are relative to its bucket, container or
    root.

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
