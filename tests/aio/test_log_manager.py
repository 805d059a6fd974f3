"""The awaited RemoteLogManager: every call, on both loops, and what a cancelled one leaves."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from tests.contract.dict_metadata_manager import DictMetadataManager
from tests.contract.folder_manager import FolderStorageManager
from tests.support.living_logs import batch_of
from tests.support.loops import run_on
from tests.support.managed_broker import NONE, TIERED, TOPIC_ID
from tierlog.aio import AsyncRemoteLogManager
from tierlog.errors import ConfigError
from tierlog.log.local.log_directory import LogDirectory
from tierlog.remote import (
    RemoteLogManager,
    RemoteLogManagerConfig,
    RemoteLogSegmentMetadata,
    RemoteRead,
    RetriableRemoteStorageException,
    SegmentStream,
    StopPartition,
    TopicIdPartition,
)

PARTITION = TopicIdPartition(TOPIC_ID, "orders", 0)


class GatedStorage(FolderStorageManager):
    """Reads wait until the test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = True

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> SegmentStream:
        if not self.is_open:
            raise RetriableRemoteStorageException("not now")
        return super().fetch_log_segment(metadata, start_position, end_position)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_every_call(tmp_path: pathlib.Path, loop: str) -> None:
    """A broker on an event loop: nothing blocks it, and a read that is not wanted any more ends."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "tier").mkdir()
    storage, metadata = GatedStorage(), DictMetadataManager()
    storage.configure({"folder": str(tmp_path / "tier")})
    with LogDirectory.open(
        str(tmp_path / "logs"), config=TIERED, remote_log_enabled=True, runs_tasks=False
    ) as directory:
        log = directory.log("orders", 0, topic_id=TOPIC_ID)
        log.assign_epoch_start_offset(0, 0)
        for _ in range(3):
            log.append_as_leader(batch_of(*[b"value"] * 10), leader_epoch=0)
            log.roll()
        manager = RemoteLogManager(
            RemoteLogManagerConfig(task_interval_ms=10, task_retry_backoff_ms=10),
            broker_id=1,
            storage=storage,
            metadata=metadata,
            find_log=lambda of: log if of == PARTITION else None,
        )

        async def live() -> None:
            async with AsyncRemoteLogManager(manager) as awaited:
                awaited.on_leadership_change({PARTITION}, NONE, metadata_partitions={0})
                while log.highest_offset_in_remote_storage < 29:  # noqa: ASYNC110 - it is another thread's to change
                    await asyncio.sleep(0.01)
                assert (await awaited.health()).uncopied is None
                log.delete_old_segments()
                (result,) = await awaited.read([RemoteRead(PARTITION, 0, max_bytes=1 << 20)], max_wait_ms=10_000)
                assert result.error is None
                assert result.data.first_offset == 0
                found = await awaited.list_offsets(PARTITION, 0)
                assert found is not None
                assert found.offset == 0
                storage.is_open = False
                reading = awaited.read([RemoteRead(PARTITION, 10, max_bytes=1 << 20)], max_wait_ms=60_000)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(reading, 0.2)
                storage.is_open = True
                assert await awaited.on_config_change({PARTITION}) == {}
                stop = StopPartition(PARTITION, delete_local_log=True, delete_remote_log=True)
                assert await awaited.stop_partitions([stop]) == {}
                await awaited.aclose()

        run_on(loop, live)
    assert not [each for each in (tmp_path / "tier").rglob("*") if each.is_file()]


def test_open() -> None:
    """Its errors are those of the blocking call."""

    async def opens() -> None:
        await AsyncRemoteLogManager.open({}, broker_id=1, cluster_id="c", find_log=lambda _: None)

    with pytest.raises(ConfigError, match="no tiered storage"):
        run_on("asyncio", opens)
