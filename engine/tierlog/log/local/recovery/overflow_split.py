"""A segment whose offsets do not fit its indexes, split into several.

Source: Kafka LocalLog#splitOverflowedSegment (KAFKA-6264).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from tierlog.errors import CorruptRecordError
from tierlog.log.local.log_config import INT32_MAX, LogConfig
from tierlog.log.local.recovery.folder_tidying import CLEANED, SWAP
from tierlog.log.local.recovery.recovery_report import RecoveryReport
from tierlog.log.local.segments.log_segment import LogSegment
from tierlog.records.batch_runs import BatchRun, BatchRuns
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.buffers import new_buffer

_WINDOW_BYTES: Final = 1 << 20
#: A segment that would fall into more pieces was not written by a broker.
PIECES_MAX: Final = 1024


def split_segment(
    machine: Machine,
    folder: str,
    segment: LogSegment,
    *,
    config: LogConfig,
    report: RecoveryReport,
    next_base_offset: int,
) -> None:
    """Replace a segment by several with the same batches, whose indexes can name all offsets.

    The new ones are left as ``.swap`` files, durably: the swap is finished by ``tidy_folder``, as after a crash. What
    lies behind the last sound batch is taken along: recovery has to find it, and to cut there.

    Raises:
        CorruptRecordError: it would fall into too many pieces, or has offsets of the next segment, which the swap would
            take for replaced: a base offset is damaged then, too. StoreError. The log is as it was.
    """
    pieces: list[LogSegment] = []

    def create(base_offset: int) -> LogSegment:
        return LogSegment.create(machine, folder, base_offset, config=config, suffix=CLEANED)

    try:
        for run, first, behind, base_offset in _cuts(segment, next_base_offset):
            if base_offset is not None:
                if len(pieces) >= PIECES_MAX:
                    text = f"its offsets are so far apart that it would fall into more than {PIECES_MAX} segments"
                    raise CorruptRecordError(text, fault="BAD_OFFSET").located(segment.log_path)
                if not pieces and base_offset != segment.base_offset:  # an empty one replaces the segment itself
                    pieces.append(create(segment.base_offset))
                pieces.append(create(base_offset))
            start = int(run.columns["position"][first]) - run.position
            end = int(run.columns["position"][behind - 1] + run.columns["size_bytes"][behind - 1]) - run.position
            columns = {name: column[first:behind] for name, column in run.columns.items()}
            pieces[-1].append_run(run.data[start:end], columns)
        for piece in pieces:
            piece.on_become_inactive()
            piece.flush()
        _copy_rest(machine, segment, pieces)
        machine.files.fsync_directory(folder)
        for piece in reversed(pieces):  # with the lowest .cleaned still there, all of it would be undone
            piece.change_suffix(SWAP)
            machine.files.fsync_directory(folder)
    finally:
        for piece in pieces:
            piece.close()
    text = f"its offsets do not fit one segment: {len(pieces)} of the same batches"
    report.add("split", segment.log_path, text)


def _copy_rest(machine: Machine, segment: LogSegment, pieces: list[LogSegment]) -> None:
    position = sum(piece.size_bytes for piece in pieces)
    if position < segment.size_bytes:
        with machine.files.open_update(pieces[-1].log_path) as file:
            for window in _windows(segment, position):
                file.append(window)
            file.fsync()


def _cuts(segment: LogSegment, end_offset: int) -> Iterator[tuple[BatchRun, int, int, int | None]]:
    """(run, first row, row behind, base offset of the segment that begins with it, None if it goes on) in order."""
    base: int | None = None
    next_offset = segment.base_offset
    for run in BatchRuns(_windows(segment), verify_crc=True):
        last_offsets = run.column("last_offset")
        rising = np.diff(last_offsets, prepend=next_offset - 1) > 0
        good = rising & run.columns["crc_ok"].astype(bool)
        count = len(last_offsets) if good.all() else int(np.argmin(good))
        if count and last_offsets[count - 1] >= end_offset:
            text = f"a batch ends at offset {last_offsets[count - 1]}, and the next segment begins at {end_offset}"
            raise CorruptRecordError(text, fault="BAD_OFFSET").located(segment.log_path)
        row = 0
        while row < count:
            begins = None
            last = int(last_offsets[row])
            if base is None or last - base > INT32_MAX:
                if base is None and last - segment.base_offset <= INT32_MAX:
                    base = segment.base_offset
                else:  # a compressed batch of an old format tells its last offset alone
                    base = max(min(int(run.column("base_offset")[row]), last), next_offset, last - INT32_MAX)
                begins = base
            rest = np.asarray(last_offsets[row:count] - base > INT32_MAX, bool)
            behind = row + (int(np.argmax(rest)) if rest.any() else count - row)
            yield run, row, behind, begins
            next_offset = int(last_offsets[behind - 1]) + 1
            row = behind
        if count < len(last_offsets):
            return


def _windows(segment: LogSegment, position: int = 0) -> Iterator[memoryview]:
    buffer = new_buffer(min(_WINDOW_BYTES, segment.size_bytes))
    while count := segment.read_into(buffer, position=position):
        yield buffer[:count]
        position += count
