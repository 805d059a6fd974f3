"""Remote reads in real threads: over our storage manager and its memory, and over managers of a third party's."""

from __future__ import annotations

import contextlib
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from typing_extensions import Buffer

from tests.contract.dict_metadata_manager import DictMetadataManager
from tests.contract.folder_manager import FolderStorageManager
from tests.support.living_logs import batch_of
from tests.support.manager_configs import local_keys
from tests.support.tiered_log import MIB, joined
from tests.support.waiting import wait_until
from tierlog.log.local import LogDirectory
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records import scan
from tierlog.remote import TieredStorageManager
from tierlog.remote.api import RemoteLogMetadataManager, RemoteStorageManager, TopicIdPartition, Uuid
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.pending_reads import RemoteRead
from tierlog.remote.manager.remote_log_manager import RemoteLogManager
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.runtime.machine.scheduling import CancelledError
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic

PARTITION = TopicIdPartition(Uuid(bytes(15) + b"\1"), "orders", 0)
TIERED = LogConfig(
    remote_storage_enable=True,
    index_interval_bytes=1,
    retention_ms=-1,
    local_retention_ms=-2,
    local_retention_bytes=0,
    file_delete_delay_ms=0,
)
BATCHES, SEGMENTS = 40, 3


@dataclass
class Gate:
    """A gate that readers of a store wait for."""

    opened: threading.Event = field(default_factory=threading.Event)
    waiting: int = 0

    def __post_init__(self) -> None:
        self.opened.set()


class GatedStore(PassingStore):
    """A store whose ranges come once a gate is open: as of a bucket, whose reads can be ended."""

    def __init__(self, store: ObjectStore, gate: Gate) -> None:
        super().__init__(store)
        self._gate = gate

    @property
    def is_local(self) -> bool:
        return False

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        self._gate.waiting += 1
        assert self._gate.opened.wait(60)
        self._gate.waiting -= 1
        return super().fetch_range(key, start_position=start_position, end_position_exclusive=end_position_exclusive)


def ours(folder: pathlib.Path, gate: Gate) -> tuple[RemoteStorageManager, RemoteLogMetadataManager]:
    storage = TieredStorageManager(wrap_store=lambda store: GatedStore(store, gate))
    storage.configure(local_keys(folder / "bucket") | {"fetch.prefetch.enabled": "false"})
    metadata = TopicBasedRemoteLogMetadataManager(open_logs=lambda _config, **_: MemoryMetadataTopic(1))
    metadata.configure({"log.dir": str(folder), "remote.log.metadata.topic.num.partitions": 1, "broker.id": 1})
    return storage, metadata


def a_third_partys(folder: pathlib.Path, _gate: Gate) -> tuple[RemoteStorageManager, RemoteLogMetadataManager]:
    (folder / "their").mkdir()
    storage, metadata = FolderStorageManager(), DictMetadataManager()
    storage.configure({"folder": str(folder / "their")})
    metadata.configure({})
    return storage, metadata


Opened = Callable[[pathlib.Path, Gate], tuple[RemoteStorageManager, RemoteLogMetadataManager]]


@contextlib.contextmanager
def tiered_broker(
    folder: pathlib.Path, opened: Opened = ours, gate: Gate | None = None, **config: int
) -> Iterator[tuple[RemoteLogManager, UnifiedLog, bytes]]:
    """A manager whose partition has three segments in the tier alone, and what was copied."""
    storage, metadata = opened(folder, gate or Gate())
    with LogDirectory.open(
        str(folder / "logs"), config=TIERED, remote_log_enabled=True, is_sole_replica=True, runs_tasks=False
    ) as directory:
        log = directory.log("orders", 0, topic_id=PARTITION.topic_id)
        log.assign_epoch_start_offset(0, 0)
        copied = b""
        for _ in range(SEGMENTS):
            for _ in range(BATCHES):
                data = batch_of(b"v" * 1000)
                log.append_as_leader(data, leader_epoch=0)
                copied += bytes(data)
            log.roll()
        log.append_as_leader(batch_of(b"last"), leader_epoch=0)
        with RemoteLogManager(
            RemoteLogManagerConfig(task_interval_ms=50, **config),
            broker_id=1,
            storage=storage,
            metadata=metadata,
            find_log={PARTITION: log}.get,
        ) as manager:
            manager.on_leadership_change({PARTITION}, frozenset())
            wait_until(lambda: log.highest_offset_in_remote_storage == BATCHES * SEGMENTS - 1)
            log.delete_old_segments()
            yield manager, log, copied


@pytest.mark.parametrize("opened", [ours, a_third_partys])
def test_many_consumers_read_all(opened: Opened, tmp_path: pathlib.Path) -> None:
    """If this fails, consumers side by side get each other's bytes, or lose some, over one of the managers."""
    with tiered_broker(tmp_path, opened, reader_threads=8) as (manager, log, copied):

        def consume(max_bytes: int) -> bytes:
            got, offset = b"", 0
            while offset < log.local_log_start_offset:
                asked = RemoteRead(PARTITION, offset, max_bytes)
                (found,) = manager.read([asked], max_wait_ms=30_000).result(60)
                assert found.error is None, found
                data = joined(found)
                table = scan(data)
                got += data[: int(table.position[-1] + table.size_bytes[-1])]
                offset = found.data.last_offset + 1
            return got

        results: list[bytes] = []
        threads = [
            threading.Thread(target=lambda size=size: results.append(consume(size)))  # type: ignore[misc]
            for size in (1, 3000, 50_000, MIB) * 2
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert results == [copied] * 8


def test_all_comes_back_however_a_read_ends(tmp_path: pathlib.Path) -> None:
    """If this fails, clients that go, deadlines or a close leave memory, threads, places in the queue or streams."""
    gate = Gate()
    with tiered_broker(tmp_path, gate=gate, reader_threads=4, reader_max_pending_tasks=100) as (manager, _, _):
        assert manager.read([RemoteRead(PARTITION, 0, 1)], max_wait_ms=30_000).result(30)[0].data.size_bytes
        storage = manager.storage
        assert isinstance(storage, TieredStorageManager)
        budget, pool = storage._configured().fetcher._budget, manager._reads.pool
        gate.opened.clear()
        pending = [
            manager.read([RemoteRead(PARTITION, offset, 5000)], max_wait_ms=60_000 if offset % 2 else 300)
            for offset in range(60)
        ]
        wait_until(lambda: gate.waiting > 0 and pool.running == 4)
        assert (pool.running, pool.waiting) == (4, 56)
        assert budget.held_bytes > 0
        began = time.monotonic()
        for each in pending[::2]:
            (found,) = each.result(10)
            assert (found.error, found.data.size_bytes) == (None, 0)
        assert time.monotonic() - began < 5
        for each in pending[1::2]:
            assert each.cancel()
            with pytest.raises(CancelledError):
                each.result(1)
        assert (len(manager._reads), pool.waiting) == (0, 0)
        wait_until(lambda: pool.running == 0)
        gate.opened.set()
        wait_until(lambda: budget.held_bytes == 0)
        (found,) = manager.read([RemoteRead(PARTITION, 50, MIB)], max_wait_ms=30_000).result(30)
        assert found.data.size_bytes > 0

        gate.opened.clear()
        last = manager.read([RemoteRead(PARTITION, 90, MIB)], max_wait_ms=60_000)
        wait_until(lambda: gate.waiting > 0)
        manager._terms.end_all()
        assert last.result(5)[0].error is not None
        gate.opened.set()
        wait_until(lambda: budget.held_bytes == 0 and pool.running == 0)
