"""The paths of ``tierlog dump``: one file, the files of a log directory, or the parts of tiered segments.

A part is bytes with a name and a kind. This module hides where the bytes come from (a disk, an object that has to be
decrypted) from the code that prints them.

Index entries are compared with their log as kafka-dump-log does it. They are read as they lie in the file: the first
entry of a preallocated index is always shown, the zeros behind the last are not. Zeros are no fault: a broker trims
them when it closes the segment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tierlog.cli.tiers import open_path
from tierlog.errors import ConfigError, CorruptObjectError, StoreError
from tierlog.log.formats import segment_files
from tierlog.log.formats.checkpoints import parse_offset_checkpoint
from tierlog.log.formats.identity_files import parse_partition_metadata
from tierlog.log.formats.leader_epochs import parse_leader_epochs
from tierlog.log.formats.producer_snapshot import ProducerEntry, parse_producer_snapshot
from tierlog.log.formats.segment_files import (
    LEADER_EPOCH_CHECKPOINT,
    SegmentFileKind,
    find_partition_folder,
    find_segment_file,
)
from tierlog.records.batch_runs import BatchColumns, BatchRuns
from tierlog.remote.api import IndexType
from tierlog.remote.tier.objects.object_keys import LOCAL_TIERED_CHECKPOINT
from tierlog.runtime.machine.files import FileInfo, Files

if TYPE_CHECKING:
    from tierlog.remote.tier import StoredSegment, Tier


WINDOW_BYTES = 4 << 20
#: Everything but a log is read whole: an index of a 1 GiB segment has 2 MiB.
PART_SIZE_BYTES_MAX = 256 << 20
_OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_BASE_OFFSET = re.compile(r"([0-9]{20})[.-]")


#: An entry of a small file, by Kafka's names of its fields.
Row = dict[str, object]


class PartKind(StrEnum):
    """The kind of a part; the value is the suffix of its file."""

    LOG = SegmentFileKind.LOG.value
    OFFSET_INDEX = SegmentFileKind.OFFSET_INDEX.value
    TIME_INDEX = SegmentFileKind.TIME_INDEX.value
    TRANSACTION_INDEX = SegmentFileKind.TRANSACTION_INDEX.value
    PRODUCER_SNAPSHOT = SegmentFileKind.PRODUCER_SNAPSHOT.value
    LEADER_EPOCHS = LEADER_EPOCH_CHECKPOINT
    OFFSET_CHECKPOINT = "offset-checkpoint"
    PARTITION_METADATA = segment_files.PARTITION_METADATA


_TIER_PARTS = (
    (IndexType.OFFSET, PartKind.OFFSET_INDEX),
    (IndexType.TIMESTAMP, PartKind.TIME_INDEX),
    (IndexType.TRANSACTION, PartKind.TRANSACTION_INDEX),
    (IndexType.PRODUCER_SNAPSHOT, PartKind.PRODUCER_SNAPSHOT),
    (IndexType.LEADER_EPOCH, PartKind.LEADER_EPOCHS),
)


@dataclass(slots=True)
class LogOutline:
    """The columns of a log's batches that its indexes refer to.

    Attributes:
        last_offsets, positions, max_timestamps: int64 each, in file order; -1 is the timestamp of an empty batch.
    """

    last_offsets: NDArray[np.int64]
    positions: NDArray[np.int64]
    max_timestamps: NDArray[np.int64]

    @classmethod
    def of(cls, tables: Iterable[BatchColumns]) -> LogOutline:
        """Return the outline of the columns of ``scan_batches``, in file order."""
        columns: tuple[list[NDArray[np.int64]], ...] = ([], [], [])
        for table in tables:
            columns[0].append(table["last_offset"].astype(np.int64))
            columns[1].append(table["position"].astype(np.int64))
            columns[2].append(np.where(table["record_count"] == 0, -1, table["max_timestamp"].astype(np.int64)))
        return cls(*(np.concatenate(parts) if parts else np.empty(0, np.int64) for parts in columns))


@dataclass(slots=True)
class Part:
    """One file, or one part of a tiered segment.

    Attributes:
        label: The path that is printed for it.
        base_offset: The segment's base offset in the name; None if the name has none.
        topic: Topic of the folder or segment; "" if unknown.
        partition: Its partition; None if unknown.
        size_bytes: Size before compression and encryption.
        windows: Opens the bytes, in order from 0, cut anywhere.
        log: The log that an index belongs to; None if it is missing.
        outline_follows: Whether parts that need this log's outline come after it, so that its walk should store the
            outline.
    """

    label: str
    kind: PartKind
    base_offset: int | None
    topic: str
    size_bytes: int
    windows: Callable[[], Iterator[memoryview]]
    log: Part | None = None
    outline_follows: bool = False
    partition: int | None = None
    _outline: LogOutline | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return self.label.rsplit("/", 1)[-1]

    def whole(self) -> bytes:
        """Return all bytes of the part. Raises CorruptObjectError above PART_SIZE_BYTES_MAX."""
        if self.size_bytes > PART_SIZE_BYTES_MAX:
            text = f"{self.size_bytes} bytes: more than a {self.kind} can have"
            raise CorruptObjectError(text, fault="BAD_SIZE", where=self.label)
        return b"".join(self.windows())

    def outline(self) -> LogOutline:
        """Return the outline of a log: its batches up to the first byte that is none; read once."""
        if self._outline is None:
            self._outline = LogOutline.of(run.columns for run in BatchRuns(self.windows()))
        return self._outline

    def keep_outline(self, outline: LogOutline) -> None:
        """Store the outline from a walk over the whole log, so that ``outline`` need not read the log again."""
        self._outline = outline


@dataclass(slots=True)
class PartFinder:
    """The search for the parts that PATHs name.

    Attributes:
        topic, partitions: Which parts of a log directory or a bucket are wanted.
        ignored: Files that were named and are not Kafka's.
    """

    files: Files
    topic: str | None = None
    partitions: tuple[int, ...] = ()
    layout: str = "auto"
    config: Path | None = None
    ignored: list[str] = field(default_factory=list)

    def iter_parts(self, path: str) -> Iterator[Part]:
        """Iterate the parts of one PATH, by name; a bucket's by partition and offset.

        Raises:
            ConfigError: nothing fits, or the bucket has several topics and none is chosen.
            StoreError and its kinds.
        """
        found = None if "://" in path else self.files.stat(path)
        if found is None or (found.is_directory and not self._is_log_directory(path)):
            yield from self._tiered(path)
        elif found.is_directory:
            yield from self._folder(path)
        else:
            yield from self._file(found, {})

    def _is_log_directory(self, path: str) -> bool:
        entries = list(self.files.iter_directory(path))
        if any(find_segment_file(entry.name) for entry in entries if not entry.is_directory):
            return True
        folders = [entry for entry in entries if entry.is_directory and find_partition_folder(entry.name)]
        return any(
            find_segment_file(below.name) for folder in folders for below in self.files.iter_directory(folder.path)
        )

    def _folder(self, path: str) -> Iterator[Part]:
        entries = list(self.files.iter_directory(path))
        by_name = {entry.name: entry for entry in entries if not entry.is_directory}
        for entry in entries:
            if not entry.is_directory:
                if _kind_of(entry.name) is not None:
                    yield from self._file(entry, by_name)
                continue
            folder = find_partition_folder(entry.name)
            if folder is None or folder.purpose or self.topic not in (None, folder.topic):
                continue
            if not self.partitions or folder.partition in self.partitions:
                yield from self._folder(entry.path)

    def _file(self, found: FileInfo, siblings: dict[str, FileInfo]) -> Iterator[Part]:
        kind = _kind_of(found.name)
        if kind is None:
            self.ignored.append(found.path)
            return
        part = self._part_of(found, kind)
        if kind in (PartKind.OFFSET_INDEX, PartKind.TIME_INDEX):
            log_path = found.path.removesuffix(kind) + PartKind.LOG
            log = siblings.get(log_path.rsplit("/", 1)[-1]) or self.files.find(log_path)
            part.log = self._part_of(log, PartKind.LOG) if log is not None else None
        yield part

    def _part_of(self, found: FileInfo, kind: PartKind) -> Part:
        folder = find_partition_folder(Path(found.path).absolute().parent.name)
        return Part(
            label=found.path,
            kind=kind,
            base_offset=_base_offset_of(found.name),
            topic=folder.topic if folder else "",
            size_bytes=found.size_bytes,
            windows=lambda: self._windows(found.path),
            partition=folder.partition if folder else None,
        )

    def _windows(self, path: str) -> Iterator[memoryview]:
        with self.files.open_read(path) as file:
            position = 0
            while position < file.size_bytes:
                buffer = bytearray(min(WINDOW_BYTES, file.size_bytes - position))
                count = file.read_into(buffer, position=position)
                if count == 0:
                    raise StoreError(f"{path}: cut at {position} of {file.size_bytes} bytes while it was read")
                position += count
                yield memoryview(buffer)[:count]

    def _tiered(self, path: str) -> Iterator[Part]:
        with open_path(path, layout=self.layout, config=self.config) as tier:
            topic = self.topic or _only_topic(tier, path)
            for segment in tier.iter_segments(topic, partitions=self.partitions or None):
                yield from _segment_parts(tier, segment)


def _only_topic(tier: Tier, path: str) -> str:
    names = sorted({topic.name for topic in tier.topics()})
    if len(names) != 1:
        shown = ", ".join(names[:20]) + (" …" if len(names) > 20 else "")
        raise ConfigError(f"{path} holds {len(names)} topics: choose one with --topic ({shown or 'there is none'})")
    return names[0]


def _segment_parts(tier: Tier, segment: StoredSegment) -> Iterator[Part]:
    stem = segment.name.removesuffix(PartKind.LOG)

    def part(kind: PartKind, size_bytes: int, windows: Callable[[], Iterator[memoryview]], suffix: str = "") -> Part:
        label = stem + (suffix or kind)
        of = segment.topic_id_partition
        return Part(label, kind, segment.start_offset, of.topic, size_bytes, windows, partition=of.partition)

    log = part(PartKind.LOG, segment.size_bytes, lambda: (window for _, window in tier.iter_log_windows(segment)))
    log.outline_follows = True
    yield log
    for index_type, kind in _TIER_PARTS:
        data = tier.fetch_index(segment, index_type)
        if data is None:
            continue
        view = memoryview(data).cast("B")
        suffix = f".{LOCAL_TIERED_CHECKPOINT}" if kind is PartKind.LEADER_EPOCHS else ""
        found = part(kind, len(view), lambda view=view: iter((view,)), suffix)  # type: ignore[misc]
        found.log = log
        yield found


def _kind_of(name: str) -> PartKind | None:
    if name.endswith((LEADER_EPOCH_CHECKPOINT, f".{LOCAL_TIERED_CHECKPOINT}")):
        return PartKind.LEADER_EPOCHS
    if name.endswith("-offset-checkpoint"):
        return PartKind.OFFSET_CHECKPOINT
    for suffix in ("deleted", "cleaned", "swap"):
        name = name.removesuffix(f".{suffix}")
    kinds = (kind for kind in PartKind if kind.startswith(".") or kind is PartKind.PARTITION_METADATA)
    return next((kind for kind in kinds if name.endswith(kind)), None)


def _base_offset_of(name: str) -> int | None:
    match = _BASE_OFFSET.match(name)
    return int(match[1]) if match and int(match[1]) < 2**63 else None


@dataclass(slots=True)
class IndexFindings:
    """Entries that the log contradicts.

    Attributes:
        offset_mismatches: Entry's offset → last offset of the batch at its position.
        no_batch: (offset, position) of entries whose position is no batch border.
        timestamp_mismatches: (entry's timestamp, that of the batch).
        out_of_order: (entry's timestamp, that of the entry before).
        offsets_not_found: (entry's offset, last offset of the batch that holds it; -1 if none does).
    """

    offset_mismatches: dict[int, int] = field(default_factory=dict)
    no_batch: list[tuple[int, int]] = field(default_factory=list)
    timestamp_mismatches: list[tuple[int, int]] = field(default_factory=list)
    out_of_order: list[tuple[int, int]] = field(default_factory=list)
    offsets_not_found: list[tuple[int, int]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(
            self.offset_mismatches
            or self.no_batch
            or self.timestamp_mismatches
            or self.out_of_order
            or self.offsets_not_found
        )


def offset_entries(data: bytes, base_offset: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (offsets, positions) of the entries that kafka-dump-log shows."""
    raw = np.frombuffer(data, _OFFSET_ENTRY, count=len(data) // _OFFSET_ENTRY.itemsize)
    shown = raw[: _shown(raw["offset"])]
    return shown["offset"].astype(np.int64) + base_offset, shown["position"].astype(np.int64)


def time_entries(data: bytes, base_offset: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (timestamps, offsets) of the entries that kafka-dump-log shows."""
    raw = np.frombuffer(data, _TIME_ENTRY, count=len(data) // _TIME_ENTRY.itemsize)
    shown = raw[: _shown(raw["offset"])]
    return shown["timestamp"].astype(np.int64), shown["offset"].astype(np.int64) + base_offset


def _shown(relative_offsets: NDArray[np.int32]) -> int:
    """Count the entries to show: those before the first one, past entry 0, that has the base offset; there
    preallocation begins.
    """
    zeros = np.flatnonzero(relative_offsets[1:] == 0)
    return int(zeros[0]) + 1 if zeros.size else int(relative_offsets.size)


def compare_offsets(offsets: NDArray[np.int64], positions: NDArray[np.int64], log: LogOutline) -> IndexFindings:
    """Compare each entry's offset with the last offset of the batch at its position."""
    findings = IndexFindings()
    places = np.searchsorted(log.positions, positions)
    for offset, position, place in zip(offsets.tolist(), positions.tolist(), places.tolist(), strict=True):
        if place == log.positions.size or int(log.positions[place]) != position:
            findings.no_batch.append((offset, position))
        elif int(log.last_offsets[place]) != offset:
            findings.offset_mismatches[offset] = int(log.last_offsets[place])
    return findings


def compare_times(timestamps: NDArray[np.int64], offsets: NDArray[np.int64], log: LogOutline) -> IndexFindings:
    """Compare each entry with the batch that ends with its offset, and with the entry before."""
    findings = IndexFindings()
    places = np.searchsorted(log.last_offsets, offsets)
    before = -1
    for timestamp, offset, place in zip(timestamps.tolist(), offsets.tolist(), places.tolist(), strict=True):
        found = int(log.last_offsets[place]) if place < log.last_offsets.size else -1
        if found != offset:
            findings.offsets_not_found.append((offset, found))
        else:
            if int(log.max_timestamps[place]) != timestamp:
                findings.timestamp_mismatches.append((timestamp, int(log.max_timestamps[place])))
            if before >= timestamp:
                findings.out_of_order.append((timestamp, before))
        before = timestamp
    return findings


def rows_of(names: Sequence[str], *columns: NDArray[Any]) -> list[Row]:
    """Return columns as rows."""
    return [dict(zip(names, row, strict=True)) for row in zip(*(each.tolist() for each in columns), strict=True)]


def transaction_rows(entries: NDArray[np.void]) -> list[Row]:
    """Return the aborted transactions of an index."""
    names = ("producerId", "firstOffset", "lastOffset", "lastStableOffset")
    return [{"version": 0, **dict(zip(names, row, strict=True))} for row in entries.tolist()]


def small_file_rows(part: Part) -> tuple[str, list[Row]]:
    """Return the kind of the entries of a part that is compared with nothing, and the entries."""
    data = part.whole()
    if part.kind is PartKind.PRODUCER_SNAPSHOT:
        return "producer", [_producer_row(each) for each in parse_producer_snapshot(data).entries]
    if part.kind is PartKind.LEADER_EPOCHS:
        return "epoch", [{"epoch": each.epoch, "startOffset": each.start_offset} for each in parse_leader_epochs(data)]
    if part.kind is PartKind.OFFSET_CHECKPOINT:
        offsets = parse_offset_checkpoint(data).items()
        return "checkpoint", [{"topic": topic, "partition": at, "offset": offset} for (topic, at), offset in offsets]
    metadata = parse_partition_metadata(data)
    return "partitionMetadata", [{"version": metadata.version, "topicId": str(metadata.topic_id)}]


def _producer_row(entry: ProducerEntry) -> Row:
    row: Row = {
        "producerId": entry.producer_id,
        "producerEpoch": entry.producer_epoch,
        "coordinatorEpoch": entry.coordinator_epoch,
        "currentTxnFirstOffset": entry.transaction_first_offset if entry.transaction_first_offset >= 0 else None,
        "lastTimestamp": entry.timestamp_ms,
    }
    if entry.has_batch:
        row |= {
            "firstSequence": entry.first_sequence,
            "lastSequence": entry.last_sequence,
            "lastOffset": entry.last_offset,
            "offsetDelta": entry.offset_delta,
        }
    return row
