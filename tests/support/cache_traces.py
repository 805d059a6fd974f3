"""Hit bytes of the chunk cache's policy beside published ones, on Zipf traces with scans through them.

``python -m tests.support.cache_traces [--requests N]``: a line a trace, from a fixed seed; no timing.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.weighted_cache import WeightedCache


class Policy(Protocol):
    """A cache that holds keys only."""

    def access(self, key: int, size_bytes: int) -> bool:
        """Ask for a key, and keep it if it was not there; returns whether it was there."""


class Lru:
    """Least recently used."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held: collections.OrderedDict[int, int] = collections.OrderedDict()
        self.weight = 0

    def access(self, key: int, size_bytes: int) -> bool:
        if key in self.held:
            self.held.move_to_end(key)
            return True
        if size_bytes <= self.capacity:
            self.held[key] = size_bytes
            self.weight += size_bytes
            while self.weight > self.capacity:
                self.weight -= self.held.popitem(last=False)[1]
        return False


class Sieve:
    """SIEVE (Zhang et al., NSDI 2024): a queue, a visited bit, a hand that moves from the tail."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.weight = 0
        self.sizes: dict[int, int] = {}
        self.visited: dict[int, bool] = {}
        self.newer: dict[int, int | None] = {}
        self.older: dict[int, int | None] = {}
        self.head: int | None = None
        self.tail: int | None = None
        self.hand: int | None = None

    def access(self, key: int, size_bytes: int) -> bool:
        if key in self.sizes:
            self.visited[key] = True
            return True
        if size_bytes > self.capacity:
            return False
        while self.weight + size_bytes > self.capacity:
            self._evict()
        self.sizes[key], self.visited[key] = size_bytes, False
        self.weight += size_bytes
        self.older[key], self.newer[key] = self.head, None
        if self.head is not None:
            self.newer[self.head] = key
        self.head = key
        if self.tail is None:
            self.tail = key
        return False

    def _evict(self) -> None:
        at = self.hand if self.hand is not None else self.tail
        while at is not None and self.visited[at]:
            self.visited[at] = False
            at = self.newer[at] if self.newer[at] is not None else self.tail
        assert at is not None
        newer, older = self.newer.pop(at), self.older.pop(at)
        self.hand = newer
        if newer is not None:
            self.older[newer] = older
        else:
            self.head = older
        if older is not None:
            self.newer[older] = newer
        else:
            self.tail = newer
        del self.visited[at]
        self.weight -= self.sizes.pop(at)


class Arc:
    """ARC (Megiddo and Modha, FAST 2003), its lists counted in bytes."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.recent: collections.OrderedDict[int, int] = collections.OrderedDict()
        self.frequent: collections.OrderedDict[int, int] = collections.OrderedDict()
        self.recent_ghosts: collections.OrderedDict[int, int] = collections.OrderedDict()
        self.frequent_ghosts: collections.OrderedDict[int, int] = collections.OrderedDict()
        self.weights = {id(part): 0 for part in self._lists()}
        self.target = 0.0

    def _lists(self) -> tuple[collections.OrderedDict[int, int], ...]:
        return self.recent, self.frequent, self.recent_ghosts, self.frequent_ghosts

    def _put(self, part: collections.OrderedDict[int, int], key: int, size: int) -> None:
        part[key] = size
        self.weights[id(part)] += size

    def _take(self, part: collections.OrderedDict[int, int], key: int | None = None) -> tuple[int, int]:
        key, size = part.popitem(last=False) if key is None else (key, part.pop(key))
        self.weights[id(part)] -= size
        return key, size

    def _weight(self, part: collections.OrderedDict[int, int]) -> int:
        return self.weights[id(part)]

    def _replace(self, size: int, *, from_frequent_ghosts: bool) -> None:
        while self._weight(self.recent) + self._weight(self.frequent) + size > self.capacity:
            over = self._weight(self.recent) > self.target or (
                from_frequent_ghosts and self._weight(self.recent) == int(self.target)
            )
            if self.recent and (over or not self.frequent):
                self._put(self.recent_ghosts, *self._take(self.recent))
            else:
                self._put(self.frequent_ghosts, *self._take(self.frequent))

    def access(self, key: int, size_bytes: int) -> bool:
        if key in self.recent:
            self._put(self.frequent, *self._take(self.recent, key))
            return True
        if key in self.frequent:
            self.frequent.move_to_end(key)
            return True
        if size_bytes > self.capacity:
            return False
        ghosts, others = self._weight(self.recent_ghosts), self._weight(self.frequent_ghosts)
        if key in self.recent_ghosts:
            self.target = min(self.capacity, self.target + size_bytes * max(1.0, others / max(ghosts, 1)))
            self._take(self.recent_ghosts, key)
            self._replace(size_bytes, from_frequent_ghosts=False)
            self._put(self.frequent, key, size_bytes)
        elif key in self.frequent_ghosts:
            self.target = max(0.0, self.target - size_bytes * max(1.0, ghosts / max(others, 1)))
            self._take(self.frequent_ghosts, key)
            self._replace(size_bytes, from_frequent_ghosts=True)
            self._put(self.frequent, key, size_bytes)
        else:
            while self.recent_ghosts and self._weight(self.recent) + ghosts + size_bytes > self.capacity:
                self._take(self.recent_ghosts)
                ghosts = self._weight(self.recent_ghosts)
            while self.frequent_ghosts and sum(self.weights.values()) + size_bytes > 2 * self.capacity:
                self._take(self.frequent_ghosts)
            self._replace(size_bytes, from_frequent_ghosts=False)
            self._put(self.recent, key, size_bytes)
        return False


