"""The policy of all caches of the store: bounds, scans, age; a model of it by Hypothesis."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.cache_traces import BEST_RATIO_MIN, LRU_RATIO_MIN, TRACES, hit_ratios
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.weighted_cache import UNBOUNDED, CacheFigures, WeightedCache


def cache_of(limit: int, *, clock: ManualClock | None = None, **settings: int) -> WeightedCache[int, str]:
    return WeightedCache(limit, machine=Machine(clock=clock or ManualClock()), entry_bytes_min=0, **settings)


class TestPolicy:
    """Hits are requests that nobody pays for."""

    def test_hit_bytes_beside_published_policies(self) -> None:
        """If this fails, a scan flushes the hot set, or another policy would have served far more from memory."""
        trace = next(trace for trace in TRACES if trace.name == "zipf-0.9-scan")
        found = hit_ratios(trace, 200 * (4 << 20), 20_000)
        best = max(ratio for name, ratio in found.items() if name != "ours")
        assert found["ours"] >= LRU_RATIO_MIN * found["LRU"]
        assert found["ours"] >= BEST_RATIO_MIN * best

    def test_a_scan_passes_through(self) -> None:
        """If this fails, one consumer that replays a topic makes all others read from the bucket again."""
        cache = cache_of(100)
        for _ in range(3):
            for key in range(50):
                if cache.find(key) is None:
                    cache.put(key, "hot", 1)
        for key in range(1000, 3000):
            cache.put(key, "scanned", 1)
        assert sum(cache.find(key) == "hot" for key in range(50)) >= 45

    def test_asking_on_for_the_same_chunk_is_one_use(self) -> None:
        """If this fails, a sequential reader's small reads make each chunk on its way look hot."""
        cache = cache_of(100)
        for key in range(50):
            cache.put(key, "hot", 1)
            cache.find(key)
        for key in range(1000, 2000):
            cache.put(key, "scanned", 1)
            for _ in range(4):
                assert cache.find(key, again=True) == "scanned"
        assert sum(key in cache for key in range(50)) >= 45


