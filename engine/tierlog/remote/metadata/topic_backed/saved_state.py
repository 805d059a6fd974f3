"""The snapshot from which a manager starts: written beside the broker's logs, believed only if it fits the topic.

A snapshot that is damaged, newer than the topic, of another topic or of another number of partitions is passed over,
with the reason in the log, and the topic is read from its beginning: never a wrong answer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tierlog.errors import CorruptDataError, StoreError
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.metadata.metadata_log import MetadataLog
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
from tierlog.remote.metadata.topic_backed.topic_based_config import TopicBasedConfig
from tierlog.runtime.machine import Machine

_log = logging.getLogger(__name__)

#: The file in ``log.dir``. Kafka passes over files there that it does not know.
FILE_NAME: Final = "_rlmm_snapshot"
_BOUNDS_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Saved:
    """The content of a snapshot.

    Attributes:
        positions: Metadata partition → the first offset that is not in the table.
        partitions: All whose events were applied, removed ones too.
    """

    table: SegmentTable
    positions: Mapping[int, int]
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

    def load(self, log: MetadataLog) -> Saved | None:
        """Load the snapshot, if there is one that fits the current topic; else return None, and log the reason.

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
            table, state = read_snapshot(self._path, machine=self._machine, as_kafka=self._as_kafka)
        except (CorruptDataError, StoreError) as error:
            _log.warning("%s cannot be used: %s; the metadata topic is read from its beginning", self._path, error)
            return None
        except SnapshotMismatchError as error:
            _log.warning("%s is passed over: %s; the metadata topic is read from its beginning", self._path, error)
            return None
        partitions = {*table.partitions(), *(each.metadata.topic_id_partition for each in state.removals)}
        return Saved(table, state.positions, state.removals, frozenset(partitions))

    def write(
        self,
        table: SegmentTable,
        log: MetadataLog,
        positions: Mapping[int, int],
        removals: Sequence[PendingRemoval],
    ) -> bool:
        """Write the snapshot in the place of the one before; False, logged, if that fails: the one before is left."""
        state = SnapshotState(
            identity=log.identity,
            partition_count=log.partition_count,
            positions=dict(positions),
            removals=tuple(removals),
        )
        try:
            write_snapshot(self._path, table, state, machine=self._machine)
        except (StoreError, MemoryError, ValueError) as error:  # ValueError: a name that no snapshot can hold
            _log.warning("%s cannot be written: %s", self._path, error)
            return False
        return True
