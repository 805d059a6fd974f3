"""What a chunk cache kept of an object that was written anew under the same key: never an error, never other bytes."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from tests.support.fetchers import MIB, MemoryBucket, chunk_key, fetcher_over
from tests.support.segments import BucketSegment, make_segment, sound_log, throwaway_keys
from tests.support.waiting import wait_until
from tierlog.remote.storage.fetch.segment_fetch import SegmentFetcher
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.remote.tier.chunks.key_ring import KeyRing

#: Two copies of one segment: chunk size, compressed, encrypted.
COPIES: dict[str, tuple[tuple[int, bool, bool], tuple[int, bool, bool]]] = {
    "another data key": ((65_536, False, True), (65_536, False, True)),
    "another chunk size, zstd": ((65_536, True, False), (32_768, True, False)),
    "another chunk size, AES": ((65_536, False, True), (32_768, False, True)),
    "zstd, then plain": ((65_536, True, False), (65_536, False, False)),
    "plain, then zstd": ((65_536, False, False), (MIB, True, False)),
    "another data key, zstd and AES": ((65_536, True, True), (65_536, True, True)),
}


@pytest.fixture(scope="module")
def log() -> bytes:
    return sound_log(64, batch_bytes=4096)


def copied(log: bytes, how: tuple[int, bool, bool], keys: KeyRing) -> BucketSegment:
    chunk_size, compression, encrypted = how
    key_ring = keys if encrypted else None
    return make_segment(log).stored(chunk_size=chunk_size, compression=compression, key_ring=key_ring)


def read_all(fetcher: SegmentFetcher, segment: BucketSegment) -> bytes:
    with fetcher.fetch_log_segment(segment.metadata, 0) as stream:
        return stream.read()


@pytest.mark.parametrize("form", ["memory", "disk", "disk in the clear"])
@pytest.mark.parametrize("copies", COPIES.values(), ids=list(COPIES))
def test_the_same_key_copied_again_is_read_anew(
    data: pathlib.Path,
    tmp_path: pathlib.Path,
    log: bytes,
    copies: tuple[tuple[int, bool, bool], tuple[int, bool, bool]],
    form: str,
) -> None:
    """If this fails, a bucket that was restored or copied into again is unreadable for readers with a cache."""
    keys = throwaway_keys(data)
    first, second = (copied(log, how, keys) for how in copies)
    options: dict[str, Any] = {"fetch_chunk_cache_class": form.split(maxsplit=1)[0], "fetch_chunk_cache_size": MIB}
    if form != "memory":
        options["fetch_chunk_cache_path"] = tmp_path
    if form == "disk in the clear":
        options["fetch_chunk_cache_encryption_enabled"] = "false"
    bucket = MemoryBucket(first.objects)
    metrics = StorageMetrics()
    with fetcher_over(bucket, keys=keys, **options) as fetcher:
        assert read_all(fetcher, first) == log
        cache = fetcher._cache
        assert cache is not None
        key = chunk_key(fetcher, first.metadata)
        wait_until(lambda: key in cache)
        if form == "memory":
            bucket.objects = dict(second.objects)
            fetcher._manifests.forget(first.metadata)
            for _ in range(2):
                assert read_all(fetcher, second) == log
    if form != "memory":
        bucket = MemoryBucket(second.objects)
        with fetcher_over(bucket, keys=keys, metrics=metrics, **options) as fetcher:
            for _ in range(2):
                assert read_all(fetcher, second) == log
        assert metrics.value("cache_damaged_total", cache="chunks_disk") == 0  # another name, so none is taken for it


@pytest.mark.parametrize(
    ("how", "encrypted"),
    [((65_536, False, True), "true"), ((65_536, True, False), "true"), ((65_536, True, True), "false")],
    ids=["not authentic", "not a frame", "not of its size"],
)
def test_a_cached_chunk_that_does_not_open_is_a_miss(
    data: pathlib.Path, tmp_path: pathlib.Path, log: bytes, how: tuple[int, bool, bool], encrypted: str
) -> None:
    """If this fails, one wrong file of a cache makes its part of the log unreadable until the file is evicted."""
    keys = throwaway_keys(data)
    segment = copied(log, how, keys)
    metrics = StorageMetrics()
    bucket = MemoryBucket(segment.objects)
    with fetcher_over(
        bucket,
        keys=keys,
        metrics=metrics,
        fetch_chunk_cache_class="disk",
        fetch_chunk_cache_size=MIB,
        fetch_chunk_cache_path=tmp_path,
        fetch_chunk_cache_encryption_enabled=encrypted,
    ) as fetcher:
        cache = fetcher._cache
        assert cache is not None
        fetcher.fetch_log_segment(segment.metadata, 0).close()
        key = chunk_key(fetcher, segment.metadata)
        cache.put(key, memoryview(bytes(5000)))
        assert read_all(fetcher, segment) == log
        assert metrics.value("cache_damaged_total", cache="chunks_disk") == 1
        wait_until(lambda: key in cache)
        asked = len(bucket.asked("log"))
        with fetcher.fetch_log_segment(segment.metadata, 0, 999) as stream:
            assert stream.read() == log[:1000]
        assert len(bucket.asked("log")) == asked
        assert metrics.value("cache_damaged_total", cache="chunks_disk") == 1


def test_files_of_before_a_name_had_a_fingerprint_are_removed(tmp_path: pathlib.Path) -> None:
    """If this fails, an upgrade leaves files that nobody asks for, and the disk holds more than the limit."""
    old = tmp_path / "tierlog-chunks" / "01" / "0123456789abcdef-7.chunk"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"old")
    with fetcher_over(
        MemoryBucket({}),
        fetch_chunk_cache_class="disk",
        fetch_chunk_cache_size=MIB,
        fetch_chunk_cache_path=tmp_path,
    ):
        assert not old.exists()
