"""Targets of restored metadata: a new snapshot, or ``__remote_log_metadata-N`` as a broker has it on its disk.

In the folder each segment has the two records that its copy wrote, STARTED and FINISHED, in the partition in which
brokers look for them. Batches have leader epoch 0 and no producer; record times are those of this run, so that no
retention of the topic takes them for old. A partition that gets none is there too, empty. Logs roll as Kafka's do, by
size. The folder is whole when the file of a clean stop is in it: that is written last, behind the checkpoints.

A snapshot is of no topic: no manager continues its own topic from it. A folder or file that is not empty is refused,
also one from an interrupted run.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from tierlog._native.batches import scan_batches
from tierlog.errors import ConfigError
from tierlog.log.checks.index_checks import IndexBuilder
from tierlog.log.formats.identity_files import PartitionMetadata, encode_partition_metadata
from tierlog.log.formats.leader_epochs import LeaderEpochs, encode_leader_epochs
from tierlog.log.formats.segment_files import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    SegmentFileKind,
    segment_file_name,
)
from tierlog.records.builder import RecordBatchBuilder
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    Uuid,
)
from tierlog.remote.metadata.metadata_log import METADATA_TOPIC, metadata_partition
from tierlog.remote.metadata.record_serde import encode_record
from tierlog.remote.metadata.segment_table import SegmentTable, update_of
from tierlog.remote.metadata.snapshots.snapshot_file import SnapshotState, write_snapshot
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import UpdatableFile
from tierlog.upkeep.exporting.broker_directory import BrokerDirectory, LogExtent, TargetCluster

#: Smallest batch that is written before the end; batches of Kafka's producer are as large.
_BATCH_BYTES: Final = 16 << 10
#: Kafka's segment.bytes by default.
SEGMENT_BYTES: Final = 1 << 30
_LEADER_EPOCH: Final = 0


class RestoreTarget(abc.ABC):
    """The target of one restore: it receives segments in any order, from one thread. An unfinished target must not be
    used.

    Attributes:
        known: How many of the segments the target had already: these were not written again. A new one knows none.
    """

    known: int = 0

    def look(self, segment_id: RemoteLogSegmentId) -> None:  # noqa: B027 - a new target has nothing to note
        """Note a segment that will be added: called with each one before the first ``add``."""

    def check(  # noqa: B027 - a new target contradicts nothing
        self, segments: Callable[[], Iterable[tuple[RemoteLogSegmentMetadata, int]]]
    ) -> None:
        """Compare the segments that will be added with the target: called between the last ``look`` and the first
        ``add``.

        Args:
            segments: Returns the arguments of the later ``add`` calls, at the cost of reading them all.

        Raises:
            ConfigError: the target contradicts these segments, or would delete them. StoreError and its kinds: the
                target cannot be asked.
        """

    @abc.abstractmethod
    def add(self, metadata: RemoteLogSegmentMetadata, *, started_ms: int) -> None:
        """Take one segment.

        Args:
            metadata: In state COPY_SEGMENT_FINISHED.
            started_ms: Event time of its COPY_SEGMENT_STARTED.
        """

    @abc.abstractmethod
    def finish(self) -> None:
        """Make the added segments durable and the target whole."""


def records_of(
    finished: RemoteLogSegmentMetadata, *, started_ms: int
) -> tuple[RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate]:
    """STARTED, without custom metadata as nothing is copied yet, and FINISHED, as Kafka's copy task writes them."""
    started = replace(
        finished,
        event_timestamp_ms=started_ms,
        custom_metadata=None,
        state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
    )
    return started, update_of(finished)


