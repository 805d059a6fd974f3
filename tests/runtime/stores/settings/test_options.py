"""Options of stores: ours, and obstore's own."""

from __future__ import annotations

import ast
import dataclasses
import pathlib
from datetime import timedelta

import obstore
import pytest

from tests.support.checkout import ROOT, needs_checkout
from tierlog.config_keys import rows
from tierlog.errors import ConfigError
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.runtime.stores.settings.keys import KEYS_BY_SCHEME, ClientKeys, OwnKeys
from tierlog.runtime.stores.settings.options import StoreOptions, read_store_options
from tierlog.runtime.stores.store_urls import address_store, open_store, split_last


@pytest.fixture(autouse=True)
def no_ambient_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/aws/credentials")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/aws/config")


def read(scheme: str, files: MemoryFiles | None = None, **options: str) -> StoreOptions:
    return read_store_options(scheme, {k.replace("__", "."): v for k, v in options.items()}, files or MemoryFiles())


def test_every_call_has_a_time_limit_and_bounded_retries() -> None:
    """If this fails, a store that stalls hangs the reader for ever."""
    made = read("s3")
    assert made.client == {"timeout": "30s", "connect_timeout": "5s"}
    retries = made.retry_config()
    assert retries["max_retries"] > 1000, "the time alone counts"
    assert retries["retry_timeout"] + retries["backoff"]["max_backoff"] == timedelta(seconds=90)
    made = read("s3", store__timeout="2s", store__max_retries="1", store__retry_timeout="500ms")
    assert made.client["timeout"] == "2s"
    retries = made.retry_config()
    assert retries["max_retries"] == 1
    assert retries["retry_timeout"] + retries["backoff"]["max_backoff"] == timedelta(milliseconds=500)
    backoff = read("s3", store__retry_timeout="0s").retry_config()["backoff"]
    assert timedelta() < backoff["init_backoff"] <= backoff["max_backoff"], "obstore panics at a pause of nothing"


def test_the_region_of_the_usual_aws_files() -> None:
    """If this fails, a user of the aws command line must type the region again."""
    files = MemoryFiles()
    files.put("/aws/config", b"[default]\nregion = eu-west-3\n")
    assert read_store_options("s3", {}, files).config == {"region": "eu-west-3"}
    assert read_store_options("s3", {"store.region": "mine"}, files).config == {"region": "mine"}
    files.put("/aws/config", b"no section")
    with pytest.raises(ConfigError, match="/aws/config"):
        read_store_options("s3", {}, files)


@pytest.mark.parametrize(
    ("scheme", "options", "told"),
    [
        ("s3", {"store.max_retries": "many"}, "number"),
        ("s3", {"store.retry_timeout": "soon"}, "duration"),
        ("s3", {"stroe.region": "x"}, r"unknown store option stroe\.region; .*store\.region"),
        ("s3", {"storage.s3.region": "x"}, "unknown store option storage"),
        ("s3", {"store.endpoint": "https://s3cret@h/x"}, "endpoint: a login does not belong"),
        ("gs", {"store.base_url": "https://u:s3cret@h"}, "base_url: a login does not belong"),
        ("s3", {"store.proxy_url": "socks5h://u:s3cret@h:1080"}, r"store\.proxy_url: an http or https URL .*SOCKS"),
        ("az", {"store.proxy_url": "u:s3cret@h:3128"}, "an http or https URL is expected"),
    ],
)
def test_wrong_values(scheme: str, options: dict[str, str], told: str) -> None:
    """If this fails, a mistake shows up as a store that cannot be reached, or quotes a secret."""
    with pytest.raises(ConfigError, match=told) as caught:
        read_store_options(scheme, options, MemoryFiles())
    assert "s3cret" not in str(caught.value)


def test_a_login_in_an_endpoint_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be sent beside the signature, and the store's errors would name it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:s3cret@h:9")
    with pytest.raises(ConfigError, match="AWS_ENDPOINT_URL: a login does not belong") as caught:
        read_store_options("s3", {}, MemoryFiles())
    assert "s3cret" not in str(caught.value)
    assert read_store_options("gs", {"store.base_url": "https://h/a@b"}, MemoryFiles()).config["base_url"]


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("s3://bucket", {"store.no_such_key": "s3cret"}, "no_such_key"),
        ("az://container", {"store.account_name": "a", "store.account_key": "!s3cret"}, "az://container"),
        ("s3://", {}, "bucket is missing"),
        ("s3://id:s3cret@bucket/x", {}, "credentials do not belong"),
        ("hdfs://x/y", {}, "unknown scheme hdfs"),
        ("file://host/x", {}, "file:///"),
    ],
)
def test_stores_that_cannot_be_made(url: str, options: dict[str, str], told: str) -> None:
    """If this fails, a wrong option is a traceback of a library that the user does not know."""
    with pytest.raises(ConfigError, match=told) as caught:
        open_store(url, options)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "folder", "name"),
    [
        ("s3://b/x/y.log", "s3://b/x", "y.log"),
        ("s3a://b/x/", "s3://b", "x"),
        ("s3://b", "", ""),
        ("/x/y/z.log", "/x/y", "z.log"),
        ("file:///x/y", "/x", "y"),
        ("/", "", ""),
    ],
)
def test_the_folder_above(url: str, folder: str, name: str) -> None:
    """If this fails, one file, or the folder of one partition, does not open."""
    assert split_last(url) == (folder, name)


