"""What fetching counts, and the download limit."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.fetchers import MIB, MemoryBucket, chunk_key, segment_of
from tests.support.segments import make_segment, sound_log
from tests.support.waiting import wait_until
from tierlog.errors import StoreUnavailableError
from tierlog.remote.api import IndexType
from tierlog.remote.config import read_storage_config
from tierlog.remote.storage.fetch.segment_fetch import SegmentFetcher
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.stores.wrappers.rate_limiter import RateLimiter

CACHED = {"fetch.chunk.cache.class": "memory", "fetch.chunk.cache.size": "100000", "fetch.prefetch.enabled": "false"}


def test_hits_and_bytes_are_counted(data: pathlib.Path) -> None:
    """If this fails, nobody sees whether a cache is worth its memory, or what is fetched for nothing."""
    segment, keys = segment_of(data, "zstd")
    bucket = MemoryBucket(segment.objects)
    metrics = StorageMetrics()
    fetcher = SegmentFetcher(bucket, read_storage_config(CACHED), keys, metrics=metrics)  # type: ignore[arg-type]
    for _ in range(3):
        with fetcher.fetch_log_segment(segment.metadata, 0, 999) as stream:
            stream.read(600)
    fetcher.fetch_index(segment.metadata, IndexType.OFFSET).close()
    fetcher.fetch_index(segment.metadata, IndexType.TIMESTAMP).close()
    assert metrics.value("fetches_total") == 3
    assert metrics.value("fetch_requested_bytes_total") == 3000
    assert metrics.value("fetch_returned_bytes_total") == 1800
    first_chunk = bucket.asked("log")[0][1]
    stored = first_chunk + sum(len(segment.objects[f"{segment.base}.{s}"]) for s in ("indexes", "rsm-manifest"))
    assert metrics.value("fetch_bytes_total") == stored
    assert metrics.value("cache_hits_total", cache="chunks_memory") == 2
    assert metrics.value("cache_misses_total", cache="chunks_memory") == 1
    assert metrics.value("cache_hit_bytes_total", cache="chunks_memory") == 2 * 32_768
    assert metrics.value("cache_hits_total", cache="manifests") == 4
    assert metrics.value("cache_hits_total", cache="indexes") == 1
    assert metrics.value("cache_bytes", cache="chunks_memory") == 32_768
    assert metrics.value("fetch_first_byte_seconds_count") == 3
    with fetcher.fetch_log_segment(segment.metadata, 0) as stream:
        stream.read()
    assert metrics.value("cache_evictions_total", cache="chunks_memory") > 0
    fetcher.close()


def test_a_range_that_is_found_at_once_is_counted(data: pathlib.Path) -> None:
    """If this fails, the cache of a server or a sidecar looks useless, since nearly all that it answers is found so."""
    segment, keys = segment_of(data, "zstd")
    metrics = StorageMetrics()
    fetcher = SegmentFetcher(
        MemoryBucket(segment.objects),
        read_storage_config(CACHED),
        keys,
        metrics=metrics,  # type: ignore[arg-type]
    )
    assert fetcher.find_cached(segment.metadata, 0, 600, again=False) is None
    assert metrics.value("cache_hits_total", cache="chunks_memory") == 0, "whoever reads it then counts"
    with fetcher.fetch_log_segment(segment.metadata, 0, 999) as stream:
        stream.read()
    for _ in range(2):
        assert fetcher.find_cached(segment.metadata, 0, 600, again=False) is not None
    fetcher.close()
    assert metrics.value("cache_hits_total", cache="chunks_memory") == 2
    assert metrics.value("cache_hit_bytes_total", cache="chunks_memory") == 2 * 32_768
    assert metrics.value("cache_misses_total", cache="chunks_memory") == 1


@pytest.mark.parametrize("is_local", [False, True])
@pytest.mark.parametrize("opened_bytes", [0, MIB])
def test_the_disk_cache_is_counted(
    data: pathlib.Path, tmp_path: pathlib.Path, is_local: bool, opened_bytes: int
) -> None:
    """If this fails, the disk cache looks useless, whatever it saves; or each mebibyte of a chunk opens all of it."""
    segment, keys = segment_of(data, "zstd")
    metrics = StorageMetrics()
    options = CACHED | {
        "fetch.chunk.cache.class": "disk",
        "fetch.chunk.cache.size": str(MIB),
        "fetch.chunk.cache.path": str(tmp_path),
        "fetch.chunk.cache.memory.size": str(opened_bytes),
    }
    bucket = MemoryBucket(segment.objects, is_local)
    fetcher = SegmentFetcher(bucket, read_storage_config(options), keys, metrics=metrics)  # type: ignore[arg-type]
    cache = fetcher._cache
    assert cache is not None
    for _ in range(2):
        with fetcher.fetch_log_segment(segment.metadata, 0, 999) as stream:
            stream.read()
        key = chunk_key(fetcher, segment.metadata)
        wait_until(lambda key=key, cache=cache: key in cache)  # written after the reader has it
    fetcher.close()
    assert metrics.value("cache_misses_total", cache="chunks_disk") == 1
    kind, other = ("chunks_memory", "chunks_disk") if opened_bytes else ("chunks_disk", "chunks_memory")
    assert metrics.value("cache_hits_total", cache=kind) == 1
    assert metrics.value("cache_hit_bytes_total", cache=kind) == 32_768
    assert metrics.value("cache_hits_total", cache=other) == 0


def test_a_fetch_that_fails_is_counted_for_its_partition(data: pathlib.Path) -> None:
    """If this fails, nobody sees which topic's consumers get errors."""
    segment, keys = segment_of(data, "zstd")
    bucket = MemoryBucket(segment.objects, failures={"log": [StoreUnavailableError("away")]})
    metrics = StorageMetrics()
    metrics.record_partitions()
    fetcher = SegmentFetcher(bucket, read_storage_config({}), keys, metrics=metrics)  # type: ignore[arg-type]
    partition = segment.metadata.topic_id_partition
    labels = {"topic": partition.topic, "partition": str(partition.partition), "operation": "fetch_segment"}
    series = "tierlog_remote_partition_errors_total"
    with fetcher.fetch_log_segment(segment.metadata, 0) as stream:
        with pytest.raises(StoreUnavailableError):
            stream.read()
        assert metrics.registry.get_sample_value(series, labels) == 1
        assert len(stream.read()) == len(segment.log)
    assert metrics.registry.get_sample_value(series, labels) == 1
    fetcher.close()


