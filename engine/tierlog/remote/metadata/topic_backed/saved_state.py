"""The snapshot from which a manager starts: written beside the broker's logs, believed only if it fits the topic.

A snapshot that is damaged, newer than the topic, of another topic or of another number of partitions is passed over,
with the reason in the log, and the topic is read from its beginning: never a wrong answer.
"""

from __future__ import annotations

import bisect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tierlog._native.batches import scan_batches
from tierlog.errors import CorruptDataError, StoreError
from tierlog.remote.api import RetriableRemoteStorageException, TopicIdPartition
from tierlog.remote.metadata.metadata_log import (
    MetadataBatches,
    MetadataLog,
    MetadataValues,
    OffsetsLostError,
    RecordIdentity,
)
from tierlog.remote.metadata.segment_table import SegmentTable
from tierlog.remote.metadata.snapshots.snapshot_file import (
    PendingRemoval,
    SnapshotMismatchError,
    SnapshotState,
    check_snapshot_fits,
    read_snapshot,
    read_snapshot_state,
    write_snapshot,
)
from tierlog.remote.metadata.topic_backed.consumed_offsets import ConsumedOffsets
from tierlog.remote.metadata.topic_backed.topic_based_config import TopicBasedConfig
from tierlog.runtime.machine import Machine

_log = logging.getLogger(__name__)

#: The file in ``log.dir``. Kafka passes over files there that it does not know.
FILE_NAME: Final = "_rlmm_snapshot"
_BOUNDS_SECONDS: Final = 10.0
#: That a start waits for the next ones of the last records, and for one read of them: the ends of all partitions.
_RECORDS_SECONDS: Final = 10.0
_READ_SECONDS: Final = 1.0
_READ_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Saved:
    """The content of a snapshot.

    Attributes:
        consumed: Up to where events are in the table.
        partitions: All whose events were applied, removed ones too.
    """

    table: SegmentTable
    consumed: ConsumedOffsets
    removals: tuple[PendingRemoval, ...]
    partitions: frozenset[TopicIdPartition]


class SavedState:
    """The snapshot file of one manager. Thread safety: one thread.

    Args:
        config: The manager's.
        machine: Has the files.
    """

    def __init__(self, config: TopicBasedConfig, *, machine: Machine) -> None:
        self._path = f"{config.log_dir}/{FILE_NAME}"
        self._as_kafka = config.kafka_semantics
        self._machine = machine

    def load(self, log: MetadataLog, *, check: Callable[[], None] = lambda: None) -> Saved | None:
        """Load the snapshot, if there is one that fits the current topic; else return None, and log the reason.

        Args:
            log: The topic, of which the last record of each metadata partition is read again.
            check: Called between those reads; what it raises ends them.

        Raises:
            RetriableRemoteStorageException: the topic's bounds cannot be had now. RemoteStorageException: nor later.
        """
        try:
            if self._machine.files.find(self._path) is None:
                return None
            state = read_snapshot_state(self._path, machine=self._machine)
            inside = [number for number in sorted(state.positions) if number < log.partition_count]
            bounds = log.bounds(inside, timeout_seconds=_BOUNDS_SECONDS)
            check_snapshot_fits(state, log.identity, log.partition_count, bounds)
            self._check_records(state.last_records, log, check)
            table, state = read_snapshot(self._path, machine=self._machine, as_kafka=self._as_kafka)
        except (CorruptDataError, StoreError) as error:
            _log.warning("%s cannot be used: %s; the metadata topic is read from its beginning", self._path, error)
            return None
        except SnapshotMismatchError as error:
            _log.warning("%s is passed over: %s; the metadata topic is read from its beginning", self._path, error)
            return None
        partitions = {*table.partitions(), *(each.metadata.topic_id_partition for each in state.removals)}
        consumed = ConsumedOffsets(state.positions, state.last_records)
        return Saved(table, consumed, state.removals, frozenset(partitions))

    def _check_records(
        self, expected: Mapping[int, RecordIdentity], log: MetadataLog, check: Callable[[], None]
    ) -> None:
        """Check that the topic has the last records: it may have lost its end, and have grown again.

        Raises: as ``load``, and SnapshotMismatchError.
        """
        left = dict(expected)
        with SegmentTable(machine=self._machine) as reading:  # nothing is assigned: it reports records, and keeps none
            while left:
                for run in self._read_some(left, log, check):
                    record = left.pop(run.partition, None)
                    if record is not None:
                        _require(record, reading.apply(_up_to(run, record.offset)).last_record, run.partition)

    def _read_some(
        self, wanted: Mapping[int, RecordIdentity], log: MetadataLog, check: Callable[[], None]
    ) -> Sequence[MetadataBatches | MetadataValues]:
        positions = {number: record.offset for number, record in wanted.items()}
        clock = self._machine.clock
        until = clock.monotonic_seconds() + _RECORDS_SECONDS
        while (seconds := until - clock.monotonic_seconds()) > 0:
            check()
            try:
                runs = log.read(positions, max_bytes=_READ_BYTES, timeout_seconds=min(seconds, _READ_SECONDS))
            except OffsetsLostError as error:
                raise SnapshotMismatchError(str(error)) from error
            if runs:
                return runs
        text = f"of metadata partitions {sorted(wanted)} no last record came within {_RECORDS_SECONDS:g} s"
        raise RetriableRemoteStorageException(text)

    def write(
        self,
        table: SegmentTable,
        log: MetadataLog,
        consumed: ConsumedOffsets,
        removals: Sequence[PendingRemoval],
    ) -> bool:
        """Write the snapshot in the place of the one before; False, logged, if that fails: the one before is left."""
        state = SnapshotState(
            identity=log.identity,
            partition_count=log.partition_count,
            positions=dict(consumed.positions),
            removals=tuple(removals),
            last_records=dict(consumed.last_records),
        )
        try:
            write_snapshot(self._path, table, state, machine=self._machine)
        except (StoreError, MemoryError, ValueError) as error:  # ValueError: a name that no snapshot can hold
            _log.warning("%s cannot be written: %s", self._path, error)
            return False
        return True


def _up_to(run: MetadataBatches | MetadataValues, offset: int) -> MetadataBatches | MetadataValues:
    """Return a run without the records behind an offset, or the batches behind the one that has it."""
    if isinstance(run, MetadataBatches):
        columns, *_ = scan_batches(run.batches, verify_crc=False)
        count = int(np.searchsorted(columns["base_offset"], offset, side="right"))
        end = 0 if not count else int(columns["position"][count - 1] + columns["size_bytes"][count - 1])
        return replace(run, batches=memoryview(run.batches)[:end])
    end = bisect.bisect_right(run.offsets, offset)
    return replace(
        run,
        offsets=run.offsets[:end],
        timestamps_ms=run.timestamps_ms[:end],
        keys=run.keys[:end],
        values=run.values[:end],
    )


def _require(expected: RecordIdentity, found: RecordIdentity | None, partition: int) -> None:
    if found != expected:
        raise SnapshotMismatchError(
            f"the topic has lost the record at offset {expected.offset} of metadata partition {partition}, and has "
            f"{'none' if found is None else 'another one'} there"
        )
