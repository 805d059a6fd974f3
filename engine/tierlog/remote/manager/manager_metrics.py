"""The series of a RemoteLogManager."""

from __future__ import annotations

from collections import defaultdict

from tierlog.runtime.machine import Machine


class ManagerMetrics:
    """Counters by topic. Thread safety: any number of threads."""

    def __init__(self, machine: Machine) -> None:
        self._lock = machine.scheduler.lock()
        self._counts: defaultdict[tuple[str, str], float] = defaultdict(float)

    def add(self, name: str, topic: str, amount: float = 1) -> None:
        """Add to a counter of a topic."""
        with self._lock:
            self._counts[name, topic] += amount

    def count(self, name: str, topic: str) -> float:
        """Return a counter of a topic."""
        with self._lock:
            return self._counts.get((name, topic), 0)