class TimedBucket(MemoryBucket):
    """Notes when each request came, by the machine's clock."""

    def on(self, machine: Machine) -> TimedBucket:
        self.machine = machine
        self.times: list[tuple[float, int]] = []
        return self

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> memoryview:
        found = memoryview(
            super().fetch_range(key, start_position=start_position, end_position_exclusive=end_position_exclusive)
        )
        self.times.append((self.machine.clock.monotonic_seconds(), len(found)))
        return found


@pytest.mark.parametrize("chunk_size", [MIB, 6 * MIB])
def test_no_ten_seconds_see_more_than_the_download_limit(chunk_size: int) -> None:
    """If this fails, hydration of a consumer takes the network from the produce path, whatever the limit says."""
    limit = 2 * MIB
    segment = make_segment(sound_log(240, batch_bytes=256 << 10)).stored(chunk_size=chunk_size)
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler:
        bucket = TimedBucket().on(machine)
        bucket.add(segment)
        fetcher = SegmentFetcher(
            bucket,  # type: ignore[arg-type]
            read_storage_config(
                {"fetch.chunk.cache.get.timeout.ms": "1000000", "fetch.manifest.cache.get.timeout.ms": "1000000"}
            ),
            KeyRing({}, machine),
            limiter=RateLimiter(limit, machine=machine),
            machine=machine,
        )
        with fetcher.fetch_log_segment(segment.metadata, 0) as stream:
            assert stream.read() == segment.log
        fetcher.close()
    for at, _ in bucket.times:
        window = sum(size for then, size in bucket.times if at <= then < at + 10)
        assert window <= 10 * limit + 4 * MIB
    assert bucket.times[-1][0] >= len(segment.log) / limit * 0.9
