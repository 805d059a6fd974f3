"""Partitions that are deleted: all of their segments go from the tier, then the record of their removal is closed.

The controller's broker marks a partition (DELETE_PARTITION_MARKED). The broker that leads the partition of the metadata
topic with that event removes it, though it neither leads nor follows the partition itself: it has the metadata manager
follow it for so long. Each step is in the metadata before the next one begins, so that whoever leads next goes on.

Kafka has no remover: a leader deletes the segments of a partition while it stops it (``SegmentDeletions.delete_all``),
and what is left when it dies then stays for ever.

Source: KIP-405, "Remote Partition Remover"; Kafka RemoteLogManager#deleteRemoteLogPartition.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from tierlog.remote.api import (
    InvalidTransitionError,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    TopicIdPartition,
)
from tierlog.remote.manager.segment_deletions import CHANGES_MAX, SegmentDeletions
from tierlog.remote.manager.task_faults import TaskFaults, is_passing
from tierlog.remote.manager.tier_services import TierServices
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.machine.scheduling import Future, PendingFuture

_log = logging.getLogger(__name__)
_MARKED: Final = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
_STARTED: Final = RemotePartitionDeleteState.DELETE_PARTITION_STARTED
_FINISHED: Final = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED
_SEGMENT_STARTED: Final = RemoteLogSegmentState.DELETE_SEGMENT_STARTED

#: What one run does at most, so that other tasks get their turn.
_DELETIONS: Final = 16
_RUN_SECONDS: Final = 1.0
#: Partitions that are removed side by side. A metadata manager may read all of its topic for some that it is to follow.
_ACTIVE_MAX: Final = 256
#: How often a partition may be unknown to the metadata manager, one time behind the other, before it is marked.
_STOPS_MAX: Final = 5


def _nowhere(_partition: TopicIdPartition) -> bool:
    return False


def _nothing() -> None:
    """No task has to wake."""


class _Removal:
    """The removal of one partition, as far as this broker has come with it.

    Attributes:
        partition: Which.
        state: The newest one that is stored; None: it is yet to be marked.
        marked: Of the callers that wait until it is marked.
        is_followed: Whether the metadata manager has been told to follow the partition.
        is_borrowed: Whether it follows the partition for the removal alone.
        segments: Those that are yet to be looked at in this pass; None: a pass begins.
        is_beginning: Whether the pass changes the states of segments; else it deletes them.
        faults: Of the runs.
        due_seconds: When the next step is due, monotonic.
    """

    __slots__ = (
        "due_seconds",
        "faults",
        "is_beginning",
        "is_borrowed",
        "is_followed",
        "marked",
        "partition",
        "segments",
        "state",
    )

    def __init__(
        self,
        partition: TopicIdPartition,
        state: RemotePartitionDeleteState | None,
        marked: tuple[PendingFuture[None], ...] = (),
    ) -> None:
        self.partition = partition
        self.state = state
        self.marked = marked
        self.is_followed = self.is_borrowed = False
        self.segments: Iterator[RemoteLogSegmentMetadata] | None = None
        self.is_beginning = True
        self.faults = TaskFaults()
        self.due_seconds = 0.0


class PartitionRemovals(Closeable):
    """The removals of one broker. A context manager.

    Args:
        services: What the manager works with.
        is_here: Whether this broker leads or follows a partition now.

    Attributes:
        wake: Called when ``run`` has something to do before its time.

    Thread safety: any number of threads; ``run`` one at a time.
    """

    def __init__(self, services: TierServices, *, is_here: Callable[[TopicIdPartition], bool] = _nowhere) -> None:
        self._services = services
        self._is_here = is_here
        self._deletions = SegmentDeletions(services)
        self._lock = services.machine.scheduler.lock()
        self._led: frozenset[int] = frozenset()
        self._wanted: list[_Removal] = []
        self._removals: dict[TopicIdPartition, _Removal] = {}
        self._faults = TaskFaults()
        self._look_seconds = 0.0
        self._cannot_say = False
        self._closed = False
        self.wake: Callable[[], object] = _nothing

    @property
    def waiting(self) -> int:
        """The number of partitions that are to be marked or removed, as far as this broker knows."""
        return len(self._wanted) + len(self._removals)

    # ---- calls of the broker

    def lead(self, metadata_partitions: AbstractSet[int]) -> None:
        """Remove what is marked in these partitions of the metadata topic from now on, and in no others."""
        with self._lock:
            changes = self._led != metadata_partitions
            self._led = frozenset(metadata_partitions)
        if changes:
            self._look_seconds = 0.0
            self.wake()

    def delete_partition(self, partition: TopicIdPartition) -> Future[None]:
        """Have all segments of a partition removed: the controller's call, once for a deleted partition. Returns at
        once.

        Returns:
            A future that is done when the removal is marked, and goes on after a crash. It raises
            RemoteStorageException and what else the metadata manager raises, if that may not go away by itself.
        """
        marked: PendingFuture[None] = self._services.machine.scheduler.future()
        with self._lock:
            is_open = not self._closed
            if is_open:
                self._wanted.append(_Removal(partition, None, (marked,)))
        if is_open:
            self.wake()
        else:
            marked.set_exception(RemoteStorageException("the remote log manager is closed"))
        return marked

    def close(self) -> None:
        """Mark nothing any more; who waits for it gets an error. Idempotent."""
        with self._lock:
            self._closed = True
        self._fail_waiting()

    def _fail_waiting(self) -> None:
        with self._lock:
            wanted, self._wanted = self._wanted, []
        for removal in [*wanted, *list(self._removals.values())]:
            for marked in self._take_marked(removal):
                marked.set_exception(RemoteStorageException("the remote log manager is closed"))

    # ---- the task

    def run(self) -> float | None:
        """Take one step of one removal; seconds until the next one, None: the removals are closed."""
        pause = None if self._closed else self._run()
        if self._closed:  # the close did not see a removal that this run held
            self._fail_waiting()
            return None
        return pause

    def _run(self) -> float:
        clock = self._services.machine.clock
        self._take_wanted()
        if clock.monotonic_seconds() >= self._look_seconds:
            self._look()
        now = clock.monotonic_seconds()
        active = list(itertools.islice(self._removals.values(), _ACTIVE_MAX))
        removal = min(active, key=lambda each: each.due_seconds, default=None)
        if removal is not None and removal.due_seconds <= now:
            removal.due_seconds = now  # those that wait for longer come first
            self._step(removal, active)
        active = list(itertools.islice(self._removals.values(), _ACTIVE_MAX))
        due = min((each.due_seconds for each in active), default=self._look_seconds)
        return max(0.0, min(due, self._look_seconds) - clock.monotonic_seconds())

    def _take_wanted(self) -> None:
        with self._lock:
            wanted, self._wanted = self._wanted, []
        for removal in wanted:
            known = self._removals.setdefault(removal.partition, removal)
            if known is removal:
                continue
            marked = self._take_marked(removal)
            with self._lock:
                known.marked += marked
            if known.state is not None:
                self._tell_marked(known)

    def _look(self) -> None:
        """Look for what is marked in the metadata partitions that this broker leads."""
        services = self._services
        now = services.machine.clock.monotonic_seconds()
        self._look_seconds = now + services.config.partition_remover_task_interval_ms / 1000
        try:
            pending = services.metadata.pending_removals(self._led)
        except Exception as error:  # noqa: BLE001 - whatever it is, the task goes on
            level = logging.DEBUG if is_passing(error) else logging.WARNING
            _log.log(level, "partitions to remove cannot be looked for: %s: %s", type(error).__name__, error)
            self._look_seconds = now + self._faults.note(error, services.config, services.machine.rng)
            return
        self._faults.clear()
        self._cannot_say = pending is None  # then this broker removes what it marked itself
        if pending is None:
            return
        states = {each.topic_id_partition: each.state for each in pending}
        for partition, removal in list(self._removals.items()):
            if partition in states:
                removal.state = states.pop(partition)
                self._tell_marked(removal)
            elif removal.state is not None:  # another broker leads it now, or has finished it
                self._drop(removal)
        for partition, state in states.items():
            self._removals[partition] = _Removal(partition, state)

    def _step(self, removal: _Removal, active: list[_Removal]) -> None:
        services = self._services
        try:
            if not removal.is_followed:
                self._follow([each for each in active if not each.is_followed])
            self._go_on(removal)
        except Exception as error:  # noqa: BLE001 - whatever it is, other removals go on
            passing = is_passing(error)
            level = logging.DEBUG if passing else logging.WARNING
            _log.log(level, "%s: its removal: %s: %s", removal.partition, type(error).__name__, error)
            pause = removal.faults.note(error, services.config, services.machine.rng)
            now = services.machine.clock.monotonic_seconds()
            removal.due_seconds = now + pause
            if self._removals.pop(removal.partition, None) is removal:
                self._removals[removal.partition] = removal  # behind the others
            removal.segments, removal.is_followed = None, False  # the broker may have stopped it meanwhile
            self._look_seconds = min(self._look_seconds, now + pause)  # another broker may have finished it
            # A stop of this broker's may take the partition from the metadata manager again: it is followed anew.
            was_stopped = isinstance(error, RemoteResourceNotFoundException) and removal.faults.count <= _STOPS_MAX
            if removal.state is None and not (passing or was_stopped):
                self._fail_marking(removal, error)
        else:
            removal.faults.clear()

    def _fail_marking(self, removal: _Removal, error: Exception) -> None:
        self._drop(removal)
        for marked in self._take_marked(removal):
            marked.set_exception(error)

    # ---- the steps of a removal

    def _follow(self, removals: list[_Removal]) -> None:
        """Have the metadata manager follow partitions, which this broker need not have."""
        borrowed = [each for each in removals if not self._is_here(each.partition)]
        if borrowed:
            partitions = frozenset(each.partition for each in borrowed)
            self._services.metadata.on_partition_leadership_changes(frozenset(), partitions)
        for each in borrowed:
            each.is_borrowed = True
        for each in removals:
            each.is_followed = True

    def _go_on(self, removal: _Removal) -> None:
        if removal.state is None:
            with contextlib.suppress(InvalidTransitionError):  # it was marked before, and may even be removed
                self._put(removal, _MARKED)
            removal.state = _MARKED
            self._tell_marked(removal)
            if not self._cannot_say:  # the leader of its metadata partition goes on, which may be this broker
                self._drop(removal)
                self._look_seconds = 0.0
        elif removal.state is _MARKED:
            self._put(removal, _STARTED)
        elif removal.is_beginning:
            self._begin_some(removal)
        else:
            self._finish_some(removal)

    def _begin_some(self, removal: _Removal) -> None:
        """Bring segments to DELETE_SEGMENT_STARTED, so that no reader finds them; then begin to delete."""
        if removal.segments is None:
            removal.segments = self._list(removal)
        some = list(itertools.islice(removal.segments, CHANGES_MAX))
        self._deletions.begin_all(some)
        if len(some) < CHANGES_MAX:
            removal.segments, removal.is_beginning = None, False

    def _finish_some(self, removal: _Removal) -> None:
        """Delete segments; where none is left, the partition is removed."""
        is_new = removal.segments is None
        if removal.segments is None:
            removal.segments = self._list(removal)
        clock = self._services.machine.clock
        until = clock.monotonic_seconds() + _RUN_SECONDS
        count = 0
        for segment in removal.segments:
            if segment.state is not _SEGMENT_STARTED:  # a copy that began late
                removal.segments, removal.is_beginning = None, True
                return
            self._deletions.finish_counted(segment)
            count += 1
            if count == _DELETIONS or clock.monotonic_seconds() >= until:
                return
        removal.segments = None
        if is_new and not count:
            self._put(removal, _FINISHED)
            _log.info("%s (%s): removed from the tier", removal.partition, removal.partition.topic_id)
            self._drop(removal)

    def _list(self, removal: _Removal) -> Iterator[RemoteLogSegmentMetadata]:
        return iter(self._services.metadata.list_remote_log_segments(removal.partition))

    def _put(self, removal: _Removal, state: RemotePartitionDeleteState) -> None:
        services = self._services
        event = RemotePartitionDeleteMetadata(
            removal.partition,
            state,
            event_timestamp_ms=services.machine.clock.time_ms(),
            broker_id=services.broker_id,
        )
        self._deletions.await_stored(services.metadata.put_remote_partition_delete_metadata(event), removal.partition)
        removal.state = state

    def _take_marked(self, removal: _Removal) -> tuple[PendingFuture[None], ...]:
        with self._lock:
            marked, removal.marked = removal.marked, ()
        return marked

    def _tell_marked(self, removal: _Removal) -> None:
        for marked in self._take_marked(removal):
            marked.set_result(None)

    def _drop(self, removal: _Removal) -> None:
        """Take a removal off; the metadata manager need not follow its partition any more, unless this broker does."""
        self._removals.pop(removal.partition, None)
        if removal.is_borrowed and not self._is_here(removal.partition):
            try:
                self._services.metadata.on_stop_partitions(frozenset({removal.partition}))
            except Exception as error:  # noqa: BLE001 - it follows one partition too many
                _log.warning("%s: the metadata manager has not let go of it: %s", removal.partition, error)
