"""Indexes at hand: those that lie together come together, and what came is not asked for again."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.fetchers import MemoryBucket, fetcher_over
from tests.support.segments import BucketSegment, make_segment, sound_log, throwaway_keys
from tierlog.errors import CorruptObjectError
from tierlog.remote.api import IndexType
from tierlog.remote.storage.cache.index_cache import TOGETHER_BYTES_MAX
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.remote.tier import open_tier


def segment_with(offsets_bytes: int) -> BucketSegment:
    return make_segment(
        sound_log(5), indexes={IndexType.OFFSET: bytes(offsets_bytes), IndexType.PRODUCER_SNAPSHOT: b""}
    ).stored()


@pytest.mark.parametrize(("total", "requests"), [(TOGETHER_BYTES_MAX, 1), (TOGETHER_BYTES_MAX + 1, 3)])
def test_two_mebibytes_come_together(total: int, requests: int) -> None:
    """If this fails, a broker's lookup costs three requests in place of one, or megabytes in place of bytes."""
    assert TOGETHER_BYTES_MAX == 2 << 20
    others = sum(len(data) for kind, data in segment_with(0).parts.items() if kind is not IndexType.OFFSET)
    segment = segment_with(total - others)
    bucket = MemoryBucket(segment.objects)
    with fetcher_over(bucket) as fetcher:
        for _ in range(2):
            for kind in (IndexType.LEADER_EPOCH, IndexType.OFFSET, IndexType.TIMESTAMP):
                assert len(fetcher.fetch_index(segment.metadata, kind).read()) > 0
    assert len(bucket.asked("indexes")) == requests


def test_a_damaged_neighbour_does_not_cost_the_others(data: pathlib.Path) -> None:
    """If this fails, one bad index makes a broker ask again for each of the others, or answers for itself."""
    keys = throwaway_keys(data)
    segment = make_segment(sound_log(5)).stored(key_ring=keys)
    name = f"{segment.base}.indexes"
    stored = bytearray(segment.objects[name])
    stored[20] ^= 1  # in the first one: the offsets
    bucket = MemoryBucket(segment.objects | {name: bytes(stored)})
    with fetcher_over(bucket, keys=keys) as fetcher:
        for kind in (IndexType.LEADER_EPOCH, IndexType.TIMESTAMP):
            assert fetcher.fetch_index(segment.metadata, kind).read() == segment.parts[kind]
        assert len(bucket.asked("indexes")) == 1
        with pytest.raises(CorruptObjectError):
            fetcher.fetch_index(segment.metadata, IndexType.OFFSET).read()


def test_an_index_of_unknown_size_is_fetched_once(data: pathlib.Path) -> None:
    """If this fails, each lookup in what Kafka's own LocalTieredStorage wrote is a request."""
    root = data / "local-tiered" / "objects"
    objects = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with open_tier(str(root)) as tier:
        stored = next(iter(tier.iter_segments()))
        wanted = tier.fetch_index(stored, IndexType.OFFSET)
    assert wanted
    bucket = MemoryBucket(objects)
    with fetcher_over(bucket, layout="local-tiered", key_prefix="kafka-tiered-storage/") as fetcher:
        for _ in range(3):
            assert fetcher.fetch_index(stored.metadata, IndexType.OFFSET).read() == bytes(wanted)
    assert len([suffix for suffix, _, _ in bucket.gets if "index" in suffix and "time" not in suffix]) == 1


def test_hits_and_misses_are_counted() -> None:
    """If this fails, nobody sees that the cache of indexes is too small."""
    segment = segment_with(1000)
    metrics = StorageMetrics()
    with fetcher_over(MemoryBucket(segment.objects), metrics=metrics) as fetcher:
        for kind in (IndexType.OFFSET, IndexType.OFFSET, IndexType.LEADER_EPOCH, IndexType.PRODUCER_SNAPSHOT):
            fetcher.fetch_index(segment.metadata, kind).read()
    assert metrics.value("cache_misses_total", cache="indexes") == 1
    assert metrics.value("cache_hits_total", cache="indexes") == 2, "an empty one is in the manifest"
    assert metrics.value("cache_hit_bytes_total", cache="indexes") == 1000 + len(segment.parts[IndexType.LEADER_EPOCH])
