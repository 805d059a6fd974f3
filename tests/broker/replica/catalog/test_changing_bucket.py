"""A bucket that changes at random under a catalog whose store fails at random: what is served ends as what is there."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import random
import shutil
import time
from dataclasses import dataclass, field

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.catalogs import history_of, opened_catalog, relisted
from tests.support.loops import run_on
from tests.support.segments import topic_uuid
from tests.support.waiting import LIMIT_SECONDS, until
from tierlog import open_tier
from tierlog.broker.protocol.api_errors import ApiError
from tierlog.broker.replica.catalog.bucket_catalog import HISTORIES_BYTES, BucketCatalog, CatalogSettings
from tierlog.errors import StoreError
from tierlog.remote.api import TopicIdPartition
from tierlog.runtime.machine.clock import SystemClock
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.scan.history import PartitionHistory, TierHistory
from tierlog.testing.failing_store import FailingStore

TOPICS = ("orders", "payments")


@dataclass
class Life:
    """One partition's log as brokers tier it: appended, expired, cut by unclean elections."""

    bucket: Bucket
    rng: random.Random
    epoch: int = 0
    end: int = 0
    lineage: dict[int, int] = field(default_factory=lambda: {0: 0})
    segments: list[tuple[str, int]] = field(default_factory=list)
    count: int = 0

    def copy(self) -> None:
        """A new segment at the end; at times a second copy of its records."""
        size = self.rng.randint(1, 4)
        batches = [message(self.end + n, "m", self.epoch) for n in range(size)]
        for _ in range(self.rng.choice((1, 1, 1, 2))):
            self.count += 1
            name = f"{self.bucket.topic_id}-{self.count}"
            self.bucket.segment(name, batches, lineage=dict(self.lineage), event_timestamp_ms=self.count)
            self.segments.append((name, self.end))
        self.end += size

    def expire(self) -> None:
        """The oldest segment goes, object by object, as the plugin deletes; at times the last ones stay for a while."""
        if len({start for _, start in self.segments}) < 2:
            return
        name, _ = self.segments.pop(0)
        for suffix in ("log", "indexes", "rsm-manifest")[: self.rng.choice((1, 3, 3, 3))]:
            self.bucket.path(name, suffix).unlink()

    def elect(self) -> None:
        """A leader that lacks the last records, which stay in the bucket as a dead branch."""
        first = min((start for _, start in self.segments), default=0)
        self.end = self.rng.randint(max(first + 1, self.end - 3), max(first + 1, self.end))
        self.epoch += 1
        self.lineage = {epoch: start for epoch, start in self.lineage.items() if start < self.end}
        self.lineage[self.epoch] = self.end
        self.copy()


class World:
    """The bucket, and what may befall it."""

    def __init__(self, root: pathlib.Path, seed: int) -> None:
        self.root = root
        self.rng = random.Random(seed)
        self.lives: dict[tuple[str, int], Life] = {}
        self.ids = dict.fromkeys(TOPICS, 0)
        for topic in TOPICS:
            self.add_partition(topic)

    def add_partition(self, topic: str) -> None:
        number = sum(1 for name, _ in self.lives if name == topic)
        topic_id = topic_uuid(f"{topic}/{self.ids[topic]}")
        life = Life(Bucket(self.root, topic, number, topic_id), self.rng)
        life.copy()
        self.lives[topic, number] = life

    def recreate(self, topic: str) -> None:
        """The topic is deleted with all its objects, and another one has its name."""
        for key in [key for key in self.lives if key[0] == topic]:
            shutil.rmtree(self.root / f"{topic}-{self.lives.pop(key).bucket.topic_id}", ignore_errors=True)
        self.ids[topic] += 1
        self.add_partition(topic)

    def change(self) -> None:
        roll = self.rng.random()
        life = self.rng.choice(list(self.lives.values()))
        if roll < 0.5:
            life.copy()
        elif roll < 0.8:
            life.expire()
        elif roll < 0.9:
            life.elect()
        elif roll < 0.97:
            self.add_partition(self.rng.choice(TOPICS))
        else:
            self.recreate(self.rng.choice(TOPICS))


