"""Checks of a segment before it may count as copied: made while it streams by, at the cost of one CRC-32C pass.

Why: a tiered segment is soon deleted from the broker's disk. A batch that rotted, an index of another segment, a file
that changed while it was read, a segment that was not closed: each is an error here, and nothing of it becomes visible.

A folder as a store fails with the same kinds of StoreError as the disk that the segment lies on. The broker acts
differently on them, so that every error of a segment's own file gets a type of its own where the file is read
(``SegmentFiles``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from typing_extensions import Buffer

from tierlog._native import indexes
from tierlog._native.batches import BatchHeader, find_batch_header
from tierlog.errors import CorruptDataError, CorruptIndexError, CorruptObjectError, CorruptRecordError, StoreError
from tierlog.log.checks.findings import Finding, Severity
from tierlog.log.checks.index_checks import OffsetIndexCheck, TimeIndexCheck
from tierlog.log.checks.segment_walk import CheckedRun, SegmentCheck, SegmentWalk
from tierlog.log.formats.leader_epochs import parse_leader_epochs
from tierlog.log.formats.producer_snapshot import parse_producer_snapshot
from tierlog.records.batch_runs import BATCH_SIZE_BYTES_MAX, BatchColumns
from tierlog.records.batch_table import CODEC_MASK, HEADER_BYTES
from tierlog.remote.api import IndexType, LogSegmentData, RemoteLogSegmentMetadata
from tierlog.remote.storage.storage_errors import SegmentFileFault
from tierlog.runtime.machine.files import FileInfo, ReadableFile, ReadableFiles

#: Headers that are looked at to decide on compression, spread over the segment.
_SAMPLED_BATCHES: Final = 512


@dataclass(slots=True)
class SourceFiles:
    """The files of a segment as they were when the copy began; ``check_unchanged`` says whether they still are."""

    files: ReadableFiles
    infos: tuple[FileInfo, ...]

    @classmethod
    def of(cls, files: ReadableFiles, data: LogSegmentData) -> SourceFiles:
        """Note the files' state. Raises ObjectNotFoundError and other kinds of StoreError for a file that is missing or
        not readable.
        """
        paths = [data.log_segment, data.offset_index, data.time_index, data.producer_snapshot, data.transaction_index]
        return cls(files, tuple(files.stat(path) for path in paths if path is not None))

    def check_unchanged(self) -> None:
        """Check that the files are as before. Raises CorruptObjectError for a changed file, ObjectNotFoundError for a
        missing one.
        """
        for before in self.infos:
            now = self.files.stat(before.path)
            if now != before:
                text = (
                    f"changed while it was copied: {before.size_bytes} bytes of {before.modified_ms} ms, "
                    f"then {now.size_bytes} bytes of {now.modified_ms} ms"
                )
                raise CorruptObjectError(text, fault="CHANGED", where=before.path)


def check_size(log: ReadableFile, path: str, metadata: RemoteLogSegmentMetadata) -> None:
    """Raise CorruptObjectError if the file has another size than the broker's metadata."""
    if log.size_bytes != metadata.segment_size_in_bytes:
        text = f"the log has {log.size_bytes} bytes, the segment's metadata say {metadata.segment_size_in_bytes}"
        raise CorruptObjectError(
            text, fault="BAD_SIZE", expected=metadata.segment_size_in_bytes, found=log.size_bytes, where=path
        )


def check_index_parts(
    parts: Mapping[IndexType, Buffer], metadata: RemoteLogSegmentMetadata, paths: Mapping[IndexType, str]
) -> None:
    """Check the parts that stand for themselves: snapshot, transaction index, leader epochs. An empty one is legal.

    Raises:
        CorruptIndexError: malformed; names the file.
    """
    base = metadata.start_offset
    for kind, data in parts.items():
        try:
            if memoryview(data).nbytes == 0:
                continue
            if kind is IndexType.PRODUCER_SNAPSHOT:
                parse_producer_snapshot(data)
            elif kind is IndexType.TRANSACTION:
                indexes.check_transaction_index(data, base)
            elif kind is IndexType.LEADER_EPOCH:
                parse_leader_epochs(data)
        except CorruptIndexError as error:
            raise error.located(paths.get(kind, kind.value)) from None