class TestBounds:
    """Memory that is configured is all that there is."""

    def test_nothing_larger_than_the_cache_is_kept(self) -> None:
        """If this fails, one large chunk empties the cache, or is held beyond its limit."""
        cache = cache_of(10)
        cache.put(1, "small", 10)
        assert cache.put(2, "large", 11) == [(2, "large")]
        assert cache.find(1) == "small"
        assert 2 not in cache

    def test_tiny_values_count_for_what_they_take(self) -> None:
        """If this fails, a hostile manifest with chunks of one byte fills the memory of the process."""
        cache: WeightedCache[int, str] = WeightedCache(100 << 10, machine=Machine(clock=ManualClock()))
        for key in range(10_000):
            cache.put(key, "", 1)
        assert len(cache) == 200
        assert len(cache._ghosts) <= 1024

    def test_unbounded_keeps_everything_and_zero_nothing(self) -> None:
        """If this fails, -1 and 0 do not mean what the plugin's documentation says."""
        unbounded, none = cache_of(UNBOUNDED), cache_of(0)
        for key in range(10_000):
            unbounded.put(key, "", 1 << 30)
            none.put(key, "", 1)
        assert len(unbounded) == 10_000
        assert len(none) == 0

    def test_entries_are_bounded_too(self) -> None:
        """If this fails, ``fetch.manifest.cache.size`` does not bound manifests as it does in the plugin."""
        cache = cache_of(UNBOUNDED, entries_max=3)
        for key in range(10):
            cache.put(key, "", 1)
        assert len(cache) == 3

    def test_what_nobody_asked_for_leaves_with_age(self) -> None:
        """If this fails, memory of segments that nobody reads any more is never released."""
        clock = ManualClock()
        cache = cache_of(100, clock=clock, retention_ms=1000)
        cache.put(1, "kept", 1)
        cache.put(2, "dropped", 1)
        clock.advance(0.9)
        assert cache.find(1) == "kept"
        clock.advance(0.9)
        assert cache.find(2) is None
        assert cache.put(3, "new", 1) == [(2, "dropped")]
        assert cache.find(1) == "kept"
        assert cache.size_bytes == 2

    def test_age_counts_from_the_last_use_to_the_millisecond(self) -> None:
        """If this fails, ``retention.ms`` is another time than the one that is written there."""
        clock = ManualClock()
        cache = cache_of(100, clock=clock, retention_ms=1000)
        cache.put(1, "kept", 1)
        clock.advance(1.0)
        assert cache.find(1) == "kept"
        clock.advance(1.0005)
        assert cache.find(1) is None

    @given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 40)), max_size=200), st.integers(1, 100))
    def test_what_leaves_is_told_once(self, puts: list[tuple[int, int]], limit: int) -> None:
        """If this fails, files of evicted chunks stay on the disk, or those of cached ones are removed."""
        cache = cache_of(limit)
        held: dict[int, str] = {}
        for number, (key, size) in enumerate(puts):
            held_before = dict(held)
            held[key] = str(number)
            for gone, value in cache.put(key, str(number), size):
                assert value in (held_before.get(gone), held.get(gone))
                if held.get(gone) == value:
                    del held[gone]
            assert cache.size_bytes <= limit
        assert {key: cache.find(key) for key in held} == held
        assert len(cache) == len(held)

    def test_a_cache_that_shrinks_and_grows(self) -> None:
        """If this fails, memory that an operator takes away is used all the same, or more is never used."""
        told: list[int] = []
        cache: WeightedCache[int, str] = WeightedCache(
            10, machine=Machine(clock=ManualClock()), entry_bytes_min=0, on_evict=told.append
        )
        for key in range(10):
            cache.put(key, "", 1)
        assert len(cache.resize(4)) == 6
        assert (cache.size_bytes, len(cache), told) == (4, 4, [6])
        assert cache.resize(UNBOUNDED) == []
        for key in range(100, 200):
            assert cache.put(key, "", 1) == []
        assert len(cache.resize(0)) == 104
        assert cache.put(1, "", 1) == [(1, "")]

    def test_a_cache_of_few_entries_keeps_them_when_it_grows(self) -> None:
        cache = cache_of(10, entries_max=3)
        for key in range(3):
            cache.put(key, "", 1)
        assert cache.resize(20) == []
        assert len(cache) == 3


class TestFigures:
    """What an operator sizes a cache by."""

    def test_each_look_up_and_each_entry_that_left_is_counted_once(self) -> None:
        """If this fails, a dashboard's hit ratio is none, and a cache that is too small looks large enough."""
        told: list[int] = []
        cache: WeightedCache[int, str] = WeightedCache(
            10, machine=Machine(clock=ManualClock()), entry_bytes_min=0, on_evict=told.append
        )
        assert cache.figures == CacheFigures(0, 0, 0, 0, 0, 0)
        cache.put(1, "a", 4)
        cache.put(2, "b", 4)
        assert [cache.find(key) for key in (1, 3, 2, 1, 4)] == ["a", None, "b", "a", None]
        assert cache.figures == CacheFigures(2, 8, 3, 2, 0, 0)
        assert cache.put(3, "c", 10) == [(1, "a"), (2, "b")]
        assert cache.put(4, "d", 7) == [(3, "c")]
        assert cache.remove(4) == [(4, "d")]
        assert cache.figures == CacheFigures(0, 0, 3, 2, 3, 18)
        assert told == [2, 1]


