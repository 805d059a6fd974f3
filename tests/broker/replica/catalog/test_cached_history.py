"""Histories that leave memory: a bound that holds, and partitions that are served on as if nothing had happened."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import random
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.support.buckets import Bucket
from tests.support.catalogs import NEVER_SECONDS, Watching, remove, segment
from tests.support.fetch_client import Ask, FetchRig, Told
from tests.support.loops import run_on
from tests.support.waiting import until
from tierlog import open_tier
from tierlog.broker.fetching.fetch_handler import FetchHandler
from tierlog.broker.replica.catalog.bucket_catalog import BucketCatalog, CatalogSettings
from tierlog.broker.replica.catalog.cached_history import UNBOUNDED, CachedHistory, HistoryCache
from tierlog.broker.replica.replica_config import server_config
from tierlog.broker.replica.replica_partition import ReplicaPartition, SegmentReads
from tierlog.remote.api import TopicIdPartition
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import LOOP_TIMERS
from tierlog.scan.following.resolution import Resolution, Resolver
from tierlog.scan.following.tier_listing import TierKeys
from tierlog.scan.history import TierHistory

VERSION = 12


@dataclass(eq=False)
class One:
    """A history that notes that it was evicted."""

    is_awaited: bool = False
    is_there: bool = True

    def evict(self) -> None:
        self.is_there = False


def test_what_was_used_longest_ago_makes_room() -> None:
    """Memory would grow with every partition that anybody reads, or histories in use would be made again and again."""
    rng = random.Random(3)
    cache, model = HistoryCache(100), OrderedDict[One, int]()
    everyone = [One() for _ in range(30)]
    for _ in range(3000):
        one = rng.choice(everyone)
        if rng.random() < 0.4 and one in model:
            cache.use(one)
            model.move_to_end(one)
        elif rng.random() < 0.1:
            cache.remove(one)
            model.pop(one, None)
        else:
            one.is_there = True
            size = rng.randint(0, 60)
            cache.put(one, size)
            model.pop(one, None)
            model[one] = size
            while sum(model.values()) > 100:
                left, _ = model.popitem(last=False)
                assert not left.is_there
        assert cache.size_bytes == sum(model.values()) <= 100
        assert all(each.is_there for each in model)
    assert cache.evictions > 100


def test_what_is_waited_for_and_what_is_new_stay() -> None:
    """A task that waits for a history would find the history gone, and wait for ever."""
    cache, wanted, idle, newest = HistoryCache(10), One(is_awaited=True), One(), One()
    cache.put(wanted, 10)
    cache.put(idle, 10)
    cache.put(newest, 1000)
    assert (wanted.is_there, idle.is_there, newest.is_there) == (True, False, True)
    wanted.is_awaited = False
    cache.make_room()
    assert (wanted.is_there, newest.is_there) == (False, True)
    free = HistoryCache(UNBOUNDED)
    others = [One() for _ in range(100)]
    for each in others:
        free.put(each, 1 << 40)
    assert all(each.is_there for each in others)


@dataclass
class Queue:
    """Resolutions that a test ends."""

    submitted: list[TopicIdPartition] = field(default_factory=list)

    def submit(self, partition: TopicIdPartition, *_: object) -> None:
        self.submitted.append(partition)


def test_who_waits_for_a_history_gets_it(tmp_path: pathlib.Path) -> None:
    """Two readers of large partitions would take the room from each other before either has read, again and again."""
    for partition in (0, 1):
        segment(Bucket(tmp_path, partition=partition), 0)

    def never(partition: TopicIdPartition) -> None:
        raise AssertionError

    async def main() -> None:
        with open_tier(str(tmp_path), layout="aiven") as tier:
            source = TierKeys(tier)
            listed = source.list_partitions(None).partitions
            queue, cache = Queue(), HistoryCache(1)
            made = [
                CachedHistory(each, Resolver(source), queue, cache, note_change=never, machine=Machine())
                for each in listed.values()
            ]
            asked = [asyncio.ensure_future(each.resolve()) for each in made]
            await until(lambda: len(queue.submitted) == 2)
            for each, known in zip(made, TierHistory(tier).partitions(), strict=True):
                segments = {str(number).encode(): span.segment for number, span in enumerate(known.spans)}
                each.settle(Resolution.of(listed[known.topic_id_partition], known, segments))
            assert [each.current for each in made].count(None) == 0
            assert [history.partition for history in await asyncio.gather(*asked)] == [0, 1]
            assert len(queue.submitted) == 2
            assert [each.current for each in made].count(None) == 1, "nobody waits any more"

    run_on("uvloop", main)


class Rig(FetchRig):
    """A client of a Fetch handler whose topics are those of a bucket's catalog."""

    def __init__(self, catalog: BucketCatalog) -> None:
        super().__init__()
        self.catalog = catalog  # type: ignore[assignment]
        self.handler = FetchHandler(catalog, node_id=3, timers=LOOP_TIMERS, machine=Machine())

    async def one(self, topic: str, partition: int, offset: int, **options: object) -> Told:
        """The answer for one partition, asked for alone."""
        answer = await self.fetch(VERSION, [Ask(topic, partition, offset)], **options)
        assert answer.error == "none"
        (told,) = answer.partitions
        return told


