"""Reads and copies on event loops over stores that are slow or stall: no thread waits, cancelling ends requests."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import os
import pathlib
import threading
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.support.closed_segments import ClosedSegment
from tests.support.fault_proxy import FaultProxy
from tests.support.loops import run_on
from tests.support.manager_configs import KEYS, local_keys
from tests.support.segments import make_segment, sound_log
from tests.support.servers import StoreServer
from tests.support.waiting import ENDLESS_SECONDS, ends, until
from tierlog.aio import AsyncStorageManager
from tierlog.errors import TierlogError
from tierlog.remote import (
    IndexType,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
    TieredStorageManager,
)
from tierlog.runtime.machine.cancelling import CancelledReadError
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.protocol.optional_reads import Answer, Cancel, OnAnswer
from tierlog.runtime.stores.wrappers.passing_store import PassingStore

CORES = len(os.sched_getaffinity(0))
TRANSFORMS = {"plain": {}, "zstd-aes": {"compression.enabled": "true"} | KEYS}


@pytest.fixture
def segment(tmp_path: pathlib.Path) -> ClosedSegment:
    return make_segment(sound_log(80, base_offset=100)).closed_in(tmp_path / "made")


class SlowBucket(PassingStore):
    """Answers each read after some time, all of them from one thread, as the client of a bucket does."""

    is_local = False  # type: ignore[assignment]

    def __init__(self, store: ObjectStore, seconds: float) -> None:
        super().__init__(store)
        self.seconds = seconds
        self.begun = self.cancelled = self.most = 0
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="slow-bucket")
        self._thread.start()

    def start_fetch_range(
        self, key: str, *, start_position: int, end_position_exclusive: int, on_answer: OnAnswer
    ) -> Cancel:
        told: list[bool] = []

        def tell(answer: Answer) -> None:
            if not told:
                told.append(True)
                on_answer(answer)

        def read() -> None:
            try:
                tell(
                    self.inner.fetch_range(
                        key, start_position=start_position, end_position_exclusive=end_position_exclusive
                    )
                )
            except TierlogError as error:
                tell(error)

        def cancel() -> None:
            self.cancelled += not told
            tell(CancelledReadError("cancelled"))

        self._later(read)
        return cancel

    def _later(self, work: Callable[[], None]) -> None:
        with self._changed:
            self.begun += 1
            heapq.heappush(self._due, (time.monotonic() + self.seconds, next(self._numbers), work))
            self.most = max(self.most, len(self._due))
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (not self._due or self._due[0][0] > time.monotonic()):
                    self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                if self._closed:
                    return
                work = heapq.heappop(self._due)[2]
            work()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        super().close()


def over_slow_bucket(
    folder: pathlib.Path,
    loop: str,
    main: Callable[[AsyncStorageManager, SlowBucket], Coroutine[Any, Any, None]],
    *,
    seconds: float,
    **keys: object,
) -> None:
    made: list[SlowBucket] = []

    def wrap(store: ObjectStore) -> ObjectStore:
        made.append(SlowBucket(store, seconds))
        return made[0]

    async def whole() -> None:
        async with AsyncStorageManager(TieredStorageManager(wrap_store=wrap)) as manager:
            await manager.configure(local_keys(folder) | {"store.probe.enabled": "false"} | keys)
            await main(manager, made[0])

    run_on(loop, whole)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_thousand_fetches_of_a_slow_bucket_hold_no_threads(
    tmp_path: pathlib.Path, segment: ClosedSegment, loop: str, transform: str
) -> None:
    """A broker has as many consumers; a thread for each of them is what an event loop is there to avoid."""
    threads: list[int] = []

    async def main(manager: AsyncStorageManager, bucket: SlowBucket) -> None:
        custom = await manager.copy_log_segment_data(segment.metadata, segment.data)
        metadata = segment.finished(custom)
        before = set(threading.enumerate())  # the copy's own, which stay for seconds, are not the fetches'

        async def fetch(start: int) -> None:
            async with manager.fetch_log_segment(metadata, start) as stream:
                assert await stream.read(20_000) == segment.log[start : start + 20_000]
            threads.append(len(set(threading.enumerate()) - before))

        await asyncio.gather(*(fetch(13 * n) for n in range(1000)))
        assert bucket.most > 200 or transform != "plain"  # at once, and not one after another

    patient = {"fetch.chunk.cache.get.timeout.ms": 120_000}  # a busy machine decrypts a thousand in more than 10 s
    over_slow_bucket(tmp_path / "store", loop, main, seconds=0.2, **TRANSFORMS[transform], **patient)
    assert max(threads) <= CORES + 8 + 1  # and the bucket's own


def test_streams_over_the_memory_limit_wait_their_turn(tmp_path: pathlib.Path, loop: str) -> None:
    """Otherwise tasks that nobody counts fill the memory of the broker."""

    segment = make_segment(sound_log(1000, base_offset=100)).closed_in(tmp_path / "made")

    async def main(manager: AsyncStorageManager, bucket: SlowBucket) -> None:
        custom = await manager.copy_log_segment_data(segment.metadata, segment.data)
        metadata = segment.finished(custom)

        async def read() -> None:
            async with manager.fetch_log_segment(metadata, 0) as stream:
                got = bytearray()
                while piece := await stream.read(100_000):
                    got += piece
                    await asyncio.sleep(0)
            assert got == segment.log

        await asyncio.gather(*(read() for _ in range(40)))

    over_slow_bucket(
        tmp_path / "store",
        loop,
        main,
        seconds=0.002,
        **TRANSFORMS["zstd-aes"],
        **{"fetch.memory.max.bytes": 8 << 20, "chunk.size": 1 << 20},
    )


def test_a_stream_that_is_closed_wakes_its_reader(tmp_path: pathlib.Path, segment: ClosedSegment, loop: str) -> None:
    """A connection that goes away closes its streams while they are being read."""

    async def main(manager: AsyncStorageManager, bucket: SlowBucket) -> None:
        custom = await manager.copy_log_segment_data(segment.metadata, segment.data)
        stream = manager.fetch_log_segment(segment.finished(custom), 0)
        assert await stream.read(10) == segment.log[:10]
        bucket.seconds = ENDLESS_SECONDS
        reading = asyncio.create_task(stream.read())
        begun = bucket.begun
        await until(lambda: bucket.begun > begun)
        with ends():
            await stream.aclose()
            with pytest.raises(ValueError, match="closed"):
                await reading

    over_slow_bucket(
        tmp_path / "store", loop, main, seconds=0.01, **{"chunk.size": 4096, "fetch.request.max.bytes": 65536}
    )


def test_what_is_late_is_an_error_and_the_stream_goes_on(
    tmp_path: pathlib.Path, segment: ClosedSegment, loop: str
) -> None:
    """The time limits are those of the blocking calls; an error that may pass leaves the stream where it was."""

    async def main(manager: AsyncStorageManager, bucket: SlowBucket) -> None:
        custom = await manager.copy_log_segment_data(segment.metadata, segment.data)
        stream = manager.fetch_log_segment(segment.finished(custom), 5)
        assert await stream.read(1) == segment.log[5:6]
        bucket.seconds = 3.0
        with pytest.raises(RetriableRemoteStorageException):
            await stream.read()
        assert stream.tell() == 1
        bucket.seconds = 0.0
        await asyncio.sleep(2.2)  # what was asked for comes
        assert await stream.read() == segment.log[6:]

    over_slow_bucket(
        tmp_path / "store",
        loop,
        main,
        seconds=0.01,
        **{"chunk.size": 4096, "fetch.request.max.bytes": 65536, "fetch.chunk.cache.get.timeout.ms": 1000},
    )


def test_closing_the_manager_ends_reads_that_wait(tmp_path: pathlib.Path, segment: ClosedSegment, loop: str) -> None:
    """A broker's shutdown would wait for its store."""

    async def main(manager: AsyncStorageManager, bucket: SlowBucket) -> None:
        custom = await manager.copy_log_segment_data(segment.metadata, segment.data)
        metadata = segment.finished(custom)
        bucket.seconds = ENDLESS_SECONDS
        reads = [asyncio.create_task(manager.fetch_log_segment(metadata, n).read()) for n in range(20)]
        reads += [asyncio.create_task(manager.fetch_index(metadata, IndexType.OFFSET))]
        await until(lambda: bucket.begun > 0)
        with ends():
            await manager.aclose()
            for outcome in await asyncio.gather(*reads, return_exceptions=True):
                assert isinstance(outcome, RemoteStorageException)

    over_slow_bucket(tmp_path / "store", loop, main, seconds=0.01)


