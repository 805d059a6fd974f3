"""What a segment must be before it may count as copied: checked while it streams by, at the cost of one CRC-32C pass.

Why: what is tiered is soon gone from the broker's disk. A batch that rotted, an index of another segment, a file that
changed while it was read, a segment that was not closed: each is an error here, and nothing of it becomes visible.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from typing_extensions import Buffer

from tierlog._native import indexes
from tierlog._native.batches import BatchStream
from tierlog.errors import CorruptDataError, CorruptIndexError, CorruptObjectError, CorruptRecordError
from tierlog.log.checks.checked_run import CheckedRun, SegmentCheck
from tierlog.log.checks.findings import Finding, Severity
from tierlog.log.checks.index_checks import OffsetIndexCheck, TimeIndexCheck
from tierlog.log.formats.leader_epochs import parse_leader_epochs
from tierlog.log.formats.producer_snapshot import parse_producer_snapshot
from tierlog.records.batch_runs import BATCH_SIZE_BYTES_MAX
from tierlog.records.batch_table import CODEC_MASK
from tierlog.remote.api import IndexType, LogSegmentData, RemoteLogSegmentMetadata
from tierlog.runtime.machine.files import FileInfo, ReadableFile, ReadableFiles

#: Headers that are looked at to decide on compression, spread over the segment.
_SAMPLED_BATCHES: Final = 512
#: offset, length, leader epoch, magic, CRC (magic 2); of magic 0 and 1 the attributes stand behind the magic.
_HEADER: Final = struct.Struct(">qiiBIh")
_ATTRIBUTES_OF_OLD: Final = 17


@dataclass(slots=True)
class SourceFiles:
    """The files of a segment as they were when the copy began; ``check_unchanged`` says whether they still are."""

    files: ReadableFiles
    infos: tuple[FileInfo, ...]

    @classmethod
    def of(cls, files: ReadableFiles, data: LogSegmentData) -> SourceFiles:
        """Raises ObjectNotFoundError and other kinds of StoreError for a file that is not there or not readable."""
        paths = [data.log_segment, data.offset_index, data.time_index, data.producer_snapshot, data.transaction_index]
        return cls(files, tuple(files.stat(path) for path in paths if path is not None))

    def check_unchanged(self) -> None:
        """Raises CorruptObjectError for one that was written or replaced, ObjectNotFoundError for one that is gone."""
        for before in self.infos:
            now = self.files.stat(before.path)
            if now != before:
                text = (
                    f"changed while it was copied: {before.size_bytes} bytes of {before.modified_ms} ms, "
                    f"then {now.size_bytes} bytes of {now.modified_ms} ms"
                )
                raise CorruptObjectError(text, fault="CHANGED", where=before.path)


def check_size(log: ReadableFile, path: str, metadata: RemoteLogSegmentMetadata) -> None:
    """Raises CorruptObjectError: the file is not as long as the broker says the segment is."""
    if log.size_bytes != metadata.segment_size_in_bytes:
        text = f"the log has {log.size_bytes} bytes, the segment's metadata say {metadata.segment_size_in_bytes}"
        raise CorruptObjectError(
            text, fault="BAD_SIZE", expected=metadata.segment_size_in_bytes, found=log.size_bytes, where=path
        )


def check_index_parts(
    parts: Mapping[IndexType, Buffer], metadata: RemoteLogSegmentMetadata, paths: Mapping[IndexType, str]
) -> None:
    """The parts that stand for themselves: snapshot, transaction index, leader epochs. An empty one is legal.

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
    """Looks at every batch of a log whose windows go by, and holds the index entries against them.

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
    _last_offset: int = -1

    def follow(self, windows: Iterator[memoryview]) -> None:
        """Draw all windows, in order, and check what they hold.

        Raises:
            CorruptRecordError: a batch that is damaged, or out of place. CorruptIndexError: an entry that leads
                nowhere. Whatever drawing raises.
        """
        checks = self._index_checks()
        self._last_offset = self.metadata.start_offset - 1
        stream = BatchStream()
        for window in windows:
            columns, broken = stream.feed(window)
            count = len(columns["position"])
            if count:
                run = CheckedRun(columns, np.ones(count, np.bool_), np.full(count, -1, np.int64), {})
                self._check_batches(run)
                for check in checks:
                    self._raise_first(check.observe(run))
                self.end_position = stream.end_position
            if broken is not None:
                raise broken.located(self.log_path)
        if stream.partial:
            left = self.metadata.segment_size_in_bytes - stream.end_position
            text = f"the log ends inside a batch, of which it has {left} bytes"
            raise self._corrupt(text, "TRUNCATED", stream.end_position)
        self.complete = True
        for check in checks:
            self._raise_first(check.finish(self))

    def _index_checks(self) -> list[SegmentCheck]:
        """Raises CorruptIndexError for an index that is wrong in itself."""
        base = self.metadata.start_offset
        offsets, times = self.parts[IndexType.OFFSET], self.parts[IndexType.TIMESTAMP]
        return [
            OffsetIndexCheck(offsets, base, self.paths[IndexType.OFFSET]),
            TimeIndexCheck(times, base, self.paths[IndexType.TIMESTAMP]),
        ]

    def _check_batches(self, run: CheckedRun) -> None:
        positions, base, last = run.column("position"), run.column("base_offset"), run.column("last_offset")
        oversized = np.flatnonzero(run.column("size_bytes") > BATCH_SIZE_BYTES_MAX)
        if len(oversized):
            at = int(oversized[0])
            raise self._corrupt("no batch can be so large", "BAD_SIZE", int(positions[at]), int(base[at]))
        wrong = np.flatnonzero(run.table["crc_ok"] == 0)
        if len(wrong):
            at = int(wrong[0])
            raise self._corrupt("the batch does not match its checksum", "BAD_CRC", int(positions[at]), int(base[at]))
        before = np.concatenate(([self._last_offset], last[:-1]))
        misplaced = np.flatnonzero((base <= before) | (last > self.metadata.end_offset) | (last < base))
        if len(misplaced):
            at = int(misplaced[0])
            text = (
                f"a batch of offsets {int(base[at])} … {int(last[at])} "
                f"where only {int(before[at]) + 1} … {self.metadata.end_offset} can stand"
            )
            raise self._corrupt(text, "SEGMENT_OFFSET", int(positions[at]), int(base[at]))
        self._last_offset = int(last[-1])

    def _raise_first(self, findings: Iterator[Finding]) -> None:
        for finding in findings:
            if finding.severity is not Severity.NOTE:
                raise CorruptIndexError(str(finding), fault=finding.kind, position=finding.position)

    def _corrupt(self, text: str, fault: str, position: int, offset: int = -1) -> CorruptRecordError:
        return CorruptRecordError(text, fault=fault, position=position, base_offset=offset, where=self.log_path)


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
        positions = np.zeros(1, np.int64)  # the checks say what is wrong with it
    if len(positions) == 1:
        positions = np.fromiter(_walk_headers(log), np.int64)
    if not len(positions):
        return False
    if len(positions) > _SAMPLED_BATCHES:
        positions = positions[np.linspace(0, len(positions) - 1, _SAMPLED_BATCHES).astype(np.int64)]
    ends = np.append(positions[1:], log.size_bytes)
    compressed = 0
    for position, end in zip(positions.tolist(), ends.tolist(), strict=True):
        header = _read_header(log, position)
        if header is not None and header[1]:
            compressed += end - position
    return compressed * 2 > log.size_bytes


def _read_header(log: ReadableFile, position: int) -> tuple[int, int] | None:
    """(size of the batch in bytes, codec); None where no header is."""
    data = bytearray(_HEADER.size)
    if log.read_into(data, position=position) < _HEADER.size:
        return None
    _, length, _, magic, _, attributes = _HEADER.unpack(data)
    if magic > 2 or length <= 0:
        return None
    codec = attributes if magic == 2 else data[_ATTRIBUTES_OF_OLD]
    return length + 12, codec & CODEC_MASK


def _walk_headers(log: ReadableFile) -> Generator[int]:
    """Positions of at most _SAMPLED_BATCHES neighbouring batches, from the start."""
    position = 0
    for _ in range(_SAMPLED_BATCHES):
        header = _read_header(log, position)
        if header is None:
            break
        yield position
        position += header[0]
        if position >= log.size_bytes:
            break
