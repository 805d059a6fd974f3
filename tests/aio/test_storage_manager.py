"""The storage manager on event loops: asyncio's and uvloop's."""

from __future__ import annotations

import asyncio
import pathlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from tests.contract.folder_manager import FolderStorageManager
from tests.support.closed_segments import ClosedSegment
from tests.support.loops import LOOPS, run_on
from tests.support.manager_configs import local_keys
from tests.support.segments import make_segment, sound_log
from tests.support.waiting import LIMIT_SECONDS, ends, until
from tierlog.aio import AsyncStorageManager
from tierlog.remote import (
    CustomMetadata,
    IndexType,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    TieredStorageManager,
)
from tierlog.runtime.stores.protocol.object_store import ObjectStore, StoredObject
from tierlog.runtime.stores.wrappers.passing_store import PassingStore

Main = Callable[[AsyncStorageManager], Coroutine[Any, Any, None]]


@pytest.fixture
def segment(tmp_path: pathlib.Path) -> ClosedSegment:
    return make_segment(sound_log(80, base_offset=100)).closed_in(tmp_path / "made")


def over_folder(folder: pathlib.Path, loop: str, main: Main, **keys: object) -> None:
    """Run it with a manager over a folder."""

    async def whole() -> None:
        async with AsyncStorageManager() as manager:
            await manager.configure(local_keys(folder) | keys)
            await main(manager)

    run_on(loop, whole)


