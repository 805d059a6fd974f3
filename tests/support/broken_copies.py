"""A bucket of a real S3 server behind a proxy that breaks requests, for copies."""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.closed_segments import ClosedSegment
from tests.support.fault_proxy import PATIENT, FaultProxy
from tests.support.manager_configs import SHAPES, local_keys
from tests.support.servers import StoreServer
from tierlog.remote.config import read_storage_config
from tierlog.remote.config.storage_keys import storage_options
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.store_urls import open_store

PART = 5 << 20


@dataclass
class Broken:
    """A bucket behind a proxy, and the same one without."""

    proxy: FaultProxy
    sound: ObjectStore
    url: str
    options: dict[str, str]

    def manager(self, tmp_path: pathlib.Path, shape: str = "aiven-plain", **options: str) -> TieredStorageManager:
        named = {key: options.pop(key) for key in list(options) if key.startswith("storage.")}
        keys = self.options | {"store.endpoint": self.proxy.endpoint} | PATIENT | options
        store = open_store(self.url, keys, begin=storage_options(read_storage_config(named)))
        manager = TieredStorageManager(wrap_store=lambda _: store)
        sizes = {"upload.part.size": str(PART), "chunk.size": str(1 << 20)}
        manager.configure(local_keys(tmp_path / "unused") | SHAPES[shape] | sizes)
        return manager

    def names(self) -> list[str]:
        return sorted(info.key.rpartition(".")[2] for info in self.sound.iter_objects())

    def require_nothing(self) -> None:
        assert self.names() == []
        assert list(self.sound.iter_uploads()) == []


@pytest.fixture
def broken(s3: StoreServer) -> Iterator[Broken]:
    url = f"{s3.url}/copies/{uuid.uuid4()}"
    with FaultProxy.before(s3) as proxy:
        sound = open_store(url, s3.options)
        sound.put("warm", b"")
        sound.delete(["warm"])
        yield Broken(proxy, sound, url, dict(s3.options))
        sound.close()


def require_copied(broken: Broken, manager: TieredStorageManager, segment: ClosedSegment) -> None:
    custom = manager.copy_log_segment_data(segment.metadata, segment.data)
    broken.proxy.clear()
    with manager.fetch_log_segment(segment.finished(custom), 0) as stream:
        assert stream.read() == segment.log
    assert broken.names() == ["indexes", "log", "rsm-manifest"]
    assert list(broken.sound.iter_uploads()) == []
