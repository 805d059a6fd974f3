"""How a container of Azure Blob Storage is opened for writing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import quote

from tierlog.errors import ConfigError
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.azure.faults import find_fault
from tierlog.runtime.stores.azure.writer import AzureWriter
from tierlog.runtime.stores.protocol.request_counts import RequestCounts
from tierlog.runtime.stores.settings.options import StoreOptions
from tierlog.runtime.stores.writing.client_factory import make_client

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
    """The write half of a container; sends nothing yet."""
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
        make_client(name, options, find_fault, machine, counts, extra="azure"),
        counts,
        machine,
        sas_token=sas_token,
        url=url,
        identity=_identity(options),
        tier=options.storage_class,
        encryption_scope=options.encryption_key,
    )


def _identity(options: StoreOptions) -> str:
    account = _find(options, "account_name") or "of the endpoint"
    kinds = {
        "skip_signature": "nobody: requests are not signed",
        "sas_key": "a SAS token",
        "sas_token": "a SAS token",
        "account_key": "the account's shared key",
        "access_key": "the account's shared key",
        "client_secret": "a client's secret",
        "federated_token_file": "a workload identity",
        "use_azure_cli": "the login of the az command",
        "token": "a bearer token",
    }
    kind = next((told for name, told in kinds.items() if _find(options, name)), "the managed identity of this machine")
    client = _find(options, "client_id")
    return f"account {account} by {kind}" + (f", client {client}" if client else "")


def _find(options: StoreOptions, *names: str) -> str | None:
    """The first of these options that is set, in obstore's words; else what its environment says."""
    spelt = [f"{prefix}{name}" for name in names for prefix in ("", "azure_storage_", "azure_")]
    for name in spelt:
        if found := options.config.get(name):
            return found
    return next(
        (found for name in spelt if name.startswith("azure_") and (found := os.environ.get(name.upper()))), None
    )
