"""One server of each kind for the whole run; each test uploads below a prefix of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers import StoreServer, azurite, fake_gcs, seaweed


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with fake_gcs(tmp_path_factory.mktemp("fake-gcs")) as server:
        yield server
