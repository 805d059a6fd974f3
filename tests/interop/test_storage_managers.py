"""The contract of storage managers over real Azure and Google servers (S3's is in the default run)."""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import Iterator

import pytest

from tests.contract.storage_manager_suite import StorageManagerContract
from tests.support.manager_configs import SHAPES, local_keys
from tests.support.servers import StoreServer
from tierlog.remote.api import RemoteStorageManager
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.stores.store_urls import open_store

pytestmark = [pytest.mark.interop, pytest.mark.server]


class TestOtherClouds(StorageManagerContract):
    """Azurite and fake-gcs-server."""

    @pytest.fixture(params=["azure", "gcs"])
    def server(self, request: pytest.FixtureRequest) -> StoreServer:
        found: StoreServer = request.getfixturevalue(request.param)
        return found

    @pytest.fixture(params=["aiven-plain", "aiven-zstd-aes", "kafka"])
    def manager(
        self, request: pytest.FixtureRequest, server: StoreServer, tmp_path: pathlib.Path
    ) -> Iterator[RemoteStorageManager]:
        store = open_store(f"{server.url}/contract/{uuid.uuid4()}", server.options)
        with TieredStorageManager(wrap_store=lambda _: store) as manager:
            manager.configure(local_keys(tmp_path / "unused") | SHAPES[request.param])
            yield manager