def test_an_address_is_what_obstore_would_be_given_without_this_machines_own_keys() -> None:
    """If this fails, Spark's executors read with the driver's keys, or these reach plans and event logs."""
    files = MemoryFiles()
    files.put("/aws/credentials", b"[default]\naws_access_key_id=ambient\naws_secret_access_key=ambient\n")
    options = {"store.region": "eu-north-1", "store.timeout": "2s", "store.retry_timeout": "1.5s"}
    address = address_store("s3a://bucket/a b/", options, machine=Machine(files=files))
    assert (address.kind, address.url) == ("object", "s3://bucket/a b")
    assert address.options == {
        "region": "eu-north-1",
        "timeout": "2s",
        "connect_timeout": "5s",
        "retry_timeout": "1500ms",
    }
    assert "eu-north-1" not in repr(address)
    local = address_store("file:///tmp", options, machine=Machine(files=files))
    assert (local.kind, local.url, local.options) == ("local", "/tmp", {})
    with pytest.raises(ConfigError, match="memory://x"):
        address_store("memory://x")


class TestTheTableOfKeys:
    """What the reference page is made of."""

    @needs_checkout
    def test_what_is_read_is_on_the_page(self) -> None:
        """A key that works and is nowhere to be found helps nobody."""
        assert rows(OwnKeys).keys() <= {field.name for field in dataclasses.fields(StoreOptions)}
        page = (ROOT / "docs" / "configuration.md").read_text()
        for table in (OwnKeys, ClientKeys, *KEYS_BY_SCHEME.values()):
            for name in rows(table):
                assert f"| `store.{name}` |" in page

    @pytest.mark.parametrize(
        ("scheme", "file", "kind"),
        [("s3", "_aws", "S3Config"), ("gs", "_gcs", "GCSConfig"), ("az", "_azure", "AzureConfig")],
    )
    def test_the_table_has_what_the_store_takes(self, scheme: str, file: str, kind: str) -> None:
        """A key that obstore came to know is found on the page, or this test says that it is not."""
        given_otherwise = {"bucket", "container_name"}
        assert set(rows(KEYS_BY_SCHEME[scheme])) == typed_keys(file, kind) - given_otherwise
        assert set(rows(ClientKeys)) == typed_keys("_client", "ClientConfig") - {"default_headers"}

    @pytest.mark.parametrize(("scheme", "url"), [("s3", "s3://b"), ("gs", "gs://b"), ("az", "az://c")])
    def test_a_misspelt_key_names_the_nearest(self, scheme: str, url: str) -> None:
        """A limit that is misspelt must not be one that silently does not hold."""
        more = {"store.account_name": "a"} if scheme == "az" else {}
        with pytest.raises(ConfigError, match=r"unknown store option store\.chekcsums; .*store\.checksums"):
            open_store(url, more | {"store.chekcsums": "md5"})

    def test_a_folder_knows_the_keys_of_all_stores_and_no_others(self, tmp_path: pathlib.Path) -> None:
        """One file of keys serves a folder and a bucket; a misspelt key serves neither."""
        for key in ("store.region", "store.timeout", "store.aws_region", "store.durable"):
            open_store(str(tmp_path), {key: "true"}).close()
        assert "NOT fsynced" in str(open_store(str(tmp_path), {"store.durable": "FALSE"}).capabilities("k"))  # type: ignore[attr-defined]
        with pytest.raises(ConfigError, match=r"store\.durable"):
            open_store(str(tmp_path), {"store.durabel": "false"})
        with pytest.raises(ConfigError, match="true or false"):
            open_store(str(tmp_path), {"store.durable": "no"})


def typed_keys(file: str, kind: str) -> set[str]:
    """Of a TypedDict in obstore's stubs."""
    tree = ast.parse((pathlib.Path(obstore.__file__).parent / "_store" / f"{file}.pyi").read_text())
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind]
    return {
        node.target.id for node in found.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


@pytest.mark.parametrize(
    ("scheme", "options", "environment"),
    [
        ("s3", {"store.endpoint": "http://h"}, {}),
        ("s3", {"store.aws_endpoint_url_s3": "http://h"}, {}),
        ("s3", {}, {"AWS_ENDPOINT_URL": "http://h"}),
        ("gs", {}, {"GOOGLE_BASE_URL": "http://h"}),
        ("az", {}, {"AZURE_STORAGE_ENDPOINT": "http://h"}),
    ],
)
def test_an_address_without_tls(
    scheme: str, options: dict[str, str], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, a server in the cluster is a "builder error" for whoever names it as awscli takes it."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert read_store_options(scheme, options, MemoryFiles()).client["allow_http"] == "true"
    with pytest.raises(ConfigError, match=r"http://, which store\.allow_http=false refuses"):
        read_store_options(scheme, options | {"store.allow_http": "false"}, MemoryFiles())


def test_the_address_of_who_gives_keys_is_not_the_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a machine that asks for its role without TLS may send the store's requests without it too."""
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254")
    assert "allow_http" not in read("s3", store__metadata_endpoint="http://169.254.169.254").client
