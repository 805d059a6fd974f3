"""Manifests at hand: what they count for, how many requests they save, and when they are gone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.fetchers import MemoryBucket, fetcher_over
from tests.support.segments import BucketSegment, make_segment, sound_log
from tierlog.errors import ObjectNotFoundError
from tierlog.remote.storage.storage_metrics import StorageMetrics

CHUNK = 1024


def segment_of(chunks: int, *, compression: bool = False, name: str = "a") -> BucketSegment:
    log = sound_log(chunks * CHUNK // 400, batch_bytes=400)
    return make_segment(log, name=name).stored(chunk_size=CHUNK, compression=compression)


def held_bytes(segment: BucketSegment) -> float:
    """What the cache of manifests accounts for one."""
    metrics = StorageMetrics()
    with fetcher_over(MemoryBucket(segment.objects), metrics=metrics) as fetcher:
        fetcher.fetch_log_segment(segment.metadata, 0, 0).read()
        return metrics.value("cache_bytes", cache="manifests")


def test_a_manifest_counts_for_what_it_takes() -> None:
    """If this fails, manifests of segments in small compressed chunks fill a broker's memory beside the cache's limit.

    A compressed segment's has the size of each chunk; of another one nothing grows with the chunks.
    """
    plain = [held_bytes(segment_of(chunks)) for chunks in (50, 2000)]
    few, many = (segment_of(chunks, compression=True) for chunks in (50, 2000))
    compressed = [held_bytes(few), held_bytes(many)]
    assert 4096 < plain[0] <= 8192
    assert plain[1] - plain[0] < 20, "digits"
    more_chunks = (len(many.log) - len(few.log)) // CHUNK
    assert 12 * more_chunks <= compressed[1] - compressed[0] <= 12 * more_chunks + 4096
    assert compressed[0] > plain[0]


def test_one_manifest_is_one_request_and_one_miss() -> None:
    """If this fails, each fetch of a consumer costs a round trip more."""
    segment = segment_of(20)
    bucket, metrics = MemoryBucket(segment.objects), StorageMetrics()
    with fetcher_over(bucket, metrics=metrics) as fetcher:
        for _ in range(4):
            fetcher.fetch_log_segment(segment.metadata, 0, 0).read()
    assert len(bucket.asked("rsm-manifest")) == 1
    assert metrics.value("cache_misses_total", cache="manifests") == 1
    assert metrics.value("cache_hits_total", cache="manifests") == 3


def test_a_segment_that_was_deleted_is_forgotten_whatever_its_custom_metadata_was() -> None:
    """If this fails, a segment that is gone is still read, for as long as its manifest is at hand."""
    gone, kept = segment_of(20), segment_of(20, name="b")
    bucket = MemoryBucket(gone.objects | kept.objects)
    with fetcher_over(bucket) as fetcher:
        fetcher.fetch_log_segment(gone.metadata, 0, 0).read()
        fetcher.fetch_log_segment(kept.metadata, 0, 0).read()
        fetcher.forget(replace(gone.metadata, custom_metadata=b"\0"))
        bucket.objects = dict(kept.objects)
        fetcher.fetch_log_segment(kept.metadata, 0, 0).read()
        assert len(bucket.asked("rsm-manifest")) == 2
        with pytest.raises(ObjectNotFoundError):
            fetcher.fetch_log_segment(gone.metadata, 0, 0).read()
