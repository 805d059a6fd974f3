"""Hit bytes of the chunk cache's policy beside published ones, on Zipf traces with scans through them.

``python -m tests.support.cache_traces [--requests N]``: a line a trace, from a fixed seed; no timing.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tests.support.cache_policies import Arc, Lirs, Lru, Policy, Sieve, WTinyLfu
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.weighted_cache import WeightedCache

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