class Lirs:
    """LIRS (Jiang and Zhang, SIGMETRICS 2002): 1 % for what is new, ghosts of twice the capacity."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.hot_limit = capacity - max(capacity // 100, 1)
        self.stack: collections.OrderedDict[int, str] = collections.OrderedDict()  # "hot", "cold", "ghost"
        self.queue: collections.OrderedDict[int, None] = collections.OrderedDict()
        self.sizes: dict[int, int] = {}
        self.hot_weight = self.cold_weight = self.ghost_weight = 0

    def access(self, key: int, size_bytes: int) -> bool:
        state = self.stack.get(key)
        if state == "hot":
            self.stack.move_to_end(key)
            self._prune()
            return True
        if key in self.queue:
            self._touch_cold(key, size_bytes, in_stack=state == "cold")
            return True
        if size_bytes > self.capacity:
            return False
        self._make_room(size_bytes)
        self.sizes[key] = size_bytes
        if state == "ghost":
            self.ghost_weight -= size_bytes
            self._heat(key, size_bytes)
        elif self.hot_weight + size_bytes <= self.hot_limit and not self.queue:
            self.hot_weight += size_bytes
            self.stack[key] = "hot"
        else:
            self.cold_weight += size_bytes
            self.stack[key] = "cold"
            self.queue[key] = None
        while self.ghost_weight > 2 * self.capacity:
            ghost = next(k for k, v in self.stack.items() if v == "ghost")
            self._forget(ghost)
        return False

    def _touch_cold(self, key: int, size_bytes: int, *, in_stack: bool) -> None:
        if in_stack:
            del self.queue[key]
            self.cold_weight -= size_bytes
            self._heat(key, size_bytes)
        else:
            self.queue.move_to_end(key)
            self.stack[key] = "cold"

    def _heat(self, key: int, size_bytes: int) -> None:
        self.stack[key] = "hot"
        self.stack.move_to_end(key)
        self.hot_weight += size_bytes
        while self.hot_weight > self.hot_limit:
            self._prune()
            cooled, _ = self.stack.popitem(last=False)
            self.hot_weight -= self.sizes[cooled]
            self.cold_weight += self.sizes[cooled]
            self.queue[cooled] = None
        self._prune()

    def _prune(self) -> None:
        while self.stack:
            key, state = next(iter(self.stack.items()))
            if state == "hot":
                return
            del self.stack[key]
            if state == "ghost":
                self.ghost_weight -= self.sizes.pop(key)

    def _forget(self, key: int) -> None:
        del self.stack[key]
        self.ghost_weight -= self.sizes.pop(key)

    def _make_room(self, size: int) -> None:
        while self.hot_weight + self.cold_weight + size > self.capacity:
            if not self.queue:
                self._prune()
                key, _ = self.stack.popitem(last=False)
                self.hot_weight -= self.sizes.pop(key)
                continue
            key, _ = self.queue.popitem(last=False)
            self.cold_weight -= self.sizes[key]
            if key in self.stack:
                self.stack[key] = "ghost"
                self.ghost_weight += self.sizes[key]
            else:
                del self.sizes[key]


class WTinyLfu:
    """W-TinyLFU (Einziger et al., TOS 2017), as Caffeine sets it: a window of 1 %, then 20/80 of the rest, and a sketch
    of four rows of 4-bit counts that is halved when it is ten times as full as the cache has entries. Without
    Caffeine's hill climber: the window is fixed.
    """

    def __init__(self, capacity: int, *, entries: int) -> None:
        self.capacity = capacity
        self.window_limit = max(capacity // 100, 1)
        self.protected_limit = (capacity - self.window_limit) * 4 // 5
        self.window: collections.OrderedDict[int, int] = collections.OrderedDict()
        self.probation: collections.OrderedDict[int, int] = collections.OrderedDict()
        self.protected: collections.OrderedDict[int, int] = collections.OrderedDict()
        self.window_weight = self.probation_weight = self.protected_weight = 0
        self.width = 1 << max(entries * 8, 64).bit_length()
        self.rows = [bytearray(self.width) for _ in range(4)]
        self.sample, self.seen = entries * 10, 0
        self.places: dict[int, tuple[int, ...]] = {}

    def _cells(self, key: int) -> tuple[int, ...]:
        found = self.places.get(key)
        if found is None:
            digest = hashlib.blake2b(key.to_bytes(8, "little"), digest_size=16).digest()
            found = tuple(int.from_bytes(digest[4 * i : 4 * i + 4], "little") % self.width for i in range(4))
            self.places[key] = found
        return found

    def _count(self, key: int) -> None:
        for row, cell in zip(self.rows, self._cells(key), strict=True):
            if row[cell] < 15:
                row[cell] += 1
        self.seen += 1
        if self.seen >= self.sample:
            self.seen //= 2
            self.rows = [bytearray(value >> 1 for value in row) for row in self.rows]

    def _frequency(self, key: int) -> int:
        return min(row[cell] for row, cell in zip(self.rows, self._cells(key), strict=True))

    def access(self, key: int, size_bytes: int) -> bool:
        self._count(key)
        if key in self.window:
            self.window.move_to_end(key)
            return True
        if key in self.protected:
            self.protected.move_to_end(key)
            return True
        if key in self.probation:
            self._protect(key)
            return True
        if size_bytes > self.capacity:
            return False
        self.window[key] = size_bytes
        self.window_weight += size_bytes
        while self.window_weight > self.window_limit:
            candidate, size = self.window.popitem(last=False)
            self.window_weight -= size
            self._admit(candidate, size)
        return False

    def _protect(self, key: int) -> None:
        size = self.probation.pop(key)
        self.probation_weight -= size
        self.protected[key] = size
        self.protected_weight += size
        while self.protected_weight > self.protected_limit:
            demoted, size = self.protected.popitem(last=False)
            self.protected_weight -= size
            self.probation[demoted] = size
            self.probation_weight += size

    def _admit(self, candidate: int, size: int) -> None:
        limit = self.capacity - self.window_limit
        while self.probation_weight + self.protected_weight + size > limit:
            main = self.probation or self.protected
            if not main:
                return
            victim = next(iter(main))
            if self._frequency(candidate) <= self._frequency(victim):
                return
            gone = main.pop(victim)
            if main is self.probation:
                self.probation_weight -= gone
            else:
                self.protected_weight -= gone
        self.probation[candidate] = size
        self.probation_weight += size


MIB = 1 << 20
CHUNK_BYTES = 4 * MIB
#: Bars: against LRU, and against the best published policy on the same trace.
LRU_RATIO_MIN = 1.15
BEST_RATIO_MIN = 0.95


@dataclass(frozen=True, slots=True)
class Trace:
    """Chunks by number, as they are asked for; scans ask for each chunk of a range once, in order.

    Args:
        chunks: Number of different chunks from which Zipf draws.
        exponent: Exponent of the Zipf distribution.
        scan_share: Share of scans in all requests.
        scan_chunks: Chunks of one scan; the next scan reads other chunks.
        drift: Number of requests after which the popular chunks change; 0 for never.
        compressed: Whether chunks have 1 to 4 MiB; else all have 4 MiB.
    """

    name: str
    chunks: int = 4_000
    exponent: float = 0.9
    scan_share: float = 0.3
    scan_chunks: int = 512
    drift: int = 0
    compressed: bool = False

    def requests(self, count: int, seed: int) -> Iterator[tuple[int, int]]:
        """The requests: (chunk, size in bytes)."""
        chance = random.Random(seed)
        weights = 1 / np.arange(1, self.chunks + 1) ** self.exponent
        drawn = iter(np.random.default_rng(seed).choice(self.chunks, count, p=weights / weights.sum()).tolist())
        order = list(range(self.chunks))
        chance.shuffle(order)
        scanned, left = self.chunks, 0
        begin_scan = self.scan_share / (1 - self.scan_share) / max(self.scan_chunks, 1) if self.scan_share < 1 else 1
        done = 0
        while done < count:
            done += 1
            if self.drift and done % self.drift == 0:
                cut = self.chunks // 5
                order = order[cut:] + order[:cut]
            if left == 0 and chance.random() < begin_scan:
                left = self.scan_chunks
            # A scan and the others run at the same time: they take turns.
            if left and chance.random() < 0.5:
                left -= 1
                scanned += 1
                yield scanned, self.size_of(scanned)
            else:
                chunk = order[next(drawn)]
                yield chunk, self.size_of(chunk)

    def size_of(self, chunk: int) -> int:
        return MIB + chunk * 2654435761 % (3 * MIB) if self.compressed else CHUNK_BYTES


TRACES = (
    Trace("zipf-0.9-scan"),
    Trace("zipf-0.7-scan", exponent=0.7),
    Trace("zipf-1.1-scan", exponent=1.1, scan_share=0.5),
    Trace("zipf-0.9-longscan", scan_share=0.5, scan_chunks=8_192),
    Trace("zipf-0.9-scan-compressed", compressed=True),
    Trace("zipf-0.9-drift", drift=20_000),
    Trace("zipf-0.9-noscan", scan_share=0.0),
)


class Ours:
    """The product's cache behind the shape of a Policy."""

    def __init__(self, capacity: int) -> None:
        self.cache: WeightedCache[int, int] = WeightedCache(capacity, machine=Machine(clock=ManualClock()))

    def access(self, key: int, size_bytes: int) -> bool:
        if self.cache.find(key) is not None:
            return True
        self.cache.put(key, key, size_bytes)
        assert self.cache.size_bytes <= self.cache._limit
        return False


