"""Chance, as an argument."""

from __future__ import annotations

import os
import random
import threading
from typing import Protocol


class Rng(Protocol):
    """What the rest of the program may know of chance. Any number of threads."""

    def secret_bytes(self, size_bytes: int) -> bytes:
        """For keys, IVs and ids: of the operating system's generator, in production."""

    def uniform(self, low: float, high: float) -> float:
        """For jitter."""


class SystemRng:
    """The machine's chance."""

    def secret_bytes(self, size_bytes: int) -> bytes:
        """See Rng."""
        return os.urandom(size_bytes)

    def uniform(self, low: float, high: float) -> float:
        """See Rng."""
        return random.uniform(low, high)  # noqa: S311


class SeededRng:
    """The same bytes for the same seed and order of calls: for tests and simulation, never for keys that matter."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311
        self._lock = threading.Lock()

    def secret_bytes(self, size_bytes: int) -> bytes:
        """See Rng."""
        with self._lock:
            return self._random.randbytes(size_bytes)

    def uniform(self, low: float, high: float) -> float:
        """See Rng."""
        with self._lock:
            return self._random.uniform(low, high)
