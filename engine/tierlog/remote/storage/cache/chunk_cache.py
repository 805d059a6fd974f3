"""Caches of chunks: their interface, and the cache in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

from tierlog.remote.tier.chunks.stored_segment import ChunkKey
from tierlog.runtime.weighted_cache import CacheFigures, WeightedCache


class ChunkCache(ABC):
    """A cache of chunks, which newer ones replace. Any number of threads; no method raises for an error of a disk.

    Attributes:
        label: The cache's name in metrics.
        keeps_stored: Whether it caches chunks as they are in the object (encrypted where they are), not as the broker's
            bytes.
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
    def __contains__(self, key: ChunkKey) -> bool:
        """Whether ``find`` will likely have the chunk; this does not count as a use."""

    @abstractmethod
    def find(self, key: ChunkKey, *, again: bool = False) -> memoryview | None:
        """Find the bytes of a chunk; ``again`` as in WeightedCache."""

    @abstractmethod
    def put(self, key: ChunkKey, data: memoryview, size_bytes: int) -> object:
        """Cache a chunk, if it can be; ``data`` is memory of its own, of so many bytes: no more is held than counts."""

    @abstractmethod
    def drop(self, key: ChunkKey) -> None:
        """Remove a chunk that turned out to be damaged, or another one than its key says; the metrics count it."""

    @abstractmethod
    def forget(self, log_key: str) -> None:
        """Drop all chunks of a log."""

    @abstractmethod
    def close(self) -> None:
        """Release all cached chunks."""


class MemoryChunkCache(WeightedCache[ChunkKey, memoryview], ChunkCache):
    """A cache of the broker's bytes, bounded exactly; chunks that readers still hold after their eviction
    do not count.
    """

    label = "chunks_memory"
    keeps_stored = False
    is_slow = False

    def drop(self, key: ChunkKey) -> None:
        self.remove(key)

    def forget(self, log_key: str) -> None:
        self.remove_where(lambda key: key.log_key == log_key)

    def close(self) -> None:
        self.remove_where(lambda _: True)
