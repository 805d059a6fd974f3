"""What many clients share: a chunk is fetched once, and a store that stalls hinders nobody else."""

from __future__ import annotations

import asyncio
import itertools
import os
import pathlib
import random
import threading
import time
from collections.abc import Callable, Iterable

import pytest
from kio.schema.errors import ErrorCode

from tests.support.batches import Batch, encode
from tests.support.file_parts import bytes_of, drop_from_memory, tells_what_is_in_memory
from tests.support.golden import bucket_root, config_of
from tests.support.loops import run_on
from tests.support.replica_reads import FarStore, Served, read_on, served
from tests.support.segments import make_segment, sound_log, throwaway_keys
from tests.support.sparse_indexes import encode_offset_index, encode_time_index
from tests.support.waiting import ENDLESS_SECONDS, LIMIT_SECONDS, ends
from tierlog.broker.protocol.api_errors import ApiError, error_code_of
from tierlog.broker.replica.replica_config import CHUNK_CACHE_BYTES, INDEX_CACHE_BYTES, server_config
from tierlog.broker.replica.replica_partition import ReplicaPartition, SegmentReads
from tierlog.errors import ConfigError, CorruptDataError, ObjectNotFoundError, StoreUnavailableError
from tierlog.records import scan
from tierlog.remote.api import IndexType
from tierlog.remote.storage.fetch.segment_reader import RecentPieces
from tierlog.remote.tier import open_tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.waiting.file_part import FilePart
from tierlog.runtime.waiting.loops import Alarm, Begun
from tierlog.scan.history import TierHistory

MIB = 1 << 20
Wrap = Callable[[ObjectStore], ObjectStore]
NO_INDEXES = {IndexType.OFFSET: b"", IndexType.TIMESTAMP: b""}


def bucket_of(root: pathlib.Path, *topics: str, segments: int = 1, encrypted: pathlib.Path | None = None) -> bytes:
    """Segments of 3 MiB in chunks of 64 KiB (of the golden data's key if encrypted); the log of one topic."""
    logs = []
    for number in range(segments):
        log = sound_log(750, base_offset=number * 1500, batch_bytes=4096)
        logs.append(log)
        for topic in topics:
            made = make_segment(log, topic=topic, lineage={0: 0}, indexes=NO_INDEXES)
            key_ring = None if encrypted is None else throwaway_keys(encrypted)
            made.stored(chunk_size=1 << 16, compression=encrypted is not None, key_ring=key_ring).put_in(root)
    return b"".join(logs)


def key_config(data: pathlib.Path) -> dict[str, str]:
    folder = data / "keys" / "k1"
    return {
        "encryption.key.pairs": "k1",
        "encryption.key.pair.id": "k1",
        "encryption.key.pairs.k1.private.key.file": str(folder / "private.der"),
        "encryption.key.pairs.k1.public.key.file": str(folder / "public.der"),
    }


def far(made: Served) -> FarStore:
    store = made.tier.store
    assert isinstance(store, FarStore)
    return store


def test_fifty_clients_of_a_cold_segment_fetch_each_chunk_once(tmp_path: pathlib.Path, data: pathlib.Path) -> None:
    """A burst of consumers would multiply the bill, and decrypt the same chunk fifty times."""
    log = bucket_of(tmp_path, "orders", encrypted=data)

    async def check(partition: ReplicaPartition) -> None:
        async def consume() -> bytes:
            read = await read_on(partition, read_committed=False, max_bytes=lambda: MIB)
            return b"".join(view for offset, found in read for view in whole(found.records))

        for got in await asyncio.gather(*(consume() for _ in range(50))):
            assert got == log

    config = key_config(data) | {"fetch.prefetch.enabled": "false"}
    with served(str(tmp_path), config, wrap_store=FarStore) as here:
        store = far(here)
        store.asked.clear()
        run_on("uvloop", lambda: check(here.partitions["orders", 0]))
        ranges = sorted((start, end) for key, start, end in store.asked if key.endswith(".log"))
        assert all(before[1] == after[0] for before, after in itertools.pairwise(ranges)), ranges


