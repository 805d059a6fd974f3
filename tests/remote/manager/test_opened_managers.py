"""Managers that a broker's configuration names."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import ClassVar

import pytest

from tests.contract.dict_metadata_manager import DictMetadataManager
from tests.contract.folder_manager import FolderStorageManager
from tierlog.errors import ConfigError
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.opened_managers import OpenedManagers, open_managers
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.machine import Machine

KAFKAS = "io.aiven.kafka.tieredstorage.RemoteStorageManager"
HERE = __name__


class NotedStorage(FolderStorageManager):
    """Notes its keys."""

    given: ClassVar[Mapping[str, object]] = {}
    closed: ClassVar[int] = 0

    def configure(self, configs: Mapping[str, object]) -> None:
        type(self).given = dict(configs)

    def close(self) -> None:
        type(self).closed += 1


class NotedMetadata(DictMetadataManager):
    """Notes its keys, and refuses them if it is told to."""

    given: ClassVar[Mapping[str, object]] = {}

    def configure(self, configs: Mapping[str, object]) -> None:
        type(self).given = dict(configs)
        if "refuse" in configs:
            raise ConfigError("refused")


def opened(given: dict[str, str], **client: str) -> OpenedManagers:
    return open_managers(
        given,
        broker_id=7,
        cluster_id="a-cluster",
        client_configs=client,
        index_cache_bytes=RemoteLogManagerConfig.read(given).index_cache_bytes,
        machine=Machine(),
        registry=None,
    )


def third_partys(**keys: str) -> dict[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": f"{HERE}.NotedStorage",
        "remote.log.metadata.manager.class.name": f"{HERE}.NotedMetadata",
        **keys,
    }


def test_ours(tmp_path: pathlib.Path) -> None:
    """A broker's file as it stands for Kafka and the plugin; the cache of indexes has the broker's size."""
    (tmp_path / "tier").mkdir()
    given = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": KAFKAS,
        "remote.log.storage.manager.class.path": "/opt/plugin/*",
        "rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
        "rsm.config.storage.root": str(tmp_path / "tier"),
        "rsm.config.chunk.size": "4194304",
        "rlmm.config.remote.log.metadata.topic.local.dir": str(tmp_path / "metadata"),
        "remote.log.index.file.cache.total.size.bytes": "12345678",
        "log.dirs": f"{tmp_path}, /elsewhere",
        "num.io.threads": "8",
    }
    for own_size in (None, "999"):
        more = {} if own_size is None else {"rsm.config.fetch.indexes.cache.size": own_size}
        managers = opened(given | more)
        with managers.metadata as metadata, managers.storage as storage:
            assert isinstance(storage, TieredStorageManager)
            assert isinstance(metadata, TopicBasedRemoteLogMetadataManager)
            assert storage._configured().config.fetch_indexes_cache_size == int(own_size or 12345678)


def test_keys_of_a_third_partys() -> None:
    """Its keys come without the prefix, and those that are the broker's own win over whatever a file says."""
    managers = opened(
        third_partys(
            **{
                "rsm.config.root": "/mnt",
                "rlmm.config.remote.log.metadata.common.client.bootstrap.servers": "kafka:9092",
                "rlmm.config.broker.id": "99",
                "log.dir": "/var/lib/kafka",
            }
        ),
        **{"remote.log.metadata.common.client.bootstrap.servers": "localhost:1", "security": "SSL"},
    )
    assert isinstance(managers.storage, NotedStorage)
    assert NotedStorage.given == {"root": "/mnt", "broker.id": 7}
    assert NotedMetadata.given == {
        "remote.log.metadata.common.client.bootstrap.servers": "kafka:9092",
        "security": "SSL",
        "broker.id": 7,
        "log.dir": "/var/lib/kafka",
        "cluster.id": "a-cluster",
    }
    opened(
        third_partys(
            **{
                "remote.log.storage.manager.impl.prefix": "mine.",
                "remote.log.metadata.manager.impl.prefix": "its.",
                "mine.root": "/here",
                "its.url": "there",
                "rsm.config.root": "/mnt",
            }
        )
    )
    assert NotedStorage.given == {"root": "/here", "broker.id": 7}
    assert NotedMetadata.given["url"] == "there"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"remote.log.storage.system.enable": "false"}, "no tiered storage"),
        ({"remote.log.storage.manager.class.name": ""}, "storage.manager.class.name"),
        ({"remote.log.storage.manager.class.name": "org.apache.kafka.Nothing"}, "no counterpart"),
        ({"remote.log.storage.manager.class.name": f"{HERE}.NotedMetadata"}, "is no RemoteStorageManager"),
        ({"remote.log.index.file.cache.total.size.bytes": "0"}, "index.file.cache"),
    ],
)
def test_what_cannot_be_opened(keys: dict[str, str], message: str) -> None:
    """A broker that starts without its tier deletes by local retention what was never copied."""
    with pytest.raises(ConfigError, match=message):
        opened(third_partys() | keys)


def test_nothing_stays_open() -> None:
    """Threads and connections of a manager whose sibling refuses would live as long as the process."""
    before = NotedStorage.closed
    with pytest.raises(ConfigError, match="refused"):
        opened(third_partys(**{"rlmm.config.refuse": "true"}))
    assert NotedStorage.closed == before + 1
