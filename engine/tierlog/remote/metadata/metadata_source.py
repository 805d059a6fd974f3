"""The sources of readers' metadata: a copy of the metadata topic, a snapshot, or a running Kafka; opened in one way.

The result is a state: the source is read to its end once. A running Kafka can be read on from there.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from tierlog.errors import ConfigError, CorruptDataError, CorruptRecordError, TierlogError
from tierlog.records.decoding import decode
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RetriableRemoteStorageException,
)
from tierlog.remote.metadata.metadata_log import METADATA_TOPIC, MetadataBatches, MetadataValues, OffsetsLostError
from tierlog.remote.metadata.metadata_view import MetadataView, PartitionKey, partition_key
from tierlog.remote.metadata.record_serde import decode_record
from tierlog.remote.metadata.segment_table import AppliedRun, SegmentTable
from tierlog.remote.metadata.snapshots.snapshot_file import MAGIC, is_snapshot, read_snapshot
from tierlog.remote.metadata.topic_backed.kafka_metadata_log import KafkaMetadataLog, open_cluster_log
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.tier import Tier, iter_batch_runs
from tierlog.remote.tier.tier_paths import open_tier
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
    """Read the segments' metadata from a source, to its end.

    Args:
        source: A broker's log directory with folders of the metadata topic, or one such folder, by path or URL; several
            add up. Or the bootstrap servers of a running Kafka: ``host:port``, several parted by commas or one by one.
            Or the path of one snapshot.
        machine: Its files, clock and threads.
        client_keys: Keys of Kafka's client, such as ``security.protocol``, for a running Kafka.
        remember_departed: Remember the ids of deleted segments too, which takes a second look at each record: for
            callers that have to distinguish a deleted segment from an unknown one. A snapshot has none of them.

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
    bootstrap = find_bootstrap(sources, machine=machine)
    snapshots = [each for each in sources if _is_file(each, machine)]
    if snapshots and len(sources) > 1:
        raise ConfigError(f"{snapshots[0]} is a file: a snapshot is the only source of metadata, or none")
    if snapshots:
        return _of_snapshot(snapshots[0], machine)
    filling = _Filling(machine, remember_departed=remember_departed)
    try:
        if bootstrap is not None:
            read_cluster_topic(bootstrap, filling.take, client_keys=client_keys, machine=machine)
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
    """Load a snapshot. It has no records, so that it reaches as far as the events of its segments."""
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

    def take(self, run: MetadataBatches | MetadataValues, where: str) -> None:
        """Apply a run. Raises CorruptRecordError: a record cannot be read; ``where`` is in its message."""
        done = self.table.apply(run)
        if done.error is not None:
            raise _explained(done.error, run).located(where)
        self._newest_ms[run.partition] = max(self._newest_ms.get(run.partition, -1), done.newest_timestamp_ms)
        self._tell_refused(done, where)
        if self._states is not None:
            _remember((value for _, value in record_values(run)), self._states)
        if self.table.figures.partitions != len(self._places):
            for partition in self.table.partitions():
                self._places.setdefault(partition_key(partition), run.partition)

    def view(self, source: str) -> MetadataView:
        """Return the view of the records read. Raises ConfigError: none was of a segment."""
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