def whole(views: Iterable[memoryview | FilePart]) -> list[bytes]:
    """The whole batches of an answer."""
    joined = bytes_of(views)
    return [joined[: scan(joined).end_position]]


def test_a_store_that_stalls_hinders_its_readers_alone(tmp_path: pathlib.Path) -> None:
    """One object that does not answer would hang every client; or clients would wait for ever, or in vain again."""
    bucket_of(tmp_path, "good", "bad")

    async def check(here: Served) -> None:
        store = far(here)
        bad, good = here.partitions["bad", 0], here.partitions["good", 0]
        store.held = tuple(key for key in logs_of(here, "bad"))
        threads = threading.active_count()
        waiting = [
            asyncio.create_task(bad.read(0, max_bytes=MIB, is_first_whole=True, read_committed=False))
            for _ in range(100)
        ]
        await asyncio.sleep(0.05)
        for _ in range(20):
            assert await read_on(good, read_committed=True, max_bytes=lambda: MIB)
        assert not any(task.done() for task in waiting), "the good one waited for the bad one"
        assert threading.active_count() - threads < 30, "a thread for each who waits"
        with ends():
            for task in waiting:
                with pytest.raises(StoreUnavailableError) as told:
                    await task
                assert error_code_of(told.value) is ErrorCode.kafka_storage_error
        asked = len(store.asked)
        store.release()
        _, again = await bad.read(0, max_bytes=MIB, is_first_whole=True, read_committed=False)
        assert again.size_bytes == MIB
        assert len(store.asked) == asked, "what was under way was asked for once more"

    config = {"fetch.chunk.cache.get.timeout.ms": "3000", "fetch.prefetch.enabled": "false"}
    with served(str(tmp_path), config, wrap_store=FarStore) as here:
        run_on("uvloop", lambda: check(here))


def logs_of(here: Served, topic: str) -> list[str]:
    history = here.histories[topic, 0].current
    assert history is not None
    return [span.segment.log.key for span in history.spans]


def test_what_is_there_is_given_when_the_rest_stalls(tmp_path: pathlib.Path) -> None:
    """A consumer would get nothing of a mebibyte whose last bytes do not come."""
    log = bucket_of(tmp_path, "orders")

    async def check(here: Served) -> None:
        store, partition = far(here), here.partitions["orders", 0]
        await partition.load()
        store.held, store.held_from = (".log",), 1
        _, found = await partition.read(0, max_bytes=3 * MIB, is_first_whole=True, read_committed=False)
        assert MIB <= found.size_bytes < 2.5 * MIB, "the first request is for little more than a mebibyte"
        assert bytes_of(found.records) == log[: found.size_bytes]
        store.release()

    config = {"fetch.chunk.cache.get.timeout.ms": "300", "fetch.prefetch.enabled": "false"}
    with served(str(tmp_path), config, wrap_store=FarStore) as here:
        run_on("uvloop", lambda: check(here))


def test_an_object_that_is_gone_is_told_to_the_catalog(tmp_path: pathlib.Path) -> None:
    """A consumer would retry for ever where retention has deleted a segment, or skip what is only slow."""
    bucket_of(tmp_path, "orders", segments=2)

    async def check(here: Served) -> None:
        partition, histories = here.partitions["orders", 0], here.histories["orders", 0]
        offsets = await partition.load()
        gone = tmp_path / logs_of(here, "orders")[0]
        for path in gone.parent.glob(f"{gone.stem}.*"):
            path.unlink()
        with pytest.raises(ObjectNotFoundError) as told:
            await partition.read(0, max_bytes=MIB, is_first_whole=True, read_committed=False)
        assert error_code_of(told.value) is ErrorCode.kafka_storage_error
        assert histories.reported == [told.value]
        (histories.current,) = TierHistory(here.tier).partitions(["orders"])
        assert partition.offsets is None, "of another history"
        with pytest.raises(ApiError) as out:
            await partition.read(0, max_bytes=MIB, is_first_whole=True, read_committed=False)
        assert out.value.code is ErrorCode.offset_out_of_range
        assert partition.offsets is not None
        assert partition.offsets.log_start_offset > offsets.log_start_offset
        start = partition.offsets.log_start_offset
        _, found = await partition.read(start, max_bytes=MIB, is_first_whole=True, read_committed=False)
        assert found.size_bytes == MIB

    with served(str(tmp_path)) as here:
        run_on("asyncio", lambda: check(here))


