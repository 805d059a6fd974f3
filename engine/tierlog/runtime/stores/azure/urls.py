"""``abfss://container@account.dfs.core.windows.net/folder``, as Hadoop and Spark name objects in Azure; ``wasbs`` too.

Such a URL names the account, which ``az://container/folder`` leaves to options. Data is read by the account's blob
service, always over TLS, whatever the scheme says. Only hosts of Azure's own are accepted: a path must not decide on
the host that gets the account's credentials.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tierlog.errors import ConfigError

SCHEMES: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})
_PUBLIC: Final = "core.windows.net"
_CLOUDS: Final = (_PUBLIC, "core.chinacloudapi.cn", "core.usgovcloudapi.net", "core.cloudapi.de", "storage.azure.net")
_FABRIC: Final = "fabric.microsoft.com"
_HOST: Final = re.compile(
    r"(?P<account>[a-z0-9-]+)(?P<zone>(?:\.[a-z0-9-]+)?)\.(?:dfs|blob)\."
    rf"(?P<cloud>{'|'.join(map(re.escape, (*_CLOUDS, _FABRIC)))})"
)
_ACCOUNT_NAMES: Final = ("account_name", "azure_storage_account_name", "azure_account_name")
_ENDPOINTS: Final = ("endpoint", "azure_storage_endpoint", "azure_endpoint")


def split_account(scheme: str, place: str) -> tuple[str, dict[str, str]]:
    """Return the container, and the account of the host as obstore's options.

    Args:
        scheme: Of SCHEMES, for messages.
        place: ``container@host``, or a container alone.

    Raises:
        ConfigError: neither, or the host is none of Azure's.
    """
    container, mark, host = place.rpartition("@")
    if ":" in container:
        raise ConfigError(f"{scheme}://…@…: credentials do not belong into a path: give them as store.* options")
    if not mark and "." not in host:
        return host, {}
    found = _HOST.fullmatch(host.lower()) if mark else None
    if found is None:
        raise ConfigError(
            f"{scheme}://: {scheme}://container@account.dfs.{_PUBLIC}/folder expected, or a container alone"
        )
    account = {"account_name": found["account"]}
    if found["cloud"] == _FABRIC:
        return container, account | {"use_fabric_endpoint": "true"}
    if found["cloud"] == _PUBLIC and not found["zone"]:
        return container, account
    return container, account | {"endpoint": f"https://{found['account']}{found['zone']}.blob.{found['cloud']}"}


def add_account(config: dict[str, str], account: Mapping[str, str]) -> None:
    """Add a URL's account to the options of its store; a configured endpoint wins.

    Raises:
        ConfigError: the options name another account.
    """
    if not account:
        return
    for name in _ACCOUNT_NAMES:
        if config.get(name, account["account_name"]) != account["account_name"]:
            raise ConfigError(
                f"the path names the account {account['account_name']}, the options {name} {config[name]}: leave one"
            )
    has_endpoint = any(name in config for name in _ENDPOINTS)
    config.update({name: value for name, value in account.items() if name == "account_name" or not has_endpoint})
