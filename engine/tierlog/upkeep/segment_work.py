"""What a job does to single segments, apart from who does it: threads of this process, or executors elsewhere.

A job lists a tier, judges what concerns several segments together and sums up, all in the process that called it.
Between these lies a SegmentWork, which needs an open tier and one segment, and an Executor, which has it done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from tierlog.errors import CorruptDataError
from tierlog.opening import TierLocation
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.tier import LOCAL_WINDOW_BYTES, REMOTE_WINDOW_BYTES, Tier
from tierlog.runtime.machine.scheduling import Scheduler
from tierlog.runtime.waiting.threads import Arrivals

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class JobEstimate:
    """What a job is going to do, as far as its listing shows.

    Attributes:
        segments: Segments that are looked at.
        requests: About so many requests for them, reads and writes, beside the listing; of a local disk reads and
            writes of files. Retries are not foreseen.
        size_bytes: Bytes that are read, as they are stored: of logs, or of manifests where no log is read.
    """

    segments: int
    requests: int
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.segments} segments, about {self.requests} requests, {self.size_bytes} bytes"


@dataclass(frozen=True, slots=True)
class LedgerKey:
    """The name of a segment in one state of its bytes: a ledger knows it by this.

    Attributes:
        name: Unique in the tier; it holds the segment's id where the layout has ids.
        size_bytes: Of its log.
        modified_ms: Time of change of its log, ms since 1970 UTC.
    """

    name: str
    size_bytes: int
    modified_ms: int

    @classmethod
    def of(cls, segment: StoredSegment) -> LedgerKey:
        return cls(segment.name, segment.size_bytes, segment.last_modified_ms)


class KeptOutcome:
    """An outcome as a ledger kept it: fields of JSON, each of which is looked at before it is believed."""

    def __init__(self, fields: object, where: str) -> None:
        self._where = where
        if not isinstance(fields, dict):
            raise self._malformed("an object expected")
        self._fields: Mapping[str, object] = fields

    def _malformed(self, text: str) -> CorruptDataError:
        return CorruptDataError(f"a ledger's entry: {text}", fault="LEDGER", where=self._where)

    def text(self, name: str) -> str:
        """Return a text. Raises CorruptDataError: it is none."""
        value = self._fields.get(name)
        if not isinstance(value, str):
            raise self._malformed(f"{name} is no text")
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a text or None. Raises CorruptDataError: it is neither."""
        return None if self._fields.get(name) is None else self.text(name)

    def number(self, name: str) -> int:
        """Return a number within 64 bits. Raises CorruptDataError: it is none."""
        value = self._fields.get(name)
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise self._malformed(f"{name} is no number")
        return value

    def optional_number(self, name: str, otherwise: int) -> int:
        """Return a number, or another where the entry has None. Raises CorruptDataError: it has neither."""
        return otherwise if self._fields.get(name) is None else self.number(name)

    def number_or_none(self, name: str) -> int | None:
        """Return a number or None. Raises CorruptDataError: it is neither."""
        return None if self._fields.get(name) is None else self.number(name)

    def flag(self, name: str) -> bool:
        """Return a truth value. Raises CorruptDataError: it is none."""
        value = self._fields.get(name)
        if not isinstance(value, bool):
            raise self._malformed(f"{name} is neither true nor false")
        return value

    def number_or_text(self, name: str) -> int | str | None:
        """Return a number, a text or None. Raises CorruptDataError: it is none of them."""
        value = self._fields.get(name)
        return self.optional_text(name) if value is None or isinstance(value, str) else self.number(name)

    def several(self, name: str) -> list[object]:
        """Return a list. Raises CorruptDataError: it is none."""
        value = self._fields.get(name)
        if not isinstance(value, list):
            raise self._malformed(f"{name} is no list")
        return value

    def part(self, fields: object) -> KeptOutcome:
        """Return an object inside of this one. Raises CorruptDataError: it is none."""
        return KeptOutcome(fields, self._where)

    def part_or_none(self, name: str) -> KeptOutcome | None:
        """Return the object of a name, or None. Raises CorruptDataError: it is neither."""
        value = self._fields.get(name)
        return None if value is None else self.part(value)

    def refuse(self, text: str) -> CorruptDataError:
        """Make the error of a value that the job itself finds wrong."""
        return self._malformed(text)