def test_views_outlive_their_place_in_the_cache(tmp_path: pathlib.Path) -> None:
    """Bytes would change while a slow client's answer is still being sent."""
    log = bucket_of(tmp_path, "orders")

    async def check(partition: ReplicaPartition) -> None:
        _, kept = await partition.read(0, max_bytes=200_000, is_first_whole=True, read_committed=False)
        for _ in range(3):
            await read_on(partition, read_committed=False, max_bytes=lambda: MIB)
        assert bytes_of(kept.records) == log[: kept.size_bytes]
        assert all(view.readonly for view in kept.records)

    with served(str(tmp_path), {"fetch.chunk.cache.size": "150000"}, wrap_store=FarStore) as here:
        run_on("uvloop", lambda: check(here.partitions["orders", 0]))


def test_prefetch_goes_on_in_the_next_segment(tmp_path: pathlib.Path) -> None:
    """Every segment would begin with a wait for its first bytes."""
    bucket_of(tmp_path, "orders", segments=2)

    async def check(here: Served) -> None:
        partition, store = here.partitions["orders", 0], far(here)
        first, second = logs_of(here, "orders")
        end = here.histories["orders", 0].current.spans[0].end_offset_exclusive  # type: ignore[union-attr]
        offset = (await partition.load()).log_start_offset
        while offset < end:
            assert second not in [key for key, _, _ in store.asked] or offset
            _, found = await partition.read(offset, max_bytes=MIB, is_first_whole=True, read_committed=False)
            offset = int(scan(bytes_of(found.records)).last_offset[-1]) + 1
        for _ in range(500):
            if any(key == second for key, _, _ in store.asked):
                return
            await asyncio.sleep(0.01)
        pytest.fail(f"nothing was asked of {second} after {first}")

    with served(str(tmp_path), wrap_store=FarStore) as here:
        run_on("uvloop", lambda: check(here))


def test_a_server_has_bounded_caches_by_default() -> None:
    """A server would fetch every chunk anew for each reader; or what the user said would not count."""
    config = server_config({})
    assert (config.fetch_chunk_cache_class, config.fetch_chunk_cache_size) == ("memory", CHUNK_CACHE_BYTES)
    assert config.fetch_indexes_cache_size == INDEX_CACHE_BYTES
    config = server_config({"rsm.config.fetch.chunk.cache.size": "1000", "fetch.indexes.cache.size": "7"})
    assert (config.fetch_chunk_cache_class, config.fetch_chunk_cache_size) == ("memory", 1000)
    assert config.fetch_indexes_cache_size == 7
    config = server_config(
        {"fetch.chunk.cache.class": "disk", "fetch.chunk.cache.size": "5", "fetch.chunk.cache.path": "/tmp"}
    )
    assert (config.fetch_chunk_cache_class, config.fetch_chunk_cache_size) == ("disk", 5)
    with pytest.raises(ConfigError):
        server_config({"fetch.chunk.cache.sizes": "1"})


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_the_configured_cache_is_used(tmp_path: pathlib.Path, data: pathlib.Path, kind: str) -> None:
    """A cache on a disk would be configured and do nothing."""
    run = data / "zstd-aes"
    (tmp_path / "cache").mkdir()
    config = config_of(run) | {"fetch.chunk.cache.class": kind, "fetch.chunk.cache.size": "100000000"}
    if kind == "disk":
        config["fetch.chunk.cache.path"] = str(tmp_path / "cache")

    async def read_all(here: Served) -> list[bytes]:
        return [
            b"".join(
                bytes_of(found.records) for _, found in await read_on(p, read_committed=True, max_bytes=lambda: MIB)
            )
            for p in here.partitions.values()
        ]

    with served(str(bucket_root(run)), config, wrap_store=FarStore) as here:
        first = run_on("uvloop", lambda: read_all(here))
        deadline = time.monotonic() + LIMIT_SECONDS  # a slow cache is written behind the readers' back
        while time.monotonic() < deadline:
            asked = len(far(here).asked)
            assert run_on("uvloop", lambda: read_all(here)) == first
            if len(far(here).asked) == asked:
                return
        pytest.fail("chunks are fetched again and again")