class TopicFolder(RestoreTarget):
    """A log directory with the partitions of the metadata topic, and nothing else. One thread.

    Args:
        folder: Made if it does not exist.
        partition_count: Of the topic in the cluster that gets the folder.
        machine: Files and clock.
        topic_id: Of the topic there: a broker without it in a folder sets the folder aside. None to leave it out.
        target: The broker whose log directory this becomes; None for a folder whose partitions are moved into one.
        segment_bytes: Size at which a log rolls.

    Raises:
        ConfigError: there is something in the folder already.
    """

    def __init__(
        self,
        folder: str,
        *,
        partition_count: int,
        machine: Machine,
        topic_id: Uuid | None = None,
        target: TargetCluster | None = None,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._files = machine.files
        if self._files.find(folder) is not None:
            found = next(self._files.iter_directory(folder), None)
            if found is not None:
                raise ConfigError(f"{folder} is not empty ({found.name} is in it): give a new folder")
        self._folder = folder
        self._topic_id = topic_id
        self._directory = BrokerDirectory(machine, folder, target)
        self._began = False
        self._count = partition_count
        self._logs: dict[int, _PartitionLog] = {}
        self._machine = machine
        self._segment_bytes = segment_bytes

    def add(self, metadata: RemoteLogSegmentMetadata, *, started_ms: int) -> None:
        """Append the records of a segment. Raises StoreError and its kinds: the disk."""
        place = metadata_partition(metadata.topic_id_partition, self._count)
        log = self._logs.get(place)
        if log is None:
            log = self._logs[place] = self._begin(place)
        for record in records_of(metadata, started_ms=started_ms):
            log.append(encode_record(record), timestamp_ms=self._machine.clock.time_ms())

    def finish(self) -> None:
        """Write the buffered batches, the partitions without records, and the files that complete the log directory."""
        extents = []
        for place in range(self._count):
            log = self._logs.pop(place, None) or self._begin(place)
            extents.append(LogExtent(METADATA_TOPIC, place, 0, log.finish()))
        self._directory.finish(extents)

    def _begin(self, place: int) -> _PartitionLog:
        if not self._began:
            self._directory.prepare()
            self._began = True
        folder = f"{self._folder}/{METADATA_TOPIC}-{place}"
        self._files.make_directories(folder)
        epochs = encode_leader_epochs(LeaderEpochs([(_LEADER_EPOCH, 0)]))
        self._files.write_whole(f"{folder}/{LEADER_EPOCH_CHECKPOINT}", epochs)
        if self._topic_id is not None:
            content = encode_partition_metadata(PartitionMetadata(self._topic_id))
            self._files.write_whole(f"{folder}/{PARTITION_METADATA}", content)
        return _PartitionLog(self._machine, folder, self._segment_bytes)


class _PartitionLog:
    """The log of one partition, with its indexes. Its file is open only while a batch is written: there may be more
    partitions than a process may have open files.
    """

    def __init__(self, machine: Machine, folder: str, segment_bytes: int) -> None:
        self._files = machine.files
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._batch = RecordBatchBuilder(0, leader_epoch=_LEADER_EPOCH)
        self._begin_segment(0)

    def _begin_segment(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._size_bytes = 0
        self._indexes = IndexBuilder(base_offset)

    def append(self, value: bytes, *, timestamp_ms: int) -> None:
        """Add a record."""
        self._batch.append(None, value, timestamp_ms=timestamp_ms)
        if self._batch.uncompressed_size_bytes >= _BATCH_BYTES:
            self._write()

    def finish(self) -> int:
        """Write the rest; returns the offset behind the last record."""
        if len(self._batch) or self._size_bytes == 0:
            self._write()
        self._close_segment()
        return self._batch.next_offset

    def _write(self) -> None:
        batch = self._batch.build() if len(self._batch) else b""
        if self._size_bytes and self._size_bytes + len(batch) > self._segment_bytes:
            self._close_segment()
            self._begin_segment(self._batch.base_offset)
        with self._open() as file:
            file.append(batch)
        columns, _, _, fault = scan_batches(batch, base_position=self._size_bytes)
        assert fault is None, "what was built is sound"
        self._indexes.add(columns)
        self._size_bytes += len(batch)
        self._batch = RecordBatchBuilder(self._batch.next_offset, leader_epoch=_LEADER_EPOCH)

    def _close_segment(self) -> None:
        with self._open() as file:
            file.fsync()
        self._files.write_whole(self._path(SegmentFileKind.OFFSET_INDEX), self._indexes.offset_index())
        self._files.write_whole(self._path(SegmentFileKind.TIME_INDEX), self._indexes.time_index())
        self._files.fsync_directory(self._folder)

    def _open(self) -> UpdatableFile:
        return self._files.open_update(self._path(SegmentFileKind.LOG))

    def _path(self, kind: SegmentFileKind) -> str:
        return f"{self._folder}/{segment_file_name(self._base_offset, kind)}"


class SnapshotFile(RestoreTarget):
    """One snapshot. One thread; ``close`` it.

    Args:
        path: A new file, or an empty one.
        machine: Its files.

    Raises:
        ConfigError: there is something in the file already.
    """

    def __init__(self, path: str, *, machine: Machine) -> None:
        found = machine.files.find(path)
        if found is not None and (found.is_directory or found.size_bytes):
            raise ConfigError(f"{path} exists and is not empty: give a new file")
        self._path = path
        self._machine = machine
        self._table = SegmentTable(machine=machine, learns_partitions=True)

    def add(self, metadata: RemoteLogSegmentMetadata, *, started_ms: int) -> None:  # noqa: ARG002 - no field for it
        """Take one segment; about 100 bytes of memory."""
        self._table.put(metadata)

    def finish(self) -> None:
        """Write the file. Raises StoreError and its kinds."""
        write_snapshot(self._path, self._table, SnapshotState(), machine=self._machine)

    def close(self) -> None:
        """Release the table; idempotent."""
        self._table.close()
