"""How many requests a store was sent, by verb."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

#: HTTP's verbs, and LIST for a page of a listing. A local store counts what would be one.
VERBS: Final = ("GET", "HEAD", "LIST", "PUT", "POST", "DELETE")


class RequestCounts:
    """A counter for each verb, which only grows. Any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(VERBS, 0)

    def add(self, verb: str, count: int = 1) -> None:
        """Count requests of a verb of VERBS."""
        with self._lock:
            self._counts[verb] += count

    def snapshot(self) -> Mapping[str, int]:
        """The counts as they are now, in a mapping that does not change."""
        with self._lock:
            return dict(self._counts)
