"""Events that this instance has produced and not yet consumed: the futures that its callers wait for.

An event is done when the log has acknowledged it, with its offset, and the consumer task has come past that offset,
with its outcome; the two come in any order.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
    TopicIdPartition,
)
from tierlog.remote.metadata.topic_backed.assignment import again
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Future, PendingFuture

Event = RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate | RemotePartitionDeleteMetadata
#: The subject of an event: a segment, or a partition's removal.
Subject = RemoteLogSegmentId | TopicIdPartition

MAY_BE_STORED: Final = "the event may have been stored"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An event that the state machine refused."""

    offset: int
    subject: Subject
    error: RemoteStorageException


@dataclass(slots=True, eq=False)
class OwnEvent:
    """One event of this instance's.

    Attributes:
        offset: Where it is stored; None until that is known.
        deadline: Of the machine's monotonic clock, seconds.
        least_offset: Up to which its metadata partition was consumed as it began: the log gives it no smaller one.
    """

    subject: Subject
    partition: TopicIdPartition
    metadata_partition: int
    deadline: float
    future: PendingFuture[None]
    least_offset: int = -1
    offset: int | None = None


class _Progress:
    """The consumed offset of one metadata partition, as far as own events need it, and the pending events."""

    def __init__(self) -> None:
        self.next_offset = -1
        self.events: dict[OwnEvent, None] = {}
        self.refusals: dict[int, Refusal] = {}
        self.unknown: list[tuple[int, int]] = []

    def outcome(self, offset: int) -> RemoteStorageException | None:
        """Return the error of the event at an offset, which was consumed; None if it was applied."""
        refusal = self.refusals.get(offset)
        if refusal is not None:
            return again(refusal.error)
        if any(start <= offset < end for start, end in self.unknown):
            return RetriableRemoteStorageException(
                f"the event is stored at offset {offset}, among more refused ones than are told apart: whether it was "
                "applied is to be asked"
            )
        return None


