"""The contract of storage managers over ours: every backend that needs no server, every layout, every transform; over a
third party's store; and over a third party's whole manager.
"""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import Iterator

import pytest

from tests.contract.folder_manager import FolderStorageManager
from tests.contract.loop_manager import LoopStorageManager
from tests.contract.storage_manager_suite import StorageManagerContract
from tests.support.manager_configs import BASE, SHAPES, local_keys
from tests.support.servers import StoreServer
from tierlog.remote.api import RemoteStorageManager
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.stores.store_urls import open_store
from tierlog.testing import MemoryStorageManager


class TestLocal(StorageManagerContract):
    """A folder."""

    @pytest.fixture(params=SHAPES)
    def manager(self, request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[RemoteStorageManager]:
        with TieredStorageManager() as manager:
            manager.configure(local_keys(tmp_path / "store") | SHAPES[request.param])
            yield manager


class TestMemory(StorageManagerContract):
    """Memory of this process."""

    @pytest.fixture(params=["aiven-plain", "aiven-zstd-aes", "kafka"])
    def manager(self, request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[RemoteStorageManager]:
        store = open_store(f"memory://{uuid.uuid4()}")
        with TieredStorageManager(wrap_store=lambda _: store) as manager:
            manager.configure(local_keys(tmp_path / "unused") | SHAPES[request.param])
            yield manager


class TestThirdPartyStore(StorageManagerContract):
    """A store that is named by its class, as HDFS would be."""

    @pytest.fixture(params=["aiven-zstd-aes", "kafka"])
    def manager(self, request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[RemoteStorageManager]:
        (tmp_path / "store").mkdir()
        keys = {
            "storage.backend.class": "tests.contract.hdfs_store.FolderStore",
            "storage.folder": str(tmp_path / "store"),
        }
        with TieredStorageManager() as manager:
            manager.configure(BASE | keys | SHAPES[request.param])
            yield manager


class TestThirdPartyManager(StorageManagerContract):
    """A whole manager of another's: the suite judges the interface, not our classes."""

    @pytest.fixture
    def manager(self, tmp_path: pathlib.Path) -> Iterator[RemoteStorageManager]:
        (tmp_path / "store").mkdir()
        with FolderStorageManager() as manager:
            manager.configure({"folder": str(tmp_path / "store")})
            yield manager


class TestTesting(StorageManagerContract):
    """The one that third parties test against: else their tests hold for no other manager."""

    @pytest.fixture
    def manager(self) -> Iterator[RemoteStorageManager]:
        with MemoryStorageManager() as manager:
            manager.configure({})
            yield manager


class TestOnEventLoops(StorageManagerContract):
    """Awaited, on asyncio's loop and on uvloop's."""

    @pytest.fixture(params=[("asyncio", "aiven-zstd-aes"), ("uvloop", "aiven-plain"), ("uvloop", "aiven-cached")])
    def manager(self, request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[RemoteStorageManager]:
        loop, shape = request.param
        with LoopStorageManager(loop) as manager:
            manager.configure(local_keys(tmp_path / "store") | SHAPES[shape])
            yield manager


@pytest.mark.server
class TestS3(StorageManagerContract):
    """A real S3 server."""

    @pytest.fixture(params=["aiven-plain", "aiven-zstd-aes", "kafka"])
    def manager(
        self, request: pytest.FixtureRequest, s3: StoreServer, tmp_path: pathlib.Path
    ) -> Iterator[RemoteStorageManager]:
        store = open_store(f"{s3.url}/contract/{uuid.uuid4()}", s3.options)
        with TieredStorageManager(wrap_store=lambda _: store) as manager:
            manager.configure(local_keys(tmp_path / "unused") | SHAPES[request.param])
            yield manager
