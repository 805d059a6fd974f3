"""The closed segments of a partition's folder, as arguments of ``copy_log_segment_data``.

Why: the end offset, largest timestamp, leader epochs and the checkpoint cut at a segment's end are not written down
beside its log. A broker with an embedded storage manager would have to work them out as Kafka's RemoteLogManager does,
and a mistake shows only when a consumer misses records.

Source: Kafka RemoteLogManager.RLMCopyTask#copyLogSegment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from tierlog.errors import ConfigError, DataLossError, ObjectNotFoundError
from tierlog.log.formats.leader_epochs import LeaderEpochs, encode_leader_epochs
from tierlog.log.formats.segment_files import find_partition_folder
from tierlog.remote.api import (
    ZERO_UUID,
    IndexType,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.layouts.file_parts import fetch_epochs
from tierlog.remote.tier.layouts.listing import Candidate, Scope, SegmentFilter
from tierlog.remote.tier.layouts.log_dir import LogDirLayout
from tierlog.remote.tier.objects.object_keys import LOG, PART_SUFFIXES
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.local.store import LocalStore
from tierlog.runtime.stores.store_urls import split_last


class ClosedSegment(NamedTuple):
    """A segment that no longer grows: the two arguments of ``copy_log_segment_data``.

    Args:
        metadata: In state COPY_SEGMENT_STARTED, under the id of a new attempt.
        data: The segment's files.
    """

    metadata: RemoteLogSegmentMetadata
    data: LogSegmentData


def closed_segments(
    folder: str | os.PathLike[str],
    *,
    broker_id: int = -1,
    topic_id: Uuid | None = None,
    machine: Machine | None = None,
) -> Iterator[ClosedSegment]:
    """Yield the segments of a partition that can be copied, by offset: all but the active one, which is the last.

    Only the ends of indexes, the checkpoint and ``partition.metadata`` are read; a log is read only if its time index
    or the epochs are missing. The copy, which reads all files, checks whether they fit each other.

    Args:
        folder: ``<topic>-<partition>`` of a broker's log directory, which may be in use. Files that are no part of a
            segment (``.deleted``, ``.swap`` and what Kafka does not know) are passed over.
        broker_id: The broker that copies.
        topic_id: The topic's id, for a folder without ``partition.metadata``. It must not contradict that file.
        machine: Has the files, the clock and the randomness of new ids.

    Raises:
        ConfigError: the folder is not named as a partition's, or the topic id is another.
        ObjectNotFoundError: there is no such folder, or a segment has no index; DataLossError: it has no producer
            snapshot at its end, or the topic id is unknown. The segments before it were yielded.
        CorruptIndexError: the checkpoint is damaged. StoreError and its kinds: a file cannot be read.
    """
    folder_of = _Folder(folder, broker_id, topic_id, machine or Machine())
    with closing(folder_of.store):
        for candidate in folder_of.candidates():
            if candidate.next_start_offset is not None:
                found = folder_of.closed(candidate, None)
                if found is not None:  # else retention took it since it was listed
                    yield found


def closed_segment(
    folder: str | os.PathLike[str],
    base_offset: int,
    *,
    broker_id: int = -1,
    topic_id: Uuid | None = None,
    segment_id: Uuid | None = None,
    machine: Machine | None = None,
) -> ClosedSegment:
    """Return the closed segment of a partition that begins at an offset.

    Args:
        folder: See ``closed_segments``.
        base_offset: The offset in the names of the segment's files.
        broker_id: See ``closed_segments``.
        topic_id: See ``closed_segments``.
        segment_id: Id of the copy attempt; None makes a new one.
        machine: See ``closed_segments``.

    Raises:
        ConfigError: also for the active segment, which can still grow. ObjectNotFoundError: also if there is no such
            segment. Else as ``closed_segments``.
    """
    folder_of = _Folder(folder, broker_id, topic_id, machine or Machine())
    with closing(folder_of.store):
        found = next((each for each in folder_of.candidates() if each.start_offset == base_offset), None)
        if found is not None and found.next_start_offset is None:
            raise ConfigError(f"{folder_of.path}/{base_offset:020d}.log is the active segment: it can still grow")
        made = None if found is None else folder_of.closed(found, segment_id)
    if made is None:
        raise ObjectNotFoundError(f"{folder_of.path}/{base_offset:020d}.log: there is no such segment")
    return made


class _Folder:
    """One partition's folder, read as ``tierlog`` reads a broker's log directory."""

    def __init__(self, folder: str | os.PathLike[str], broker_id: int, topic_id: Uuid | None, machine: Machine) -> None:
        above, name = split_last(os.fspath(folder))
        self.path = f"{above}/{name}"
        named = find_partition_folder(name)
        if named is None or named.purpose:
            raise ConfigError(f"{self.path}: a folder of a partition is called <topic>-<partition>")
        info = machine.files.find(self.path)
        if info is None or not info.is_directory:
            raise ObjectNotFoundError(f"{self.path}: there is no such folder")
        self.store = LocalStore(above, machine)
        self._name = name
        self._topic, self._partition = named.topic, named.partition
        self._broker_id = broker_id
        self._topic_id = topic_id
        self._machine = machine
        self._layout = LogDirLayout(self.store, Scope(folder=f"{name}/"), machine)

    def candidates(self) -> Iterator[Candidate]:
        """Yield all segments, the active one last."""
        wanted = SegmentFilter.of(self._topic, None, [self._partition])
        for candidate in self._layout.find_candidates(wanted):
            if candidate.segment_path.rstrip("/") == self._name:
                yield candidate

    def closed(self, candidate: Candidate, segment_id: Uuid | None) -> ClosedSegment | None:
        """Return the segment, if it ends where the next one begins; None if it was deleted."""
        segment = self._layout.load(candidate)
        if segment is None:
            return None
        partition = self._identified(segment.topic_id_partition)
        data = self._files(segment)
        transactions = segment.part(IndexType.TRANSACTION)
        id_of_attempt = segment_id or Uuid.random(self._machine.rng)
        metadata = RemoteLogSegmentMetadata(
            RemoteLogSegmentId(partition, id_of_attempt),
            start_offset=segment.start_offset,
            end_offset=segment.end_offset,
            max_timestamp_ms=segment.metadata.max_timestamp_ms,
            broker_id=self._broker_id,
            event_timestamp_ms=self._machine.clock.time_ms(),
            segment_size_in_bytes=segment.size_bytes,
            segment_leader_epochs=segment.metadata.segment_leader_epochs,
            state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
            txn_idx_empty=transactions is None or not transactions.size_bytes,
        )
        return ClosedSegment(metadata, data)

    def _identified(self, partition: TopicIdPartition) -> TopicIdPartition:
        found, given = partition.topic_id, self._topic_id
        if given is not None and found not in (given, ZERO_UUID):
            raise ConfigError(f"{self.path}: the topic id is {found} (partition.metadata), not {given}")
        if given is not None:
            return TopicIdPartition(given, partition.topic, partition.partition)
        require_topic_id(partition, self.path)
        return partition

    def _files(self, segment: StoredSegment) -> LogSegmentData:
        return LogSegmentData(
            self._path(segment.log.key),
            self._index(segment, IndexType.OFFSET),
            self._index(segment, IndexType.TIMESTAMP),
            self._find(segment, IndexType.TRANSACTION),
            self._snapshot(segment),
            self._epochs(segment),
        )

    def _path(self, key: str) -> str:
        return f"{self.path}/{key.rpartition('/')[2]}"

    def _find(self, segment: StoredSegment, kind: IndexType) -> str | None:
        part = segment.part(kind)
        return None if part is None else self._path(part.key)

    def _index(self, segment: StoredSegment, kind: IndexType) -> str:
        found = self._find(segment, kind)
        if found is None:
            missing = self._path(segment.log.key).removesuffix(LOG) + PART_SUFFIXES[kind]
            raise ObjectNotFoundError(
                f"{missing}: the segment has no such index; a broker that loads the folder builds it anew, and so does "
                "tierlog copy"
            )
        return found

    def _snapshot(self, segment: StoredSegment) -> str:
        found = self._find(segment, IndexType.PRODUCER_SNAPSHOT)
        if found is None:
            raise missing_snapshot(self._path(segment.log.key), segment.end_offset)
        return found

    def _epochs(self, segment: StoredSegment) -> bytes:
        part = segment.part(IndexType.LEADER_EPOCH)
        info = None if part is None else self.store.find(part.key)
        known = fetch_epochs(self.store, info).truncate_from_end(segment.end_offset + 1)
        return encode_leader_epochs(known if len(known) else own_epochs(segment))


def own_epochs(segment: StoredSegment) -> LeaderEpochs:
    """Return the leader epochs in a segment's own batches, for a segment without a checkpoint."""
    return LeaderEpochs(sorted(segment.metadata.segment_leader_epochs.items()))


def require_topic_id(partition: TopicIdPartition, name: str) -> None:
    """Raise DataLossError if a partition's topic id is unknown."""
    if partition.topic_id == ZERO_UUID:
        text = "the topic id is not known: there is no readable partition.metadata beside the log"
        raise DataLossError(f"{name}: {text}")


def missing_snapshot(name: str, end_offset: int) -> DataLossError:
    """Make the error for a segment whose producer snapshot at ``end_offset`` (**inclusive**) is missing."""
    end = end_offset + 1
    return DataLossError(
        f"{name}: there is no producer snapshot of offset {end} ({end:020d}.snapshot): it holds what "
        "came before this log too, so that nothing here can stand in for it; a broker that loads the folder and is "
        "stopped cleanly writes it"
    )
