"""Records of a fixed seed, shaped like production: a mix of sizes, skewed keys, half-compressible values.

The same records go to a real broker (which makes the log that all peers read) and into the micro-benchmarks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

SEED = 20261121
FIRST_TIMESTAMP_MS = 1_700_000_000_000
POOL = 8192
_WORDS = [
    f"{a}{b}".encode() for a in ("order", "user", "cart", "item", "price", "page") for b in ("_id", "Name", "At", "")
]


def values(mean_size: int, *, seed: int = SEED, pool: int = POOL) -> list[bytes]:
    """A pool of distinct values: JSON-like text with random ids in it; sizes spread log-normally round the mean."""
    rng = np.random.default_rng(seed)
    sizes = np.clip(rng.lognormal(np.log(mean_size) - 0.125, 0.5, pool), mean_size // 8 + 1, mean_size * 8).astype(int)
    made = []
    for size in sizes:
        parts: list[bytes] = [b"{"]
        length = 1
        while length < size:
            word = _WORDS[int(rng.integers(len(_WORDS)))]
            part = b'"%s":"%s",' % (word, rng.bytes(9).hex().encode())
            parts.append(part)
            length += len(part)
        made.append(b"".join(parts)[: int(size) - 1] + b"}")
    return made


def keys(count: int, *, seed: int = SEED) -> list[bytes]:
    """Skewed keys: a few are very frequent, as customers are."""
    rng = np.random.default_rng(seed + 1)
    return [b"customer-%08d" % k for k in np.minimum(rng.zipf(1.3, count), 10**8 - 1)]


def headers(number: int) -> tuple[tuple[str, bytes], ...]:
    """Three, of 26 bytes in all beside their names; the first is another one in each record."""
    return (
        ("trace-id", b"%016x" % (number * 0x9E3779B97F4A7C15 % 2**64)),
        ("schema-id", b"\0\0\1\7"),
        ("source", b"orders"),
    )


def records(total_bytes: int, mean_size: int, *, seed: int = SEED) -> Iterator[tuple[bytes, bytes, int]]:
    """(key, value, timestamp in ms) until about ``total_bytes`` of keys and values."""
    rng = np.random.default_rng(seed + 2)
    pool = values(mean_size, seed=seed)
    some_keys = keys(POOL, seed=seed)
    done = 0
    timestamp = FIRST_TIMESTAMP_MS
    while done < total_bytes:
        picks = rng.integers(POOL, size=4096)
        key_picks = rng.integers(POOL, size=4096)
        gaps = rng.integers(0, 3, size=4096)
        for pick, key_pick, gap in zip(picks.tolist(), key_picks.tolist(), gaps.tolist(), strict=True):
            timestamp += gap
            value, key = pool[pick], some_keys[key_pick]
            done += len(value) + len(key)
            yield key, value, timestamp
