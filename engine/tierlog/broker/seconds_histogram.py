"""Durations by buckets, as Prometheus's histograms have them."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class SecondsHistogram:
    """Durations, counted by buckets. For the loop's thread; any thread may read."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_SECONDS) + 1)
        self.sum_seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(_SECONDS, seconds)] += 1
        self.sum_seconds += seconds

    @property
    def count(self) -> int:
        """How many durations were counted."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, durations up to it), as Prometheus has them."""
        found: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(str, _SECONDS), "+Inf"), list(self._counts), strict=True):
            total += count
            found.append((bound, total))
        return found
