"""A store around a store that breaks on purpose, by a seed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from typing_extensions import Buffer

from tierlog.errors import StoreError, StoreUnavailableError
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.stores.protocol.object_store import (
    FolderListing,
    ObjectInfo,
    ObjectStore,
    StoredObject,
    UnfinishedUpload,
    Upload,
    UploadLimits,
    views_of,
)

#: Of any call: an error before anything happened.
_BEFORE: Final = ("error", "reset", "stall")
#: Of a call that reads.
_READ: Final = ("short", "wrong")
#: Of a call that writes.
_WRITE: Final = ("lost", "late")
#: What FailingStore can do to a call.
FAULTS: Final = (*_BEFORE, *_READ, *_WRITE)


class FailingStore:
    """Breaks a share of the calls, by a seed: the same seed and the same order of calls break the same ones.

    Args:
        store: What answers the rest.
        rates: Fault → probability.
            "error": a 503 after all retries. "reset": the connection breaks. "stall": the time limit passes, then an
            error. Of reads, "short": a body that ends early, undetected by the client; "wrong": one bit of it is
            another. Of writes and deletions, "lost": it is done and the answer gets lost, so the caller sees an error;
            "late": the caller sees an error, and it is done ``late_seconds`` later, whatever happened meanwhile.
        rng: Chance.
        clock: What a stall waits on, and what says when something late is due.
        stall_seconds: The time limit.
        late_seconds: How late.
    """

    def __init__(
        self,
        store: ObjectStore,
        rates: Mapping[str, float],
        *,
        rng: random.Random,
        clock: Clock,
        stall_seconds: float = 30.0,
        late_seconds: float = 600.0,
    ) -> None:
        if unknown := rates.keys() - set(FAULTS):
            raise ValueError(f"unknown faults {sorted(unknown)}; known are {FAULTS}")
        self._store = store
        self._rates = dict(rates)
        self._rng = rng
        self._clock = clock
        self._stall_seconds = stall_seconds
        self._late_seconds = late_seconds
        self._lock = threading.Lock()
        self._late: list[tuple[float, Callable[[], object]]] = []
        self.injected: dict[str, int] = dict.fromkeys(FAULTS, 0)

    @property
    def inner(self) -> ObjectStore:
        """What answers."""
        return self._store

    @property
    def is_local(self) -> bool:
        return self._store.is_local

    @property
    def upload_limits(self) -> UploadLimits:
        """Of the store inside."""
        return self._store.upload_limits

    @property
    def requests(self) -> Mapping[str, int]:
        """Of the store inside."""
        return self._store.requests

    def land_late(self, *, all_of_it: bool = True) -> int:
        """Do now what is late, or only what is due; returns how many calls that were."""
        now = self._clock.monotonic_seconds()
        with self._lock:
            due = [action for when, action in self._late if all_of_it or when <= now]
            self._late = [] if all_of_it else [entry for entry in self._late if entry[0] > now]
        for action in due:
            action()
        return len(due)

    def _strike(self, what: str, kinds: tuple[str, ...] = ()) -> str | None:
        """Draw a fault for one call; raises those before it, returns one of ``kinds`` or None."""
        self.land_late(all_of_it=False)
        possible = (*_BEFORE, *kinds)
        with self._lock:
            drawn = next((fault for fault in possible if self._rng.random() < self._rates.get(fault, 0.0)), None)
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

    def _read(self, what: str, read: Callable[[], Buffer]) -> Buffer:
        fault = self._strike(what, _READ)
        found = read()
        view = memoryview(found).cast("B")
        if fault is None or not len(view):
            return found
        with self._lock:
            position, bit = self._rng.randrange(len(view)), self._rng.randrange(8)
        if fault == "short":
            return view[:position]
        wrong = bytearray(view)
        wrong[position] ^= 1 << bit
        return wrong

    def write(self, what: str, now: Callable[[], StoredObject | None], later: Callable[[], object]) -> StoredObject:
        """One call that writes.

        Args:
            what: For the message.
            now: Does it.
            later: Does it when the caller's buffers are others already.
        """
        fault = self._strike(what, _WRITE)
        if fault == "late":
            with self._lock:
                self._late.append((self._clock.monotonic_seconds() + self._late_seconds, later))
            raise StoreUnavailableError(f"{what}: injected: no answer; it lands later")
        done = now()
        if fault == "lost":
            raise StoreUnavailableError(f"{what}: injected: done, and the answer got lost")
        return done or StoredObject(0)

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
        return self._read(key, lambda: self._store.fetch(key))

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        """See ObjectStore."""
        return self._read(
            key,
            lambda: self._store.fetch_range(
                key, start_position=start_position, end_position_exclusive=end_position_exclusive
            ),
        )

    def find(self, key: str) -> ObjectInfo | None:
        """See ObjectStore."""
        self._strike(key)
        return self._store.find(key)

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        """See ObjectStore."""
        copy = b"".join(views_of(data)) if self._rates.get("late") else b""
        return self.write(
            key,
            lambda: self._store.put(key, data, expected_etag=expected_etag),
            lambda: if_possible(lambda: self._store.put(key, copy, expected_etag=expected_etag)),
        )

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        """See ObjectStore. "lost" leaves an upload that nobody knows."""
        fault = self._strike(f"begin {key}", _WRITE)
        upload = self._store.begin_upload(key, part_bytes=part_bytes)
        if fault is not None:
            raise StoreUnavailableError(f"{key}: injected: the upload was begun, and the answer got lost")
        return _FailingUpload(upload, self, copies=bool(self._rates.get("late")))

    def delete(self, keys: Sequence[str]) -> None:
        """See ObjectStore."""
        kept = list(keys)
        self.write(f"delete {kept}", lambda: self._store.delete(kept), lambda: self._store.delete(kept))

    def iter_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        """See ObjectStore; fails at the start."""
        self._strike(f"list uploads {prefix}")
        return self._store.iter_uploads(prefix)

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """See ObjectStore."""
        abort = self._store.abort_upload
        self.write(f"abort {upload.key}", lambda: abort(upload), lambda: abort(upload))

    def describe(self) -> str:
        """Of the store inside."""
        return f"{self._store.describe()} (failing)"

    def close(self) -> None:
        """Of the store inside."""
        self._store.close()


class _FailingUpload:
    """See Upload. What is late comes to an upload that may have ended: then it is nothing, as with a real store."""

    def __init__(self, upload: Upload, store: FailingStore, *, copies: bool) -> None:
        self.key = upload.key
        self._upload = upload
        self._store = store
        self._copies = copies

    def put_part(self, number: int, data: Sequence[Buffer]) -> None:
        copy = b"".join(views_of(data)) if self._copies else b""
        self._store.write(
            f"{self.key} part {number}",
            lambda: self._upload.put_part(number, data),
            lambda: if_possible(lambda: self._upload.put_part(number, [copy])),
        )

    def complete(self) -> StoredObject:
        return self._store.write(
            f"complete {self.key}", self._upload.complete, lambda: if_possible(self._upload.complete)
        )

    def abort(self) -> None:
        self._store.write(f"abort {self.key}", self._upload.abort, self._upload.abort)


def if_possible(action: Callable[[], object]) -> None:
    """What lands late may find its upload ended, or its condition broken: the store answers nobody."""
    try:
        action()
    except StoreError:
        pass
