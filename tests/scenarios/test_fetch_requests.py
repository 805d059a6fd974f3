"""What fetching asks of a store: requests cost money, round trips and, in bulk, throttling."""

from __future__ import annotations

import itertools
import pathlib
import random
import threading
from collections.abc import Callable

import pytest
from typing_extensions import Buffer

from tests.support.fetchers import FORMS, MIB, MemoryBucket, chunk_key, fetcher_over
from tests.support.segments import BucketSegment, make_segment, sound_log
from tests.support.waiting import wait_until
from tierlog.errors import ObjectNotFoundError
from tierlog.remote.api import IndexType
from tierlog.runtime.stores.protocol.optional_reads import Cancel, OnAnswer

#: As large as segments are.
SEGMENT_BYTES = 256 * MIB
BATCH_BYTES = 256 << 10


@pytest.fixture(scope="module")
def large() -> BucketSegment:
    """Plain, chunks of 4 MiB."""
    return make_segment(sound_log(SEGMENT_BYTES // BATCH_BYTES, batch_bytes=BATCH_BYTES)).stored()


@pytest.fixture(scope="module")
def compressed() -> BucketSegment:
    """The same in zstd, 64 MiB."""
    return make_segment(sound_log(64 * MIB // BATCH_BYTES, batch_bytes=BATCH_BYTES)).stored(compression=True)


class TestOpening:
    """How much of a chunk is opened."""

    @pytest.mark.parametrize(("end", "opened"), [(1000, 1000), (4 * MIB, 4 * MIB)])
    def test_a_range_opens_what_it_needs(self, compressed: BucketSegment, end: int, opened: int) -> None:
        """If this fails, a reader of a mebibyte pays for decompressing four."""
        bucket = MemoryBucket()
        bucket.add(compressed)
        with fetcher_over(bucket) as fetcher:
            fetcher.fetch_log_segment(compressed.metadata, 0, 0).read()
            manifest = fetcher._manifests.find(compressed.metadata)
            assert manifest is not None
            chunks, views = fetcher._chunks, manifest.log.views(0, end)
            assert fetcher._budget.try_take(views[0].stored_size)
            (load,), held = chunks.request(manifest.log, views, turn="a", again=False, soon=True)
            assert not isinstance(load, memoryview)
            wait_until(lambda: load.run() or load.is_done)
            assert len(load.result()) == opened
            chunks.leave([load])
            assert held == views[0].stored_size


class TestRequests:
    """Bounds that the operator's bill and the store's limits are planned with."""

    @pytest.mark.parametrize("cache", ["", "memory"])
    def test_a_mebibyte_of_an_open_range(self, large: BucketSegment, compressed: BucketSegment, cache: str) -> None:
        """If this fails, each fetch of a broker, which asks without an end, downloads what nobody reads."""
        for segment in (large, compressed):
            options = {"fetch_chunk_cache_class": cache, "fetch_chunk_cache_size": 64 * MIB} if cache else {}
            for start in (0, 4 * MIB - 1, 10 * MIB + 12_345):
                bucket = MemoryBucket()
                bucket.add(segment)
                with (
                    fetcher_over(bucket, fetch_prefetch_enabled="false", **options) as fetcher,
                    fetcher.fetch_log_segment(segment.metadata, start) as stream,
                ):
                    assert len(stream.read(MIB)) == MIB
                asked = bucket.asked("log")
                assert len(bucket.asked("rsm-manifest")) == 1
                assert len(bucket.gets) == 2
                assert sum(end - begin for begin, end in asked) <= 8 * MIB

    @pytest.mark.parametrize("cache", ["", "memory"])
    def test_a_whole_segment(self, large: BucketSegment, cache: str) -> None:
        """If this fails, a replay pays a request a chunk, as with the plugin."""
        options = {"fetch_chunk_cache_class": cache, "fetch_chunk_cache_size": 64 * MIB} if cache else {}
        bucket = MemoryBucket()
        bucket.add(large)
        read = 0
        with fetcher_over(bucket, **options) as fetcher, fetcher.fetch_log_segment(large.metadata, 0) as stream:
            for view in stream.buffers():
                assert bytes(view) == large.log[read : read + len(view)]
                read += len(view)
        assert read == len(large.log)
        assert len(bucket.gets) <= 20
        assert sum(end - begin for begin, end in bucket.asked("log")) == len(large.log)

    def test_a_whole_compressed_segment_decodes_each_chunk_once(self, compressed: BucketSegment) -> None:
        """If this fails, windows that do not end at chunks fetch and decode chunks twice."""
        bucket = MemoryBucket()
        bucket.add(compressed)
        with (
            fetcher_over(bucket) as fetcher,
            fetcher.fetch_log_segment(compressed.metadata, 0) as stream,
        ):
            assert stream.read() == compressed.log
        ranges = sorted(bucket.asked("log"))
        assert all(before[1] == after[0] for before, after in itertools.pairwise(ranges))
        assert len(ranges) <= 8

    def test_of_the_last_chunk_only_what_is_wanted_is_decompressed(self, compressed: BucketSegment) -> None:
        """If this fails, a random read of a mebibyte pays for decompressing four; or gives other bytes."""
        bucket = MemoryBucket()
        bucket.add(compressed)
        with fetcher_over(bucket) as fetcher:
            for start, size in (
                (0, 10),
                (3 * MIB, 2 * MIB),
                (4 * MIB - 1, 1),
                (9 * MIB, 3 * MIB),
                (9 * MIB, 3 * MIB - 1),
            ):
                with fetcher.fetch_log_segment(compressed.metadata, start, start + size - 1) as stream:
                    assert stream.read() == compressed.log[start : start + size]
            opened = fetcher._manifests.find(compressed.metadata)
            assert opened is not None
            view = opened.log.views(0, 10)[0]._replace(until=10)
            stored = memoryview(compressed.objects[f"{compressed.base}.log"])[: view.stored_size]
            assert opened.log.open_chunk(stored, view) == compressed.log[:10]

    def test_a_hundred_random_mebibytes(self, large: BucketSegment) -> None:
        """If this fails, random reads that cross a chunk's border pay twice."""
        chance = random.Random(7)
        bucket = MemoryBucket()
        bucket.add(large)
        with fetcher_over(bucket) as fetcher:
            for _ in range(100):
                start = chance.randrange(len(large.log) - MIB)
                with fetcher.fetch_log_segment(large.metadata, start, start + MIB - 1) as stream:
                    assert stream.read() == large.log[start : start + MIB]
        assert len(bucket.gets) <= 104

    def test_a_chunk_that_is_cached_is_not_fetched_again(self, large: BucketSegment) -> None:
        """If this fails, the cache costs memory and saves nothing."""
        bucket = MemoryBucket()
        bucket.add(large)
        with fetcher_over(
            bucket, fetch_chunk_cache_class="memory", fetch_chunk_cache_size=64 * MIB, fetch_prefetch_enabled="false"
        ) as fetcher:
            for _ in range(3):
                with fetcher.fetch_log_segment(large.metadata, 5 * MIB, 6 * MIB) as stream:
                    stream.read()
        assert len(bucket.gets) == 2

    def test_the_cache_holds_no_more_than_it_may(self, compressed: BucketSegment) -> None:
        """If this fails, a configured cache size is a wish."""
        bucket = MemoryBucket()
        bucket.add(compressed)
        with fetcher_over(bucket, fetch_chunk_cache_class="memory", fetch_chunk_cache_size=10 * MIB) as fetcher:
            with fetcher.fetch_log_segment(compressed.metadata, 0) as stream:
                for _ in stream.buffers():
                    assert fetcher._cache is not None
                    assert fetcher._cache.figures.size_bytes <= 10 * MIB
            assert fetcher._cache.figures.entries == 2


class HoldingBucket(MemoryBucket):
    """Begins reads of logs and answers none of them before the test lets it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.begun: list[Callable[[], None]] = []

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        return super().fetch_range(key, start_position=start_position, end_position_exclusive=end_position_exclusive)

    def start_fetch_range(
        self, key: str, *, start_position: int, end_position_exclusive: int, on_answer: OnAnswer
    ) -> Cancel:
        def answer() -> None:
            on_answer(
                self.fetch_range(key, start_position=start_position, end_position_exclusive=end_position_exclusive)
            )

        if key.endswith(".log"):
            self.begun.append(answer)
        else:
            answer()
        return lambda: None


@pytest.mark.parametrize("cache", ["", "memory", "disk"])
def test_chunks_that_are_stored_as_they_are_count_once(
    large: BucketSegment, tmp_path: pathlib.Path, cache: str
) -> None:
    """If this fails, a cache halves how many requests are under way, and with a far store the throughput."""
    options = {"fetch_chunk_cache_class": cache, "fetch_chunk_cache_size": 64 * MIB} if cache else {}
    options |= {"fetch_chunk_cache_path": tmp_path} if cache == "disk" else {}
    # Callers that happen to start in descending order look like one that reads on, and nobody answers what that begins.
    options |= {"fetch_prefetch_enabled": "false"}
    bucket = HoldingBucket()
    bucket.add(large)
    with fetcher_over(bucket, fetch_memory_max_bytes=16 * MIB, **options) as fetcher:

        def fetch(number: int) -> None:
            with fetcher.fetch_log_segment(large.metadata, number * MIB, (number + 1) * MIB - 1) as stream:
                assert stream.read() == large.log[number * MIB : (number + 1) * MIB]

        callers = [threading.Thread(target=fetch, args=(number,)) for number in range(16)]
        for caller in callers:
            caller.start()
        wait_until(lambda: len(bucket.begun) == len(callers))
        for answer in bucket.begun:
            answer()
        for caller in callers:
            caller.join()
        wait_until(lambda: fetcher._budget.held_bytes == 0)


class TestIndexes:
    """A broker that starts asks for the indexes of thousands of segments."""

    def test_neighbours_come_in_one_request(self, data: pathlib.Path) -> None:
        """If this fails, each lookup of a broker costs three requests in place of one."""
        segment = make_segment(sound_log(5)).stored()
        bucket = MemoryBucket()
        bucket.add(segment)
        with fetcher_over(bucket) as fetcher:
            for kind, wanted in segment.parts.items():
                assert fetcher.fetch_index(segment.metadata, kind).read() == wanted
        assert len(bucket.asked("indexes")) == 1

    def test_empty_and_missing_ones_cost_nothing(self) -> None:
        """If this fails, segments without transactions cost a request each, or a missing one reads as empty."""
        no_producers = {IndexType.PRODUCER_SNAPSHOT: b""}
        for name, indexes in (("without", no_producers), ("empty", no_producers | {IndexType.TRANSACTION: b""})):
            segment = make_segment(sound_log(5), indexes=indexes, name=name).stored()
            bucket = MemoryBucket()
            bucket.add(segment)
            with fetcher_over(bucket) as fetcher:
                if name == "empty":
                    assert fetcher.fetch_index(segment.metadata, IndexType.TRANSACTION).read() == b""
                else:
                    with pytest.raises(ObjectNotFoundError, match="transaction"):
                        fetcher.fetch_index(segment.metadata, IndexType.TRANSACTION)
                assert fetcher.fetch_index(segment.metadata, IndexType.PRODUCER_SNAPSHOT).read() == b""
            assert [suffix for suffix, _, _ in bucket.gets] == ["rsm-manifest"]

    def test_large_ones_come_alone(self) -> None:
        """If this fails, a reader of 20 bytes of lineage downloads megabytes of offsets."""
        segment = make_segment(sound_log(5), indexes={IndexType.OFFSET: bytes(3 * MIB)}).stored()
        wanted = segment.parts[IndexType.LEADER_EPOCH]
        bucket = MemoryBucket()
        bucket.add(segment)
        with fetcher_over(bucket) as fetcher:
            assert fetcher.fetch_index(segment.metadata, IndexType.LEADER_EPOCH).read() == wanted
        assert [end - start for start, end in bucket.asked("indexes")] == [len(wanted)]


class TestPrefetch:
    """Ahead of a reader that reads on, and of no other."""

    def sizes(self, form: str = "plain") -> tuple[BucketSegment, MemoryBucket]:
        log = sound_log(48 * MIB // BATCH_BYTES, batch_bytes=BATCH_BYTES)
        segment = make_segment(log).stored(chunk_size=MIB, compression=FORMS[form][0])
        bucket = MemoryBucket()
        bucket.add(segment)
        return segment, bucket

    def test_a_consumer_that_comes_back_finds_her_bytes(self) -> None:
        """If this fails, each fetch of a catching-up consumer waits for the store."""
        segment, bucket = self.sizes()
        with fetcher_over(
            bucket, fetch_chunk_cache_class="memory", fetch_chunk_cache_size=64 * MIB, fetch_prefetch_max_bytes=8 * MIB
        ) as fetcher:
            for start in range(0, 40 * MIB, MIB):
                with fetcher.fetch_log_segment(segment.metadata, start) as stream:
                    assert stream.read(MIB) == segment.log[start : start + MIB]
        assert len(bucket.asked("log")) <= 20
        fetched = sum(end - start for start, end in bucket.asked("log"))
        assert fetched <= 48 * MIB

    def test_a_random_reader_gets_nothing_ahead(self, large: BucketSegment) -> None:
        """If this fails, random reads download several times what they need."""
        bucket = MemoryBucket()
        bucket.add(large)
        chance = random.Random(3)
        with fetcher_over(bucket, fetch_chunk_cache_class="memory", fetch_chunk_cache_size=4 * MIB) as fetcher:
            for _ in range(60):
                with fetcher.fetch_log_segment(large.metadata, chance.randrange(250) * MIB) as stream:
                    stream.read(1000)
        assert sum(end - start for start, end in bucket.asked("log")) <= 60 * 2 * MIB

    def test_the_next_segment_is_there_before_she_is(self) -> None:
        """If this fails, a consumer stalls at each end of a segment for a manifest and a chunk."""
        first = make_segment(sound_log(1000, batch_bytes=4096)).stored(chunk_size=MIB)
        log = sound_log(1000, batch_bytes=4096, base_offset=first.metadata.end_offset + 1)
        second = make_segment(log).stored(chunk_size=MIB)
        bucket = MemoryBucket()
        bucket.add(first)
        bucket.add(second)
        with fetcher_over(bucket, fetch_chunk_cache_class="memory", fetch_chunk_cache_size=64 * MIB) as fetcher:
            fetcher.next_segment = lambda metadata: second.metadata if metadata == first.metadata else None
            with fetcher.fetch_log_segment(first.metadata, 0) as stream:
                stream.read()
            cache = fetcher._cache
            assert cache is not None
            wait_until(lambda: fetcher._manifests.find(second.metadata) is not None)
            key = chunk_key(fetcher, second.metadata, 1)
            wait_until(lambda: key in cache)
            asked = len(bucket.gets)
            with fetcher.fetch_log_segment(second.metadata, 0) as stream:
                assert stream.read(MIB) == second.log[:MIB]
                assert len(bucket.gets) == asked
