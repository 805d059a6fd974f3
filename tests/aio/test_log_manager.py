"""The awaited RemoteLogManager: every call, on both loops, and what a cancelled one leaves."""

from __future__ import annotations

import asyncio
import pathlib
import threading
from types import SimpleNamespace

import pytest

from tests.contract.folder_manager import FolderStorageManager
from tests.support.loops import run_on
from tests.support.third_party import PARTITION, third_party_broker
from tests.support.tiered_log import NONE
from tests.support.waiting import ENDLESS_SECONDS, LIMIT_SECONDS
from tierlog.aio import AsyncRemoteLogManager
from tierlog.errors import ConfigError
from tierlog.remote import (
    RemoteLogManager,
    RemoteLogSegmentMetadata,
    RemoteRead,
    RetriableRemoteStorageException,
    SegmentStream,
    StopPartition,
)


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
    storage = GatedStorage()
    with third_party_broker(tmp_path, segments=3, storage=storage) as broker:
        log = broker.log

        async def live() -> None:
            async with AsyncRemoteLogManager(broker.manager) as awaited:
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
    assert not broker.stored_files


def test_a_manager_that_nobody_waits_for_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads would run on, and its directories stay locked: the next try could not open them."""
    opening, may_open, closed = threading.Event(), threading.Event(), threading.Event()

    def slow(*_: object, **__: object) -> SimpleNamespace:
        opening.set()
        assert may_open.wait(ENDLESS_SECONDS)
        return SimpleNamespace(close=closed.set)

    monkeypatch.setattr(RemoteLogManager, "open", slow)

    async def cancelled() -> None:
        task = asyncio.create_task(AsyncRemoteLogManager.open({}))
        assert await asyncio.to_thread(opening.wait, ENDLESS_SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not closed.is_set()
        may_open.set()
        assert await asyncio.to_thread(closed.wait, LIMIT_SECONDS)

    run_on("asyncio", cancelled)


def test_open() -> None:
    """Its errors are those of the blocking call."""

    async def opens() -> None:
        await AsyncRemoteLogManager.open({}, broker_id=1, cluster_id="c", find_log=lambda _: None)

    with pytest.raises(ConfigError, match="no tiered storage"):
        run_on("asyncio", opens)