def test_cancelling_many_reads_ends_their_requests(tmp_path: pathlib.Path, segment: ClosedSegment, loop: str) -> None:
    """Consumers that go away would leave their downloads behind, and the memory that these hold."""

    async def main(manager: AsyncStorageManager, bucket: SlowBucket) -> None:
        custom = await manager.copy_log_segment_data(segment.metadata, segment.data)
        metadata = segment.finished(custom)
        assert await manager.fetch_log_segment(metadata, 0, 0).read() == segment.log[:1]
        bucket.seconds, begun = ENDLESS_SECONDS, bucket.begun
        reads = [asyncio.create_task(manager.fetch_log_segment(metadata, 100 * n).read()) for n in range(50)]
        await until(lambda: bucket.begun > begun)
        await asyncio.sleep(0.05)
        for task in reads:
            task.cancel()
        for outcome in await asyncio.gather(*reads, return_exceptions=True):
            assert isinstance(outcome, asyncio.CancelledError)
        await until(lambda: bucket.cancelled == bucket.begun - begun)
        bucket.seconds = 0.0
        assert await manager.fetch_log_segment(metadata, 0).read() == segment.log

    over_slow_bucket(tmp_path / "store", loop, main, seconds=0.01)


@pytest.mark.server
def test_cancelling_a_read_ends_its_request(s3: StoreServer, segment: ClosedSegment, loop: str) -> None:
    """Consumers that go away would leave their downloads behind, for as long as a store takes."""

    async def main(manager: AsyncStorageManager, proxy: FaultProxy) -> None:
        custom = await manager.copy_log_segment_data(segment.metadata, segment.data)
        rule = proxy.add("stall", verb="GET", path=".log", times=None)
        stream = manager.fetch_log_segment(segment.finished(custom), 0)
        with ends(), pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await stream.read()
        await asyncio.to_thread(rule.wait_left, 1)
        with pytest.raises(ValueError, match="closed"):
            await stream.read()

    run_on(loop, lambda: behind_proxy(s3, main))