def record_values(run: MetadataBatches | MetadataValues) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, value) of the records that have one."""
    if isinstance(run, MetadataValues):
        yield from ((at, value) for at, value in zip(run.offsets, run.values, strict=True) if value is not None)
        return
    rows = decode(run.batches, columns=("offset", "value"))
    offsets = rows.column("offset").to_pylist()
    yield from ((at, value.as_py()) for at, value in zip(offsets, rows.column("value"), strict=True) if value.is_valid)


def _explained(error: CorruptRecordError, run: MetadataBatches | MetadataValues) -> CorruptRecordError:
    """Return the error of the record that it names, in the words of a reader of single records."""
    try:
        value = next((value for offset, value in record_values(run) if offset == error.base_offset), None)
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


_ADDRESS: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
_READ_BYTES: Final = 8 << 20
_READ_SECONDS: Final = 5.0


def is_bootstrap(text: str) -> bool:
    """Whether a text has the form ``host:port[,host:port…]``; a file may have such a name too."""
    return all(map(_ADDRESS.fullmatch, text.split(",")))


def find_bootstrap(sources: Sequence[str], *, machine: Machine) -> str | None:
    """Return the bootstrap servers where the sources are a running Kafka.

    Raises:
        ConfigError: there are others beside it.
    """
    servers = [each for each in sources if is_bootstrap(each) and machine.files.find(each) is None]
    if servers and len(servers) < len(sources):
        raise ConfigError(f"{servers[0]} is a running Kafka: no other source of metadata adds anything to it")
    return ",".join(servers) or None


def read_cluster_topic(
    bootstrap: str,
    take: Callable[[MetadataValues, str], object],
    *,
    client_keys: Mapping[str, str] | None = None,
    timeout_seconds: float = 600.0,
    machine: Machine | None = None,
) -> None:
    """Read the metadata topic of a running Kafka, from its beginning to its end as of this call.

    Args:
        bootstrap: ``host:port[,host:port…]``.
        take: Called with each run, of one metadata partition in the order of its offsets, and its source, for messages.
            An error of it ends the reading.
        client_keys: Keys of Kafka's client, such as ``security.protocol``, as a broker's file has them.
        timeout_seconds: The longest that all of it may take.
        machine: Its clock and threads.

    Raises:
        ConfigError: there is no such topic, its oldest records are gone so that nothing can be concluded from it, a key
            is wrong, or confluent-kafka is not installed. RetriableRemoteStorageException: the cluster cannot be
            reached, or not all records came in the time. RemoteStorageException: it refuses us.
    """
    machine = machine or Machine()
    until = machine.clock.monotonic_seconds() + timeout_seconds
    with open_cluster_log(
        bootstrap, client_keys=client_keys, timeout_seconds=min(timeout_seconds, 30.0), machine=machine
    ) as log:
        _read_to_end(log, {}, take, bootstrap, until=until, machine=machine)


def _read_to_end(
    log: KafkaMetadataLog,
    positions: dict[int, int],
    take: Callable[[MetadataValues, str], object],
    bootstrap: str,
    *,
    until: float,
    machine: Machine,
) -> None:
    """Read from these positions, of each metadata partition 0 if it has none, and move them."""
    left = until - machine.clock.monotonic_seconds()
    bounds = log.bounds(range(log.partition_count), timeout_seconds=min(left, 30.0))
    trimmed = {
        number: found.start_offset for number, found in bounds.items() if found.start_offset > positions.get(number, 0)
    }
    if trimmed:
        told = ", ".join(f"{METADATA_TOPIC}-{number} begins at {first}" for number, first in trimmed.items())
        raise ConfigError(f"{bootstrap}: the oldest metadata is gone ({told}): what it said of segments is not known")
    for number, found in bounds.items():
        if found.end_offset < positions.setdefault(number, 0):
            raise OffsetsLostError(f"{bootstrap}: {METADATA_TOPIC}-{number} was truncated at {found.end_offset}")
    while behind := {number: at for number, at in positions.items() if at < bounds[number].end_offset}:
        left = until - machine.clock.monotonic_seconds()
        if left <= 0:
            raise RetriableRemoteStorageException(f"{bootstrap}: {METADATA_TOPIC} was not read to its end in time")
        for run in log.read(behind, max_bytes=_READ_BYTES, timeout_seconds=min(left, _READ_SECONDS)):
            take(run, f"{bootstrap}: {METADATA_TOPIC}-{run.partition}")
            positions[run.partition] = run.next_offset


class FollowedCluster:
    """The metadata topic of a running Kafka, each time read on from where it was read to.

    Args:
        bootstrap: ``host:port[,host:port…]``.
        client_keys: Keys of Kafka's client, such as ``security.protocol``.
        machine: Its clock and threads.

    Between two reads nothing is open. Views that were handed out share one table, which is never closed here: it goes
    with the last of them.

    Thread safety: one thread at a time.
    """

    def __init__(
        self, bootstrap: str, *, client_keys: Mapping[str, str] | None = None, machine: Machine | None = None
    ) -> None:
        self._bootstrap = bootstrap
        self._client_keys = client_keys
        self._machine = machine or Machine()
        self._identity = ""
        self._view: MetadataView | None = None
        self._begin()

    def read(self, *, timeout_seconds: float = 600.0) -> MetadataView:
        """Read to the topic's end as of this call; return the same object if nothing has come.

        Behind an error a later read goes on where this one ended; where the topic is another one, or was truncated, or
        a record could not be read, it begins anew.

        Raises:
            As ``open_metadata`` of a running Kafka.
        """
        until = self._machine.clock.monotonic_seconds() + timeout_seconds
        for is_again in (False, True):
            try:
                self._read_on(until)
                break
            except TierlogError as error:
                if not error.retriable:
                    self._begin()
                if is_again or not isinstance(error, OffsetsLostError):
                    raise
        if self._view is None:
            self._view = self._filling.view(self._bootstrap)
        return self._view

    def _read_on(self, until: float) -> None:
        left = until - self._machine.clock.monotonic_seconds()
        with open_cluster_log(
            self._bootstrap, client_keys=self._client_keys, timeout_seconds=min(left, 30.0), machine=self._machine
        ) as log:
            if log.identity != self._identity:
                self._begin()
            self._identity = log.identity
            _read_to_end(log, self._positions, self._take, self._bootstrap, until=until, machine=self._machine)

    def _begin(self) -> None:
        self._filling = _Filling(self._machine, remember_departed=False)
        self._positions: dict[int, int] = {}
        self._view = None

    def _take(self, run: MetadataValues, where: str) -> None:
        self._filling.take(run, where)
        self._view = None


#: Takes a run, with the name of the file that it is from.
Take = Callable[[MetadataBatches, str], None]


def read_topic_folders(paths: Sequence[str], take: Take, *, machine: Machine) -> dict[int, int]:
    """Read all records of the topic, to its current end.

    Args:
        paths: Log directories with folders of the topic, or such folders.
        take: Gets the batches of each metadata partition in order; those of a replica again from its first offset on.
        machine: Its files and clock.

    Returns:
        Metadata partition → the first offset that is there.

    Raises:
        ConfigError: a directory without such a folder, or a partition whose oldest records are gone: nothing can be
            concluded from it. CorruptDataError: a batch is damaged; names its place. StoreError and its kinds.
    """
    firsts: dict[int, int] = {}
    with ExitStack() as opened:
        # Each is opened when its turn comes: a log directory's end is that of its listing.
        for path in paths:
            found = _read_folder(opened.enter_context(open_tier(path, layout="log-dir", machine=machine)), take)
            for place, first in found.items():
                firsts[place] = min(first, firsts.get(place, first))
    trimmed = {place: first for place, first in firsts.items() if first > 0}
    if trimmed:
        told = ", ".join(f"{METADATA_TOPIC}-{place} begins at {first}" for place, first in sorted(trimmed.items()))
        raise ConfigError(f"the oldest metadata is gone ({told}): what it said of segments is not known")
    return firsts


def _read_folder(tier: Tier, take: Take) -> dict[int, int]:
    firsts: dict[int, int] = {}
    for segment in tier.iter_segments(METADATA_TOPIC):
        firsts.setdefault(segment.topic_id_partition.partition, segment.start_offset)
        for run in _iter_runs(tier, segment):
            take(run, segment.place)
    if not firsts:
        raise ConfigError(f"{tier.describe()}: no records of {METADATA_TOPIC} are there")
    return firsts


def _iter_runs(tier: Tier, segment: StoredSegment) -> Iterator[MetadataBatches]:
    for run in iter_batch_runs(tier, segment):
        next_offset = int(run.column("last_offset")[-1]) + 1
        yield MetadataBatches(segment.topic_id_partition.partition, next_offset, run.data)