@pytest.mark.usefixtures("file_reads")
def test_what_the_page_cache_has_is_read_without_a_thread(tmp_path: pathlib.Path) -> None:
    """Each fetch of a folder would cost two changes of threads, which is more than its bytes do; or the event loop
    would wait for a disk.
    """
    log = bucket_of(tmp_path, "orders")
    (path,) = tmp_path.rglob("*.log")
    if not tells_what_is_in_memory(tmp_path / "elsewhere"):
        pytest.skip("this file system does not tell what is in memory")

    async def check(partition: ReplicaPartition) -> None:
        await partition.load()
        is_read_here: list[bool] = []
        for is_dropped in (False, True, False):
            if is_dropped:
                drop_from_memory(path)
            reading = Begun(partition.read(0, max_bytes=MIB, is_first_whole=True, read_committed=False))
            is_read_here.append(reading.is_done)
            rung = Alarm()
            reading.add_done_callback(rung.ring)
            await rung.wait(LIMIT_SECONDS)
            assert log.startswith(b"".join(whole(reading.result()[1].records)))
        assert is_read_here == [True, False, True]

    with served(str(tmp_path), {"fetch.chunk.cache.size": "0"}) as here:
        run_on("uvloop", lambda: check(here.partitions["orders", 0]))


@pytest.mark.parametrize("wrap", [FarStore, lambda store: store], ids=["far", "local"])
def test_a_log_that_was_cut_short_is_read_up_to_there(tmp_path: pathlib.Path, wrap: Wrap) -> None:
    """Of an upload that lost its end not even the beginning could be saved; or its readers would wait for the rest."""
    log = bucket_of(tmp_path, "orders")

    async def check(here: Served) -> None:
        partition = here.partitions["orders", 0]
        await partition.load()
        (key,) = logs_of(here, "orders")
        os.truncate(tmp_path / key, 2 * MIB + 1000)
        got: list[bytes] = []

        async def consume() -> None:
            offset = 0
            while True:
                _, found = await partition.read(offset, max_bytes=MIB, is_first_whole=True, read_committed=False)
                got.extend(whole(found.records))
                offset = int(scan(got[-1]).last_offset[-1]) + 1

        with pytest.raises(CorruptDataError):
            await consume()
        assert log.startswith(b"".join(got))
        assert sum(map(len, got)) > 1.9 * MIB

    with served(str(tmp_path), {"fetch.prefetch.enabled": "false"}, wrap_store=wrap) as here:
        run_on("uvloop", lambda: check(here))


def test_a_search_without_an_index_asks_for_more_and_more(tmp_path: pathlib.Path) -> None:
    """A seek in a large segment without an offset index would take thousands of requests, one after another."""
    bucket_of(tmp_path, "orders")

    async def check(here: Served) -> None:
        partition = here.partitions["orders", 0]
        end = (await partition.load()).high_watermark
        before = here.reads._fetcher._cache.figures  # type: ignore[union-attr]
        _, found = await partition.read(end - 1, max_bytes=1, is_first_whole=True, read_committed=False)
        assert scan(bytes_of(found.records)).last_offset.tolist() == [end - 1]
        after = here.reads._fetcher._cache.figures  # type: ignore[union-attr]
        assert after.hits + after.misses - before.hits - before.misses < 20

    with served(str(tmp_path), wrap_store=FarStore) as here:
        run_on("uvloop", lambda: check(here))