def policies(capacity: int) -> dict[str, Callable[[], Policy]]:
    """The policies by name; ours first."""
    entries = capacity // CHUNK_BYTES
    return {
        "ours": lambda: Ours(capacity),
        "LRU": lambda: Lru(capacity),
        "ARC": lambda: Arc(capacity),
        "LIRS": lambda: Lirs(capacity),
        "SIEVE": lambda: Sieve(capacity),
        "W-TinyLFU": lambda: WTinyLfu(capacity, entries=entries),
    }


def hit_ratios(trace: Trace, capacity: int, count: int, *, seed: int = 1) -> dict[str, float]:
    """Policy → hit bytes over requested bytes; the first fifth warms up and does not count."""
    requests = list(trace.requests(count, seed))
    found = {}
    for name, make in policies(capacity).items():
        policy = make()
        hit = total = 0
        for number, (key, size) in enumerate(requests):
            was_hit = policy.access(key, size)
            if number >= count // 5:
                total += size
                hit += size * was_hit
        found[name] = hit / total
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--share", type=float, action="append", help="cache size over all popular chunks")
    arguments = parser.parse_args()
    for trace in TRACES:
        for share in arguments.share or (0.02, 0.1):
            found = hit_ratios(trace, int(trace.chunks * share) * CHUNK_BYTES, arguments.requests)
            best = max((name for name in found if name != "ours"), key=lambda name: found[name])
            shown = "  ".join(f"{name} {ratio:.3f}" for name, ratio in found.items())
            ratio, against_best = found["ours"] / found["LRU"], found["ours"] / found[best]
            print(f"{trace.name:26} {share:5.2f}  {shown}  | {ratio:.2f} × LRU, {against_best:.3f} × {best}")


if __name__ == "__main__":
    main()