@pytest.mark.server
@pytest.mark.parametrize("skip", [0, 1])
def test_cancelling_a_copy_ends_its_upload(s3: StoreServer, segment: ClosedSegment, loop: str, skip: int) -> None:
    """Whatever the store does: the request ends, and nothing stays in the bucket."""

    async def main(manager: AsyncStorageManager, proxy: FaultProxy) -> None:
        rule = proxy.add("stall", verb="PUT", times=1, skip=skip)
        copying = asyncio.create_task(manager.copy_log_segment_data(segment.metadata, segment.data))
        await until(lambda: rule.struck == 1)
        with ends():
            copying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await copying
        await asyncio.to_thread(rule.wait_left, 1)
        with pytest.raises(RemoteResourceNotFoundException):
            await manager.fetch_log_segment(segment.finished(), 0).read()

    run_on(loop, lambda: behind_proxy(s3, main))


async def behind_proxy(
    server: StoreServer, main: Callable[[AsyncStorageManager, FaultProxy], Coroutine[Any, Any, None]]
) -> None:
    """Run it with a manager over a bucket, and the proxy that stands before it."""
    with FaultProxy.before(server) as proxy:
        keys = {
            "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
            "storage.s3.bucket.name": "tier",
            "key.prefix": f"aio/{uuid.uuid4()}/",
            "storage.s3.endpoint.url": proxy.endpoint,
            "storage.s3.region": "us-east-1",
            "storage.s3.path.style.access.enabled": "true",
            "storage.aws.access.key.id": server.options["store.access_key_id"],
            "storage.aws.secret.access.key": server.options["store.secret_access_key"],
            "chunk.size": "16384",
            "store.probe.enabled": "false",
        }
        async with AsyncStorageManager() as manager:
            await manager.configure(keys)
            await main(manager, proxy)
