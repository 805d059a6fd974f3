"""The policy of all caches of the store: bounds, scans, age; a model of it by Hypothesis."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bench.cache_trace import BEST_RATIO_MIN, LRU_RATIO_MIN, TRACES, hit_ratios
from tierlog.remote.storage.cache.weighted_cache import UNBOUNDED, WeightedCache
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock


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
        """If this fails, a sequential reader's small reads make each chunk she passes look hot."""
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
        """If this fails, memory of segments that nobody reads any more is never given back."""
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

    @invariant()
    def sizes_add_up(self) -> None:
        if not hasattr(self, "cache"):
            return
        held = [key for key in self.put_last if key in self.cache]
        assert sum(self.put_last[key][1] for key in held) == self.cache.size_bytes <= self.limit
        assert len(held) == len(self.cache)


TestAgainstADict = AgainstADict.TestCase
