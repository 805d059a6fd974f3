"""The plugin's Java classes in our words."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import pytest

from tests.contract.dict_metadata_manager import DictMetadataManager
from tests.contract.hdfs_store import FolderStore
from tierlog.errors import ConfigError, ObjectNotFoundError
from tierlog.remote import TopicBasedRemoteLogMetadataManager
from tierlog.remote.api import RemoteStorageManager
from tierlog.remote.config import StorageConfig, read_storage_config
from tierlog.remote.config.class_loading import load_metadata_manager, load_storage_manager
from tierlog.remote.tier.configured_store import open_backend
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.local.store import LocalStore

PLUGIN = "io.aiven.kafka.tieredstorage"
CACHE = {"fetch.chunk.cache.size": "1", "fetch.chunk.cache.path": "/cache"}


@pytest.mark.parametrize(
    ("key", "given", "ours"),
    [
        ("storage.backend.class", f"{PLUGIN}.storage.s3.S3Storage", "s3"),
        ("storage.backend.class", f"{PLUGIN}.storage.gcs.GcsStorage", "gcs"),
        ("storage.backend.class", f"{PLUGIN}.storage.azure.AzureBlobStorage", "azure"),
        ("storage.backend.class", f"{PLUGIN}.storage.filesystem.FileSystemStorage", "filesystem"),
        ("storage.backend.class", "filesystem", "filesystem"),
        ("storage.backend.class", "my_stores.hdfs.HdfsStore", "my_stores.hdfs.HdfsStore"),
        ("fetch.chunk.cache.class", f"{PLUGIN}.fetch.cache.MemoryChunkCache", "memory"),
        ("fetch.chunk.cache.class", f"{PLUGIN}.fetch.cache.DiskChunkCache", "disk"),
        ("fetch.chunk.cache.class", f"{PLUGIN}.chunkmanager.cache.DiskBasedChunkCache", "disk"),
        ("chunk.cache.class", f"{PLUGIN}.chunkmanager.cache.InMemoryChunkCache", "memory"),
        (
            "storage.aws.credentials.provider.class",
            "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider",
            "web-identity",
        ),
    ],
)
def test_classes_have_counterparts(key: str, given: str, ours: str) -> None:
    """If this fails, a broker's configuration has to be rewritten by hand."""
    config = read_storage_config({key: given} | CACHE)
    field = key.replace(".", "_") if key.startswith(("storage", "fetch")) else "fetch_chunk_cache_class"
    assert getattr(config, field) == ours


@pytest.mark.parametrize(
    ("key", "given", "told"),
    [
        ("storage.backend.class", f"{PLUGIN}.storage.oci.OciStorage", "no counterpart"),
        (
            "storage.backend.class",
            f"{PLUGIN}.storage.s3.S3Storag",
            f"nearest known one is {PLUGIN}.storage.s3.S3Storage",
        ),
        ("storage.backend.class", "s4", "s3, gcs, azure, filesystem, or the dotted path"),
        ("fetch.chunk.cache.class", "my.Cache", "use one of memory, disk"),
        ("storage.aws.credentials.provider.class", "com.amazonaws.auth.Mine", "no counterpart"),
        ("storage.backend.class", "my stores.Hdfs", "unknown"),
    ],
)
def test_classes_without_one_are_refused(key: str, given: str, told: str) -> None:
    """If this fails, a broker silently uses another store, another cache or other credentials than it was told."""
    with pytest.raises(ConfigError) as caught:
        read_storage_config({key: given} | CACHE)
    assert told in str(caught.value)
    assert key in str(caught.value)


FILES = "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage"
THIRD = "tests.contract.hdfs_store"


class WholeManager(RemoteStorageManager):
    """One of a third party's: it does nothing."""

    configure = copy_log_segment_data = fetch_log_segment = fetch_index = delete_log_segment_data = close = (
        lambda self, *_: None  # type: ignore[assignment]
    )


class NoStore:
    """Lacks all but one."""

    def put(self) -> None:
        """Something."""


class Choosy(FolderStore):
    """Refuses its options with words of its own."""

    def __init__(self, options: Mapping[str, str], machine: Machine) -> None:
        super().__init__(options, machine)
        raise ConfigError("storage.folder: too small")


def config(**keys: str) -> StorageConfig:
    made = read_storage_config({"chunk.size": "1"} | {name.replace("_", "."): value for name, value in keys.items()})
    made.check_for_broker()
    return made