class OwnEvents:
    """All of them. Futures are completed with no lock held. Thread safety: any number of threads; one consumes.

    Args:
        machine: Has the clock and the threads.
        wait_seconds: How long after its beginning an event must have been consumed.
    """

    def __init__(self, machine: Machine, wait_seconds: float) -> None:
        self._clock = machine.clock
        self._scheduler = machine.scheduler
        self._wait_seconds = wait_seconds
        self._lock = machine.scheduler.lock()
        self._ended: str | None = None
        self._subjects: collections.Counter[Subject] = collections.Counter()
        self._progress: collections.defaultdict[int, _Progress] = collections.defaultdict(_Progress)

    def __len__(self) -> int:
        return sum(self._subjects.values())

    def begin(self, event: Event, metadata_partition: int) -> OwnEvent:
        """Begin to wait for an event that is about to be produced.

        Raises:
            RemoteStorageException: ``end`` was called: the event would never be consumed.
        """
        subject: Subject
        if isinstance(event, RemotePartitionDeleteMetadata):
            subject = partition = event.topic_id_partition
        else:
            subject = event.remote_log_segment_id
            partition = subject.topic_id_partition
        made = OwnEvent(
            subject=subject,
            partition=partition,
            metadata_partition=metadata_partition,
            deadline=self._clock.monotonic_seconds() + self._wait_seconds,
            future=self._scheduler.future(),
        )
        with self._lock:
            if self._ended is not None:
                raise RemoteStorageException(self._ended)
            progress = self._progress[metadata_partition]
            made.least_offset = progress.next_offset
            progress.events[made] = None
            self._subjects[subject] += 1
        return made

    def concerns(self, subject: Subject) -> bool:
        """Whether events of a segment, or of a partition's removal, are under way."""
        return self._subjects.get(subject, 0) > 0

    def produced(self, event: OwnEvent, answer: Future[int]) -> None:
        """Take the log's answer for an event, which is there."""
        error = answer.exception()
        if error is not None:
            self.fail(event, _as_storage_error(error))
            return
        with self._lock:
            progress = self._progress[event.metadata_partition]
            if event not in progress.events:
                return
            event.offset = answer.result()
            outcome: RemoteStorageException | None
            if event.offset < event.least_offset:
                outcome = RetriableRemoteStorageException(
                    f"{event.subject}: stored at offset {event.offset}, below {event.least_offset}, up to which the "
                    f"metadata topic was consumed before: it has lost its end; {MAY_BE_STORED}"
                )
            elif event.offset < progress.next_offset:
                outcome = progress.outcome(event.offset)
            else:
                return
            self._drop(event)
        _complete(event, outcome)

    def consumed(
        self,
        metadata_partition: int,
        start_offset: int,
        next_offset: int,
        *,
        refusals: Sequence[Refusal],
        untold: bool,
    ) -> None:
        """Complete the events below an offset of a metadata partition.

        Args:
            metadata_partition: Which one.
            start_offset: Where the consumer was.
            next_offset: Where it is now.
            refusals: The refused events among them.
            untold: There were more refusals than these.
        """
        with self._lock:
            progress = self._progress[metadata_partition]
            progress.next_offset = max(progress.next_offset, next_offset)
            if progress.events:
                kept = (refusal for refusal in refusals if self.concerns(refusal.subject))
                progress.refusals |= {refusal.offset: refusal for refusal in kept}
                if untold:
                    progress.unknown.append((start_offset, next_offset))
            done = [
                (event, progress.outcome(event.offset))
                for event in progress.events
                if event.offset is not None and event.offset < progress.next_offset
            ]
            for event, _ in done:
                self._drop(event)
        for event, outcome in done:
            _complete(event, outcome)

    def fail(self, event: OwnEvent, error: RemoteStorageException) -> None:
        """End one event with an error, if it is still open."""
        self._fail_those([event], lambda _: error)

    def fail_all(self, text: str, *, which: Callable[[OwnEvent], bool] = lambda _: True) -> None:
        """End events with an error that says why, and that they may have been stored."""
        self._fail_those(
            self._chosen(which), lambda event: RemoteStorageException(f"{event.subject}: {text}; {MAY_BE_STORED}")
        )

    def refuse_all(self, text: str, *, which: Callable[[OwnEvent], bool]) -> None:
        """End events that count for nothing, stored or not, with RemoteResourceNotFoundException."""
        self._fail_those(self._chosen(which), lambda event: RemoteResourceNotFoundException(f"{event.subject}: {text}"))

    def _chosen(self, which: Callable[[OwnEvent], bool]) -> list[OwnEvent]:
        with self._lock:
            return [event for event in self._events() if which(event)]

    def end(self, text: str) -> None:
        """End all events with an error, and let none begin; the first text stays."""
        with self._lock:
            self._ended = self._ended or text
        self.fail_all(text)

    def forget_progress(self, metadata_partitions: Iterable[int], text: str) -> None:
        """Forget how far metadata partitions were consumed: they may be others from now on. Their events end with an
        error that says why.
        """
        lost = set(metadata_partitions)
        with self._lock:
            for number in lost:
                self._progress[number].next_offset = -1
        self.fail_all(text, which=lambda event: event.metadata_partition in lost)

    def expire(self) -> float | None:
        """End the events whose time is up; returns the seconds until the next one's is, None without one."""
        now = self._clock.monotonic_seconds()
        with self._lock:
            # All wait equally long, so that the oldest of each metadata partition come first.
            overdue = [
                event
                for progress in self._progress.values()
                for event in itertools.takewhile(lambda event: event.deadline <= now, progress.events)
            ]
        self._fail_those(
            overdue,
            lambda event: RetriableRemoteStorageException(
                f"{event.subject}: this broker has not consumed its own event within {self._wait_seconds:g} s; "
                + MAY_BE_STORED
            ),
        )
        with self._lock:
            oldest = (next(iter(progress.events)) for progress in self._progress.values() if progress.events)
            return min((event.deadline - now for event in oldest), default=None)

    def _events(self) -> Iterator[OwnEvent]:
        for progress in self._progress.values():
            yield from progress.events

    def _fail_those(self, events: Iterable[OwnEvent], error: Callable[[OwnEvent], RemoteStorageException]) -> None:
        for event in events:
            with self._lock:
                if event not in self._progress[event.metadata_partition].events:
                    continue
                self._drop(event)
            _complete(event, error(event))

    def _drop(self, event: OwnEvent) -> None:
        """Remove an event from the list; its subject's state goes with the last one. The caller holds the lock."""
        progress = self._progress[event.metadata_partition]
        del progress.events[event]
        self._subjects[event.subject] -= 1
        if not self._subjects[event.subject]:
            del self._subjects[event.subject]
        if not progress.events:
            progress.refusals, progress.unknown = {}, []


def _complete(event: OwnEvent, error: RemoteStorageException | None) -> None:
    if error is None:
        event.future.set_result(None)
    else:
        event.future.set_exception(error)


def _as_storage_error(error: BaseException) -> RemoteStorageException:
    """Make the KIP's error of the log's."""
    if isinstance(error, RemoteStorageException):
        return again(error)
    kind = RetriableRemoteStorageException if getattr(error, "retriable", False) else RemoteStorageException
    made = kind(f"{type(error).__name__}: {error}")
    made.__cause__ = error
    return made