def check_sound(history: PartitionHistory) -> None:
    """What a reader relies on, whatever has been seen of the bucket."""
    ends = [span.first_offset for span in history.spans] + [history.end_offset_exclusive]
    assert ends == sorted(ends)
    for span in history.spans:
        assert span.segment.start_offset <= span.first_offset < span.end_offset_exclusive
        assert span.end_offset_exclusive <= span.segment.end_offset + 1
        assert span.segment.topic_id_partition == history.topic_id_partition


async def read(catalog: BucketCatalog, rng: random.Random, seen: set[TopicIdPartition]) -> None:
    """A consumer: asks for the partitions that it knows, misses objects, waits for news."""
    while True:
        topics = list(catalog.topics())
        if topics:
            topic = rng.choice(topics)
            histories = history_of(catalog, topic.name, rng.choice(topic.partitions))
            with contextlib.suppress(StoreError, ApiError):
                history = await histories.resolve()
                check_sound(history)
                assert history.topic_id_partition == histories.topic_id_partition
                seen.add(history.topic_id_partition)
                if rng.random() < 0.1:
                    histories.report_missing(FileNotFoundError("as if"))
        with contextlib.closing(catalog.watch([("orders", 0)])) as watch:
            await watch.wait(rng.uniform(0, 0.01))


@pytest.mark.parametrize("histories_bytes_max", [HISTORIES_BYTES, 1])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
def test_what_is_served_ends_as_what_is_there(tmp_path: pathlib.Path, seed: int, histories_bytes_max: int) -> None:
    """After failures and changes at once a partition would stay behind, or have segments of two listings, for ever."""
    world = World(tmp_path, seed)
    rates = {"error": 0.03, "reset": 0.03}
    chance = random.Random(seed)
    stores: list[FailingStore] = []

    def failing(store: ObjectStore) -> ObjectStore:
        stores.append(FailingStore(store, {}, rng=chance, clock=SystemClock()))
        return stores[-1]

    settings = CatalogSettings(refresh_seconds=0.02, segments_ahead_max=20, histories_bytes_max=histories_bytes_max)

    async def main() -> None:
        async with opened_catalog(tmp_path, settings, layout="aiven", wrap_store=failing) as catalog:
            seen: set[TopicIdPartition] = set()
            stores[-1]._rates.update(rates)
            readers = [asyncio.ensure_future(read(catalog, random.Random(seed + n), seen)) for n in range(4)]
            for _ in range(80):
                world.change()
                await asyncio.sleep(world.rng.choice((0, 0.002, 0.02)))
                for reader in readers:
                    if reader.done():
                        reader.result()
            # On a slow machine few listings fall into these changes, and none of them may have failed.
            await until(lambda: sum(stores[-1].injected.values()) > 0)
            stores[-1]._rates.clear()
            with open_tier(str(tmp_path), layout="aiven") as tier:
                whole = [segment for segment in tier.iter_segments() if (tmp_path / segment.log.key).exists()]
                grouped: dict[TopicIdPartition, list[object]] = {}
                for segment in whole:
                    grouped.setdefault(segment.topic_id_partition, []).append(segment)
                scan = TierHistory(tier)
                expected = {p: scan.history_of(p, found) for p, found in grouped.items()}  # type: ignore[arg-type]
            asked = histories_bytes_max == 1

            async def served() -> dict[TopicIdPartition, PartitionHistory | None]:
                found: dict[TopicIdPartition, PartitionHistory | None] = {}
                for topic in list(catalog.topics()):
                    for number in topic.partitions:
                        with contextlib.suppress(StoreError, ApiError, AssertionError):
                            histories = history_of(catalog, topic.name, number)
                            partition = TopicIdPartition(topic.topic_id, topic.name, number)
                            found[partition] = await histories.resolve() if asked else histories.current
                return found

            async def is_as_expected() -> bool:
                found = await served()
                return found.keys() == expected.keys() and all(
                    found[p] is not None and found[p].lineage.spans == expected[p].lineage.spans  # type: ignore[union-attr]
                    for p in expected
                )

            await relisted(catalog)
            deadline = time.monotonic() + LIMIT_SECONDS
            while not await is_as_expected() or len(seen) < len(TOPICS):
                assert time.monotonic() < deadline, f"what is served is not what is there; {len(seen)} were read"
                await asyncio.sleep(0.005)
            assert (catalog.history_cache.evictions > 0) is asked
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    run_on("uvloop", main)
