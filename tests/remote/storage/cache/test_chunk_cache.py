"""The cache of chunks in memory: the broker's bytes, one log's apart from another's."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.fetchers import FORMS, MIB, MemoryBucket, fetcher_over, segment_of
from tierlog.remote.storage.cache.chunk_cache import MemoryChunkCache
from tierlog.remote.tier.chunks.stored_segment import ChunkKey
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock


def cache_with(*keys: ChunkKey) -> MemoryChunkCache:
    cache = MemoryChunkCache(MIB, machine=Machine(clock=ManualClock()))
    for key in keys:
        cache.put(key, memoryview(b"chunk"), 5)
    return cache


FIRST, SECOND, OTHER = ChunkKey("a.log", 0), ChunkKey("a.log", 1), ChunkKey("b.log", 0)


def test_a_chunk_that_is_dropped_is_gone_alone() -> None:
    """If this fails, a chunk that turned out to be another one is served again and again."""
    cache = cache_with(FIRST, SECOND, OTHER)
    cache.drop(FIRST)
    assert [cache.find(key) for key in (FIRST, SECOND, OTHER)] == [None, b"chunk", b"chunk"]


def test_a_log_that_is_forgotten_is_gone_whole_and_alone() -> None:
    """If this fails, chunks of deleted segments take the place of others', or those of others go with them."""
    cache = cache_with(FIRST, SECOND, OTHER)
    cache.forget("a.log")
    assert [key in cache for key in (FIRST, SECOND, OTHER)] == [False, False, True]
    assert cache.figures.entries == 1


def test_closing_lets_go_of_everything() -> None:
    """If this fails, a manager that was closed and is still referred to keeps its cache's memory."""
    cache = cache_with(FIRST, OTHER)
    cache.close()
    assert (cache.figures.entries, cache.figures.size_bytes) == (0, 0)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_kept_is_the_brokers_bytes(data: pathlib.Path, form: str) -> None:
    """If this fails, the second reader of a chunk gets it as it is stored, compressed and encrypted."""
    segment, keys = segment_of(data, form)
    bucket = MemoryBucket(segment.objects)
    options = {"fetch_chunk_cache_class": "memory", "fetch_chunk_cache_size": MIB}
    with fetcher_over(bucket, keys=keys, **options) as fetcher:
        for _ in range(2):
            with fetcher.fetch_log_segment(segment.metadata, 0) as stream:
                assert stream.read() == segment.log
    assert sum(end - start for start, end in bucket.asked("log")) == len(segment.objects[f"{segment.base}.log"])
