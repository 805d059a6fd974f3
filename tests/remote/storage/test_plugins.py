"""Stores and managers by class: ours, a third party's, and what is none."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import pytest

from tests.contract.hdfs_store import FolderStore
from tierlog.errors import ConfigError, ObjectNotFoundError
from tierlog.remote.api import RemoteStorageManager
from tierlog.remote.config import StorageConfig, read_storage_config
from tierlog.remote.storage.plugins import load_storage_manager, open_backend
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.local.store import LocalStore

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
    """If this fails, nobody can bring a store of her own."""
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
        ("tests.remote.storage.test_plugins.NoStore", "is no ObjectStore: "),
        (f"{THIRD}.FolderStore", r"refuses its storage\.\* keys: KeyError"),
        ("tests.remote.storage.test_plugins.Choosy", "too small"),
    ],
)
def test_classes_that_are_no_store(name: str, told: str) -> None:
    """If this fails, a typing error in a class name is a traceback, or fails at the first copy."""
    more = {"storage_folder": "/"} if name.endswith("Choosy") else {}
    with pytest.raises(ConfigError, match=told) as caught:
        open_backend(config(storage_backend_class=name, **more))
    assert "storage.backend.class" in str(caught.value)


def test_managers_by_name() -> None:
    """If this fails, a broker implementer cannot plug in a storage manager of her own."""
    assert type(load_storage_manager("tests.remote.storage.test_plugins.WholeManager")).__name__ == "WholeManager"
    for name, told in (
        ("tests.remote.storage.test_plugins.NoStore", "is no RemoteStorageManager"),
        ("tierlog.remote.api.RemoteStorageManager", "abstract"),
        ("org.apache.kafka.server.log.remote.storage.LocalTieredStorage", "no counterpart"),
    ):
        with pytest.raises(ConfigError, match=told):
            load_storage_manager(name)
