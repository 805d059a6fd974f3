"""How a container of Azure Blob Storage is opened for writing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import quote

from tierlog.errors import ConfigError
from tierlog.runtime.azure_writer import AzureWriter
from tierlog.runtime.http_opening import make_client
from tierlog.runtime.machine import Machine
from tierlog.runtime.request_counts import RequestCounts
from tierlog.runtime.store_options import StoreOptions

if TYPE_CHECKING:
    from obstore.store import AzureStore


def make_azure_writer(
    store: AzureStore,
    container: str,
    folder: str,
    name: str,
    options: StoreOptions,
    machine: Machine,
    counts: RequestCounts,
) -> AzureWriter:
    """The write half. Nothing is asked of anybody yet."""
    sas_token = _find(options, "sas_key", "sas_token")
    url = ""
    if sas_token is not None:
        account = _find(options, "account_name")
        endpoint = _find(options, "endpoint") or (f"https://{account}.blob.core.windows.net" if account else None)
        if endpoint is None:
            raise ConfigError(f"{name}: a SAS token needs an account name or an endpoint")
        url = "/".join([endpoint.rstrip("/"), container, *([quote(folder, safe="/-_.~")] if folder else [])])
    return AzureWriter(
        store,
        make_client(name, options, machine, counts),
        counts,
        machine,
        sas_token=sas_token,
        url=url,
        tier=options.storage_class,
        encryption_scope=options.encryption_key,
    )


def _find(options: StoreOptions, *names: str) -> str | None:
    """An option in obstore's words, then its environment."""
    spelt = [f"{prefix}{name}" for name in names for prefix in ("", "azure_storage_", "azure_")]
    for name in spelt:
        if found := options.config.get(name):
            return found
    return next(
        (found for name in spelt if name.startswith("azure_") and (found := os.environ.get(name.upper()))), None
    )
