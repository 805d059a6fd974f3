"""The walk over one log for ``tierlog dump``: batches as columns, records as Arrow, in the order of the file.

Rows never become Python objects here; a form turns whole columns into lines. Memory is bounded by a window and the
largest batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tierlog._native.batches import scan_batches
from tierlog._native.codecs import decompress
from tierlog._native.decoding import RecordDecoder
from tierlog.cli.dump.sources import LogOutline, Part
from tierlog.errors import CorruptDataError, CorruptRecordError, SizeLimitError
from tierlog.records.batch_runs import BatchColumns, BatchRuns
from tierlog.records.batch_table import CODEC_MASK, CODEC_NAMES, BatchTable

#: Faults of one log that are printed one by one.
FAULTS_TOLD_MAX = 20
#: Steps between offsets that are held in memory for one log: a compacted log can have one at each record.
STEPS_MAX = 1_000_000
MARKER_KINDS = (0, 1)  # abort, commit
_MARKER_SIZE_BYTES = 6  # version, coordinator epoch
_COLUMNS = ("offset", "timestamp", "timestampType", "headers", "batchPosition", "sequence", "key", "value")
_LEGACY_KEY_LENGTH = {0: 18, 1: 26}  # position in an entry, by magic


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A control record.

    Attributes:
        row: Its index among the rows.
        kind: 0 abort, 1 commit; other types have nothing to do with transactions.
        coordinator_epoch: Coordinator epoch of a transaction's marker; None for other types.
    """

    row: int
    kind: int
    coordinator_epoch: int | None


@dataclass(slots=True)
class Records:
    """Rows of one run, in order.

    Attributes:
        rows: The columns of ``RecordDecoder``.
        batches: int64[n]: index of each row's batch in ``table``.
        control: bool[n].
        markers: The control records, by row.
        legacy_checksums: For rows of magic 0 and 1: (stored CRC-32, whether it is right), in order of those rows.
    """

    rows: pa.RecordBatch
    table: BatchTable
    batches: NDArray[np.int64]
    control: NDArray[np.bool_]
    markers: list[ControlRecord]
    legacy_checksums: list[tuple[int, bool]]


