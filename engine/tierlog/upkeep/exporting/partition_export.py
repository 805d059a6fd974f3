"""Export: the offsets of a partition that count, as a folder that a broker can load.

A segment that counts whole has its old name and, byte for byte, its old log. Where the history of a partition takes
only a part of a segment (its tail belongs to an abandoned branch, or another upload of the same offsets reaches
further), the log is cut at batch borders: logs of one folder may not overlap. A log that is cut in front is named by
its first offset that counts; the indexes of a cut log are built anew, and a producer snapshot goes only with an end
that was not cut (a broker makes the others itself when it loads the folder). Duplicates without offsets of their own
are left out. A stored index that does not fit the log is built anew too: a broker does not look, behind a clean stop.

Each file gets its final name when it is complete and on the disk, the log last. A new run continues an interrupted one:
a log with the right size, offsets, epochs and checksums is not fetched again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tierlog._native import indexes
from tierlog.errors import (
    ConfigError,
    CorruptDataError,
    CorruptIndexError,
    CorruptRecordError,
    DataLossError,
    ObjectNotFoundError,
)
from tierlog.log.checks.index_checks import IndexBuilder
from tierlog.log.formats.identity_files import PartitionMetadata, encode_partition_metadata
from tierlog.log.formats.leader_epochs import encode_leader_epochs
from tierlog.log.formats.producer_snapshot import parse_producer_snapshot
from tierlog.log.formats.segment_files import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    SegmentFileKind,
    find_segment_file,
    segment_file_name,
)
from tierlog.log.formats.segment_indexes import encode_transaction_index
from tierlog.records.batch_runs import BatchColumns, BatchRun, BatchRuns
from tierlog.remote.api import ZERO_UUID, IndexType, Uuid
from tierlog.remote.metadata.lineage import Span
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.objects.segment_bounds import without_preallocation
from tierlog.remote.tier.tier import Tier, iter_batch_runs
from tierlog.runtime.machine.files import TEMPORARY_SUFFIX, Files, WritableFile
from tierlog.scan.history import PartitionHistory
from tierlog.upkeep.exporting.broker_directory import LogExtent
from tierlog.upkeep.verification.index_comparison import IndexComparison
from tierlog.upkeep.verification.log_walk import iter_file_windows

_INDEX_FILES: Final = {
    IndexType.OFFSET: SegmentFileKind.OFFSET_INDEX,
    IndexType.TIMESTAMP: SegmentFileKind.TIME_INDEX,
}


@dataclass(frozen=True, slots=True)
class ExportedSegment:
    """A run of offsets of one segment that becomes one log.

    Attributes:
        base_offset: Base offset of the log that is written.
        end_offset_exclusive: Where the offsets that count end.
        whole: Whether all of the segment counts.
    """

    segment: StoredSegment
    base_offset: int
    end_offset_exclusive: int
    whole: bool

    @classmethod
    def of_span(cls, span: Span) -> ExportedSegment:
        segment = span.segment
        whole = span.first_offset <= segment.start_offset and span.end_offset_exclusive > segment.end_offset
        base = segment.start_offset if whole else span.first_offset
        return cls(segment, base, span.end_offset_exclusive, whole)

    @property
    def end_is_whole(self) -> bool:
        return self.end_offset_exclusive > self.segment.end_offset

    def name(self, kind: SegmentFileKind) -> str:
        return segment_file_name(self.base_offset, kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPartition:
    """One partition that was written.

    Attributes:
        folder: Where it lies.
        segments: Logs that the folder has.
        cut: How many of them were cut, since not all of their segment counts.
        size_bytes: Of those segments.
        last_leader_epoch: The last leader epoch of the log: a leader of a lower one breaks the log's lineage.
        warnings: Offsets that are missing or damaged, and parts that were left out.
    """

    topic: str
    partition: int
    folder: str
    segments: int
    cut: int
    size_bytes: int
    last_leader_epoch: int
    warnings: tuple[str, ...]


class _Indexes:
    """The sparse indexes of a log that is written: those of its segment, and those that its batches make.

    Args:
        each: Becomes the log.
        stored: Of the segment, if all of it counts.
    """

    def __init__(self, each: ExportedSegment, stored: Mapping[IndexType, bytes]) -> None:
        self._closed = each.segment.closed
        self._stored = stored
        self._built = IndexBuilder(each.base_offset)
        # Behind the last entry of an active segment's index there may be anything.
        self._compared = IndexComparison(each.segment, stored if self._closed else {})

    def add(self, columns: BatchColumns) -> None:
        """Add further batches of the log. Raises CorruptRecordError: their offsets do not rise from the base."""
        self._built.add(columns)
        self._compared.add(columns)

    def finish(self) -> tuple[bytes, bytes, dict[IndexType, str]]:
        """Return the offset and the time index, and those of the segment that do not fit the log, with the fault."""
        wrong = self._compared.finish()
        stored = {kind: data for kind, data in self._stored.items() if kind not in wrong}
        if not self._closed:
            stored = {kind: without_preallocation(kind, data) for kind, data in stored.items()}
        offsets, times = stored.get(IndexType.OFFSET), stored.get(IndexType.TIMESTAMP)
        return (
            self._built.offset_index() if offsets is None else offsets,
            self._built.time_index(closed=self._closed) if times is None else times,
            wrong,
        )


class PartitionExport:
    """The export of one partition.

    Args:
        tier, files: The caller closes the tier.
        history: The partition's history; segments wholly below its log start offset are left out.
        folder: Where the logs go; made if it does not exist.
        fail_on_data_loss: False names missing offsets and wrong checksums in ``warnings`` and goes on.
        topic_id: Topic id to write; None for the tier's.
        only_last: Write the last segment alone, with the leader epochs of all: enough for a broker that reads the other
            segments from the tier.

    Raises:
        DataLossError: offsets between two segments are missing, and ``fail_on_data_loss`` is set.
    """

    def __init__(
        self,
        tier: Tier,
        files: Files,
        history: PartitionHistory,
        folder: str,
        *,
        fail_on_data_loss: bool = True,
        topic_id: Uuid | None = None,
        only_last: bool = False,
    ) -> None:
        self._tier = tier
        self._files = files
        self._history = history
        self._fail_on_data_loss = fail_on_data_loss
        self._topic_id = topic_id or history.topic_id_partition.topic_id
        self.folder = folder
        self.warnings: list[str] = list(history.warnings)
        counted = [
            ExportedSegment.of_span(span)
            for span in history.lineage.spans
            if span.end_offset_exclusive > history.log_start_offset
        ]
        self._first_offset = counted[0].base_offset if counted else history.earliest_offset
        self.segments = tuple(counted[-1:] if only_last else counted)
        for gap in history.gaps:
            missing = f"offsets {gap.first_offset} to {gap.end_offset_exclusive - 1} are in no segment of the tier"
            self._lose(DataLossError(f"{history.topic}-{history.partition}: {missing}"))

    @property
    def size_bytes(self) -> int:
        """Size of the logs, at most."""
        return sum(each.segment.size_bytes for each in self.segments)

    @property
    def extent(self) -> LogExtent:
        """The offsets of the log that is written."""
        history = self._history
        start = max(history.log_start_offset, self._first_offset)
        end = self.segments[-1].end_offset_exclusive if self.segments else start
        return LogExtent(history.topic, history.partition, start, end)

    @property
    def last_leader_epoch(self) -> int:
        """The last leader epoch of the log: a leader of a lower one breaks the log's lineage."""
        latest = self._history.lineage.epochs.latest
        return 0 if latest is None else latest.epoch

    def cautions(self) -> list[str]:
        """Return warnings for a cluster that goes on writing to this log; known after ``run``.

        Raises:
            StoreError and its kinds.
        """
        name = f"{self._history.topic}-{self._history.partition}"
        found = []
        if last := self.last_leader_epoch:
            found.append(
                f"{name}: needs a leader of epoch {last} or later: one of a lower epoch cuts this epoch off the "
                "leader-epoch checkpoint, and consumers are sent in circles; see docs/operating.md"
            )
        found += [f"{name}: {text}" for text in self._open_transactions()]
        return found

    def _open_transactions(self) -> Iterator[str]:
        """Cautions about transactions that are open where the log ends, by its producer snapshot."""
        if not self.segments:
            return
        last = self.segments[-1]
        data = self._fetch(last, IndexType.PRODUCER_SNAPSHOT) if last.end_is_whole else None
        try:
            known = None if data is None else parse_producer_snapshot(data).open_transactions()
        except CorruptIndexError:
            known = None
        if known is None:
            yield "no producer snapshot tells whether a transaction is open where it ends: the broker makes it anew"
            return
        for producer, offset in sorted(known.items()):
            yield (
                f"the transaction of producer {producer} is open from offset {offset} on: readers of committed records "
                "wait there until it is ended (`kafka-transactions abort --start-offset`)"
            )

    def result(self) -> ExportedPartition:
        """Return the partition as it was written; known after ``run``."""
        return ExportedPartition(
            topic=self._history.topic,
            partition=self._history.partition,
            folder=self.folder,
            segments=len(self.segments),
            cut=sum(not each.whole for each in self.segments),
            size_bytes=self.size_bytes,
            last_leader_epoch=self.last_leader_epoch,
            warnings=tuple(self.warnings),
        )

    def missing_bytes(self) -> int:
        """Return the approximate bytes still to be written: the logs that are missing or have another size."""
        left = 0
        for each in self.segments:
            found = self._files.find(self._path(each.name(SegmentFileKind.LOG)))
            if found is None or (each.whole and found.size_bytes != each.segment.size_bytes):
                left += each.segment.size_bytes
        return left

    def run(self) -> Iterator[int]:
        """Write the folder. Yields how many bytes of logs were done since the last time.

        Raises:
            ConfigError: the folder holds logs or indexes that are not of this export.
            CorruptDataError, StoreError and their kinds: something cannot be read or written.
        """
        self._files.make_directories(self.folder)
        self._clear()
        for each in self.segments:
            stored = self._fetch_indexes(each)
            found = _Indexes(each, stored)
            if self._is_complete(each, found):
                self._write_parts(each, found)
                yield each.segment.size_bytes
            else:
                yield from self._write_segment(each, _Indexes(each, stored))
        self._write_partition_files()

    def _fetch_indexes(self, each: ExportedSegment) -> dict[IndexType, bytes]:
        """Fetch the sparse indexes of a segment that counts whole, as far as they are there and can be read."""
        kinds = _INDEX_FILES if each.whole else ()
        found = ((kind, self._fetch(each, kind)) for kind in kinds)
        return {kind: bytes(data) for kind, data in found if data is not None}

    def _is_complete(self, each: ExportedSegment, indexes: _Indexes) -> bool:
        return is_complete(
            self._files,
            self._path(each.name(SegmentFileKind.LOG)),
            each.segment,
            indexes.add,
            base_offset=each.base_offset,
            end_offset_exclusive=each.end_offset_exclusive,
            whole=each.whole,
        )

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def _lose(self, error: DataLossError | CorruptDataError) -> None:
        if self._fail_on_data_loss:
            raise error
        self.warnings.append(str(error))

    def _clear(self) -> None:
        """Remove the unfinished files of an interrupted run; refuse files that are not ours."""
        bases = {each.base_offset for each in self.segments}
        ends = {self._snapshot_offset(each) for each in self.segments}
        for entry in self._files.iter_directory(self.folder):
            if entry.name.endswith(TEMPORARY_SUFFIX):
                self._files.remove(entry.path)
                continue
            known = find_segment_file(entry.name)
            if known is None:
                continue
            ours = ends if known.kind is SegmentFileKind.PRODUCER_SNAPSHOT else bases
            if known.transient or known.base_offset not in ours:
                raise ConfigError(f"{entry.path} is not part of this export: give an empty or the same destination")

    def _snapshot_offset(self, each: ExportedSegment) -> int:
        """Return the offset in the name of the segment's producer snapshot."""
        part = each.segment.part(IndexType.PRODUCER_SNAPSHOT)
        named = find_segment_file(part.key.rsplit("/", 1)[-1]) if part else None
        return named.base_offset if named else each.segment.end_offset + 1

    def _write_segment(self, each: ExportedSegment, indexes: _Indexes) -> Iterator[int]:
        path = self._path(each.name(SegmentFileKind.LOG))
        with self._files.open_write(path) as file:
            yield from self._write_log(each, file, indexes)
            self._write_parts(each, indexes)
            file.commit()

    def _write_log(self, each: ExportedSegment, file: WritableFile, indexes: _Indexes) -> Iterator[int]:
        removed = -1  # bytes cut off in front, once known
        with closing(iter_batch_runs(self._tier, each.segment, verify_crc=True)) as runs:  # type: ignore[type-var]
            for run in runs:
                kept = _kept(run, each)
                self._check(run, kept, each)
                if len(kept):
                    start, end = _bytes_of(run, kept)
                    removed = start if removed < 0 else removed
                    file.write(run.data[start - run.position : end - run.position])
                    columns = {name: column[kept] for name, column in run.columns.items()}
                    columns["position"] = run.column("position")[kept] - removed
                    indexes.add(columns)
                yield int(run.column("size_bytes").sum())

    def _check(self, run: BatchRun, kept: NDArray[np.int64], each: ExportedSegment) -> None:
        wrong = kept[~run.columns["crc_ok"].astype(np.bool_)[kept]]
        if len(wrong):
            self._lose(_fault(run, int(wrong[0]), each, "BAD_CRC", "wrong checksum"))
        if each.whole or not len(kept):
            return
        for batch in (int(kept[0]), int(kept[-1])):
            first, last = int(run.column("base_offset")[batch]), int(run.column("last_offset")[batch])
            if first < each.base_offset or last >= each.end_offset_exclusive:
                text = (
                    f"the batch reaches over offset {each.base_offset} or {each.end_offset_exclusive}, where it is cut"
                )
                raise _fault(run, batch, each, "BAD_OFFSET", text)

    def _write_parts(self, each: ExportedSegment, indexes: _Indexes) -> None:
        """Write every file beside the log, whose batches were added to ``indexes``."""
        offsets, times, wrong = indexes.finish()
        for kind, fault in wrong.items():
            name = each.name(_INDEX_FILES[kind])
            self.warnings.append(f"{self.folder}/{name}: made anew, as the stored one does not fit the log: {fault}")
        self._write(each.name(SegmentFileKind.OFFSET_INDEX), offsets)
        self._write(each.name(SegmentFileKind.TIME_INDEX), times)
        self._write_transactions(each)
        if each.end_is_whole:
            data = self._fetch(each, IndexType.PRODUCER_SNAPSHOT)
            if data is not None:
                name = segment_file_name(self._snapshot_offset(each), SegmentFileKind.PRODUCER_SNAPSHOT)
                self._write(name, bytes(data))

    def _write_transactions(self, each: ExportedSegment) -> None:
        data = self._fetch(each, IndexType.TRANSACTION)
        if data is not None and not each.whole:
            rows = indexes.read_transaction_index(data)
            counted = (rows["last_offset"] >= each.base_offset) & (rows["last_offset"] < each.end_offset_exclusive)
            data = encode_transaction_index(rows[counted])
        if data is not None and (len(data) or each.whole):
            self._write(each.name(SegmentFileKind.TRANSACTION_INDEX), bytes(data))

    def _fetch(self, each: ExportedSegment, part: IndexType) -> bytes | memoryview | None:
        """Fetch a part of the segment; None, with a warning, if it is damaged: a broker makes it anew."""
        try:
            return self._tier.fetch_index(each.segment, part)
        except (CorruptDataError, ObjectNotFoundError) as error:
            if part is IndexType.TRANSACTION:
                raise  # without it read_committed would show aborted records
            self.warnings.append(f"made anew or left out: {error}")
            return None

    def _write_partition_files(self) -> None:
        lineage = self._history.lineage
        counted = lineage.epochs.range(self._first_offset, lineage.end_offset_exclusive)
        if len(counted):
            self._write(LEADER_EPOCH_CHECKPOINT, encode_leader_epochs(counted))
        if self._topic_id != ZERO_UUID:
            self._write(PARTITION_METADATA, encode_partition_metadata(PartitionMetadata(self._topic_id)))

    def _write(self, name: str, content: bytes) -> None:
        path = self._path(name)
        found = self._files.find(path)
        if found is None or found.size_bytes != len(content) or self._files.read_whole(path) != content:
            self._files.write_whole(path, content)


