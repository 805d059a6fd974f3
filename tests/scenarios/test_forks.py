"""What was opened before a fork, used in the child: an error at once that says what to do, never a wait for ever."""

from __future__ import annotations

import asyncio
import functools
import pathlib
import threading

import pytest

import tierlog
from tests.contract.metadata_events import PARTITION, lead
from tests.contract.metadata_events import segment as segment_metadata
from tests.contract.metadata_manager_suite import CALLS
from tests.support.closed_segments import ClosedSegment
from tests.support.forked import told_by_fork
from tests.support.manager_configs import local_keys
from tests.support.segments import make_segment, sound_log
from tierlog.aio import AsyncSegmentStream, AsyncStorageManager
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.remote.tier import open_tier
from tierlog.runtime.machine import THIS_PROCESS, Machine
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic

ADVICE = "open it after the fork, or start processes by spawn or forkserver"


@pytest.fixture
def segment(tmp_path: pathlib.Path) -> ClosedSegment:
    return make_segment(sound_log(8000, base_offset=100)).closed_in(tmp_path / "log")


@pytest.fixture
def bucket(tmp_path: pathlib.Path, segment: ClosedSegment) -> pathlib.Path:
    """The segment and some more of its partition, compressed."""
    with TieredStorageManager() as manager:
        manager.configure(local_keys(tmp_path / "bucket") | {"compression.enabled": "true"})
        manager.copy_log_segment_data(segment.metadata, segment.data)
    return tmp_path / "bucket"


def test_a_storage_manager_says_that_it_is_the_parents(tmp_path: pathlib.Path, segment: ClosedSegment) -> None:
    """A broker that forks (a preloading server) would hang in its first fetch, and again when it closes."""
    with TieredStorageManager() as manager:
        manager.configure(local_keys(tmp_path / "store") | {"compression.enabled": "true"})
        finished = segment.finished(manager.copy_log_segment_data(segment.metadata, segment.data))
        stream = manager.fetch_log_segment(finished, 0)
        assert stream.read(10) == segment.log[:10]
        *calls, read, closed_stream, closed = told_by_fork(
            lambda: manager.fetch_log_segment(finished, 1000).read(100),
            lambda: manager.fetch_index(finished, IndexType.OFFSET),
            lambda: manager.copy_log_segment_data(segment.with_id(77).metadata, segment.data),
            lambda: manager.delete_log_segment_data(finished),
            lambda: stream.read(10),
            stream.close,
            manager.close,
        )
        for told in calls:
            assert told.startswith("RemoteStorageException: the storage manager was opened before"), told
            assert told.endswith(ADVICE)
        assert read.startswith("RemoteStorageException: ")
        assert read.endswith(ADVICE)
        assert (closed_stream, closed) == ("None", "None")
        assert stream.read() == segment.log[10:]  # the parent goes on
        stream.close()


def test_a_metadata_manager_says_that_it_is_the_parents(tmp_path: pathlib.Path) -> None:
    """Its thread stays behind: the child would have stale answers for ever, and futures that nobody completes."""
    topic = MemoryMetadataTopic(3)
    with TopicBasedRemoteLogMetadataManager(open_logs=lambda config, *, machine: topic) as manager:
        manager.configure({"log.dir": str(tmp_path), "remote.log.metadata.topic.num.partitions": 3})
        lead(manager, PARTITION)
        *calls, ready, closed = told_by_fork(
            *(functools.partial(call, manager, PARTITION) for call in CALLS.values()),
            manager.pending_removals,
            lambda: manager.on_stop_partitions({PARTITION}),
            lambda: manager.is_ready(PARTITION),
            manager.close,
        )
        for told in calls:
            assert told.startswith("RemoteStorageException: the metadata manager was opened before"), told
            assert told.endswith(ADVICE)
        assert (ready, closed) == ("False", "None")
        manager.add_remote_log_segment_metadata(segment_metadata(1, 0, 9)).result(30)  # the parent goes on


