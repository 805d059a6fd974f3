"""A reader that reads on gets what lies ahead, across segments too; another one gets nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fetchers import MIB, MemoryBucket, fetcher_over
from tests.support.segments import BucketSegment, make_segment, sound_log
from tests.support.waiting import wait_until
from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.remote.storage.fetch.prefetch import Prefetcher
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.remote.tier.chunks.stored_segment import ChunkView, SegmentLog
from tierlog.runtime.machine import Machine

CACHE = {
    "fetch_chunk_cache_class": "memory",
    "fetch_chunk_cache_size": 64 * MIB,
    "fetch_prefetch_max_bytes": 8 * MIB,
}


def segment_at(start_offset: int, name: str) -> BucketSegment:
    """Twelve mebibytes in chunks of one."""
    log = sound_log(48, base_offset=start_offset, batch_bytes=256 * 1024)
    return make_segment(log, name=name, lineage={0: 0}).stored(chunk_size=MIB)


@pytest.fixture(scope="module")
def first() -> BucketSegment:
    return segment_at(0, "a")


@pytest.fixture(scope="module")
def second(first: BucketSegment) -> BucketSegment:
    return segment_at(first.metadata.end_offset + 1, "b")


@pytest.fixture(scope="module")
def other(first: BucketSegment) -> BucketSegment:
    """Of the same partition, and not the next one."""
    return segment_at(first.metadata.end_offset + 1000, "c")


def ahead_after(bucket: MemoryBucket, segments: list[BucketSegment], last: BucketSegment) -> float:
    """Bytes that were fetched ahead once some segments were read whole, and then ten bytes of the last one."""
    metrics = StorageMetrics()

    def fetched() -> float:
        return metrics.value("prefetched_bytes_total")

    with fetcher_over(bucket, metrics=metrics, **CACHE) as fetcher:
        for segment in segments:
            with fetcher.fetch_log_segment(segment.metadata, 0) as stream:
                assert stream.read() == segment.log
        wait_until(lambda: fetcher._budget.held_bytes == 0)
        before = fetched()
        with fetcher.fetch_log_segment(last.metadata, 0) as stream:
            assert stream.read(10) == last.log[:10]
        wait_until(lambda: fetcher._budget.held_bytes == 0)
        return fetched() - before


def test_a_reader_of_the_next_segment_is_the_one_of_the_segment_before(
    first: BucketSegment, second: BucketSegment, other: BucketSegment
) -> None:
    """If this fails, a replay begins anew at each segment's end, or a stranger's read is paid for as if it went on."""
    bucket = MemoryBucket(first.objects | second.objects | other.objects)
    assert ahead_after(bucket, [first], second) >= 2 * MIB
    assert ahead_after(bucket, [first], other) == 0
    assert ahead_after(bucket, [], second) == 0


def test_what_was_fetched_ahead_is_counted_and_read_once(first: BucketSegment) -> None:
    """If this fails, nobody sees what reading ahead costs, or each byte of it is fetched twice."""
    bucket, metrics = MemoryBucket(first.objects), StorageMetrics()
    with fetcher_over(bucket, metrics=metrics, **CACHE) as fetcher:
        for start in range(0, len(first.log), MIB // 2):
            with fetcher.fetch_log_segment(first.metadata, start) as stream:
                assert stream.read(MIB // 2) == first.log[start : start + MIB // 2]
        wait_until(lambda: fetcher._budget.held_bytes == 0)
    assert sum(end - start for start, end in bucket.asked("log")) == len(first.log)
    assert len(first.log) - 4 * MIB <= metrics.value("prefetched_bytes_total") < len(first.log)
    assert metrics.value("prefetch_unused_bytes_total") == 0


@pytest.mark.parametrize("is_local", [True, False])
def test_each_chunk_is_one_hit_or_one_miss(first: BucketSegment, is_local: bool) -> None:
    """If this fails, a dashboard's hit ratio says that a cache works which does not."""
    metrics = StorageMetrics()
    bucket = MemoryBucket(first.objects, is_local=is_local)
    with fetcher_over(bucket, metrics=metrics, **CACHE | {"fetch_prefetch_enabled": "false"}) as fetcher:
        for _ in range(2):
            for number in (0, 3, 6):
                with fetcher.fetch_log_segment(first.metadata, number * MIB, (number + 1) * MIB - 1) as stream:
                    assert stream.read() == first.log[number * MIB : (number + 1) * MIB]
    assert metrics.value("cache_misses_total", cache="chunks_memory") == 3
    assert metrics.value("cache_hits_total", cache="chunks_memory") == 3
    assert metrics.value("cache_hit_bytes_total", cache="chunks_memory") == 3 * MIB


