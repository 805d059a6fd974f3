"""Where readers have metadata from: a copy of the metadata topic, a snapshot, or a running Kafka; asked for in one way.

What is read is a state: the source is read to its end once, and followed no further.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tierlog.errors import ConfigError, CorruptDataError, CorruptRecordError
from tierlog.records.decoding import decode
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
)
from tierlog.remote.metadata.cluster_topic import is_bootstrap, read_cluster_topic
from tierlog.remote.metadata.metadata_view import MetadataView, PartitionKey, partition_key
from tierlog.remote.metadata.records.record_serde import decode_record
from tierlog.remote.metadata.snapshots.snapshot_file import MAGIC, is_snapshot, read_snapshot
from tierlog.remote.metadata.table.segment_table import AppliedRun, SegmentTable
from tierlog.remote.metadata.topic_backed.metadata_log import BatchRun, ValueRun
from tierlog.remote.metadata.topic_folder import read_topic_folders
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.store_urls import local_path

_log = logging.getLogger(__name__)


def open_metadata(
    source: str | Sequence[str],
    *,
    machine: Machine | None = None,
    client_keys: Mapping[str, str] | None = None,
    remember_departed: bool = False,
) -> MetadataView:
    """Read what a source knows of segments, to its end.

    Args:
        source: A broker's log directory with folders of the metadata topic, or one such folder, by path or URL; several
            add up. Or the bootstrap servers of a running Kafka: ``host:port``, several parted by commas or one by one.
            Or the path of one snapshot.
        machine: Its files, clock and threads.
        client_keys: Keys of Kafka's client, such as ``security.protocol``, for a running Kafka.
        remember_departed: Keep the ids of deleted segments too, which takes a second look at each record: for who has
            to tell a deleted segment from an unknown one. A snapshot has none of them.

    Returns:
        The view; close it (it is a context manager).

    Raises:
        ConfigError: no such source, several that do not add up, a topic without any record of a segment, or one whose
            oldest records are gone: nothing can be concluded from it. CorruptDataError: a record, batch or snapshot is
            damaged; names its place. StoreError and its kinds. RetriableRemoteStorageException: a running Kafka cannot
            be reached; RemoteStorageException: it refuses us.
    """
    machine = machine or Machine()
    sources = [source] if isinstance(source, str) else list(source)
    if not sources or not all(sources):
        raise ConfigError("no source of metadata is named")
    clusters = [each for each in sources if is_bootstrap(each) and machine.files.find(each) is None]
    if clusters and len(clusters) < len(sources):
        raise ConfigError(f"{clusters[0]} is a running Kafka: no other source of metadata adds anything to it")
    snapshots = [each for each in sources if _is_file(each, machine)]
    if snapshots and len(sources) > 1:
        raise ConfigError(f"{snapshots[0]} is a file: a snapshot is the only source of metadata, or none")
    if snapshots:
        return _of_snapshot(snapshots[0], machine)
    filling = _Filling(machine, remember_departed=remember_departed)
    try:
        if clusters:
            read_cluster_topic(",".join(clusters), filling.take, client_keys=client_keys, machine=machine)
        else:
            read_topic_folders(sources, filling.take, machine=machine)
        return filling.view(", ".join(sources))
    except BaseException:
        filling.table.close()
        raise


def _is_file(source: str, machine: Machine) -> bool:
    path = local_path(source)
    found = None if path is None else machine.files.find(path)
    return found is not None and not found.is_directory


def _of_snapshot(path: str, machine: Machine) -> MetadataView:
    """What a snapshot holds. It has no records, so that it reaches as far as the events of its segments."""
    local = local_path(path) or path
    head = bytearray(len(MAGIC))
    with machine.files.open_read(local) as file:
        begun = bytes(head[: file.read_into(head, position=0)])
    if not is_snapshot(begun):
        raise ConfigError(
            f"{path} is no snapshot of metadata: give a log directory of a broker, a snapshot or HOST:PORT"
        )
    table, _ = read_snapshot(local, machine=machine)
    return MetadataView(path, table)


class _Filling:
    """A table while records come in."""

    def __init__(self, machine: Machine, *, remember_departed: bool) -> None:
        self.table = SegmentTable(machine=machine, learns_partitions=True)
        self._places: dict[PartitionKey, int] = {}
        self._newest_ms: dict[int, int] = {}
        self._states: dict[RemoteLogSegmentId, RemoteLogSegmentState] | None = {} if remember_departed else None
        self._records = 0

    def take(self, run: BatchRun | ValueRun, where: str) -> None:
        """Apply a run. Raises CorruptRecordError: a record cannot be read; ``where`` is in its message."""
        done = self.table.apply(run)
        if done.error is not None:
            raise _explained(done.error, run).located(where)
        self._newest_ms[run.partition] = max(self._newest_ms.get(run.partition, -1), done.newest_timestamp_ms)
        self._tell_refused(done, where)
        if self._states is not None:
            _remember((value for _, value in _values(run)), self._states)
        if self.table.figures.partitions != len(self._places):
            for partition in self.table.partitions():
                self._places.setdefault(partition_key(partition), run.partition)

    def view(self, source: str) -> MetadataView:
        """What was read. Raises ConfigError: nothing was of a segment."""
        if not self._places:
            raise ConfigError(f"{source}: no record of any segment: nothing can be concluded from that")
        departed = {
            segment_id: state
            for segment_id, state in (self._states or {}).items()
            if self.table.get(segment_id) is None
        }
        newest_ms = {key: self._newest_ms[place] for key, place in self._places.items()}
        return MetadataView(source, self.table, newest_ms=newest_ms, departed=departed)

    @staticmethod
    def _tell_refused(done: AppliedRun, where: str) -> None:
        if done.refused_count:
            first = done.refused[0]
            found = "there is no such segment" if first.found_state is None else f"it is {first.found_state.name}"
            _log.warning(
                "%s: %d events that do not fit the state of their segments are passed over, the first at offset %d: "
                "%s to %s, and %s",
                where,
                done.refused_count,
                first.offset,
                first.segment_id,
                first.state.name,
                found,
            )


def _values(run: BatchRun | ValueRun) -> Iterator[tuple[int, bytes]]:
    """(offset, value) of the records that have one."""
    if isinstance(run, ValueRun):
        yield from ((at, value) for at, value in zip(run.offsets, run.values, strict=True) if value is not None)
        return
    rows = decode(run.batches, columns=("offset", "value"))
    offsets = rows.column("offset").to_pylist()
    yield from ((at, value.as_py()) for at, value in zip(offsets, rows.column("value"), strict=True) if value.is_valid)


def _explained(error: CorruptRecordError, run: BatchRun | ValueRun) -> CorruptRecordError:
    """The error of the record that it names, in the words of who reads one record at a time."""
    try:
        value = next((value for offset, value in _values(run) if offset == error.base_offset), None)
        if value is not None:
            decode_record(value)
    except CorruptRecordError as explained:
        explained.base_offset = error.base_offset
        return explained
    except CorruptDataError:
        pass  # not even the batch can be read, which the error says
    return error


def _remember(values: Iterable[bytes], states: dict[RemoteLogSegmentId, RemoteLogSegmentState]) -> None:
    """A segment's life has one direction: its furthest state is its last one, whatever order records came in."""
    for value in values:
        record = decode_record(value)
        if isinstance(record, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate):
            segment_id = record.remote_log_segment_id
            states[segment_id] = max(record.state, states.get(segment_id, record.state))
