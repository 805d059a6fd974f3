"""What fetches hold when they have ended: nothing, without the garbage collector's help."""

from __future__ import annotations

import gc
import pathlib
import random
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.fetchers import FORMS, MIB, MemoryBucket, fetcher_over, segment_of
from tests.support.segments import throwaway_keys
from tests.support.waiting import LIMIT_SECONDS
from tierlog.errors import CorruptObjectError, StoreUnavailableError
from tierlog.runtime.machine.buffers import PROCESS_BUFFERS

CACHES: dict[str, dict[str, object]] = {
    "none": {},
    "memory": {"fetch_chunk_cache_class": "memory", "fetch_chunk_cache_size": MIB},
    "disk": {
        "fetch_chunk_cache_class": "disk",
        "fetch_chunk_cache_size": 64 * MIB,
        "fetch_chunk_cache_memory_size": MIB,
    },
}


#: Neither compression nor encryption, and both; what one alone adds is little.
SOME_FORMS = [pytest.param(form, marks=pytest.mark.more) if form in ("zstd", "aes") else form for form in FORMS]


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Objects that hold each other stay until it is over."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def settles(bytes_max: int) -> bool:
    """Whether no more than this is lent, soon: a cache's write may go on after the reader has gone."""
    until = time.monotonic() + LIMIT_SECONDS
    while PROCESS_BUFFERS.lent_bytes > bytes_max:
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.few(4)
@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("form", SOME_FORMS)
def test_ended_fetches_hold_nothing(
    data: pathlib.Path, tmp_path: pathlib.Path, form: str, is_local: bool, cache: str
) -> None:
    """If this fails, each fetch keeps its chunks until the collector comes by, which it does by numbers of objects: a
    gigabyte of chunks are a few hundred.
    """
    segment, keys = segment_of(data, form, size_bytes=4 * MIB, chunk_size=256 << 10)
    options = CACHES[cache] | ({"fetch_chunk_cache_path": tmp_path} if cache == "disk" else {})
    kept = 0 if cache == "none" else MIB
    chance = random.Random(1)
    before = PROCESS_BUFFERS.lent_bytes
    with fetcher_over(MemoryBucket(segment.objects, is_local=is_local), keys=keys, **options) as fetcher:  # type: ignore[arg-type]
        for number in range(40):
            start = chance.randrange(len(segment.log) - MIB // 2)
            with fetcher.fetch_log_segment(segment.metadata, start, start + MIB // 2 - 1) as stream:
                if number % 3 == 0:
                    stream.read(1000)  # and leaves
                elif number % 3 == 1:
                    assert stream.read() == segment.log[start : start + MIB // 2]
                else:
                    assert sum(len(view) for view in stream.buffers()) == MIB // 2
            del stream
        assert settles(before + kept + (MIB // 2 if kept else 0)), PROCESS_BUFFERS.lent_bytes - before
    del fetcher
    if not kept:
        assert settles(before)


@pytest.mark.usefixtures("no_collector")
def test_many_threads_hold_nothing_afterwards(data: pathlib.Path) -> None:
    """If this fails, fifty consumers of old data leave gigabytes behind that nobody holds."""
    keys = throwaway_keys(data)
    segment, _ = segment_of(data, "zstd", size_bytes=8 * MIB, chunk_size=MIB)
    before = PROCESS_BUFFERS.lent_bytes
    with fetcher_over(MemoryBucket(segment.objects, is_local=True), keys=keys) as fetcher:

        def work(number: int) -> None:
            chance = random.Random(number)
            for _ in range(4):
                start = chance.randrange(len(segment.log) - MIB)
                with fetcher.fetch_log_segment(segment.metadata, start, start + MIB - 1) as stream:
                    assert sum(len(view) for view in stream.buffers()) == MIB

        threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert settles(before), PROCESS_BUFFERS.lent_bytes - before


@pytest.mark.few(3)
@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("start", [0, 300_000])
@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("form", SOME_FORMS)
def test_streams_at_their_end_hold_nothing(data: pathlib.Path, form: str, is_local: bool, start: int) -> None:
    """If this fails, a broker that closes its streams late keeps a chunk for each, which no budget counts."""
    segment, keys = segment_of(data, form, size_bytes=2 * MIB, chunk_size=256 << 10)
    before = PROCESS_BUFFERS.lent_bytes
    with fetcher_over(MemoryBucket(segment.objects, is_local=is_local), keys=keys) as fetcher:
        streams = [fetcher.fetch_log_segment(segment.metadata, start, start + 99_999) for _ in range(5)]
        for stream in streams:
            assert stream.read(50_000) + stream.read() == segment.log[start : start + 100_000]
        assert settles(before), PROCESS_BUFFERS.lent_bytes - before
        for stream in streams:
            stream.close()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("is_local", [True, False])
def test_failed_fetches_hold_nothing(data: pathlib.Path, is_local: bool) -> None:
    """If this fails, a bad hour of the store costs memory too, since each error keeps what had come already."""
    segment, keys = segment_of(data, "zstd-aes", size_bytes=4 * MIB, chunk_size=256 << 10)
    name = f"{segment.base}.log"
    damaged = bytearray(segment.objects[name])
    damaged[len(damaged) // 2] ^= 1
    bucket = MemoryBucket(segment.objects | {name: bytes(damaged)}, is_local=is_local)
    before = PROCESS_BUFFERS.lent_bytes
    with fetcher_over(bucket, keys=keys) as fetcher:
        for _ in range(10):
            with pytest.raises(CorruptObjectError), fetcher.fetch_log_segment(segment.metadata, 0) as stream:
                stream.read()
            del stream
            bucket.failures["log"] = [StoreUnavailableError("injected")] * 3
            with pytest.raises(StoreUnavailableError), fetcher.fetch_log_segment(segment.metadata, 0) as stream:
                stream.read()
            bucket.failures.clear()
        assert settles(before), PROCESS_BUFFERS.lent_bytes - before
