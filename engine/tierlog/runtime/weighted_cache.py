"""A cache bounded exactly by bytes that a scan does not flush: S3-FIFO, with retention after the last use.

New entries wait in a small queue, a tenth of the cache. Only an entry that is asked for again while it waits, or soon
after it left (its key is remembered for as many bytes as the cache holds), comes into the main queue, which gives its
entries another round for each use, three at most. A reader that reads a segment from end to end asks for each chunk
once, so that its chunks go through the small queue and out.

Source: Yang et al., "FIFO queues are all you need for cache eviction" (SOSP 2023).
``tests/support/cache_traces.py`` measures it beside LRU, ARC, LIRS, SIEVE and W-TinyLFU.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from tierlog.runtime.machine import Machine

Key = TypeVar("Key")
Value = TypeVar("Value")

#: Share of the cache for new entries.
SMALL_SHARE: Final = 0.1
#: Uses that are counted.
USES_MAX: Final = 3
#: Bytes that an entry counts for at least: its own objects take so much.
ENTRY_BYTES_MIN: Final = 512
#: Keys that are remembered beside those of entries, at most so many for each of these, and as many in any case.
_GHOSTS_PER_ENTRY: Final = 4
_GHOSTS_MIN: Final = 1024
#: Without a limit of bytes nothing leaves but by age.
UNBOUNDED: Final = -1


@dataclass(slots=True)
class _Entry(Generic[Value]):
    value: Value
    size_bytes: int
    used_at_seconds: float
    uses: int = 0


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """The content of a cache, and the numbers of its lookups and evictions."""

    entries: int
    size_bytes: int
    hits: int
    misses: int
    evictions: int
    evicted_bytes: int


class WeightedCache(Generic[Key, Value]):
    """Values by key, up to a number of bytes; the keys that are asked for again stay.

    Args:
        size_bytes_max: Of all values together; UNBOUNDED for no limit, 0 caches nothing.
        machine: Its clock and locks.
        retention_ms: Time since its last use after which an entry is evicted; -1 for ever.
        entries_max: A second limit; UNBOUNDED for none.
        entry_bytes_min: What each counts for at least, so that a cache of tiny values is bounded too.
        on_evict: Called with the number of entries that had to make room.

    Invariant: the sizes of the entries never add up to more than ``size_bytes_max``. Thread safety: any number of
    threads; the lock is held for memory work only.
    """

    def __init__(
        self,
        size_bytes_max: int,
        *,
        machine: Machine,
        retention_ms: int = -1,
        entries_max: int = UNBOUNDED,
        entry_bytes_min: int = ENTRY_BYTES_MIN,
        on_evict: Callable[[int], None] | None = None,
    ) -> None:
        self._limit = size_bytes_max
        self._entries_max = entries_max
        self._entry_bytes_min = entry_bytes_min
        self._on_evict = on_evict
        self._clock = machine.clock
        self._retention_seconds = retention_ms / 1000 if retention_ms >= 0 else None
        self._lock = machine.scheduler.lock()
        self._small: collections.OrderedDict[Key, _Entry[Value]] = collections.OrderedDict()
        self._main: collections.OrderedDict[Key, _Entry[Value]] = collections.OrderedDict()
        self._ghosts: collections.OrderedDict[Key, int] = collections.OrderedDict()
        self._small_bytes = self._main_bytes = self._ghost_bytes = 0
        self._swept_at_seconds = machine.clock.monotonic_seconds()
        self._hits = self._misses = self._evictions = self._evicted_bytes = 0

    @property
    def size_bytes(self) -> int:
        return self._small_bytes + self._main_bytes

    @property
    def figures(self) -> CacheFigures:
        with self._lock:
            return CacheFigures(
                len(self), self.size_bytes, self._hits, self._misses, self._evictions, self._evicted_bytes
            )

    def __len__(self) -> int:
        return len(self._small) + len(self._main)

    def __contains__(self, key: Key) -> bool:
        """Whether a key is there; this does not count as a use."""
        return self.peek(key) is not None

    def peek(self, key: Key) -> Value | None:
        """Return the value under a key, without counting as a use."""
        with self._lock:
            entry = self._small.get(key) or self._main.get(key)
            is_there = entry is not None and not self._is_stale(entry, self._clock.monotonic_seconds())
            return entry.value if entry is not None and is_there else None

    def find(self, key: Key, *, again: bool = False) -> Value | None:
        """Find the value under a key.

        Args:
            key: As it was put.
            again: The reader that asked for it last asks once more (for the next bytes of the same chunk): that says
                nothing of whether another one will.
        """
        with self._lock:
            now = self._clock.monotonic_seconds()
            entry = self._small.get(key) or self._main.get(key)
            if entry is None or self._is_stale(entry, now):
                self._misses += 1
                return None
            self._hits += 1
            entry.used_at_seconds = now
            if not again and entry.uses < USES_MAX:
                entry.uses += 1
            return entry.value

    def put(self, key: Key, value: Value, size_bytes: int) -> list[tuple[Key, Value]]:
        """Cache a value, in place of one that is there.

        Returns:
            What left for it, or because it was not asked for in so long; itself if it is larger than the cache.
        """
        with self._lock:
            before = self._evictions
            left = self._put(key, value, size_bytes)
            evicted = self._evictions - before
        if evicted and self._on_evict is not None:
            self._on_evict(evicted)
        return left

    def _put(self, key: Key, value: Value, size_bytes: int) -> list[tuple[Key, Value]]:
        size_bytes = max(size_bytes, self._entry_bytes_min)
        now = self._clock.monotonic_seconds()
        left = self._sweep(now)
        left += self._remove([key])
        if self._limit != UNBOUNDED and size_bytes > self._limit:
            return [*left, (key, value)]
        while self._is_over(size_bytes):
            left.append(self._evict())
        entry = _Entry(value, size_bytes, now)
        ghost = self._ghosts.pop(key, None)
        if ghost is None:
            self._small[key] = entry
            self._small_bytes += size_bytes
        else:
            self._ghost_bytes -= ghost
            self._main[key] = entry
            self._main_bytes += size_bytes
        return left

    def resize(self, size_bytes_max: int) -> list[tuple[Key, Value]]:
        """Change the limit; entries leave at once where they are more than it. Returns what left."""
        with self._lock:
            self._limit = size_bytes_max
            left = []
            while size_bytes_max != UNBOUNDED and self.size_bytes > size_bytes_max:
                left.append(self._evict())
            self._trim_ghosts()
        if left and self._on_evict is not None:
            self._on_evict(len(left))
        return left

    def remove(self, key: Key) -> list[tuple[Key, Value]]:
        """Drop a key. Returns what left the cache."""
        with self._lock:
            return self._remove([key])

    def remove_where(self, unwanted: Callable[[Key], bool]) -> list[tuple[Key, Value]]:
        """Drop all keys that a function names. Returns what left the cache."""
        with self._lock:
            return self._remove([key for key in (*self._small, *self._main) if unwanted(key)])

    def _is_stale(self, entry: _Entry[Value], now: float) -> bool:
        return self._retention_seconds is not None and now - entry.used_at_seconds > self._retention_seconds

    def _is_over(self, more_bytes: int) -> bool:
        if self._entries_max != UNBOUNDED and len(self) + 1 > self._entries_max and len(self):
            return True
        return self._limit != UNBOUNDED and self.size_bytes + more_bytes > self._limit

    def _sweep(self, now: float) -> list[tuple[Key, Value]]:
        """Evict old entries even if they are not asked for: a few times in the retention, in one pass."""
        if self._retention_seconds is None or now - self._swept_at_seconds < self._retention_seconds / 4:
            return []
        self._swept_at_seconds = now
        stale = [key for part in (self._small, self._main) for key, e in part.items() if self._is_stale(e, now)]
        return self._remove(stale)

    def _remove(self, keys: list[Key]) -> list[tuple[Key, Value]]:
        left = []
        for key in keys:
            if (entry := self._small.pop(key, None)) is not None:
                self._small_bytes -= entry.size_bytes
            elif (entry := self._main.pop(key, None)) is not None:
                self._main_bytes -= entry.size_bytes
            else:
                continue
            left.append((key, entry.value))
        return left

    def _evict(self) -> tuple[Key, Value]:
        """Evict the entry whose turn it is."""
        while True:
            if self._small and (self._small_bytes > SMALL_SHARE * self._limit or not self._main):
                key, entry = self._small.popitem(last=False)
                self._small_bytes -= entry.size_bytes
                if entry.uses == 0:
                    self._remember(key, entry.size_bytes)
                    return self._gone(key, entry)
                entry.uses = 0
            else:
                key, entry = self._main.popitem(last=False)
                self._main_bytes -= entry.size_bytes
                if entry.uses == 0:
                    return self._gone(key, entry)
                entry.uses -= 1
            self._main[key] = entry
            self._main_bytes += entry.size_bytes

    def _gone(self, key: Key, entry: _Entry[Value]) -> tuple[Key, Value]:
        self._evictions += 1
        self._evicted_bytes += entry.size_bytes
        return key, entry.value

    def _remember(self, key: Key, size_bytes: int) -> None:
        self._ghosts[key] = size_bytes
        self._ghost_bytes += size_bytes
        self._trim_ghosts()

    def _trim_ghosts(self) -> None:
        most = max(_GHOSTS_MIN, _GHOSTS_PER_ENTRY * len(self))
        while self._ghosts and (self._ghost_bytes > self._limit or len(self._ghosts) > most):
            self._ghost_bytes -= self._ghosts.popitem(last=False)[1]
