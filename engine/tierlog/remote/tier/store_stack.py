"""The store of a configuration with all that is put around it: one order for scans, copies and the storage manager."""

from __future__ import annotations

from collections.abc import Callable

from tierlog.remote.config import StorageConfig
from tierlog.remote.config.storage_keys import storage_options
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.store_urls import StoreAddress, address_store, open_store
from tierlog.runtime.stores.wrappers.limited_store import limited_reads
from tierlog.runtime.stores.wrappers.masked_store import MaskedStore


def open_configured_store(url: str, config: StorageConfig, *, machine: Machine) -> ObjectStore:
    """The store of a URL, with all that a configuration says of it and nothing around it: see ``open_store``."""
    return open_store(url, config.store_options, machine=machine, begin=storage_options(config.storage_keys))


def address_configured_store(url: str, config: StorageConfig, *, machine: Machine | None = None) -> StoreAddress:
    """Where that store is, for a reader in another process: see ``address_store``."""
    return address_store(url, config.store_options, machine=machine, begin=storage_options(config.storage_keys))


def as_it_is(store: ObjectStore) -> ObjectStore:
    """The store, for callers who wrap nothing around it."""
    return store


def stack_store(
    store: ObjectStore,
    config: StorageConfig,
    *,
    machine: Machine,
    wrap_store: Callable[[ObjectStore], ObjectStore] = as_it_is,
    limited: bool = False,
) -> ObjectStore:
    """Put around a store what the configuration and the caller ask for.

    From the bucket outwards:

    1. ``wrap_store``, the caller's: it counts or breaks what is really asked of the bucket, and all others hold for it.
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
