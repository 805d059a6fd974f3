"""Fetching segments against the plain bytes, what it asks of a store, and what it says when something is wrong."""

from __future__ import annotations

import pathlib
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fetchers import CACHES, FORMS, MIB, MemoryBucket, fetcher_over, segment_of
from tests.support.golden import config_of
from tests.support.waiting import wait_until
from tierlog.errors import CorruptObjectError, ObjectNotFoundError
from tierlog.remote.api import IndexType, InvalidRangeError
from tierlog.remote.config import read_storage_config
from tierlog.remote.storage.fetch.segment_fetch import SegmentFetcher
from tierlog.remote.tier import open_tier
from tierlog.remote.tier.chunks.key_ring import read_key_ring
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelledReadError, CancelScope, call_within
from tierlog.runtime.stores.local.store import LocalStore

RUNS = ["main-plain", "plain-4m", "zstd", "heuristic", "aes", "zstd-aes", "custom-meta", "local-tiered"]
COMMITTED_RUNS = ["main-plain", "zstd-aes", "custom-meta", "local-tiered"]


def check_run(run: pathlib.Path, cache: dict[str, str]) -> None:
    """Whole, and five random ranges of each segment; all indexes."""
    chance = random.Random(1)
    config = config_of(run) or {}
    layout = "local-tiered" if run.name == "local-tiered" else None
    prefix = {"key.prefix": "kafka-tiered-storage/"} if layout else {}
    checked = read_storage_config({**config, **prefix, **cache})
    machine = Machine()
    store = LocalStore(str(run / "objects"), machine)
    fetcher = SegmentFetcher(store, checked, read_key_ring(checked, machine), machine=machine, layout=layout)
    with open_tier(str(run / "objects"), config=config) as tier:
        for segment in tier.iter_segments():
            log = b"".join(bytes(window) for _, window in tier.iter_log_windows(segment))
            with fetcher.fetch_log_segment(segment.metadata, 0) as stream:
                assert stream.read() == log
            for _ in range(5):
                start = chance.randrange(len(log))
                end = chance.choice([None, chance.randrange(start, len(log) + 100)])
                stop = len(log) if end is None else min(end + 1, len(log))
                with fetcher.fetch_log_segment(segment.metadata, start, end) as stream:
                    assert b"".join(stream.buffers()) == log[start:stop]
                views = fetcher.fetch_range(segment.metadata, start, stop, least_bytes=stop - start)
                assert b"".join(views) == log[start:stop]
            for kind in IndexType:
                wanted = tier.fetch_index(segment, kind)
                if wanted is None:
                    with pytest.raises(ObjectNotFoundError):
                        fetcher.fetch_index(segment.metadata, kind)
                else:
                    assert fetcher.fetch_index(segment.metadata, kind).read() == bytes(wanted)
    fetcher.close()


class TestGoldenBuckets:
    """What the plugin and Kafka wrote."""

    @pytest.mark.parametrize("cache", CACHES)
    @pytest.mark.parametrize("run", RUNS)
    def test_any_range_is_the_brokers_bytes(
        self, fixtures: pathlib.Path, tmp_path: pathlib.Path, run: str, cache: str
    ) -> None:
        """If this fails, a consumer gets other bytes than were produced."""
        check_run(
            fixtures / run, CACHES[cache] | ({"fetch.chunk.cache.path": str(tmp_path)} if cache == "disk" else {})
        )

    @pytest.mark.parametrize("run", COMMITTED_RUNS)
    def test_any_range_is_the_brokers_bytes_of_the_committed_subset(self, data: pathlib.Path, run: str) -> None:
        """If this fails, the same, where the full golden data is absent."""
        check_run(data / run, CACHES["memory"])


