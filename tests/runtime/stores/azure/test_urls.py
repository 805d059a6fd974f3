"""``abfss://`` and ``wasbs://``: what Spark users have in their notebooks names the same container here."""

from __future__ import annotations

import pytest

from tierlog.errors import ConfigError
from tierlog.remote.config import read_storage_config
from tierlog.remote.tier.configured_store import address_configured_store
from tierlog.runtime.stores.store_urls import StoreAddress, address_store, local_path, open_store, split_last


@pytest.fixture(autouse=True)
def no_ambient_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


def address(url: str, **options: str) -> StoreAddress:
    return address_store(url, {f"store.{name}": value for name, value in options.items()})


@pytest.mark.parametrize(
    "url",
    [
        "abfss://tier@acc.dfs.core.windows.net/a/b/",
        "ABFSS://tier@acc.dfs.core.windows.net/a/b",
        "abfs://tier@acc.dfs.core.windows.net/a/b",
        "abfss://tier@acc.blob.core.windows.net/a/b",
        "wasbs://tier@acc.blob.core.windows.net/a/b",
        "wasb://tier@acc.blob.core.windows.net/a/b",
    ],
)
def test_the_container_and_the_account_are_in_the_url(url: str) -> None:
    """A path that every other Spark source takes would be an unknown scheme, or another account's container."""
    found = address(url)
    assert (found.kind, found.url) == ("object", "az://tier/a/b")
    assert found.options["account_name"] == "acc"
    assert "endpoint" not in found.options
    assert address(url, account_name="acc", account_key="a2V5").options["account_key"] == "a2V5"
    store = open_store(url, {"store.account_key": "a2V5"})
    assert store.describe() == "az://tier/a/b"
    store.close()


@pytest.mark.parametrize(
    ("host", "endpoint"),
    [
        ("acc.dfs.core.chinacloudapi.cn", "https://acc.blob.core.chinacloudapi.cn"),
        ("acc.blob.core.usgovcloudapi.net", "https://acc.blob.core.usgovcloudapi.net"),
        ("acc.z41.dfs.storage.azure.net", "https://acc.z41.blob.storage.azure.net"),
    ],
)
def test_other_clouds_have_their_own_hosts(host: str, endpoint: str) -> None:
    """The account of that name in the public cloud is somebody else's."""
    assert address(f"abfss://tier@{host}/x").options["endpoint"] == endpoint


def test_fabric() -> None:
    """A OneLake path is what a Fabric notebook shows."""
    found = address("abfss://sales@onelake.dfs.fabric.microsoft.com/lake.Lakehouse/Files/tier")
    assert found.url == "az://sales/lake.Lakehouse/Files/tier"
    assert found.options["use_fabric_endpoint"] == "true"
    assert found.options["account_name"] == "onelake"


def test_an_endpoint_that_is_given_wins() -> None:
    """Azurite and private endpoints are reached by the same path."""
    url = "abfss://tier@devstoreaccount1.dfs.core.chinacloudapi.cn/x"
    found = address(url, endpoint="http://127.0.0.1:1/devstoreaccount1")
    assert found.options["endpoint"] == "http://127.0.0.1:1/devstoreaccount1"
    connection = "AccountName=devstoreaccount1;BlobEndpoint=http://127.0.0.1:2/devstoreaccount1"
    found = address_configured_store(url, read_storage_config({"storage.azure.connection.string": connection}))
    assert found.options["endpoint"] == "http://127.0.0.1:2/devstoreaccount1"


def test_without_an_account_it_is_a_container() -> None:
    """``abfss://container/path`` is what fsspec writes; the account comes by option then."""
    assert address("abfss://tier/a", account_name="acc").url == "az://tier/a"


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        (
            "abfss://tier@acc.dfs.core.windows.net",
            {"account_name": "other"},
            "names the account acc, .*account_name other",
        ),
        ("abfss://tier@acc.dfs.core.windows.net", {"azure_storage_account_name": "other"}, "names the account acc"),
        ("abfss://tier@acc.dfs.evil.example/x", {}, r"container@account\.dfs\.core\.windows\.net"),
        ("abfss://tier@acc/x", {}, r"container@account\.dfs\.core\.windows\.net"),
        ("abfss://acc.dfs.core.windows.net/tier", {}, r"container@account\.dfs\.core\.windows\.net"),
        ("wasbs://@acc.blob.core.windows.net/x", {}, "the bucket is missing"),
        ("abfss:///x", {}, "the bucket is missing"),
        ("abfss://me:hunter2@acc.dfs.core.windows.net/x", {}, "credentials do not belong into a path"),
        ("az://tier@acc.dfs.core.windows.net/x", {}, "abfss://"),
        ("adl://tier@acc.dfs.core.windows.net/x", {}, "unknown scheme adl://; known are s3, gs, az, abfss, file"),
    ],
)
def test_what_is_no_such_url_is_refused(url: str, options: dict[str, str], text: str) -> None:
    """A guess would send credentials to a host that nobody meant."""
    with pytest.raises(ConfigError, match=text) as caught:
        address(url, **options)
    assert "hunter2" not in str(caught.value)


def test_folders_above_keep_the_account() -> None:
    """One object, or a partition's folder, is found from the folder above it."""
    url = "abfss://tier@acc.dfs.core.windows.net/a/0001.log"
    assert split_last(url) == ("abfss://tier@acc.dfs.core.windows.net/a", "0001.log")
    assert split_last("abfss://tier@acc.dfs.core.windows.net/") == ("", "")
    assert local_path(url) is None
