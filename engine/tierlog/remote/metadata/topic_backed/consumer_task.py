"""The one thread of a topic-backed metadata manager: opens the topic, reads it into the table, writes the snapshot.

It alone writes the table. Its waits are bounded: a read by its timeout, a pause by its back-off, an idle turn by the
next thing that is due; and whatever error ends it, all waiters get it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Final

from tierlog.errors import ConfigError
from tierlog.marks import mark
from tierlog.remote.api import (
    InvalidTransitionError,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
    TopicIdPartition,
)
from tierlog.remote.metadata.metadata_log import (
    LogBounds,
    MetadataBatches,
    MetadataLog,
    MetadataLogs,
    MetadataValues,
    OffsetsLostError,
)
from tierlog.remote.metadata.segment_table import AppliedRun, RefusedEvent, SegmentTable
from tierlog.remote.metadata.snapshots.snapshot_file import PendingRemoval
from tierlog.remote.metadata.topic_backed.assignment import FINISHED, Assigned, Assignment, Removals
from tierlog.remote.metadata.topic_backed.consumed_offsets import ConsumedOffsets
from tierlog.remote.metadata.topic_backed.own_events import OwnEvent, OwnEvents, Refusal
from tierlog.remote.metadata.topic_backed.saved_state import SavedState
from tierlog.remote.metadata.topic_backed.topic_based_config import TopicBasedConfig
from tierlog.remote.storage.storage_metrics import Series, SeriesMetrics
from tierlog.runtime.machine import Machine

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


METADATA_SERIES: Final[tuple[Series, ...]] = (
    Series("counter", "metadata_events_applied_total", "Events of the metadata topic that changed the table."),
    Series(
        "counter",
        "metadata_events_passed_over_total",
        "Events of partitions that this broker does not keep, or that were in the table already.",
    ),
    Series(
        "counter",
        "metadata_events_refused_total",
        "Events that the state machine of segments, or of partitions' removal, refused.",
    ),
    Series("counter", "metadata_consumer_errors_total", "Passing errors of consuming the topic."),
    Series("counter", "metadata_rebuilds_total", "Times that the topic was found truncated or made anew."),
    Series("counter", "metadata_snapshot_errors_total", "Snapshots that could not be written."),
    Series(
        "gauge", "metadata_lag_events", "Events that are in the topic and not yet consumed, asked every ten seconds."
    ),
    Series("gauge", "metadata_partitions_ready", "Partitions that can be asked for."),
)


class MetadataMetrics(SeriesMetrics):
    """The series of METADATA_SERIES. Thread safety: any number of threads."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        super().__init__(METADATA_SERIES, registry)


_log = logging.getLogger(__name__)

#: Bytes of one read, over all metadata partitions.
_READ_BYTES: Final = 4 << 20
#: Huge pages that are asked for when nothing was read: up to some 40 ms.
_SETTLED_PAGES: Final = 8
_READ_SECONDS: Final = 1.0
_BOUNDS_SECONDS: Final = 10.0
_OPEN_SECONDS: Final = 10.0
_PAUSE_SECONDS_MAX: Final = 5.0
#: Time after which a partition of the snapshot that was not assigned since is dropped.
_UNCLAIMED_SECONDS: Final = 600.0
_LAG_SECONDS: Final = 10.0
_NOT_ASSIGNED: Final = "this broker neither leads nor follows the partition any more"


class _Closing(Exception):
    """The manager is being closed."""


