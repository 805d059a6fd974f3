"""Whichever thread the system refuses once: the storage manager fails the call, and works from then on."""

from __future__ import annotations

import contextlib
import pathlib
import time
import uuid
from collections.abc import Mapping

import pytest

from tests.support.closed_segments import ClosedSegment
from tests.support.failing_scheduler import FailingScheduler
from tests.support.manager_configs import SHAPES, local_keys
from tests.support.segments import make_segment, sound_log
from tierlog.errors import StoreError
from tierlog.remote.api import IndexType, RemoteStorageException
from tierlog.remote.storage.copy import log_copy
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.thread_scheduler import ThreadScheduler
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.store_urls import open_store
from tierlog.runtime.stores.wrappers.passing_store import PassingStore

SEGMENT = make_segment(sound_log(80, base_offset=100))


class Far(PassingStore):
    is_local = False  # type: ignore[assignment]


@pytest.fixture
def segment(tmp_path: pathlib.Path) -> ClosedSegment:
    return SEGMENT.closed_in(tmp_path / "log")


def round_of(manager: TieredStorageManager, segment: ClosedSegment) -> None:
    """Copy, read in steps, read an index, delete."""
    custom = manager.copy_log_segment_data(segment.metadata, segment.data)
    finished = segment.finished(custom)
    with manager.fetch_log_segment(finished, 0) as stream:
        found = b""
        while part := stream.read(10_000):
            found += part
    assert found == segment.log
    with manager.fetch_index(finished, IndexType.OFFSET) as index:
        assert index.read()
    manager.delete_log_segment_data(finished)


def configured(
    scheduler: FailingScheduler, store: ObjectStore, keys: Mapping[str, object], folder: pathlib.Path
) -> TieredStorageManager:
    manager = TieredStorageManager(machine=Machine(scheduler=scheduler), wrap_store=lambda _: store)
    manager.configure(local_keys(folder) | keys)
    return manager


@pytest.mark.parametrize("limit", [None, 1 << 30])
@pytest.mark.parametrize("is_local", [True, False])
def test_each_thread(
    monkeypatch: pytest.MonkeyPatch, segment: ClosedSegment, tmp_path: pathlib.Path, is_local: bool, limit: int | None
) -> None:
    """If this fails, a minute at the limit of threads ends the reads or copies of a broker until its restart."""
    monkeypatch.setattr(log_copy, "_LOCAL_PART_BYTES", 50_000)
    memory = open_store(f"memory://{uuid.uuid4()}")
    store = memory if is_local else Far(memory)
    keys = SHAPES["aiven-zstd-aes"] | {
        "download.rate.limit.bytes.per.second": limit,
        "fetch.chunk.cache.class": "memory",
        "fetch.chunk.cache.size": 1_000_000,
        "fetch.manifest.cache.get.timeout.ms": 2000,
    }
    at = 0
    while True:
        at += 1
        scheduler = FailingScheduler(ThreadScheduler(), at=0)
        manager = configured(scheduler, store, keys, tmp_path / "unused")
        buffers, budget = manager._parts.copies.buffers, manager._parts.fetcher._budget
        scheduler.fail_at(at)
        try:
            round_of(manager, segment)
            has_failed = False
        except (RemoteStorageException, StoreError):
            has_failed = True
        is_over = scheduler.seen < at
        scheduler.fail_at(0)
        round_of(manager, segment)
        assert manager._parts.copies.running.copies() == []
        began = time.monotonic()
        manager.close()
        assert time.monotonic() - began < 1.5
        assert (buffers.lent_bytes, budget.held_bytes) == (0, 0)
        if is_over:
            assert not has_failed
            break
    assert at > 5
    with contextlib.closing(memory):
        assert list(memory.iter_objects()) == []