class SegmentWork(ABC, Generic[Item, Outcome]):
    """What a job does to one segment, in a process that has the tier open.

    Args:
        order: Opens the same work in another process; None where only this one can do it.

    Thread safety: ``do`` and ``passed`` by any number of threads.
    """

    #: Segments that a task has under way at once where it is one of many on its machine: more than one for work that
    #: waits for requests most of its time.
    side_by_side = 1

    def __init__(self, order: WorkOrder[Item, Outcome] | None = None) -> None:
        self.order = order

    @abstractmethod
    def do(self, item: Item) -> Outcome:
        """Do the work of one segment.

        Raises:
            StoreError and its kinds, ConfigError: what every segment would meet. What concerns this segment alone is
            part of the outcome.
        """

    @abstractmethod
    def key(self, item: Item) -> LedgerKey:
        """Return the name by which a ledger knows the segment."""

    def cost_bytes(self, item: Item) -> int:
        """Return how many bytes are read for it, about, so that tasks have even sizes."""
        return self.key(item).size_bytes

    @abstractmethod
    def kept(self, outcome: Outcome) -> Mapping[str, object] | None:
        """Return what a ledger keeps of an outcome, as a JSON object; None if the segment is to be done again."""

    @abstractmethod
    def recalled(self, item: Item, kept: KeptOutcome) -> Outcome:
        """Return the outcome that was kept. Raises CorruptDataError: no job kept it."""

    def passed(self, item: Item) -> None:
        """Count an item in that was done in another process, or by an earlier run."""

    def stop(self) -> None:
        """Let calls of ``do`` that run end early, since nobody wants their outcomes any more; idempotent."""


class WorkOrder(ABC, Generic[Item, Outcome]):
    """Opens the work in another process. Picklable and small; it may hold secrets that the caller gave, and shows
    none.
    """

    @abstractmethod
    def opened(self) -> AbstractContextManager[SegmentWork[Item, Outcome]]:
        """Open the tier, and close it at the end of the block. Raises: as ``open_tier``."""


@dataclass(frozen=True, slots=True)
class TierOrder(WorkOrder[Item, Outcome]):
    """Opens a tier, and the work over it.

    Attributes:
        location: Of the tier.
        make: Makes the work, out of the open tier; picklable.
    """

    location: TierLocation
    make: Callable[[Tier], SegmentWork[Item, Outcome]] = field(repr=False)

    @contextmanager
    def opened(self) -> Generator[SegmentWork[Item, Outcome]]:
        """Open the tier, and close it at the end of the block."""
        with self.location.opened() as tier:
            yield self.make(tier)


class Executor(Protocol):
    """Has the work of segments done. Thread safety: one thread; each iterator belongs to it."""

    def run(self, work: SegmentWork[Item, Outcome], items: Iterable[Item]) -> Generator[tuple[Item, Outcome]]:
        """Yield each item with its outcome, as soon as it is done, in any order. Closing the iterator stops the work.

        Args:
            work: Of this process; what runs elsewhere takes its order.
            items: Taken as they are needed.

        Raises:
            The errors of ``SegmentWork.do``, those of ``items``, and of what the work runs on.
        """
        ...


class ThreadExecutor:
    """Threads of this process.

    Args:
        scheduler: Makes them.
        workers: Segments under way at once.
        name: Of the threads.
    """

    def __init__(self, scheduler: Scheduler, workers: int, *, name: str) -> None:
        self._scheduler = scheduler
        self._workers = workers
        self._name = name

    def run(self, work: SegmentWork[Item, Outcome], items: Iterable[Item]) -> Generator[tuple[Item, Outcome]]:
        """Yield each item with its outcome, as Executor says."""
        running: Arrivals[tuple[Item, Outcome]] = Arrivals(self._scheduler)
        with self._scheduler.pool(self._workers, name=self._name) as pool:
            try:
                for item in items:
                    running.add(pool.submit(partial(_done, work, item)))
                    if len(running) > self._workers:
                        yield running.take().result()
                while running:
                    yield running.take().result()
            finally:
                work.stop()


def _done(work: SegmentWork[Item, Outcome], item: Item) -> tuple[Item, Outcome]:
    return item, work.do(item)


def log_requests(tier: Tier, segment: StoredSegment) -> int:
    """Return the number of requests that reading all of a segment's log takes."""
    window = LOCAL_WINDOW_BYTES if tier.store.is_local else REMOTE_WINDOW_BYTES
    if segment.transformed and segment.chunk_index is not None:
        chunk = segment.chunk_index.original_chunk_size
        window = max(1, window // chunk) * chunk
    return -(-segment.size_bytes // window)


def part_requests(segment: StoredSegment) -> int:
    """Return the number of requests that reading all of a segment's parts beside the log takes."""
    return sum(part.size_bytes > 0 for _, part in segment.parts)