class Asked:
    """What a Prefetcher asks for, in the place of the loads ahead."""

    is_possible = True

    def __init__(self, machine: Machine) -> None:
        self.pool = machine.scheduler.pool(0, name="ahead")
        self.ranges: list[tuple[str, int, int]] = []
        self.opened: list[str] = []

    def request(self, log: SegmentLog, views: list[ChunkView], **_: object) -> None:
        self.ranges.append((log.name, views[0].number, views[-1].number))

    def open_next(self, metadata: RemoteLogSegmentMetadata, _opened: object) -> None:
        self.opened.append(str(metadata.remote_log_segment_id.id))


@pytest.fixture
def logs(first: BucketSegment, second: BucketSegment, other: BucketSegment) -> Iterator[list[SegmentLog]]:
    bucket = MemoryBucket(first.objects | second.objects | other.objects)
    with fetcher_over(bucket, **CACHE) as fetcher:
        for segment in (first, second, other):
            fetcher.fetch_log_segment(segment.metadata, 0).close()  # its manifest is there then
        found = [fetcher._manifests.find(segment.metadata) for segment in (first, second, other)]
        yield [described.log for described in found if described is not None]


@pytest.fixture
def asked() -> tuple[Asked, Prefetcher]:
    machine = Machine()
    seen = Asked(machine)
    made = Prefetcher(
        seen,  # type: ignore[arg-type]
        open_next=seen.open_next,
        ahead_bytes_max=8 * MIB,
        crosses_segments=True,
        machine=machine,
    )
    return seen, made


def test_who_goes_back_a_little_keeps_her_distance(
    first: BucketSegment, logs: list[SegmentLog], asked: tuple[Asked, Prefetcher]
) -> None:
    """If this fails, a consumer whose calls begin at the batch before its offset never gets far ahead."""
    seen, prefetcher = asked
    reader, _ = prefetcher.begin(first.metadata, logs[0], 0)
    prefetcher.advance(reader, MIB, MIB)
    assert seen.ranges == []
    prefetcher.advance(reader, 2 * MIB, 2 * MIB)
    prefetcher.advance(reader, 2 * MIB - 1000, 2 * MIB)
    prefetcher.advance(reader, 3 * MIB, 3 * MIB)
    assert [(start, end) for _, start, end in seen.ranges] == [(2, 2), (3, 4)]


def test_small_calls_are_steps_too(
    first: BucketSegment, logs: list[SegmentLog], asked: tuple[Asked, Prefetcher]
) -> None:
    """If this fails, a consumer that takes a few kilobytes a call waits for the store at each chunk's border."""
    seen, prefetcher = asked
    for call in range(3):
        reader, again = prefetcher.begin(first.metadata, logs[0], call * 10_000)
        assert again == (call > 0)
        prefetcher.advance(reader, (call + 1) * 10_000, (call + 1) * 10_000)
        assert len(seen.ranges) == (call == 2)


def test_each_segment_leads_to_its_next_one_once(
    first: BucketSegment,
    second: BucketSegment,
    other: BucketSegment,
    logs: list[SegmentLog],
    asked: tuple[Asked, Prefetcher],
) -> None:
    """If this fails, a replay stops at each segment's end for a description, or asks for it at each step."""
    seen, prefetcher = asked
    reader, _ = prefetcher.begin(first.metadata, logs[0], 0)
    for position in range(MIB, 13 * MIB, MIB):
        prefetcher.advance(reader, position, position)
    assert seen.opened == [str(first.metadata.remote_log_segment_id.id)]
    assert prefetcher.begin(other.metadata, logs[2], 0)[0] is not reader
    following, _ = prefetcher.begin(second.metadata, logs[1], 0)
    assert following is reader
    for position in range(MIB, 13 * MIB, MIB):
        prefetcher.advance(reader, position, position)
    assert seen.opened == [str(each.metadata.remote_log_segment_id.id) for each in (first, second)]
