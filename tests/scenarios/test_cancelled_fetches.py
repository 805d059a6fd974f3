"""Closing streams and managers while a real server, behind a proxy, does not answer."""

from __future__ import annotations

import pathlib
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.support.fault_proxy import FaultProxy, Rule
from tests.support.fetchers import CACHES, MIB, fetcher_over, segment_of
from tests.support.segments import BucketSegment, make_segment, sound_log
from tests.support.servers import StoreServer
from tests.support.waiting import ENDLESS_STORE, ends, stands, wait_until
from tierlog.errors import StoreUnavailableError
from tierlog.remote.api import IndexType, RemoteStorageException, SegmentStream
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.store_urls import open_store

pytestmark = pytest.mark.server

SIZE = 6 * MIB


@dataclass
class Stalled:
    """A segment in a bucket behind a proxy."""

    proxy: FaultProxy
    store: ObjectStore
    url: str
    options: dict[str, str]
    segment: BucketSegment
    keys: KeyRing

    def gets(self, suffix: str = ".log") -> int:
        return sum(seen.verb == "GET" and seen.path.endswith(suffix) for seen in list(self.proxy.seen))

    def wait_for_gets(self, count: int, suffix: str = ".log") -> None:
        wait_until(lambda: self.gets(suffix) >= count)

    def stall_log(self, *, skip: int) -> Rule:
        """The first requests pass."""
        return self.proxy.add("stall", verb="GET", path=".log", skip=skip, times=None)


@pytest.fixture(params=["plain", "zstd-aes"])
def stalled(s3: StoreServer, data: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Stalled]:
    segment, keys = segment_of(data, request.param, size_bytes=SIZE, chunk_size=256 << 10)
    url = f"{s3.url}/cancelled/{uuid.uuid4()}"
    with FaultProxy.before(s3) as proxy:
        options = {**s3.options, "store.endpoint": proxy.endpoint, "store.max_retries": "0"} | ENDLESS_STORE
        store = open_store(url, options)
        for key, content in segment.objects.items():
            store.put(key, content)
        yield Stalled(proxy, store, url, options, segment, keys)
        store.close()


class Reading:
    """A stream that is read to its end in a thread of its own."""

    def __init__(self, stream: SegmentStream) -> None:
        self.stream = stream
        self.outcome: bytes | BaseException | None = None
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        try:
            self.outcome = self.stream.read()
        except BaseException as error:  # noqa: BLE001 - told to the test
            self.outcome = error

    def close(self) -> None:
        """Close the stream; its reader ends."""
        with ends():
            self.stream.close()
            self.thread.join()


def test_closing_a_stream_ends_its_request(stalled: Stalled) -> None:
    """If this fails, each consumer that gives up leaves a connection and a thread behind until the store times out."""
    rule = stalled.stall_log(skip=1)
    with fetcher_over(stalled.store, keys=stalled.keys) as fetcher:
        reading = Reading(fetcher.fetch_log_segment(stalled.segment.metadata, 0))
        stalled.wait_for_gets(2)
        reading.close()
        assert isinstance(reading.outcome, ValueError)
        rule.wait_left(stalled.gets() - 1)
        reading.stream.close()
        stalled.proxy.clear()
        with fetcher.fetch_log_segment(stalled.segment.metadata, 0) as again:
            assert again.read() == stalled.segment.log


def test_bytes_stop_in_the_middle_of_an_answer(stalled: Stalled) -> None:
    """If this fails, what nobody reads goes on over the wire, and is paid for."""
    rule = stalled.proxy.add("slow", verb="GET", path=".log", skip=1, times=None, after_bytes=20_000)
    with fetcher_over(stalled.store, keys=stalled.keys) as fetcher:
        reading = Reading(fetcher.fetch_log_segment(stalled.segment.metadata, 0))
        stalled.wait_for_gets(2)
        reading.close()
        rule.wait_left(stalled.gets() - 1)


@pytest.mark.parametrize("stalled", ["zstd-aes"], indirect=True)  # without a cache, plain ranges are each reader's own
@pytest.mark.parametrize("stays", [True, False])
def test_who_waits_for_the_same_chunks_is_not_disturbed(stalled: Stalled, stays: bool) -> None:
    """If this fails, one consumer that gives up ends the reads of others; or the last one leaves a request behind."""
    with fetcher_over(stalled.store, keys=stalled.keys) as fetcher:
        metadata = stalled.segment.metadata
        with fetcher.fetch_log_segment(metadata, 0, 0) as stream:
            stream.read()  # the manifest is at hand: from here on readers wait for chunks alone
        asked = stalled.gets()
        rule = stalled.proxy.add("hold", verb="GET", path=".log")
        first, second = (Reading(fetcher.fetch_log_segment(metadata, 0)) for _ in range(2))
        wait_until(lambda: rule.struck == 1 and stands(first.thread) and stands(second.thread))
        first.close()
        assert isinstance(first.outcome, ValueError)
        if stays:
            rule.release()
            second.thread.join()
            assert second.outcome == stalled.segment.log
            assert rule.left == 0
        else:
            second.close()
            rule.wait_left(1)
        gets = [seen for seen in stalled.proxy.seen if seen.verb == "GET" and seen.path.endswith(".log")]
        assert [seen.range.startswith("bytes=0-") for seen in gets[asked:]].count(True) == 1, "one request for both"


