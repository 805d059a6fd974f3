"""The plugin's ``storage.*`` keys, as a store is opened with them."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from tierlog.errors import ConfigError
from tierlog.remote.config import read_storage_config
from tierlog.remote.config.storage_keys import storage_options
from tierlog.remote.tier.configured_store import address_configured_store
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.runtime.stores.settings.options import StoreOptions, read_store_options
from tierlog.runtime.stores.store_urls import open_store


@pytest.fixture(autouse=True)
def no_ambient_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/aws/credentials")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/aws/config")


def read(scheme: str, keys: dict[str, str], files: MemoryFiles | None = None, **own: str) -> StoreOptions:
    options = {f"store.{name}": value for name, value in own.items()}
    return read_store_options(scheme, options, files or MemoryFiles(), begin=storage_options(read_storage_config(keys)))


def test_the_plugins_s3_keys() -> None:
    """If this fails, a broker's configuration does not reach its own bucket."""
    options = {
        "storage.s3.region": "eu-north-1",
        "storage.s3.endpoint.url": "http://127.0.0.1:9000/",
        "storage.s3.path.style.access.enabled": "true",
        "storage.s3.api.call.attempt.timeout": "1500",
        "storage.s3.api.call.timeout": "9000",
        "storage.aws.access.key.id": "id",
        "storage.aws.secret.access.key": "secret",
        "storage.aws.certificate.check.enabled": "FALSE",
        "storage.gcs.endpoint.url": "https://not.for.us",
    }
    made = read("s3", options)
    assert made.config == {
        "region": "eu-north-1",
        "endpoint": "http://127.0.0.1:9000",
        "virtual_hosted_style_request": "false",
        "access_key_id": "id",
        "secret_access_key": "secret",
    }
    assert made.client["allow_http"] == "true"
    assert made.client["allow_invalid_certificates"] == "true"
    assert made.client["timeout"] == "1500ms"
    assert made.retry_timeout == timedelta(seconds=9)
    begin = storage_options(read_storage_config(options))
    open_store("s3://bucket/folder", begin=begin, machine=Machine(files=MemoryFiles())).close()
    chosen = {"storage.aws.credentials.provider.class": "profile"}
    assert read("s3", chosen).credentials_source == "profile"


def test_credential_files() -> None:
    """If this fails, credentials that a broker reads from a file are not found here."""
    files = MemoryFiles()
    files.put(
        "/aws.properties", b"aws.access.key.id=a\nrsm.config.storage.aws.access.key.id=b\naws.secret.access.key=c"
    )
    made = read("s3", {"storage.aws.credentials.file": "/aws.properties"}, files)
    assert made.credentials_file == "/aws.properties"
    address = address_configured_store(
        "s3://b", read_storage_config({"storage.aws.credentials.file": "/aws.properties"}), machine=Machine(files=files)
    )
    assert (address.options["access_key_id"], address.options["secret_access_key"]) == ("b", "c")
    files.put("/gcs.json", b'{"access_token": "t"}')
    assert read("gs", {"storage.gcs.credentials.path": "/gcs.json"}, files).config == {"bearer_token": "t"}
    account = json.dumps({"type": "service_account"})
    assert read("gs", {"storage.gcs.credentials.json": account}, files).config == {"service_account_key": account}
    with pytest.raises(ConfigError, match=r"credentials\.file: cannot read /none"):
        read("s3", {"storage.aws.credentials.file": "/none"}, files)


def test_a_stores_own_key_wins() -> None:
    """If this fails, a user who overrides one key of a broker's configuration reads with the broker's."""
    keys = {"storage.s3.region": "theirs", "storage.s3.api.call.timeout": "9000", "storage.s3.endpoint.url": "http://h"}
    made = read("s3", keys, region="mine", retry_timeout="2s")
    assert made.config == {"region": "mine", "endpoint": "http://h"}
    assert made.retry_timeout == timedelta(seconds=2)
    config = read_storage_config(
        {f"rsm.config.{name}": value for name, value in keys.items()} | {"store.region": "mine"}
    )
    assert address_configured_store("s3://b", config).options["region"] == "mine"


def test_azure() -> None:
    """If this fails, a broker's Azure account is not reached."""
    text = "DefaultEndpointsProtocol=http;AccountName=acc;AccountKey=a2V5PT0=;BlobEndpoint=http://127.0.0.1:1/acc;"
    made = read("az", {"storage.azure.connection.string": text})
    assert made.config == {"account_name": "acc", "account_key": "a2V5PT0=", "endpoint": "http://127.0.0.1:1/acc"}
    text = "BlobEndpoint=https://acc.blob.core.windows.net/;QueueEndpoint=https://acc.queue.core.windows.net/;"
    made = read("az", {"storage.azure.connection.string": f"{text}SharedAccessSignature=sv=1&sig=x%3D"})
    assert made.config == {
        "account_name": "acc",
        "sas_key": "sv=1&sig=x%3D",
        "endpoint": "https://acc.blob.core.windows.net",
    }, "as Azure's portal makes it"
    made = read("az", {"storage.azure.account.name": "acc", "storage.azure.sas.token": "sig=x"})
    assert made.config == {"account_name": "acc", "sas_key": "sig=x"}


@pytest.mark.parametrize("scheme", ["az", "gs"])
def test_a_socks_proxy_is_refused(scheme: str) -> None:
    """If this fails, a broker in a closed network copies what it cannot read again: obstore has no SOCKS."""
    proxy = {"storage.proxy.host": "h", "storage.proxy.port": "1080"}
    with pytest.raises(ConfigError, match=r"storage\.proxy\.host.*store\.proxy_url"):
        read(scheme, proxy)
    http = "http://h:3128"
    assert read(scheme, proxy | {"store.proxy_url": http}, proxy_url=http).client["proxy_url"] == http
    assert "proxy_url" not in read("s3", proxy).client


@pytest.mark.parametrize(
    ("scheme", "options", "told"),
    [
        ("s3", {"storage.s3.endpoint.url": "ftp://x"}, "http or https"),
        ("s3", {"storage.s3.path.style.access.enabled": "maybe"}, "true or false"),
        ("s3", {"storage.s3.api.call.timeout": "0"}, "at least 1"),
        (
            "s3",
            {"storage.s3.endpoint.url": "http://user:s3cret@h:9"},
            "endpoint.url: a login does not",
        ),
        ("az", {"storage.azure.endpoint.url": "https://u:s3cret@h"}, "a login does not belong"),
        ("az", {"storage.azure.connection.string": "AccountName=a;BlobEndpoint=http://u:s3cret@h"}, "a login does not"),
        ("gs", {"storage.gcs.credentials.path": '{"private_key": "s3cret"}'}, "the path of a file is expected"),
        ("gs", {"storage.gcs.credentials.json": "s3cret"}, "not JSON"),
        ("az", {"storage.azure.connection.string": "AccountKey=s3cret"}, "AccountName"),
        ("az", {"storage.azure.connection.string": "BlobEndpoint=http://h:1;AccountKey=s3cret"}, "AccountName"),
        ("az", {"storage.proxy.host": "h"}, "port"),
    ],
)
def test_wrong_values(scheme: str, options: dict[str, str], told: str) -> None:
    """If this fails, a mistake shows up as a store that cannot be reached, or quotes a secret."""
    with pytest.raises(ConfigError, match=told) as caught:
        read(scheme, options)
    assert "s3cret" not in str(caught.value)
