"""The segments of many partitions, from their events, with lookups by leader epoch and offset."""

from __future__ import annotations

import builtins
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tierlog._native.segments import NativeSegmentTable, SnapshotWriter
from tierlog.errors import CorruptRecordError
from tierlog.remote.api import (
    InvalidTransitionError,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    RemoteResourceNotFoundException,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.metadata_log import MetadataBatches, MetadataValues, RecordIdentity
from tierlog.remote.metadata.segment_row import SegmentColumns, SegmentRow
from tierlog.remote.metadata.segment_times import KnownTimes
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.machine.scheduling import Lock


class TableSnapshot:
    """The partitions and segments of a table as the sections of a snapshot, all of one moment.

    The table's lock is held while a section is made, not between: the table's writer writes the snapshot. An event of
    another writer between two sections ends it.

    Args:
        table: Of which it is.
        lock: That of its writers.
    """

    def __init__(self, table: NativeSegmentTable, lock: Lock) -> None:
        self._lock = lock
        with lock:
            self._writer = SnapshotWriter(table)
            self.partitions = self._writer.partitions
            self.segments = self._writer.segments
            self.as_kafka = self._writer.as_kafka

    def next_section(self, number: int, out: memoryview) -> int:
        """Write one more section, into SNAPSHOT_SECTION_BYTES_MAX bytes; return its size, 0 at the end.

        Raises:
            RuntimeError: the table was changed since this was made. ValueError: a topic's name is above 64 KiB.
        """
        with self._lock:
            return self._writer.next_section(number, out)


_log = logging.getLogger(__name__)

#: Limits of one segment, in every mode; Kafka has no such limits (``tierlog/segment_table.h``).
EPOCHS_MAX: Final = 65_536
CUSTOM_MAX: Final = 1 << 20
_LISTED_AT_ONCE: Final = 256

_PartitionKey = tuple[bytes, int, str]


@dataclass(frozen=True, slots=True)
class RefusedEvent:
    """An event that the life of its segment does not allow; the table is as if it had never come.

    Attributes:
        offset: Of its record in the metadata partition.
        found_state: The segment's, when it came; None: there is no such segment.
        state: The requested state.
    """

    offset: int
    segment_id: RemoteLogSegmentId
    found_state: RemoteLogSegmentState | None
    state: RemoteLogSegmentState


@dataclass(frozen=True, slots=True)
class AppliedRun:
    """The outcome of a run of events.

    Attributes:
        next_offset: The first offset that was not applied: the run's own, or, with an error, that of the record that
            cannot be read (0 where it is unknown).
        applied: Events that the table has applied.
        passed_over: Events of partitions that are not assigned, or that had been applied before.
        tombstones: Records with a key and no value, which say nothing here (KIP-1266, not accepted).
        oversized: Records of more leader epochs or custom metadata than a segment may have, which are passed over.
        oversized_offset: Of the first of them; -1: there was none.
        refused: The first 1,000 of the events that were refused.
        refused_count: All of them.
        removals: (offset, record) of the partition deletes; the table stores none.
        newest_timestamp_ms: Of all records that were looked at; -1: there was none.
        last_record: The last one that was looked at; None: there was none.
        error: What cannot be read, with ``base_offset``: a record that is damaged or of an unknown type or version, a
            damaged batch. What came before it is applied; nothing behind it is.
    """

    next_offset: int
    applied: int
    passed_over: int
    tombstones: int
    oversized: int
    oversized_offset: int
    refused: tuple[RefusedEvent, ...]
    refused_count: int
    removals: tuple[tuple[int, RemotePartitionDeleteMetadata], ...]
    newest_timestamp_ms: int
    last_record: RecordIdentity | None
    error: CorruptRecordError | None


@dataclass(frozen=True, slots=True)
class SegmentTableFigures:
    """The size of a table: partitions count once they have had an event; bytes are those of cells in use."""

    segments: int
    partitions: int
    held_bytes: int


class SegmentTable(NativeSegmentTable, Closeable):
    """The partitions' segments with their states and leader epochs, in about a hundred bytes a segment.

    Where segments of one epoch overlap, an offset is answered by the readable one with the greatest end, so that no
    offset is lost while a segment has it (Kafka 4.3 forgets a segment when another with the same start finishes).

    Args:
        machine: Its randomness and locks.
        as_kafka: Answer as Kafka 4.3's RemoteLogMetadataCache does, with the offsets that it loses.
        learns_partitions: Take the events of every partition that comes; else of those alone that are assigned.

    Partitions are known by topic id and number. Answers carry the partition that was asked with.

    Raises (all methods but ``close``): ValueError once it is closed.

    Thread safety: any number of threads. Events are applied one run at a time: a second thread that writes waits for
    the first. Lookups (``find``, ``find_many``, ``get``, ``highest_offset``, ``list``, ``list_from_time``, ``columns``,
    ``size_in_bytes``, ``next_with_txn_index``, ``version``, ``figures``) wait for no thread, and are true at one moment
    between call and return; ``partitions`` waits for a run that is being applied.
    """

    def __init__(
        self, *, machine: Machine | None = None, as_kafka: bool = False, learns_partitions: bool = False
    ) -> None:
        machine = machine or Machine()
        self._writing = machine.scheduler.lock()
        self._times = KnownTimes(machine)
        self._open(machine.rng.secret_bytes(8), as_kafka, learns_partitions, SegmentRow)

    # -- writes

    def assign(self, partition: TopicIdPartition) -> None:
        """Apply a partition's events from now on. It begins empty; an assigned partition stays as it is.

        Raises:
            ValueError: its topic id is that of a topic of another name.
        """
        with self._writing:
            if not self._assign(partition, -1):
                raise ValueError(f"topic id {partition.topic_id} of {partition} is that of another topic")

    def unassign(self, partition: TopicIdPartition) -> None:
        """Forget a partition with its segments; its later events are passed over. An unknown partition is ignored."""
        with self._writing:
            self._unassign(partition)

    def apply(self, run: MetadataBatches | MetadataValues, *, all_removals: bool = False) -> AppliedRun:
        """Apply the events of a run in their order, with the GIL released.

        An event at or below the last one of its partition is passed over, so that a metadata partition can be read
        again from its beginning for a partition that is assigned later. All events of a partition come from one
        metadata partition; a record of it in another one is an error, as is a topic id under another name than before.

        Args:
            run: The records.
            all_removals: Whether the answer has the partition deletes of partitions that are not assigned, too; they
                come as often as they are read.

        Raises:
            MemoryError: what came before is applied; the same run can be applied again.
        """
        with self._writing:
            if isinstance(run, MetadataBatches):
                found = self._apply_batches(run.partition, run.batches, all_removals)
            else:
                found = self._apply_values(
                    run.partition, run.offsets, run.timestamps_ms, run.keys, run.values, all_removals
                )
        applied = _applied_run(run.next_offset, found)
        if applied.oversized:
            _log.error(
                "metadata partition %d: %d records too large for a segment are passed over, the first at offset %d: "
                "it has at most %s leader epochs and %s bytes of custom metadata",
                *(run.partition, applied.oversized, applied.oversized_offset, f"{EPOCHS_MAX:,}", f"{CUSTOM_MAX:,}"),
            )
        return applied

    def apply_record(self, record: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate) -> None:
        """Apply one event that has no offset.

        Raises:
            ValueError: as ``require_room`` says.
            InvalidTransitionError: the segment's state does not allow it, or a new segment is in another state than
                COPY_SEGMENT_STARTED. RemoteResourceNotFoundException: there is no such segment, or its partition is
                not assigned.
        """
        require_room(record)
        begins = record.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
        if isinstance(record, RemoteLogSegmentMetadata) != begins:
            raise InvalidTransitionError(f"{record.remote_log_segment_id}: no event leads to {record.state.name} so")
        with self._writing:
            if isinstance(record, RemoteLogSegmentMetadata):
                done = self._add(record)
            else:
                done = self._change(record)
        _check_done(record, done)

    def put(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Put a segment in as it stands, in any state but DELETE_SEGMENT_FINISHED.

        Raises:
            ValueError: as ``require_room`` says.
            InvalidTransitionError: the id is there in a later state, or the state is DELETE_SEGMENT_FINISHED.
            RemoteResourceNotFoundException: its partition is not assigned.
        """
        require_room(metadata)
        if metadata.state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
            raise InvalidTransitionError(f"{metadata.remote_log_segment_id} is deleted")
        with self._writing:
            done = self._add(metadata)
            if done is not None and done[0] and metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
                done = self._change(update_of(metadata))
        _check_done(metadata, done)

    def snapshot(self) -> TableSnapshot:
        """Return the table's partitions and segments as a snapshot has them; no event may be applied before it is
        written.
        """
        return TableSnapshot(self, self._writing)

    def settle(self, pages: int = 1) -> bool:
        """Ask the system for huge pages under the applied events, which makes lookups faster by a third: for a moment
        without events. Lookups do not wait meanwhile.

        Args:
            pages: How many pages at most; each is 2 MiB, some 20,000 segments, and takes 0.5 ms, or 5 on a virtual
                machine.

        Returns:
            Whether there may be more.
        """
        with self._writing:
            return self._settle(pages) == pages

    # -- lookups; find, find_many's rows, highest_offset and others are the native table's

    def find_many(
        self, partition: TopicIdPartition, epochs: ArrayLike, offsets: ArrayLike
    ) -> tuple[NDArray[np.bool_], SegmentColumns]:
        """``find`` for many questions, with the GIL released; each is answered as of a moment of its own.

        Args:
            partition: Of which partition.
            epochs: int32[n], or what becomes one.
            offsets: int64[n], or what becomes one.

        Returns:
            Which questions have an answer, and a row for each question: zeros where nothing answers it.
        """
        found, rows = self._find_rows(
            partition, np.ascontiguousarray(epochs, np.int32), np.ascontiguousarray(offsets, np.int64)
        )
        return found, rows.view(np.recarray)

    def list(self, partition: TopicIdPartition, epoch: int | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the segments in all states but DELETE_SEGMENT_FINISHED, ascending by start offset, each as of a moment
        of its own.

        Args:
            partition: Of which partition.
            epoch: Those with this leader epoch; None: all.
        """
        rows = self.columns(partition, epoch)
        for at in range(0, len(rows), _LISTED_AT_ONCE):
            yield from self._get_rows(partition, rows[at : at + _LISTED_AT_ONCE])

    def columns(self, partition: TopicIdPartition, epoch: int | None = None) -> SegmentColumns:
        """Return the segments that ``list`` gives, in its order, as columns; copied out with the GIL released, so that
        no later event changes them.
        """
        if epoch is not None and epoch < 0:
            raise ValueError(f"leader epoch {epoch} is negative")
        rows = self._list_rows(partition, -1 if epoch is None else epoch)
        starts = rows["start_offset"]
        if (starts[1:] < starts[:-1]).any():  # the native order is that of the epoch's own offsets
            rows = rows[np.argsort(starts, kind="stable")]
        return rows.view(np.recarray)

    def list_from_time(
        self, partition: TopicIdPartition, timestamp_ms: int, *, start_offset: int, end_offset_exclusive: int
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield the segments in state COPY_SEGMENT_FINISHED that may have a record from a time on in a range of
        offsets, ascending by start offset, each as of a moment of its own.

        Args:
            partition: Of which partition.
            timestamp_ms: From this time on, ms since 1970 UTC.
            start_offset: The first offset of the range.
            end_offset_exclusive: Its end.
        """
        times = self._times.find(partition, self.version(partition), lambda: self.columns(partition))
        for at in times.find(timestamp_ms, start_offset, end_offset_exclusive):
            segment = self.get(RemoteLogSegmentId(partition, Uuid(times.ids[at].tobytes())))
            if segment is not None and segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                yield segment

    def partitions(self) -> builtins.list[TopicIdPartition]:
        """Return the partitions whose events are applied, assigned or learned, in no order."""
        return builtins.list(self.positions())

    def positions(self) -> dict[TopicIdPartition, tuple[int, int]]:
        """Return the position of each of them: the metadata partition that has its events, and the offset of the last
        one applied; -1 where there was none.
        """
        with self._writing:
            found = self._assigned()
        return {_partition(topic_id, number, topic): (place, at) for topic_id, number, topic, place, at in found}

    @property
    def figures(self) -> SegmentTableFigures:
        return SegmentTableFigures(*self._figures)


def update_of(metadata: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadataUpdate:
    """Return the update that brings a started segment to this state."""
    return RemoteLogSegmentMetadataUpdate(
        metadata.remote_log_segment_id,
        event_timestamp_ms=metadata.event_timestamp_ms,
        custom_metadata=metadata.custom_metadata,
        state=metadata.state,
        broker_id=metadata.broker_id,
    )


def require_room(record: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate) -> None:
    """Refuse a record of more than a segment may have: readers of the topic would pass it over. Raises ValueError."""
    epochs = len(record.segment_leader_epochs) if isinstance(record, RemoteLogSegmentMetadata) else 0
    if epochs > EPOCHS_MAX:
        raise ValueError(f"a segment has at most {EPOCHS_MAX:,} leader epochs, not {epochs:,}")
    if record.custom_metadata is not None and len(record.custom_metadata) > CUSTOM_MAX:
        raise ValueError(
            f"a segment has at most {CUSTOM_MAX:,} bytes of custom metadata, not {len(record.custom_metadata):,}"
        )


def _partition(topic_id: bytes, number: int, topic: str) -> TopicIdPartition:
    return TopicIdPartition(Uuid(topic_id), topic, number)


def _check_done(
    record: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate, done: tuple[bool, int] | None
) -> None:
    segment_id = record.remote_log_segment_id
    if done is None:
        raise RemoteResourceNotFoundException(f"{segment_id}: its partition is not assigned")
    applied, found_state = done
    if applied:
        return
    if found_state < 0:
        raise RemoteResourceNotFoundException(f"there is no segment {segment_id} to become {record.state.name}")
    found = RemoteLogSegmentState(found_state).name
    raise InvalidTransitionError(f"{segment_id} is {found} and cannot become {record.state.name}")


def _applied_run(next_offset: int, found: Mapping[str, Any]) -> AppliedRun:
    def partition_of(key: _PartitionKey) -> TopicIdPartition:
        topic_id, number, topic = key
        return _partition(topic_id, number, topic)

    run = AppliedRun(
        **{
            **found,
            "next_offset": next_offset if found["error"] is None else max(found["next_offset"], 0),
            "last_record": RecordIdentity(*found["last_record"]) if found["last_record"][0] >= 0 else None,
            "refused": tuple(
                RefusedEvent(
                    offset=offset,
                    segment_id=RemoteLogSegmentId(partition_of(key), Uuid(raw)),
                    found_state=None if found_state < 0 else RemoteLogSegmentState(found_state),
                    state=RemoteLogSegmentState(state),
                )
                for offset, key, raw, found_state, state in found["refused"]
            ),
            "removals": tuple(
                (
                    offset,
                    RemotePartitionDeleteMetadata(
                        topic_id_partition=partition_of(key),
                        state=RemotePartitionDeleteState(state),
                        event_timestamp_ms=event_timestamp_ms,
                        broker_id=broker_id,
                    ),
                )
                for offset, key, state, event_timestamp_ms, broker_id in found["removals"]
            ),
        }
    )
    if run.error is not None and run.error.base_offset < 0:
        run.error.base_offset = run.next_offset
    return run