@pytest.mark.parametrize("cache", ["memory", "disk"])
def test_a_cache_gets_what_an_interrupted_reader_asked_for(
    stalled: Stalled, tmp_path: pathlib.Path, cache: str
) -> None:
    """If this fails, a consumer whose fetch is cut short again and again downloads the same chunk for ever."""
    rule = stalled.proxy.add("slow", verb="GET", path=".log", skip=1, times=1, after_bytes=4 * MIB)
    options = {name.replace(".", "_"): value for name, value in CACHES[cache].items()}
    options |= {"fetch_chunk_cache_size": str(4 * SIZE), "fetch_prefetch_enabled": "false"}
    if cache == "disk":
        options["fetch_chunk_cache_path"] = str(tmp_path)
    with fetcher_over(stalled.store, keys=stalled.keys, **options) as fetcher:
        reading = Reading(fetcher.fetch_log_segment(stalled.segment.metadata, 0))
        stalled.wait_for_gets(2)
        asked = stalled.gets()
        reading.close()
        held, opened = fetcher._chunks.cache, fetcher._manifests.find(stalled.segment.metadata)
        assert held is not None
        assert opened is not None
        wanted = 3 * MIB // 2
        keys = [opened.log.key(view) for view in opened.log.views(0, wanted + 1)]
        wait_until(lambda: all(key in held for key in keys))  # a disk gets them behind the readers
        assert rule.left == 0
        with fetcher.fetch_log_segment(stalled.segment.metadata, 0, wanted) as stream:
            assert stream.read() == stalled.segment.log[: wanted + 1]
        assert stalled.gets() == asked


def manager_keys(stalled: Stalled) -> dict[str, str]:
    """Of a broker with this bucket."""
    return {
        "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
        "storage.s3.bucket.name": "tier",
        "key.prefix": stalled.url.partition("tier/")[2] + "/",
        "storage.s3.endpoint.url": stalled.options["store.endpoint"],
        "storage.s3.region": "us-east-1",
        "storage.s3.path.style.access.enabled": "true",
        "storage.aws.access.key.id": stalled.options["store.access_key_id"],
        "storage.aws.secret.access.key": stalled.options["store.secret_access_key"],
        "chunk.size": "1048576",
    } | ENDLESS_STORE


@pytest.mark.parametrize("cache", [True, False])
def test_closing_the_manager_does_not_wait_for_the_store(stalled: Stalled, cache: bool) -> None:
    """If this fails, a broker's shutdown takes as long as its store's time limits, with all their retries."""
    keys = manager_keys(stalled)
    if cache:
        keys |= {"fetch.chunk.cache.class": "memory", "fetch.chunk.cache.size": str(4 * SIZE)}
    manager = TieredStorageManager()
    manager.configure(keys)
    outcomes: list[BaseException] = []

    def asking(ask: Callable[[], SegmentStream]) -> threading.Thread:
        def work() -> None:
            try:
                ask().read()
            except RemoteStorageException as error:
                outcomes.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    metadata = stalled.segment.metadata
    rule = stalled.proxy.add("stall", verb="GET", path="rsm-manifest", times=None)
    threads = [asking(lambda: manager.fetch_log_segment(metadata, 0))]
    stalled.wait_for_gets(1, ".rsm-manifest")
    threads.append(asking(lambda: manager.fetch_index(metadata, IndexType.OFFSET)))
    wait_until(lambda: all(map(stands, threads)))
    with ends():
        manager.close()
        for thread in threads:
            thread.join()
    assert len(outcomes) == 2
    rule.wait_left(1)


@pytest.mark.parametrize("cache", [True, False])
def test_closing_the_fetcher_ends_downloads(stalled: Stalled, cache: bool) -> None:
    """If this fails, the same, for a segment whose manifest is at hand."""
    rule = stalled.stall_log(skip=1)
    options = {"fetch_chunk_cache_class": "memory", "fetch_chunk_cache_size": 4 * SIZE} if cache else {}
    with fetcher_over(stalled.store, keys=stalled.keys, **options) as fetcher:
        reading = Reading(fetcher.fetch_log_segment(stalled.segment.metadata, 0))
        stalled.wait_for_gets(2)
        with ends():
            fetcher.close()
            reading.thread.join()
        assert isinstance(reading.outcome, StoreUnavailableError)
        rule.wait_left(1)


@pytest.mark.parametrize("verb", ["GET", "PUT"])
def test_closing_the_manager_does_not_wait_for_a_copys_call(
    stalled: Stalled, tmp_path: pathlib.Path, verb: str
) -> None:
    """If this fails, one copy whose store stalls holds up a broker's shutdown."""
    segment = make_segment(sound_log(base_offset=100)).closed_in(tmp_path / "log")
    manager = TieredStorageManager()
    manager.configure(manager_keys(stalled) | {"store.probe.enabled": "false"})
    if verb == "GET":  # what an earlier attempt of this id stored is looked at
        manager.copy_log_segment_data(segment.metadata, segment.data)
    rule = stalled.proxy.add("stall", verb=verb, times=1)
    outcomes: list[BaseException] = []

    def work() -> None:
        try:
            manager.copy_log_segment_data(segment.metadata, segment.data)
        except RemoteStorageException as error:
            outcomes.append(error)

    copying = threading.Thread(target=work)
    copying.start()
    wait_until(lambda: rule.struck == 1)
    with ends():
        manager.close()
        copying.join()
    assert len(outcomes) == 1
    rule.wait_left(1)
