"""One pass over the bytes of a segment: every batch's header, checksum, payload and records.

Memory is bounded by a window and the largest batch; decoded records are dropped once they were checked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from typing_extensions import Buffer

from tierlog._native.decoding import RecordDecoder
from tierlog.errors import CorruptRecordError, SizeLimitError
from tierlog.log.checks.findings import Finding, fault, fault_of, note
from tierlog.log.checks.segment_walk import CheckedRun
from tierlog.records.batch_runs import BATCH_SIZE_BYTES_MAX, BatchRun, BatchRuns
from tierlog.records.batch_table import CONTROL
from tierlog.records.record_times import RecordTimes
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.scheduling import Lock

#: Small enough for a core's share of cache.
FILE_WINDOW_BYTES = 2 << 20
#: What each of several walks may decompress at once; a batch beyond it is decoded by one walk at a time.
SHARED_SIZE_BYTES_MAX = 32 << 20


def iter_file_windows(files: Files, path: str) -> Iterator[memoryview]:
    """Iterate the bytes of a local file, up to the size that it had when it was opened, or to where it was cut
    meanwhile.
    """
    with files.open_read(path) as file:
        position = 0
        while position < file.size_bytes:
            buffer = bytearray(min(FILE_WINDOW_BYTES, file.size_bytes - position))
            count = file.read_into(buffer, position=position)
            if count == 0:
                return
            position += count
            yield memoryview(buffer)[:count]


@dataclass(slots=True)
class LogWalk:
    """A walk over one log: iterate it once, then read its findings.

    Attributes:
        windows: The log's bytes in order, cut anywhere.
        where: Name of the object or file, for findings.
        live: Whether this is the active segment of a running broker, in which bytes behind the last whole batch are a
            note.
        large_batch: A lock that several walks share, held while a large batch is decoded, so that only one is in
            memory.
        findings: The faults of the bytes so far.
        faults_max: Faults to list before the walk stops; one flipped bit of an offset can put all that follows out
            of order.
        end_position: Byte position behind the last whole batch.
        complete: Whether the end of the log was reached, so that the bytes behind ``end_position`` are known.
        batches, records: Counted so far.
    """

    windows: Iterable[Buffer]
    where: str
    live: bool = False
    large_batch: Lock | None = None
    faults_max: int = 100
    findings: list[Finding] = field(default_factory=list)
    end_position: int = 0
    complete: bool = False
    batches: int = 0
    records: int = 0

    def __iter__(self) -> Iterator[CheckedRun]:
        windows = iter(self.windows)
        runs = BatchRuns(windows)
        for run in runs:
            yield self._checked(run)
            self.end_position = runs.end_position
            if self._too_many():
                return
        self.complete = not runs.stopped
        if runs.oversized:
            self._oversized(runs)
        elif runs.broken is not None:
            self._structure_lost(runs.broken, runs.rest, windows)
        elif runs.rest:
            self._tail(len(runs.rest), runs.rest_size_bytes)

    def _checked(self, run: BatchRun) -> CheckedRun:
        decoding = _Decoding(run, self.large_batch)
        sound = np.ones(len(run.columns["position"]), np.bool_)
        for batch, error in decoding.faults():
            self.findings.append(fault_of(error, self.where))
            sound[batch] = False
            if self._too_many():
                break
        self.batches += len(sound)
        self.records += decoding.records
        newest = np.maximum(decoding.times.greatest, -1)
        return CheckedRun(run.columns, sound, newest, decoding.markers, decoding.times.least)

    def _too_many(self) -> bool:
        if len(self.findings) < self.faults_max:
            return False
        if len(self.findings) == self.faults_max:
            self.findings.append(
                note(
                    "NOT_CHECKED",
                    f"more than {self.faults_max} faults: the rest of this log was not checked",
                    self.where,
                    position=self.end_position,
                )
            )
        return True

    def _oversized(self, runs: BatchRuns) -> None:
        self.findings.append(
            fault(
                "OVER_LIMIT",
                "a batch that is larger than the limit, or a wrong length; nothing behind it can be found",
                self.where,
                position=self.end_position,
                expected=f"at most {BATCH_SIZE_BYTES_MAX} bytes",
                found=runs.rest_size_bytes,
            )
        )

    def _structure_lost(self, broken: CorruptRecordError, rest: bytearray, windows: Iterator[Buffer]) -> None:
        """Report bytes behind the last whole batch that are no batch: in a live log, zeros were preallocated."""
        if self.live and not any(rest) and not any(any(memoryview(window)) for window in windows):
            self.findings.append(
                note(
                    "PREALLOCATED",
                    "the active segment ends in zeros (preallocated, or a crash)",
                    self.where,
                    position=self.end_position,
                )
            )
            self.complete = True
        else:
            self.findings.append(fault_of(broken, self.where))

    def _tail(self, found: int, need: int) -> None:
        text, expected = "the log ends inside a batch", need or "at least 17 bytes"
        if self.live:
            self.findings.append(
                note(
                    "TORN_TAIL",
                    f"{text} (the active segment: being written, or cut by recovery)",
                    self.where,
                    position=self.end_position,
                    expected=expected,
                    found=found,
                )
            )
        else:
            self.findings.append(
                fault("TRUNCATED", text, self.where, position=self.end_position, expected=expected, found=found)
            )


class _Decoding:
    """The decoding of one run's records, with the facts that other checks need."""

    def __init__(self, run: BatchRun, large_batch: Lock | None) -> None:
        self._run = run
        self._large_batch = large_batch
        self._positions = run.column("position")
        self._control = (run.column("attributes") & CONTROL) != 0
        # Keys are asked for only where control records need them.
        self._columns = {"offset", "timestamp", "batchPosition"} | ({"key"} if self._control.any() else set())
        self.times = RecordTimes(self._positions)
        self.markers: dict[int, int] = {}
        self.records = 0

    def faults(self) -> Iterator[tuple[int, CorruptRecordError | SizeLimitError]]:
        """Decode all records; yields (index of the batch, fault), at most one for each batch."""
        decoder = self._decoder(self._run.position, SHARED_SIZE_BYTES_MAX)
        feed = decoder.feed(self._run.data)
        while True:
            try:
                self._look_at(feed)
                self._look_at(decoder.finish())
                return
            except (CorruptRecordError, SizeLimitError) as error:
                batch = int(np.searchsorted(self._positions, error.position, side="right")) - 1
                fault_here = self._alone(batch) if isinstance(error, SizeLimitError) else error
                if fault_here is not None:
                    yield batch, fault_here
                decoder.skip_batch()
                feed = decoder.feed(b"")

    def _alone(self, batch: int) -> CorruptRecordError | SizeLimitError | None:
        """Decode one large batch while no other walk does; returns its fault, if it has one."""
        with self._large_batch or contextlib.nullcontext():
            decoder = self._decoder(int(self._positions[batch]), BATCH_SIZE_BYTES_MAX)
            try:
                self._look_at(decoder.feed(self._run.bytes_of(batch)))
                self._look_at(decoder.finish())
            except (CorruptRecordError, SizeLimitError) as error:
                return error
        return None

    def _decoder(self, base_position: int, limit_bytes: int) -> RecordDecoder:
        return RecordDecoder(
            self._columns,
            base_position=base_position,
            from_offset=-(2**63),
            control_records=True,
            decompressed_limit=limit_bytes,
        )

    def _look_at(self, decoded: Iterator[pa.RecordBatch]) -> None:
        for rows in decoded:
            if rows.num_rows == 0:
                continue
            self.records += rows.num_rows
            batch = self.times.add(rows)
            for row in np.flatnonzero(self._control[batch]).tolist():
                key = rows.column("key")[row].as_py()
                self.markers.setdefault(int(batch[row]), int.from_bytes(key[2:4], "big"))
