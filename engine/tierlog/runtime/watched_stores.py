"""Stores around a store: one counts what is asked, one breaks on purpose."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from typing_extensions import Buffer

from tierlog.errors import StoreUnavailableError
from tierlog.runtime.clock import Clock
from tierlog.runtime.object_store import FolderListing, ObjectInfo, ObjectStore


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """Calls so far, and the bytes that came back."""

    gets: int = 0
    bytes: int = 0
    lists: int = 0
    puts: int = 0


class CountingStore:
    """Passes everything on and counts it. Thread-safe; a listing counts once, however many pages it takes."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._counts = StoreCounts()

    @property
    def counts(self) -> StoreCounts:
        return self._counts

    @property
    def is_local(self) -> bool:
        return self._store.is_local

    def reset(self) -> StoreCounts:
        """The counts so far, which begin again at zero."""
        with self._lock:
            counts, self._counts = self._counts, StoreCounts()
        return counts

    def _add(self, *, gets: int = 0, size: int = 0, lists: int = 0, puts: int = 0) -> None:
        with self._lock:
            now = self._counts
            self._counts = StoreCounts(now.gets + gets, now.bytes + size, now.lists + lists, now.puts + puts)

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """See ObjectStore."""
        self._add(lists=1)
        return self._store.iter_objects(prefix)

    def list_folder(self, prefix: str = "") -> FolderListing:
        """See ObjectStore."""
        self._add(lists=1)
        return self._store.list_folder(prefix)

    def fetch(self, key: str) -> Buffer:
        """See ObjectStore."""
        found = self._store.fetch(key)
        self._add(gets=1, size=memoryview(found).nbytes)
        return found

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        """See ObjectStore."""
        found = self._store.fetch_range(
            key, start_position=start_position, end_position_exclusive=end_position_exclusive
        )
        self._add(gets=1, size=memoryview(found).nbytes)
        return found

    def put(self, key: str, data: Buffer) -> None:
        """See ObjectStore."""
        self._add(puts=1)
        self._store.put(key, data)

    def describe(self) -> str:
        """Of the store inside."""
        return self._store.describe()

    def close(self) -> None:
        """Of the store inside."""
        self._store.close()


#: What FailingStore can do to a call.
FAULTS = ("error", "reset", "short", "stall")


class FailingStore:
    """Breaks a share of the calls, by a seed: the same seed and the same order of calls break the same ones.

    Args:
        store: What answers the rest.
        rates: Fault → probability: "error" (a 503 after all retries), "reset" (the connection breaks), "short" (a body
            that ends early, undetected by the client), "stall" (the time limit passes, then an error).
        rng: Chance.
        clock: What a stall waits on.
        stall_seconds: The time limit.
    """

    def __init__(
        self,
        store: ObjectStore,
        rates: Mapping[str, float],
        *,
        rng: random.Random,
        clock: Clock,
        stall_seconds: float = 30.0,
    ) -> None:
        if unknown := rates.keys() - set(FAULTS):
            raise ValueError(f"unknown faults {sorted(unknown)}; known are {FAULTS}")
        self._store = store
        self._rates = dict(rates)
        self._rng = rng
        self._clock = clock
        self._stall_seconds = stall_seconds
        self._lock = threading.Lock()
        self.injected: dict[str, int] = dict.fromkeys(FAULTS, 0)

    @property
    def is_local(self) -> bool:
        return self._store.is_local

    def _strike(self, what: str) -> str | None:
        """Draw a fault for one call; raises those that are errors, returns "short"."""
        with self._lock:
            drawn = next((fault for fault in FAULTS if self._rng.random() < self._rates.get(fault, 0.0)), None)
            if drawn is not None:
                self.injected[drawn] += 1
        if drawn == "error":
            raise StoreUnavailableError(f"{what}: injected: 503 after all retries")
        if drawn == "reset":
            raise StoreUnavailableError(f"{what}: injected: connection reset")
        if drawn == "stall":
            self._clock.sleep(self._stall_seconds)
            raise StoreUnavailableError(f"{what}: injected: no answer within {self._stall_seconds} s")
        return drawn

    def _cut(self, found: Buffer) -> Buffer:
        view = memoryview(found).cast("B")
        with self._lock:
            return view[: self._rng.randrange(len(view))] if len(view) else view

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """See ObjectStore; fails at the start."""
        self._strike(f"list {prefix}")
        return self._store.iter_objects(prefix)

    def list_folder(self, prefix: str = "") -> FolderListing:
        """See ObjectStore."""
        self._strike(f"list {prefix}")
        return self._store.list_folder(prefix)

    def fetch(self, key: str) -> Buffer:
        """See ObjectStore."""
        fault = self._strike(key)
        found = self._store.fetch(key)
        return self._cut(found) if fault else found

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        """See ObjectStore."""
        fault = self._strike(key)
        found = self._store.fetch_range(
            key, start_position=start_position, end_position_exclusive=end_position_exclusive
        )
        return self._cut(found) if fault else found

    def put(self, key: str, data: Buffer) -> None:
        """See ObjectStore."""
        self._strike(key)
        self._store.put(key, data)

    def describe(self) -> str:
        """Of the store inside."""
        return f"{self._store.describe()} (failing)"

    def close(self) -> None:
        """Of the store inside."""
        self._store.close()
