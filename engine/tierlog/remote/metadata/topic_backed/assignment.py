"""The partitions that a manager follows, and the progress of loading and of removing each.

Callers change the assignment; the consumer task works its changes off. A removal goes from MARKED to STARTED to
FINISHED, as the metadata topic has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tierlog.remote.api import (
    RemotePartitionDeleteState,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RemoteStorageNotReadyException,
    RetriableRemoteStorageException,
    TopicIdPartition,
)
from tierlog.remote.metadata.snapshots.snapshot_file import PendingRemoval
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Future, PendingFuture

#: How long a question waits for a partition that is still loaded; Kafka's.
READY_WAIT_SECONDS: Final = 0.1


@dataclass(slots=True, eq=False)
class Assigned:
    """A partition since it was assigned last; another object after it was stopped, or its metadata partition was lost.

    Attributes:
        end_offset: End of the metadata partition at the assignment; None until it was asked for.
        ready: All events below it are in the table.
        failed: Why it never will be.
    """

    partition: TopicIdPartition
    metadata_partition: int
    end_offset: int | None = None
    ready: bool = False
    failed: RemoteStorageException | None = None


class CatchUp:
    """A wait until all events are applied that were stored before it began.

    Attributes:
        kept: The partition, as it was assigned then.
        future: Done when they are, or never will be.
        until_seconds: Monotonic: when the wait ends with an error.
        end_offset: Of its metadata partition, asked since the wait began, exclusive; None: not asked yet.
        is_over: Whether they are.
    """

    __slots__ = ("end_offset", "future", "is_over", "kept", "until_seconds")

    def __init__(self, kept: Assigned, future: PendingFuture[None], until_seconds: float) -> None:
        self.kept = kept
        self.future = future
        self.until_seconds = until_seconds
        self.end_offset: int | None = None
        self.is_over = False

    @property
    def number(self) -> int:
        """The metadata partition."""
        return self.kept.metadata_partition


class Assignment:
    """The partitions that a manager follows. ``changed`` guards all that is written here, and is notified of it.

    Args:
        machine: Has the clock and the threads.
        metadata_partition: Gives the metadata partition of a partition.

    Attributes:
        closing: ``close`` was called.
        version: Counts the changes that the consumer task has to work off.
        watched: Metadata partitions of which all removals are followed.

    Thread safety: any number of threads. ``find`` and ``ready`` take no lock.
    """

    def __init__(self, machine: Machine, metadata_partition: Callable[[TopicIdPartition], int]) -> None:
        self.changed = machine.scheduler.condition()
        self.closing = False
        self.version = 0
        self._clock = machine.clock
        self.metadata_partition = metadata_partition
        self._assigned: dict[TopicIdPartition, Assigned] = {}
        self._failure: RemoteStorageException | None = None
        self._scheduler = machine.scheduler
        self._waiting: dict[TopicIdPartition, PendingFuture[None]] = {}
        self.watched: frozenset[int] = frozenset()
        self._watched_ready: frozenset[int] = frozenset()
        #: Waits for the topic's end as it is now.
        self._catch_ups: list[CatchUp] = []

    # ---- calls of the manager's callers

    def watch(self, numbers: frozenset[int]) -> None:
        """Follow the removals in these metadata partitions, and in no others."""
        if numbers == self.watched:
            return
        with self.changed:
            self.watched = numbers
            self._watched_ready &= numbers  # what is followed again later is read again first
            self._tell()

    def add(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Follow these too; those that are followed already stay as they are."""
        with self.changed:
            for partition in partitions:
                if partition not in self._assigned:
                    self._assigned[partition] = Assigned(partition, self.metadata_partition(partition))
            self._tell()

    def remove(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Follow these no longer. From now on no answer is given for them."""
        with self.changed:
            for partition in partitions:
                self._assigned.pop(partition, None)
            self._tell()
        self._settle()

    def close(self) -> None:
        """Give no answers any more, and end the consumer task."""
        with self.changed:
            self.closing = True
            self._assigned = {}
            self._tell()
        self._settle()

    def _tell(self) -> None:
        self.version += 1
        self.changed.notify_all()

    # ---- calls of the consumer task

    def fail(self, error: RemoteStorageException) -> None:
        """Give no answers any more but this error."""
        with self.changed:
            self._failure = self._failure or error
            for kept in self._assigned.values():
                kept.ready = False
            self.changed.notify_all()
        self._settle()

    def fail_metadata_partition(self, number: int, error: RemoteStorageException) -> None:
        """Give no answers but this error for the partitions whose events are in one metadata partition."""
        with self.changed:
            for kept in self._assigned.values():
                if kept.metadata_partition == number:
                    kept.ready, kept.failed = False, error
            self.changed.notify_all()
        self._settle()

    def fail_partition(self, kept: Assigned, error: RemoteStorageException) -> None:
        """Give no answers but this error for one partition."""
        with self.changed:
            kept.ready, kept.failed = False, error
            self.changed.notify_all()
        self._settle()

    def show_watched(self, ready: frozenset[int]) -> None:
        """Set the watched metadata partitions of which all removals are known."""
        if ready != self._watched_ready:
            with self.changed:
                self._watched_ready = ready & self.watched

    def suspend(self) -> None:
        """Give no answers until ``make_ready``: the topic may be another than the consumed one."""
        with self.changed:
            self._watched_ready = frozenset()
            for kept in self._assigned.values():
                kept.ready = False

    def begin_anew(self, numbers: Iterable[int]) -> None:
        """Give no answers for the partitions of these metadata partitions until they are loaded again."""
        lost = set(numbers)
        with self.changed:
            for partition, kept in list(self._assigned.items()):
                if kept.metadata_partition in lost:
                    kept.ready = False
                    self._assigned[partition] = Assigned(partition, kept.metadata_partition)
            self._tell()

    def make_ready(self, loaded: Iterable[Assigned]) -> None:
        """Give answers for these, as far as they are still assigned."""
        with self.changed:
            for kept in loaded:
                if self._assigned.get(kept.partition) is kept and self._failure is None:
                    kept.ready = True
            self.changed.notify_all()
        self._settle()

    @property
    def catch_ups(self) -> list[CatchUp]:
        """The waits for the topic's end that have not ended."""
        if not self._catch_ups:
            return []
        with self.changed:
            return list(self._catch_ups)

    def caught_up(self, positions: Mapping[int, int]) -> None:
        """End the waits whose end offset has been reached, by the consumer's positions."""
        waits = self.catch_ups
        for wait in waits:
            wait.is_over = wait.end_offset is not None and wait.end_offset <= positions.get(wait.number, -1)
        if waits:
            self._settle()

    def _settle(self) -> None:
        """Complete the futures of partitions that are ready, or never will be, and of waits for the topic's end that
        are over; without the lock.
        """
        if not self._waiting and not self._catch_ups:
            return
        settled: list[tuple[PendingFuture[None], RemoteStorageException | None]] = []
        with self.changed:
            for wait in list(self._catch_ups):
                error = self._failure_of(wait)
                if wait.is_over or error is not None:
                    self._catch_ups.remove(wait)
                    settled.append((wait.future, error))
            for partition in list(self._waiting):
                error = None
                try:
                    if not self.require(partition).ready:
                        continue
                except RemoteStorageException as caught:
                    error = caught
                settled.append((self._waiting.pop(partition), error))
        for future, error in settled:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    def _failure_of(self, wait: CatchUp) -> RemoteStorageException | None:
        """Why a wait is given up; None: it goes on."""
        partition = wait.kept.partition
        try:
            still = self.require(partition) is wait.kept
        except RemoteStorageException as error:
            return error
        if not still:
            return RemoteStorageNotReadyException(f"the metadata of {partition} is loaded anew")
        if not wait.is_over and self._clock.monotonic_seconds() >= wait.until_seconds:
            return RetriableRemoteStorageException(
                f"the metadata of {partition} has not caught up with its topic in time"
            )
        return None

    def now(self) -> tuple[int, dict[TopicIdPartition, Assigned]]:
        """Return all that are assigned now, and the version of that."""
        with self.changed:
            return self.version, dict(self._assigned)

    def await_change(self, version: int, seconds: float) -> None:
        """Wait until there is something newer than a version, for so long."""
        with self.changed:
            if self.version == version:
                self.changed.wait(seconds)

    # ---- what callers ask

    def require_watched(self, numbers: frozenset[int]) -> None:
        """Raise RemoteStorageNotReadyException if the removals in these metadata partitions are still loaded."""
        missing = sorted(numbers - self._watched_ready)
        if missing:
            raise RemoteStorageNotReadyException(f"the removals in metadata partitions {missing} are still loaded")

    @property
    def ready_count(self) -> int:
        """The number of partitions that can be queried."""
        return sum(kept.ready for kept in list(self._assigned.values()))

    def find(self, partition: TopicIdPartition) -> Assigned | None:
        """Find the partition as it is assigned now, if it is ready."""
        kept = self._assigned.get(partition)
        return kept if kept is not None and kept.ready else None

    def still(self, kept: Assigned) -> bool:
        """Whether an answer that was found since ``find`` counts: nothing was removed from the table meanwhile."""
        return kept.ready and self._assigned.get(kept.partition) is kept

    def when_ready(self, partition: TopicIdPartition) -> Future[None]:
        """Return a future that completes when the partition is ready, or raises why it never will be. Raises as
        ``require``.
        """
        with self.changed:
            future = self._waiting.get(partition)
            if future is None:
                future = self._scheduler.future()
                if not self.require(partition).ready:
                    self._waiting[partition] = future
                    return future
                future.set_result(None)
            return future

    def when_caught_up(self, partition: TopicIdPartition, within_seconds: float) -> Future[None]:
        """Return a future that completes when all events are applied that were stored before this call, or raises why
        they are not within a time. Raises as ``require``.
        """
        until = self._clock.monotonic_seconds() + within_seconds
        with self.changed:
            wait = CatchUp(self.require(partition), self._scheduler.future(), until)
            self._catch_ups.append(wait)
            self._tell()
        return wait.future

    def await_ready(self, partition: TopicIdPartition) -> Assigned:
        """Return the partition once it is ready, after a tenth of a second at most.

        Raises:
            RemoteResourceNotFoundException: it is not assigned. RemoteStorageNotReadyException: it is still loaded.
                RemoteStorageException: closed, or failed for good.
        """
        until = self._clock.monotonic_seconds() + READY_WAIT_SECONDS
        with self.changed:
            while True:
                kept = self.require(partition)
                if kept.ready:
                    return kept
                left = until - self._clock.monotonic_seconds()
                if left <= 0:
                    raise RemoteStorageNotReadyException(f"the metadata of {partition} is still loaded")
                self.changed.wait(left)

    def require(self, partition: TopicIdPartition) -> Assigned:
        """Return the partition as it is assigned, ready or not. Raises as ``await_ready``, but never that it is not
        ready.
        """
        self.check_open()
        kept = self._assigned.get(partition)
        if kept is None:
            raise RemoteResourceNotFoundException(
                f"{partition} ({partition.topic_id}) is not assigned: this broker neither leads nor follows it"
            )
        if kept.failed is not None:
            raise again(kept.failed)
        return kept

    def check_open(self) -> None:
        """Raise RemoteStorageException if it is closed, or failed for good."""
        if self.closing:
            raise RemoteStorageException("the metadata manager is closed")
        if self._failure is not None:
            raise again(self._failure)


def again(error: RemoteStorageException) -> RemoteStorageException:
    """Copy an error for another caller: a raised one carries its own trace."""
    made = type(error)(*error.args)
    made.__cause__ = error.__cause__
    return made


MARKED: Final = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
STARTED: Final = RemotePartitionDeleteState.DELETE_PARTITION_STARTED
FINISHED: Final = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED
_NEXT: Final = {None: (MARKED,), MARKED: (MARKED, STARTED), STARTED: (STARTED, FINISHED), FINISHED: (FINISHED,)}


def is_valid_transition(source: RemotePartitionDeleteState | None, target: RemotePartitionDeleteState) -> bool:
    """Whether a removal in one state (None: there is none) may go to another; to the same one it may."""
    return target in _NEXT[source]


class Removals:
    """The newest state of each partition's removal.

    Args:
        machine: Has the threads.
        any_order: Take states in any order, as Kafka does.

    Thread safety: any number of threads; one applies.
    """

    def __init__(self, machine: Machine, *, any_order: bool) -> None:
        self._any_order = any_order
        self._lock = machine.scheduler.lock()
        self._newest: dict[TopicIdPartition, PendingRemoval] = {}

    def find(self, partition: TopicIdPartition) -> PendingRemoval | None:
        """Return the newest state of a partition's removal, FINISHED too; None if there is none."""
        return self._newest.get(partition)

    def allows(self, partition: TopicIdPartition, state: RemotePartitionDeleteState) -> bool:
        """Whether the partition's removal may go to a state."""
        if self._any_order:
            return True
        found = self.find(partition)
        return is_valid_transition(None if found is None else found.metadata.state, state)

    def put(self, removal: PendingRemoval) -> bool:
        """Take an event; False if it is refused."""
        partition = removal.metadata.topic_id_partition
        with self._lock:
            if not self.allows(partition, removal.metadata.state):
                return False
            self._newest[partition] = removal
            return True

    def restore(self, removals: Iterable[PendingRemoval]) -> None:
        """Take the newest states as a snapshot has them."""
        with self._lock:
            self._newest |= {removal.metadata.topic_id_partition: removal for removal in removals}

    def forget(self, partition: TopicIdPartition) -> None:
        """Forget a partition's removal."""
        with self._lock:
            self._newest.pop(partition, None)

    def forget_all(self, metadata_partition: int) -> None:
        """Forget the removals whose events were in one metadata partition, which is read anew."""
        with self._lock:
            self._newest = {
                partition: each
                for partition, each in self._newest.items()
                if each.metadata_partition != metadata_partition
            }

    def all(self) -> tuple[PendingRemoval, ...]:
        """Return all removals, FINISHED ones too, by partition."""
        with self._lock:
            return tuple(self._newest[partition] for partition in sorted(self._newest))