class ConsumerTask:
    """The consumer of the metadata topic for one manager.

    Args:
        config: The manager's.
        machine: The machine that it runs on.
        logs: Opens the topic.
        assignment: The partitions to follow.
        own_events: The waiters for consumed events.
        removals: Partitions' removals.
        saved_state: The snapshot on disk.
        metrics: The counters.

    Attributes:
        log: The open topic; None before it is, and while it is opened again.
        table: The segments. Any thread may ask it, once a partition is ready.

    Thread safety: ``run`` in one thread, the attributes in any.
    """

    def __init__(
        self,
        config: TopicBasedConfig,
        *,
        machine: Machine,
        logs: MetadataLogs,
        assignment: Assignment,
        own_events: OwnEvents,
        removals: Removals,
        saved_state: SavedState,
        metrics: MetadataMetrics,
    ) -> None:
        self.log: MetadataLog | None = None
        self.table = SegmentTable(machine=machine, as_kafka=config.kafka_semantics)
        self._config = config
        self._machine = machine
        self._open_log = logs.open
        self._assignment = assignment
        self._own_events = own_events
        self._removals = removals
        self._saved_state = saved_state
        self._metrics = metrics
        #: Partitions whose events are applied; None: from the snapshot, and not assigned so far.
        self._taken: dict[TopicIdPartition, Assigned | None] = {}
        #: Derived from those: the partitions that are being loaded, the metadata partitions that are read.
        self._loading: list[Assigned] = []
        self._needed: list[int] = []
        self._version_taken = -1
        self._consumed = ConsumedOffsets()
        self._failed: dict[int, RemoteStorageException] = {}
        #: Metadata partitions whose removals are all followed → the offset from which on all of them are known.
        self._watched: dict[int, int] = {}
        #: Set while the topic may be another than the consumed one.
        self._doubted: str | None = None
        self._is_resumed = False
        self._read_seconds = min(_READ_SECONDS, max(config.consume_wait_ms / 1000, 0.05))
        self._unclaimed_until = 0.0
        self._save_due = 0.0
        self._lag_due = 0.0
        self._is_saved = True

    def run(self) -> None:
        """Consume until the manager is closed or fails for good; then end all waits."""
        try:
            self._open(within_seconds=self._config.initialization_retry_max_timeout_ms / 1000)
            pauses = 0
            while True:
                pauses = self._guarded_turn(pauses)
        except _Closing:
            pass
        except Exception as error:
            self._fail(error)
            if not isinstance(error, RemoteStorageException | ConfigError):
                self._is_saved = True  # a fault of ours, and nothing to start from
                raise
        finally:
            self._end()

    def _fail(self, error: BaseException) -> None:
        text = f"the metadata manager has failed for good: {type(error).__name__}: {error}"
        _log.error("%s", text)
        failure = RemoteStorageException(text)
        failure.__cause__ = error
        self._assignment.fail(failure)
        self._own_events.end(text)

    def _end(self) -> None:
        log = self.log
        if log is None:
            return
        self._save(at_end=True)
        try:
            log.close()
        except RemoteStorageException as error:
            _log.warning("closing the metadata topic: %s", error)

    # ---- opening

    def _open(self, *, within_seconds: float | None) -> None:
        """Open the topic, again and again while that may help, for so long; None: until the manager is closed."""
        clock = self._machine.clock
        began = clock.monotonic_seconds()
        pauses = 0
        while True:
            left = None if within_seconds is None else within_seconds - (clock.monotonic_seconds() - began)
            self._check_closing()
            try:
                longest = _OPEN_SECONDS if left is None else max(left, 1.0)
                log = self._open_log(timeout_seconds=min(self._patience(_OPEN_SECONDS), longest))
            except RetriableRemoteStorageException as error:
                if left is not None and left <= 0:
                    text = f"the metadata topic could not be opened within {within_seconds:g} s: {error}"
                    raise RemoteStorageException(text) from error
                _log.warning("opening the metadata topic: %s; it is tried again", error)
                pauses += 1
                self._pause(pauses, left)
                continue
            if log.partition_count != self._config.topic_num_partitions:
                log.close()
                raise ConfigError(
                    f"the metadata topic has {log.partition_count} partitions, and "
                    f"remote.log.metadata.topic.num.partitions is {self._config.topic_num_partitions}"
                )
            self.log = log
            return

    def _resume(self) -> None:
        """Go on from the snapshot, if there is one of this topic."""
        now = self._machine.clock.monotonic_seconds()
        self._unclaimed_until = now + _UNCLAIMED_SECONDS
        self._save_due = now + self._config.snapshot_interval_ms / 1000
        saved = self._saved_state.load(self._opened(), check=self._check_closing)
        if saved is not None:
            self.table = saved.table
            self._consumed = saved.consumed
            self._removals.restore(saved.removals)
            self._taken = dict.fromkeys(saved.partitions)
        self._is_resumed = True

    def _opened(self) -> MetadataLog:
        assert self.log is not None
        return self.log

    # ---- turns

    def _guarded_turn(self, pauses: int) -> int:
        """Make one turn; after a retriable error, pause. Returns the number of pauses in a row."""
        try:
            self._check_closing()
            self._assignment.caught_up(self._consumed.positions)
            self._turn()
        except OffsetsLostError as error:
            _log.warning("%s: the topic is opened again, and what this concerns is loaded anew", error)
            self._assignment.suspend()
            self._metrics.add("metadata_rebuilds_total")
            if self._doubted is None:  # the consumed events are of that topic, however often it is opened again
                self._doubted = self._opened().identity
        except RetriableRemoteStorageException as error:
            _log.warning("consuming the metadata topic: %s; it is tried again", error)
            mark("metadata: the topic could not be read")
            self._metrics.add("metadata_consumer_errors_total")
        else:
            return 0
        self._pause(pauses + 1)
        return pauses + 1

    def _turn(self) -> None:
        """Take new assignments, read once, apply."""
        if self._doubted is not None:
            self._open_again(self._doubted)
        if not self._is_resumed:
            self._resume()
        version = self._take_assignment()
        self._find_ends()
        self._save(at_end=False)
        due = self._own_events.expire()
        timeout = self._read_seconds if due is None else min(self._read_seconds, max(due, 0.0))
        positions = self._to_read()
        if not positions:
            self._assignment.await_change(version, timeout)
            return
        runs = self._opened().read(positions, max_bytes=_READ_BYTES, timeout_seconds=timeout)
        for run in runs:
            if run.partition in positions:
                self._apply(run)
        if not runs:
            self._bounds(self._consumed.rewound(positions))  # another one's end has come too early, perhaps
            self.table.settle(_SETTLED_PAGES)
        self._tell_ready()
        self._assignment.caught_up(self._consumed.positions)
        self._measure_lag()

    def _to_read(self) -> dict[int, int]:
        """Return the position of each metadata partition that is needed."""
        return {
            number: self._consumed.positions[number]
            for number in self._needed
            if number in self._consumed.positions and number not in self._failed
        }

    def _apply(self, run: MetadataBatches | MetadataValues) -> None:
        """Apply a run of one metadata partition, and complete its waiters."""
        number = run.partition
        position = self._consumed.positions[number]
        applied = self.table.apply(run, all_removals=number in self._watched)
        refusals = [_refusal(event) for event in applied.refused]
        refused_removals, known = self._apply_removals(number, applied)
        refusals += refused_removals
        self._consumed.advance(number, applied.next_offset, applied.last_record)
        self._is_saved = False
        removals = len(applied.removals) - len(refused_removals) - known
        self._metrics.add("metadata_events_applied_total", applied.applied + removals)
        self._metrics.add("metadata_events_passed_over_total", applied.passed_over + known)
        refused = applied.refused_count + len(refusals) - len(applied.refused)
        self._metrics.add("metadata_events_refused_total", refused + applied.oversized)
        if refused:
            _log.warning("metadata partition %d: %d events refused, the first: %s", number, refused, refusals[0].error)
        self._own_events.consumed(
            number,
            position,
            applied.next_offset,
            refusals=refusals,
            untold=applied.refused_count > len(applied.refused),
        )
        if applied.error is not None:
            error = RemoteStorageException(
                f"metadata partition {number} cannot be read at offset {max(position, applied.next_offset)}: "
                f"{applied.error}"
            )
            error.__cause__ = applied.error
            self._fail_partition(number, error)
        elif applied.next_offset <= position:
            raise RetriableRemoteStorageException(f"metadata partition {number}: nothing behind offset {position} came")

    def _apply_removals(self, number: int, applied: AppliedRun) -> tuple[list[Refusal], int]:
        """Take the states of removals; return the refused ones, and how many were known already."""
        refusals, known = [], 0
        for offset, metadata in applied.removals:
            partition = metadata.topic_id_partition
            found = self._removals.find(partition)
            if found is not None and found.metadata_partition == number and offset <= found.offset:
                known += 1  # the metadata partition is read again
            elif not self._removals.put(PendingRemoval(metadata, number, offset)):
                state = "none" if found is None else found.metadata.state.name
                text = f"{partition}: the removal is in state {state}, and cannot go to {metadata.state.name}"
                refusals.append(Refusal(offset, partition, InvalidTransitionError(text)))
            elif metadata.state is FINISHED:
                self.table.unassign(partition)  # and whatever comes later for it is a zombie's
                self._own_events.refuse_all(f"{partition} was removed", which=partial(_is_late, partition, offset))
                if partition not in self._taken:
                    self._removals.forget(partition)
        return refusals, known

    def _fail_partition(self, number: int, error: RemoteStorageException) -> None:
        """Give up one metadata partition: its position stays, others go on."""
        _log.error("%s: its partitions have failed for good, others go on", error)
        self._failed[number] = error
        self._assignment.fail_metadata_partition(number, error)
        self._own_events.fail_all(str(error), which=lambda event: event.metadata_partition == number)

    def _tell_ready(self) -> None:
        """Report the partitions that are loaded now."""
        loaded = [
            kept
            for kept in self._loading
            if kept.end_offset is not None
            and kept.failed is None
            and self._consumed.positions.get(kept.metadata_partition, -1) >= kept.end_offset
        ]
        if loaded:
            self._assignment.make_ready(loaded)
            are_loaded = set(loaded)
            self._loading = [kept for kept in self._loading if kept not in are_loaded]
        if self._watched or self._assignment.watched:
            positions = self._consumed.positions
            self._assignment.show_watched(
                frozenset(number for number, end in self._watched.items() if positions.get(number, -1) >= end)
            )

    def _find_ends(self) -> None:
        """Ask for the ends of the metadata partitions that callers wait for."""
        positions = self._consumed.positions
        waits = [each for each in self._assignment.catch_ups if each.end_offset is None and each.number in positions]
        if not waits:
            return
        numbers = sorted({each.number for each in waits})
        bounds = self._bounds(numbers)
        for wait in waits:
            wait.end_offset = bounds[wait.number].end_offset
        self._assignment.caught_up(self._consumed.positions)

    # ---- assignment

    def _take_assignment(self) -> int:
        """Bring the applied partitions in line with the assignment, and return its version. Where the end offsets are
        not available, no new partition is added.
        """
        unclaimed_too = self._machine.clock.monotonic_seconds() >= self._unclaimed_until
        if self._version_taken == self._assignment.version and not unclaimed_too:
            return self._version_taken
        version, assigned = self._assignment.now()
        self._check_closing()  # or the emptied assignment would look like stopped partitions
        if unclaimed_too:
            self._unclaimed_until = math.inf
        self._give_up(
            {
                partition
                for partition, kept in self._taken.items()
                if partition not in assigned and (kept is not None or unclaimed_too)
            }
        )
        new = [kept for partition, kept in assigned.items() if self._taken.get(partition) is not kept]
        for number in {kept.metadata_partition for kept in new} & self._failed.keys():
            self._assignment.fail_metadata_partition(number, self._failed[number])
        new = [kept for kept in new if kept.metadata_partition not in self._failed]
        if new:
            self._take(new)
        self._watch(self._assignment.watched)
        self._look_at_taken()
        self._tell_ready()
        self._version_taken = version
        return version

    def _take(self, new: list[Assigned]) -> None:
        """Take the events of these too; nothing is changed where the end offsets cannot be had."""
        numbers = sorted({kept.metadata_partition for kept in new})
        bounds = self._bounds(numbers)
        for kept in new:
            number = kept.metadata_partition
            kept.end_offset = bounds[number].end_offset
            if kept.partition not in self._taken:
                try:
                    self.table.assign(kept.partition)
                except ValueError as error:  # a topic id under a second name
                    self._assignment.fail_partition(kept, RemoteStorageException(str(error)))
                else:
                    if number in self._watched:  # until here they are read a second time
                        self._watched[number] = max(self._watched[number], self._consumed.positions[number])
                    self._consumed.positions[number] = bounds[number].start_offset
            self._taken[kept.partition] = kept
        self._is_saved = False

    def _watch(self, numbers: AbstractSet[int]) -> None:
        """Follow all removals in these metadata partitions, each from its beginning, and in no others."""
        for number in self._watched.keys() - numbers:
            del self._watched[number]
            for removal in self._removals.all():
                if removal.metadata_partition == number and removal.metadata.topic_id_partition not in self._taken:
                    self._removals.forget(removal.metadata.topic_id_partition)
        new = sorted(numbers - self._watched.keys() - self._failed.keys())
        if new:
            bounds = self._bounds(new)
            for number in new:
                self._consumed.positions[number] = bounds[number].start_offset
                self._watched[number] = bounds[number].end_offset

    def _look_at_taken(self) -> None:
        kept = [each for each in self._taken.values() if each is not None]
        self._loading = [each for each in kept if not each.ready]
        self._needed = sorted({each.metadata_partition for each in kept} | self._watched.keys())
        followed = {self._assignment.metadata_partition(partition) for partition in self._taken} | self._watched.keys()
        self._forget_offsets(sorted(self._consumed.positions.keys() - followed), _NOT_ASSIGNED)

    def _forget_offsets(self, numbers: Sequence[int], text: str) -> None:
        self._consumed.forget(numbers)
        self._own_events.forget_progress(numbers, text)

    def _bounds(self, numbers: Sequence[int]) -> Mapping[int, LogBounds]:
        """Return the bounds of metadata partitions. Raises OffsetsLostError: one no longer holds what was read."""
        bounds = self._ask_bounds(numbers)
        lost = self._consumed.outside(bounds)
        if lost:
            raise OffsetsLostError(f"metadata partitions {lost} no longer hold the offsets that were consumed last")
        return bounds

    def _ask_bounds(self, numbers: Sequence[int]) -> Mapping[int, LogBounds]:
        if not numbers:
            return {}
        return self._opened().bounds(numbers, timeout_seconds=self._patience(_BOUNDS_SECONDS))

    def _give_up(self, partitions: set[TopicIdPartition]) -> None:
        """Take no events of these any more, and forget them."""
        if not partitions:
            return
        for partition in partitions:
            self._forget(partition)
        self._own_events.fail_all(_NOT_ASSIGNED, which=lambda event: event.partition in partitions)

    def _forget(self, partition: TopicIdPartition) -> None:
        del self._taken[partition]
        self.table.unassign(partition)
        removal = self._removals.find(partition)
        if removal is None or removal.metadata.state is FINISHED or removal.metadata_partition not in self._watched:
            self._removals.forget(partition)
        self._is_saved = False

    def _open_again(self, identity: str) -> None:
        """Open the topic again, and begin anew with the metadata partitions that do not go on where they were."""
        old, self.log = self.log, None
        if old is not None:
            old.close()
        self._open(within_seconds=None)
        log = self._opened()
        lost = list(self._consumed.positions)
        if log.identity == identity:
            lost = self._consumed.outside(self._ask_bounds(sorted(self._consumed.positions)))
        self._assignment.begin_anew(lost)
        for partition in list(self._taken):
            if self._assignment.metadata_partition(partition) in lost:
                self._forget(partition)
        for number in lost:
            self._failed.pop(number, None)
            self._watched.pop(number, None)
            self._removals.forget_all(number)
        self._forget_offsets(lost, "the metadata topic was truncated or made anew")
        self._doubted = None
        self._look_at_taken()
        self._tell_ready()

    # ---- waiting

    def _patience(self, seconds: float) -> float:
        """Return the seconds that a call of the log may take, so that own events' deadlines are met; a
        second at least.
        """
        due = self._own_events.expire()
        return seconds if due is None else min(seconds, max(due, 1.0))

    def _check_closing(self) -> None:
        if self._assignment.closing:
            raise _Closing

    def _pause(self, count: int, seconds_max: float | None = None) -> None:
        """Back off before the next try: twice as long each time, less a random part of it; not when closing."""
        first = max(self._config.initialization_retry_interval_ms / 1000, 0.001)
        longest = min(_PAUSE_SECONDS_MAX, first * 2 ** min(count - 1, 16))
        if seconds_max is not None:
            longest = min(longest, max(seconds_max, 0.001))
        clock = self._machine.clock
        until = clock.monotonic_seconds() + self._machine.rng.uniform(longest / 2, longest)
        while (left := until - clock.monotonic_seconds()) > 0:
            self._check_closing()
            self._own_events.expire()  # looked at as often as between reads: one may begin meanwhile
            with self._assignment.changed:
                if not self._assignment.closing:
                    self._assignment.changed.wait(min(left, self._read_seconds))

    # ---- snapshot and lag

    def _save(self, *, at_end: bool) -> None:
        """Write a snapshot if it is due and anything has changed. A failed write is tried again."""
        now = self._machine.clock.monotonic_seconds()
        is_due = at_end or (self._config.snapshot_interval_ms > 0 and now >= self._save_due)
        if self._is_saved or self._doubted is not None or not is_due:
            return
        self._save_due = now + self._config.snapshot_interval_ms / 1000
        log = self._opened()
        removals = [each for each in self._removals.all() if each.metadata.topic_id_partition in self._taken]
        if self._saved_state.write(self.table, log, self._consumed, removals):
            self._is_saved = True
        else:
            self._metrics.add("metadata_snapshot_errors_total")

    def _measure_lag(self) -> None:
        """Count the events that are not consumed yet, every few seconds."""
        now = self._machine.clock.monotonic_seconds()
        positions = self._to_read()
        if now < self._lag_due or not positions:
            return
        self._lag_due = now + _LAG_SECONDS
        try:
            bounds = self._bounds(list(positions))
        except RetriableRemoteStorageException as error:
            _log.info("the lag behind the metadata topic is not known: %s", error)
            return
        lag = sum(max(0, found.end_offset - positions[number]) for number, found in bounds.items())
        self._metrics.set("metadata_lag_events", lag)


def _is_late(partition: TopicIdPartition, removed_at: int, event: OwnEvent) -> bool:
    """Whether an own event is about a segment of a partition that was removed before it."""
    return event.subject != partition == event.partition and (event.offset is None or event.offset > removed_at)


def _refusal(event: RefusedEvent) -> Refusal:
    """Return the error of a refused event for its producer."""
    error: RemoteStorageException
    if event.found_state is None:
        error = RemoteResourceNotFoundException(
            f"{event.segment_id}: there is no such segment, or its deletion has finished; {event.state.name} is refused"
        )
    else:
        error = InvalidTransitionError(
            f"{event.segment_id}: a segment in state {event.found_state.name} cannot go to {event.state.name}"
        )
    return Refusal(event.offset, event.segment_id, error)