def test_a_storage_manager_of_an_event_loop_says_so_too(tmp_path: pathlib.Path, segment: ClosedSegment) -> None:
    """A loop's tasks would wait for threads and requests of the parent, each for ever."""
    manager = AsyncStorageManager()

    async def opened() -> tuple[RemoteLogSegmentMetadata, AsyncSegmentStream]:
        await manager.configure(local_keys(tmp_path / "store") | {"compression.enabled": "true"})
        finished = segment.finished(await manager.copy_log_segment_data(segment.metadata, segment.data))
        stream = manager.fetch_log_segment(finished, 0)
        assert await stream.read(10) == segment.log[:10]
        return finished, stream

    finished, stream = asyncio.run(opened())
    *calls, closed_stream, closed = told_by_fork(
        lambda: asyncio.run(_read(manager.fetch_log_segment(finished, 1000))),
        lambda: asyncio.run(_read(stream)),
        lambda: asyncio.run(manager.fetch_index(finished, IndexType.OFFSET)),
        lambda: asyncio.run(manager.copy_log_segment_data(segment.with_id(77).metadata, segment.data)),
        lambda: asyncio.run(stream.aclose()),
        lambda: asyncio.run(manager.aclose()),
    )
    for told in calls:
        assert told.startswith("RemoteStorageException: "), told
        assert told.endswith(ADVICE), told
    assert (closed_stream, closed) == ("None", "None")
    asyncio.run(stream.aclose())
    asyncio.run(manager.aclose())


async def _read(stream: AsyncSegmentStream) -> bytes:
    return await stream.read(100)


def test_a_storage_manager_made_in_the_child_works(tmp_path: pathlib.Path, segment: ClosedSegment) -> None:
    """What a process shares among its managers would be the parent's: lent for ever, or locked."""
    keys = local_keys(tmp_path / "store") | {"compression.enabled": "true"}

    def used(number: int) -> bool:
        with TieredStorageManager() as manager:
            manager.configure(keys)
            each = segment.with_id(number)
            finished = each.finished(manager.copy_log_segment_data(each.metadata, each.data))
            with manager.fetch_log_segment(finished, 0) as stream:
                return stream.read() == segment.log

    assert used(1)
    assert told_by_fork(lambda: used(2)) == ["True"]


def test_a_reader_says_that_it_is_the_parents(bucket: pathlib.Path) -> None:
    """A child of multiprocessing would wait for ever for batches that the parent's threads decode."""
    reader = tierlog.read(bucket, "orders")
    reader.read_next_batch()
    told, closed = told_by_fork(reader.read_next_batch, reader.close)
    assert "the reader was opened before this process was forked" in told
    assert told.endswith(ADVICE)
    assert closed == "None"
    assert reader.read_all().num_rows > 0


def test_a_read_in_the_child_works_on_files(bucket: pathlib.Path) -> None:
    """Workers of a training job that fork read folders, which takes nothing of the parent's."""
    rows = tierlog.read(bucket, "orders").read_all().num_rows
    assert told_by_fork(lambda: tierlog.read(bucket, "orders").read_all().num_rows) == [str(rows)]


def test_a_tier_says_that_it_is_the_parents(bucket: pathlib.Path) -> None:
    """The windows of an open tier would wait for threads that only the parent has."""
    with open_tier(str(bucket)) as tier:
        (found,) = tier.iter_segments()
        windows = tier.iter_log_windows(found, window_bytes=1 << 16)
        next(windows)
        begun, fresh, closed = told_by_fork(
            lambda: next(windows), lambda: next(tier.iter_log_windows(found, window_bytes=1 << 16)), tier.close
        )
        for told in (begun, fresh):
            assert told.startswith("ForkedProcessError: the tier was opened before"), told
        assert closed == "None"
        assert sum(len(view) for _, view in windows) > 0


def test_a_pool_without_workers_yet_survives(tmp_path: pathlib.Path) -> None:
    """PySpark's daemon forks its workers: what it only imported and made must serve them."""
    pool = Machine().scheduler.pool(2, name="t")
    assert told_by_fork(lambda: pool.submit(lambda: 42).result()) == ["42"]
    assert pool.submit(lambda: 42).result() == 42
    refused, closed = told_by_fork(lambda: pool.submit(lambda: 42), pool.close)
    assert refused.startswith("ForkedProcessError: what runs on t threads was opened before")
    assert closed == "None"
    pool.close()


def test_what_a_process_shares_begins_anew_in_the_child() -> None:
    """A lock that another thread of the parent held at that moment would never be released."""
    THIS_PROCESS.shared("a test's", lambda: "parent's")
    held, go = threading.Event(), threading.Event()

    def slow() -> str:
        held.set()
        go.wait(10)
        return "slow"

    holder = threading.Thread(target=lambda: THIS_PROCESS.shared("another test's", slow))
    holder.start()
    held.wait()
    told = told_by_fork(lambda: THIS_PROCESS.shared("a test's", lambda: "child's"))
    go.set()
    holder.join()
    assert told == ['"child\'s"']
    assert THIS_PROCESS.shared("a test's", lambda: "another") == "parent's"