@contextlib.asynccontextmanager
async def small_memory(root: pathlib.Path, watching: Watching) -> AsyncIterator[tuple[BucketCatalog, Rig]]:
    """A bucket served with room for one history."""
    settings = CatalogSettings(refresh_seconds=NEVER_SECONDS, segments_ahead_max=0, histories_bytes_max=1)
    with open_tier(str(root), layout="aiven", wrap_store=watching) as tier:
        reads = SegmentReads(tier, server_config(None))
        catalog = BucketCatalog(tier, lambda history: ReplicaPartition(history, reads), settings)
        try:
            await catalog.start()
            rig = Rig(catalog)
            yield catalog, rig
            await rig.handler.close()
        finally:
            await catalog.close()
            reads.close()


def described(watching: Watching, partition: int) -> int:
    """How many manifests of a partition of ``orders`` have been fetched."""
    return sum(f"/{partition}/" in key and key.endswith("rsm-manifest") for key in watching.store.fetched)


def test_a_partition_that_left_is_read_as_before(tmp_path: pathlib.Path) -> None:
    """Readers of many partitions would get errors, or be woken for nothing, when memory is short."""
    for partition in (0, 1):
        for first in (0, 2, 4):
            segment(Bucket(tmp_path, partition=partition), first)
    watching = Watching()

    async def main() -> None:
        async with small_memory(tmp_path, watching) as (catalog, rig):
            version = catalog.version
            first = await rig.one("orders", 0, 1)
            await rig.one("orders", 1, 0)
            assert catalog.history_cache.evictions == 1
            left = catalog.partition("orders", 0)
            assert left is not None
            assert left.offsets is not None, "the offsets stay"
            assert described(watching, 0) == 3
            assert await rig.one("orders", 0, 6) == Told("orders", 0, "none", 6, 6, 0, b"", None, None, None)
            assert described(watching, 0) == 3, "who is at the end needs no history"
            assert await rig.one("orders", 0, 1) == first
            assert described(watching, 0) == 6
            assert catalog.history_cache.evictions == 2
            await asyncio.sleep(0.1)
            assert catalog.version == version, "nothing has changed, and no poll is woken"

    run_on("uvloop", main)


def test_a_session_over_a_partition_that_left_hears_of_all_that_changes(tmp_path: pathlib.Path) -> None:
    """A consumer would wait for ever at the end of a partition that goes on, or read below its start."""
    orders = Bucket(tmp_path)
    for first in (0, 2):
        segment(orders, first)
    segment(Bucket(tmp_path, partition=1), 0)
    watching = Watching()

    async def main() -> None:
        async with small_memory(tmp_path, watching) as (catalog, rig):
            opened = await rig.fetch(VERSION, [Ask("orders", 0, 4)], session_epoch=0, min_bytes=0)
            session = opened.session_id
            assert session
            for epoch in (1, 2, 3):
                await rig.one("orders", 1, 0)  # takes the room
                assert not (await rig.fetch(VERSION, session_id=session, session_epoch=epoch)).partitions
            assert described(watching, 0) == 2, "an idle session needs no history"

            poll = asyncio.ensure_future(
                rig.fetch(VERSION, session_id=session, session_epoch=4, max_wait_ms=20_000, min_bytes=1)
            )
            await asyncio.sleep(0)
            segment(orders, 4)
            catalog.refresh_soon()
            (told,) = (await poll).partitions
            assert (told.error, told.high_watermark, told.log_start_offset) == ("none", 6, 0)
            assert told.records

            await rig.one("orders", 1, 0)
            advance = [Ask("orders", 0, 6)]
            assert not (await rig.fetch(VERSION, advance, session_id=session, session_epoch=5)).partitions
            remove(orders, "s0e0")
            version = catalog.version
            catalog.refresh_soon()
            await until(lambda: catalog.version != version)
            answer = await rig.fetch(VERSION, session_id=session, session_epoch=6)
            assert [(told.high_watermark, told.log_start_offset) for told in answer.partitions] == [(6, 2)]
            await rig.one("orders", 1, 0)
            assert (await rig.one("orders", 0, 0)).error == "offset_out_of_range"
            assert (await rig.one("orders", 0, 2)).records

    run_on("uvloop", main)


def test_what_was_served_is_not_held_back_when_it_comes_again(tmp_path: pathlib.Path) -> None:
    """The high watermark would go back, and a consumer behind a gap be told that its offset is out of range."""
    orders = Bucket(tmp_path)
    for first in (0, 2, 4):
        segment(orders, first)
    segment(Bucket(tmp_path, partition=1), 0)
    watching = Watching()

    async def main() -> None:
        async with small_memory(tmp_path, watching) as (catalog, rig):
            assert (await rig.one("orders", 0, 0)).high_watermark == 6
            await rig.one("orders", 1, 0)
            assert catalog.history_cache.evictions == 1
            version = catalog.version
            remove(orders, "s2e0")
            catalog.refresh_soon()
            await until(lambda: catalog.version != version)
            told = await rig.one("orders", 0, 5)
            assert (told.error, told.high_watermark, told.log_start_offset) == ("none", 6, 0)
            assert told.records

    run_on("uvloop", main)


def test_more_readers_than_memory_has_room_for_all_get_theirs(tmp_path: pathlib.Path) -> None:
    """Readers at once would take the room from each other for ever."""
    for partition in range(20):
        segment(Bucket(tmp_path, partition=partition), 10 * partition)
    watching = Watching()

    async def main() -> None:
        async with small_memory(tmp_path, watching) as (catalog, rig):
            for _ in range(3):
                told = await asyncio.gather(*(rig.one("orders", number, 10 * number) for number in range(20)))
                assert [each.high_watermark for each in told] == [10 * number + 2 for number in range(20)]
                assert all(each.records for each in told)
            assert catalog.history_cache.size_bytes < 10_000

    run_on("uvloop", main)
