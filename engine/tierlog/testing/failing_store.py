"""A store around a store that breaks on purpose, by a seed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar, cast

from typing_extensions import Buffer

from tierlog.errors import StoreError, StoreUnavailableError
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.stores.protocol.object_store import ObjectStore, StoredObject, Upload, views_of
from tierlog.runtime.stores.wrappers.passing_store import Call, PassingStore, PassingUpload

#: Of any call: an error before anything happened.
_BEFORE: Final = ("error", "reset", "stall")
#: Of a call that reads.
_READ: Final = ("short", "wrong")
#: Of a call that writes.
_WRITE: Final = ("lost", "late")
_WRITING: Final = ("PUT", "POST", "DELETE")
#: What FailingStore can do to a call.
FAULTS: Final = (*_BEFORE, *_READ, *_WRITE)
Result = TypeVar("Result")


class FailingStore(PassingStore):
    """A store that breaks a share of the calls, by a seed: the same seed and order of calls break the same ones.

    Args:
        store: What answers the rest.
        rates: Fault → probability.
            "error": a 503 after all retries. "reset": the connection breaks. "stall": the time limit passes, then an
            error. Of reads, "short": a body that ends early, undetected by the client; "wrong": one bit of it is
            another. Of writes and deletions, "lost": it is done and the answer gets lost, so the caller sees an error;
            "late": the caller sees an error, and it is done ``late_seconds`` later, whatever happened meanwhile.
        rng: Chance.
        clock: The clock of stalls, and of late effects.
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
        super().__init__(store)
        self._rates = dict(rates)
        self._rng = rng
        self._clock = clock
        self._stall_seconds = stall_seconds
        self._late_seconds = late_seconds
        self._lock = threading.Lock()
        self._late: list[tuple[float, Callable[[], object]]] = []
        self.injected: dict[str, int] = dict.fromkeys(FAULTS, 0)

    @property
    def starts_reads(self) -> bool:
        """False: a stall waits, which the thread that answers begun reads must not."""
        return False

    @property
    def reads_directly(self) -> bool:
        """False: a damaged answer needs memory of its own."""
        return False

    def land_late(self, *, all_of_it: bool = True) -> int:
        """Do the calls that are late, or only those that are due; returns how many they were."""
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

    def pass_on(self, call: Call, run: Callable[[], Result]) -> Result:
        """Pass a call on, or fail it. Listings fail at their start."""
        what = f"{call.verb} {call.key}"
        fault = self._strike(what, _READ if call.verb == "GET" else _WRITE if call.verb in _WRITING else ())
        if fault == "late":
            with self._lock:
                due = self._clock.monotonic_seconds() + self._late_seconds
                self._late.append((due, lambda: _if_possible(run)))
            raise StoreUnavailableError(f"{what}: injected: no answer; it lands later")
        done = run()
        if fault == "lost":
            raise StoreUnavailableError(f"{what}: injected: done, and the answer got lost")
        return done if fault is None else cast(Result, self._damaged(cast(Buffer, done), fault))

    def _damaged(self, found: Buffer, fault: str) -> Buffer:
        view = memoryview(found).cast("B")
        if not len(view):
            return found
        with self._lock:
            position, bit = self._rng.randrange(len(view)), self._rng.randrange(8)
        if fault == "short":
            return view[:position]
        wrong = bytearray(view)
        wrong[position] ^= 1 << bit
        return wrong

    def kept(self, data: Sequence[Buffer] | Buffer) -> Sequence[Buffer] | Buffer:
        """Return the data, copied where a call can be late: the caller's buffers are others by then."""
        return b"".join(views_of(data)) if self._rates.get("late") else data

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        return super().put(key, self.kept(data), expected_etag=expected_etag)

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        """Begin an upload; "lost" and "late" leave an upload that no caller knows."""
        fault = self._strike(f"POST {key}", _WRITE)
        upload = self._store.begin_upload(key, part_bytes=part_bytes)
        if fault is not None:
            raise StoreUnavailableError(f"{key}: injected: the upload was begun, and the answer got lost")
        return _FailingUpload(upload, self)

    def delete(self, keys: Sequence[str]) -> None:
        super().delete(list(keys))

    def describe(self) -> str:
        """Return the store inside, and that it fails."""
        return f"{self._store.describe()} (failing)"


class _FailingUpload(PassingUpload):
    """An upload whose late effects may come after its end: then they do nothing, as with a real store."""

    def __init__(self, upload: Upload, store: FailingStore) -> None:
        super().__init__(upload, store)
        self._failing = store

    def put_part(self, number: int, data: Sequence[Buffer]) -> None:
        kept = self._failing.kept(data)
        super().put_part(number, kept if isinstance(kept, list | tuple) else [cast(Buffer, kept)])


def _if_possible(action: Callable[[], object]) -> None:
    """Run a late effect; an error of the store (its upload has ended, its condition is broken) is dropped."""
    try:
        action()
    except StoreError:
        pass
