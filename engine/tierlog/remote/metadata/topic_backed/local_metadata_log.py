"""The metadata topic in a directory of this process's own: for a single broker, without a Kafka beside it.

Nothing is seen before it is on disk: a partition's high watermark moves behind the fsync, and reads end there. So a
snapshot never has records that a power cut removed. One fsync serves all appends that came while the one before it ran.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tierlog._native.batches import scan_batches
from tierlog.errors import ConfigError, TierlogError
from tierlog.log.formats.identity_files import parse_partition_metadata
from tierlog.log.formats.segment_files import PARTITION_METADATA, find_partition_folder
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_errors import AppendRefusedError, LogTruncatedError, OffsetOutOfRangeError
from tierlog.log.local.log_reads import FetchIsolation, LogOffsets
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.builder import RecordBatchBuilder
from tierlog.remote.api import RemoteStorageException, RetriableRemoteStorageException, Uuid
from tierlog.remote.metadata.metadata_log import (
    METADATA_TOPIC,
    LogBounds,
    MetadataBatches,
    OffsetsLostError,
    kip_error,
    kip_errors,
)
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.machine.scheduling import Future, NotSubmitted, PendingFuture

_log = logging.getLogger(__name__)

#: Partitions that are written side by side: so many fsyncs may wait for the disk at once.
_WRITERS: Final = 4
#: Bytes of values up to which records that came together share a batch; a larger record has one to itself.
_BATCH_BYTES: Final = 64 << 10


class LocalMetadataLogs:
    """The opener of a directory's metadata topic for a manager.

    Args:
        path: The directory, made if it is not there; one open log, and so one manager, at a time.
        partition_count: How many partitions the topic has.
        retention_ms: Retention of its records; -1 for ever, or the metadata of segments that live longer is lost, and
            with it their data.
        machine: The machine that it runs on.

    Thread safety: any number of threads.
    """

    def __init__(
        self, path: str, *, partition_count: int = 50, retention_ms: int = -1, machine: Machine | None = None
    ) -> None:
        self._path = path
        self._partition_count = partition_count
        self._retention_ms = retention_ms
        self._machine = machine or Machine()

    def open(self, *, timeout_seconds: float) -> LocalMetadataLog:  # noqa: ARG002 - a recovery is not left halfway
        """Open the topic, made if it is not there, and recovered if it was not closed; see ``MetadataLogs.open``.

        The time limit is ignored: a recovery of unflushed records is not given up halfway.

        Raises:
            ConfigError: the topic has another number of partitions. RetriableRemoteStorageException: another manager or
                process has the directory. RemoteStorageException: the disk, or the files on it.
        """
        with kip_errors(ConfigError):
            topic = open_local_topic(
                self._path,
                partition_count=self._partition_count,
                retention_ms=self._retention_ms,
                machine=self._machine,
            )
        return LocalMetadataLog(topic, machine=self._machine)


@dataclass(frozen=True, slots=True)
class _Append:
    """A record that waits to be stored, and its future."""

    value: bytes
    future: PendingFuture[int]


@dataclass(slots=True)
class _Partition:
    """One log, and what waits for it. ``waiting`` and ``is_written`` are guarded by the lock of the whole."""

    log: UnifiedLog
    waiting: collections.deque[_Append] = field(default_factory=collections.deque)
    is_written: bool = False


class LocalMetadataLog(Closeable):
    """The metadata topic of a directory, as a MetadataLog; made by ``LocalMetadataLogs.open``, closed with it.

    After a failed write or fsync of any partition every call ends with that error: open it anew, which recovers it.

    Args:
        topic: The open topic; ``close`` closes it.
        machine: Has the threads and the clock.

    Thread safety: any number of threads; one read at a time.
    """

    def __init__(self, topic: LocalTopic, *, machine: Machine) -> None:
        self._topic = topic
        self._machine = machine
        self._changed = machine.scheduler.condition()
        self._pool = machine.scheduler.pool(_WRITERS, name="tierlog-metadata-writer")
        self._partitions = tuple(_Partition(log) for log in topic.logs)
        self._woken = False
        self._closed = False
        self._failure: RemoteStorageException | None = None
        for each in self._partitions:
            each.log.add_listener(self._offsets_changed)

    @property
    def identity(self) -> str:
        """The topic's id, as Kafka writes it; the partitions' folders have it."""
        return str(self._topic.topic_id)

    @property
    def partition_count(self) -> int:
        return len(self._partitions)

    # ---- appending

    def append(self, partition: int, value: bytes) -> Future[int]:
        """Append a record, as MetadataLog says; the future gives its offset once it is on disk. How long that takes is
        the disk's business: nothing ends a fsync.
        """
        future: PendingFuture[int] = self._machine.scheduler.future()
        target = self._partition(partition)
        with self._changed:
            self._check_open()
            target.waiting.append(_Append(value, future))
            begins = not target.is_written
            target.is_written = True
        if begins:
            try:
                self._pool.submit(partial(self._write, target))
            except NotSubmitted as error:
                self._fail(self._take(target, ended=True), RetriableRemoteStorageException(str(error)))
        return future

    def _write(self, target: _Partition) -> None:
        """Store what waits for a partition, until nothing does."""
        while taken := self._take(target):
            self._store(target.log, taken)

    def _take(self, target: _Partition, *, ended: bool = False) -> list[_Append]:
        """Take all that waits for a partition; if nothing does, or ``ended``, its next append begins a writer."""
        with self._changed:
            taken = list(target.waiting)
            target.waiting.clear()
            target.is_written = bool(taken) and not ended
            return taken

    def _store(self, log: UnifiedLog, taken: Sequence[_Append]) -> None:
        """Append, sync once, let readers see it, and complete the waiters."""
        failure = RemoteStorageException("the append failed")
        stored: list[tuple[int, list[_Append]]] = []
        try:
            self._require_sound()
            epoch = max(log.leader_epoch_cache.latest_epoch or 0, 0)
            for group in _groups(taken):
                try:
                    appended = log.append_as_leader(self._encoded(group), leader_epoch=epoch)
                except AppendRefusedError as error:  # by its size, for example: the others are no part of that
                    self._fail(group, kip_error(error))
                else:
                    stored.append((appended.first_offset, group))
            log.flush()
            log.update_high_watermark(log.log_end_offset)
            for first_offset, group in stored:
                for at, each in enumerate(group):
                    each.future.set_result(first_offset + at)
        except RemoteStorageException as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - whatever it is, callers wait, and the log's content is unknown
            failure = self._go_offline(error)
        finally:
            self._fail((each for each in taken if not each.future.done()), failure)

    def _encoded(self, group: Sequence[_Append]) -> bytearray:
        builder = RecordBatchBuilder(0)
        now_ms = self._machine.clock.time_ms()
        for each in group:
            builder.append(None, each.value, timestamp_ms=now_ms)
        return bytearray(builder.build())

    def _fail(self, appends: Iterable[_Append], error: RemoteStorageException) -> None:
        for each in appends:
            each.future.set_exception(error)

    # ---- reading

    def bounds(self, partitions: Sequence[int], *, timeout_seconds: float) -> dict[int, LogBounds]:  # noqa: ARG002
        """Return the bounds of some partitions now, from memory; records that are not on disk yet do not count."""
        with self._changed:
            self._check_open()
        return {number: _bounds(self._partition(number).log) for number in partitions}

    def read(self, positions: Mapping[int, int], *, max_bytes: int, timeout_seconds: float) -> list[MetadataBatches]:
        """Return whole batches from these offsets on, as MetadataLog says; an equal share of the bytes for each
        partition, one batch of each at least. A run begins with the batch that holds its offset.
        """
        wanted = {number: self._partition(number).log for number in positions}
        clock = self._machine.clock
        until = clock.monotonic_seconds() + timeout_seconds
        with self._changed:
            while True:
                self._check_open()
                found = [number for number, log in wanted.items() if _holds_more(log, positions[number])]
                left = until - clock.monotonic_seconds()
                if found or self._woken or left <= 0:
                    self._woken = False
                    break
                self._changed.wait(left)
        share = max(1, max_bytes // max(1, len(positions)))
        return [self._run(number, wanted[number], positions[number], share) for number in found]

    def _run(self, partition: int, log: UnifiedLog, offset: int, max_bytes: int) -> MetadataBatches:
        try:
            found = log.read(offset, max_bytes=max_bytes, isolation=FetchIsolation.HIGH_WATERMARK)
            if not found.records:
                raise RemoteStorageException(
                    f"{log.folder}: nothing stands at offset {offset}, below the end of the log"
                )
            data = found.records[0].read()
        except (OffsetOutOfRangeError, LogTruncatedError) as error:
            raise OffsetsLostError(str(error)) from error
        except RemoteStorageException:
            raise
        except TierlogError as error:
            raise self._go_offline(error) from error
        columns, end_position, _, fault = scan_batches(data, verify_crc=False)  # applying them checks the sums
        if fault is not None or not end_position:
            text = "no whole batch" if fault is None else str(fault)
            raise RemoteStorageException(f"{found.records[0].path} @ {found.position}: {text}") from fault
        return MetadataBatches(partition, int(columns["last_offset"][-1]) + 1, data[:end_position])

    def wake(self) -> None:
        """End a read that waits in another thread at once, or the next one."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def _offsets_changed(self, offsets: LogOffsets) -> None:  # noqa: ARG002 - a read looks for itself
        with self._changed:
            self._changed.notify_all()

    # ---- state

    def _partition(self, number: int) -> _Partition:
        if not 0 <= number < len(self._partitions):
            raise RemoteStorageException(f"{METADATA_TOPIC} has {len(self._partitions)} partitions, and no {number}")
        return self._partitions[number]

    def _check_open(self) -> None:
        """Raise the log's error, if it has one. The caller holds the lock."""
        if self._closed:
            raise RemoteStorageException("the metadata log is closed")
        if self._failure is not None:
            raise self._failure

    def _require_sound(self) -> None:
        with self._changed:
            if self._failure is not None:
                raise self._failure

    def _go_offline(self, error: Exception) -> RemoteStorageException:
        """Store the first error as that of every later call, and end waiting reads."""
        with self._changed:
            if self._closed:
                return RemoteStorageException("the metadata log is closed")
            if self._failure is None:
                self._failure = RemoteStorageException(f"the metadata topic is offline: {error}")
                self._failure.__cause__ = error
                _log.error("%s", self._failure, exc_info=error)
                self._changed.notify_all()
            return self._failure

    def close(self) -> None:
        """Store the records appended so far, and close the topic; waits for the disk. Reads that wait end with an
        error. Idempotent.

        Raises:
            RemoteStorageException: the topic could not be closed cleanly: the next opening recovers it.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self._pool.close(cancel=False)
        for each in self._partitions:
            each.log.remove_listener(self._offsets_changed)
        with kip_errors():
            self._topic.directory.close()


def _groups(appends: Iterable[_Append]) -> Iterator[list[_Append]]:
    """Yield records that share a batch: in order, up to ``_BATCH_BYTES`` of values."""
    group: list[_Append] = []
    size_bytes = 0
    for each in appends:
        if group and size_bytes + len(each.value) > _BATCH_BYTES:
            yield group
            group, size_bytes = [], 0
        group.append(each)
        size_bytes += len(each.value)
    if group:
        yield group


def _bounds(log: UnifiedLog) -> LogBounds:
    offsets = log.offsets
    return LogBounds(offsets.log_start_offset, offsets.high_watermark)


def _holds_more(log: UnifiedLog, offset: int) -> bool:
    """Whether a log has something at an offset. Raises OffsetsLostError: the offset lies outside of it."""
    bounds = _bounds(log)
    if not bounds.start_offset <= offset <= bounds.end_offset:
        raise OffsetsLostError(
            f"{log.folder} holds offsets {bounds.start_offset} to {bounds.end_offset}, and {offset} was to be read"
        )
    return offset < bounds.end_offset


@dataclass(frozen=True, slots=True)
class LocalTopic:
    """The open topic.

    Attributes:
        directory: Closes the logs.
        logs: By partition; all that each of them has is on disk, and below its high watermark.
    """

    directory: LogDirectory
    topic_id: Uuid
    logs: tuple[UnifiedLog, ...]


def open_local_topic(path: str, *, partition_count: int, retention_ms: int, machine: Machine) -> LocalTopic:
    """Open the topic of a directory, which is made if it is not there; after a crash its logs are recovered.

    Args:
        path: The directory; this process's alone while it is open.
        partition_count: How many partitions it has.
        retention_ms: Retention of records; -1 for ever.
        machine: The machine that it runs on.

    Raises:
        ConfigError: the topic has another number of partitions, or partitions of two topics. StoreUnavailableError:
            another process has the directory. CorruptIndexError: a file beside the logs is malformed. StoreError.
    """
    config = LogConfig(retention_ms=retention_ms)
    # Not the sole replica: the high watermark is ours to move, behind each fsync.
    directory = LogDirectory.open(path, machine=machine, config=config, is_sole_replica=False)
    try:
        found = _topic_ids(path, machine)
        _check_count(path, found, partition_count)
        ids = {topic_id for topic_id in found.values() if topic_id is not None}
        if len(ids) > 1:
            raise ConfigError(f"{path} has partitions of {len(ids)} topics: {', '.join(sorted(map(str, ids)))}")
        topic_id = ids.pop() if ids else Uuid.random(machine.rng)
        logs = [directory.log(METADATA_TOPIC, number, topic_id=topic_id) for number in reversed(range(partition_count))]
        for log in logs:
            log.flush()  # a process that was killed leaves what only the page cache has
            log.update_high_watermark(log.log_end_offset)
    except BaseException:
        directory.close()
        raise
    return LocalTopic(directory, topic_id, tuple(reversed(logs)))


def _topic_ids(path: str, machine: Machine) -> dict[int, Uuid | None]:
    """Topic id by partition, of the partitions that are there; None where none is noted."""
    found: dict[int, Uuid | None] = {}
    for entry in machine.files.iter_directory(path):
        folder = find_partition_folder(entry.name) if entry.is_directory else None
        if folder is None or folder.topic != METADATA_TOPIC:
            continue
        noted = f"{path}/{entry.name}/{PARTITION_METADATA}"
        if machine.files.find(noted) is None:
            found[folder.partition] = None
        else:
            found[folder.partition] = parse_partition_metadata(machine.files.read_whole(noted)).topic_id
    return found


def _check_count(path: str, found: Mapping[int, object], partition_count: int) -> None:
    count = max(found, default=partition_count - 1) + 1
    if count != partition_count:
        raise ConfigError(
            f"{METADATA_TOPIC} in {path} has {count} partitions, and remote.log.metadata.topic.num.partitions is "
            f"{partition_count}: every record would be looked for in another partition"
        )