class TestRanges:
    """Every way to read gives exactly the bytes that were asked for."""

    @pytest.mark.few(8)
    @pytest.mark.parametrize("cache", ["none", "memory"])
    @pytest.mark.parametrize("is_local", [True, False])
    @pytest.mark.parametrize("form", FORMS)
    def test_any_range_in_any_way(self, data: pathlib.Path, form: str, is_local: bool, cache: str) -> None:
        """If this fails, bytes at chunk borders are lost, doubled, or come from the wrong chunk."""
        segment, keys = segment_of(data, form)
        bucket = MemoryBucket(is_local=is_local)
        bucket.add(segment)
        size = len(segment.log)
        options = {name.replace(".", "_"): value for name, value in CACHES[cache].items()}
        with fetcher_over(bucket, keys=keys, **options) as fetcher:

            @given(st.integers(0, size - 1), st.none() | st.integers(0, size + 10), st.integers(1, 70_000))
            @settings(max_examples=40, suppress_health_check=list(HealthCheck))
            def holds(start: int, length: int | None, step: int) -> None:
                end = None if length is None else start + length
                wanted = segment.log[start : None if end is None else end + 1]
                with fetcher.fetch_log_segment(segment.metadata, start, end) as stream:
                    parts = [stream.read(step), b"".join(stream.buffers(step))]
                    into = bytearray(step)
                    parts.append(bytes(into[: stream.readinto(into)]))
                    parts.append(stream.read())
                    assert b"".join(parts) == wanted
                    assert stream.read(1) == b""
                    assert stream.readinto(into) == 0
                    assert list(stream.buffers()) == []
                views = fetcher.fetch_range(segment.metadata, start, start + len(wanted), least_bytes=len(wanted))
                assert b"".join(views) == wanted
                assert all(view.readonly for view in views)

            holds()

    @pytest.mark.parametrize("is_plain_file", [True, False])
    def test_a_range_whose_end_is_missing(
        self, data: pathlib.Path, tmp_path: pathlib.Path, is_plain_file: bool
    ) -> None:
        """If this fails, consumers of a segment whose end is lost do not get its begin either; or get too little."""
        segment, keys = segment_of(data, "plain")
        (key,) = (key for key in segment.objects if key.endswith(".log"))
        objects = segment.objects | {key: segment.objects[key][:200_000]}
        for name, content in objects.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        store = LocalStore(str(tmp_path), Machine()) if is_plain_file else MemoryBucket(dict(objects))
        with fetcher_over(store, keys=keys) as fetcher:
            metadata = segment.metadata
            views = fetcher.fetch_range(metadata, 199_000, 200_000, least_bytes=1000)
            assert b"".join(views) == segment.log[199_000:200_000]
            with pytest.raises(CorruptObjectError):
                fetcher.fetch_range(metadata, 199_000, 201_000, least_bytes=1001)

    @pytest.mark.parametrize("is_local", [True, False])
    def test_a_cancelled_block_ends_a_range(self, data: pathlib.Path, is_local: bool) -> None:
        """If this fails, the read of a client that went waits for the store, or holds its memory."""
        segment, keys = segment_of(data, "zstd")
        bucket = MemoryBucket(is_local=is_local)
        bucket.add(segment)
        machine = Machine()
        with fetcher_over(bucket, keys=keys) as fetcher:
            fetcher.fetch_range(segment.metadata, 0, 1, least_bytes=1)
            scope = CancelScope(machine.scheduler)
            bucket.gate.clear()

            def read() -> list[memoryview]:
                return fetcher.fetch_range(segment.metadata, 0, 100, least_bytes=100)

            reading = machine.scheduler.start(lambda: call_within(scope, read), name="read")  # type: ignore[arg-type,return-value]
            wait_until(lambda: len(bucket.gets) > 2)
            scope.cancel()
            if is_local:  # a read of a disk is not ended: its bytes are not used
                bucket.gate.set()
            assert isinstance(reading.exception(20), CancelledReadError)
            bucket.gate.set()
            with pytest.raises(CancelledReadError):
                call_within(scope, read)
            assert b"".join(read()) == segment.log[:100]

    def test_views_are_no_larger_than_a_chunk_and_read_only(self, data: pathlib.Path) -> None:
        """If this fails, a reader can change what others get from the cache, or gets more than it can take."""
        segment, keys = segment_of(data, "zstd")
        bucket = MemoryBucket()
        bucket.add(segment)
        with (
            fetcher_over(bucket, keys=keys, fetch_chunk_cache_class="memory", fetch_chunk_cache_size=MIB) as fetcher,
            fetcher.fetch_log_segment(segment.metadata, 0) as stream,
        ):
            views = list(stream.buffers())
        assert all(view.readonly and 0 < len(view) <= 32_768 for view in views)

    def test_positions_that_are_no_range(self, data: pathlib.Path) -> None:
        """If this fails, a broker's mistake reads as the end of a segment."""
        segment, keys = segment_of(data, "plain")
        bucket = MemoryBucket()
        bucket.add(segment)
        with fetcher_over(bucket, keys=keys) as fetcher:
            for start, end in ((-1, None), (5, 4)):
                with pytest.raises(InvalidRangeError, match="no range"):
                    fetcher.fetch_log_segment(segment.metadata, start, end)
            with pytest.raises(InvalidRangeError, match="behind"):
                fetcher.fetch_log_segment(segment.metadata, len(segment.log))

    def test_a_closed_stream_says_so(self, data: pathlib.Path) -> None:
        """If this fails, a stream that was closed reads as one that ended."""
        segment, keys = segment_of(data, "plain")
        bucket = MemoryBucket()
        bucket.add(segment)
        with fetcher_over(bucket, keys=keys) as fetcher:
            stream = fetcher.fetch_log_segment(segment.metadata, 0)
            stream.close()
            stream.close()
            for read in (stream.read, lambda: stream.readinto(bytearray(1)), lambda: list(stream.buffers())):
                with pytest.raises(ValueError, match="closed"):
                    read()