def _kept(run: BatchRun, each: ExportedSegment) -> NDArray[np.int64]:
    """Return the batches of a run that count."""
    if each.whole:
        return np.arange(len(run.columns["position"]))
    counted = run.column("last_offset") >= each.base_offset
    return np.flatnonzero(counted & (run.column("base_offset") < each.end_offset_exclusive))


def _bytes_of(run: BatchRun, kept: NDArray[np.int64]) -> tuple[int, int]:
    """[start, end) of neighbouring batches in the log."""
    positions, sizes = run.column("position"), run.column("size_bytes")
    return int(positions[kept[0]]), int(positions[kept[-1]] + sizes[kept[-1]])


def _fault(run: BatchRun, batch: int, each: ExportedSegment, fault: str, text: str) -> CorruptRecordError:
    return CorruptRecordError(
        text,
        fault=fault,
        position=int(run.column("position")[batch]),
        base_offset=int(run.column("base_offset")[batch]),
        where=each.segment.name,
    )


def is_complete(
    files: Files,
    path: str,
    segment: StoredSegment,
    add: Callable[[BatchColumns], None],
    *,
    base_offset: int,
    end_offset_exclusive: int,
    whole: bool,
) -> bool:
    """Whether the log at ``path`` is complete; then all of its batches were given to ``add``, which raises
    CorruptRecordError where offsets do not rise from the base.

    Complete: of the segment's size (if all of it counts), every checksum right, offsets within [base, end) and up to
    its end, each batch in the leader epoch that the segment had there. The tier is not read.
    """
    found = files.find(path)
    if found is None or found.is_directory or (whole and found.size_bytes != segment.size_bytes):
        return False
    runs = BatchRuns(iter_file_windows(files, path), verify_crc=True)
    last_offset = base_offset - 1
    for run in runs:
        if not (bool(run.columns["crc_ok"].all()) and _in_epochs(run.columns, segment)):
            return False
        try:
            add(run.columns)
        except CorruptRecordError:
            return False
        last_offset = int(run.columns["last_offset"][-1])
    ends_there = last_offset < end_offset_exclusive if whole else last_offset == end_offset_exclusive - 1
    return ends_there and not runs.rest and not runs.stopped


def _in_epochs(table: BatchColumns, segment: StoredSegment) -> bool:
    """Whether batches are of the expected epochs: segments of two branches can agree in size and offsets, never in
    epochs.
    """
    pairs = sorted(segment.metadata.segment_leader_epochs.items())
    if not pairs:
        return True
    epochs = np.array([epoch for epoch, _ in pairs], np.int64)
    starts = np.array([start for _, start in pairs], np.int64)
    place = np.searchsorted(starts, table["base_offset"].astype(np.int64), side="right") - 1
    found = table["leader_epoch"].astype(np.int64)
    return bool(((found < 0) | (place < 0) | (found == epochs[np.maximum(place, 0)])).all())