def stored(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_the_five_calls_are_awaited(tmp_path: pathlib.Path, segment: ClosedSegment, loop: str) -> None:
    """Copy, read by views, read by pieces, index, delete: what a broker does with a segment in its life."""

    offset_index = pathlib.Path(segment.data.offset_index).read_bytes()

    async def main(manager: AsyncStorageManager) -> None:
        custom = await manager.copy_log_segment_data(segment.metadata, segment.data)
        metadata = segment.finished(custom)
        views = [view async for view in manager.fetch_log_segment(metadata, 0)]
        assert b"".join(views) == segment.log
        assert min(len(view) for view in views) > 0
        async with manager.fetch_log_segment(metadata, 100, 99_999) as stream:
            buffer = bytearray(1000)
            assert await stream.read(50) == segment.log[100:150]
            assert await stream.readinto(buffer) == 1000
            assert bytes(buffer) == segment.log[150:1150]
            view = await stream.next_view(7)
            assert view is not None
            assert bytes(view) == segment.log[1150:1157]
            assert stream.tell() == 1057
            assert await stream.read() == segment.log[1157:100_000]
            assert await stream.read() == b""
            assert await stream.next_view() is None
        index = await manager.fetch_index(metadata, IndexType.OFFSET)
        assert index == offset_index
        await manager.delete_log_segment_data(metadata)
        with pytest.raises(RemoteResourceNotFoundException):
            await manager.fetch_log_segment(metadata, 0).read()
        with pytest.raises(RemoteResourceNotFoundException):
            await manager.fetch_index(metadata, IndexType.OFFSET)

    over_folder(tmp_path / "store", loop, main)


def test_the_loop_goes_on_while_a_call_blocks(tmp_path: pathlib.Path, segment: ClosedSegment, loop: str) -> None:
    """A slow store would stop a broker's every connection."""
    gate = Gate()

    async def whole() -> None:
        async with AsyncStorageManager(TieredStorageManager(wrap_store=gate.wrap)) as manager:
            await manager.configure(local_keys(tmp_path / "store"))
            gate.close("put")
            copying = asyncio.create_task(manager.copy_log_segment_data(segment.metadata, segment.data))
            await until(lambda: gate.waiting > 0)
            assert not copying.done()
            gate.open()
            await copying

    run_on(loop, whole)


def test_a_stream_is_lazy_and_its_errors_come_with_the_first_read(
    tmp_path: pathlib.Path, segment: ClosedSegment, loop: str
) -> None:
    """Whoever makes a stream and does not read it has nothing to await."""

    async def main(manager: AsyncStorageManager) -> None:
        manager.fetch_log_segment(segment.finished(), 0)
        for start, end in ((-1, None), (10, 9), (len(segment.log), None)):
            with pytest.raises(RemoteStorageException):
                await manager.fetch_log_segment(segment.finished(), start, end).read()

    over_folder(tmp_path / "store", loop, main)


def test_one_task_reads_a_stream_and_none_after_its_close(
    tmp_path: pathlib.Path, segment: ClosedSegment, loop: str
) -> None:
    """Two readers at once would each get some of the bytes."""

    async def main(manager: AsyncStorageManager) -> None:
        custom = await manager.copy_log_segment_data(segment.metadata, segment.data)
        stream = manager.fetch_log_segment(segment.finished(custom), 0)
        outcomes = await asyncio.gather(stream.next_view(), stream.next_view(), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [memoryview, RuntimeError]
        await stream.aclose()
        await stream.aclose()
        with pytest.raises(ValueError, match="closed"):
            await stream.read()

    over_folder(tmp_path / "store", loop, main)


def test_a_thousand_fetches_run_on_one_loop_in_few_threads(
    tmp_path: pathlib.Path, segment: ClosedSegment, loop: str
) -> None:
    """A broker has as many consumers; a thread for each is what an event loop is there to avoid."""
    most: list[int] = []

    async def main(manager: AsyncStorageManager) -> None:
        custom = await manager.copy_log_segment_data(segment.metadata, segment.data)
        metadata = segment.finished(custom)

        async def fetch(start: int) -> None:
            async with manager.fetch_log_segment(metadata, start) as stream:
                assert await stream.read(20_000) == segment.log[start : start + 20_000]
            most.append(threading.active_count())

        await asyncio.gather(*(fetch(13 * n) for n in range(1000)))

    before = threading.active_count()
    over_folder(tmp_path / "store", loop, main, **{"compression.enabled": "true"})
    assert max(most) - before <= 40


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> ClosedSegment:
    """Takes 24 seconds at the slowest rate."""
    return make_segment(sound_log(12000, base_offset=100)).closed_in(tmp_path_factory.mktemp("large"))


SLOWLY = {"upload.rate.limit.bytes.per.second": 1 << 20, "fetch.manifest.cache.size": 0}


def test_cancelling_a_copy_undoes_it(
    tmp_path: pathlib.Path, large: ClosedSegment, segment: ClosedSegment, loop: str
) -> None:
    """Else each broker that stops being leader in the middle of a copy leaves a segment that nobody owns."""

    async def main(manager: AsyncStorageManager) -> None:
        copying = asyncio.create_task(manager.copy_log_segment_data(large.metadata, large.data))
        await until(lambda: bool(stored(tmp_path / "store")))
        copying.cancel()
        with ends(), pytest.raises(asyncio.CancelledError):
            await copying
        assert stored(tmp_path / "store") == []
        custom = await manager.copy_log_segment_data(segment.metadata, segment.data)
        assert await manager.fetch_log_segment(segment.finished(custom), 0).read() == segment.log

    over_folder(tmp_path / "store", loop, main, **SLOWLY)


def test_a_copy_ends_with_its_timeout(tmp_path: pathlib.Path, large: ClosedSegment, loop: str) -> None:
    """asyncio.timeout is how a program on a loop says how long it waits."""

    async def main(manager: AsyncStorageManager) -> None:
        with ends(), pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await manager.copy_log_segment_data(large.metadata, large.data)
        assert stored(tmp_path / "store") == []

    over_folder(tmp_path / "store", loop, main, **SLOWLY)


def test_closing_ends_what_runs(tmp_path: pathlib.Path, large: ClosedSegment, loop: str) -> None:
    """A broker's shutdown would wait for its store."""

    async def whole() -> None:
        manager = AsyncStorageManager()
        await manager.configure(local_keys(tmp_path / "store") | SLOWLY)
        copying = asyncio.create_task(manager.copy_log_segment_data(large.metadata, large.data))
        await until(lambda: bool(stored(tmp_path / "store")))
        with ends():
            await manager.aclose()
        with pytest.raises(RemoteStorageException):
            await copying
        await manager.aclose()
        calls: list[Awaitable[object]] = [
            manager.copy_log_segment_data(large.metadata, large.data),
            manager.fetch_log_segment(large.finished(), 0).read(),
            manager.fetch_index(large.finished(), IndexType.OFFSET),
            manager.delete_log_segment_data(large.finished()),
        ]
        for call in calls:
            with pytest.raises(RemoteStorageException, match="closed"):
                await call

    run_on(loop, whole)
    assert stored(tmp_path / "store") == []


def test_cancelling_a_copy_that_waits_for_its_turn_begins_nothing(
    tmp_path: pathlib.Path, segment: ClosedSegment, loop: str
) -> None:
    """It must neither wait for those before it nor be copied later, when nobody wants it."""
    gate = Gate()

    async def whole() -> None:
        async with AsyncStorageManager(TieredStorageManager(wrap_store=gate.wrap), copies=1) as manager:
            await manager.configure(local_keys(tmp_path / "store"))
            gate.close("put")
            first = asyncio.create_task(manager.copy_log_segment_data(segment.metadata, segment.data))
            await until(lambda: gate.waiting > 0)
            other = segment.with_id(7)
            second = asyncio.create_task(manager.copy_log_segment_data(other.metadata, other.data))
            await asyncio.sleep(0.01)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            assert not first.done()
            gate.open()
            await first

    run_on(loop, whole)
    assert len({name.rpartition(".")[0] for name in stored(tmp_path / "store")}) == 1


def test_cancelling_a_copy_of_another_s_manager_removes_it(
    tmp_path: pathlib.Path, segment: ClosedSegment, loop: str
) -> None:
    """The interface knows no calling off: what was copied all the same is deleted."""
    (tmp_path / "store").mkdir()
    slow = SlowManager()

    async def whole() -> None:
        async with AsyncStorageManager(slow) as manager:
            await manager.configure({"folder": str(tmp_path / "store")})
            copying = asyncio.create_task(manager.copy_log_segment_data(segment.metadata, segment.data))
            await asyncio.to_thread(slow.began.wait, 20)
            copying.cancel()
            await asyncio.sleep(0.01)
            slow.go.set()
            with pytest.raises(asyncio.CancelledError):
                await copying
            assert stored(tmp_path / "store") == []
            custom = await manager.copy_log_segment_data(segment.metadata, segment.data)
            async with manager.fetch_log_segment(segment.finished(custom), 5) as stream:
                assert b"".join([view async for view in stream]) == segment.log[5:]

    run_on(loop, whole)


def test_one_manager_serves_several_loops(tmp_path: pathlib.Path, segment: ClosedSegment) -> None:
    """Brokers run a loop a core; each with caches of its own would hold everything several times."""
    manager = AsyncStorageManager()
    run_on("asyncio", lambda: manager.configure(local_keys(tmp_path / "store")))
    custom = run_on("uvloop", lambda: manager.copy_log_segment_data(segment.metadata, segment.data))
    read: list[bytes] = []

    def reading(kind: str) -> None:
        read.append(run_on(kind, lambda: manager.fetch_log_segment(segment.finished(custom), 0).read()))

    threads = [threading.Thread(target=reading, args=(kind,)) for kind in (*LOOPS, *LOOPS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read == [segment.log] * 4
    run_on("asyncio", manager.aclose)


class Gate:
    """Holds up chosen calls of a store until it is opened."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self._opened.set()
        self.waiting = 0
        self.call = ""

    def close(self, call: str) -> None:
        self.call = call
        self._opened.clear()

    def open(self) -> None:
        self._opened.set()

    def wrap(self, store: ObjectStore) -> ObjectStore:
        return GatedStore(store, self)

    def pass_through(self, call: str) -> None:
        if call == self.call:
            self.waiting += 1
            assert self._opened.wait(LIMIT_SECONDS)


class GatedStore(PassingStore):
    def __init__(self, store: ObjectStore, gate: Gate) -> None:
        super().__init__(store)
        self._gate = gate

    def put(self, *args: Any, **options: Any) -> StoredObject:
        self._gate.pass_through("put")
        return super().put(*args, **options)


class SlowManager(FolderStorageManager):
    """A third party's, whose copy takes as long as one likes."""

    def __init__(self) -> None:
        super().__init__()
        self.began = threading.Event()
        self.go = threading.Event()

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> CustomMetadata | None:
        self.began.set()
        assert self.go.wait(LIMIT_SECONDS)
        return super().copy_log_segment_data(metadata, data)
