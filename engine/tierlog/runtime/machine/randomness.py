"""Randomness, as an argument."""

from __future__ import annotations

import os
import random
import threading
from typing import Protocol


class Rng(Protocol):
    """Randomness, as the rest of the program sees it. Thread safety: any number of threads."""

    def secret_bytes(self, size_bytes: int) -> bytes:
        """Return random bytes for keys, IVs and ids; in production from the operating system's generator."""

    def uniform(self, low: float, high: float) -> float:
        """Draw a random number from low to high, both included: for jitter, and for events of some probability."""

    def integer_below(self, limit_exclusive: int) -> int:
        """Draw a random integer from 0 to limit - 1. Raises ValueError: the limit is less than 1."""


class SystemRng:
    """The randomness of this machine."""

    def secret_bytes(self, size_bytes: int) -> bytes:
        """Return random bytes for keys, IVs and ids; in production from the operating system's generator."""
        return os.urandom(size_bytes)

    def uniform(self, low: float, high: float) -> float:
        """Draw a random number from low to high, both included: for jitter, and for events of some probability."""
        return random.uniform(low, high)  # noqa: S311

    def integer_below(self, limit_exclusive: int) -> int:
        """Draw a random integer from 0 to limit - 1."""
        return random.randrange(limit_exclusive)  # noqa: S311


class SeededRng:
    """The same numbers for the same seed and order of calls: for tests and simulation, never for real keys."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311
        self._lock = threading.Lock()

    def secret_bytes(self, size_bytes: int) -> bytes:
        """Return random bytes for keys, IVs and ids; in production from the operating system's generator."""
        with self._lock:
            return self._random.randbytes(size_bytes)

    def uniform(self, low: float, high: float) -> float:
        """Draw a random number from low to high, both included: for jitter, and for events of some probability."""
        with self._lock:
            return self._random.uniform(low, high)

    def integer_below(self, limit_exclusive: int) -> int:
        """Draw a random integer from 0 to limit - 1."""
        with self._lock:
            return self._random.randrange(limit_exclusive)