@dataclass(slots=True)
class LogCheck:
    """The checks of every batch of a log, window by window, and of the index entries against them.

    Args:
        metadata: The segment: its offsets.
        parts: Its indexes.
        paths: For messages.
    """

    metadata: RemoteLogSegmentMetadata
    parts: Mapping[IndexType, Buffer]
    paths: Mapping[IndexType, str]
    log_path: str
    end_position: int = 0
    complete: bool = False
    findings: list[Finding] = field(default_factory=list)

    def follow(self, windows: Iterator[memoryview]) -> None:
        """Draw all windows, in order, and check their batches. Raises as ``checked``."""
        for _ in self.checked(windows):
            pass

    def checked(self, windows: Iterator[memoryview]) -> Generator[memoryview]:
        """Yield all windows, in order, each behind the check of the batches that end in it.

        Raises:
            CorruptRecordError: a batch that is damaged, or out of place. CorruptIndexError: an entry that leads
                nowhere. Whatever drawing raises.
        """
        checks = self._index_checks()
        walk = SegmentWalk(
            position=0,
            first_offset=self.metadata.start_offset,
            last_offset=self.metadata.end_offset,
            size_bytes=self.metadata.segment_size_in_bytes,
            name=self.log_path,
            kind=CorruptRecordError,
        )
        for window in windows:
            columns = walk.collect(window)
            count = len(columns["position"])
            if count:
                self._check_sizes(columns)
                run = CheckedRun(columns, np.ones(count, np.bool_), np.full(count, -1, np.int64), {})
                for check in checks:
                    self._raise_first(check.observe(run))
                self.end_position = walk.end_position
            yield window
        if walk.is_inside_batch:
            left = self.metadata.segment_size_in_bytes - walk.end_position
            text = f"the log ends inside a batch, of which it has {left} bytes"
            raise CorruptRecordError(text, fault="TRUNCATED", position=walk.end_position, where=self.log_path)
        self.complete = True
        for check in checks:
            self._raise_first(check.finish(self))

    def _index_checks(self) -> list[SegmentCheck]:
        """Check the indexes. Raises CorruptIndexError for an index that is wrong in itself."""
        base = self.metadata.start_offset
        offsets, times = self.parts[IndexType.OFFSET], self.parts[IndexType.TIMESTAMP]
        return [
            OffsetIndexCheck(offsets, base, self.paths[IndexType.OFFSET]),
            TimeIndexCheck(times, base, self.paths[IndexType.TIMESTAMP]),
        ]

    def _check_sizes(self, columns: BatchColumns) -> None:
        """Raise CorruptRecordError for a batch that no reader would accept."""
        oversized = np.flatnonzero(columns["size_bytes"].astype(np.int64) > BATCH_SIZE_BYTES_MAX)
        if len(oversized):
            at = int(oversized[0])
            raise CorruptRecordError(
                "no batch can be so large",
                fault="BAD_SIZE",
                position=int(columns["position"][at]),
                base_offset=int(columns["base_offset"][at]),
                where=self.log_path,
            )

    def _raise_first(self, findings: Iterator[Finding]) -> None:
        for finding in findings:
            if finding.severity is not Severity.NOTE:
                raise CorruptIndexError(str(finding), fault=finding.kind, position=finding.position)


def is_mostly_compressed(log: ReadableFile, offset_index: Buffer, *, base_offset: int) -> bool:
    """Whether most bytes of a log are in batches that their producers compressed: zstd costs there and gains nothing.

    The plugin goes by the first batch. A segment whose producers changed their codec, or that begins with one small
    control batch, is then stored wrongly as a whole, since the choice is one for all chunks. Here up to 512 headers,
    spread evenly over the entries of the offset index, each stand for the bytes up to the next: 512 reads of a few
    bytes, where a look at every batch would read the segment twice. A log without index entries (smaller than one index
    interval) is walked.

    Bytes that are no batch count as uncompressed: the checks name them.
    """
    try:
        _, entries = indexes.read_offset_index(offset_index, base_offset)
        positions = np.unique(np.concatenate(([0], entries.astype(np.int64))))
    except CorruptDataError:
        positions = np.zeros(1, np.int64)  # the checks report its fault
    if len(positions) == 1:
        positions = np.fromiter(_walk_headers(log), np.int64)
    if not len(positions):
        return False
    if len(positions) > _SAMPLED_BATCHES:
        positions = positions[np.linspace(0, len(positions) - 1, _SAMPLED_BATCHES).astype(np.int64)]
    ends = np.append(positions[1:], log.size_bytes)
    compressed = 0
    for position, end in zip(positions.tolist(), ends.tolist(), strict=True):
        header = read_header(log, position)
        if header is not None and header.attributes & CODEC_MASK:
            compressed += end - position
    return compressed * 2 > log.size_bytes


def read_header(log: ReadableFile, position: int) -> BatchHeader | None:
    """Read the header of the batch at a position; None where no batch begins."""
    data = bytearray(HEADER_BYTES)
    size = log.read_into(data, position=position)
    try:
        return find_batch_header(memoryview(data)[:size])
    except CorruptRecordError:
        return None


def _walk_headers(log: ReadableFile) -> Generator[int]:
    """Yield the positions of at most _SAMPLED_BATCHES neighbouring batches, from the start."""
    position = 0
    for _ in range(_SAMPLED_BATCHES):
        header = read_header(log, position)
        if header is None:
            break
        yield position
        position += header.size_bytes
        if position >= log.size_bytes:
            break


class SegmentFiles(ReadableFiles):
    """Files whose errors are SegmentFileFault. Thread safety: that of the files below."""

    def __init__(self, files: ReadableFiles) -> None:
        self._files = files

    def stat(self, path: str) -> FileInfo:
        with _as_fault():
            return self._files.stat(path)

    def open_read(self, path: str) -> ReadableFile:
        with _as_fault():
            return _SegmentFile(self._files.open_read(path))

    def read_whole(self, path: str, *, limit_bytes: int = 1 << 30) -> bytes:
        with _as_fault():
            return self._files.read_whole(path, limit_bytes=limit_bytes)


class _SegmentFile(ReadableFile):
    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self.size_bytes = file.size_bytes

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        with _as_fault():
            return self._file.read_into(buffer, position=position)

    def close(self) -> None:
        self._file.close()


@contextlib.contextmanager
def _as_fault() -> Iterator[None]:
    try:
        yield
    except StoreError as cause:
        raise SegmentFileFault(cause) from cause