@dataclass(slots=True)
class LogDump:
    """A walk over one log: iterate it once, then read its attributes.

    Attributes:
        part: The log.
        batch_lines: The lines that a format has for batches, one each.
        record_lines: The lines that it has for records.
        deep: Whether records are printed too.
        faults: How many faults there were, printed or not.
        trailing_bytes: How many bytes are behind the last whole batch, if the log ends inside one.
        steps: Offset → next offset wherever a record does not follow the one before it; the first follows -1.
    """

    part: Part
    batch_lines: Callable[[BatchTable], list[str]]
    record_lines: Callable[[Records], list[str]]
    deep: bool
    faults: int = 0
    trailing_bytes: int = 0
    steps: dict[int, int] = field(default_factory=dict)
    _last_offset: int = -1
    _legacy_begun: tuple[int, int] = (-1, 0)  # position of a batch, and how many of its rows are out

    def __iter__(self) -> Iterator[list[str] | CorruptDataError]:
        """Blocks of lines, and the faults where they are: at most FAULTS_TOLD_MAX of them.

        A batch with a wrong checksum is shown as far as it can be read. A batch that cannot be read ends with its
        fault, and the walk goes on behind it; where the next batch cannot be found, the walk ends.
        """
        for found in self._walk():
            if isinstance(found, CorruptDataError):
                self.faults += 1
                if self.faults <= FAULTS_TOLD_MAX:
                    yield found.located(self.part.label)
            elif found:
                yield found

    def _walk(self) -> Iterator[list[str] | CorruptDataError]:
        runs = BatchRuns(self.part.windows(), verify_crc=True)
        seen: list[BatchColumns] = []
        for run in runs:
            columns = run.columns
            if self.part.outline_follows:
                seen.append(columns)
            end = run.position + len(run.data)
            table = BatchTable(**columns, end_position=end, partial=False, fault=None)  # type: ignore[arg-type]
            unknown = np.flatnonzero(table.codec >= len(CODEC_NAMES)).tolist()
            # Kafka's tool has no name for such a codec and ends; the bytes behind cannot be trusted more.
            readable = sliced(table, 0, unknown[0]) if unknown else table
            yield from self._run(readable, run.data)
            if unknown:
                yield _fault_of(table, unknown[0], f"unknown compression codec {table.codec[unknown[0]]}", "BAD_CODEC")
                return
        if self.part.outline_follows:
            self.part.keep_outline(LogOutline.of(seen))
        if runs.broken is not None:
            yield runs.broken
        elif runs.rest:
            self.trailing_bytes = self.part.size_bytes - runs.end_position

    def _run(self, table: BatchTable, data: memoryview) -> Iterator[list[str] | CorruptDataError]:
        if not len(table):
            return
        if self.deep:
            yield from self._deep(table, data)
        else:
            yield self.batch_lines(table)
        for at in np.flatnonzero(~table.crc_ok).tolist():
            text = f"the checksum of the batch differs from the stored 0x{int(table.crc[at]):08x}"
            yield _fault_of(table, at, text, "BAD_CRC")

    def _deep(self, table: BatchTable, data: memoryview) -> Iterator[list[str] | CorruptDataError]:
        """Batch lines and record lines, interleaved."""
        batch_lines = self.batch_lines(table)
        begun = 0  # batches whose line is out
        base = int(table.position[0])
        decoder = RecordDecoder(_COLUMNS, base_position=base, verify_crc=False, control_records=True)
        feed = decoder.feed(data[: int(table.end_positions[-1]) - base])
        while True:
            try:
                for rows in itertools.chain(feed, _finish(decoder)):
                    records = self._records(rows, table, data)
                    lines, begun = _interleaved(batch_lines, self.record_lines(records), records.batches, begun)
                    yield lines
                    yield from self._look_at(records)
                yield batch_lines[begun:]
                return
            except (CorruptRecordError, SizeLimitError) as fault:
                shown = int(np.searchsorted(table.position, fault.position, side="right"))
                yield batch_lines[begun:shown]
                yield fault
                begun = max(begun, shown)
                decoder.skip_batch()
                feed = decoder.feed(b"")

    def _records(self, rows: pa.RecordBatch, table: BatchTable, data: memoryview) -> Records:
        batches = np.searchsorted(table.position, rows.column("batchPosition").to_numpy(), side="right") - 1
        checksums: list[tuple[int, bool]] = []
        legacy, counts = np.unique(batches[table.magic[batches] < 2], return_counts=True)
        for batch, count in zip(legacy.tolist(), counts.tolist(), strict=True):
            position = int(table.position[batch])
            begun = self._legacy_begun[1] if self._legacy_begun[0] == position else 0
            checksums += _legacy_checksums(table, data, batch)[begun : begun + count]
            self._legacy_begun = position, begun + count
        control = table.is_control[batches]
        markers = [_control_record(rows, row) for row in np.flatnonzero(control).tolist()]
        return Records(rows, table, batches, control, markers, checksums)

    def _look_at(self, records: Records) -> Iterator[CorruptDataError]:
        """Note steps between offsets; yields the faults of markers and legacy messages."""
        self._note_steps(records.rows.column("offset").to_numpy())
        for marker in records.markers:
            if marker.kind in MARKER_KINDS and marker.coordinator_epoch is None:
                text = f"a transaction marker's value has less than {_MARKER_SIZE_BYTES} bytes"
                yield _fault_of(records.table, int(records.batches[marker.row]), text, "BAD_CONTROL")
        wrong = sum(not right for _, right in records.legacy_checksums)
        if wrong and records.table.crc_ok.all():  # else the entry's own checksum is printed
            legacy = int(records.batches[np.flatnonzero(records.table.magic[records.batches] < 2)[0]])
            yield _fault_of(records.table, legacy, f"{wrong} messages with a wrong checksum from here on", "BAD_CRC")

    def _note_steps(self, offsets: NDArray[np.int64]) -> None:
        before = np.concatenate(([self._last_offset], offsets[:-1]))
        for at in np.flatnonzero(offsets != before + 1).tolist():
            if len(self.steps) < STEPS_MAX:
                self.steps[int(before[at])] = int(offsets[at])
        if offsets.size:
            self._last_offset = int(offsets[-1])


def _finish(decoder: RecordDecoder) -> Iterator[pa.RecordBatch]:
    """Yield the remaining rows; called only after all others were read."""
    yield from decoder.finish()


def _interleaved(
    batch_lines: list[str], record_lines: list[str], batches: NDArray[np.int64], begun: int
) -> tuple[list[str], int]:
    """Put each batch's line in front of its records' lines; return the lines, and the number of batches begun."""
    out: list[str] = []
    starts = np.flatnonzero(np.diff(batches, prepend=-1)).tolist()
    for start, end in itertools.pairwise([*starts, len(record_lines)]):
        batch = int(batches[start])
        out += batch_lines[begun : batch + 1]
        out += record_lines[start:end]
        begun = max(begun, batch + 1)
    return out, begun


def _control_record(rows: pa.RecordBatch, row: int) -> ControlRecord:
    key, value = rows.column("key")[row].as_py(), rows.column("value")[row].as_py()
    kind = int.from_bytes(key[2:4], "big", signed=True)
    if kind not in MARKER_KINDS or value is None or len(value) < _MARKER_SIZE_BYTES:
        return ControlRecord(row, kind, None)
    return ControlRecord(row, kind, int.from_bytes(value[2:6], "big", signed=True))


def _fault_of(table: BatchTable, at: int, text: str, fault: str) -> CorruptRecordError:
    position, base_offset = int(table.position[at]), int(table.base_offset[at])
    return CorruptRecordError(text, fault=fault, position=position, base_offset=base_offset)


def _legacy_checksums(table: BatchTable, data: memoryview, batch: int) -> list[tuple[int, bool]]:
    """Return the stored checksum of each message of an entry of magic 0 or 1, and whether it is right."""
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
    """Return the batches [start, end)."""
    columns = {
        name: getattr(table, name)[start:end]
        for name in BatchTable.__slots__
        if isinstance(getattr(table, name), np.ndarray)
    }
    return replace(table, **columns)