def test_the_plugins_own_backends(tmp_path: pathlib.Path) -> None:
    """If this fails, a broker writes somewhere else than its configuration says."""
    store = open_backend(config(storage_backend_class=FILES, storage_root=str(tmp_path)))
    assert isinstance(store, LocalStore)
    store.put("a/b", b"x")
    assert (tmp_path / "a" / "b").read_bytes() == b"x"
    s3 = config(storage_backend_class="s3", storage_s3_bucket_name="tier", storage_s3_region="eu-west-1")
    assert open_backend(s3).describe().startswith("s3://tier")
    gcs = config(storage_backend_class="gcs", storage_gcs_bucket_name="tier", storage_gcs_credentials_default="false")
    assert open_backend(gcs).describe().startswith("gs://tier")
    azure = config(
        storage_backend_class="azure", storage_azure_container_name="tier", storage_azure_account_name="account"
    )
    assert open_backend(azure).describe().startswith("az://tier")


def test_a_root_that_is_not_there(tmp_path: pathlib.Path) -> None:
    """If this fails, a broker whose mount is missing fills the disk below it."""
    with pytest.raises(ObjectNotFoundError, match="gone"):
        open_backend(config(storage_backend_class=FILES, storage_root=str(tmp_path / "gone")))


def test_a_third_partys_store(tmp_path: pathlib.Path) -> None:
    """If this fails, nobody can bring another store."""
    given = config(storage_backend_class=f"{THIRD}.FolderStore", storage_folder=str(tmp_path))
    store = open_backend(given)
    assert store.put("k", b"v").size_bytes == 1
    assert (tmp_path / "k").read_bytes() == b"v"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("no_such_package.Store", "cannot load no_such_package: ModuleNotFoundError"),
        (f"{THIRD}.Nothing", "has no class Nothing"),
        (f"{THIRD}.translated", "has no class translated"),
        ("tests.remote.config.test_class_loading.NoStore", "is no ObjectStore: "),
        (f"{THIRD}.FolderStore", r"refuses its storage\.\* keys: KeyError"),
        ("tests.remote.config.test_class_loading.Choosy", "too small"),
    ],
)
def test_classes_that_are_no_store(name: str, told: str) -> None:
    """If this fails, a typing error in a class name is a traceback, or fails at the first copy."""
    more = {"storage_folder": "/"} if name.endswith("Choosy") else {}
    with pytest.raises(ConfigError, match=told) as caught:
        open_backend(config(storage_backend_class=name, **more))
    assert "storage.backend.class" in str(caught.value)


def test_managers_by_name() -> None:
    """If this fails, a broker implementer cannot plug in another storage manager."""
    assert type(load_storage_manager("tests.remote.config.test_class_loading.WholeManager")).__name__ == "WholeManager"
    for name, told in (
        ("tests.remote.config.test_class_loading.NoStore", "is no RemoteStorageManager"),
        ("tierlog.remote.api.RemoteStorageManager", "abstract"),
        ("org.apache.kafka.server.log.remote.storage.LocalTieredStorage", "no counterpart"),
    ):
        with pytest.raises(ConfigError, match=told):
            load_storage_manager(name)


THIRD_PLUGINS = "tests.contract.dict_metadata_manager"
KAFKAS = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"


def test_kafkas_class_is_ours() -> None:
    """A broker's file works unchanged."""
    for given in (KAFKAS, "tierlog.remote.TopicBasedRemoteLogMetadataManager"):
        assert isinstance(load_metadata_manager(given), TopicBasedRemoteLogMetadataManager)
    assert isinstance(load_metadata_manager(), TopicBasedRemoteLogMetadataManager)


def test_a_third_partys() -> None:
    """A manager that knows the interface alone."""
    assert isinstance(load_metadata_manager(f"{THIRD_PLUGINS}.DictMetadataManager"), DictMetadataManager)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("org.apache.kafka.server.log.remote.storage.NoOpRemoteLogMetadataManager", "no counterpart"),
        ("nowhere.at.All", "cannot load nowhere.at"),
        (f"{THIRD_PLUGINS}.Missing", "has no class Missing"),
        (f"{THIRD_PLUGINS}.RemoteStorageException", "is no RemoteLogMetadataManager"),
        ("tierlog.remote.RemoteLogMetadataManager", "abstract"),
    ],
)
def test_what_is_none(name: str, said: str) -> None:
    """The key is named, and nothing is guessed."""
    with pytest.raises(ConfigError, match=r"remote\.log\.metadata\.manager\.class\.name") as caught:
        load_metadata_manager(name)
    assert said in str(caught.value)
