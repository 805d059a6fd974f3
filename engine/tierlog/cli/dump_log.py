"""The walk over one log for ``tierlog dump``: batches as columns, records as Arrow, in the order of the file.

Rows never become Python objects here; a form turns whole columns into lines. Memory is bounded by a window and the
largest batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tierlog._native.batches import scan_batches
from tierlog._native.codecs import decompress
from tierlog._native.decoding import RecordDecoder
from tierlog.cli.dump_sources import Part
from tierlog.errors import CorruptDataError, CorruptRecordError
from tierlog.records.batch_table import CODEC_MASK, CODEC_NAMES, BatchTable
from tierlog.remote.manager.batch_runs import BatchRuns

#: Faults of one log that are told one by one.
FAULTS_TOLD_MAX = 20
_COLUMNS = ("offset", "timestamp", "timestampType", "headers", "batchPosition", "sequence", "key", "value")
_LEGACY_KEY_LENGTH = {0: 18, 1: 26}  # position in an entry, by magic


@dataclass(slots=True)
class Records:
    """Rows of one run, in order.

    Attributes:
        rows: The columns of ``RecordDecoder``.
        batches: int64[n]: index of each row's batch in ``table``.
        control: bool[n].
        legacy_checksums: For rows of magic 0 and 1: (stored CRC-32, whether it is right), in order of those rows.
    """

    rows: pa.RecordBatch
    table: BatchTable
    batches: NDArray[np.int64]
    control: NDArray[np.bool_]
    legacy_checksums: list[tuple[int, bool]]


class LogForm(Protocol):
    """What a log looks like in one output format."""

    def batch_lines(self, table: BatchTable) -> list[str]: ...
    def record_lines(self, records: Records) -> list[str]: ...


@dataclass(slots=True)
class LogDump:
    """Walks one log; iterate it once, then read what it found.

    Attributes:
        deep: Records too.
        faults: What is wrong with the log, in order; the walk ends at the first that is not a wrong checksum.
        trailing_bytes: Behind the last whole batch, where the log ends inside one.
        steps: (offset, next offset) wherever a record does not follow the one before it; the first follows -1.
    """

    part: Part
    form: LogForm
    deep: bool
    faults: list[CorruptDataError] = field(default_factory=list)
    faults_untold: int = 0
    trailing_bytes: int = 0
    steps: dict[int, int] = field(default_factory=dict)
    _last_offset: int = -1
    _legacy_begun: tuple[int, int] = (-1, 0)  # position of a batch, and how many of its rows are out

    def __iter__(self) -> Iterator[list[str]]:
        """Blocks of lines."""
        runs = BatchRuns(self.part.windows(), verify_crc=True)
        position = 0
        for columns, data in runs:
            position = int(columns["position"][0])
            table = BatchTable(**columns, end_position=position + len(data), partial=False, fault=None)  # type: ignore[arg-type]
            table = self._readable(table)
            self._note_checksums(table)
            yield from self._deep(table, data) if self.deep else iter([self.form.batch_lines(table)])
            if self._stopped:
                return
        if runs.broken is not None:
            self.faults.append(runs.broken.located(self.part.label))
        else:
            self.trailing_bytes = max(len(runs.rest), self.part.size_bytes - runs.end_position) if runs.rest else 0

    @property
    def _stopped(self) -> bool:
        return any(fault.fault != "BAD_CRC" for fault in self.faults)

    def _readable(self, table: BatchTable) -> BatchTable:
        """The batches in front of one whose codec does not exist."""
        unknown = np.flatnonzero(table.codec >= len(CODEC_NAMES))
        if not unknown.size:
            return table
        at = int(unknown[0])
        self.faults.append(
            CorruptRecordError(
                f"unknown compression codec {int(table.codec[at])}",
                fault="BAD_CODEC",
                position=int(table.position[at]),
                base_offset=int(table.base_offset[at]),
                where=self.part.label,
            )
        )
        return sliced(table, 0, at)

    def _note_checksums(self, table: BatchTable) -> None:
        for at in np.flatnonzero(~table.crc_ok).tolist():
            if len(self.faults) >= FAULTS_TOLD_MAX:
                self.faults_untold += 1
                continue
            self.faults.append(
                CorruptRecordError(
                    f"the checksum of the batch differs from the stored 0x{int(table.crc[at]):08x}",
                    fault="BAD_CRC",
                    position=int(table.position[at]),
                    base_offset=int(table.base_offset[at]),
                    where=self.part.label,
                )
            )

    def _deep(self, table: BatchTable, data: memoryview) -> Iterator[list[str]]:
        """Batch lines and record lines, interleaved."""
        batch_lines = self.form.batch_lines(table)
        begun = 0  # batches whose line is out
        if not batch_lines:
            return
        decoder = RecordDecoder(_COLUMNS, base_position=int(table.position[0]), verify_crc=False, control_records=True)
        try:
            for rows in _rows(decoder, data[: int(table.end_positions[-1] - table.position[0])]):
                records = self._records(rows, table, data)
                lines = self.form.record_lines(records)
                self._note_steps(rows.column("offset").to_numpy())
                out: list[str] = []
                starts = np.flatnonzero(np.diff(records.batches, prepend=-1)).tolist()
                for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
                    batch = int(records.batches[start])
                    out += batch_lines[begun : batch + 1]
                    out += lines[start:end]
                    begun = max(begun, batch + 1)
                yield out
        except CorruptDataError as fault:
            self.faults.append(fault.located(self.part.label))
            yield batch_lines[begun : int(np.searchsorted(table.position, fault.position, side="right"))]
            return
        yield batch_lines[begun:]

    def _records(self, rows: pa.RecordBatch, table: BatchTable, data: memoryview) -> Records:
        batches = np.searchsorted(table.position, rows.column("batchPosition").to_numpy(), side="right") - 1
        checksums: list[tuple[int, bool]] = []
        legacy, counts = np.unique(batches[table.magic[batches] < 2], return_counts=True)
        for batch, count in zip(legacy.tolist(), counts.tolist(), strict=True):
            position = int(table.position[batch])
            begun = self._legacy_begun[1] if self._legacy_begun[0] == position else 0
            checksums += _legacy_checksums(table, data, batch)[begun : begun + count]
            self._legacy_begun = position, begun + count
        return Records(rows, table, batches, table.is_control[batches], checksums)

    def _note_steps(self, offsets: NDArray[np.int64]) -> None:
        before = np.concatenate(([self._last_offset], offsets[:-1]))
        for at in np.flatnonzero(offsets != before + 1).tolist():
            self.steps[int(before[at])] = int(offsets[at])
        if offsets.size:
            self._last_offset = int(offsets[-1])


def _rows(decoder: RecordDecoder, data: memoryview) -> Iterator[pa.RecordBatch]:
    yield from decoder.feed(data)
    yield from decoder.finish()


def _legacy_checksums(table: BatchTable, data: memoryview, batch: int) -> list[tuple[int, bool]]:
    """Of each message of an entry of magic 0 or 1: its own stored checksum, and whether it is right."""
    codec = int(table.attributes[batch]) & CODEC_MASK
    if codec == 0:
        return [(int(table.crc[batch]), bool(table.crc_ok[batch]))]
    magic = int(table.magic[batch])
    start = int(table.position[batch] - table.position[0])
    entry = data[start : start + int(table.size_bytes[batch])]
    key_length = _LEGACY_KEY_LENGTH[magic]
    value = key_length + 8 + max(0, int.from_bytes(entry[key_length : key_length + 4], "big", signed=True))
    columns = scan_batches(decompress(entry[value:], codec, magic=magic))[0]
    return list(zip(columns["crc"].tolist(), columns["crc_ok"].tolist(), strict=True))


def sliced(table: BatchTable, start: int, end: int) -> BatchTable:
    """The batches [start, end)."""
    columns = {
        name: getattr(table, name)[start:end]
        for name in BatchTable.__slots__
        if isinstance(getattr(table, name), np.ndarray)
    }
    return replace(table, **columns)