def test_searches_of_a_store_that_stalls_leave_threads_to_others(tmp_path: pathlib.Path) -> None:
    """Clients that ask a stalled partition for a time again and again would end ListOffsets for all."""
    bucket_of(tmp_path, "good", "bad")

    async def check(here: Served) -> None:
        good, bad = here.partitions["good", 0], here.partitions["bad", 0]
        await asyncio.gather(good.load(), bad.load())
        far(here).held = tuple(logs_of(here, "bad"))
        asking = [asyncio.create_task(bad.find_offset(1_700_000_000_003, read_committed=True)) for _ in range(60)]
        await asyncio.sleep(0.1)
        assert await good.find_offset(1_700_000_000_003, read_committed=True)
        assert not any(task.done() for task in asking)
        for task in asking:
            task.cancel()
        far(here).release()
        assert await bad.find_offset(1_700_000_000_003, read_committed=True)

    config = {"fetch.chunk.cache.get.timeout.ms": f"{1000 * ENDLESS_SECONDS}"}
    with served(str(tmp_path), config, wrap_store=FarStore) as here:
        run_on("uvloop", lambda: check(here))


def test_the_zeros_behind_an_active_index_take_no_memory(tmp_path: pathlib.Path) -> None:
    """Seven partitions that a broker writes to would fill the cache of indexes: it maps 10 MiB for each."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    batches = b"".join(encode(Batch(at, (b"v",), timestamp_ms=1000 + at)) for at in range(3))
    offsets, times = encode_offset_index(0, [1, 2], [70, 256 * 70]), encode_time_index(0, [1001, 1002], [1, 256])
    (folder / f"{0:020d}.log").write_bytes(batches)
    (folder / f"{0:020d}.index").write_bytes(offsets + bytes(10 << 20))
    (folder / f"{0:020d}.timeindex").write_bytes(times + bytes((10 << 20) - 4))
    with open_tier(str(tmp_path), layout="log-dir") as tier:
        reads = SegmentReads(tier, server_config(None))
        try:
            segment = next(iter(tier.iter_segments()))
            assert not segment.closed
            for _ in range(2):
                # One zero entry is left: entries that a truncation took back may stand behind those in use.
                assert reads.tier.fetch_index(segment, IndexType.OFFSET) == offsets + bytes(8)
                assert reads.tier.fetch_index(segment, IndexType.TIMESTAMP) == times + bytes(12)
        finally:
            reads.close()


def test_what_is_read_once_is_always_new() -> None:
    """A scan of a log larger than the cache would copy it into memory for nobody."""
    pieces = RecentPieces(100, Machine())
    assert all(pieces.note(number % 101) for number in range(1000))
    assert all(RecentPieces(0, Machine()).note(1) for _ in range(3))


def test_what_is_read_often_stays_known() -> None:
    """The pieces that all consumers want would be forgotten for those of one that passes."""
    pieces, chance = RecentPieces(10, Machine()), random.Random(5)
    pieces.note("hot")
    for number in range(1000):
        pieces.note(number)
        if chance.random() < 0.5:
            assert not pieces.note("hot")
        elif number % 5 == 0:
            pieces.note("hot")


@pytest.mark.usefixtures("untold")
def test_a_plain_local_log_that_is_read_again_comes_from_memory(tmp_path: pathlib.Path) -> None:
    """Many consumers of one local log would each pay for a copy of it, and for a thread."""
    log = bucket_of(tmp_path, "orders")

    async def check(here: Served) -> None:
        partition, cache = here.partitions["orders", 0], here.reads._fetcher._cache
        assert cache is not None
        sizes = []
        for _ in range(3):
            read = await read_on(partition, read_committed=False, max_bytes=lambda: MIB)
            assert b"".join(bytes_of(found.records) for _, found in read).startswith(log[:MIB])
            sizes.append(cache.figures.size_bytes)
        assert sizes == [0, len(log), len(log)]
        hits = cache.figures.hits
        assert (await partition.read(0, max_bytes=MIB, is_first_whole=True, read_committed=False))[1].size_bytes == MIB
        assert cache.figures.hits > hits

    with served(str(tmp_path), {"fetch.prefetch.enabled": "false"}) as here:
        run_on("uvloop", lambda: check(here))
    with served(str(tmp_path), {"fetch.chunk.cache.size": "0"}) as here:

        async def never(here: Served) -> None:
            for _ in range(3):
                await read_on(here.partitions["orders", 0], read_committed=False, max_bytes=lambda: MIB)
            assert here.reads._fetcher._cache.figures.hits == 0  # type: ignore[union-attr]

        run_on("uvloop", lambda: never(here))