class PlainS3Fifo:
    """S3-FIFO as the paper has it, on lists: slow, and without a counter that could be wrong."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.small: list[int] = []
        self.main: list[int] = []
        self.ghosts: list[int] = []
        self.size: dict[int, int] = {}
        self.uses: dict[int, int] = {}

    def bytes_of(self, keys: list[int]) -> int:
        return sum(self.size[key] for key in keys)

    def find(self, key: int, *, again: bool) -> bool:
        is_there = key in self.small or key in self.main
        if is_there and not again:
            self.uses[key] = min(self.uses[key] + 1, 3)
        return is_there

    def remove(self, key: int) -> list[int]:
        queue = self.small if key in self.small else self.main
        if key not in queue:
            return []
        queue.remove(key)
        return [key]

    def put(self, key: int, size: int) -> list[int]:
        left = self.remove(key)
        if size > self.limit:
            return [*left, key]
        while self.bytes_of(self.small) + self.bytes_of(self.main) + size > self.limit:
            left += self.evict()
        (self.main if key in self.ghosts else self.small).append(key)
        if key in self.ghosts:
            self.ghosts.remove(key)
        self.size[key], self.uses[key] = size, 0
        return left

    def evict(self) -> list[int]:
        """Which entry left, if one did: or one went from its queue into the main one."""
        if self.small and (not self.main or 10 * self.bytes_of(self.small) > self.limit):
            key = self.small.pop(0)
            if not self.uses[key]:
                self.ghosts.append(key)
                while self.bytes_of(self.ghosts) > self.limit:
                    self.ghosts.pop(0)
                return [key]
            self.uses[key] = 0
        else:
            key = self.main.pop(0)
            if not self.uses[key]:
                return [key]
            self.uses[key] -= 1
        self.main.append(key)
        return []

    def resize(self, limit: int) -> list[int]:
        self.limit, left = limit, []
        while self.bytes_of(self.small) + self.bytes_of(self.main) > limit:
            left += self.evict()
        while self.bytes_of(self.ghosts) > limit:
            self.ghosts.pop(0)
        return left


@pytest.mark.parametrize("seed", range(40))
def test_who_leaves_is_whom_the_paper_says(seed: int) -> None:
    """If this fails, the cache keeps others than those that will be asked for, and serves less from memory."""
    chance = random.Random(seed)
    limit = chance.randint(6, 20)
    steps = [(chance.choice("pppppffffffffffars"), chance.randint(0, 14), chance.randint(1, 3)) for _ in range(400)]
    cache, plain = cache_of(limit), PlainS3Fifo(limit)
    for step, key, size in steps:
        if step == "p":
            assert [gone for gone, _ in cache.put(key, "", size)] == plain.put(key, size)
        elif step == "r":
            assert [gone for gone, _ in cache.remove(key)] == plain.remove(key)
        elif step == "s":
            assert [gone for gone, _ in cache.resize(6 + key)] == plain.resize(6 + key)
        else:
            assert (cache.find(key, again=step == "a") is not None) == plain.find(key, again=step == "a")


class AgainstADict(RuleBasedStateMachine):
    """Whatever is found is what was put last, and the sum of sizes is exact."""

    @initialize(limit=st.integers(1, 60))
    def begin(self, limit: int) -> None:
        self.limit = limit
        self.cache = cache_of(limit)
        self.put_last: dict[int, tuple[str, int]] = {}
        self.count = 0

    @rule(key=st.integers(0, 12), size=st.integers(0, 30))
    def put(self, key: int, size: int) -> None:
        self.count += 1
        self.put_last[key] = (str(self.count), size)
        self.cache.put(key, str(self.count), size)

    @rule(key=st.integers(0, 12), again=st.booleans())
    def find(self, key: int, again: bool) -> None:
        found = self.cache.find(key, again=again)
        assert found is None or found == self.put_last[key][0]

    @rule(key=st.integers(0, 12))
    def remove(self, key: int) -> None:
        self.cache.remove(key)
        assert key not in self.cache

    @rule(limit=st.integers(0, 60))
    def resize(self, limit: int) -> None:
        self.limit = limit
        before = len(self.cache)
        assert len(self.cache.resize(limit)) == before - len(self.cache)

    @invariant()
    def sizes_add_up(self) -> None:
        if not hasattr(self, "cache"):
            return
        held = [key for key in self.put_last if key in self.cache]
        assert sum(self.put_last[key][1] for key in held) == self.cache.size_bytes <= self.limit
        assert len(held) == len(self.cache)


TestAgainstADict = AgainstADict.TestCase
