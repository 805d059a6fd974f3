"""Chunks at hand: what a cache of them is asked, and the one in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

from tierlog.remote.tier.chunks.segment_log import ChunkKey
from tierlog.runtime.machine import Machine
from tierlog.runtime.weighted_cache import CacheFigures, WeightedCache


class ChunkCache(ABC):
    """Keeps chunks until there are newer ones. Any number of threads; no method raises for what a disk does.

    Attributes:
        label: The cache's name in metrics.
        keeps_stored: It keeps chunks as they are in the object (encrypted where they are), not as the broker's bytes.
        is_slow: Looking something up is work for a thread of its own.
    """

    label: Literal["chunks_memory", "chunks_disk"]
    keeps_stored: bool
    is_slow: bool

    @property
    @abstractmethod
    def figures(self) -> CacheFigures:
        """The bytes that the cache holds now."""

    @abstractmethod
    def holds(self, key: ChunkKey) -> bool:
        """Whether ``find`` will likely have the chunk; this does not count as a use."""

    @abstractmethod
    def find(self, key: ChunkKey, *, again: bool = False) -> memoryview | None:
        """The bytes of a chunk; ``again`` as in WeightedCache."""

    @abstractmethod
    def put(self, key: ChunkKey, data: memoryview) -> None:
        """Keep a chunk, if it can be kept."""

    @abstractmethod
    def drop(self, key: ChunkKey) -> None:
        """Remove a chunk that turned out to be damaged, or another one than its key says; the metrics count it."""

    @abstractmethod
    def forget(self, log_key: str) -> None:
        """Drop all chunks of a log."""

    @abstractmethod
    def close(self) -> None:
        """Release what the cache holds."""


class MemoryChunkCache(ChunkCache):
    """The broker's bytes, bounded exactly: what readers still hold after it was evicted is theirs.

    Args:
        size_bytes_max: Of all chunks together; UNBOUNDED for no limit.
        retention_ms: After the last use; -1 for ever.
        machine: Its clock and locks.
        on_evict: Told how many had to make room.
    """

    label = "chunks_memory"
    keeps_stored = False
    is_slow = False

    def __init__(
        self,
        size_bytes_max: int,
        *,
        machine: Machine,
        retention_ms: int = -1,
        on_evict: Callable[[int], None] | None = None,
    ) -> None:
        self._cache: WeightedCache[ChunkKey, memoryview] = WeightedCache(
            size_bytes_max, machine=machine, retention_ms=retention_ms, on_evict=on_evict
        )

    @property
    def figures(self) -> CacheFigures:
        return self._cache.figures

    def holds(self, key: ChunkKey) -> bool:
        """As ChunkCache says."""
        return key in self._cache

    def find(self, key: ChunkKey, *, again: bool = False) -> memoryview | None:
        """As ChunkCache says."""
        return self._cache.find(key, again=again)

    def put(self, key: ChunkKey, data: memoryview) -> None:
        """As ChunkCache says; ``data`` must be memory of its own, or more would be held than is counted."""
        self._cache.put(key, data, len(data))

    def drop(self, key: ChunkKey) -> None:
        """As ChunkCache says."""
        self._cache.remove(key)

    def forget(self, log_key: str) -> None:
        """As ChunkCache says."""
        self._cache.remove_where(lambda key: key.log_key == log_key)

    def close(self) -> None:
        """Let go of all chunks."""
        self._cache.remove_where(lambda _: True)
